"""The committed offsets that are read together with a join, before its response brings the assignment.

A member that takes over an instance id knows its partitions. It sends OffsetFetch right behind the join, on the same
connection, instead of after the response: that saves a round trip in which no member has the partitions.

The offsets are those that a later OffsetFetch would read. A broker handles the requests of one connection in their
order, so it reads them after the join, and from the join on it refuses commits of the former holder. They count only
for the assignment in the response to that very join: the next heartbeat drops them, because its response may bring a
partition that another member had, and committed, in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TypeAlias

from consumer_membership.types import OffsetAndMetadata, TopicPartition

#: The committed offset of each partition, None if there is none.
FoundOffsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | None]


class OffsetsAhead:
    """The offsets that are read behind the latest heartbeat of one member, if that was a join with known partitions.

    `read` returns the committed offsets, or None if they are unknown; it raises nothing.
    """

    def __init__(self, read: Callable[[frozenset[TopicPartition]], Coroutine[None, None, FoundOffsets | None]]) -> None:
        self._read = read
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._reading: asyncio.Task[FoundOffsets | None] | None = None

    def begin(self, partitions: frozenset[TopicPartition]) -> None:
        """When a heartbeat is written, drop the offsets read behind the previous one; read these partitions, if any."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._partitions = partitions
        if partitions:
            self._reading = asyncio.create_task(self._read(partitions), name="committed offsets")

    async def take(self, partitions: frozenset[TopicPartition]) -> FoundOffsets | None:
        """Return the offsets of these partitions, once; None: they were not read, or not all of them."""
        reading, self._reading = self._reading, None
        if reading is None:
            return None
        if not partitions <= self._partitions:
            reading.cancel()
            return None
        found = await reading
        return None if found is None else {partition: found[partition] for partition in partitions}

    async def close(self) -> None:
        """End the reading."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
