"""Which partitions are fetched and from where: what an application may change and ask beside polling.

Each call waits for its turn, one poll slice at most. Inside rebalance callbacks the calls that assign belong to the
rebalance, as in confluent-kafka; programs written for the eager protocol, which call `assign` and `unassign` there,
go on working.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED

from consumer_membership.librdkafka import LibrdkafkaConsumer, PartitionOffset
from consumer_membership.membership.events import AssignedByHand
from consumer_membership.runtime.application.callbacks import CallbackStyle
from consumer_membership.runtime.application.commits import ANSWER_GRACE_S, Commits
from consumer_membership.runtime.application.fetcher import Fetcher, in_slices, key_of
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.performer import Steps
from consumer_membership.runtime.application.session_errors import (
    INVALID_ARG_CODE,
    STATE_CODE,
    UNKNOWN_PARTITION_CODE,
    StateError,
)
from consumer_membership.runtime.line import CommittedOffsetsQuestion, Line, UnansweredError
from consumer_membership.types import CommittedOffsets, OffsetAndMetadata, Subscription, TopicPartition

T = TypeVar("T")
PartitionT = TypeVar("PartitionT", bound=PartitionOffset)

#: The first slice of a request that librdkafka answers from the network; Ctrl-C gets in between slices.
REQUEST_SLICE_S = 1.0


class Partitions:
    """The partitions of one session."""

    def __init__(
        self, fetcher: Fetcher, commits: Commits, steps: Steps, style: CallbackStyle, line: Line, life: Lifetime
    ) -> None:
        self._fetcher = fetcher
        self._handle_lock = fetcher.lock
        self._commits = commits
        self._book = commits.book
        self._steps = steps
        self._style = style
        self._line = line
        self._life = life
        #: What the application asked for, so that partitions come from the group; empty: nothing.
        self._subscription = Subscription()
        #: Since when it asks for any (monotonic clock); None: it does not.
        self.subscribed_at: float | None = None
        #: Whether an earlier subscription was given up, and the group has not taken everything yet.
        self._is_leaving = False

    # ---- subscribing ----

    @property
    def is_subscribed(self) -> bool:
        """Whether the application asked for topics: partitions then come from the group."""
        return bool(self._subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Hand out what is of these topics only, and have them looked up; an empty one: nothing, the member leaves.

        What the group gave for an earlier subscription stays assigned until it takes it, and nothing more of it comes
        (KAFKA-19356): where that one was given up as a whole, nothing at all until the member has left.
        """
        with self._handle_lock:
            self._fetcher.prefetch_metadata(subscription.topics)
            if not subscription:
                self.subscribed_at = None
            elif self.subscribed_at is None:
                self.subscribed_at = monotonic()
            self._subscription = subscription
            self._is_leaving |= not subscription
            self._restrict_to_subscription()

    def left(self) -> None:
        """The member has left, and the group has taken everything: what it gives from now on is of a new membership."""
        with self._handle_lock:
            self._is_leaving = False
            self._restrict_to_subscription()

    def _restrict_to_subscription(self) -> None:
        if self._is_leaving or not self._subscription:
            self._fetcher.restrict_to(frozenset())
        else:
            # Which topics a pattern means is the group's to say.
            self._fetcher.restrict_to(None if self._subscription.patterns else self._subscription.topics)

    # ---- assigning ----

    def assign(self, partitions: list[PartitionOffset]) -> None:
        """Assign exactly these; inside on_assign these of the arriving ones."""
        self._life.check()
        self._steps.settle_starts()
        with self._handle_lock:
            if self._steps.arriving is not None:
                self._take_arriving(partitions)
                return
            self._refuse_if_grouped("Failed to set assignment")
            self._commits.begin_by_hand(self._fetcher.by_hand)
            self._fetcher.replace(partitions)
            self._book.forget([key_of(partition) for partition in partitions])
            self._announce(holds=bool(partitions))

    def unassign(self) -> None:
        """Assign nothing; inside on_revoke and on_lost give up what they are about."""
        self._life.check()
        with self._handle_lock:
            if self._steps.leaving is not None:
                self._fetcher.remove(self._steps.leaving)
                return
            self._refuse_if_grouped("Failed to remove assignment")
            self._commits.begin_by_hand(self._fetcher.by_hand)
            self._book.forget(self._fetcher.assigned)
            self._fetcher.remove_all()
            self._announce(holds=False)

    def incremental_assign(self, partitions: list[PartitionOffset]) -> None:
        """Assign these as well."""
        self._life.check()
        self._steps.settle_starts()
        with self._handle_lock:
            if self._steps.arriving is not None:
                self._style.assigned_incrementally()
                self._take_arriving(partitions)
                return
            self._fetcher.add(partitions)
            self._book.forget([key_of(partition) for partition in partitions])
            self._announce(holds=bool(self._fetcher.by_hand))

    def incremental_unassign(self, partitions: list[PartitionOffset]) -> None:
        """Give up these; each must be assigned."""
        self._life.check()
        keys = [key_of(partition) for partition in partitions]
        for partition in keys:
            if keys.count(partition) > 1:
                # librdkafka ends the process here (an assertion), so it never gets to see such a list.
                raise StateError(
                    f"Duplicate {partition.topic} [{partition.partition}] in input list; name each partition once",
                    INVALID_ARG_CODE,
                )
        with self._handle_lock:
            unknown = [partition for partition in keys if partition not in self._fetcher.assigned]
            if unknown:
                raise StateError(
                    f"{unknown[0].topic} [{unknown[0].partition}] can't be unassigned since it is not in the "
                    "current assignment",
                    INVALID_ARG_CODE,
                )
            self._fetcher.remove(keys)
            if self._steps.leaving is not None:
                self._style.assigned_incrementally()
            else:
                self._book.forget(keys)
                if not self._fetcher.by_hand:
                    self._announce(holds=False)

    def _take_arriving(self, partitions: list[PartitionOffset]) -> None:
        """Inside on_assign: the application assigns itself; -1000 and -1001 mean where the group left off."""
        arriving = self._steps.arriving or {}
        starts, left_off = [], set()
        for partition in partitions:
            key, offset = key_of(partition), partition.offset
            if offset in (OFFSET_INVALID, OFFSET_STORED) and key in arriving:
                offset = arriving[key]
                left_off.add(key)
            starts.append(PartitionOffset(key.topic, key.partition, offset))
        self._fetcher.add(starts, arriving)
        self._fetcher.show_as_stored(left_off)
        self._steps.leave_to_application()

    def _announce(self, *, holds: bool) -> None:
        """Automatic commits are all that the member does for partitions that the application assigned itself."""
        if self._book.settings.is_automatic:
            self._line.send(AssignedByHand(holds=holds))

    def _refuse_if_grouped(self, what: str) -> None:
        if self.is_subscribed or self._fetcher.held:
            raise StateError(
                f"{what}: Local: Erroneous state (the group assigns the partitions of a subscribed consumer; to start "
                "elsewhere use seek(), or assign() inside on_assign; to read others as well incremental_assign(); to "
                "read without the group call unsubscribe() and poll() first)",
                STATE_CODE,
            )

    def assignment(self) -> list[PartitionOffset]:
        """What is assigned now."""
        self._life.check()
        with self._handle_lock:
            return self._fetcher.assignment()

    # ---- holding back and moving ----

    def pause(self, partitions: list[PartitionOffset]) -> None:
        """Hold back these until they are resumed."""
        self._life.check()
        with self._handle_lock:
            self._fetcher.pause([key_of(p) for p in partitions], arriving=self._steps.arriving or ())

    def resume(self, partitions: list[PartitionOffset]) -> None:
        """Let these go on."""
        self._life.check()
        with self._handle_lock:
            self._fetcher.resume([key_of(p) for p in partitions])

    def seek(self, partition: PartitionOffset) -> None:
        """Go on from this offset."""
        self._life.check()
        with self._handle_lock:
            self._fetcher.seek(partition)

    def position(self, partitions: list[PartitionOffset]) -> list[PartitionOffset]:
        """The next offset of each; -1001 where nothing was delivered since it was assigned or sought."""
        self._life.check()
        with self._handle_lock:
            found = self._fetcher.positions({key_of(partition) for partition in partitions})
        return [placed(PartitionOffset, key_of(partition), found.get(key_of(partition))) for partition in partitions]

    def store(self, offsets: list[PartitionOffset]) -> None:
        """Remember these offsets as consumed (`enable.auto.offset.store=false`).

        Raises:
            StateError: none of them could be stored; some that cannot are passed over, as in confluent-kafka.
        """
        self._life.check()
        if self._book.settings.stores_by_itself:
            raise StateError(
                "StoreOffsets failed: Local: Invalid argument or configuration (set enable.auto.offset.store=false)",
                INVALID_ARG_CODE,
            )
        with self._handle_lock:
            assigned = self._fetcher.assigned
            topics = {partition.topic for partition in assigned}
            # That nothing of a partition is consumed may be said of every one that librdkafka has heard of.
            good = [one for one in offsets if key_of(one) in assigned or (one.offset < 0 and one.topic in topics)]
            if offsets and not good:
                if any(offset.topic in topics for offset in offsets):
                    raise StateError("StoreOffsets failed: Local: Erroneous state", STATE_CODE)
                raise StateError(
                    "StoreOffsets failed: Local: Unknown partition",
                    UNKNOWN_PARTITION_CODE,
                )
            for offset in good:
                self._book.store(key_of(offset), domain_offset(offset))

    # ---- asking the brokers ----

    def ask(self, call: Callable[[LibrdkafkaConsumer, float], T], timeout_s: float) -> T:
        """The answer to a request of the handle that goes to the brokers; negative: wait for ever."""
        self._life.check()

        def one_slice(left_s: float) -> T:
            with self._handle_lock:
                self._life.check()
                return call(self._fetcher.handle, left_s)

        return in_slices(one_slice, timeout_s, monotonic, REQUEST_SLICE_S)

    def committed(self, partitions: list[PartitionOffset], timeout_s: float) -> CommittedOffsets:
        """What the group has committed of these, as its coordinator tells the member; negative: wait for ever.

        It needs neither the handle nor another thread that polls. librdkafka's own answer would do but for the texts:
        they have no end in it (`rd_kafka_topic_partition_list_update` copies them without the zero), and what stands
        behind them in memory is read along.

        Raises:
            RefusedError: the coordinator refused for good.
            UnansweredError: no answer in time.
        """
        self._life.check()
        limit_s = inf if timeout_s < 0 else timeout_s
        question = CommittedOffsetsQuestion(partitions=frozenset(map(key_of, partitions)), timeout_s=limit_s)
        self._line.ask(question)
        answer = question.answer
        began_at = monotonic()
        deadline = began_at + limit_s + ANSWER_GRACE_S
        try:
            while monotonic() < deadline:
                with suppress(TimeoutError):
                    return answer.result(REQUEST_SLICE_S)
                self._life.check()
        except CancelledError:
            self._life.check()
        finally:
            answer.cancel()
            now = monotonic()
            self._commits.ledger.committed.add(now - began_at, now)
        raise UnansweredError("Failed to get committed offsets: Local: Timed out (the membership thread has ended)")


