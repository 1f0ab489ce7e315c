"""Performs what the member orders on the application's thread (`membership.effects` has the order).

Callbacks run without the handle lock: an on_revoke that waits for its workers must not keep them from committing. They
never nest, because only one thread at a time performs orders, and a call from inside a callback performs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import TypeAlias, assert_never

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CollectPositions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RaiseToApplication,
    RevokePartitions,
    StepEffect,
)
from consumer_membership.membership.events import PositionsReported, Step, StepFinished
from consumer_membership.metrics.application_ledger import CallbackKind
from consumer_membership.runtime.application.commits import Commits
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.locks import CallLock
from consumer_membership.runtime.application.notices import Notices
from consumer_membership.runtime.application.orders import OrderQueue
from consumer_membership.runtime.line import Line
from consumer_membership.types import Offsets, TopicPartition

_log = partial(logging.getLogger, "consumer_membership.session")

#: By what each step is answered for.
_STEPS: Mapping[type[StepEffect], Step] = MappingProxyType(
    {
        PausePartitions: Step.PAUSE,
        RevokePartitions: Step.REVOKE,
        LosePartitions: Step.LOSE,
        AssignPartitions: Step.ASSIGN,
    }
)

CommitCallback: TypeAlias = Callable[[CommitCompleted], None]
#: Takes the partitions in question, sorted.
RebalanceCallback: TypeAlias = Callable[[list[TopicPartition]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceListener:
    """The callbacks of one subscription; they run on the thread that polls or closes, one at a time."""

    on_assign: RebalanceCallback | None = None
    on_revoke: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None

    @property
    def on_loss(self) -> RebalanceCallback | None:
        """Who hears of lost partitions: on_revoke where there is no on_lost, as in confluent-kafka."""
        return self.on_lost or self.on_revoke

    @property
    def has_any(self) -> bool:
        """Whether there is one."""
        return bool(self.on_assign or self.on_revoke or self.on_lost)


class Steps:
    """Performs steps and answers each with `StepFinished`, whatever the user's callback does."""

    def __init__(self, fetcher: Fetcher, commits: Commits, line: Line, orders: OrderQueue) -> None:
        self.listener = RebalanceListener()
        #: What the running on_assign is about and where it starts; the application may assign and pause these itself.
        self.arriving: dict[TopicPartition, int] | None = None
        #: What the running on_revoke or on_lost is about.
        self.leaving: frozenset[TopicPartition] | None = None
        #: Whether the running callback is on_lost: another member may own the partitions already.
        self.is_losing = False
        #: Whether the running on_assign assigned by itself.
        self._is_handled = False
        #: How many assignments, revocations and losses there were.
        self.rebalances = 0
        #: When the last of them began (monotonic clock).
        self.rebalanced_at: float | None = None
        self._fetcher = fetcher
        self._handle_lock = fetcher.lock
        self._commits = commits
        self._book = commits.book
        self._line = line
        self._orders = orders
        self._reported: Offsets = {}
        #: The step that is performed, and the last one for which a callback was called: once for each step.
        self._step: StepEffect | None = None
        self._called_for: StepEffect | None = None
        #: The step that ended last, and how: an interrupt may come before the member received the answer.
        self._ended: tuple[StepEffect | None, StepFinished | None] = (None, None)

    def perform(self, step: StepEffect) -> None:
        """Perform the step that the queue has begun, and answer it; a callback's exception comes out after the answer.

        A step that was interrupted before it began, or after it ended, is begun again by the next call, which then
        only answers it. An interrupt in between counts as an exception of the callback.
        """
        kind = _STEPS[type(step)]
        ended, outcome = self._ended
        if ended is not step:
            self._step = step
            try:
                offsets = self._do(step)
                outcome = StepFinished(attempt=step.attempt, step=kind, offsets=offsets)
                self._ended = step, outcome
            except BaseException:  # Ctrl-C inside a callback ends the step as well, or the member would wait for ever
                if self._gives_up_all(step) and self._fetcher.held:
                    raise  # the member does not order this again: the next call completes it
                outcome = StepFinished(attempt=step.attempt, step=kind, failed=True)
                self._ended = step, outcome
                self._answer(outcome)
                raise
        self._answer(outcome)

    def _gives_up_all(self, step: StepEffect) -> bool:
        return isinstance(step, LosePartitions) or (isinstance(step, RevokePartitions) and step.partitions is None)

    def _answer(self, outcome: StepFinished | None) -> None:
        if outcome is not None:
            self._line.post(outcome)
        self._orders.done()

    def _do(self, step: StepEffect) -> Offsets:
        match step:
            case PausePartitions():
                return self._pause(self._of(step.partitions))
            case RevokePartitions():
                return self._revoke(self._of(step.partitions), is_final=step.partitions is None)
            case LosePartitions():
                return self._lose()
            case AssignPartitions():
                return self._assign(step)
            case _:
                assert_never(step)

    def _of(self, partitions: Collection[TopicPartition] | None) -> frozenset[TopicPartition]:
        held = self._fetcher.held
        return frozenset(held if partitions is None else held & set(partitions))

    def _pause(self, partitions: frozenset[TopicPartition]) -> Offsets:
        with self._handle_lock:
            self._fetcher.freeze(partitions)
            self._reported = self._book.due(partitions)
        return self._reported

    def _revoke(self, partitions: frozenset[TopicPartition], *, is_final: bool) -> Offsets:
        if not partitions:
            return {}
        self._count()
        self.leaving = partitions
        try:
            self._call(CallbackKind.REVOKED, self.listener.on_revoke, partitions)
        except BaseException:
            if is_final:
                # Nothing waits for this membership any more: what it held is given up all the same.
                self._unassign(partitions)
            raise
        finally:
            self.leaving = None
        with self._handle_lock:
            offsets = self._book.due(partitions)
        self._unassign(partitions)
        return {partition: at for partition, at in offsets.items() if self._reported.get(partition) != at}

    def _lose(self) -> Offsets:
        with self._handle_lock:
            partitions = frozenset(self._fetcher.held)
            self._fetcher.freeze(partitions)
            self._fetcher.drop(partitions)
        if partitions:
            self._count()
            self.leaving, self.is_losing = partitions, True
            try:
                self._call(CallbackKind.LOST, self.listener.on_loss, partitions)
            finally:
                self.leaving, self.is_losing = None, False
                self._unassign(partitions)
        return {}

    def _assign(self, step: AssignPartitions) -> Offsets:
        arriving = frozenset(step.offsets)
        if arriving:
            self._count()
        with self._handle_lock:
            # Committed by whom, and when: what was fetched for this very assignment knows better.
            self._book.forget(arriving - self._fetcher.assigned)
        starts = dict(step.offsets)
        self.arriving, self._is_handled = starts, False
        try:
            self._call(CallbackKind.ASSIGNED, self.listener.on_assign, arriving)
            if not self._is_handled:
                self.settle_starts()
        except BaseException:
            self._unassign(arriving)
            raise
        finally:
            self.arriving = None
        with self._handle_lock:
            self._fetcher.thaw(frozenset(self._fetcher.frozen))
            if not self._is_handled:
                self._fetcher.add_for_group(starts)
        return {}

    def _count(self) -> None:
        self.rebalances += 1
        self.rebalanced_at = monotonic()

    def settle_starts(self) -> None:
        """Have arriving partitions start where the application committed them meanwhile, inside its on_assign.

        confluent-kafka starts them there: it fetches the committed offsets after the callback, and not before it.
        Nobody else can commit them meanwhile, the coordinator refuses it. Not to be called with the handle lock.
        """
        arriving = self.arriving  # the callback may end while another thread waits here
        if arriving:
            arriving.update(self._commits.settle(arriving.keys()))

    def leave_to_application(self) -> None:
        """Take what the running on_assign assigned by itself for the assignment."""
        self._is_handled = True

    def report_positions(self, order: CollectPositions) -> None:
        """Tell the member what is consumed and not committed yet."""
        with self._handle_lock:
            offsets = self._book.uncommitted()
        self._line.post(PositionsReported(commit_id=order.commit_id, offsets=offsets))

    def _unassign(self, partitions: frozenset[TopicPartition]) -> None:
        with self._handle_lock:
            self._fetcher.remove(partitions)
            self._book.forget(partitions)

    def _call(
        self, kind: CallbackKind, callback: RebalanceCallback | None, partitions: frozenset[TopicPartition]
    ) -> None:
        if callback is None or self._called_for is self._step:
            return
        began_at = monotonic()
        self._called_for = self._step
        try:
            callback(sorted(partitions))
        finally:
            now = monotonic()
            self._commits.ledger.callbacks[kind].add(now - began_at, now)


