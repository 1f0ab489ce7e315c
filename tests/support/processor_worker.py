"""A processor in its own process, whose handler logs its calls (`tests.support.handler_calls`).

    python -m tests.support.processor_worker '{"config": {...}, "topic": "...", ...}'

It runs until SIGTERM, or until it is killed.
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
#: The numbers of special keys: with many records, with slow handlers, and with handlers that always fail.
HOT, SLOW, POISON = 0, 1, 2
#: The number of attempts for a poison record.
ATTEMPTS = 2
_RETRY_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The arguments of a worker.

    Attributes:
        config: The configuration of the processor.
        topic: The topic.
        dead_letters: The topic for dead letters.
        log: The file for the log of handler calls.
        record_s: How long the handler of a record takes.
        slow_s: How long the handler of a record with the slow key takes.
        reads_metadata: Whether the worker skips records that an earlier owner has finished beyond the committed offset.
        concurrency: The number of threads, coroutines or processes.
        kind: Whether threads, coroutines or processes run the handlers.
        results: The topic to which handlers write one result for each record, in transactions; None: no results.
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
    """The error of a record whose handler always fails."""


class LoggedCalls:
    """Logs the start and the end of each call. A copy in a worker process opens the file again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._log = CallLog(Path(job.log))

    def __reduce__(self) -> tuple[type[LoggedCalls], tuple[Job]]:
        """Return the class and the arguments for a copy in a worker process."""
        return type(self), (self.job,)

    @contextmanager
    def call(self, record: Message, context: HandlerContext) -> Iterator[float]:
        """Log a call, and yield the time that it has to take, in seconds.

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
        """Return the result of a record, with its partition and offset; None if no results are written."""
        if self.job.results is None:
            return None
        return OutputRecord(self.job.results, b"%d %d" % (record.partition() or 0, record.offset() or 0))


class FunctionHandler(LoggedCalls):
    """A handler function for threads or worker processes."""

    def __call__(self, record: Message, context: HandlerContext) -> OutputRecord | None:
        """Handle one record and return its result."""
        with self.call(record, context) as seconds:
            time.sleep(seconds)
        return self.result_of(record)


class CoroutineHandler(LoggedCalls):
    """A handler that is a coroutine function."""

    async def __call__(self, record: Message, context: HandlerContext) -> OutputRecord | None:
        """Handle one record and return its result."""
        with self.call(record, context) as seconds:
            await asyncio.sleep(seconds)
        return self.result_of(record)


def main() -> None:
    """Run the processor with the arguments on the command line."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job = Job(**json.loads(sys.argv[1]))
    if not job.reads_metadata:
        # Ignores the metadata of commits, as another client does, which only reads the committed offsets.
        poll_loop.decode = lambda _, __: None  # type: ignore[attr-defined, assignment]  # replaced in its module
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
