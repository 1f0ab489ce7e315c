"""One new member of a new group, from the import of its package to its first record."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import consumer_class, job_of, report

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_GIVE_UP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to start, its configuration, and a topic that contains records."""

    module: str
    config: dict[str, str]
    topic: str


def main() -> None:
    """Start a consumer and report the times of its first steps."""
    job = job_of(Job)
    make = consumer_class(job.module)
    assigned_at: list[float] = []

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            assigned_at.append(time.monotonic())

    began = time.monotonic()
    consumer = make(job.config)
    constructed = time.monotonic()
    consumer.subscribe([job.topic], on_assign=on_assign)
    subscribed = time.monotonic()
    message = None
    while message is None or message.error():
        message = consumer.poll(1.0)
        if time.monotonic() - began > _GIVE_UP_S:
            raise TimeoutError(f"no record within {_GIVE_UP_S} s of {job.topic}; last: {message and message.error()}")
    first_record = time.monotonic()
    consumer.close()
    report(
        "measured",
        constructed_s=constructed - began,
        subscribed_s=subscribed - began,
        assigned_s=assigned_at[0] - began,
        first_record_s=first_record - began,
        close_s=time.monotonic() - first_record,
    )


if __name__ == "__main__":
    main()
