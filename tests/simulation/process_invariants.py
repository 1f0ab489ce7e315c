"""The invariants of a single process, checked at each event of every run, for both protocols.

**Which overlaps are permitted.** Two processes may fetch the same partition only while the membership of one of them
has ended, and this member or its application cannot know that yet:

- the coordinator removed the member (session timeout, rebalance timeout, or an administrator);
- the coordinator assigned its instance id to another member id;
- the coordinator began a generation without it;
- the member left because its application does not poll (STALE).

Such a process is *excused* from that moment until it joins again. When it joins, it must hold no partition. Static
classic members are an exception: if a generation began without such a member, it joins again with the partitions that
it holds. The excuse of a classic member therefore also ends when it has taken over a new assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from consumer_membership.assignors.assignor import NO_GENERATION
from consumer_membership.membership.classic.exchanges import (
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicVerdict,
    ExchangeFailed,
    JoinAnswered,
    JoinRejected,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    SyncRejected,
)
from consumer_membership.membership.classic.states import HEARTBEATS, ClassicState
from consumer_membership.membership.consumer.claim import MOST_TAKEOVERS
from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitCompleted,
    CommitOffsets,
    FindCoordinator,
    Heartbeat,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    SendHeartbeat,
    StateChanged,
    StepEffect,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Step,
    StepFinished,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.testing.coordinators.rules import GROUP_MAX_SIZE_REACHED
from consumer_membership.types import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    ConflictPolicy,
    Offsets,
    TopicPartition,
)
from tests.simulation import internals

_S, _C = MemberState, ClassicState
STEPS = (PausePartitions, RevokePartitions, LosePartitions, AssignPartitions)
STEP_OF: Mapping[type[StepEffect], Step] = {
    PausePartitions: Step.PAUSE,
    RevokePartitions: Step.REVOKE,
    LosePartitions: Step.LOSE,
    AssignPartitions: Step.ASSIGN,
}
_ENDS_MEMBERSHIP = frozenset({_S.FENCED, _S.STALE, _S.UNSUBSCRIBED, _S.FATAL})
_ENDS_HEARTBEAT = (
    *(HeartbeatAnswered, HeartbeatRejected, HeartbeatFailed),
    *(ClassicHeartbeatAnswered, ClassicHeartbeatRejected, ExchangeFailed),
)
#: The verdicts that end a generation or a membership.
_IS_OVER = frozenset({ClassicVerdict.REJOIN, ClassicVerdict.REJOIN_KEEP_ID})


class Violation(AssertionError):  # noqa: N818 - the usual term
    """An invariant does not hold."""


def check(holds: bool, message: str) -> None:  # noqa: FBT001 - the condition is the main argument
    """Raise a Violation with this message if the condition is false."""
    if not holds:
        raise Violation(message)


class ObservedApplication(Protocol):
    """The part of an application that the invariants read."""

    @property
    def held(self) -> Collection[TopicPartition]:
        """The partitions that it holds."""


class ObservedProcess(Protocol):
    """The part of a process that the invariants read.

    `may_end_with` contains the names of the errors that may end its membership permanently.
    """

    name: str
    member: MemberCore
    settings: MemberSettings
    may_end_with: frozenset[str]

    @property
    def application(self) -> ObservedApplication:
        """Its application."""


@dataclass(slots=True)
class ProcessInvariants:
    """Checks one process at each event; raises Violation. Its fields are the state that the checks need."""

    is_excused: bool = False
    #: The application's partitions as last reported to the member, and its later states that are not reported yet.
    reported: frozenset[TopicPartition] = frozenset()
    history: list[frozenset[TopicPartition]] = field(default_factory=list)
    #: Whether a heartbeat is in flight.
    is_out: bool = False
    step: tuple[int, Step] | None = None
    paused: frozenset[TopicPartition] | None = None
    owed_commit: Offsets | None = None
    is_searching: bool = False
    #: Whether a KIP-848 member has not been admitted yet since its application subscribed.
    is_newest: bool = False
    #: The member from which it took over in this join, and the number of takeovers.
    taken_from: str | None = None
    takeovers: int = 0
    stale_holder: str | None = None
    #: Whether the group was full. The member may then remove its own stale member permanently (KIP-389).
    was_full: bool = False
    #: Whether the coordinator has given an excused classic member a new assignment.
    is_confirmed: bool = False
    #: Whether the coordinator has just ended the membership or the generation.
    is_over: bool = False

    def excuse(self) -> None:
        """Excuse the process: other processes may hold its partitions without its knowledge."""
        self.is_excused, self.is_confirmed = True, False

    # ---- events ----

    def take(self, process: ObservedProcess, event: Any) -> None:
        """Update the state from an event that the core is about to handle."""
        match event:
            case StepFinished():
                self._step_finished(process.member, event)
            case CoordinatorFound():
                self.is_searching = False
            case JoinAnswered() if event.request_id == internals.exchange(process.member):
                self.is_out = False  # a heartbeat in flight at the same time belongs to the former generation
            case _ if isinstance(event, _ENDS_HEARTBEAT):
                self.was_full |= isinstance(event, HeartbeatRejected) and event.error.code == GROUP_MAX_SIZE_REACHED
                self.is_out &= event.request_id != internals.heartbeat_in_flight(process.member)
            case _:
                pass
        if isinstance(event, JoinRejected | SyncRejected | ClassicHeartbeatRejected) and event.verdict in _IS_OVER:
            number, member = event.request_id, process.member
            # During a JoinGroup, only the answer to it can end the membership.
            is_heard = number == internals.heartbeat_in_flight(member) and internals.state(member) is not _C.JOINING
            self.is_over = is_heard or number == internals.exchange(member)

    def _step_finished(self, member: MemberCore, event: StepFinished) -> None:
        if self.step == (event.attempt, event.step):
            self.step = None
        if event.step is Step.PAUSE:
            is_current = event.attempt == member.newest_attempt
            may_revoke = internals.shown(member) in (_S.RECONCILE, _S.UNSUBSCRIBING)
            self.owed_commit = event.offsets if event.offsets and is_current and may_revoke else None
        else:
            self.reported = self.history.pop(0)

    # ---- effects ----

    def handled(self, process: ObservedProcess, old: MemberState, effects: tuple[Any, ...]) -> None:
        """Check the effects of an event that the core handled; `old` is the public state before the event."""
        state, name = old, process.name
        for number, effect in enumerate(effects):
            match effect:
                case StateChanged():
                    state = effect.new
                    self._changed(process, effect)
                case FindCoordinator():
                    check(not self.is_searching, f"{name}: two searches for the coordinator at once")
                    self.is_searching = True
                case CommitCompleted():
                    if effect.offsets == self.owed_commit:
                        self.owed_commit = None
                case CommitOffsets():
                    check(bool(effect.offsets), f"{name}: a commit without offsets")
                case PausePartitions() | RevokePartitions() | LosePartitions() | AssignPartitions():
                    self._ordered(process, effect)
                case SendHeartbeat():
                    self._sent(process, effect.heartbeat, state, effects[number + 1 :])
                case SendJoin() | SendSync() | SendClassicHeartbeat() | SendClassicLeave():
                    self._sent_classic(process, effect, state, effects[number + 1 :])
                case _:
                    pass
        self._check_state(process)

    def _check_state(self, process: ObservedProcess) -> None:
        """Check the state after an event: a member outside the group has no epoch and owns no partition."""
        member, name = process.member, process.name
        shown, epoch = internals.shown(member), internals.epoch(member)
        if shown in SILENT:
            owned = internals.ownership(member)
            check(epoch <= JOIN_EPOCH, f"{name} is {shown} and has epoch {epoch}")
            check(not owned.owned, f"{name} is {shown} and owns {owned.held}")
        if internals.speaks_consumer(member):
            self._check_takeovers(process, epoch)
            return
        keeps = self.is_over and epoch != NO_GENERATION
        check(not keeps, f"{name} keeps its generation, which the coordinator ended")
        self.is_over = False
        if internals.state(member) is _C.JOINING and not internals.may_heartbeat_during_join(member):
            self.is_out = False
        if shown is _S.STABLE and self.is_confirmed:
            self.is_excused = self.is_confirmed = False

    def _check_takeovers(self, process: ObservedProcess, epoch: int) -> None:
        """Check that takeovers never loop.

        A member takes over from one holder per join, and not if it was in the group since its application subscribed.
        Each new join requires a missed poll or a subscription by the application.
        """
        name, stale_holder = process.name, internals.stale_holder(process.member)
        foreign = (
            stale_holder.member_id
            if stale_holder is not None and stale_holder.member_id != internals.member_id(process.member)
            else None
        )
        if foreign is not None and foreign != self.stale_holder:
            self.takeovers += 1
            if process.settings.conflict_policy is ConflictPolicy.TAKEOVER_WHEN_DEAD:
                # It may take over from any number of dead holders in turn, no matter when its application subscribed.
                self.taken_from, self.takeovers, self.is_newest = None, 0, True
            check(self.is_newest, f"{name} takes over from {foreign} although it was in the group before")
            is_one = self.taken_from in (None, foreign)
            check(is_one, f"{name} takes over again and again: from {self.taken_from} and from {foreign}")
            check(self.takeovers <= MOST_TAKEOVERS, f"{name} takes over {self.takeovers} times in one join")
            check(not process.settings.instance_pool, f"{name} takes an id of the pool from {foreign}")
            self.taken_from = foreign
        if epoch > JOIN_EPOCH:
            self.is_newest = False
        self.stale_holder = foreign

    def _changed(self, process: ObservedProcess, effect: StateChanged) -> None:
        name = process.name
        check(effect.old is not _S.FATAL, f"{name} does not stay FATAL: {effect.new}, {effect.reason}")
        if effect.new in _ENDS_MEMBERSHIP or (effect.old, effect.new) == (_S.UNSUBSCRIBING, _S.JOINING):
            self.is_out = False
        if effect.new in _ENDS_MEMBERSHIP or effect.new is _S.UNSUBSCRIBING:
            self.owed_commit, self.step = None, None
        if effect.new is _S.STALE:
            self.is_excused = True
        if effect.new is _S.FATAL:
            error = process.member.last_error
            # The session of a member that leaves may end before its last heartbeat, and another process takes its id.
            replaced = {"FENCED_INSTANCE_ID"} if effect.old is _S.UNSUBSCRIBING else set[str]()
            may_end = error is not None and error.name in process.may_end_with | replaced
            check(may_end, f"{name} ends permanently: {effect.reason}")
        if effect.new is _S.JOINING and internals.speaks_consumer(process.member):
            held = sorted(process.application.held)
            check(not held, f"{name} joins again while its application holds {held}")
            self.is_excused = False
            self.is_newest |= effect.old in (_S.UNSUBSCRIBED, _S.FATAL)
            self.taken_from, self.takeovers, self.was_full = None, 0, False

    def _ordered(self, process: ObservedProcess, effect: StepEffect) -> None:
        """Check the order of steps: pause, commit, on_revoke, with one step of an attempt at a time."""
        name = process.name
        if self.step is not None:
            check(self.step[0] < effect.attempt, f"{name}: {effect} while step {self.step} runs")
        self.step = (effect.attempt, STEP_OF[type(effect)])
        match effect:
            case PausePartitions():
                held = process.application.held
                self.paused = frozenset(held) if effect.partitions is None else effect.partitions
                self.owed_commit = None
            case RevokePartitions():
                paused, names = self.paused, effect.partitions
                check(paused is not None, f"{name}: revocation without a pause before it")
                is_paused = names is None or names <= (paused or frozenset())
                check(is_paused, f"{name}: {names} are revoked, but only {paused} were paused")
                owed = self.owed_commit
                check(owed is None, f"{name}: revocation before the commit was over: {owed}")
                self.paused = None
            case LosePartitions():
                self.paused = self.owed_commit = None
            case AssignPartitions():
                pass

    # ---- requests to the coordinator ----

    def _left(self, name: str, state: MemberState, rest: tuple[Any, ...]) -> None:
        """Check that a member leaves only after its application has released all partitions, or if a poll is late."""
        goes_stale = any(isinstance(effect, StateChanged) and effect.new is _S.STALE for effect in rest)
        check(state is _S.UNSUBSCRIBING or goes_stale, f"{name} sends a leave in state {state}")
        if state is _S.UNSUBSCRIBING and not goes_stale:
            check(not self.reported, f"{name} leaves before its application gave up {sorted(self.reported)}")

    def _sent(self, process: ObservedProcess, heartbeat: Heartbeat, state: MemberState, rest: tuple[Any, ...]) -> None:
        """Check a heartbeat that a KIP-848 member sends."""
        name = process.name
        if heartbeat.is_leave and heartbeat.owned is not None:
            if state is _S.FENCED and heartbeat.member_id != internals.consumer(process.member).member_id:
                # A dynamic member continues with another member id, and holds no partition any more.
                check(heartbeat.instance_id is None, f"{name}, a static member, takes another member id")
                check(
                    not self.reported,
                    f"{name} takes another member id although its application holds {sorted(self.reported)}",
                )
                return
            self._left(name, state, rest)
            return
        check(state not in SILENT, f"{name} sends a heartbeat in state {state}")
        check(not self.is_out, f"{name} sends a heartbeat while another heartbeat is in flight")
        self.is_out = True
        if heartbeat.is_leave:
            # A leave on behalf of the holder; the member waits for its answer, as with any heartbeat.
            is_release = state is _S.JOINING and (heartbeat.member_epoch == LEAVE_STATIC_EPOCH or self.was_full)
            check(is_release, f"{name} releases {heartbeat} in state {state}")
        elif heartbeat.member_epoch == JOIN_EPOCH:
            check(heartbeat.is_full and heartbeat.owned == frozenset(), f"{name} joins with {heartbeat}")
        elif heartbeat.owned is not None:
            self._stated(process, heartbeat, heartbeat.owned, state)

    def _stated(self, process: ObservedProcess, heartbeat: Heartbeat, owned: Assignment, state: MemberState) -> None:
        """Check the owned partitions in a heartbeat: without unfinished assignments, with unfinished revocations."""
        name = process.name
        check(heartbeat.member_epoch > JOIN_EPOCH, f"{name} states what it owns at epoch {heartbeat.member_epoch}")
        stated, held = internals.named(process.member, owned), frozenset(process.application.held)
        check(held <= stated, f"{name} states that it owns {sorted(stated)}, and its application holds {sorted(held)}")
        extra = stated - self.reported
        check(state is not _S.ACK or not extra, f"{name} acknowledges {sorted(extra)}, which it has not taken over")

    def _sent_classic(
        self,
        process: ObservedProcess,
        effect: SendJoin | SendSync | SendClassicHeartbeat | SendClassicLeave,
        state: MemberState,
        rest: tuple[Any, ...],
    ) -> None:
        """Check a request that a classic member sends."""
        name, now = process.name, internals.state(process.member)
        match effect:
            case SendJoin():
                check(now is _C.JOINING, f"{name} sends a JoinGroup in state {now}")
                self.is_out = False
                self._joined(process, effect)
            case SendSync():
                check(now is _C.SYNCING, f"{name} sends a SyncGroup in state {now}")
                given = Counter(partition for share in effect.assignments.values() for partition in share)
                doubled = sorted(partition for partition, often in given.items() if often > 1)
                check(not doubled, f"{name} gives {doubled} to two members")
            case SendClassicHeartbeat():
                keeps = now is _C.JOINING and internals.may_heartbeat_during_join(process.member)
                check(now in HEARTBEATS or keeps, f"{name} sends a heartbeat in state {now}")
                check(not self.is_out, f"{name} sends a heartbeat while another heartbeat is in flight")
                self.is_out = True
            case SendClassicLeave(member_id=""):
                # A leave for the stale holder of its instance id, whose place in the full group it needs (KIP-389).
                is_release = state is _S.JOINING and effect.instance_id is not None
                check(is_release, f"{name} releases {effect} in state {state}")
            case SendClassicLeave():
                self._left(name, state, rest)

    def _joined(self, process: ObservedProcess, join: SendJoin) -> None:
        """Check that a JoinGroup names exactly the held partitions: none for eager members or without generation."""
        name, held = process.name, frozenset(process.application.held)
        for _, joined in join.protocols:
            owned = sorted(joined.owned)
            check(held <= joined.owned, f"{name} states that it owns {owned}, and its application holds {sorted(held)}")
            # With eager callbacks, a member keeps what its application released, also if the next on_assign raises.
            extra = sorted(joined.owned - self.reported - internals.withheld(process.member))
            check(not extra, f"{name} states that it owns {extra}, which it has not taken over")
            is_new = joined.generation == NO_GENERATION or internals.is_eager(process.member)
            check(not (held and is_new), f"{name} joins again while its application holds {sorted(held)}")
        if not held:
            self.is_excused = False
