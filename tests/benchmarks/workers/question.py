"""A consumer that owns many partitions and is asked for its health, again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from consumer_membership import Consumer
from tests.benchmarks.workers.wiring import job_of, say

_GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to own, and how many times to ask."""

    config: dict[str, str]
    topic: str
    partitions: int
    times: int


def main() -> None:
    """Own them, have them looked at, ask, and say how long one answer took."""
    job = job_of(Job)
    with Consumer(job.config) as consumer:
        consumer.subscribe([job.topic])
        until = time.monotonic() + _GIVE_UP_S
        while len(consumer.health().partitions) < job.partitions and time.monotonic() < until:
            consumer.poll(0.1)
        seen = len(consumer.health().partitions)
        began = time.perf_counter()
        for _ in range(job.times):
            consumer.health()
        took_s = time.perf_counter() - began
    say("measured", us=took_s / job.times * 1e6 if seen == job.partitions else float("inf"))


if __name__ == "__main__":
    main()
