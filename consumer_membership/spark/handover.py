"""The handover of batches: check the ownership of partitions, call the sink, commit, and limit the next batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, TopicPartition
from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from consumer_membership.clients.consumer import Consumer
from consumer_membership.clients.lease import Lease
from consumer_membership.clients.outcomes import PendingCommit
from consumer_membership.errors import (
    CommitError,
    ConfigurationError,
    FatalGroupError,
    FencedError,
    HandlerError,
    LeaseOverError,
    SinkError,
    TransportError,
)
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.spark.batches import Batch
from consumer_membership.spark.bounds import Bounds
from consumer_membership.spark.context import Fence, OffsetRange, Partition, SinkContext, described, notes_of
from consumer_membership.spark.plan import MemberPlan, cluster_config, has_leases

_log = logging.getLogger("consumer_membership.spark")

#: The sink is called only if the coordinator has confirmed the member within this time. A member that was stopped or
#: cut off for longer first requests a confirmation.
CONFIRMED_S = 2.0
#: The errors of a static member that was replaced by another member, or was removed.
REPLACED = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
    }
)
#: The errors of a commit of a member without a place in the group: from the coordinator, or from the member itself.
_UNCONFIRMED = REPLACED | {KafkaError._ASSIGNMENT_LOST}
#: The timeout for the coordinator's confirmation of a member whose batch the sink rejected: two heartbeats, which
#: brokers keep at most 15 s apart by default.
_CONFIRMATION_S = 60.0
#: Errors of a sink that each further call would raise. A handler has its own retries.
_NOT_RETRIED = (FencedError, ConfigurationError, HandlerError)
#: The interval of the checks for that confirmation.
_CHECK_EVERY_S = 0.05
#: The pause between two calls of a sink that raised an exception.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
#: The part of sink_timeout_s that a batch may take before the next batch is cut: a sink that slows down to half of its
#: speed still finishes in time.
_SHARE = 0.5
#: A cut batch grows by one eighth. A sink that leaves out records which an earlier call wrote is fast for a few
#: batches; at this rate, the records that it must write arrive before the batch is too large for them.
_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatch:
    """Fetched records in the sink's format, their offset ranges, and the partitions whose end is reached.

    All partitions are assigned by the rebalance callbacks. `membership()` is not used for this: it shows an assignment
    only after records may arrive.
    """

    batch: Batch = field(default_factory=list)
    ranges: tuple[OffsetRange, ...] = ()
    finished: frozenset[Partition] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """One commit: the offset and the metadata of each partition, and the records and times that they count."""

    offsets: Mapping[Partition, tuple[int, str]]
    ranges: tuple[OffsetRange, ...]
    began_at: float
    ended_at: float
    #: The duration of the sink call.
    took_s: float


class BatchLimit:
    """The largest number of records in a batch with which the sink finishes well within `sink_timeout_s`.

    The limit starts at `batch_size` and never exceeds it. A batch that took longer than half of the timeout reduces the
    limit in proportion; full batches that took less let it grow slowly.
    """

    def __init__(self, batch_size: int, sink_timeout_s: float) -> None:
        self._most = batch_size
        self._fits_s = sink_timeout_s * _SHARE
        self.records = batch_size

    def learn(self, records: int, took_s: float) -> None:
        """Adjust the limit to the duration of a batch."""
        if took_s > self._fits_s:
            self.records = max(1, min(self.records, int(records * self._fits_s / took_s)))
        elif records >= self.records:
            self.records = min(self._most, self.records + max(1, self.records // _GROWTH))


class Handover:
    """Passes batches to the sink and commits them, for the member of one task."""

    def __init__(
        self, plan: MemberPlan, sink: object, instance: int, attempt: int, consumer: Consumer, bounds: Bounds
    ) -> None:
        if not callable(sink):
            raise SinkError(f"the sink {sink!r} is not callable")
        self._plan = plan
        self._sink: Callable[[object, SinkContext], None] = sink
        self._instance = instance
        self._attempt = attempt
        self._cluster_config = cluster_config(plan, instance, attempt)
        self._consumer = consumer
        self._bounds = bounds
        self._has_leases = has_leases(plan)
        self._confirmed_at = 0.0
        self._is_in_doubt = False
        self._underway: tuple[_Commit, PendingCommit] | None = None
        self._limit = BatchLimit(plan.batch_size, plan.sink_timeout_s)
        #: The duration of the sink call for the current batch; 0 if the sink was not called.
        self._took_s = 0.0
        #: The number of successive batches that the sink finished after the member had left its group for that.
        self._late = 0
        self._has_committing_sink = bool(getattr(sink, "commits_offsets", False))
        self.records = 0
        self.batches = 0

    @property
    def batch_limit(self) -> int:
        """The largest number of records in the next batch."""
        return self._limit.records

    def give(self, fetched: FetchedBatch) -> bool:
        """Pass these records to the sink, and start their commit.

        The previous commit is settled first, so the sink is called only when all earlier results are known.

        Returns:
            False if the batch was dropped, because the member was out of its group in the meantime (its process was
            stopped, its session ended). The new owner of the partitions receives the records. The member loses its
            partitions with its next poll, and joins again.

        Raises:
            SinkError: the sink raised an exception, or took longer than `sink_timeout_s`, as often as `sink_attempts`
                allows.
            FencedError: the member was replaced, or the sink rejected a member that was never out of its group.
            TransportError: the coordinator neither confirmed nor refused the member.
        """
        # The epoch at which the records were fetched.
        epoch = self._consumer.membership().member_epoch
        self.settle()
        began_at = time.time()
        if fetched.ranges:
            try:
                self._call(fetched, epoch, began_at)
            except FencedError as fenced:
                if fenced.is_final or not self._is_out_of_the_group(fenced):
                    raise
                self._not_committed(fetched.ranges, self._took_s, fenced)
                return False
            self.records += sum(one.records for one in fetched.ranges)
            self.batches += 1
        self._begin_commit(fetched, began_at)
        return True

    def prepare(self) -> None:
        """Call the sink's `prepare`, if it has one, before any fetch; its exceptions are raised."""
        prepare = getattr(self._sink, "prepare", None)
        if callable(prepare):
            prepare(self._instance, self._plan.instance_id(self._instance))

    def close(self) -> None:
        """Call the sink's `close`, if it has one."""
        close = getattr(self._sink, "close", None)
        if callable(close):
            close()

    # ---- the sink ----

    def _call(self, fetched: FetchedBatch, epoch: int, began_at: float) -> None:
        ownership = _Ownership(self._consumer, fetched.ranges, self._bounds, began_at, self._has_leases)
        context = SinkContext(
            group=self._plan.group,
            pipeline=self._plan.pipeline,
            instance=self._instance,
            instances=self._plan.instances,
            instance_id=self._plan.instance_id(self._instance),
            attempt=self._attempt,
            batch_format=self._plan.batch_format,
            ranges=fetched.ranges,
            fences=tuple(
                Fence(
                    group=self._plan.group,
                    topic=one.topic,
                    partition=one.partition,
                    next_offset=one.next_offset,
                    epoch=epoch,
                    attempt=self._attempt,
                )
                for one in fetched.ranges
            ),
            ownership=ownership,
            cluster_config=self._cluster_config,
        )
        self._took_s = 0.0
        heard_at = max(self._confirmed_at, self._consumer.membership().last_heartbeat_at or 0.0)
        # Without an epoch, the member was fenced, and its next poll will report that.
        if self._is_in_doubt or epoch <= 0 or time.monotonic() - heard_at > CONFIRMED_S:
            ownership.verify()
            self._confirmed_at, self._is_in_doubt = time.monotonic(), False
        attempts = Retrying(
            # After this time, the member has left the group.
            stop=stop_after_attempt(self._plan.sink_attempts) | stop_after_delay(self._plan.sink_timeout_s),
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            retry=retry_if_exception_type(Exception) & retry_if_not_exception_type(_NOT_RETRIED),
            reraise=True,
        )
        began = time.monotonic()
        try:
            attempts(self._call_under_leases, fetched.batch, context)
        except FencedError:
            raise
        except Exception as raised:
            tried = attempts.statistics.get("attempt_number", 1)
            cause = ", ".join((f"{type(raised).__name__}: {raised}", *notes_of(raised)))
            raise SinkError(
                f"the sink raised {cause} ({tried} of {self._plan.sink_attempts} calls); "
                f"not committed: {described(fetched.ranges)}"
            ) from raised
        finally:
            self._took_s = time.monotonic() - began
            self._limit.learn(sum(one.records for one in fetched.ranges), self._took_s)

    def _call_under_leases(self, batch: Batch, context: SinkContext) -> None:
        """Call the sink; if a lease is over, only after heartbeat responses have renewed it."""
        try:
            context.check_leases()
        except LeaseOverError as over:
            # A process that was stopped or cut off. Its member may still have its place: then two heartbeats show it.
            fenced = FencedError(str(over))
            if self._is_out_of_the_group(fenced) or self._consumer.membership().state is MemberState.FATAL:
                raise fenced from over
        self._sink(batch, context)

    def _is_out_of_the_group(self, fenced: FencedError) -> bool:
        """Return whether the member is temporarily out of the group; False if it is a member, or was replaced.

        Heartbeats decide, which are overdue after a stopped process. A commit would not: a sink that commits the
        offsets itself may have moved them. Two responses are needed, because the first may belong to an old heartbeat.

        Raises:
            TransportError: the coordinator did not respond.
        """
        requested_at = time.monotonic()
        confirmed: set[float] = set()
        while len(confirmed) <= 1:
            view = self._consumer.membership()
            if view.state is MemberState.FATAL:
                return False
            if view.state in SILENT:
                return True
            if view.last_heartbeat_at is not None and view.last_heartbeat_at > requested_at:
                confirmed.add(view.last_heartbeat_at)
            if time.monotonic() - requested_at > _CONFIRMATION_S:
                raise TransportError(
                    f"the sink rejected a batch, and the coordinator did not confirm the member within "
                    f"{_CONFIRMATION_S:g} s; not committed. {fenced}"
                ) from fenced
            time.sleep(_CHECK_EVERY_S)
        return False

    # ---- the commit ----

    def settle(self) -> None:
        """Wait for the response to the last commit, and count its result.

        Raises:
            FencedError: the member was replaced.
        """
        if self._underway is None:
            return
        (commit, pending), self._underway = self._underway, None
        try:
            done = pending.result()
        except (CommitError, FatalGroupError) as failure:
            self._refused(commit, failure)
        else:
            self._confirmed_at = time.monotonic()
            self._note(commit, {(one.topic, one.partition): one.error for one in done if one.error is not None})

    def await_answer(self) -> None:
        """Wait for the response to the last commit, before partitions move to another member; `settle` evaluates it."""
        if self._underway is not None:
            with suppress(CommitError, FatalGroupError):
                self._underway[1].result()

    def _begin_commit(self, fetched: FetchedBatch, began_at: float) -> None:
        """Start the commit of a batch that the sink has taken; the next batch is fetched in the meantime."""
        now = time.time()
        ends = {partition: self._bounds.end_of(partition) or 0 for partition in fetched.finished}
        parts: dict[Partition, OffsetRange | None] = {
            **dict.fromkeys(ends),
            **{one.topic_partition: one for one in fetched.ranges},
        }
        offsets = {
            partition: (
                max(ends.get(partition, 0), 0 if part is None else part.next_offset),
                self._bounds.metadata_of(partition) if part is None else self._bounds.metadata(part, began_at, now),
            )
            for partition, part in parts.items()
        }
        commit = _Commit(offsets=offsets, ranges=fetched.ranges, began_at=began_at, ended_at=now, took_s=self._took_s)
        # A sink that commits has committed up to its last record; only an end after that record is left.
        is_left = ends.keys() if self._has_committing_sink else offsets.keys()
        left = [TopicPartition(*partition, *at) for partition, at in offsets.items() if partition in is_left]
        if not left:
            self._note(commit, {})
            return
        try:
            self._underway = commit, self._consumer.begin_commit(left)
        except (CommitError, FatalGroupError) as failure:
            self._refused(commit, failure)

    def _note(self, commit: _Commit, refused: Mapping[Partition, KafkaError]) -> None:
        """Count a commit, except for the partitions in `refused`."""
        for (topic, number), error in refused.items():
            _log.warning("Task %s: the commit of %s[%s] failed: %s", self._instance, topic, number, error)
        for one in commit.ranges:
            if one.topic_partition not in refused:
                self._bounds.keep(one, commit.began_at, commit.ended_at)
                self._late = 0
        for partition, (offset, _) in commit.offsets.items():
            if partition not in refused:
                self._bounds.note(partition, offset)

    def _refused(self, commit: _Commit, failure: CommitError | FatalGroupError) -> None:
        """Handle a commit that failed for all partitions."""
        is_final = isinstance(failure, FatalGroupError)
        if is_final or self._consumer.membership().state is MemberState.FATAL:
            raise FencedError(f"task {self._instance} was replaced, and its commit was refused: {failure}") from failure
        # The member may have been replaced without a notification yet: the sink is not called before the coordinator
        # has confirmed the member.
        self._is_in_doubt = True
        if commit.ranges:
            self._not_committed(commit.ranges, commit.took_s, failure)

    def _not_committed(self, ranges: Sequence[OffsetRange], took_s: float, failure: Exception) -> None:
        """Log that a batch was not committed, so that its records are redelivered.

        A member leaves its group when a sink call takes longer than `sink_timeout_s`. Such a batch counts as an attempt
        of the sink: the next batch is smaller, and after `sink_attempts` such batches in a row the task fails, instead
        of passing the same records to the sink forever.

        Raises:
            SinkError: `sink_attempts` batches in a row took too long.
        """
        plan = self._plan
        is_stale = self._consumer.membership().state is MemberState.STALE
        if took_s < plan.sink_timeout_s * (_SHARE if is_stale else 1.0):
            _log.warning(
                "Task %s: the member was out of its group; not committed, and redelivered to the partitions' owner: "
                "%s: %s",
                self._instance,
                described(ranges),
                failure,
            )
            return
        self._late += 1
        text = (
            f"the sink took {took_s:.1f} s for a batch of {sum(one.records for one in ranges)} records, longer than "
            f"sink_timeout_s={plan.sink_timeout_s:g}, so the member left its group and the batch was not committed: "
            f"{described(ranges)} (batch_size={plan.batch_size}; {self._late} of {plan.sink_attempts} batches in a row)"
        )
        if self._late >= plan.sink_attempts:
            raise SinkError(
                f"{text}; raise sink_timeout_s, or lower batch_size if the sink is slower with more records"
            ) from failure
        _log.warning("Task %s: %s; the next batch has at most %s records", self._instance, text, self.batch_limit)


