"""The steps of a rebalance as the application's thread performs them (`membership.effects` has their order).

Callbacks run without the fair_lock: an on_revoke that waits for its workers must not keep them from committing. They
never nest, because only one thread at a time performs steps, and a call from inside a callback performs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from time import monotonic
from typing import assert_never

from consumer_membership.membership.effects import (
    AssignPartitions,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    StepEffect,
)
from consumer_membership.membership.events import Step, StepFinished
from consumer_membership.runtime.application.fair_lock import FairLock
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.listener import RebalanceCallback, RebalanceListener
from consumer_membership.runtime.application.offset_book import OffsetBook
from consumer_membership.types import Offsets, TopicPartition

_LOG = logging.getLogger("consumer_membership.session")


class Steps:
    """Performs steps and answers each with `StepFinished`, whatever the user's callback does."""

    def __init__(
        self,
        fetcher: Fetcher,
        book: OffsetBook,
        fair_lock: FairLock,
        *,
        auto_commit: bool,
        await_commits: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        post: Callable[[StepFinished], None],
    ) -> None:
        """`await_commits`: waits for commits of these partitions that are on their way; what is still unanswered."""
        self.listener = RebalanceListener()
        #: What the running on_assign is about and where it starts; the application may assign and pause these itself.
        self.arriving: dict[TopicPartition, int] | None = None
        #: What the running on_revoke or on_lost is about.
        self.leaving: frozenset[TopicPartition] | None = None
        #: Whether the running callback is on_lost: another member may own the partitions already.
        self.is_losing = False
        #: Whether the running callback assigned or unassigned by itself.
        self.is_handled = False
        #: How many assignments, revocations and losses there were.
        self.rebalances = 0
        #: When the last of them began (monotonic clock).
        self.rebalanced_at: float | None = None
        self._fetcher = fetcher
        self._book = book
        self._fair_lock = fair_lock
        self._auto_commit = auto_commit
        self._await_commits = await_commits
        self._post = post
        self._reported: Offsets = {}

    def perform(self, step: StepEffect) -> None:
        """Perform one step; a callback's exception comes out after the member was told of it."""
        kind = _kind_of(step)
        try:
            offsets = self._do(step)
        except BaseException:  # Ctrl-C inside a callback ends the step as well, or the member would wait for ever
            self._post(StepFinished(attempt=step.attempt, step=kind, failed=True))
            raise
        self._post(StepFinished(attempt=step.attempt, step=kind, offsets=offsets))

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
        with self._fair_lock:
            self._fetcher.freeze(partitions)
            self._reported = self._book.uncommitted(partitions) if self._auto_commit else {}
        return self._reported

    def _revoke(self, partitions: frozenset[TopicPartition], *, is_final: bool) -> Offsets:
        if not partitions:
            return {}
        self._count()
        self.leaving = partitions
        try:
            self._call(self.listener.on_revoke, partitions)
        except BaseException:
            if is_final:
                # Nothing waits for this membership any more: what it held is given up all the same.
                self._unassign(partitions)
            raise
        finally:
            self.leaving = None
        with self._fair_lock:
            offsets = self._book.uncommitted(partitions) if self._auto_commit else {}
        self._unassign(partitions)
        return {partition: at for partition, at in offsets.items() if self._reported.get(partition) != at}

    def _lose(self) -> Offsets:
        with self._fair_lock:
            partitions = frozenset(self._fetcher.held)
            self._fetcher.freeze(partitions)
            self._fetcher.deliveries.drop(partitions)
        if partitions:
            self._count()
            self.leaving, self.is_losing = partitions, True
            try:
                self._call(self.listener.on_loss, partitions)
            finally:
                self.leaving, self.is_losing = None, False
                self._unassign(partitions)
        return {}

    def _assign(self, step: AssignPartitions) -> Offsets:
        arriving = frozenset(step.offsets)
        if arriving:
            self._count()
        with self._fair_lock:
            # Committed by whom, and when: what was fetched for this very assignment knows better.
            self._book.forget(arriving - self._fetcher.assigned)
        starts = dict(step.offsets)
        self.arriving, self.is_handled = starts, False
        try:
            self._call(self.listener.on_assign, arriving)
            if not self.is_handled:
                self.settle_starts()
        except BaseException:
            self._unassign(arriving)
            raise
        finally:
            self.arriving = None
        with self._fair_lock:
            self._fetcher.thaw(frozenset(self._fetcher.frozen))
            if not self.is_handled:
                self._fetcher.add_for_group(starts)
        return {}

    def _count(self) -> None:
        self.rebalances += 1
        self.rebalanced_at = monotonic()

    def settle_starts(self) -> None:
        """Have arriving partitions start where the application committed them meanwhile, inside its on_assign.

        confluent-kafka starts them there: it fetches the committed offsets after the callback, and not before it.
        Nobody else can commit them meanwhile, the coordinator refuses it; a commit that is not answered in time is
        taken for good, because that is where the application wants to start. Not to be called with the fair_lock.
        """
        arriving = self.arriving
        if arriving:
            asked = self._await_commits(arriving.keys())
            arriving.update({**self._book.committed_of(arriving), **asked})

    def _unassign(self, partitions: frozenset[TopicPartition]) -> None:
        with self._fair_lock:
            self._fetcher.remove(partitions)
            self._book.forget(partitions)

    def _call(self, callback: RebalanceCallback | None, partitions: frozenset[TopicPartition]) -> None:
        if callback is not None:
            callback(sorted(partitions))


def _kind_of(step: StepEffect) -> Step:
    match step:
        case PausePartitions():
            return Step.PAUSE
        case RevokePartitions():
            return Step.REVOKE
        case LosePartitions():
            return Step.LOSE
        case AssignPartitions():
            return Step.ASSIGN
        case _:
            assert_never(step)
