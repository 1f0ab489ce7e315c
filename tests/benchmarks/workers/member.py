"""One member of a group that consumes until it receives the order to leave, and remembers every record that it handled.

Orders: `subscribe` (once), `report` (its assignment), `end`.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, consumer_when_ordered, job_of, next_order, report, report_partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, Message

NUMBER_AND_TIME = struct.Struct(">Qd")
"""The beginning of each value: the record's number, and CLOCK_MONOTONIC when it was handed to the producer."""

_PROGRESS_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to run.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration.
        topic: The topic to subscribe to.
        poll_s: The timeout of one `poll`.
        batch: 0 consumes by `poll()`, another number by `consume(number)`.
        is_observed: Whether a callback receives events (`on_event`, which only our consumer has).
    """

    module: str
    config: dict[str, str]
    topic: str
    poll_s: float = 0.1
    batch: int = 0
    is_observed: bool = False


class Member:
    """A consumer, its callbacks and the records that it handled."""

    def __init__(self, job: Job, make: Callable[[dict[str, str]], Consumer]) -> None:
        self._job = job
        self.handled: list[tuple[int, int, int, float, float]] = []
        self.errors: list[str] = []
        began = time.monotonic()
        self._consumer = make(job.config)
        if job.is_observed:
            self._consumer.on_event(list[object]().append)
        subscribing = time.monotonic()
        self._consumer.subscribe(
            [job.topic],
            on_assign=lambda _, partitions: report_partitions("assigned", partitions),
            on_revoke=lambda _, partitions: report_partitions("revoked", partitions),
            on_lost=lambda _, partitions: report_partitions("lost", partitions),
        )
        report("subscribed", at=subscribing, constructor_s=subscribing - began)

    def work(self) -> None:
        """Handle the records of one poll."""
        if self._job.batch:
            for message in self._consumer.consume(self._job.batch, self._job.poll_s):
                self._handle(message)
        else:
            message = self._consumer.poll(self._job.poll_s)
            if message is not None:
                self._handle(message)

    def report(self) -> None:
        """Report the assignment that the consumer returns."""
        report("owns", partitions=sorted(partition.partition for partition in self._consumer.assignment()))

    def leave(self) -> None:
        """Close the consumer; report how long that took, and all handled records."""
        began = time.monotonic()
        self._consumer.close()
        report("left", close_s=time.monotonic() - began, leaving_at=began)
        report("handled", records=self.handled, errors=self.errors)

    def _handle(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self.errors.append(str(error))
            return
        number, sent_at = NUMBER_AND_TIME.unpack_from(message.value())
        self.handled.append((message.partition(), message.offset(), number, sent_at, time.monotonic()))


def main() -> None:
    """Run one member."""
    job = job_of(Job)
    make = consumer_when_ordered(job.module)
    if make is None:
        return
    member = Member(job, make)
    reported_at = time.monotonic()
    while True:
        order = next_order()
        if order == END:
            break
        if order == "report":
            member.report()
        member.work()
        now = time.monotonic()
        if now - reported_at > _PROGRESS_S:
            reported_at = now
            report("progress", count=len(member.handled))
    member.leave()


if __name__ == "__main__":
    main()
