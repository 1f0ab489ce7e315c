"""A consumer that owns many partitions, and repeated calls for its health and its metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass

from consumer_membership import Consumer
from consumer_membership.metrics.exposition import exposition
from tests.benchmarks.workers.wiring import job_of, report

_GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The partitions to own, and the number of calls of each kind: `health`, `metrics`, `exposition`."""

    config: dict[str, str]
    topic: str
    partitions: int
    times: dict[str, int]


def main() -> None:
    """Wait until all partitions have their health; report the duration of one call of each kind."""
    job = job_of(Job)
    took_us = {}
    with Consumer(job.config) as consumer:
        consumer.subscribe([job.topic])
        until = time.monotonic() + _GIVE_UP_S
        while len(consumer.health().partitions) < job.partitions:
            consumer.poll(0.1)
            if time.monotonic() > until:
                raise TimeoutError(f"{len(consumer.health().partitions)} of {job.partitions} after {_GIVE_UP_S} s")
        calls = {"health": consumer.health, "metrics": consumer.metrics, "exposition": exposition}
        for name, times in job.times.items():
            call = calls[name]
            call()  # the first call imports modules, which is not measured
            began = time.perf_counter()
            for _ in range(times):
                call()
            took_us[name] = (time.perf_counter() - began) / times * 1e6
    report("measured", us=took_us)


if __name__ == "__main__":
    main()
