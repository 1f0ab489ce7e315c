"""A process with many consumers, each alone in a group of its own, which one thread polls in turns."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.workers.wiring import END, consumer_class, job_of, next_order, report

_GIVE_UP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumers to create, and the interval of their polls.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration, without the group.
        group: The prefix of the groups' names.
        topic: The topic that each consumer subscribes to.
        consumers: The number of consumers to create.
        every_s: The time between two polls of each consumer; a poll does not wait.
    """

    module: str
    config: dict[str, str]
    group: str
    topic: str
    consumers: int
    every_s: float


def main() -> None:
    """Create the consumers, report when each has its partitions, and poll them until the end."""
    job = job_of(Job)
    make = consumer_class(job.module)
    began = time.monotonic()
    consumers = [make({**job.config, "group.id": f"{job.group}-{number}"}) for number in range(job.consumers)]
    for consumer in consumers:
        consumer.subscribe([job.topic])
    waiting = list(consumers)
    while waiting and time.monotonic() - began < _GIVE_UP_S:
        for consumer in waiting:
            consumer.poll(0)
        waiting = [consumer for consumer in waiting if not consumer.assignment()]
        time.sleep(0.01)
    report("ready", took_s=time.monotonic() - began, missing=len(waiting))
    turn_at, polls, received = time.monotonic(), 0, 0
    while (order := next_order(max(0.0, turn_at - time.monotonic()))) != END:
        if order == "count":
            report("counted", threads=_threads(), files=_files(), polls=polls, received=received)
            continue
        if time.monotonic() < turn_at:
            continue
        for consumer in consumers:
            received += consumer.poll(0) is not None
        polls += len(consumers)
        turn_at = max(turn_at + job.every_s, time.monotonic())
    for consumer in consumers:
        consumer.close()


def _threads() -> int:
    """Return the number of threads of this process, including those of librdkafka."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def _files() -> int:
    """Return the number of open file descriptors of this process, without the one that lists them."""
    return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 - only the names are counted


if __name__ == "__main__":
    main()
