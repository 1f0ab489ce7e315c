"""The prefetch buffer: records between librdkafka's handle and the application.

One inner `poll()` call costs twice as much as a record of an inner batch, so `poll()` is served from a batch that waits
in `ready`. The hot path takes from its left end without a lock; everything else here is done by the one thread that is
inside the handle lock. That is safe because a rebuild takes `ready` apart from its *right* end: a record which the hot
path takes meanwhile is the oldest one, so the order holds and no record is handed out twice.

Records of partitions that are held back (paused by the user, or about to be revoked) are parked: the handle is already
past them, so to drop them would lose them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import islice

from confluent_kafka import Message

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition


def partition_of(message: Message) -> TopicPartition | None:
    """The partition that a record or a partition's event belongs to; None for an error of the whole consumer."""
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None else TopicPartition(topic, partition)


@dataclass(slots=True)
class Waiting:
    """What waits here of one partition; bytes of keys and values, as librdkafka counts its own queue."""

    records: int = 0
    bytes: int = 0


class PrefetchBuffer:
    """The records that the handle gave and the application has not got yet."""

    __slots__ = ("_parked", "_parked_count", "_taken_in", "ready", "turns")

    def __init__(self) -> None:
        #: Next to be handed out, oldest first. The same object for the consumer's whole life: the hot path holds it.
        self.ready: deque[Message] = deque()
        #: How many poll slices began: the sign of life of an application that is given nothing.
        self.turns = 0
        self._parked: dict[TopicPartition, list[Message]] = {}
        self._parked_count = 0
        self._taken_in = 0

    def progress(self) -> tuple[int, int]:
        """Signs that the application polls, and records handed to it; cheap, from any thread, without a lock."""
        handed_out = self._taken_in - len(self.ready) - self._parked_count
        return self.turns + handed_out, handed_out

    def take_in(self, batch: list[Message]) -> None:
        """Append what the handle gave."""
        self.ready.extend(batch)
        self._taken_in += len(batch)

    def pass_through(self, count: int) -> None:
        """Count records that went from the handle to the application directly."""
        self._taken_in += count

    def hand_out(self, limit: int) -> list[Message]:
        """At most this many records for the application."""
        batch: list[Message] = []
        with suppress(IndexError):
            batch.extend(islice(iter(self.ready.popleft, None), limit))
        return batch

    def park(self, partitions: Collection[TopicPartition]) -> None:
        """Hold back the records of these partitions."""
        if not partitions:
            return
        for message in self._take_apart(lambda partition: partition in partitions):
            partition = partition_of(message)
            if partition is not None:
                self._parked.setdefault(partition, []).append(message)
                self._parked_count += 1

    def unpark(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out what was held back of these partitions, before anything newer."""
        for partition in partitions:
            messages = self._parked.pop(partition, [])
            self.ready.extendleft(reversed(messages))
            self._parked_count -= len(messages)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records of these partitions."""
        if not partitions:
            return
        dropped = len(self._take_apart(lambda partition: partition in partitions))
        for partition in partitions:
            parked = len(self._parked.pop(partition, ()))
            self._parked_count -= parked
            dropped += parked
        self._taken_in -= dropped

    def first_undelivered(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Message]:
        """The next record of each of these partitions that has one waiting here."""
        found: dict[TopicPartition, Message] = {}
        waiting: list[Iterable[Message]] = [self._parked[p] for p in partitions if p in self._parked]
        # `copy` is one step of the interpreter; to walk the deque while the hot path takes from it would raise.
        for messages in (*waiting, self.ready.copy()):
            for message in messages:
                partition = partition_of(message)
                if partition is not None and partition in partitions and message.error() is None:
                    found.setdefault(partition, message)
        return found

    def waiting(self) -> dict[TopicPartition, Waiting]:
        """How much of each partition waits here."""
        found: dict[TopicPartition, Waiting] = {}
        for messages in (*self._parked.values(), self.ready.copy()):
            for message in messages:
                partition = partition_of(message)
                if partition is not None and message.error() is None:
                    waiting = found.setdefault(partition, Waiting())
                    waiting.records += 1
                    waiting.bytes += len(message) + len(message.key() or b"")
        return found

    def _take_apart(self, belongs: Callable[[TopicPartition], bool]) -> list[Message]:
        """Remove what belongs there from `ready`, oldest first, and put the rest back as it was."""
        removed: deque[Message] = deque()
        kept: deque[Message] = deque()
        ready = self.ready
        while True:
            try:
                message = ready.pop()
            except IndexError:
                break
            partition = partition_of(message)
            (removed if partition is not None and belongs(partition) else kept).appendleft(message)
        ready.extend(kept)
        return list(removed)
