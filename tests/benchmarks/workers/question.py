"""A consumer that owns many partitions and is asked for its health and its metrics, again and again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from consumer_membership import Consumer
from consumer_membership.metrics.exposition import exposition
from tests.benchmarks.workers.wiring import job_of, say

_GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to own, and how many times to ask each question: `health`, `metrics`, `exposition`."""

    config: dict[str, str]
    topic: str
    partitions: int
    times: dict[str, int]


def main() -> None:
    """Own the partitions, let the ends be read, ask, and report how long one answer took."""
    job = job_of(Job)
    took_us = {}
    with Consumer(job.config) as consumer:
        consumer.subscribe([job.topic])
        until = time.monotonic() + _GIVE_UP_S
        while len(consumer.health().partitions) < job.partitions:
            consumer.poll(0.1)
            if time.monotonic() > until:
                raise TimeoutError(f"{len(consumer.health().partitions)} of {job.partitions} after {_GIVE_UP_S} s")
        questions = {"health": consumer.health, "metrics": consumer.metrics, "exposition": exposition}
        for name, times in job.times.items():
            ask = questions[name]
            ask()  # what it imports is not its own cost
            began = time.perf_counter()
            for _ in range(times):
                ask()
            took_us[name] = (time.perf_counter() - began) / times * 1e6
    say("measured", us=took_us)


if __name__ == "__main__":
    main()
