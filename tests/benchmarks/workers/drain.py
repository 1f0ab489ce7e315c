"""One consumer that takes a fixed number of records as fast as it can.

The loop does nothing per record but count: whatever it did would be added to both sides and hide the difference. That
each record came once is shown afterwards: the count is right and every position stands at the end of its partition.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import consumer_class, job_of, say

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_STALLED_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Whose consumer drains which topic.

    Attributes:
        module: Where the `Consumer` is.
        config: Its configuration.
        topic: A topic that holds exactly `expected` records, number n in partition n modulo `partitions`.
        expected: How many records there are.
        batch: 0 consumes by `poll()`, another number by `consume(number)`.
        partitions: How many partitions there are.
        is_observed: Whether a callback receives events (`on_event`, which ours alone has).
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
    """From the return of the first call that brought records to the return of the last one.

    `count` is what came in between: what the first call brought had been waiting.
    """

    count: int
    wall_s: float
    cpu_s: float
    calls: int


def cpu_seconds() -> float:
    """User and system time of this process, all its threads included."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def by_poll(consumer: Consumer, expected: int) -> Drained:
    """Take one record a call."""
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
    """Take a batch a call; the last call asks for what is left, so that none waits for records that do not exist."""
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
    """Drain the topic and say how long it took and whether everything came."""
    job = job_of(Job)
    consumer = consumer_class(job.module)(job.config)
    if job.is_observed:
        consumer.on_event(list[object]().append)
    consumer.subscribe([job.topic])
    drained = by_consume(consumer, job.expected, job.batch) if job.batch else by_poll(consumer, job.expected)
    stands = {place.partition: place.offset for place in consumer.position(consumer.assignment())}
    consumer.close()
    ends = {number: len(range(number, job.expected, job.partitions)) for number in range(job.partitions)}
    say(
        "measured",
        count=drained.count,
        wall_s=drained.wall_s,
        cpu_s=drained.cpu_s,
        calls=drained.calls,
        is_complete=stands == ends,
        positions=sorted(stands.items()),
    )


if __name__ == "__main__":
    main()
