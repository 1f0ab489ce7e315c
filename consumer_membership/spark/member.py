"""One member in one task: it consumes, passes batches to the sink, and commits their offsets.

Heartbeats continue in the membership's own thread while the sink works. Rebalances wait for the end of the sink call,
so a partition never moves to another member in the middle of a batch. This module does not use Spark and runs in any
process.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.admin import GroupAdmin
from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import FencedError, GroupError, MembershipError
from consumer_membership.membership.states import MemberState
from consumer_membership.spark.batches import (
    are_records,
    before,
    partition_of,
    ranges_of,
    runs_of,
    to_format,
    without_garbage_collection,
)
from consumer_membership.spark.bounds import Bounds
from consumer_membership.spark.brokers import EARLIEST, check_ends
from consumer_membership.spark.context import Partition
from consumer_membership.spark.control import Link, MemberProgress, Order
from consumer_membership.spark.handover import REPLACED, FetchedBatch, Handover
from consumer_membership.spark.plan import MemberPlan, attempt_of, member_config

_log = logging.getLogger("consumer_membership.spark")

#: The interval of the reports to the driver.
REPORT_S = 0.5
#: The interval at which a member without work checks whether the other members are done.
OTHERS_S = 0.05
#: The default of `group.consumer.session.timeout.ms` and `session.timeout.ms`, until the group's timeout is known.
_SESSION_S = 45.0
#: The timeout for committed offsets; the second one is for reports, which must not be delayed.
COMMITTED_ANSWER_S, REPORT_ANSWER_S = 30.0, 1.0
#: After this time without progress, the member checks whether the ends can still be reached (a topic may be deleted).
DOUBT_S = 3.0

_EOF = KafkaError._PARTITION_EOF
#: The values of `auto.offset.reset` with which the lag of a partition without a committed offset is the whole log.
_FROM_THE_BEGINNING = frozenset({"earliest", "smallest", "beginning"})
#: A sink call took longer than sink_timeout_s; the handover reports it.
_SINK_TOO_SLOW = KafkaError._MAX_POLL_EXCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSummary:
    """The work of one attempt of a task.

    Attributes:
        instance: The number of the member, from 0.
        attempt: The number of the task's attempt, as in the fences.
        records: The number of records that the sink took.
        batches: The number of batches that the sink took.
        seconds: The duration of the attempt.
    """

    instance: int
    attempt: int
    records: int
    batches: int
    seconds: float


class TaskMember:
    """The member of one attempt of a task; created, run and closed in one thread.

    `attempt` grows with each attempt of the same member (`context.attempt_number`).
    """

    def __init__(self, plan: MemberPlan, sink: object, instance: int, attempt: int, link: Link) -> None:
        self._plan = plan
        self._instance = instance
        self._attempt = attempt
        self._link = link
        self._bounds = Bounds(plan.run, plan.ends)
        self._config = member_config(plan, instance, attempt)
        self._consumer = Consumer(self._config)
        self._admin = GroupAdmin(self._config)
        self._handover = Handover(plan, sink, instance, attempt, self._consumer, self._bounds)
        #: The partitions by the rebalance callbacks; `membership()` shows them a moment later.
        self._mine: set[Partition] = set()
        #: Assigned partitions whose committed offsets are not read yet.
        self._unread: set[Partition] = set()
        self._positions: dict[Partition, int] = {}
        #: Partitions that the sink has taken up to the end; they are not done until the commit has succeeded.
        self._reached: set[Partition] = set()
        self._began_at = self._reported_at = self._requested_at = self._moved_at = time.monotonic()
        self._reported_records = 0
        self._reported_owned: AbstractSet[object] = frozenset()

    def run(self) -> MemberSummary:
        """Consume until all ends are reached, or until the driver orders the end.

        Raises:
            FencedError: a later attempt has this member's place.
            SinkError: the sink failed for a batch.
            GroupError: the coordinator refused the member permanently.
            TransportError: the brokers could not be reached for a request that is required.
        """
        is_over = False
        try:
            self._refuse_to_replace_a_later_attempt()
            self._handover.prepare()
            self._consumer.subscribe(
                list(self._plan.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._gone
            )
            while self._goes_on():
                self._consume_batch()
            self._handover.settle()
            self._report()
            is_over = True
        finally:
            # After an error, the place is kept for the next attempt; after the work, the others need not wait for it.
            self._consumer.close(membership="leave" if is_over else "default")
            self._handover.close()
        return MemberSummary(
            instance=self._instance,
            attempt=self._attempt,
            records=self._handover.records,
            batches=self._handover.batches,
            seconds=time.monotonic() - self._began_at,
        )

    # ---- the loop ----

    def _goes_on(self) -> bool:
        order = self._link.order
        if order is Order.SUPERSEDED:
            raise FencedError(
                f"a later attempt of task {self._instance} is running as {self._plan.instance_id(self._instance)!r}; "
                f"this attempt ({self._attempt}) writes nothing more"
            )
        return order is None and not self._bounds.is_done

    def _consume_batch(self) -> None:
        with without_garbage_collection():
            fetched = self._fetch_batch()
        if fetched.ranges:
            for one in fetched.ranges:
                self._bounds.begin(one.topic_partition, one.first)
            # The sink may take minutes; the report shows the driver what it works on.
            self._report_if_due()
        if fetched.ranges or fetched.finished:
            self._moved_at = time.monotonic()
            self._give(fetched)
        if not (fetched.ranges and self._has_more()):
            self._handover.settle()
            if self._bounds.is_bounded:
                self._check_other_members()
        self._report_if_due()

    def _fetch_batch(self) -> FetchedBatch:
        """Fetch the next batch in the sink's format; it may be empty."""
        messages = self._consumer.consume(*self._batch_bounds())
        self._read_committed_offsets()
        finished: set[Partition] = set()
        if not are_records(messages):
            finished = {partition_of(message) for message in messages if self._is_end(message)}
            messages = [message for message in messages if message.error() is None]
        return self._within_bounds(messages, finished)

    def _batch_bounds(self) -> tuple[int, float]:
        """Return how many records to fetch, and how long to wait; near the end, no longer than there are records."""
        size, wait_s = self._handover.batch_limit, self._plan.batch_wait_s
        if not (self._bounds.is_bounded and self._mine):
            return size, wait_s
        outstanding = self._bounds.outstanding(self._positions, self._mine - self._reached)
        if outstanding == 0:
            return size, min(wait_s, OTHERS_S)
        return min(size, outstanding or size), wait_s

    def _is_end(self, message: Message) -> bool:
        """Return whether an event is the end of a partition; raise a fatal error, and log other errors."""
        error = message.error()
        if error is None:
            return False
        if error.code() == _EOF:
            partition = partition_of(message)
            return partition in self._bounds.left and (message.offset() or 0) >= self._end(partition)
        if error.fatal():
            if error.code() in REPLACED:
                raise FencedError(f"task {self._instance} was replaced or removed: {error.str()}")
            raise GroupError(f"task {self._instance}: {error.str()}", error.code())
        if error.code() != _SINK_TOO_SLOW:
            _log.warning("Task %s: %s", self._instance, error.str())
        return False

    def _give(self, fetched: FetchedBatch) -> None:
        if not self._handover.give(fetched):
            # With the next poll, all partitions are lost; their offsets are read again at the next assignment.
            return
        self._reached |= fetched.finished
        self._positions.update({one.topic_partition: one.next_offset for one in fetched.ranges})
        if fetched.finished:
            # Records after the end are not part of this run and need not be fetched.
            self._consumer.pause([TopicPartition(*partition) for partition in fetched.finished])

    def _has_more(self) -> bool:
        """Return whether more records may arrive from an owned partition."""
        return not self._bounds.is_bounded or bool((self._bounds.left & self._mine) - self._reached)

    def _within_bounds(self, records: list[Message], finished: set[Partition]) -> FetchedBatch:
        runs = runs_of(records, self._plan.topics)
        ranges = ranges_of(runs)
        if self._bounds.is_bounded:
            ends = {one.topic_partition: self._end(one.topic_partition) for one in ranges}
            finished |= {one.topic_partition for one in ranges if one.next_offset >= ends[one.topic_partition]}
            if any(one.next_offset > ends[one.topic_partition] for one in ranges):
                records = before(records, ends)
                runs = runs_of(records, self._plan.topics)
                ranges = ranges_of(runs)
        batch = to_format(records, self._plan.batch_format, runs)
        # After the last record there may be transaction markers or compacted offsets, so the end offset is used.
        return FetchedBatch(batch=batch, ranges=ranges, finished=frozenset(finished & self._mine))

    def _end(self, partition: Partition) -> int:
        return self._bounds.end_of(partition) or 0

    # ---- the group ----

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        arrived = {(partition.topic, partition.partition) for partition in partitions}
        self._mine |= arrived
        self._unread |= arrived
        self._moved_at = time.monotonic()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The next owner starts at the committed offset.
        self._handover.await_answer()
        self._gone(consumer, partitions)

    def _gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(partition.topic, partition.partition) for partition in partitions}
        for held in (self._mine, self._unread, self._reached):
            held.difference_update(gone)
        self._bounds.forget(gone)
        for partition in gone:
            self._positions.pop(partition, None)

    def _read_committed_offsets(self) -> None:
        """Read the committed offsets and the tallies of newly assigned partitions."""
        if not (self._unread and self._bounds.is_bounded):
            return
        # The committed offsets may include the last commit, which must not be counted twice.
        self._handover.settle()
        fresh, self._unread = sorted(self._unread), set()
        # Requested with the member's consumer, which waits for offsets in an open transaction.
        for one in self._committed(fresh, COMMITTED_ANSWER_S):
            if one.error is None:
                self._bounds.learn((one.topic, one.partition), max(0, one.offset), one.metadata)
                if one.offset >= 0:
                    self._positions.setdefault((one.topic, one.partition), one.offset)
            else:
                _log.warning("Task %s: the committed offset of %s is unknown: %s", self._instance, one, one.error)
        # A partition that was created after the start of the run is not part of it.
        done = [
            TopicPartition(*partition)
            for partition in fresh
            if partition not in self._bounds.left and partition in self._mine
        ]
        self._consumer.pause(done)

    def _committed(self, partitions: Sequence[Partition], within_s: float) -> list[TopicPartition]:
        return self._consumer.committed([TopicPartition(*partition) for partition in partitions], within_s)

    def _check_other_members(self) -> None:
        """Without new records, check whether other members are done, or whether an end can no longer be reached."""
        now = time.monotonic()
        if now - self._requested_at < OTHERS_S:
            return
        self._requested_at = now
        left = self._bounds.left
        again = left & self._reached & self._mine
        if again:
            self._give(FetchedBatch(finished=again))
        try:
            # Only the offsets matter here, not the tallies.
            others = self._committed(sorted(left - self._mine), COMMITTED_ANSWER_S) if left - self._mine else []
        except KafkaException as unknown:
            _log.debug("Task %s: the committed offsets of other members are unknown: %s", self._instance, unknown)
            others = []
        for one in others:
            if one.error is None and one.offset >= 0:
                self._bounds.note((one.topic, one.partition), one.offset)
        if self._bounds.left != left:
            self._moved_at = now
        elif now - self._moved_at > DOUBT_S:
            self._moved_at = now
            check_ends(self._consumer, {partition: self._end(partition) for partition in self._bounds.left})

    def _refuse_to_replace_a_later_attempt(self) -> None:
        """Raise FencedError if a later attempt is a member: an attempt that was delayed must not take its place."""
        instance_id = self._plan.instance_id(self._instance)
        try:
            members = self._admin.describe(self._plan.group, with_offsets=False).group.members
        except MembershipError as unknown:
            _log.debug("Group %s could not be described: %s", self._plan.group, unknown)
            return
        for holder in members:
            if holder.instance_id == instance_id and (attempt_of(holder.client_id) or 0) > self._attempt:
                raise FencedError(
                    f"group.instance.id {instance_id!r} is held by a later attempt, member {holder.member_id} "
                    f"(client {holder.client_id!r}) on host {holder.host}; this attempt ({self._attempt}) ends"
                )

    # ---- reports to the driver ----

    def _report_if_due(self) -> None:
        is_due = time.monotonic() - self._reported_at >= REPORT_S
        if is_due or self._consumer.membership().owned.keys() != self._reported_owned:
            self._report()

    def _report(self) -> None:
        now, view = time.monotonic(), self._consumer.membership()
        self._reported_owned = view.owned.keys()
        elapsed = max(now - self._reported_at, 1e-3)
        records = self._handover.records
        rate = (records - self._reported_records) / elapsed
        self._reported_at, self._reported_records = now, records
        self._link.report(
            MemberProgress(
                instance=self._instance,
                attempt=self._attempt,
                host=socket.gethostname(),
                pid=os.getpid(),
                state=view.state.name,
                epoch=view.member_epoch,
                owned=tuple(sorted((topic, number) for topic, number in view.owned)),
                records=records,
                batches=self._handover.batches,
                rate=rate,
                lag=self._lag() if view.state is not MemberState.FATAL else 0,
                waits_for=view.waits_for_text,
                at=time.time(),
                session_s=view.session_timeout_s or _SESSION_S,
            )
        )

    def _lag(self) -> int:
        """Return the number of uncommitted records in the owned partitions, as far as it is known."""
        self._learn_committed()
        lag = 0
        for partition in self._mine:
            committed, end = self._bounds.committed_of(partition), self._known_end(partition)
            if committed is not None and end is not None:
                lag += max(0, end - committed)
        return lag

    def _learn_committed(self) -> None:
        """Read the committed offsets of new partitions in a run without end, which needs them only for its lag."""
        if self._bounds.is_bounded or not self._unread:
            return
        try:
            answers = [one for one in self._committed(sorted(self._unread), REPORT_ANSWER_S) if one.error is None]
            none = [TopicPartition(one.topic, one.partition, EARLIEST) for one in answers if one.offset < 0]
            if none and self._config["auto.offset.reset"] in _FROM_THE_BEGINNING:
                for one in self._consumer.offsets_for_times(none, REPORT_ANSWER_S):
                    self._bounds.begin((one.topic, one.partition), max(0, one.offset))
        except KafkaException as unknown:
            _log.debug("Task %s: the group's committed offsets are unknown: %s", self._instance, unknown)
            return
        self._unread = set()
        for one in answers:
            if one.offset >= 0:
                self._bounds.note((one.topic, one.partition), one.offset)

    def _known_end(self, partition: Partition) -> int | None:
        """Return the end of a partition in the run, else of the partition itself; None if it is not known yet."""
        end = self._bounds.end_of(partition)
        if end is None:
            with suppress(KafkaException, MembershipError):
                end = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)[1]
        return end
