"""A fake of the application's thread: it keeps the order contract of `membership.effects` and reads a fake log.

It performs steps only inside a poll and one at a time, drops the steps of an overtaken attempt, and delivers records of
the partitions that it holds and has not frozen. Its `behavior` determines its faults (a slow or failing callback, a
commit inside a callback, no poll for a long time).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CollectPositions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    Problem,
    RaiseToApplication,
    RevokePartitions,
    StepEffect,
    WarmPartitions,
)
from consumer_membership.membership.events import (
    AssignedIncrementally,
    CommitRequested,
    LeaveRequested,
    Polled,
    PositionsReported,
    Step,
    StepFinished,
    Subscribed,
    Warmed,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.types import LeaveOption, OffsetAndMetadata, Offsets, Subscription, TopicPartition
from tests.simulation.process_invariants import STEP_OF, STEPS

if TYPE_CHECKING:
    from tests.simulation.process import Process

#: The longest time until a poll reads the mailbox; a real poll reads it sooner (`runtime.order_queue`).
SLICE_S = 0.1
Partitions: TypeAlias = frozenset[TopicPartition]


@dataclass(slots=True, kw_only=True)
class Behavior:
    """How the application behaves; the simulation changes this while it runs."""

    #: Seconds between polls, in which records are handled, and the number of records that a poll returns per partition.
    think_s: float = 0.3
    batch: int = 2
    #: The duration of each callback in seconds, and how many of the next callbacks raise.
    callback_s: float = 0.0
    raises: int = 0
    #: The duration of on_warm in seconds.
    warm_s: float = 0.0
    commits_in_revoke: bool = False
    #: The number of polls between two commits by the application; 0: it never commits.
    commits_every: int = 0
    commit_timeout_s: float = 5.0
    #: Whether its callbacks are called as in the eager protocol, and the number of calls after which it switches to
    #: incremental callbacks.
    is_eager: bool = False
    callbacks_until_incremental: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One callback that returned, or raised."""

    step: Step
    partitions: Partitions
    raised: bool = False


@dataclass(slots=True)
class _Callback:
    """The step whose callback runs, its partitions, and the commit for which the callback waits."""

    step: StepEffect | WarmPartitions
    partitions: Partitions
    awaits_commit: int | None = None


