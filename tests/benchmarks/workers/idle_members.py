"""Many members of one group in one process that read no records, to measure their cost at the coordinator."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consumer_membership import Consumer
from tests.benchmarks.workers.wiring import END, job_of, next_order, report

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The group and its members.

    Attributes:
        bootstrap: The broker.
        topic: The topic that each member subscribes to.
        group: The group.
        members: The number of members.
        heartbeat_ms: The heartbeat interval of each member.
    """

    bootstrap: str
    topic: str
    group: str
    members: int
    heartbeat_ms: int


def main() -> None:
    """Join, report when every partition is owned, and commit or end on order."""
    job = job_of(Job)
    config = {
        "bootstrap.servers": job.bootstrap,
        "group.id": job.group,
        "heartbeat.interval.ms": job.heartbeat_ms,
        "rebalance.callbacks": "incremental",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumers = [Consumer(config) for _ in range(job.members)]
    is_over = threading.Event()

    def pause(consumer: Consumer, assigned: list[TopicPartition]) -> None:
        consumer.pause(assigned)

    def poll(consumer: Consumer) -> None:
        while not is_over.is_set():
            consumer.poll(0.5)

    threads = [threading.Thread(target=poll, args=(consumer,)) for consumer in consumers]
    for consumer, thread in zip(consumers, threads, strict=True):
        consumer.subscribe([job.topic], on_assign=pause)
        thread.start()
    report("joined")
    while (order := next_order(None)) != END:
        if order == "owned":
            report("owned", partitions=sum(len(consumer.membership().owned) for consumer in consumers))
        else:
            _commit(consumers[0], int(order or "0"))
    is_over.set()
    for thread in threads:
        thread.join()
    for consumer in consumers:
        consumer.close()


def _commit(consumer: Consumer, times: int) -> None:
    owned = consumer.assignment()
    for number in range(times):
        for each in owned:
            each.offset = number
        consumer.commit(offsets=owned, asynchronous=False)
    report("committed", partitions=len(owned))


if __name__ == "__main__":
    main()
