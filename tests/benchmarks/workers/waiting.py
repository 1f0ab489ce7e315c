"""Consumers of one process that wait for an id of a pool without free ids, to measure their cost at the coordinator.

The orders are `count` (report the number of waiting consumers) and `end`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from consumer_membership import Consumer
from tests.benchmarks.workers.wiring import END, job_of, next_order, report


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumers to create.

    Attributes:
        config: The configuration of each consumer, with the pool.
        topic: The topic that each consumer subscribes to.
        members: The number of consumers.
    """

    config: dict[str, str]
    topic: str
    members: int


def main() -> None:
    """Wait for ids until the order to end."""
    job = job_of(Job)
    consumers = [Consumer({**job.config, "log_level": "0"}) for _ in range(job.members)]
    is_over = threading.Event()

    def poll(consumer: Consumer) -> None:
        while not is_over.is_set():
            consumer.poll(0.5)

    threads = [threading.Thread(target=poll, args=(consumer,)) for consumer in consumers]
    for consumer, thread in zip(consumers, threads, strict=True):
        consumer.subscribe([job.topic])
        thread.start()
    report("subscribed")
    while next_order(None) != END:
        waits = [consumer.membership().waits_for for consumer in consumers]
        report("waiting", members=waits.count("group.instance.id.pool"))
    is_over.set()
    for thread in threads:
        thread.join()
    for consumer in consumers:
        consumer.close()


if __name__ == "__main__":
    main()
