"""The offsets part of a session: consumed offsets, commits in flight, committed offsets.

A synchronous commit waits only for its own response, so it works inside a rebalance callback, in a signal handler, and
in a worker thread while another thread polls.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from math import inf

from confluent_kafka import OFFSET_INVALID

from consumer_membership.errors import CommitError
from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.events import AssignedByHand, CommitRequested
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.runtime.application.fetcher import REQUEST_SLICE_S
from consumer_membership.runtime.application.holdings import HeldPartitions
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.locks import FairLock
from consumer_membership.runtime.application.orders import OrderQueue
from consumer_membership.runtime.application.partition_offsets import domain_offset, key_of
from consumer_membership.runtime.application.session_errors import (
    INVALID_ARG_CODE,
    NO_OFFSET_CODE,
    STATE_CODE,
    UNKNOWN_PARTITION_CODE,
    StateError,
)
from consumer_membership.runtime.line import CommittedOffsetsQuestion, Line, UnansweredError
from consumer_membership.types import (
    TIMED_OUT_CODE,
    BrokerError,
    CommittedOffsets,
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
)

#: How much longer a caller waits for the outcome of a commit than the member retries it.
ANSWER_GRACE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """How a session commits.

    Attributes:
        is_automatic: Whether consumed offsets are committed automatically (`enable.auto.commit`).
        stores_by_itself: Whether a record counts as consumed when `poll` returns it (`enable.auto.offset.store`).
        timeout_s: How long the member retries one commit, in seconds.
    """

    is_automatic: bool
    stores_by_itself: bool
    timeout_s: float


class OffsetBook:
    """The consumed offsets of the assigned partitions, and the known committed ones. The caller holds the handle lock.

    With `enable.auto.offset.store` a record counts as consumed when `poll` returns it. Without it, the application
    calls `store_offsets`, and the book keeps these offsets, because librdkafka has no way to read them back.
    """

    def __init__(self, holdings: HeldPartitions, settings: CommitSettings) -> None:
        self._holdings = holdings
        self.settings = settings
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, int] = {}

    @property
    def lock(self) -> FairLock:
        """The handle lock."""
        return self._holdings.lock

    @property
    def assigned(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return self._holdings.assigned

    @property
    def assigned_by_hand(self) -> set[TopicPartition]:
        """The partitions that the application assigned itself."""
        return self._holdings.by_hand

    def by_hand(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the subset of these partitions that the application assigned itself; needs no lock."""
        by_hand = self._holdings.by_hand
        return frozenset(partition for partition in partitions if partition in by_hand) if by_hand else frozenset()

    def store(self, partition: TopicPartition, offset: OffsetAndMetadata | None) -> None:
        """Keep the offset that the application stored for an assigned partition; None: delete it."""
        if offset is None:
            self._stored.pop(partition, None)
        else:
            self._stored[partition] = offset

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets of these partitions: their next assignment starts at other offsets."""
        for partition in partitions:
            self._stored.pop(partition, None)
            self._committed.pop(partition, None)

    def committed_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The known committed offsets of these partitions."""
        return {partition: self._committed[partition] for partition in partitions if partition in self._committed}

    def stored(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The consumed offsets of the assigned partitions, committed or not."""
        return self._holdings.consumed() if self.settings.stores_by_itself else dict(self._stored)

    def uncommitted(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the consumed offsets of these partitions (None: all) that are above the known committed offsets.

        As in librdkafka, an offset below the committed one is committed only if the application names it in a commit.
        """
        return {
            partition: offset
            for partition, offset in self.stored().items()
            if offset.offset > self._committed.get(partition, OFFSET_INVALID)
            and (partitions is None or partition in partitions)
        }

    def due(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit automatically before these partitions are given up."""
        return self.uncommitted(partitions) if self.settings.is_automatic else {}

    def note_committed(self, offsets: Offsets, errors: Mapping[TopicPartition, BrokerError | None]) -> None:
        """Note the outcome of a commit."""
        for partition, offset in offsets.items():
            if partition in errors and errors[partition] is None:
                self._committed[partition] = offset.offset


class Commits:
    """The commits of one session: sends them, and keeps the outcomes for the calls that wait."""

    def __init__(
        self, book: OffsetBook, orders: OrderQueue, line: Line, life: Lifetime, ledger: ApplicationLedger
    ) -> None:
        self.book = book
        self.ledger = ledger
        self._orders = orders
        self._line = line
        self._life = life
        self._timeout_s = book.settings.timeout_s
        self._ids = itertools.count(1)
        # Without a GIL, two threads may get the same number from `count` (until Python 3.14). Re-entrant: a signal
        # handler may commit while its own thread holds this lock.
        self._numbering = threading.RLock()
        self._awaited: dict[int, CommitCompleted | None] = {}
        #: The partitions in the arguments of each asynchronous commit, until `on_commit` is called.
        self._named: dict[int, frozenset[TopicPartition]] = {}
        #: The requested offsets of each commit by number, in the order in which the commits began.
        self._outstanding: dict[int, Offsets] = {}
        orders.completed_commits_go_to(self._complete)

    # ---- for the application ----

    def commit(self, offsets: Offsets | None, named: Iterable[TopicPartition] | None = None) -> None:
        """Commit these offsets (None: the consumed and uncommitted ones); `on_commit` gets the outcome.

        If `reported` will be called, pass the partitions of the application's call as `named`, including those without
        an offset.
        """
        found = self._or_uncommitted(offsets)
        commit_id = self._next_id()
        if named is not None:
            self._named[commit_id] = frozenset(named)
        if found:
            self._send(commit_id, found)
        else:
            self._orders.add(CommitCompleted(commit_id=commit_id, offsets={}, errors={}))

    def reported(self, completed: CommitCompleted) -> Collection[TopicPartition]:
        """Return the partitions for `on_commit`, including those without an offset, as in librdkafka; once per commit.

        They are the partitions that the application's call named. For a call without partitions, and for an automatic
        commit, they are all assigned partitions.
        """
        named = self._named.pop(completed.commit_id, None)
        if named is None:
            with self.book.lock:
                named = frozenset(self.book.assigned)
        return named | completed.offsets.keys()

    def begin_commit(self, offsets: Offsets | None) -> tuple[int, Offsets]:
        """Begin a commit whose outcome `end` waits for; return its number, and the offsets that it commits.

        Raises:
            CommitError: there is nothing to commit.
        """
        found = self._or_uncommitted(offsets)
        if not found:
            raise CommitError("Commit failed: Local: No offset stored", NO_OFFSET_CODE)
        return self.begin(found, is_awaited=True), found

    def _or_uncommitted(self, offsets: Offsets | None) -> Offsets:
        if offsets is not None:
            return offsets
        with self.book.lock:
            return self.book.uncommitted()

    def store(self, offsets: list[PartitionOffset]) -> None:
        """Remember these offsets as consumed (`enable.auto.offset.store=false`).

        Raises:
            StateError: no offset could be stored. If only some cannot be stored, they are ignored, as in
                confluent-kafka.
        """
        self._life.check()
        if self.book.settings.stores_by_itself:
            raise StateError(
                "StoreOffsets failed: Local: Invalid argument or configuration (set enable.auto.offset.store=false)",
                INVALID_ARG_CODE,
            )
        with self.book.lock:
            assigned = self.book.assigned
            topics = {partition.topic for partition in assigned}
            # librdkafka accepts a reset of a stored offset for every partition of the topics that it knows.
            good = [one for one in offsets if key_of(one) in assigned or (one.offset < 0 and one.topic in topics)]
            if offsets and not good:
                if any(offset.topic in topics for offset in offsets):
                    raise StateError("StoreOffsets failed: Local: Erroneous state", STATE_CODE)
                raise StateError(
                    "StoreOffsets failed: Local: Unknown partition",
                    UNKNOWN_PARTITION_CODE,
                )
            for offset in good:
                self.book.store(key_of(offset), domain_offset(offset))

    def committed(self, partitions: list[PartitionOffset], timeout_s: float) -> CommittedOffsets:
        """Return the group's committed offsets of these partitions, from its coordinator; negative: no time limit.

        It needs neither the handle nor another thread that polls. librdkafka's own answer cannot be used: it copies the
        metadata without its terminating zero (`rd_kafka_topic_partition_list_update`), so that confluent-kafka reads
        beyond it in memory.

        Raises:
            RefusedError: the coordinator refused permanently.
            UnansweredError: no response in time.
        """
        self._life.check()
        limit_s = inf if timeout_s < 0 else timeout_s
        question = CommittedOffsetsQuestion(partitions=frozenset(map(key_of, partitions)), timeout_s=limit_s)
        self._line.ask(question)
        answer = question.answer
        began_at = self._line.now()
        deadline = began_at + limit_s + ANSWER_GRACE_S
        try:
            while self._line.now() < deadline:
                with suppress(TimeoutError):
                    return answer.result(REQUEST_SLICE_S)
                self._life.check()
        except CancelledError:
            self._life.check()
        finally:
            answer.cancel()
            now = self._line.now()
            self.ledger.committed.add(now - began_at, now)
        raise UnansweredError("Failed to get committed offsets: Local: Timed out (the membership thread has ended)")

    # ---- for the session's other parts ----

    def announce_by_hand(self, *, holds: bool) -> None:
        """Notify the member whether the application assigned partitions itself; it commits those automatically."""
        if self.book.settings.is_automatic:
            self._line.send(AssignedByHand(holds=holds))

    @property
    def has_outstanding(self) -> bool:
        """Whether a commit is in flight."""
        return bool(self._outstanding)

    def begin(self, offsets: Offsets, *, is_awaited: bool) -> int:
        """Send a commit and return its number. `end` waits for an awaited commit; other outcomes arrive as orders."""
        commit_id = self._next_id()
        if is_awaited:
            self._awaited[commit_id] = None
        self._send(commit_id, offsets)
        return commit_id

    def _next_id(self) -> int:
        with self._numbering:
            return next(self._ids)

    def _send(self, commit_id: int, offsets: Offsets) -> None:
        self._outstanding[commit_id] = offsets
        by_hand = self.book.by_hand(offsets)
        self._line.send(
            CommitRequested(commit_id=commit_id, offsets=offsets, timeout_s=self._timeout_s, by_hand=by_hand)
        )

    def begin_by_hand(self, assigned_by_hand: Collection[TopicPartition]) -> None:
        """Commit the consumed offsets of partitions that the application assigned itself, before it gives them up."""
        offsets = self.book.due(assigned_by_hand)
        if offsets:
            self.begin(offsets, is_awaited=False)

    def begin_all_by_hand(self) -> None:
        """Commit the consumed offsets of all partitions that the application assigned itself."""
        with self.book.lock:
            self.begin_by_hand(self.book.assigned_by_hand)

    def end(self, commit_id: int) -> Mapping[TopicPartition, BrokerError | None]:
        """Wait for the response to an awaited commit; return the error of each partition. Call it once for each commit.

        Raises:
            CommitError: no response arrived in time, so the outcome is unknown.
        """
        began_at = self._line.now()
        try:
            self._orders.wait(lambda: self._awaited[commit_id] is not None, self._timeout_s + ANSWER_GRACE_S)
            completed = self._awaited[commit_id]
        finally:
            del self._awaited[commit_id]
            self._outstanding.pop(commit_id, None)
            now = self._line.now()
            self.ledger.commit_sync.add(now - began_at, now)
        if completed is None:
            raise CommitError("the commit was not answered in time; it may have succeeded or failed", TIMED_OUT_CODE)
        return completed.errors

    def await_outstanding(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Wait for commits of these partitions that are in flight; return the committed offsets afterwards.

        A commit that is not answered in time counts as successful.
        """
        if self._outstanding_of(partitions):
            self._orders.wait(lambda: self._life.is_ending or not self._outstanding_of(partitions), ANSWER_GRACE_S)
        awaited = self._outstanding_of(partitions)  # before the book: a response that arrives in between is in the book
        return {**self.book.committed_of(partitions), **awaited}

    def _outstanding_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The latest offset of each of these partitions that a commit in flight requests."""
        return {
            partition: at.offset
            for offsets in list(self._outstanding.values())
            for partition, at in offsets.items()
            if partition in partitions
        }

    def _complete(self, completed: CommitCompleted) -> bool:
        """Note the outcome of a commit, and keep it for the call that waits for it; False: no call waits."""
        self.book.note_committed(completed.offsets, completed.errors)
        self._outstanding.pop(completed.commit_id, None)
        if completed.commit_id not in self._awaited:
            return False
        self._awaited[completed.commit_id] = completed
        return True
