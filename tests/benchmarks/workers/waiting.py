"""Consumers of one process that wait for an id of a pool whose ids are all held: their cost is seen at the coordinator.

The orders are `count` (how many wait) and `end`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from consumer_membership import Consumer
from tests.benchmarks.workers.wiring import END, job_of, next_order, say


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Which group, and how many.

    Attributes:
        config: The configuration of each consumer, with the pool.
        topic: What is subscribed to.
        members: How many.
    """

    config: dict[str, str]
    topic: str
    members: int


def main() -> None:
    """Wait until the order to end comes."""
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
    say("subscribed")
    while next_order(None) != END:
        waits = [consumer.membership().waits_for for consumer in consumers]
        say("waiting", members=waits.count("group.instance.id.pool"))
    is_over.set()
    for thread in threads:
        thread.join()
    for consumer in consumers:
        consumer.close()


if __name__ == "__main__":
    main()
