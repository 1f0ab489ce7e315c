"""The received and finished offsets of one partition, and the offset to commit.

Records finish in any order, but a commit covers only the records before the first unfinished one. `UnfinishedOffsets`
keeps only the unfinished offsets, so a million finished records behind one unfinished record cost no memory. All other
offsets below the highest finished record are finished, also those without a record (removed by compaction, or
transaction markers), because a partition delivers its records in ascending order.

The class has no lock and reads no clock; its owner calls it under the scheduler's lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import takewhile

from consumer_membership.translation.offset_metadata import (
    MAX_VARINT_SIZE,
    FinishedOffsets,
    encode,
    largest_size,
    varint_bytes_in,
)
from consumer_membership.types import OffsetAndMetadata

#: confluent-kafka appends C's terminating zero to the metadata of commits, and the broker counts it.
_TERMINATOR_LENGTH = 1
_UNKNOWN = -1


class UnfinishedOffsets:
    """The received and unfinished offsets of one partition, from its assignment to its revocation.

    Args:
        start: The committed offset, where the consumer starts; None if no offset is committed.
        finished: The result of `decode` for the metadata of the committed offset. Records that it lists as finished are
            skipped.
        capacity: The broker's limit for the metadata of a commit, `offset.metadata.max.bytes`.
        leader_epoch: The leader epoch of the committed offset; None if unknown.

    The metadata lists the offsets that are finished beyond `base`. A record may start only if the metadata fits into
    `capacity` whatever finishes next. Two figures bound the metadata of all later states: the number of unfinished
    offsets below the highest started record, and the span of offsets from `base` to that record. The record at `base`
    may always start, because the metadata becomes shorter when it finishes.

    A consumer restarts at an earlier offset if the log was truncated, or if `auto.offset.reset` applied because the
    committed offset is out of range. The offsets from there on are then other records, which must not be skipped:
    `admit` forgets which of these offsets are finished. `base` decreases in this case only.
    """

    __slots__ = (
        "_admitted",
        "_base",
        "_below_top",
        "_capacity",
        "_committed",
        "_earlier",
        "_epoch_starts",
        "_expected",
        "_high",
        "_leader_epoch",
        "_next",
        "_room",
        "_top",
        "_top_number",
        "_unfinished",
    )

    def __init__(
        self, start: int | None, finished: FinishedOffsets | None, capacity: int, *, leader_epoch: int | None = None
    ) -> None:
        #: The unfinished offsets in ascending order, each with its place in the order of admission. An OrderedDict,
        #: because the first key of a dict is slow to find after many deletions.
        self._unfinished: OrderedDict[int, int] = OrderedDict()
        self._admitted = 0
        self._base = _UNKNOWN if start is None else start
        #: The offset after the last received one.
        self._next = 0 if start is None else start
        #: The offset after the highest finished one.
        self._high = 0
        #: The offset after the highest started one, the place of that one, and the unfinished offsets below `_top`.
        self._top, self._top_number, self._below_top = 0, _UNKNOWN, 0
        #: What an earlier owner finished, until the consumer has passed it, and its unfinished offsets to come.
        self._earlier: FinishedOffsets | None = None
        self._expected: deque[int] = deque()
        #: The leader epoch of the last received record, and the offset from which each leader epoch holds.
        self._leader_epoch = leader_epoch
        self._epoch_starts: list[tuple[int, int | None]] = [(self._next - 1, leader_epoch)]
        self._committed = None if start is None else OffsetAndMetadata(offset=start)
        self.capacity = capacity
        if finished is not None:
            self._take_over(finished)

    @property
    def base(self) -> int | None:
        """The offset to commit: the first unfinished one, or the offset after the last received one.

        None until the first record arrives, if no offset is committed.
        """
        return None if self._base == _UNKNOWN else self._base

    @property
    def unfinished(self) -> int:
        """The number of unfinished offsets, including those of an earlier owner that are still to come."""
        return len(self._unfinished)

    @property
    def finished_beyond(self) -> int:
        """The number of finished offsets beyond `base`, including those without a record."""
        return max(0, self._finished().count)

    @property
    def capacity(self) -> int:
        """The broker's limit for metadata; reduce it if the broker answers OFFSET_METADATA_TOO_LARGE."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        self._capacity = capacity
        self._room = varint_bytes_in(capacity - _TERMINATOR_LENGTH)

    # ---- records ----

    def admit(self, offset: int, leader_epoch: int | None = None) -> bool:
        """Note that the record at this offset was received, and return whether to process it.

        False: an earlier owner has finished the record. Unfinished offsets of the earlier owner that the consumer has
        passed without a record are dropped: compaction or retention removed their records.
        """
        if offset < self._next or leader_epoch != self._leader_epoch or self._earlier is not None:
            return self._admit_unusual(offset, leader_epoch)
        if not self._unfinished:
            self._base = offset
        self._next = offset + 1
        self._unfinished[offset] = self._admitted
        self._admitted += 1
        return True

    def start(self, offset: int) -> bool:
        """Return whether the record at this offset may start, and if so, reserve space for it in the metadata.

        False: the metadata could become too long. A later call may succeed, at the latest when the record is at `base`.
        A record that is started again (a retry) has its space.
        """
        if offset < self._top:
            return True
        number = self._unfinished[offset]
        below_top = self._below_top + number - self._top_number
        span = offset + 1 - self._base
        # Most records pass the first comparison: the span fits as a bitmap.
        if span > self._room * 8 and not self._fits(below_top, span):
            return False
        self._top, self._top_number, self._below_top = offset + 1, number, below_top
        return True

    def finish(self, offset: int) -> bool:
        """Note that the record at this offset, which was started, is finished; return whether `base` has moved.

        Ignores offsets that are not unfinished.
        """
        if self._unfinished.pop(offset, None) is None:
            return False
        if offset >= self._high:
            self._high = offset + 1
        self._below_top -= 1
        if offset != self._base:
            return False
        self._base = next(iter(self._unfinished)) if self._unfinished else max(self._next, self._high)
        return True

    # ---- commits ----

    def to_commit(self) -> OffsetAndMetadata | None:
        """Return `base` and, in the metadata, the offsets that are finished beyond it; None if that is committed.

        Metadata of other programs is kept until `base` moves or a record beyond it finishes. Without a committed
        offset, the offset of the first record is returned even before it finishes: with `auto.offset.reset=latest`, the
        next owner would otherwise start after it.
        """
        if self._base == _UNKNOWN:
            return None
        metadata = self._encoded()
        if self._committed is not None and (self._committed.offset, self._committed.metadata) == (self._base, metadata):
            return None
        return OffsetAndMetadata(offset=self._base, leader_epoch=self._epoch_before_base(), metadata=metadata)

    def committed(self, offset: OffsetAndMetadata) -> None:
        """Note that this result of `to_commit` was committed.

        Older results are ignored, also those from before a restart at an earlier offset.
        """
        is_older = self._committed is not None and offset.offset < self._committed.offset
        if not is_older and offset.offset <= self._base:
            self._committed = offset

    def _fits(self, below_top: int, span: int) -> bool:
        # The highest started record needs no place: if it is unfinished, the metadata ends below it. So the record at
        # `base` always fits.
        unfinished = below_top - 1
        return unfinished * MAX_VARINT_SIZE <= self._room or largest_size(unfinished, span) <= self._room

    def _encoded(self) -> str:
        return encode(self._finished(), max(0, self._capacity - _TERMINATOR_LENGTH))

    def _finished(self) -> FinishedOffsets:
        return FinishedOffsets(
            base=self._base,
            high=self._high,
            unfinished=tuple(takewhile(self._high.__gt__, self._unfinished)),
            leader_epoch=self._highest_epoch(),
        )

    def _first_unfinished(self) -> int:
        return next(iter(self._unfinished), max(self._next, self._high))

    # ---- earlier owners and restarts ----

    def _take_over(self, finished: FinishedOffsets) -> None:
        self._earlier = finished
        self._expected.extend(finished.unfinished)
        self._unfinished.update(zip(finished.unfinished, range(len(finished.unfinished)), strict=True))
        self._high = finished.high
        self._number_again(finished.high)
        self._committed = OffsetAndMetadata(offset=finished.base, metadata=self._encoded())

    def _admit_unusual(self, offset: int, leader_epoch: int | None) -> bool:
        """Admit a record after a change of the leader epoch, below `high` of an earlier owner, or after a restart."""
        if offset < self._next or self._is_rewritten(offset, leader_epoch):
            self._restart(offset)
        if leader_epoch != self._leader_epoch:
            self._leader_epoch = leader_epoch
            self._epoch_starts.append((offset, leader_epoch))
        self._next = offset + 1
        self._drop_expected(offset)
        if self._expected and self._expected[0] == offset:
            self._expected.popleft()
            return True
        if self._earlier is not None and offset < self._earlier.high:
            return False
        self._earlier = None
        self._unfinished[offset] = self._admitted
        self._admitted += 1
        self._base = self._first_unfinished()
        return True

    def _is_rewritten(self, offset: int, leader_epoch: int | None) -> bool:
        """Return whether the log was truncated and written again since the earlier owner received its last record.

        Leader epochs never decrease along a log, so a record that lies below the last record of the earlier owner and
        has a higher epoch was written later.
        """
        earlier = self._earlier
        if earlier is None or earlier.leader_epoch is None or leader_epoch is None:
            return False
        return offset < earlier.high and leader_epoch > earlier.leader_epoch

    def _drop_expected(self, offset: int) -> None:
        """Drop the unfinished offsets of the earlier owner below this one: they have no records any more."""
        while self._expected and self._expected[0] < offset:
            del self._unfinished[self._expected.popleft()]
            self._below_top -= 1
            self._base = self._first_unfinished()

    def _restart(self, offset: int) -> None:
        """Forget all that is known about this offset and those after it."""
        self._drop_expected(offset)
        self._expected.clear()
        self._earlier = None
        while self._unfinished and next(reversed(self._unfinished)) >= offset:
            self._unfinished.popitem()
        self._high = min(self._high, offset)
        self._number_again(min(self._top, offset))
        self._base = next(iter(self._unfinished), offset)
        if self._committed is not None and self._committed.offset > self._base:
            self._committed = None
        self._epoch_starts = [one for one in self._epoch_starts if one[0] < offset] or [(_UNKNOWN, None)]
        self._leader_epoch = self._epoch_starts[-1][1]

    def _number_again(self, top: int) -> None:
        """Number the unfinished offsets in their order, with `top` after the highest started one."""
        for number, offset in enumerate(self._unfinished):
            self._unfinished[offset] = number
        self._admitted = len(self._unfinished)
        self._below_top = sum(1 for _ in takewhile(top.__gt__, self._unfinished))
        self._top, self._top_number = top, self._below_top - 1

    # ---- leader epochs ----

    def _highest_epoch(self) -> int | None:
        """Return the leader epoch that no record below `high` exceeds; None if unknown."""
        if self._earlier is None:
            return self._leader_epoch
        if self._earlier.leader_epoch is None:
            return None
        return max(self._earlier.leader_epoch, _UNKNOWN if self._leader_epoch is None else self._leader_epoch)

    def _epoch_before_base(self) -> int | None:
        """Return the leader epoch of the last record before `base`: it shows the next owner a truncation (KIP-320)."""
        while len(self._epoch_starts) > 1 and self._epoch_starts[1][0] < self._base:
            del self._epoch_starts[0]
        return self._epoch_starts[0][1]
