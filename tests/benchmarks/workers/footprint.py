"""A process that creates one consumer after another and pauses after each, so that its memory can be read.

The driver reads the memory, because code in this process would be part of the measurement.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, consumer_class, job_of, next_order, report

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumers to create, and the records that each reads before the measurement.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration, without the group.
        group: The prefix of the groups' names; each consumer is alone in its own group.
        topic: A topic with exactly `expected` records.
        expected: The number of records that each consumer reads.
        consumers: The number of consumers to create.
    """

    module: str
    config: dict[str, str]
    group: str
    topic: str
    expected: int
    consumers: int


def main() -> None:
    """Create the consumers, each at the driver's order."""
    job = job_of(Job)
    make = consumer_class(job.module)
    report("imported")
    consumers: list[Consumer] = []
    while next_order(None) != END and len(consumers) < job.consumers:
        consumer = make({**job.config, "group.id": f"{job.group}-{len(consumers)}"})
        consumer.subscribe([job.topic])
        consumers.append(consumer)
        received = take_all(consumer, job.expected)
        report("settled", received=received, partitions=len(consumer.assignment()))
    for consumer in consumers:
        consumer.close()
    report("closed")


def take_all(consumer: Consumer, expected: int) -> int:
    """Read the records, and then poll for another second, after which the buffers of the first fetch are free."""
    received, began = 0, time.monotonic()
    while received < expected and time.monotonic() - began < _GIVE_UP_S:
        received += consumer.poll(0.5) is not None
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        received += consumer.poll(0.1) is not None
    return received


if __name__ == "__main__":
    main()
