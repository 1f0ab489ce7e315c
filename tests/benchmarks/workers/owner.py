"""A consumer that hands out one record after the other, slowly, and remembers when it handed out each of them.

Orders: `subscribe` (once), `hold` (hold the GIL for `HOLD_S`), `end`. Moments are CLOCK_BOOTTIME, which no fault of the
figure changes. The process is killed and does not close its consumer, because the figure does not measure leaves.
"""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.wiring import END, consumer_class, job_of, next_order, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, TopicPartition

HOLD_S = 10
"""The time for which `hold` holds the GIL."""

_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to run.

    Attributes:
        module: The module of the `Consumer`.
        config: Its configuration.
        topic: The topic to subscribe to.
        pace_s: The time that each record takes.
    """

    module: str
    config: dict[str, str]
    topic: str
    pace_s: float


def now() -> float:
    """Return the moment on the clock of all owners, which is CLOCK_BOOTTIME."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Owner:
    """A consumer and the moments of its hand-outs, one list for each assignment."""

    def __init__(self, job: Job, make: Callable[[dict[str, str]], Consumer]) -> None:
        self._pace_s = job.pace_s
        self._tenures: list[list[float]] = []
        self._errors: list[str] = []
        self._consumer = make(job.config)
        self._consumer.subscribe(
            [job.topic], on_assign=self._assigned, on_revoke=self._released, on_lost=self._released
        )
        report("subscribed", at=now())

    def work(self) -> None:
        """Hand out at most one record."""
        message = self._consumer.poll(_POLL_S)
        if message is None:
            return
        if message.error() is not None:
            self._errors.append(str(message.error()))
            return
        self._tenures[-1].append(now())
        if len(self._tenures[-1]) == 1:
            report("began", at=self._tenures[-1][0])
        time.sleep(self._pace_s)

    def report(self) -> None:
        """Report all hand-outs."""
        report("handed", at=now(), tenures=self._tenures, errors=self._errors)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._tenures.append([])
            report("assigned", at=now())

    def _released(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            report("released", at=now())


def main() -> None:
    """Run one owner."""
    job = job_of(Job)
    make = consumer_class(job.module)
    report("ready", at=now())
    if next_order(None) == END:
        return
    owner = Owner(job, make)
    while (order := next_order()) != END:
        if order == "hold":
            # PyDLL keeps the GIL during the call, as an extension module with a long loop does.
            threading.Thread(target=ctypes.PyDLL(None).sleep, args=[HOLD_S]).start()
        owner.work()
    owner.report()
    next_order(None)


if __name__ == "__main__":
    main()
