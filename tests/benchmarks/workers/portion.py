"""Members of one group in one process, each polled by its own thread.

Orders: `subscribe` (once), `end`. Each report of a callback has the number of its member.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, consumer_when_ordered, job_of, next_order, report

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumers to run.

    Attributes:
        module: The module of the `Consumer`.
        config: Their configuration.
        topic: The topic to subscribe to.
        members: The number of consumers.
    """

    module: str
    config: dict[str, str]
    topic: str
    members: int


def main() -> None:
    """Create the consumers, poll them until the end, and report when all of them have left."""
    job = job_of(Job)
    make = consumer_when_ordered(job.module)
    if make is None:
        return
    is_over = threading.Event()
    threads = []
    for number in range(job.members):
        consumer = make(job.config)
        consumer.subscribe([job.topic], **{f"on_{event}": partial(_report, number, name) for event, name in _CALLBACKS})
        threads.append(threading.Thread(target=_consume, args=(consumer, is_over)))
    for thread in threads:
        thread.start()
    report("subscribed")
    while next_order(None) != END:
        pass
    is_over.set()
    for thread in threads:
        thread.join()
    report("left")


_CALLBACKS = (("assign", "assigned"), ("revoke", "revoked"), ("lost", "lost"))


def _report(number: int, event: str, _: Consumer, partitions: list[TopicPartition]) -> None:
    report(event, member=number, partitions=[one.partition for one in partitions])


def _consume(consumer: Consumer, is_over: threading.Event) -> None:
    while not is_over.is_set():
        consumer.poll(_POLL_S)
    consumer.close()


if __name__ == "__main__":
    main()
