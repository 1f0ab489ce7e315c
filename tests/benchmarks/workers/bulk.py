"""A producer that fills a topic as fast as it can."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.wiring import job_of, report

_SERVE_EVERY = 5_000
_FLUSH_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The number, the size and the distribution of the records.

    Without keys, number n goes to partition n modulo `partitions`. With keys, it has key n modulo `keys`, and a key's
    number modulo `partitions` is the partition of its records.
    """

    bootstrap: str
    topic: str
    partitions: int
    total: int
    value_bytes: int
    keys: int = 0


def main() -> None:
    """Write all records and report how many the broker acknowledged."""
    job = job_of(Job)
    settings = {"linger.ms": "50", "batch.size": "1000000", "queue.buffering.max.messages": "1000000"}
    producer = Producer({"bootstrap.servers": job.bootstrap, "acks": "all", **settings})
    acknowledged = 0
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            refused.append(str(error))

    padding = b"." * (job.value_bytes - NUMBER_AND_TIME.size)
    for number in range(job.total):
        value = NUMBER_AND_TIME.pack(number, 0.0) + padding
        key = number % job.keys if job.keys else None
        partition = (number if key is None else key) % job.partitions
        key_bytes = None if key is None else b"%d" % key
        while True:
            try:
                producer.produce(job.topic, value, key_bytes, partition=partition, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        if number % _SERVE_EVERY == 0:
            producer.poll(0)
    producer.flush(_FLUSH_S)
    report("filled", acknowledged=acknowledged, refused=refused[:10])


if __name__ == "__main__":
    main()
