"""One program that calls a handler for each record: a `Processor`, another library, or a loop written by hand.

The handler of each program counts records. If it waits, it also checks the order within each key, and writes each
finished record to a ledger if there is one; the ledger outlives a `kill -9`. With several groups, the program runs once
for each in one process: later runs have everything imported and, in Java, compiled.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tests.benchmarks.workers.drain import cpu_seconds
from tests.benchmarks.workers.wiring import job_of, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

NUMBER = struct.Struct(">Q")
"""The beginning of each value and of each ledger entry: the record's number."""

BATCH = 500
"""The number of records that a hand-written loop requests from `consume`."""

_POLL_S = 0.5


class Program(StrEnum):
    """The programs of this module; the values are their names in tables."""

    THREADS = "Processor"
    COROUTINES = "AsyncProcessor"
    POLL = "poll loop"
    POOL = "ThreadPoolExecutor"
    #: Without Kafka.
    ASYNCIO = "asyncio alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The program, its records and its settings.

    Attributes:
        program: A value of `Program`.
        config: The consumer's configuration, without a group.
        topic: The topic to read.
        expected: The number of records; 0: the program runs until it is killed.
        groups: The program runs once for each group.
        wait_s: How long each handler waits.
        concurrency: How many handlers may run at the same time.
        order: The order of a `Processor`.
        is_checked: Whether handlers that wait check the order within each key, which costs them about 1 µs.
        ledger: The file of finished records; "" writes no file.
    """

    program: str
    config: dict[str, str]
    topic: str
    expected: int
    groups: list[str]
    wait_s: float = 0.0
    concurrency: int = 16
    order: str = "key"
    is_checked: bool = True
    ledger: str = ""


def _nothing() -> None:
    """Do nothing."""


class Run:
    """The handlers and the measurement of one run.

    The last handler calls `when_finished`, in its thread.
    """

    def __init__(self, job: Job, group: str) -> None:
        self.job = job
        self.config = {**job.config, "group.id": group}
        self.is_finished = False
        self.when_finished: Callable[[], None] = _nothing
        self.disordered = 0
        self._expected = job.expected
        self._begun, self._ended = itertools.count(1).__next__, itertools.count(1).__next__
        self._made_at = time.monotonic()
        self._first_at = self._first_cpu = self._last_at = self._last_cpu = 0.0
        self._last: dict[bytes | None, int] = {}
        self._running: set[bytes | None] = set()
        self._ledger = os.open(job.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if job.ledger else None

    def function(self) -> Callable[[Message], None]:
        """Return the handler as a function."""
        return self._wait_in_thread if self.job.wait_s else self._count

    def coroutine(self) -> Callable[[Message], object]:
        """Return the handler as a coroutine function."""
        if not self.job.wait_s:
            return self._count_in_loop
        return self._wait_in_loop if self.job.is_checked else self._only_wait_in_loop

    def report(self, stopped_s: float) -> None:
        """Report the measurement to the driver."""
        report(
            "measured",
            at=self._last_at,
            count=self._expected,
            disordered=self.disordered,
            wall_s=self._last_at - self._first_at,
            cpu_s=self._last_cpu - self._first_cpu,
            first_s=self._first_at - self._made_at,
            stop_s=stopped_s,
        )

    def begin(self) -> None:
        """Count a handler that begins."""
        if self._begun() == 1:
            self._first_cpu, self._first_at = cpu_seconds(), time.monotonic()

    def end(self) -> None:
        """Count a handler that ends."""
        if self._ended() == self._expected:
            self._last_at, self._last_cpu = time.monotonic(), cpu_seconds()
            self.is_finished = True
            self.when_finished()

    def _count(self, _: Message) -> None:
        self.begin()
        self.end()

    async def _count_in_loop(self, _: Message) -> None:
        self.begin()
        self.end()

    def _wait_in_thread(self, record: Message) -> None:
        key, number = self.enter(record)
        time.sleep(self.job.wait_s)
        self.leave(key, number)

    async def _wait_in_loop(self, record: Message) -> None:
        key, number = self.enter(record)
        await asyncio.sleep(self.job.wait_s)
        self.leave(key, number)

    async def _only_wait_in_loop(self, _: Message) -> None:
        self.begin()
        await asyncio.sleep(self.job.wait_s)
        self.end()

    def enter(self, record: Message) -> tuple[bytes | None, int]:
        """Count a waiting handler that begins, and check its place within its key; return its key and number."""
        self.begin()
        key, (number,) = record.key(), NUMBER.unpack_from(record.value())
        if key in self._running or number < self._last.get(key, -1):
            self.disordered += 1
        self._running.add(key)
        self._last[key] = number
        return key, number

    def leave(self, key: bytes | None, number: int) -> None:
        """Count a waiting handler that ends."""
        self._running.discard(key)
        if self._ledger is not None:
            os.write(self._ledger, NUMBER.pack(number))
        self.end()


def _threads(run: Run) -> float:
    from consumer_membership.processing import Processor  # noqa: PLC0415 - each process has one kind of program

    job = run.job
    processor = Processor(run.config, [job.topic], run.function(), order=job.order, concurrency=job.concurrency)
    stopping_at = 0.0

    def stop() -> None:
        nonlocal stopping_at
        stopping_at = time.monotonic()
        processor.stop()

    run.when_finished = stop
    with processor:
        processor.run()
    return time.monotonic() - stopping_at


async def finished_or_ended(run: Run, running: asyncio.Future[None]) -> None:
    """Return after the last handler, or when the program ends before."""
    loop, finished = asyncio.get_running_loop(), asyncio.Event()
    run.when_finished = lambda: loop.call_soon_threadsafe(finished.set)
    waiting = asyncio.ensure_future(finished.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _coroutines(run: Run) -> float:
    from consumer_membership.processing import AsyncProcessor  # noqa: PLC0415

    job = run.job
    processor = AsyncProcessor(run.config, [job.topic], run.coroutine(), order=job.order, concurrency=job.concurrency)
    running = asyncio.ensure_future(processor.run())
    await finished_or_ended(run, running)
    stopping_at = time.monotonic()
    await processor.stop()
    await running
    return time.monotonic() - stopping_at


def _poll(run: Run) -> float:
    from consumer_membership import Consumer  # noqa: PLC0415

    consumer, handle = Consumer(run.config), run.function()
    consumer.subscribe([run.job.topic])
    poll = consumer.poll
    while not run.is_finished:
        record = poll(_POLL_S)
        if record is not None:
            handle(record)
    stopping_at = time.monotonic()
    consumer.close()
    return time.monotonic() - stopping_at


def _pool(run: Run) -> float:
    from confluent_kafka import Consumer  # noqa: PLC0415

    consumer, handle = Consumer({**run.config, "enable.auto.commit": "false"}), run.function()
    consumer.subscribe([run.job.topic])
    with ThreadPoolExecutor(run.job.concurrency) as pool:
        while not run.is_finished:
            futures = [pool.submit(handle, record) for record in consumer.consume(BATCH, _POLL_S)]
            for future in futures:
                future.result()
            if futures:
                consumer.commit(asynchronous=False)
    stopping_at = time.monotonic()
    consumer.close()
    return time.monotonic() - stopping_at


class GeneratedRecord:
    """A record without a broker, with the methods of `Message` that the handlers call."""

    def __init__(self, number: int) -> None:
        self._key, self._value = b"%d" % number, NUMBER.pack(number)

    def key(self) -> bytes:
        """Return the key, which no other record has."""
        return self._key

    def value(self) -> bytes:
        """Return the value."""
        return self._value


async def _asyncio(run: Run) -> float:
    """Call the handler with generated records from as many coroutines as may be in flight, without Kafka."""
    records = iter([GeneratedRecord(number) for number in range(run.job.expected)])
    handle = run.coroutine()

    async def work() -> None:
        for record in records:
            await handle(record)

    await asyncio.gather(*(work() for _ in range(run.job.concurrency)))
    return 0.0


def _measured(run: Run) -> float:
    """Run the program; return how long it took to stop."""
    match Program(run.job.program):
        case Program.THREADS:
            return _threads(run)
        case Program.COROUTINES:
            return asyncio.run(_coroutines(run))
        case Program.POLL:
            return _poll(run)
        case Program.POOL:
            return _pool(run)
        case Program.ASYNCIO:
            return asyncio.run(_asyncio(run))


def main() -> None:
    """Run the program once for each group."""
    job = job_of(Job)
    for group in job.groups:
        run = Run(job, group)
        run.report(_measured(run))


if __name__ == "__main__":
    main()
