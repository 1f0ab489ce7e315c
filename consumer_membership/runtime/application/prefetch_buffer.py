"""The prefetch buffer: records between librdkafka's handle and the application.

One inner `poll()` call costs twice as much as a record of an inner batch, so `poll()` is served from a batch that waits
in `ready`. The hot path takes from its left end without a lock; the thread inside the handle lock does everything else.
A thread that takes from `ready` meanwhile gets the oldest record or no record, so the order is kept and no record is
returned twice.

Records of partitions that are held back (paused by the user, or about to be revoked) are parked: the handle is already
past them, so dropping them would lose them.

**An interrupt loses no record.** A signal handler that raises (Ctrl-C, an alarm) runs between two bytecodes of the main
thread, also between a call that returns records and the assignment of its result. Therefore one C call moves records
from one container of this buffer to the next, and no record is ever held by a local variable only. An interrupt can
leave records in `landed`, `offered` or `_aside`. `finish_moves` moves them on, and each method that reads or sorts
records calls it first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import repeat
from typing import TypeVar

from confluent_kafka import Message

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.shared_deque import SharedDeque
from consumer_membership.types import TopicPartition

T = TypeVar("T")


def partition_of(message: Message) -> TopicPartition | None:
    """The partition that a record or a partition's event belongs to; None for an error of the whole consumer."""
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None else TopicPartition(topic, partition)


class HandOutQueue(SharedDeque[T]):
    """A queue whose `~` takes the oldest element, for the call that returns it to the application.

    CPython runs signal handlers after a call, but not after an operator. So `return ~queue` either takes and returns
    the element or does neither, while a handler that raises after `queue.popleft()` would lose it.

    Raises:
        IndexError: The queue is empty.
    """

    __slots__ = ()
    __invert__ = deque.popleft


@dataclass(slots=True)
class Waiting:
    """The waiting records and bytes of one partition; keys and values count, as in librdkafka's own queue."""

    records: int = 0
    bytes: int = 0


