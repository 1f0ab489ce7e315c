"""A program whose handler of one record returns only after the order `release`; the driver measures its memory.

Reports: `begun` with the first record, `settled` with the number of handled records as soon as no handler has ended for
a while, and `measured` after the last record. A `Processor` continues with other keys; a poll loop cannot.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.handlers import Program
from tests.benchmarks.workers.wiring import job_of, next_order, report

if TYPE_CHECKING:
    from confluent_kafka import Message

RELEASE = "release"
_STUCK_KEY = b"0"
_QUIET_S = 3.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The program (`Processor` or `poll loop`), its topic, and the number of records."""

    program: str
    config: dict[str, str]
    topic: str
    expected: int


class StuckHandler:
    """A handler that waits with the first record of one key."""

    def __init__(self, expected: int) -> None:
        self.released, self.finished, self.begun = threading.Event(), threading.Event(), threading.Event()
        self.ended = 0
        self._expected = expected
        self._count = itertools.count(1).__next__

    def handle(self, record: Message) -> None:
        """Handle a record."""
        if not self.begun.is_set() and record.key() == _STUCK_KEY:
            self.begun.set()
            self.released.wait()
        self.ended = self._count()
        if self.ended == self._expected:
            self.finished.set()

    def watch(self) -> None:
        """Report the progress, and release the handler by order."""
        self.begun.wait()
        report("begun")
        before = -1
        while before != self.ended:
            before = self.ended
            self.finished.wait(_QUIET_S)
        report("settled", handled=before)
        next_order(None)
        self.released.set()


def _process(job: Job, handler: StuckHandler) -> None:
    from consumer_membership.processing import Processor  # noqa: PLC0415 - not in the other program

    processor = Processor(job.config, [job.topic], handler.handle)
    threading.Thread(target=lambda: handler.finished.wait() and processor.stop(), daemon=True).start()
    processor.run()


def _poll(job: Job, handler: StuckHandler) -> None:
    from consumer_membership import Consumer  # noqa: PLC0415

    consumer = Consumer(job.config)
    consumer.subscribe([job.topic])
    while not handler.finished.is_set():
        record = consumer.poll(_POLL_S)
        if record is not None:
            handler.handle(record)
    consumer.close()


def main() -> None:
    """Run until all records are handled."""
    job = job_of(Job)
    handler = StuckHandler(job.expected)
    threading.Thread(target=handler.watch, daemon=True).start()
    if Program(job.program) is Program.THREADS:
        _process(job, handler)
    else:
        _poll(job, handler)
    report("measured", handled=handler.ended)


if __name__ == "__main__":
    main()
