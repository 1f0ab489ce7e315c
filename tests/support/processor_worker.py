"""A processor in a process of its own, whose handler logs its calls (`tests.support.handler_calls`).

    python -m tests.support.processor_worker '{"config": {...}, "topic": "...", ...}'

It ends with SIGTERM, or is killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tenacity import retry, stop_after_attempt, wait_fixed

from consumer_membership.processing import HandlerContext, OutputRecord, Processor, poll_loop
from tests.support.handler_calls import CallLog, Kind

if TYPE_CHECKING:
    from confluent_kafka import Message
_PR_SET_PDEATHSIG = 1
#: The numbers of the keys that are not like the others.
HOT, SLOW, POISON = 0, 1, 2
#: How often a poison record is tried.
ATTEMPTS = 2
_RETRY_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one worker does.

    Attributes:
        config: The configuration of its processor.
        topic: The topic.
        dead_letters: The topic for dead letters.
        log: The file of its calls.
        record_s: How long a record takes.
        slow_s: How long a record of the slow key takes.
        reads_metadata: Whether it skips the records that an earlier owner has finished beyond the committed offset.
        concurrency: The number of threads, coroutines or processes.
        kind: Which of them run the handlers.
        results: The topic to which handlers write one result for each record, in transactions; None: they write none.
    """

    config: dict[str, object]
    topic: str
    dead_letters: str
    log: str
    record_s: float
    slow_s: float
    reads_metadata: bool
    concurrency: int
    kind: Literal["thread", "coroutine", "process"]
    results: str | None = None

    def command(self) -> list[str]:
        """Return the command line of a worker with this job."""
        return [sys.executable, "-m", "tests.support.processor_worker", json.dumps(asdict(self))]


class PoisonError(Exception):
    """A record that no attempt can handle."""


class LoggedCalls:
    """Logs the beginning and the end of each call; a copy in a worker process opens the file again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._log = CallLog(Path(job.log))

    def __reduce__(self) -> tuple[type[LoggedCalls], tuple[Job]]:
        """Return what a worker process makes its copy of."""
        return type(self), (self.job,)

    @contextmanager
    def call(self, record: Message, context: HandlerContext) -> Iterator[float]:
        """Log a call that takes the time in the context, in seconds.

        Raises:
            PoisonError: The record has the poison key.
        """
        key = int(record.key() or b"")
        which = (context.attempt, context.partition.partition, key, record.offset() or 0)
        self._log.note(Kind.BEGAN, *which)
        if key == POISON:
            self._log.note(Kind.FAILED, *which)
            raise PoisonError
        yield self.job.slow_s if key == SLOW else self.job.record_s
        self._log.note(Kind.SUCCEEDED, *which)

    def result_of(self, record: Message) -> OutputRecord | None:
        """Return the result of a record, if results are written: its partition and offset."""
        if self.job.results is None:
            return None
        return OutputRecord(self.job.results, b"%d %d" % (record.partition() or 0, record.offset() or 0))


class FunctionHandler(LoggedCalls):
    """A function: on threads, or in worker processes."""

    def __call__(self, record: Message, context: HandlerContext) -> OutputRecord | None:
        """Handle one record and return its result."""
        with self.call(record, context) as seconds:
            time.sleep(seconds)
        return self.result_of(record)


class CoroutineHandler(LoggedCalls):
    """A coroutine function."""

    async def __call__(self, record: Message, context: HandlerContext) -> OutputRecord | None:
        """Handle one record and return its result."""
        with self.call(record, context) as seconds:
            await asyncio.sleep(seconds)
        return self.result_of(record)


def main() -> None:
    """Run the processor of the job on the command line."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job = Job(**json.loads(sys.argv[1]))
    if not job.reads_metadata:
        # As an owner that is another client: the commits are the same, and the next owner takes their offsets alone.
        poll_loop.decode = lambda _, __: None  # type: ignore[attr-defined, assignment]  # where it is used
    with Processor(
        job.config,
        [job.topic],
        CoroutineHandler(job) if job.kind == "coroutine" else FunctionHandler(job),
        concurrency=job.concurrency,
        processes=job.kind == "process",
        transactional=job.results is not None,
        retry=retry(stop=stop_after_attempt(ATTEMPTS), wait=wait_fixed(_RETRY_S)),
        dead_letter=job.dead_letters,
    ) as processor:
        processor.run()


if __name__ == "__main__":
    main()
