"""Lifecycle events of a consumer for programs, from its membership and from the samples of its partitions.

`LifecycleKind` explains each event. Causes come before their effects: FENCED before LOST, JOINED before ASSIGNED.
`Lifecycle` compares each input with the previous one, so that each change is reported once, from any source and however
often it is observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import NamedTuple, assert_never

from consumer_membership.health.handlers import (
    HandlerFact,
    HandlerHealth,
    HandlersDisowned,
    RecordDeadLettered,
    TopicPartitionOffset,
)
from consumer_membership.health.progress import AssignmentProgress
from consumer_membership.health.verdict import Health, HealthVerdict, is_silent
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import InstanceReleased, LosePartitions, StateChanged
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.text import counted
from consumer_membership.types import FENCED_INSTANCE_CODE, JOIN_EPOCH, Instant, TopicPartition

_S = MemberState
#: The states after which another member may own the partitions.
_LOSING = frozenset({_S.FENCED, _S.STALE, _S.FATAL})
#: The states in which the coordinator still has the member, so that a transition out of them is a leave.
_IN_GROUP = frozenset({_S.JOINING, _S.RECONCILE, _S.ACK, _S.STABLE, _S.UNSUBSCRIBING})
_BEYOND_ITS_TIME = frozenset({_S.RECONCILE, _S.UNSUBSCRIBING})
#: The most dead-lettered records that one event names.
_MOST_RECORDS = 100


class LifecycleKind(Enum):
    """The kind of a lifecycle event.

    Attributes:
        JOINED: The group accepted the member, for the first time or again.
        ASSIGNED: The member owns `partitions`, and on_assign has returned.
        REVOKED: The member released `partitions` after on_revoke.
        LOST: Other members may already own `partitions`, because the member was fenced, rejected or too slow.
        FENCED: The coordinator removed the member, or a newer member has its instance id.
        TAKEOVER: The member released the former holder of its instance id, and joins with that id.
        LEFT: The member left: by close, by unsubscribe, or because the application did not poll.
        HEARTBEAT_SILENCE: There was no heartbeat response for three intervals, at least 5 s.
        HEARTBEATS_RESUMED: Heartbeat responses arrive again.
        STUCK: The positions of `partitions` do not move while their ends increase; or a rebalance exceeded its timeout;
            or the handlers of `records` exceeded `handler_timeout`.
        RECOVERED: The positions of `partitions` move again or were paused; or the rebalance is over; or the handlers of
            `records` ended.
        DEAD_LETTERED: Records were passed to the dead-letter target. One event at each sample, every two seconds, has
            all records since the previous one; `records` names the first hundred of them.
        DISOWNED: The partitions of `records` were lost or revoked while their handlers ran. The next owner processes
            these records again, while their handlers may still run here.
        FATAL: The membership has ended permanently, or the processor failed.
        CLOSED: The consumer is closed; this is the last event.
    """

    JOINED = "joined"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    FENCED = "fenced"
    TAKEOVER = "takeover"
    LEFT = "left"
    HEARTBEAT_SILENCE = "heartbeat_silence"
    HEARTBEATS_RESUMED = "heartbeats_resumed"
    STUCK = "stuck"
    RECOVERED = "recovered"
    DEAD_LETTERED = "dead_lettered"
    DISOWNED = "disowned"
    FATAL = "fatal"
    CLOSED = "closed"


_K = LifecycleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    """One lifecycle event of a consumer.

    Attributes:
        kind: The kind of the event.
        at: When it was noticed, on the monotonic clock (`time.monotonic`).
        timestamp: When it was noticed, in seconds since 1970 (`time.time`).
        group_id: The group.
        member_id: The member id at that moment or before the end of the membership; "" if it had none yet.
        instance_id: `group.instance.id`; None: a dynamic member.
        epoch: The member epoch (classic: the generation), or the last one after the membership; 0: it was not a member
            yet.
        partitions: The partitions of the event, sorted.
        cause: The cause, as text for people.
        records: The records of the event, sorted; only events of handlers have them.
        dropped: The number of events that were dropped before this one because callbacks were too slow.
    """

    kind: LifecycleKind
    at: Instant
    timestamp: float
    group_id: str
    member_id: str
    instance_id: str | None
    epoch: int
    partitions: tuple[TopicPartition, ...] = ()
    cause: str
    records: tuple[TopicPartitionOffset, ...] = ()
    dropped: int = 0


class Moment(NamedTuple):
    """One moment on both clocks: monotonic, and seconds since 1970."""

    at: Instant
    timestamp: float


class _EventDraft(NamedTuple):
    """A change; `_made` adds the member and the time."""

    kind: LifecycleKind
    cause: str
    partitions: Iterable[TopicPartition] = ()
    records: Iterable[TopicPartitionOffset] = ()


class Lifecycle:
    """The lifecycle of one consumer from a moment on; earlier changes are not reported. Not thread-safe."""

    def __init__(self, view: MembershipView) -> None:
        self._view = view
        self._epoch = view.member_epoch
        self._member_id = view.member_id
        #: The partitions that were reported as assigned, or were owned at the beginning.
        self._held = frozenset(view.owned)
        self._is_silent = False
        self._is_closed = False
        #: The partitions that were reported as stuck, each with its position at that time.
        self._stuck: dict[TopicPartition, int | None] = {}
        #: The cause of a rebalance that was reported as stuck; None: no rebalance was.
        self._stuck_rebalance: str | None = None
        self._handlers = _HandlerChanges()

    # ---- input ----

    def observed(
        self, effects: Collection[GroupEffect], view: MembershipView, moment: Moment
    ) -> tuple[LifecycleEvent, ...]:
        """Return the events of an input of the membership: its effects and the view afterwards."""
        if self._is_closed:
            return ()
        before, self._view = self._view, view
        events = [
            *self._made(self._heartbeats(before, view, moment.at), moment),
            *self._made(self._changes(effects, view), moment),
        ]
        if view.member_epoch > JOIN_EPOCH:
            self._epoch = view.member_epoch
        self._member_id = view.member_id or self._member_id
        if view.member_epoch > JOIN_EPOCH >= before.member_epoch:
            cause = f"the group accepted the member at epoch {view.member_epoch} ({view.protocol.value} protocol)"
            events += self._made([_EventDraft(_K.JOINED, cause)], moment)
        if view.owned is not before.owned:
            events += self._made(self._holdings(effects, view), moment)
        return tuple(events)

    def sampled(self, health: Health, progress: AssignmentProgress, moment: Moment) -> tuple[LifecycleEvent, ...]:
        """Return the events of a sample of the partitions."""
        if self._is_closed:
            return ()
        drafts = [*self._silence(moment.at), *self._rebalance(health), *self._progress(progress)]
        if health.handlers is not None:
            drafts += self._handlers.sampled(health.handlers)
        return tuple(self._made(drafts, moment))

    def handled(self, fact: HandlerFact, moment: Moment) -> tuple[LifecycleEvent, ...]:
        """Return the events of a fact that the processor reported."""
        return () if self._is_closed else tuple(self._made(self._handlers.handled(fact), moment))

    def closed(self, moment: Moment, handlers: HandlerHealth | None = None) -> tuple[LifecycleEvent, ...]:
        """Return the events of the close; no events follow. `handlers`: their state at the close."""
        if self._is_closed:
            return ()
        self._is_closed = True
        drafts = [*self._handlers.sampled(handlers)] if handlers is not None else []
        drafts.append(_EventDraft(_K.CLOSED, "the application closed the consumer"))
        return tuple(self._made(drafts, moment))

    # ---- output ----

    def _made(self, drafts: Iterable[_EventDraft], moment: Moment) -> Iterator[LifecycleEvent]:
        for one in drafts:
            yield LifecycleEvent(
                kind=one.kind,
                at=moment.at,
                timestamp=moment.timestamp,
                group_id=self._view.group_id,
                member_id=self._member_id,
                instance_id=self._view.instance_id,
                epoch=self._epoch,
                partitions=tuple(sorted(one.partitions)),
                cause=one.cause,
                records=tuple(sorted(one.records)),
            )

    def _changes(self, effects: Iterable[GroupEffect], view: MembershipView) -> Iterator[_EventDraft]:
        """Yield the events of the member's state changes, in their order."""
        for effect in effects:
            match effect:
                case InstanceReleased():
                    cause = f"released member {effect.holder}, which held group.instance.id '{effect.instance_id}'"
                    yield _EventDraft(_K.TAKEOVER, cause)
                case StateChanged(new=_S.FENCED):
                    yield _EventDraft(_K.FENCED, effect.reason)
                case StateChanged(new=_S.FATAL):
                    if view.last_error is not None and view.last_error.code == FENCED_INSTANCE_CODE:
                        yield _EventDraft(_K.FENCED, effect.reason)
                    yield _EventDraft(_K.FATAL, effect.reason)
                case StateChanged(new=_S.STALE):
                    yield _EventDraft(_K.LEFT, effect.reason)
                case StateChanged(new=_S.UNSUBSCRIBED) if effect.old in _IN_GROUP:
                    yield _EventDraft(_K.LEFT, effect.reason)
                case _:
                    pass

    def _heartbeats(self, before: MembershipView, view: MembershipView, now: Instant) -> Iterator[_EventDraft]:
        """Yield the end of a silence; also its beginning, if the process was suspended and did not notice it."""
        last_heartbeat_at = before.last_heartbeat_at
        is_fenced = view.state is _S.FENCED and before.state is not _S.FENCED
        if last_heartbeat_at is not None and (is_fenced or view.last_heartbeat_at not in (last_heartbeat_at, None)):
            if not self._is_silent and is_silent(now, before):
                self._is_silent = True
                yield _silence(before, now - last_heartbeat_at)
            if self._is_silent:
                self._is_silent = False
                yield _EventDraft(
                    _K.HEARTBEATS_RESUMED, f"heartbeat responses resumed after {now - last_heartbeat_at:.1f} s"
                )
        elif view.state not in _IN_GROUP:
            self._is_silent = False

    def _holdings(self, effects: Collection[GroupEffect], view: MembershipView) -> Iterator[_EventDraft]:
        """Yield the partitions that the member released, lost and received."""
        gone = self._held - view.owned.keys()
        # Partitions that were being assigned when the application left count as owned, but were never reported.
        come = frozenset() if view.state is _S.UNSUBSCRIBING else view.owned.keys() - self._held
        self._held = self._held - gone | come
        if gone:
            is_loss = view.state in _LOSING or any(isinstance(effect, LosePartitions) for effect in effects)
            yield (
                _EventDraft(_K.LOST, _why_lost(view), gone)
                if is_loss
                else _EventDraft(_K.REVOKED, _why_revoked(view), gone)
            )
        if come:
            yield _EventDraft(_K.ASSIGNED, f"the group assigned the partitions at epoch {view.member_epoch}", come)

    def _silence(self, now: Instant) -> Iterator[_EventDraft]:
        last_heartbeat_at = self._view.last_heartbeat_at
        if not self._is_silent and last_heartbeat_at is not None and is_silent(now, self._view):
            self._is_silent = True
            yield _silence(self._view, now - last_heartbeat_at)

    def _rebalance(self, health: Health) -> Iterator[_EventDraft]:
        """Yield a rebalance that exceeds its timeout, and its end."""
        if health.verdict is HealthVerdict.STUCK and self._view.state in _BEYOND_ITS_TIME:
            is_of_handlers = health.handlers is not None and health.handlers.stuck
            if self._stuck_rebalance is None and not is_of_handlers:
                self._stuck_rebalance = health.why
                yield _EventDraft(_K.STUCK, health.why)
        elif self._stuck_rebalance is not None:
            self._stuck_rebalance = None
            yield _EventDraft(_K.RECOVERED, f"the rebalance is over: the member is {self._view.state}")

    def _progress(self, progress: AssignmentProgress) -> Iterator[_EventDraft]:
        """Yield the partitions that became stuck since the last sample, and those that recovered, grouped by cause."""
        stuck: dict[str, list[TopicPartition]] = {}
        recovered: dict[str, list[TopicPartition]] = {}
        for partition in progress.stuck:
            if partition not in self._stuck:
                seen = progress.partitions[partition]
                self._stuck[partition] = seen.position
                stuck.setdefault(f"waits for {seen.waits_for_text}", []).append(partition)
        for partition, position in tuple(self._stuck.items()):
            found = progress.partitions.get(partition)
            if found is None:  # the membership's events report what happened to it
                del self._stuck[partition]
            elif not found.is_stuck and found.waits_for is not None:
                del self._stuck[partition]
                recovered.setdefault(f"waits for {found.waits_for_text}", []).append(partition)
            elif not found.is_stuck and found.position != position:
                del self._stuck[partition]
                recovered.setdefault("the position moves again", []).append(partition)
            elif not found.is_stuck and found.lag == 0:
                # The end offset of this partition was unknown: its leader is back, and there is nothing to read.
                del self._stuck[partition]
                recovered.setdefault("the end offset is known, and no record follows the position", []).append(
                    partition
                )
            # A partition that is still unmoved because the application does not poll has not recovered.
        yield from (_EventDraft(_K.RECOVERED, cause, partitions) for cause, partitions in recovered.items())
        yield from (_EventDraft(_K.STUCK, cause, partitions) for cause, partitions in stuck.items())


