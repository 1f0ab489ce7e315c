"""librdkafka's handle: it fetches the assigned partitions from given offsets, and is not a member of the group.

Only the application's threads use it, one at a time: every method requires its `lock` to be held. The handle is never
subscribed and never commits.

The paused partitions are kept here and not read from librdkafka: in librdkafka a pause outlives the assignment, while
Java's rule, which this package follows, is that a revoked partition returns unpaused.

**Interrupts.** A signal handler that raises (Ctrl-C, an alarm) may end each of these methods at any line, and it may
end `handle.consume` after librdkafka took the records and before a list of them exists: confluent-kafka then destroys
the records, and the handle's position is already past them. So the sets and positions that this class notes are
authoritative. Each method that changes the handle or takes records from it sets a mark and clears it at its end. A call
that finds the mark set first makes the handle and the buffer agree with the notes again (`_repair`), and moves the
handle back to lost records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import ceil
from time import monotonic
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, Message

from consumer_membership.config import ByDuration, OffsetReset
from consumer_membership.librdkafka import LibrdkafkaConsumer, PartitionOffset
from consumer_membership.runtime.application.handle import HandleWatch
from consumer_membership.runtime.application.leader_connections import LeaderConnections
from consumer_membership.runtime.application.locks import FairLock
from consumer_membership.runtime.application.look_ups import LookUps
from consumer_membership.runtime.application.partition_offsets import key_of, to_librdkafka
from consumer_membership.runtime.application.prefetch_buffer import PrefetchBuffer
from consumer_membership.runtime.application.resets import DurationResets
from consumer_membership.runtime.application.session_errors import STATE_CODE
from consumer_membership.types import CONFLICT_CODE, TRANSPORT_CODE, OffsetAndMetadata, TopicPartition

_log = partial(logging.getLogger, "consumer_membership.fetcher")

T = TypeVar("T")

#: Up to this number, topics are requested one by one: 1,000 requests take a second, 100 take 20 ms.
LOOK_UPS = 100
#: The first slice of a request that librdkafka answers from the network; Ctrl-C is handled between slices.
REQUEST_SLICE_S = 1.0
#: A request that failed after this fraction of its slice counts as expired: librdkafka rounds to milliseconds.
_NEARLY = 0.9
#: Records of one inner batch. Measured: poll() gains nothing above a few hundred, and the batch is memory on top of
#: librdkafka's queue.
BATCH_RECORDS = 500
#: The limit of a batch in bytes: librdkafka bounds its queue by bytes (queued.max.messages.kbytes), and so does the
#: batch.
BATCH_BYTES = 1 << 20
#: A fetch that returned its record after this time waited for it; without a wait it takes some microseconds.
LEAST_WAIT_S = 0.001


def whole_ms(timeout_s: float) -> float:
    """Round up to whole milliseconds, because confluent-kafka truncates to whole milliseconds.

    A remainder below 1 ms would make the caller spin. The added half covers values that floating point leaves just
    below a whole number.
    """
    return (ceil(timeout_s * 1000) + 0.5) / 1000 if timeout_s > 0 else 0.0


class Fetcher:
    """The handle, the partitions that it fetches, and the buffer that it fills.

    `reset` is the start of a partition without a position, or with a position that no longer exists. librdkafka looks
    this start up itself, except for a duration.
    """

    def __init__(
        self,
        make_handle: Callable[[], LibrdkafkaConsumer],
        buffer: PrefetchBuffer,
        reset: OffsetReset | ByDuration = OffsetReset.LATEST,
    ) -> None:
        #: Lets one application thread at a time use the handle, for one poll slice at most.
        self.lock = FairLock()
        self._make_handle = make_handle
        self.handle = make_handle()
        self.buffer = buffer
        self._watch = HandleWatch(lambda: self.has_broker)
        #: Partitions that the group assigned, and those that the application assigned itself.
        self.held: set[TopicPartition] = set()
        self.by_hand: set[TopicPartition] = set()
        #: Partitions that are held back: `paused` by the application, `frozen` while their revocation runs, or
        #: `given_up` because their subscription was replaced and the group has not revoked them yet.
        self.paused: set[TopicPartition] = set()
        self.frozen: set[TopicPartition] = set()
        self.given_up: set[TopicPartition] = set()
        #: The topics whose records are returned from the group's partitions; None: all topics.
        self._topics: frozenset[str] | None = None
        #: The offset that `assignment()` shows for each partition.
        self._shown: dict[TopicPartition, int] = {}
        #: The start offset of each partition. While the record at that offset waits, no record of the partition was
        #: returned.
        self._starts: dict[TopicPartition, int] = {}
        #: The logical starts of partitions whose first record has not come yet.
        self._logical: dict[TopicPartition, int] = {}
        #: When the handle last started a partition at the committed offset, which it looks up itself.
        self.requested_at: dict[TopicPartition, float] = {}
        #: Positions before a seek: these may still be committed (librdkafka keeps the stored offset over a seek).
        self._before_seek: dict[TopicPartition, OffsetAndMetadata] = {}
        #: Positions of resumed partitions from which no record has come since.
        self._resumed_at: dict[TopicPartition, OffsetAndMetadata] = {}
        #: Whether a change or a fetch has begun and not ended: both set and clear this, and `_repair` clears it.
        self._is_inconsistent = False
        #: The handle's positions when that change or fetch began; None: records came since, or no interrupt can lose
        #: any.
        self._positions_before: list[PartitionOffset] | None = None
        #: The assigned partitions in librdkafka's form; None: they may have changed.
        self._assigned_list: list[PartitionOffset] | None = None
        self._batch = BATCH_RECORDS
        #: Whether the handle probably has no record: the last fetch returned no record, or waited for it.
        self.is_drained = True
        self._resets = DurationResets(reset, self._reset) if isinstance(reset, ByDuration) else None
        self._look_ups = LookUps(resets_by_itself=reset in (OffsetReset.EARLIEST, OffsetReset.LATEST))
        self._prefetched_topics: set[str] = set()
        self._leader_connections = LeaderConnections()

    def prefetch_metadata(self, topics: Collection[str]) -> None:
        """Have librdkafka fetch these topics' metadata now, so that their partitions start without a delay.

        A request for cached watermarks makes a topic known to the handle, which then requests its metadata when it
        connects.
        """
        self._prefetched_topics |= set(topics)
        for topic in topics:
            self.handle.get_watermark_offsets(PartitionOffset(topic, 0), cached=True)
        self._look_up(topics)

    def _look_up(self, topics: Collection[str]) -> None:
        """Request these topics' metadata from a broker that is already connected; never waits.

        librdkafka itself would request it when its timer fires, once a second. Measured, subscription to first record:
        median 25 ms instead of 730 if the subscription comes up to 0.3 s after the constructor. For many topics, the
        timer's single request is as fast as a request for each topic.
        """
        for topic in topics if len(topics) <= LOOK_UPS else ():
            with suppress(KafkaException):  # librdkafka takes the response, or it has no broker yet
                self.handle.list_topics(topic, 0)

    def connect_to_leaders(self) -> None:
        """Have the handle connect to the leaders of the subscribed topics, unless it did so a short time ago."""
        self._leader_connections.open_if_due(self.handle, self._prefetched_topics)

    # ---- fetching ----

    @property
    def assigned(self) -> set[TopicPartition]:
        """All partitions that the handle fetches or holds back."""
        return self.held | self.by_hand

    @property
    def can_deliver(self) -> bool:
        """Whether a record may come from the handle."""
        if not self.paused and not self.frozen and not self.given_up:  # nearly always, and read in every slice
            return bool(self.held or self.by_hand)
        return not self.assigned <= self._held_back

    @property
    def _held_back(self) -> set[TopicPartition]:
        return self.paused | self.frozen | self.given_up

    def fetch(self, limit: int, timeout_s: float) -> list[Message]:
        """Fetch and return at most `limit` records from the handle, within this time, a whole number of ms.

        The records are in the buffer's `landed`; the caller then has the buffer take them in or offer them.
        """
        if self._look_ups.has_stale_lookup:
            self._renew_after_stale_lookup()
        if self._is_inconsistent:
            self._repair()
        buffer = self.buffer
        buffer.finish_moves()
        # Signal handlers run on the main thread only.
        if self._positions_before is None and threading.current_thread() is threading.main_thread():
            self._positions_before = self._handle_positions()
        self._is_inconsistent = True
        buffer.landed.extend(map(self.handle.consume, (limit,), (timeout_s,)))
        self.is_drained = not buffer.landed[0]
        if buffer.landed[0]:
            self._positions_before = None
            self._process_landed()
        self._is_inconsistent = False
        return buffer.landed[0]

    def fill(self, timeout_s: float) -> bool:
        """Buffer the available records, or wait for one if there is none; return whether a record was buffered."""
        batch = self.fetch(self._batch, 0)
        if not batch and timeout_s > 0:
            return self.wait(whole_ms(timeout_s))
        self._take_in(batch)
        return bool(batch)

    def wait(self, timeout_s: float) -> bool:
        """Wait for one record, for whole milliseconds (`whole_ms`), and buffer it; return whether it came."""
        began_at = monotonic()
        batch = self.fetch(1, timeout_s)
        self.is_drained = not batch or monotonic() - began_at >= LEAST_WAIT_S
        self._take_in(batch)
        return bool(batch)

    def _process_landed(self) -> None:
        """Take reports of missing positions out of the landed batch, and note the first records of partitions."""
        landed = self.buffer.landed
        if self._resets is not None:
            landed[0] = self._resets.take_out(self.handle, landed[0])
        if self._logical and landed[0]:
            self._note_first(landed[0])

    def _renew_after_stale_lookup(self) -> None:
        """Replace a handle that a late lookup may move elsewhere, before a record is taken from it."""
        _log().info(
            "A late offset lookup of librdkafka could overwrite a newer position; its consumer is restarted at the "
            "current positions"
        )
        self.renew()

    def _take_in(self, batch: list[Message]) -> None:
        """Buffer a batch; if its records are large, the next batch is smaller so that it stays near its size limit."""
        if batch:
            # Its first and last record represent all of it.
            weight = max(len(batch[0]), len(batch[-1]), 1)
            self._batch = max(1, min(BATCH_RECORDS, BATCH_BYTES // weight))
        self.buffer.take_in()

    def _note_first(self, batch: list[Message]) -> None:
        for message in batch:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if topic is None or partition is None or offset is None or message.error() is not None:
                continue
            found = TopicPartition(topic, partition)
            if found in self._logical:
                del self._logical[found]
                self._starts[found] = offset

    # ---- interrupts ----

    def _begin_change(self) -> None:
        """Mark a change of the handle as begun; an earlier change that was interrupted is repaired first."""
        if self._is_inconsistent:
            self._repair()
        self._positions_before = self._handle_positions()
        self._assigned_list = None
        self._is_inconsistent = True

    def _handle_positions(self) -> list[PartitionOffset]:
        """The handle's position of each assigned partition."""
        if self._assigned_list is None:
            self._assigned_list = to_librdkafka(self.assigned)
        return self.handle.position(self._assigned_list) if self._assigned_list else []

    def _end_change(self) -> None:
        self._positions_before = self._assigned_list = None
        self._is_inconsistent = False

    def _repair(self) -> None:
        """Make the handle and the buffer agree with these notes after an interrupt; may itself be interrupted.

        A change is undone or completed: partitions that are not noted are unassigned, noted partitions that the handle
        lacks are assigned again, and positions that moved although no record came are restored.
        """
        if self.buffer.landed and self.buffer.landed[0]:
            self._positions_before = None
            self._process_landed()
        self.buffer.finish_moves()
        self._assigned_list = None
        assigned = self.assigned
        known = {key_of(one) for one in self.handle.assignment()}
        if known - assigned:
            self.handle.incremental_unassign(to_librdkafka(known - assigned))
        self._forget((self.buffer.partitions | self._shown.keys() | known) - assigned)
        before = {key_of(one): one for one in self._positions_before or ()}
        for now in self._handle_positions():
            partition = key_of(now)
            was = before.get(partition)
            if partition not in known or (was is not None and was.offset != now.offset):
                self._restore_position(partition, was, is_known=partition in known)
        held_back = self._held_back & assigned
        if held_back:
            self.handle.pause(to_librdkafka(held_back))
        if assigned - held_back:
            self.handle.resume(to_librdkafka(assigned - held_back))
        self.buffer.hold(held_back)
        self._end_change()

    def _restore_position(self, partition: TopicPartition, was: PartitionOffset | None, *, is_known: bool) -> None:
        """Continue after the last record of this partition that the handle returned and no interrupt lost."""
        offset = self._next_offset(partition, was or PartitionOffset(*partition))
        start = PartitionOffset(*partition, self._logical.get(partition, OFFSET_STORED) if offset is None else offset)
        if is_known and offset is not None:
            with suppress(KafkaException):  # it was only just assigned
                self.handle.seek(start)
                return
        if is_known:
            self.handle.incremental_unassign([start])
        self.handle.incremental_assign([start])

    # ---- assignment ----

    def assignment(self) -> list[PartitionOffset]:
        """The assignment, with the offsets that confluent-kafka shows: -1000 for partitions of the group."""
        return [PartitionOffset(p.topic, p.partition, self._shown.get(p, OFFSET_STORED)) for p in sorted(self.assigned)]

    def replace(self, partitions: list[PartitionOffset]) -> None:
        """Assign exactly these partitions, by hand."""
        self._begin_change()
        self.handle.assign(partitions)
        self._look_up_new(partitions)
        former, self.by_hand = self.by_hand, {key_of(p) for p in partitions}
        self._positions_before = None  # from here on the new starts are valid
        self._forget(former)
        self._begin(partitions)
        self._end_change()

    def add(self, partitions: list[PartitionOffset], of_group: Container[TopicPartition] = ()) -> None:
        """Assign these in addition, by hand or as partitions of the group."""
        self._begin_change()
        self.handle.incremental_assign(partitions)
        self._look_up_new(partitions)
        added = {key_of(partition) for partition in partitions}
        self._begin(partitions)
        for partition in added:
            (self.held if partition in of_group else self.by_hand).add(partition)
        self.given_up |= self._unwanted(added)
        self._hold_back(self._held_back & added)
        self._end_change()

    def add_for_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Assign partitions of the group, from these offsets; the fetching of other partitions continues."""
        self._begin_change()
        new = {partition: offset for partition, offset in offsets.items() if partition not in self.assigned}
        if new:
            self.prefetch_metadata({partition.topic for partition in new} - self._prefetched_topics)
            starts = [PartitionOffset(p.topic, p.partition, offset) for p, offset in new.items()]
            self._assign_again(starts)
            self._begin(starts)
        self.held |= offsets.keys()
        self.by_hand -= offsets.keys()
        self.show_as_stored(offsets)
        unwanted = self._unwanted(offsets.keys()) - self.given_up
        self.given_up |= unwanted
        self._hold_back((self.paused & new.keys()) | (unwanted - self.paused))
        self._end_change()

    def _assign_again(self, starts: list[PartitionOffset]) -> None:
        """Have the handle fetch these partitions, which it does not fetch according to the notes.

        Ctrl-C may have come after the handle assigned some of them and before that was noted: these are unassigned and
        assigned again.
        """
        try:
            self.handle.incremental_assign(starts)
        except KafkaException as refused:
            if refused.args[0].code() != CONFLICT_CODE:
                raise
            taken = {key_of(one) for one in self.handle.assignment()} & {key_of(start) for start in starts}
            self.handle.incremental_unassign(to_librdkafka(taken))
            self.handle.incremental_assign(starts)

    def show_as_stored(self, partitions: Iterable[TopicPartition]) -> None:
        """Have `assignment()` show these as starting at the committed offset."""
        for partition in partitions:
            self._shown[partition] = OFFSET_STORED
            if partition in self._logical:
                self._look_ups.left_to_handle(partition)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions. Duplicates are removed first: librdkafka ends the process on a duplicate."""
        self._begin_change()
        gone = set(partitions) & self.assigned
        self.held -= gone
        self.by_hand -= gone
        if gone:
            self.handle.incremental_unassign(to_librdkafka(gone))
        self._forget(set(partitions))
        self._end_change()

    def remove_all(self) -> None:
        """Stop fetching all partitions."""
        self._begin_change()
        gone = self.assigned
        self.held.clear()
        self.by_hand.clear()
        self.handle.unassign()
        self._forget(gone)
        self._end_change()

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the fetched records of these partitions, which another member may own already."""
        self._begin_change()
        self.buffer.drop(partitions)
        self._end_change()

    def _look_up_new(self, partitions: Iterable[PartitionOffset]) -> None:
        self._look_up({p.topic for p in partitions} - self._prefetched_topics - {p.topic for p in self.assigned})

    def _begin(self, partitions: Iterable[PartitionOffset]) -> None:
        for start in partitions:
            partition = key_of(start)
            self._shown[partition] = OFFSET_STORED if start.offset == OFFSET_INVALID else start.offset
            self._set_start(partition, start.offset)
            if start.offset in (OFFSET_INVALID, OFFSET_STORED):
                self.requested_at[partition] = monotonic()

    def _set_start(self, partition: TopicPartition, offset: int) -> None:
        if self._resets is not None:
            self._resets.forget(partition)
        self._starts.pop(partition, None)
        self._resumed_at.pop(partition, None)
        self._logical.pop(partition, None)
        (self._starts if offset >= 0 else self._logical)[partition] = offset
        self._look_ups.begins(self.handle, partition)

    def _cut_short(self, partition: TopicPartition) -> None:
        offset = self._logical.get(partition)
        if offset is not None:
            self._look_ups.cut_short(self.handle, partition, offset)

    def _reset(self, start: PartitionOffset) -> None:
        """Move a partition that has no position to this one.

        Records that were fetched before are still returned, and the offset after them is the one to commit until
        another record follows.
        """
        partition = key_of(start)
        (position,) = self.handle.position([start])
        try:
            self.handle.seek(start)
        except KafkaException as refused:
            if refused.args[0].code() != STATE_CODE:
                raise
            # librdkafka has not started the partition, because no offset is committed. In librdkafka, a pause outlives
            # this.
            self.handle.incremental_unassign([start])
            self.handle.incremental_assign([start])
        self._set_start(partition, start.offset)
        if position.offset >= 0:
            epoch: int | None = position.leader_epoch
            self._resumed_at[partition] = OffsetAndMetadata(offset=position.offset, leader_epoch=epoch)
            self._starts.pop(partition, None)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        self.buffer.drop(partitions)
        held_back = self._held_back & set(partitions)
        if held_back:
            # Else librdkafka would hold the partition back when it is assigned again.
            self.handle.resume(to_librdkafka(held_back))
        self.paused.difference_update(partitions)
        self.frozen.difference_update(partitions)
        self.given_up.difference_update(partitions)
        for partition in partitions:
            self._cut_short(partition)
            if self._resets is not None:
                self._resets.forget(partition)
            # The shown offsets come last: after an interrupt, `_repair` finds partitions to forget by them.
            for memory in (self._starts, self._logical, self._before_seek, self._resumed_at, self._shown):
                memory.pop(partition, None)

    # ---- holding back ----

    def pause(self, partitions: Collection[TopicPartition], arriving: Collection[TopicPartition] = ()) -> None:
        """Hold back these until they are resumed; partitions that are neither assigned nor `arriving` are ignored."""
        self._begin_change()
        self._add_to(self.paused, set(partitions) & (self.assigned | set(arriving)))
        self._end_change()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Resume these, first with their buffered records."""
        self._begin_change()
        self._take_from(self.paused, partitions)
        self._end_change()

    def freeze(self, partitions: Collection[TopicPartition]) -> None:
        """Hold back exactly these for their revocation; partitions frozen for an earlier revocation continue."""
        self._begin_change()
        new = set(partitions) & self.held
        self._take_from(self.frozen, self.frozen - new)
        self._add_to(self.frozen, new)
        self._end_change()

    def thaw(self, partitions: Collection[TopicPartition]) -> None:
        """Resume these: they are not revoked after all."""
        self._begin_change()
        self._take_from(self.frozen, partitions)
        self._end_change()

    def restrict_to(self, topics: frozenset[str] | None) -> None:
        """Return, from the group's present and future partitions, only records of these topics (None: all topics).

        Partitions of other topics are held back until the group revokes them, so that their last returned records can
        be committed.
        """
        self._begin_change()
        self._topics = topics
        unwanted = self._unwanted(self.held)
        self._add_to(self.given_up, unwanted)
        self._take_from(self.given_up, self.given_up - unwanted)
        self._end_change()

    def _add_to(self, held_back: set[TopicPartition], partitions: Collection[TopicPartition]) -> None:
        """Add a reason to hold these back; the handle pauses the partitions that had no reason before."""
        new = (set(partitions) & self.assigned) - self._held_back
        held_back |= set(partitions)
        self._hold_back(new)

    def _take_from(self, held_back: set[TopicPartition], partitions: Collection[TopicPartition]) -> None:
        """Remove a reason to hold these back; the partitions without another reason continue."""
        again = held_back & set(partitions)
        held_back -= again
        self._resume((again & self.assigned) - self._held_back)

    def _unwanted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        if self._topics is None:
            return set()
        return {partition for partition in self.held.intersection(partitions) if partition.topic not in self._topics}

    def _hold_back(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.handle.pause(to_librdkafka(partitions))
            self.buffer.park(partitions)

    def _resume(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        self.buffer.unpark(sorted(partitions))
        positions = self.handle.position(to_librdkafka(partitions))
        self.handle.resume(to_librdkafka(partitions))
        for position in positions:
            self._wake_by_seek(key_of(position), position)

    def _wake_by_seek(self, partition: TopicPartition, position: PartitionOffset) -> None:
        """Have a resumed partition fetched at once: librdkafka takes up to 0.6 s to notice it, and a seek wakes it.

        A seek makes librdkafka forget the position until the next record, so it is remembered here: another seek before
        that record must not fall back to the start of the partition.
        """
        target = self._next_offset(partition, position)
        if target is not None:
            with suppress(KafkaException):  # a partition that is being assigned cannot be sought, and need not be
                self.handle.seek(PartitionOffset(partition.topic, partition.partition, target))

    def _next_offset(self, partition: TopicPartition, position: PartitionOffset) -> int | None:
        """Return the offset at which the handle has to continue; keep its `position`, which a seek makes it forget."""
        if position.offset >= 0:
            epoch: int | None = position.leader_epoch
            self._resumed_at[partition] = OffsetAndMetadata(offset=position.offset, leader_epoch=epoch)
        last = self._resumed_at.get(partition)
        return self._starts.get(partition) if last is None else last.offset

    # ---- the handle's own life ----

    def survive_fork(self) -> None:
        """In the child: keep the handle from ever being destroyed, because its threads did not survive the fork."""
        import ctypes  # only forks need it

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.handle))

    @property
    def lost_since(self) -> float | None:
        """Since when the handle has no broker (`time.monotonic`); None: it has one, as far as is known."""
        return self._watch.lost_since

    @property
    def next_check_at(self) -> float:
        """When `renew_if_lost` has something to do, if no record comes until then (`time.monotonic`)."""
        return self._watch.next_check_at

    def record_received(self) -> None:
        """Note that a record came from the handle."""
        self._watch.record_received()

    @property
    def is_check_due(self) -> bool:
        """Whether `renew_if_lost` has something to do after a slice without a record."""
        return monotonic() >= self._watch.next_check_at

    def renew_if_lost(self, last_heartbeat_at: float | None) -> bool:
        """After a slice without a record: replace a handle that has lost its brokers; return whether it had.

        `last_heartbeat_at`: when the member's last heartbeat was answered; None: there are no heartbeats.
        """
        is_lost = self._watch.is_newly_lost(last_heartbeat_at)
        if is_lost:
            self.renew()
        return is_lost

    @property
    def has_broker(self) -> bool:
        """Whether the handle is connected to a broker; never waits.

        With a timeout of zero librdkafka reports that it has no broker, or that the response did not come in time.
        """
        topic = next(iter(self.assigned)).topic
        try:
            self.handle.list_topics(topic, 0)
        except KafkaException as refused:
            return bool(refused.args[0].code() != TRANSPORT_CODE)
        return True

    def renew(self) -> None:
        """Have another handle fetch the same partitions from the present positions, and destroy this one.

        No record is lost or returned twice; but a partition that the application assigned at a logical offset, and of
        which no record came yet, starts at the present value of that offset. The new handle takes over when it is
        ready, so that an interrupt leaves the previous one at work.

        Raises:
            ConfigurationError: librdkafka cannot create another one.
        """
        self._begin_change()
        starts = []
        for position in self._handle_positions():
            partition = key_of(position)
            offset = self._next_offset(partition, position)
            starts.append(PartitionOffset(*partition, self._logical[partition] if offset is None else offset))
        handle = self._make_handle()
        handle.incremental_assign(starts)
        if self._held_back:
            handle.pause(to_librdkafka(self._held_back))
        former, self.handle = self.handle, handle
        self._look_ups.forget()
        self.prefetch_metadata(self._prefetched_topics.copy())
        former.close()
        self._end_change()

    # ---- positions ----

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """The start offsets of the partitions; a partition with a logical start is missing until its first record."""
        return self._starts.copy()

    def seek(self, target: PartitionOffset) -> None:
        """Continue at this offset; the fetched records of the partition are forgotten."""
        self._begin_change()
        partition = key_of(target)
        position = self._positions({partition}).get(partition) if partition in self.assigned else None
        self.handle.seek(target)
        if position is not None:
            self._before_seek[partition] = position
        self._positions_before = None  # from here on the new start holds
        self._cut_short(partition)
        self._set_start(partition, target.offset)
        self.buffer.drop({partition})
        self._end_change()

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset of each partition that has returned a record since it was assigned or sought."""
        if self._is_inconsistent:
            self._repair()
        return self._positions(partitions)

    def _positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        waiting = self.buffer.first_undelivered(partitions)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, message in waiting.items():
            offset = message.offset()
            if offset is not None and offset != self._starts.get(partition):
                found[partition] = OffsetAndMetadata(offset=offset, leader_epoch=message.leader_epoch())
        rest = [partition for partition in partitions if partition not in waiting]
        for position in self.handle.position(to_librdkafka(rest)) if rest else ():
            if position.offset >= 0:
                epoch: int | None = position.leader_epoch
                found[key_of(position)] = OffsetAndMetadata(offset=position.offset, leader_epoch=epoch)
            elif key_of(position) in self._resumed_at:
                found[key_of(position)] = self._resumed_at[key_of(position)]
        return found

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit of all assigned partitions if every returned record counts as consumed."""
        assigned = self.assigned
        before_seek = {partition: at for partition, at in self._before_seek.items() if partition in assigned}
        return before_seek | self.positions(assigned)


def in_slices(call: Callable[[float], T], timeout_s: float, now: Callable[[], float], first_slice_s: float) -> T:
    """Return the result of a long request of the handle, made in slices so that Ctrl-C is handled in between.

    `call` receives the seconds that it may take. A slice that expires is repeated, twice as long, until `timeout_s` is
    over (negative: without limit). A failure before the end of a slice is final.
    """
    deadline = None if timeout_s < 0 else now() + timeout_s
    slice_s = first_slice_s
    while True:
        begun = now()
        left = slice_s if deadline is None else min(slice_s, max(deadline - begun, 0.0))
        try:
            return call(left)
        except KafkaException:
            is_over = deadline is not None and now() >= deadline
            if is_over or now() - begun < left * _NEARLY:
                raise
            _log().debug("A request expired after %.1f s; sending it again", left)
        slice_s *= 2