class PrefetchBuffer:
    """The records that the handle returned and the application has not received yet."""

    __slots__ = (
        "_aside",
        "_counted",
        "_dropping",
        "_held",
        "_parked",
        "_parked_count",
        "_taken_in",
        "landed",
        "offered",
        "ready",
        "turns",
    )

    def __init__(self) -> None:
        #: Next to be returned, oldest first. The same object for the consumer's whole life: the hot path holds it.
        self.ready: HandOutQueue[Message] = HandOutQueue()
        #: The batch that the handle returned last, newer than everything else here.
        self.landed: SharedDeque[list[Message]] = SharedDeque()
        #: A batch that one call of the application returns whole. The queue is that call's own; its records are newer
        #: than `ready`.
        self.offered: HandOutQueue[list[Message]] = HandOutQueue()
        #: How many poll slices began: the sign of life of an application that receives no records.
        self.turns = 0
        #: The partitions whose records are parked, and those whose records are dropped.
        self._held: frozenset[TopicPartition] = frozenset()
        self._dropping: frozenset[TopicPartition] = frozenset()
        self._parked: dict[TopicPartition, deque[Message]] = {}
        self._parked_count = 0
        #: Records being sorted, newer than `ready` and older than `landed`.
        self._aside: deque[Message] = deque()
        self._taken_in = 0
        #: The landed batch that `_taken_in` includes already.
        self._counted: list[Message] | None = None

    def progress(self) -> tuple[int, int]:
        """Return the counts of signs of polling and of delivered records; cheap, from any thread, without a lock.

        A record handed to the application is also a sign that it polls, so no record goes unreported.
        """
        handed_out = self._taken_in - len(self.ready) - self._parked_count - len(self._aside)
        return self.turns + handed_out, handed_out

    # ---- from the handle ----

    def take_in(self) -> None:
        """Move the landed batch to `ready`."""
        if self.landed and not self.landed[0]:  # nearly always for an idle consumer
            self.landed.clear()
        else:
            self._unload(self.landed, self.ready)

    def offer(self, whole: HandOutQueue[list[Message]]) -> None:
        """Offer the landed batch whole to the call that requested it, unless an interrupt moves it."""
        self._count()
        self.offered = whole
        whole.extend(map(deque.popleft, (self.landed,)))
        self._counted = None  # keeps no records alive

    def _unload(self, batches: deque[list[Message]], target: deque[Message]) -> None:
        self._count()
        with suppress(IndexError):  # there is no batch, or the application took it whole
            next(map(target.extend, map(deque.popleft, (batches,))))
        self._counted = None

    def _count(self) -> None:
        """Count the landed batch, once."""
        for batch in self.landed.items():
            if batch is not self._counted:
                count = self._taken_in + len(batch)
                self._taken_in, self._counted = count, batch

    # ---- to the application ----

    def give_back(self, batch: list[Message]) -> None:
        """Return these to the buffer: an interrupt came before the application received them."""
        self.ready.extendleft(reversed(batch))

    # ---- sorting ----

    def finish_moves(self) -> None:
        """Complete the moves that an interrupt cut short."""
        if self._aside or self._dropping:
            self._sort()
        elif self.offered or self.landed:
            self._unload(self.offered, self.ready)
            self.take_in()

    def park(self, partitions: Collection[TopicPartition]) -> None:
        """Hold back the records of these partitions."""
        if partitions:
            self.finish_moves()
            self._held |= frozenset(partitions)
            self._sort()

    def unpark(self, partitions: Iterable[TopicPartition]) -> None:
        """Return the parked records of these partitions, before anything newer."""
        self.finish_moves()
        for partition in partitions:
            self._held -= {partition}
            parked = self._parked.get(partition)
            if parked is not None:
                with suppress(IndexError):
                    self.ready.extendleft(map(deque.pop, repeat(parked)))
                del self._parked[partition]
        self._count_parked()

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records of these partitions, and stop holding them back."""
        if partitions:
            self._dropping |= frozenset(partitions)
            self.finish_moves()

    def _sort(self) -> None:
        """Park the records of partitions that are held back, drop those of dropped ones, and leave the rest in order.

        All records go aside and come back one by one. The hot path finds `ready` empty at first and then waits for the
        handle lock, or gets records that are sorted already.
        """
        for partition in self._dropping:
            self._taken_in -= len(self._parked.pop(partition, ()))
        self._held -= self._dropping
        ready, aside, dropped = self.ready, self._aside, deque[Message](maxlen=0)
        with suppress(IndexError):
            aside.extendleft(map(deque.pop, repeat(ready)))
        self._unload(self.offered, aside)
        self._unload(self.landed, aside)
        while aside:
            place = partition_of(aside[0])
            target: deque[Message] = ready
            if place is not None and place in self._dropping:
                target = dropped
                self._taken_in -= 1
            elif place is not None and place in self._held:
                target = self._parked.setdefault(place, deque())
            target.extend(map(deque.popleft, (aside,)))
        self._dropping = frozenset()
        self._count_parked()

    def _count_parked(self) -> None:
        self._parked_count = sum(map(len, self._parked.values()))

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Hold back the records of exactly these partitions."""
        self.park(partitions)
        self.unpark(sorted((self._held | self._parked.keys()).difference(partitions)))

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that have records here."""
        self.finish_moves()
        found = {partition_of(message) for message in self.ready.items()} | self._parked.keys()
        return {partition for partition in found if partition is not None}

    # ---- asking ----

    def first_undelivered(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Message]:
        """The next record of each of these partitions that has one waiting here."""
        self.finish_moves()
        found: dict[TopicPartition, Message] = {}
        waiting: list[Iterable[Message]] = [self._parked[p] for p in partitions if p in self._parked]
        for messages in (*waiting, self.ready.items()):
            for message in messages:
                partition = partition_of(message)
                if partition is not None and partition in partitions and message.error() is None:
                    found.setdefault(partition, message)
        return found

    def waiting(self) -> dict[TopicPartition, Waiting]:
        """The number and size of the waiting records of each partition."""
        self.finish_moves()
        found: dict[TopicPartition, Waiting] = {}
        for messages in (*self._parked.values(), self.ready.items()):
            for message in messages:
                partition = partition_of(message)
                if partition is not None and message.error() is None:
                    waiting = found.setdefault(partition, Waiting())
                    waiting.records += 1
                    waiting.bytes += len(message) + len(message.key() or b"")
        return found
