"""What happened to a consumer, as events for programs: told by its member, and by who looks at its partitions.

| kind | what happened | partitions |
|---|---|---|
| JOINED | the group let the member in, anew too | none |
| ASSIGNED | they are the member's, and on_assign has returned | those that came |
| REVOKED | they were given up in good order, after on_revoke | those that went |
| LOST | they may be another member's already: fenced, refused, or too slow | all that it had |
| FENCED | the coordinator does not count the member in any more, or a newer one has its instance id | none |
| TAKEOVER | the member released its instance id's former holder, and joins in its place | none |
| LEFT | the member left: by close, by unsubscribe, or because the application did not poll | none |
| HEARTBEAT_SILENCE | nobody has answered its heartbeats for three intervals, at least 5 s | none |
| HEARTBEATS_RESUMED | they are answered again; a membership that ends in its silence ends that, too | none |
| STUCK | their ends move away, their positions stand; or a rebalance is beyond its time | those that stand |
| RECOVERED | they move again, or were paused; or the rebalance is over | those that stood |
| FATAL | the membership has ended for good | none |
| CLOSED | the consumer is closed; nothing comes after it | none |

Causes come before what they lead to: FENCED before LOST, ASSIGNED after JOINED. `Lifecycle` compares what it is shown
with what it was shown before, so that nothing is told twice, whoever shows it, and however often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from consumer_membership.health.progress import AssignmentProgress
from consumer_membership.health.verdict import Health, HealthVerdict, is_silent
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import InstanceReleased, LosePartitions, StateChanged
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import FENCED_INSTANCE_CODE, JOIN_EPOCH, Instant, TopicPartition

_S = MemberState
#: The states after which what was held may be another member's.
_LOSING = frozenset({_S.FENCED, _S.STALE, _S.FATAL})
#: The states in which the coordinator still counted the member in, so that going from them is a leave.
_IN_GROUP = frozenset({_S.JOINING, _S.RECONCILE, _S.ACK, _S.STABLE, _S.UNSUBSCRIBING})
_BEYOND_ITS_TIME = frozenset({_S.RECONCILE, _S.UNSUBSCRIBING})


class LifecycleKind(Enum):
    """What happened; the module's table says what each means."""

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
    FATAL = "fatal"
    CLOSED = "closed"


