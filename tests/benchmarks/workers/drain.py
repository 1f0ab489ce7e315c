"""One consumer that reads a fixed number of records as fast as it can.

The loop only counts records, because more work for each record would hide the difference between the sides. The worker
checks afterwards that it received each record once: the count is right, and each position is the end of its partition.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import consumer_class, job_of, report

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_STALLED_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to run, and the topic to drain.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration.
        topic: A topic with exactly `expected` records, number n in partition n modulo `partitions`.
        expected: The number of records.
        batch: 0 consumes by `poll()`, another number by `consume(number)`.
        partitions: The number of partitions.
        is_observed: Whether a callback receives events (`on_event`, which only our consumer has).
    """

    module: str
    config: dict[str, str]
    topic: str
    expected: int
    batch: int
    partitions: int
    is_observed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The measurement from the return of the first call that returned records to the return of the last call.

    `count` does not include the records of the first call, because they were fetched before.
    """

    count: int
    wall_s: float
    cpu_s: float
    calls: int


def cpu_seconds() -> float:
    """Return the user and system time of this process with all its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def by_poll(consumer: Consumer, expected: int) -> Drained:
    """Read one record with each call."""
    poll = consumer.poll
    while poll(1.0) is None:
        pass
    began, cpu = time.monotonic(), cpu_seconds()
    received, calls = 1, 0
    while received < expected:
        calls += 1
        if poll(1.0) is not None:
            received += 1
        elif time.monotonic() - began > _STALLED_S:
            raise TimeoutError(f"{received} of {expected} records after {_STALLED_S} s")
    return Drained(count=received - 1, wall_s=time.monotonic() - began, cpu_s=cpu_seconds() - cpu, calls=calls)


def by_consume(consumer: Consumer, expected: int, batch: int) -> Drained:
    """Read a batch with each call; the last call requests only the remaining records, so that it does not wait."""
    consume = consumer.consume
    first: list[object] = []
    while not first:
        first = consume(batch, 1.0)
    began, cpu = time.monotonic(), cpu_seconds()
    received, calls = len(first), 0
    while received < expected:
        calls += 1
        received += len(consume(min(batch, expected - received), 1.0))
        if time.monotonic() - began > _STALLED_S:
            raise TimeoutError(f"{received} of {expected} records after {_STALLED_S} s")
    return Drained(count=received - len(first), wall_s=time.monotonic() - began, cpu_s=cpu_seconds() - cpu, calls=calls)


def main() -> None:
    """Drain the topic; report the duration, and whether each record was received once."""
    job = job_of(Job)
    consumer = consumer_class(job.module)(job.config)
    if job.is_observed:
        consumer.on_event(list[object]().append)
    consumer.subscribe([job.topic])
    drained = by_consume(consumer, job.expected, job.batch) if job.batch else by_poll(consumer, job.expected)
    positions = {place.partition: place.offset for place in consumer.position(consumer.assignment())}
    consumer.close()
    ends = {number: len(range(number, job.expected, job.partitions)) for number in range(job.partitions)}
    report(
        "measured",
        count=drained.count,
        wall_s=drained.wall_s,
        cpu_s=drained.cpu_s,
        calls=drained.calls,
        is_complete=positions == ends,
        positions=sorted(positions.items()),
    )


if __name__ == "__main__":
    main()
