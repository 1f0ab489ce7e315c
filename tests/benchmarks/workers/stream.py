"""A producer that writes records to each partition at a steady rate, until it is stopped or has written all."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.wiring import END, job_of, next_order, report

_FLUSH_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The records to write, and their rate.

    Attributes:
        bootstrap: The broker.
        topic: An existing topic.
        partitions: The number of its partitions.
        ticks_per_s: The number of ticks in a second; each tick writes to all partitions.
        total: The total number of records; 0 writes until the order `end`.
        value_bytes: The size of each value.
        burst: The number of records that a tick writes to each partition. librdkafka sends a request for each
            partition, so that many partitions at a high rate need requests with several records.
        spread: Whether the writes to the partitions are spread evenly over the time of a tick. Otherwise all partitions
            get their records at once, and all members of a group work at the same time.
    """

    bootstrap: str
    topic: str
    partitions: int
    ticks_per_s: float
    total: int = 0
    value_bytes: int = 100
    burst: int = 1
    spread: bool = False

    def turns(self) -> list[list[int]]:
        """Return the partitions that get records at the same time, in the order within one tick."""
        partitions = range(self.partitions)
        return [[one] for one in partitions] if self.spread else [list(partitions)]


def main() -> None:
    """Write the stream; report the number of records, and those that the broker did not acknowledge."""
    job = job_of(Job)
    producer = Producer({"bootstrap.servers": job.bootstrap, "linger.ms": "1", "acks": "all"})
    refused: list[str] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    padding = b"." * (job.value_bytes - NUMBER_AND_TIME.size)
    turns = job.turns()
    interval_s = 1 / job.ticks_per_s / len(turns)
    number = 0
    began = turn_at = time.monotonic()
    report("streaming")
    for turn in itertools.cycle(turns):
        if (job.total and number >= job.total) or next_order() == END:
            break
        for partition in (one for one in turn for _ in range(job.burst)):
            if job.total and number == job.total:
                break
            value = NUMBER_AND_TIME.pack(number, time.monotonic()) + padding
            producer.produce(job.topic, value, partition=partition, on_delivery=acknowledged)
            number += 1
        producer.poll(0)
        # A delay of more than one tick is not caught up, because a burst would be an additional load.
        now = time.monotonic()
        turn_at = max(turn_at + interval_s, now - 1 / job.ticks_per_s if job.spread else now)
        time.sleep(max(0.0, turn_at - now))
    unsent = producer.flush(_FLUSH_S)
    report("streamed", count=number, unsent=unsent, refused=refused, wall_s=time.monotonic() - began)


if __name__ == "__main__":
    main()