_K = LifecycleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    """One thing that happened to a consumer.

    Attributes:
        kind: What it was.
        at: When it was noticed, on the monotonic clock (`time.monotonic`).
        timestamp: The same on the wall's, in seconds since 1970 (`time.time`).
        group_id: Of which group.
        member_id: The member's id then, or the one that it had; "" where it had none yet.
        instance_id: `group.instance.id`; None: a dynamic member.
        epoch: The member epoch (classic: the generation) then, or the last one; 0: it was not in its group yet.
        partitions: Those that the event is about, sorted.
        cause: Why, in words.
        dropped: How many events before this one were dropped, because callbacks were too slow.
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
    dropped: int = 0


class Moment(NamedTuple):
    """A moment on both clocks: monotonic, and seconds since 1970."""

    at: Instant
    timestamp: float


class _EventDraft(NamedTuple):
    """What changed; `_made` adds of which member and when."""

    kind: LifecycleKind
    cause: str
    partitions: Iterable[TopicPartition] = ()


class Lifecycle:
    """The life of one consumer from a moment on: what was before is not told. Not for two threads at a time."""

    def __init__(self, view: MembershipView) -> None:
        self._view = view
        self._epoch = view.member_epoch
        self._member_id = view.member_id
        #: What it was told to have, or had at the beginning.
        self._held = frozenset(view.owned)
        self._is_silent = False
        self._is_closed = False
        #: The partitions that were told as stuck, each with the position at which it stood.
        self._stuck: dict[TopicPartition, int | None] = {}
        #: Why a rebalance was told as stuck; None: none was.
        self._stuck_rebalance: str | None = None

    # ---- what it is shown ----

    def observed(
        self, effects: Collection[GroupEffect], view: MembershipView, moment: Moment
    ) -> tuple[LifecycleEvent, ...]:
        """The member took an event in, ordered these, and is as this view shows."""
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
            cause = f"the group let the member in at epoch {view.member_epoch} ({view.protocol.value} protocol)"
            events += self._made([_EventDraft(_K.JOINED, cause)], moment)
        if view.owned is not before.owned:
            events += self._made(self._holdings(effects, view), moment)
        return tuple(events)

    def looked(self, health: Health, progress: AssignmentProgress, moment: Moment) -> tuple[LifecycleEvent, ...]:
        """Somebody looked at the partitions, and found this."""
        if self._is_closed:
            return ()
        drafts = [*self._silence(moment.at), *self._rebalance(health), *self._progress(progress)]
        return tuple(self._made(drafts, moment))

    def closed(self, moment: Moment) -> tuple[LifecycleEvent, ...]:
        """The consumer is closed: nothing is told any more."""
        if self._is_closed:
            return ()
        self._is_closed = True
        return tuple(self._made([_EventDraft(_K.CLOSED, "the application closed the consumer")], moment))

    # ---- what is told of it ----

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
            )

    def _changes(self, effects: Iterable[GroupEffect], view: MembershipView) -> Iterator[_EventDraft]:
        """What the member's states say, in their order."""
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
        """The end of a silence; of one that nobody saw, because this process stood still, its beginning, too."""
        heard_at = before.last_heartbeat_at
        is_fenced = view.state is _S.FENCED and before.state is not _S.FENCED
        if heard_at is not None and (is_fenced or view.last_heartbeat_at not in (heard_at, None)):
            if not self._is_silent and is_silent(now, before):
                self._is_silent = True
                yield _silence(before, now - heard_at)
            if self._is_silent:
                self._is_silent = False
                yield _EventDraft(_K.HEARTBEATS_RESUMED, f"the coordinator answers again, after {now - heard_at:.1f} s")
        elif view.state not in _IN_GROUP:
            self._is_silent = False

    def _holdings(self, effects: Collection[GroupEffect], view: MembershipView) -> Iterator[_EventDraft]:
        """What the member gave up, lost, and took."""
        gone = self._held - view.owned.keys()
        # What was on its way when the application left counts as owned until the leave, and was never told.
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
            yield _EventDraft(_K.ASSIGNED, f"the group assigned them at epoch {view.member_epoch}", come)

    def _silence(self, now: Instant) -> Iterator[_EventDraft]:
        heard_at = self._view.last_heartbeat_at
        if not self._is_silent and heard_at is not None and is_silent(now, self._view):
            self._is_silent = True
            yield _silence(self._view, now - heard_at)

    def _rebalance(self, health: Health) -> Iterator[_EventDraft]:
        """One that is beyond its time, and its end."""
        if health.verdict is HealthVerdict.STUCK and self._view.state in _BEYOND_ITS_TIME:
            if self._stuck_rebalance is None:
                self._stuck_rebalance = health.why
                yield _EventDraft(_K.STUCK, health.why)
        elif self._stuck_rebalance is not None:
            self._stuck_rebalance = None
            yield _EventDraft(_K.RECOVERED, f"the rebalance is over: the member is {self._view.state}")

    def _progress(self, progress: AssignmentProgress) -> Iterator[_EventDraft]:
        """The partitions that stand since the last look, and those that do not stand any more, by cause."""
        stuck: dict[str, list[TopicPartition]] = {}
        recovered: dict[str, list[TopicPartition]] = {}
        for partition in progress.stuck:
            if partition not in self._stuck:
                seen = progress.partitions[partition]
                self._stuck[partition] = seen.position
                stuck.setdefault(f"waits for {seen.waits_for_text}", []).append(partition)
        for partition, position in tuple(self._stuck.items()):
            found = progress.partitions.get(partition)
            if found is None:  # what became of it the membership's events say
                del self._stuck[partition]
            elif not found.is_stuck and found.waits_for is not None:
                del self._stuck[partition]
                recovered.setdefault(f"waits for {found.waits_for_text}", []).append(partition)
            elif not found.is_stuck and found.position != position:
                del self._stuck[partition]
                recovered.setdefault("its position moves again", []).append(partition)
            elif not found.is_stuck and found.lag == 0:
                # Of one whose end nobody told: its leader is back, and there is nothing to read.
                del self._stuck[partition]
                recovered.setdefault("it is known where it ends, and nothing is behind", []).append(partition)
            # One that still stands, of an application that does not poll, has not recovered.
        yield from (_EventDraft(_K.RECOVERED, cause, partitions) for cause, partitions in recovered.items())
        yield from (_EventDraft(_K.STUCK, cause, partitions) for cause, partitions in stuck.items())


def _silence(view: MembershipView, for_s: float) -> _EventDraft:
    whose = f"the coordinator, {view.coordinator}" if view.coordinator is not None else "a coordinator"
    cause = f" ({view.present_error})" if view.coordinator is None and view.present_error is not None else ""
    return _EventDraft(_K.HEARTBEAT_SILENCE, f"no heartbeat was answered by {whose}, for {for_s:.1f} s{cause}")


def _why_lost(view: MembershipView) -> str:
    return str(view.last_error) if view.last_error is not None else _reason(view)


def _why_revoked(view: MembershipView) -> str:
    if view.state in (_S.UNSUBSCRIBING, _S.UNSUBSCRIBED):
        return "the application leaves the group"
    return f"the group wants them elsewhere, or nobody subscribes them (epoch {view.member_epoch})"


def _reason(view: MembershipView) -> str:
    return view.transitions[-1].reason if view.transitions else "the membership has ended"