class Performer:
    """Performs the orders of one member: in their order, one thread at a time, never nested."""

    def __init__(
        self,
        orders: OrderQueue,
        steps: Steps,
        *,
        on_commit: CommitCallback | None,
        on_left: Callable[[], None],
    ) -> None:
        self._orders = orders
        self._steps = steps
        self._on_commit = on_commit
        self._on_left = on_left
        self.notices = Notices()
        #: Owned by the call that performs something now.
        self.call_lock = CallLock()
        #: How many leaves were completed.
        self.leaves = 0

    def serve(self) -> None:
        """Perform what waits, up to the first notice; a callback's exception comes out here.

        Does nothing inside a callback, and nothing while another thread is at it.
        """
        performing = Lock()
        with performing:
            if self.call_lock.acquire(performing):
                self._perform_to_notice()

    def _perform_to_notice(self) -> None:
        try:
            while not self.notices.messages and (order := self._orders.next()) is not None:
                self._perform(order)
        finally:
            self.release()

    def release(self) -> None:
        """Let others perform."""
        self.call_lock.release()
        self._orders.notify()

    def perform_all(self, errors: list[Exception]) -> None:
        """Perform what waits although callbacks raise, and add what they raise. For the call that owns the lock.

        The caller raises the first exception, as confluent-kafka's close does; only the others are logged.
        """
        while (order := self._orders.next()) is not None:
            try:
                self._perform(order)
            except Exception as error:  # noqa: BLE001 - whatever a user's callback raises must not stop a leave
                if errors:
                    _log().warning("Another callback raised while the consumer leaves its group", exc_info=True)
                errors.append(error)
                self._orders.done()

    def _perform(self, order: ApplicationEffect) -> None:
        match order:
            case AssignPartitions():
                # Whom its group gives partitions is in it: what ended an earlier membership is over.
                self.notices.forgive()
                self._steps.perform(order)
            case PausePartitions() | RevokePartitions() | LosePartitions():
                self._steps.perform(order)
            case CollectPositions():
                self._steps.report_positions(order)
                self._orders.done()
            case CommitCompleted():
                if self._on_commit is None:
                    self._orders.done()
                else:
                    self._orders.done_by(self._on_commit)
            case RaiseToApplication():
                self.notices.tell(order)
                self._orders.done()
            case LeaveCompleted():
                self.leaves += 1
                self._on_left()
                self._orders.done()
            case _:
                assert_never(order)