@dataclass(slots=True)
class Application:
    """One application thread."""

    process: Process
    behavior: Behavior
    auto_commit: bool
    #: Held partitions with the position of the next record.
    held: dict[TopicPartition, int] = field(default_factory=dict)
    frozen: set[TopicPartition] = field(default_factory=set)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    mailbox: deque[ApplicationEffect] = field(default_factory=deque)
    waiting: deque[ApplicationEffect] = field(default_factory=deque)
    callback: _Callback | None = None
    #: The callbacks so far, each with its partitions and whether it raised.
    calls: list[Call] = field(default_factory=list)
    errors: list[RaiseToApplication] = field(default_factory=list)
    is_in_poll: bool = False
    is_leaving: bool = False
    closes: bool = False
    #: The latest order to prepare for partitions whose on_warm has returned.
    warmed: int = 0
    _newest: int = 0
    _polls: int = 0
    _commit_id: int = 0
    _turn: int = 0
    _reported: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    _delivered: bool = False
    _pending_commits: set[int] = field(default_factory=set)

    # ---- calls of the application ----

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe; the member joins at the next poll."""
        now = self.process.simulation.now
        if self.process.state in (MemberState.UNSUBSCRIBED, MemberState.FATAL):
            self.process.asked_at = now
        self.process.post(Subscribed(subscription=subscription, is_eager=self.behavior.is_eager, asked_at=now))

    def leave(self, option: LeaveOption, *, closes: bool) -> None:
        """Unsubscribe or close; the thread performs steps until the member has left."""
        if self.is_leaving or not self.process.alive:
            return
        self.is_leaving, self.closes = True, closes
        self.process.left_at = None
        self.process.post(LeaveRequested(option=option))
        self.wake()

    def commit(self, partitions: Collection[TopicPartition] | None = None) -> int | None:
        """Commit the consumed positions without waiting; return the number of the commit, or None if there are none."""
        offsets = self.uncommitted(partitions)
        return self.commit_offsets(offsets) if offsets else None

    def commit_offsets(self, offsets: Offsets) -> int:
        """Commit these offsets without waiting; return the number of the commit."""
        self._commit_id += 1
        self._pending_commits.add(self._commit_id)
        self.process.post(
            CommitRequested(commit_id=self._commit_id, offsets=offsets, timeout_s=self.behavior.commit_timeout_s)
        )
        return self._commit_id

    def uncommitted(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the consumed positions that are not known to be committed."""
        return {
            partition: OffsetAndMetadata(offset=position)
            for partition, position in self.held.items()
            if position > self.committed.get(partition, 0) and (partitions is None or partition in partitions)
        }

    def called(self, step: Step) -> list[Partitions]:
        """Return the partitions of each callback of this kind."""
        return [call.partitions for call in self.calls if call.step is step]

    @property
    def fetchable(self) -> Partitions:
        """The partitions whose records the user may receive."""
        return frozenset(self.held.keys() - self.frozen)

    # ---- the thread ----

    def mail(self, effect: ApplicationEffect) -> None:
        """Put an effect of the member into the mailbox; deliver the result of a commit immediately."""
        if isinstance(effect, CommitCompleted):
            self._take_commit(effect)
            return
        self.mailbox.append(effect)
        if (self.is_in_poll or self.is_leaving) and self.callback is None:
            self.process.simulation.after(self.process.simulation.random.random() * SLICE_S, self._guarded(self.work))

    def wake(self) -> None:
        """Poll now, and cancel the planned poll."""
        self._turn += 1
        self.poll(self._turn)

    def poll_after(self, delay_s: float, *, is_in_poll: bool) -> None:
        """Poll after this number of seconds; until then the thread waits in a poll, or outside polls."""
        self.is_in_poll = is_in_poll
        self._turn += 1
        turn = self._turn
        self.process.simulation.after(delay_s, self._guarded(lambda: self.poll(turn)))

    def poll(self, turn: int) -> None:
        """Poll, unless another poll was planned in the meantime or a callback runs."""
        if turn != self._turn or self.callback is not None:
            return
        self.is_in_poll = True
        if not self.is_leaving:
            self.process.post(Polled(delivered=self._delivered))
            self._delivered = False
        self.work()

    def work(self) -> None:
        """Perform the waiting effects, then deliver records; only inside a poll or a leave, without a callback."""
        if not self.is_in_poll and not self.is_leaving:
            return
        while self.callback is None and self.process.alive and (effect := self._next()) is not None:
            self._perform(effect)
        if self.callback is None and self.process.alive and not self.is_leaving and self.is_in_poll:
            self._deliver()

    def _guarded(self, action: Callable[[], object]) -> Callable[[], None]:
        """Return the action for `run`: a dead process skips it, and a stopped process runs it later."""
        return lambda: self.process.run(action)

    def _next(self) -> ApplicationEffect | None:
        """Return the next effect, after draining the mailbox and dropping the steps of overtaken attempts."""
        while self.mailbox:
            effect = self.mailbox.popleft()
            if isinstance(effect, STEPS):
                self._newest = max(self._newest, effect.attempt)
            self.waiting.append(effect)
        while self.waiting:
            effect = self.waiting.popleft()
            if not isinstance(effect, STEPS) or effect.attempt == self._newest:
                return effect
        return None

    def _deliver(self) -> None:
        behavior, simulation = self.behavior, self.process.simulation
        self._handle_records()
        self._polls += 1
        if behavior.commits_every and self._polls % behavior.commits_every == 0:
            self.commit()
        elsewhere = simulation.random.random() < 0.3
        self.poll_after(behavior.think_s * (0.5 + simulation.random.random()), is_in_poll=not elsewhere)

    def _handle_records(self) -> None:
        """Handle the records that the poll returned."""
        for partition in sorted(self.held.keys() - self.frozen):
            if not self.process.simulation.is_idle:
                self._fetch(partition, self.behavior.batch)

    def _fetch(self, partition: TopicPartition, count: int) -> range:
        """Deliver this number of records and return their offsets; none if the topic was deleted."""
        simulation, position = self.process.simulation, self.held[partition]
        if count <= 0 or not simulation.exists(partition):
            return range(0)
        simulation.ledger.deliver(partition, position, count)
        self.held[partition] = position + count
        self._delivered = True
        return range(position, position + count)

    # ---- effects ----

    def _perform(self, effect: ApplicationEffect) -> None:
        match effect:
            case PausePartitions():
                partitions = self._of(effect.partitions)
                self.frozen = set(partitions)
                self._reported = self.uncommitted(partitions) if self.auto_commit else {}
                self._finish(effect, self._reported)
            case RevokePartitions():
                self._call(effect, self._of(effect.partitions))
            case LosePartitions():
                self.frozen |= self.held.keys()
                self._call(effect, frozenset(self.held))
            case AssignPartitions():
                self._call(effect, frozenset(effect.offsets))
            case CollectPositions():
                offsets = self.uncommitted()
                self.process.post(
                    PositionsReported(commit_id=effect.commit_id, offsets=offsets, until_next_record=not offsets)
                )
            case RaiseToApplication():
                self.errors.append(effect)
                if effect.problem is Problem.FATAL:
                    self.process.failed = True
            case LeaveCompleted():
                self._left()
            case WarmPartitions() if not self.is_leaving:
                self.callback = _Callback(effect, effect.partitions)
                self._wait_for_callback(self.behavior.warm_s)
            case _:
                pass

    def _of(self, partitions: Partitions | None) -> Partitions:
        return frozenset(self.held if partitions is None else self.held.keys() & partitions)

    def _call(self, step: StepEffect, partitions: Partitions) -> None:
        """Run the user's callback for a step; without partitions, only on_assign runs."""
        if not partitions and not isinstance(step, AssignPartitions):
            self._finish(step, {})
            return
        self.callback = _Callback(step, partitions)
        self._begin_callback(step, partitions)

    def _begin_callback(self, step: StepEffect, partitions: Partitions) -> None:
        """Begin the user's callback, which `_return` ends."""
        assert self.callback is not None
        behavior = self.behavior
        if isinstance(step, RevokePartitions) and behavior.commits_in_revoke:
            self.callback.awaits_commit = self.commit(partitions)
        if self.callback.awaits_commit is None:
            self._wait_for_callback(behavior.callback_s)

    def _wait_for_callback(self, seconds: float) -> None:
        """Let the callback return after this number of seconds."""
        if seconds > 0:
            self.process.simulation.after(seconds, self._guarded(self._return))
        else:
            self._return()

    def _take_commit(self, effect: CommitCompleted) -> None:
        """Handle the end of a commit: the thread that waits for it continues, also inside a callback."""
        for partition, error in effect.errors.items():
            if error is None and partition in self.held:
                self.committed[partition] = effect.offsets[partition].offset
        if effect.commit_id > 0:
            self.process.simulation.invariants.commit_completed(self.process, effect.commit_id, self._pending_commits)
            self._pending_commits.discard(effect.commit_id)
        callback = self.callback
        if callback is not None and callback.awaits_commit == effect.commit_id:
            callback.awaits_commit = None
            self._callback_committed(effect)

    def _callback_committed(self, effect: CommitCompleted) -> None:  # noqa: ARG002 - subclasses use it
        """Let the callback return after its commit has ended."""
        self.process.simulation.after(self.behavior.callback_s, self._guarded(self._return))

    def _return(self) -> None:
        """Let the callback return or raise."""
        callback = self.callback
        if callback is None:
            return
        step, partitions = callback.step, callback.partitions
        fails = self.behavior.raises > 0
        if fails:
            self.behavior.raises -= 1
        if isinstance(step, WarmPartitions):
            self.callback = None
            self.warmed = self.warmed if fails else step.attempt
            self.process.post(Warmed(attempt=step.attempt, failed=fails))
            self._continue(failed=fails)
            return
        self.calls.append(Call(STEP_OF[type(step)], partitions, fails))
        if self.behavior.is_eager and len(self.calls) == self.behavior.callbacks_until_incremental:
            self.behavior.is_eager = False
            self.process.post(AssignedIncrementally())
        invariants, process = self.process.simulation.invariants, self.process
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        match step:
            case RevokePartitions():
                if not fails and self.auto_commit:
                    offsets = {p: at for p, at in self.uncommitted(partitions).items() if self._reported.get(p) != at}
                if not fails or step.partitions is None:
                    invariants.ended(process, partitions, "on_revoke")
                    self._drop(partitions)
            case LosePartitions():
                invariants.ended(process, partitions, "on_lost")
                self._drop(partitions)
            case AssignPartitions() if not fails:
                invariants.assigned(process, partitions)
                self.frozen.clear()
                self._take(step.offsets)
            case _:
                pass
        self.callback = None
        self._finish(step, offsets, failed=fails)
        self._continue(failed=fails)

    def _continue(self, *, failed: bool) -> None:
        """Continue after a callback: poll raises its exception, and the application polls again."""
        if self.is_leaving:
            self.process.simulation.after(0.0, self._guarded(self.work))
        else:
            self.poll_after(self.behavior.think_s if failed else 0.0, is_in_poll=not failed)

    def _take(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Hold these partitions, and read them from their start offsets on."""
        self.held |= offsets
        self.committed |= offsets

    def _drop(self, partitions: Partitions) -> None:
        for partition in partitions:
            self.held.pop(partition, None)
            self.committed.pop(partition, None)
            self.frozen.discard(partition)

    def _finish(
        self, step: StepEffect, offsets: dict[TopicPartition, OffsetAndMetadata], *, failed: bool = False
    ) -> None:
        self.process.simulation.invariants.performed(self.process, step)
        self.process.post(StepFinished(attempt=step.attempt, step=STEP_OF[type(step)], offsets=offsets, failed=failed))
        self.process.simulation.invariants.holdings_changed()

    def _left(self) -> None:
        if not self.is_leaving:
            return
        self.is_leaving = False
        self.process.has_left()
