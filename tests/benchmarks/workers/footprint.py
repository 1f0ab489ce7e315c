"""A process that makes one consumer after another and holds still after each, so that its memory can be read.

The memory is read from outside: what reads it would be part of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, consumer_class, job_of, next_order, say

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Whose consumers to make, how many, and what each must take before it counts.

    Attributes:
        module: Where the `Consumer` is.
        config: Its configuration, without the group.
        group: What the groups' names begin with; each consumer is alone in a group of its own.
        topic: A topic that holds exactly `expected` records.
        expected: How many records each consumer takes.
        consumers: How many consumers to make.
    """

    module: str
    config: dict[str, str]
    group: str
    topic: str
    expected: int
    consumers: int


def main() -> None:
    """Make the consumers, each at the driver's order."""
    job = job_of(Job)
    make = consumer_class(job.module)
    say("imported")
    consumers: list[Consumer] = []
    while next_order(None) != END and len(consumers) < job.consumers:
        consumer = make({**job.config, "group.id": f"{job.group}-{len(consumers)}"})
        consumer.subscribe([job.topic])
        consumers.append(consumer)
        received = take_all(consumer, job.expected)
        say("settled", received=received, partitions=len(consumer.assignment()))
    for consumer in consumers:
        consumer.close()
    say("closed")


def take_all(consumer: Consumer, expected: int) -> int:
    """Take the records, and then poll on for a second: what a first fetch left behind is gone by then."""
    received, began = 0, time.monotonic()
    while received < expected and time.monotonic() - began < _GIVE_UP_S:
        received += consumer.poll(0.5) is not None
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        received += consumer.poll(0.1) is not None
    return received


if __name__ == "__main__":
    main()