def domain_offset(offset: PartitionOffset) -> OffsetAndMetadata | None:
    """The offset to commit that a front end's TopicPartition carries; None where it carries none."""
    if offset.offset < 0:
        return None
    epoch: int | None = offset.leader_epoch
    # With C's terminating zero, as confluent-kafka commits it: that tells an empty text from none, and confluent-kafka
    # reads a text without it together with what stands behind it in memory.
    text = "" if offset.metadata is None else offset.metadata + "\0"
    return OffsetAndMetadata(offset=offset.offset, leader_epoch=epoch, metadata=text)


def placed(kind: type[PartitionT], partition: TopicPartition, at: OffsetAndMetadata | None) -> PartitionT:
    """The partition with this offset as a front end's TopicPartition; -1001 where there is none.

    The C type's constructor takes no None for metadata and leader epoch, and its attributes are read-only.
    """
    topic, number = partition
    if at is None:
        return kind(topic, number, OFFSET_INVALID)
    # confluent-kafka commits a text with C's terminating zero, an empty one too; where nothing stands there was none.
    text = at.metadata.partition("\0")[0] if at.metadata else None
    if at.leader_epoch is None:
        return kind(topic, number, at.offset) if text is None else kind(topic, number, at.offset, text)
    if text is None:
        return kind(topic, number, at.offset, leader_epoch=at.leader_epoch)
    return kind(topic, number, at.offset, metadata=text, leader_epoch=at.leader_epoch)