class _HandlerChanges:
    """The changes of a processor's handlers from sample to sample, and the facts that it reports between samples."""

    def __init__(self) -> None:
        #: The handlers that were reported as stuck.
        self._stuck: frozenset[TopicPartitionOffset] = frozenset()
        self._has_failed = False
        #: The dead-lettered records since the last sample: how many, by their error, and the first of them.
        self._errors: Counter[str] = Counter()
        self._dead: list[TopicPartitionOffset] = []

    def handled(self, fact: HandlerFact) -> Iterator[_EventDraft]:
        """Yield the event of a fact; dead letters wait for the next sample, because there may be thousands."""
        match fact:
            case RecordDeadLettered():
                self._errors[fact.error] += 1
                if len(self._dead) < _MOST_RECORDS:
                    self._dead.append(TopicPartitionOffset(*fact.partition, fact.offset))
            case HandlersDisowned():
                gone = "lost" if fact.is_loss else "given up"
                cause = f"the partitions were {gone} while the handlers ran; the next owner processes the records again"
                records = [
                    TopicPartitionOffset(*partition, offset)
                    for partition, offsets in fact.offsets.items()
                    for offset in offsets
                ]
                yield _EventDraft(_K.DISOWNED, cause, fact.offsets, records)
            case _:
                assert_never(fact)

    def sampled(self, handlers: HandlerHealth) -> Iterator[_EventDraft]:
        """Yield the dead letters since the last sample, the handlers that became stuck or ended, and a failure."""
        if self._errors:
            number = self._errors.total()
            errors = ", ".join(f"{error}: {count}" for error, count in self._errors.most_common())
            cause = f"dead-lettered {counted(number, 'record')} ({errors})"
            yield _EventDraft(_K.DEAD_LETTERED, cause, _partitions_of(self._dead), tuple(self._dead))
            self._errors.clear()
            self._dead.clear()
        stuck = frozenset(TopicPartitionOffset(*one.partition, one.offset) for one in handlers.stuck)
        new, ended = stuck - self._stuck, self._stuck - stuck
        self._stuck = stuck
        if ended:
            yield _EventDraft(_K.RECOVERED, "the handlers ended", _partitions_of(ended), ended)
        if new:
            yield _EventDraft(_K.STUCK, "the handlers exceeded handler_timeout", _partitions_of(new), new)
        if handlers.failure is not None and not self._has_failed:
            self._has_failed = True
            yield _EventDraft(_K.FATAL, handlers.failure)


def _partitions_of(records: Iterable[TopicPartitionOffset]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(one.topic, one.partition) for one in records)


def _silence(view: MembershipView, for_s: float) -> _EventDraft:
    whose = f"the coordinator {view.coordinator}" if view.coordinator is not None else "a coordinator"
    cause = f" ({view.present_error})" if view.coordinator is None and view.present_error is not None else ""
    return _EventDraft(_K.HEARTBEAT_SILENCE, f"no heartbeat response from {whose} for {for_s:.1f} s{cause}")


def _why_lost(view: MembershipView) -> str:
    return str(view.last_error) if view.last_error is not None else _reason(view)


def _why_revoked(view: MembershipView) -> str:
    if view.state in (_S.UNSUBSCRIBING, _S.UNSUBSCRIBED):
        return "the application leaves the group"
    return f"the group assigned them to other members, or no member subscribes to them (epoch {view.member_epoch})"


def _reason(view: MembershipView) -> str:
    return view.transitions[-1].reason if view.transitions else "the membership has ended"
