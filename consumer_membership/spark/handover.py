"""A batch on its way: still owned, given to the sink, committed; and how many records the next one may have."""

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
from consumer_membership.clients.outcomes import PendingCommit
from consumer_membership.errors import (
    CommitError,
    ConfigurationError,
    FatalGroupError,
    FencedError,
    SinkError,
    TransportError,
)
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.spark.batches import Batch
from consumer_membership.spark.bounds import Bounds
from consumer_membership.spark.context import Fence, OffsetRange, Partition, SinkContext, described, notes_of
from consumer_membership.spark.plan import MemberPlan

_log = logging.getLogger("consumer_membership.spark")

#: A sink is called only if the coordinator confirmed the member within this time: one that was stopped, or cut off, for
#: longer asks first.
CONFIRMED_S = 2.0
#: What a static member is told that has lost its place to another one, or was removed.
REPLACED = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
    }
)
#: What a commit is refused with of a member that has no place: by the coordinator, or by the member, which knows.
_UNCONFIRMED = REPLACED | {KafkaError._ASSIGNMENT_LOST}
#: For the group's word on a member that a sink refused: two heartbeats, 15 s apart at most by a broker's own bounds.
_WORD_S = 60.0
#: Between two looks for that word.
_LOOK_S = 0.05
#: Between two calls of a sink that raised.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
#: The part of sink_timeout_s that a batch may take before the next one is cut: a sink that slows down to half of its
#: speed still finishes in time.
_SHARE = 0.5
#: A cut batch grows by one part in so many. A sink that leaves out records which an earlier call wrote is fast for a
#: few batches; at this pace the records that it has to write come before the batch is too large for them.
_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Records that were fetched, as the sink wants them, what they are of, and the partitions whose end is reached.

    All of partitions that the application has: it was given them, and has not been told that they are gone. The
    member's view is no measure of that: it hears of an assignment only after the records may come.
    """

    batch: Batch = field(default_factory=list)
    ranges: tuple[OffsetRange, ...] = ()
    finished: frozenset[Partition] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """One commit: the offset and the metadata of each partition, and the records and the times that they count."""

    offsets: Mapping[Partition, tuple[int, str]]
    ranges: tuple[OffsetRange, ...]
    began_at: float
    ended_at: float
    #: How long the sink worked on the records.
    took_s: float


class BatchLimit:
    """How many records a batch may have so that the sink finishes it well within `sink_timeout_s`.

    It starts at `batch_size`, which it never exceeds. A batch that took longer than half of the timeout cuts it in
    proportion; full batches that took less let it grow slowly.
    """

    def __init__(self, batch_size: int, sink_timeout_s: float) -> None:
        self._most = batch_size
        self._fits_s = sink_timeout_s * _SHARE
        self.records = batch_size

    def learn(self, records: int, took_s: float) -> None:
        """Take in how long the sink worked on a batch of so many records."""
        if took_s > self._fits_s:
            self.records = max(1, min(self.records, int(records * self._fits_s / took_s)))
        elif records >= self.records:
            self.records = min(self._most, self.records + max(1, self.records // _GROWTH))


class Handover:
    """Gives batches to the sink and commits them, for the member of one task."""

    def __init__(
        self, plan: MemberPlan, sink: object, instance: int, attempt: int, consumer: Consumer, bounds: Bounds
    ) -> None:
        if not callable(sink):
            raise SinkError(f"the sink {sink!r} cannot be called")
        self._plan = plan
        self._sink: Callable[[object, SinkContext], None] = sink
        self._instance = instance
        self._attempt = attempt
        self._consumer = consumer
        self._bounds = bounds
        self._confirmed_at = 0.0
        self._is_in_doubt = False
        self._underway: tuple[_Commit, PendingCommit] | None = None
        self._limit = BatchLimit(plan.batch_size, plan.sink_timeout_s)
        #: How long the sink worked on the batch in hand; 0: it was not called.
        self._took_s = 0.0
        #: Batches in a row that the sink finished after the member had left its group for that.
        self._late = 0
        self._has_committing_sink = bool(getattr(sink, "commits_offsets", False))
        self.records = 0
        self.batches = 0

    @property
    def batch_limit(self) -> int:
        """How many records the next batch may have."""
        return self._limit.records

    def give(self, held: Held) -> bool:
        """Have the sink take these records, and begin to commit them.

        The commit before is settled first: a sink is called by a member of which all that it did before is known.

        False: the batch is given up, for the member was out of its group while it had it (its process stood still, its
        session ended), and whoever has the partitions now has the records, too. The member loses what it has with its
        next poll, and joins again.

        Raises:
            SinkError: the sink raised, or took longer than `sink_timeout_s`, as often as it may.
            FencedError: the member was replaced; or the sink says so of one that has never been out of its group.
            TransportError: nobody says whether the member has its place.
        """
        # The epoch at which they were fetched.
        epoch = self._consumer.membership().member_epoch
        self.settle()
        began_at = time.time()
        if held.ranges:
            try:
                self._call(held, epoch, began_at)
            except FencedError as fenced:
                if fenced.is_final or not self._is_out_of_the_group(fenced):
                    raise
                self._not_committed(held.ranges, self._took_s, fenced)
                return False
            self.records += sum(one.records for one in held.ranges)
            self.batches += 1
        self._begin_commit(held, began_at)
        return True

    def prepare(self) -> None:
        """Have the sink do what it has to before anything is fetched; what it raises comes out of here."""
        prepare = getattr(self._sink, "prepare", None)
        if callable(prepare):
            prepare(self._instance, self._plan.instance_id(self._instance))

    def close(self) -> None:
        """Have the sink release what it holds."""
        close = getattr(self._sink, "close", None)
        if callable(close):
            close()

    # ---- the sink ----

    def _call(self, held: Held, epoch: int, began_at: float) -> None:
        ownership = _Asked(self._consumer, held.ranges, self._bounds, began_at)
        context = SinkContext(
            group=self._plan.group,
            pipeline=self._plan.pipeline,
            instance=self._instance,
            instances=self._plan.instances,
            instance_id=self._plan.instance_id(self._instance),
            attempt=self._attempt,
            batch_format=self._plan.batch_format,
            ranges=held.ranges,
            fences=tuple(
                Fence(
                    group=self._plan.group,
                    topic=one.topic,
                    partition=one.partition,
                    next_offset=one.next_offset,
                    epoch=epoch,
                    attempt=self._attempt,
                )
                for one in held.ranges
            ),
            ownership=ownership,
        )
        self._took_s = 0.0
        heard_at = max(self._confirmed_at, self._consumer.membership().last_heartbeat_at or 0.0)
        # An epoch that is none: the member was fenced, and hears of it at its next poll.
        if self._is_in_doubt or epoch <= 0 or time.monotonic() - heard_at > CONFIRMED_S:
            ownership.verify()
            self._confirmed_at, self._is_in_doubt = time.monotonic(), False
        attempts = Retrying(
            # Beyond its time the member has no partitions to write for.
            stop=stop_after_attempt(self._plan.sink_attempts) | stop_after_delay(self._plan.sink_timeout_s),
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            # What is configured wrongly does not get better.
            retry=retry_if_exception_type(Exception) & retry_if_not_exception_type((FencedError, ConfigurationError)),
            reraise=True,
        )
        began = time.monotonic()
        try:
            attempts(self._sink, held.batch, context)
        except FencedError:
            raise
        except Exception as raised:
            tried = attempts.statistics.get("attempt_number", 1)
            said = ", ".join((f"{type(raised).__name__}: {raised}", *notes_of(raised)))
            raise SinkError(
                f"the sink raised {said} ({tried} of {self._plan.sink_attempts} calls); "
                f"not committed: {described(held.ranges)}"
            ) from raised
        finally:
            self._took_s = time.monotonic() - began
            self._limit.learn(sum(one.records for one in held.ranges), self._took_s)

    def _is_out_of_the_group(self, fenced: FencedError) -> bool:
        """Whether the member has no place in the group for now, and may come back; False: it has one, or never will.

        By its heartbeats, which are overdue where a process stood still. Not by a commit: a sink that commits the
        offsets itself may have moved them. The first answer may be one to a heartbeat of long ago.

        Raises:
            TransportError: the coordinator does not answer.
        """
        asked_at = time.monotonic()
        heard: set[float] = set()
        while len(heard) <= 1:
            view = self._consumer.membership()
            if view.state is MemberState.FATAL:
                return False
            if view.state in SILENT:
                return True
            if view.last_heartbeat_at is not None and view.last_heartbeat_at > asked_at:
                heard.add(view.last_heartbeat_at)
            if time.monotonic() - asked_at > _WORD_S:
                raise TransportError(
                    f"the sink refused a batch, and for {_WORD_S:g} s nobody has said whether the member has its place "
                    f"in the group; not committed. {fenced}"
                ) from fenced
            time.sleep(_LOOK_S)
        return False

    # ---- the commit ----

    def settle(self) -> None:
        """Wait for the answer to the last commit, and count what it says.

        Raises FencedError: the member was replaced.
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
        """Wait until the last commit is answered, before partitions go to another member; `settle` looks at it."""
        if self._underway is not None:
            with suppress(CommitError, FatalGroupError):
                self._underway[1].result()

    def _begin_commit(self, held: Held, began_at: float) -> None:
        """Commit what the sink has taken, while the next batch is fetched; it is settled before that is given."""
        now = time.time()
        ends = {place: self._bounds.end_of(place) or 0 for place in held.finished}
        parts: dict[Partition, OffsetRange | None] = {**dict.fromkeys(ends), **{one.place: one for one in held.ranges}}
        offsets = {
            place: (
                max(ends.get(place, 0), 0 if part is None else part.next_offset),
                self._bounds.metadata_of(place) if part is None else self._bounds.metadata(part, began_at, now),
            )
            for place, part in parts.items()
        }
        commit = _Commit(offsets=offsets, ranges=held.ranges, began_at=began_at, ended_at=now, took_s=self._took_s)
        # A sink that commits has done so up to its last record; only an end behind that is left to do.
        is_left = ends.keys() if self._has_committing_sink else offsets.keys()
        left = [TopicPartition(*place, *at) for place, at in offsets.items() if place in is_left]
        if not left:
            self._note(commit, {})
            return
        try:
            self._underway = commit, self._consumer.begin_commit(left)
        except (CommitError, FatalGroupError) as failure:
            self._refused(commit, failure)

    def _note(self, commit: _Commit, refused: Mapping[Partition, KafkaError]) -> None:
        """Count what was committed; these were refused."""
        for (topic, number), error in refused.items():
            _log.warning("Task %s: %s[%s] is not committed: %s", self._instance, topic, number, error)
        for one in commit.ranges:
            if one.place not in refused:
                self._bounds.keep(one, commit.began_at, commit.ended_at)
                self._late = 0
        for place, (offset, _) in commit.offsets.items():
            if place not in refused:
                self._bounds.note(place, offset)

    def _refused(self, commit: _Commit, failure: CommitError | FatalGroupError) -> None:
        """None of it was committed."""
        is_final = isinstance(failure, FatalGroupError)
        if is_final or self._consumer.membership().state is MemberState.FATAL:
            raise FencedError(f"task {self._instance} was replaced, its commit is refused: {failure}") from failure
        # Perhaps it was replaced, and has not heard of it: nothing is given to the sink before the coordinator has
        # confirmed the member.
        self._is_in_doubt = True
        if commit.ranges:
            self._not_committed(commit.ranges, commit.took_s, failure)

    def _not_committed(self, ranges: Sequence[OffsetRange], took_s: float, failure: Exception) -> None:
        """Log that the group did not take a batch, so that its records come again.

        A member leaves its group when its sink works for longer than `sink_timeout_s`. Such a batch counts as an
        attempt of the sink: the next one is cut, and if that does not help, the task fails instead of giving the sink
        the same records without end.

        Raises:
            SinkError: so many batches in a row took too long.
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
class _Asked:
    """The coordinator's word on a member, for one batch."""

    consumer: Consumer
    ranges: Sequence[OffsetRange]
    bounds: Bounds
    began_at: float

    def verify(self) -> None:
        """Commit what is committed already: the coordinator refuses it from a member that was replaced."""
        before = [TopicPartition(*one.place, one.first, self.bounds.metadata_of(one.place)) for one in self.ranges]
        try:
            self.consumer.commit(offsets=before, asynchronous=False)
        except (CommitError, FatalGroupError) as refused:
            words = f"the coordinator does not confirm the member: {refused}; nothing was written"
            if isinstance(refused, FatalGroupError) or refused.code in _UNCONFIRMED:
                raise FencedError(words) from refused
            # Nobody has said that it was replaced: the next attempt may do better, and the run goes on.
            raise TransportError(words) from refused

    def group_metadata(self) -> bytes:
        """What a transactional producer tells the coordinator of the member."""
        return self.consumer.consumer_group_metadata()

    def commit_metadata(self, part: OffsetRange) -> str:
        """What a transactional producer commits beside the offset behind these records: a drain's account of them."""
        return self.bounds.metadata(part, self.began_at, time.time())
