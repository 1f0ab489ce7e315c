"""A process with many consumers, each alone in a group of its own, which one thread polls in turns."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.workers.wiring import END, consumer_class, job_of, next_order, say

_GIVE_UP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Whose consumers, how many, and how often each is polled.

    Attributes:
        module: Where the `Consumer` is.
        config: Its configuration, without the group.
        group: What the groups' names begin with.
        topic: What each consumer subscribes to.
        consumers: How many consumers to make.
        every_s: How often each of them is polled, without waiting.
    """

    module: str
    config: dict[str, str]
    group: str
    topic: str
    consumers: int
    every_s: float


def main() -> None:
    """Make the consumers, report when each has its partitions, and poll them until the end."""
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
    say("ready", took_s=time.monotonic() - began, missing=len(waiting))
    turn_at, polls, received = time.monotonic(), 0, 0
    while (order := next_order(max(0.0, turn_at - time.monotonic()))) != END:
        if order == "count":
            say("counted", threads=_threads(), files=_files(), polls=polls, received=received)
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
    """The threads of this process, those of librdkafka included."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def _files() -> int:
    """The open file descriptors of this process, without the one that lists them."""
    return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 - the names, not the files behind them


if __name__ == "__main__":
    main()
