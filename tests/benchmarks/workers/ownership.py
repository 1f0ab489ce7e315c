"""One member of a group that remembers, for each period in which it owned a partition, its first and its last record.

Orders: `subscribe` (once), `end`. Its memory does not grow with the number of records, so it can consume fast streams.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.wiring import END, consumer_when_ordered, job_of, next_order, report, report_partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, Message, TopicPartition

_POLL_S = 0.1
#: Orders are read after this many records at the latest: reading them is a system call.
_BATCH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to run.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration.
        topic: The topic to subscribe to.
    """

    module: str
    config: dict[str, str]
    topic: str


@dataclass(slots=True, kw_only=True)
class Period:
    """The records of one partition that were handled from its assignment to its revocation.

    Attributes:
        partition: The partition's number.
        first: The first record's offset.
        sent_at: When the first record was handed to the producer (CLOCK_MONOTONIC, as all times).
        first_at: When the first record was handled.
        last: The last record's offset.
        last_at: When the last record was handled.
        repeated: Records whose offset was not above the offset before them.
        skipped: Offsets between two records that were not received.
    """

    partition: int
    first: int
    sent_at: float
    first_at: float
    last: int
    last_at: float
    repeated: int = 0
    skipped: int = 0

    def add(self, offset: int, at: float) -> None:
        """Add the next record."""
        if offset <= self.last:
            self.repeated += 1
        else:
            self.skipped += offset - self.last - 1
        self.last, self.last_at = offset, at

    def row(self) -> list[float]:
        """Return the values in the order of the attributes."""
        return [
            self.partition,
            self.first,
            self.sent_at,
            self.first_at,
            self.last,
            self.last_at,
            self.repeated,
            self.skipped,
        ]


class Owner:
    """A consumer, its callbacks and its periods of ownership."""

    def __init__(self, job: Job, make: Callable[[dict[str, str]], Consumer]) -> None:
        self._current: dict[int, Period] = {}
        self._over: list[Period] = []
        self._errors: list[str] = []
        self._consumer = make(job.config)
        self._consumer.subscribe(
            [job.topic],
            on_assign=lambda _, partitions: report_partitions("assigned", partitions),
            on_revoke=lambda _, partitions: self._release("revoked", partitions),
            on_lost=lambda _, partitions: self._release("lost", partitions),
        )
        report("subscribed")

    def work(self) -> None:
        """Handle the available records, at most one batch, or wait for a record."""
        for _ in range(_BATCH):
            message = self._consumer.poll(_POLL_S)
            if message is None:
                return
            self._handle(message)

    def leave(self) -> None:
        """Close the consumer and report the periods."""
        report("leaving")
        self._consumer.close()
        report("left")
        periods = [one.row() for one in (*self._over, *self._current.values())]
        report("periods", rows=periods, errors=self._errors)

    def _handle(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._errors.append(str(error))
            return
        partition, offset, at = message.partition(), message.offset(), time.monotonic()
        period = self._current.get(partition)
        if period is not None:
            period.add(offset, at)
            return
        sent_at = NUMBER_AND_TIME.unpack_from(message.value())[1]
        self._current[partition] = Period(
            partition=partition, first=offset, sent_at=sent_at, first_at=at, last=offset, last_at=at
        )

    def _release(self, event: str, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            period = self._current.pop(one.partition, None)
            if period is not None:
                self._over.append(period)
        report_partitions(event, partitions)


def main() -> None:
    """Run one member."""
    job = job_of(Job)
    make = consumer_when_ordered(job.module)
    if make is None:
        return
    owner = Owner(job, make)
    while next_order() != END:
        owner.work()
    owner.leave()


if __name__ == "__main__":
    main()
