"""Count what a member does, on its thread, per event: rebalances, heartbeats, commits, fences, takeovers.

Its input is that of an observer: an event, its effects, and the view afterwards.

As in the Java client, a rebalance begins when the member begins to reconcile (in a classic group, to join), and ends
when the member has its new assignment. The time without records is counted for each partition that moves:

| side | from | to |
|---|---|---|
| GIVEN_UP | its records are no longer returned | the coordinator knows that it is free |
| TAKEN | the coordinator assigned it | on_assign has returned, and it is fetched |
| KEPT | its records were no longer returned, or it was lost | the same member fetches it again |

A lost partition that does not return is counted by its new owner. The sum over both members is the partition's time
without records in the group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.distribution import Distribution, Durations
from consumer_membership.types import FENCED_INSTANCE_CODE, GroupProtocol, Instant, TopicPartition

_S = MemberState


class RebalanceCause(Enum):
    """The cause of a change of the member's assignment, as far as the member can know it.

    Attributes:
        JOINED: The member joined.
        REJOINED: The member joined again after it had left or lost all partitions.
        SUBSCRIPTION: Its own subscription changed.
        ASSIGNMENT: The coordinator changed its assignment because members or topics changed.
        FENCED: The membership ended: the coordinator fenced the member.
        NOT_POLLED: The membership ended: the application did not poll within max.poll.interval.ms.
        LEFT: The membership ended: the member left.
        FATAL: The membership ended: the coordinator rejected the member permanently.
    """

    JOINED = "joined"
    REJOINED = "rejoined"
    SUBSCRIPTION = "subscription"
    ASSIGNMENT = "assignment"
    FENCED = "fenced"
    NOT_POLLED = "not_polled"
    LEFT = "left"
    FATAL = "fatal"


class Standstill(Enum):
    """The part of a partition's time without records that this member measured.

    Attributes:
        GIVEN_UP: From the last record until the coordinator knows that the partition is free.
        TAKEN: From the coordinator's assignment until on_assign has returned and the partition is fetched.
        KEPT: From the last record, or the loss, until the same member fetches the partition again.
    """

    GIVEN_UP = "given_up"
    TAKEN = "taken"
    KEPT = "kept"


_ENDS: Mapping[MemberState, RebalanceCause] = MappingProxyType(
    {
        _S.FENCED: RebalanceCause.FENCED,
        _S.STALE: RebalanceCause.NOT_POLLED,
        _S.UNSUBSCRIBING: RebalanceCause.LEFT,
        _S.FATAL: RebalanceCause.FATAL,
    }
)
#: The error name of a heartbeat or a commit without a response.
NO_ANSWER = "_NO_ANSWER"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipCounts:
    """The counts of a member up to one moment; times are of the monotonic clock.

    Attributes:
        rebalances: The number of rebalances and ends of the membership by cause.
        rebalance: The durations of rebalances, including callbacks.
        rebalances_failed: The number of rebalances during which the membership ended.
        rebalances_failed_per_s: Failed rebalances per second over the last 30 to 60 seconds.
        rebalanced_at: When the last rebalance ended; None: none has.
        standstill: The times of single partitions without records because of a rebalance, by `Standstill`.
        heartbeat: The durations from a heartbeat to its response.
        heartbeat_failures: The number of failed heartbeats by Kafka's error name; `_NO_ANSWER`: no response.
        heartbeat_sent_at: When the last heartbeat was sent; None: none was.
        join: Classic members: the durations of JoinGroup requests that returned a generation.
        sync: Classic members: the durations of SyncGroup requests that returned an assignment.
        commit: The durations from a commit to its response.
        commit_failures: The number of failed commits by Kafka's error name.
        takeovers: The number of takeovers of the instance id.
        fences: The number of times the coordinator fenced the member.
        poll_timeouts: The number of times the application exceeded max.poll.interval.ms.
    """

    rebalances: Mapping[RebalanceCause, int]
    rebalance: Distribution
    rebalances_failed: int
    rebalances_failed_per_s: float
    rebalanced_at: Instant | None
    standstill: Mapping[Standstill, Distribution]
    heartbeat: Distribution
    heartbeat_failures: Mapping[str, int]
    heartbeat_sent_at: Instant | None
    join: Distribution
    sync: Distribution
    commit: Distribution
    commit_failures: Mapping[str, int]
    takeovers: int
    fences: int
    poll_timeouts: int


class MembershipLedger:
    """The counts of one member: its thread calls `note`, any thread `counts`."""

    def __init__(self) -> None:
        #: The durations that have listeners (`Durations.listen`).
        self.rebalance = Durations()
        self.heartbeat = Durations()
        self.join = Durations()
        self.sync = Durations()
        self.commit = Durations()
        self.standstill = {side: Durations() for side in Standstill}
        self._rebalances = dict.fromkeys(RebalanceCause, 0)
        self._failed = Durations()
        self._rebalanced_at: Instant | None = None
        self._heartbeat_failures: dict[str, int] = {}
        self._heartbeat_sent_at: Instant | None = None
        self._commit_failures: dict[str, int] = {}
        self._takeovers = self._fences = self._poll_timeouts = 0
        self._began_at: Instant | None = None
        #: The cause of the next rebalance, if it is known in advance.
        self._cause = RebalanceCause.ASSIGNMENT
        self._request: tuple[int, Instant] | None = None
        #: The latest JoinGroup or SyncGroup: a member sends the next one when it no longer waits for the previous one.
        self._exchange: tuple[int, Instant] | None = None
        self._commits: dict[int, Instant] = {}
        self._owned: Collection[TopicPartition] = ()
        #: Since when each partition's records are not returned, and which of them another member may already own.
        self._stopped_at: dict[TopicPartition, Instant] = {}
        self._lost: set[TopicPartition] = set()
        self._arriving: tuple[int, frozenset[TopicPartition]] = (-1, frozenset())

    def counts(self, now: Instant) -> MembershipCounts:
        """Return the counts so far."""
        failed = self._failed.seen(now)
        return MembershipCounts(
            rebalances=MappingProxyType(self._rebalances.copy()),
            rebalance=self.rebalance.seen(now),
            rebalances_failed=failed.count,
            rebalances_failed_per_s=failed.recent.per_s,
            rebalanced_at=self._rebalanced_at,
            standstill=MappingProxyType({side: durations.seen(now) for side, durations in self.standstill.items()}),
            heartbeat=self.heartbeat.seen(now),
            heartbeat_failures=MappingProxyType(self._heartbeat_failures.copy()),
            heartbeat_sent_at=self._heartbeat_sent_at,
            join=self.join.seen(now),
            sync=self.sync.seen(now),
            commit=self.commit.seen(now),
            commit_failures=MappingProxyType(self._commit_failures.copy()),
            takeovers=self._takeovers,
            fences=self._fences,
            poll_timeouts=self._poll_timeouts,
        )

    # ---- on the member's thread ----

    def note(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView, now: Instant) -> None:
        """Count this event and its effects."""
        self._note_event(event, now)
        for effect in effects:
            self._note_effect(effect, view, now)
        self._owned = view.owned.keys()

    def _note_event(self, event: GroupEvent, now: Instant) -> None:
        match event:
            case ev.HeartbeatAnswered() | ex.ClassicHeartbeatAnswered():
                self._end_heartbeat(event.request_id, now)
            case ex.ClassicHeartbeatRejected(verdict=ex.ClassicVerdict.REJOIN_NOW):
                # The group rebalances, which is not a failure of the member.
                self._end_heartbeat(event.request_id, now)
            case ev.HeartbeatRejected() | ex.ClassicHeartbeatRejected():
                self._end_heartbeat(event.request_id, now, event.error.name)
            case ev.HeartbeatFailed() | ex.ExchangeFailed():
                self._end_heartbeat(event.request_id, now, NO_ANSWER)
            case ev.Subscribed():
                if self._cause is RebalanceCause.ASSIGNMENT:
                    self._cause = RebalanceCause.SUBSCRIPTION
            case ev.StepFinished(step=ev.Step.ASSIGN, failed=False):
                self._end_arrival(event.attempt, now)
            case ex.JoinAnswered():
                self._end_exchange(event.request_id, self.join, now)
            case ex.SyncAnswered():
                self._end_exchange(event.request_id, self.sync, now)
            case _:
                self._note_commit_answer(event, now)

    def _note_commit_answer(self, event: GroupEvent, now: Instant) -> None:
        match event:
            case ev.CommitAnswered():
                self._end_commit(event.commit_id, now)
            case ex.ClassicCommitAnswered():
                self._end_commit(event.answer.commit_id, now)
            case ev.CommitFailed():
                self._commits.pop(event.commit_id, None)
            case _:
                pass

    def _note_effect(self, effect: GroupEffect, view: MembershipView, now: Instant) -> None:
        match effect:
            case ef.SendHeartbeat() | ex.SendClassicHeartbeat():
                self._request, self._heartbeat_sent_at = (effect.request_id, now), now
            case ex.SendJoin() | ex.SendSync():
                self._exchange = (effect.request_id, now)
            case ef.CommitOffsets():
                self._commits[effect.commit_id] = now
            case ef.CommitCompleted():
                self._end_commits(effect)
            case ef.StateChanged():
                self._note_state(effect.old, effect.new, view, now)
            case ef.InstanceReleased():
                self._takeovers += 1
            case ef.RaiseToApplication(problem=ef.Problem.FATAL) if effect.error.code == FENCED_INSTANCE_CODE:
                self._fences += 1
            case _:
                self._note_step(effect, now)

    def _note_step(self, effect: GroupEffect, now: Instant) -> None:
        match effect:
            case ef.PausePartitions() | ef.RevokePartitions():
                self._stop(self._owned if effect.partitions is None else effect.partitions, now)
            case ef.LosePartitions():
                self._stop(self._owned, now)
                self._lost.update(self._owned)
            case ef.AssignPartitions():
                self._arriving = (effect.attempt, frozenset(effect.offsets))
            case ef.LeaveCompleted():
                self._settle(frozenset(), now)
            case _:
                pass

    # ---- requests ----

    def _end_heartbeat(self, request_id: int, now: Instant, failure: str | None = None) -> None:
        if self._request is None or self._request[0] != request_id:
            return
        if failure is not None:
            _count(self._heartbeat_failures, failure)
        if failure != NO_ANSWER:
            self.heartbeat.add(now - self._request[1], now)
        self._request = None

    def _end_exchange(self, request_id: int, of: Durations, now: Instant) -> None:
        """Count a response that the Java client measures: one with which the member proceeds."""
        if self._exchange is not None and self._exchange[0] == request_id:
            of.add(now - self._exchange[1], now)
            self._exchange = None

    def _end_commit(self, commit_id: int, now: Instant) -> None:
        sent_at = self._commits.pop(commit_id, None)
        if sent_at is not None:
            self.commit.add(now - sent_at, now)

    def _end_commits(self, completed: ef.CommitCompleted) -> None:
        """Count the end of a commit, successful or not, once for each of its errors."""
        self._commits.pop(completed.commit_id, None)
        for name in {error.name for error in completed.errors.values() if error is not None}:
            _count(self._commit_failures, name)

    # ---- rebalances ----

    def _note_state(self, old: MemberState, new: MemberState, view: MembershipView, now: Instant) -> None:
        if new in _ENDS:
            self._interrupt(new, now)
        elif new is _S.JOINING and old in (_S.UNSUBSCRIBED, _S.FENCED, _S.STALE, _S.FATAL):
            self._cause = RebalanceCause.JOINED if old is _S.UNSUBSCRIBED else RebalanceCause.REJOINED
        if new is _S.RECONCILE or (new is _S.JOINING and view.protocol is GroupProtocol.CLASSIC):
            self._begin(now)
        elif new in (_S.ACK, _S.STABLE):
            self._end(now)
        if new is _S.STABLE:
            self._settle(view.owned.keys(), now)

    def _begin(self, now: Instant) -> None:
        if self._began_at is None:
            self._began_at = now
            self._rebalances[self._cause] += 1
            self._cause = RebalanceCause.ASSIGNMENT

    def _end(self, now: Instant) -> None:
        if self._began_at is not None:
            self.rebalance.add(now - self._began_at, now)
            self._began_at, self._rebalanced_at = None, now

    def _interrupt(self, new: MemberState, now: Instant) -> None:
        self._rebalances[_ENDS[new]] += 1
        if self._began_at is not None and new is not _S.UNSUBSCRIBING:
            self._failed.add(0.0, now)
        self._began_at = None
        self._fences += new is _S.FENCED
        self._poll_timeouts += new is _S.STALE

    # ---- partitions without records ----

    def _stop(self, partitions: Collection[TopicPartition], now: Instant) -> None:
        for partition in partitions:
            self._stopped_at.setdefault(partition, now)

    def _end_arrival(self, attempt: int, now: Instant) -> None:
        if self._arriving[0] != attempt:
            return
        came_at = now if self._began_at is None else self._began_at
        for partition in self._arriving[1]:
            stopped_at = self._stopped_at.pop(partition, None)
            side = Standstill.TAKEN if stopped_at is None else Standstill.KEPT
            self.standstill[side].add(now - (came_at if stopped_at is None else stopped_at), now)
        self._arriving = (-1, frozenset())

    def _settle(self, owned: Collection[TopicPartition], now: Instant) -> None:
        """Count partitions whose ownership the coordinator now knows: fetched again, or free for other members."""
        for partition, stopped_at in self._stopped_at.items():
            if partition in owned:
                self.standstill[Standstill.KEPT].add(now - stopped_at, now)
            elif partition not in self._lost:
                self.standstill[Standstill.GIVEN_UP].add(now - stopped_at, now)
        self._stopped_at.clear()
        self._lost.clear()


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
