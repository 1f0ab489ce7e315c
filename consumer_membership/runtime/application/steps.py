"""Performs the steps of a rebalance on the application's thread (`membership.effects` has their order).

Callbacks run without the handle lock: an on_revoke that waits for its workers must not keep them from committing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import assert_never

from consumer_membership.membership.effects import (
    AssignPartitions,
    CollectPositions,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    StepEffect,
    WarmPartitions,
)
from consumer_membership.membership.events import PositionsReported, Step, StepFinished, Warmed
from consumer_membership.metrics.application_ledger import CallbackKind
from consumer_membership.runtime.application.callbacks import PartitionsCallback
from consumer_membership.runtime.application.commits import Commits
from consumer_membership.runtime.application.holdings import HeldPartitions
from consumer_membership.runtime.application.orders import OrderQueue
from consumer_membership.runtime.application.subscriptions import Subscriptions
from consumer_membership.runtime.line import Line
from consumer_membership.types import Offsets, TopicPartition

#: The step that `StepFinished` names for each effect.
_STEPS: Mapping[type[StepEffect], Step] = MappingProxyType(
    {
        PausePartitions: Step.PAUSE,
        RevokePartitions: Step.REVOKE,
        LosePartitions: Step.LOSE,
        AssignPartitions: Step.ASSIGN,
    }
)


class Steps:
    """Performs steps and answers each with `StepFinished`, whatever the user's callback does."""

    def __init__(
        self, holdings: HeldPartitions, commits: Commits, line: Line, orders: OrderQueue, subscriptions: Subscriptions
    ) -> None:
        self._subscriptions = subscriptions
        #: The partitions of the running on_assign and their starts; the application may assign and pause these itself.
        self.arriving: dict[TopicPartition, int] | None = None
        #: The partitions of the running on_revoke or on_lost.
        self.leaving: frozenset[TopicPartition] | None = None
        #: Whether the running callback is on_lost: another member may own the partitions already.
        self.is_losing = False
        #: Whether the running on_assign assigned the partitions itself.
        self._is_handled = False
        #: The number of assignments, revocations and losses.
        self.rebalances = 0
        #: When the last of them began (monotonic clock).
        self.rebalanced_at: float | None = None
        #: The epoch of the assignment of each partition, from its on_assign to the end of its on_revoke or on_lost.
        self.epochs: dict[TopicPartition, int] = {}
        self._holdings = holdings
        self._handle_lock = holdings.lock
        self._commits = commits
        self._book = commits.book
        self._line = line
        self._orders = orders
        self._reported: Offsets = {}
        #: The step that is being performed, and the last step whose callback was called: a callback is called once for
        #: each step.
        self._step: StepEffect | None = None
        self._called_for: StepEffect | None = None
        #: The step that ended last, and how: an interrupt may come before the member received the answer.
        self._ended: tuple[StepEffect | None, StepFinished | None] = (None, None)

    def perform(self, step: StepEffect) -> None:
        """Perform the step that the queue has begun, and answer it; a callback's exception is raised after the answer.

        A step that was interrupted before it began, or after it ended, is begun again by the next call, which then only
        answers it. An interrupt in between counts as an exception of the callback.
        """
        kind = _STEPS[type(step)]
        ended, outcome = self._ended
        if ended is not step:
            self._step = step
            try:
                offsets = self._do(step)
                outcome = StepFinished(attempt=step.attempt, step=kind, offsets=offsets)
                self._ended = step, outcome
            except BaseException:  # Ctrl-C inside a callback also ends the step, or the member would wait forever
                if self._releases_all(step) and self._holdings.held:
                    raise  # the member does not order this again: the next call completes it
                outcome = StepFinished(attempt=step.attempt, step=kind, failed=True)
                self._ended = step, outcome
                self._answer(outcome)
                raise
        self._answer(outcome)

    def _releases_all(self, step: StepEffect) -> bool:
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
        held = self._holdings.held
        return frozenset(held if partitions is None else held & set(partitions))

    def _pause(self, partitions: frozenset[TopicPartition]) -> Offsets:
        with self._handle_lock:
            self._holdings.freeze(partitions)
            self._reported = self._book.due(partitions)
        return self._reported

    def _revoke(self, partitions: frozenset[TopicPartition], *, is_final: bool) -> Offsets:
        if not partitions:
            return {}
        self._count()
        self.leaving = partitions
        try:
            self._call(CallbackKind.REVOKED, self._subscriptions.listener.on_revoke, partitions)
        except BaseException:
            if is_final:
                # The membership ends after this step, so its partitions are given up although the callback raised.
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
            partitions = frozenset(self._holdings.held)
            self._holdings.freeze(partitions)
            self._holdings.drop(partitions)
        if partitions:
            self._count()
            self.leaving, self.is_losing = partitions, True
            try:
                self._call(CallbackKind.LOST, self._subscriptions.listener.on_loss, partitions)
            finally:
                self.leaving, self.is_losing = None, False
                self._unassign(partitions)
        return {}

    def _assign(self, step: AssignPartitions) -> Offsets:
        arriving = frozenset(step.offsets)
        if arriving:
            self._count()
        with self._handle_lock:
            # The offsets that were fetched for this assignment are newer.
            self._book.forget(arriving - self._holdings.assigned)
        starts = dict(step.offsets)
        self.epochs.update(dict.fromkeys(arriving, step.member_epoch))
        self.arriving, self._is_handled = starts, False
        try:
            self._call(CallbackKind.ASSIGNED, self._subscriptions.listener.on_assign, arriving)
            if not self._is_handled:
                self.apply_commits_to_starts()
        except BaseException:
            self._unassign(arriving)
            raise
        finally:
            self.arriving = None
        with self._handle_lock:
            self._holdings.thaw(frozenset(self._holdings.frozen))
            if not self._is_handled:
                self._holdings.add_for_group(starts)
        return {}

    def _count(self) -> None:
        self.rebalances += 1
        self.rebalanced_at = self._line.now()

    def apply_commits_to_starts(self) -> None:
        """Start arriving partitions at the offsets that the application committed inside its on_assign.

        confluent-kafka does so, because it fetches the committed offsets after the callback. No other member can commit
        these partitions meanwhile: the coordinator refuses it. The caller must not hold the handle lock.
        """
        arriving = self.arriving  # the callback may end while another thread waits here
        if arriving:
            arriving.update(self._commits.await_outstanding(arriving.keys()))

    def leave_to_application(self) -> None:
        """Note that the running on_assign assigned the partitions itself, so that none are added after it."""
        self._is_handled = True

    def report_positions(self, order: CollectPositions) -> None:
        """Report the consumed and uncommitted offsets to the member."""
        with self._handle_lock:
            offsets = self._book.uncommitted()
        is_complete = not offsets and self._book.settings.stores_by_itself
        self._line.post(PositionsReported(commit_id=order.commit_id, offsets=offsets, until_next_record=is_complete))

    def warm(self, order: WarmPartitions) -> None:
        """Call on_warm for partitions that the member is about to take over, and report its end to the member.

        A callback that raised is called again when the member orders it again. An interrupt counts as an exception.
        """
        callback, failed = self._subscriptions.listener.on_warm, True
        try:
            if callback is not None:
                callback(sorted(order.partitions))
            failed = False
        finally:
            self._line.post(Warmed(attempt=order.attempt, failed=failed))
            self._orders.done()

    def _unassign(self, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            self.epochs.pop(partition, None)
        with self._handle_lock:
            self._holdings.remove(partitions)
            self._book.forget(partitions)

    def _call(
        self, kind: CallbackKind, callback: PartitionsCallback | None, partitions: frozenset[TopicPartition]
    ) -> None:
        if callback is None or self._called_for is self._step:
            return
        began_at = self._line.now()
        self._called_for = self._step
        try:
            callback(sorted(partitions))
        finally:
            now = self._line.now()
            self._commits.ledger.callbacks[kind].add(now - began_at, now)