@dataclass(frozen=True, slots=True)
class _Ownership:
    """The `TaskOwnership` of one batch, with confirmations from the coordinator."""

    consumer: Consumer
    ranges: Sequence[OffsetRange]
    bounds: Bounds
    began_at: float
    has_leases: bool

    def verify(self) -> None:
        """Commit the already committed offsets again: the coordinator refuses this from a replaced member."""
        before = [
            TopicPartition(*one.topic_partition, one.first, self.bounds.metadata_of(one.topic_partition))
            for one in self.ranges
        ]
        try:
            self.consumer.commit(offsets=before, asynchronous=False)
        except (CommitError, FatalGroupError) as refused:
            text = f"the coordinator does not confirm the member: {refused}; nothing was written"
            if isinstance(refused, FatalGroupError) or refused.code in _UNCONFIRMED:
                raise FencedError(text) from refused
            # The coordinator has not reported a replacement: the next attempt may succeed, and the run continues.
            raise TransportError(text) from refused

    def lease(self, partition: Partition) -> Lease:
        """Return the lease of a partition."""
        return self.consumer.lease(TopicPartition(*partition))

    def group_metadata(self) -> bytes:
        """Return the group metadata for a transactional producer."""
        return self.consumer.consumer_group_metadata()

    def commit_metadata(self, part: OffsetRange) -> str:
        """Return the metadata for the offsets of a transactional producer: a drain's count of these records."""
        return self.bounds.metadata(part, self.began_at, time.time())
