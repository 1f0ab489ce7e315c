"""One asyncio consumer: it reads records one by one or in batches, waits for single records, or is idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.benchmarks.workers.drain import cpu_seconds
from tests.benchmarks.workers.wiring import job_of, report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

AIOKAFKA = "aiokafka"
_STALLED_S = 60.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The consumer to run, and its task.

    Attributes:
        module: The package of the `AIOConsumer`, or aiokafka.
        config: Its configuration, with librdkafka's keys.
        topic: The topic to read.
        task: "one by one", "batches", "trickle" or "idle".
        expected: The number of records; of a trickle, the number of timed records.
        batch: The number of records that one call requests.
        watch_s: The duration of the measurement of an idle consumer.
    """

    module: str
    config: dict[str, str]
    topic: str
    task: str
    expected: int = 0
    batch: int = 500
    watch_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Reader:
    """The common interface of both kinds of clients: read one record, read some, and get a record's value."""

    one: Callable[[], Awaitable[Any]]
    some: Callable[[int], Awaitable[int]]
    value_of: Callable[[Any], bytes]


@asynccontextmanager
async def reader_of(job: Job) -> AsyncIterator[Reader]:
    """Yield a consumer that has subscribed; close it at the end."""
    if job.module == AIOKAFKA:
        async with _aiokafka(job) as reader:
            yield reader
        return
    # Each process imports only its own kind of client.
    kind = __import__(f"{job.module}.aio", fromlist=["AIOConsumer"]).AIOConsumer
    consumer = kind(job.config)
    await consumer.subscribe([job.topic])

    async def one() -> object:
        return await consumer.poll(_POLL_S)

    async def some(most: int) -> int:
        return len(await consumer.consume(most, _POLL_S))

    try:
        yield Reader(one, some, lambda message: message.value())
    finally:
        await consumer.close()


@asynccontextmanager
async def _aiokafka(job: Job) -> AsyncIterator[Reader]:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.config["bootstrap.servers"],
        group_id=job.config["group.id"],
        auto_offset_reset="earliest",
    )
    await consumer.start()

    async def one() -> object:
        return await consumer.getone()

    async def some(most: int) -> int:
        found = await consumer.getmany(timeout_ms=int(_POLL_S * 1000), max_records=most)
        return sum(map(len, found.values()))

    try:
        yield Reader(one, some, lambda record: record.value)
    finally:
        await consumer.stop()


async def drain(reader: Reader, job: Job) -> dict[str, object]:
    """Read all records; measure from the return of the first call that returned records."""
    received = 0
    first = 0
    began = cpu = 0.0
    stalled_at = time.monotonic() + _STALLED_S
    while received < job.expected:
        if job.task == "batches":
            received += await reader.some(job.batch)
        elif await reader.one() is not None:
            received += 1
        if received and not first:
            first, began, cpu = received, time.monotonic(), cpu_seconds()
        if received & 1023 == 0 and time.monotonic() > stalled_at:
            raise TimeoutError(f"{received} of {job.expected} records after {_STALLED_S} s")
    return {"count": received - first, "wall_s": time.monotonic() - began, "cpu_s": cpu_seconds() - cpu}


async def trickle(reader: Reader, job: Job) -> dict[str, object]:
    """Report that the consumer is ready, and time each record; its value is CLOCK_MONOTONIC when it was produced."""
    while await reader.one() is None:
        pass
    report("ready")
    took: list[float] = []
    while len(took) < job.expected:
        message = await reader.one()
        if message is not None:
            took.append(time.monotonic() - float(reader.value_of(message)))
    return {"took_s": took}


async def idle(reader: Reader, job: Job) -> dict[str, object]:
    """Wait for a record of an empty topic, and measure the processor time."""
    waiting = asyncio.ensure_future(_until_one(reader))
    await asyncio.sleep(job.watch_s / 4)
    began, cpu = time.monotonic(), cpu_seconds()
    await asyncio.sleep(job.watch_s)
    facts: dict[str, object] = {"wall_s": time.monotonic() - began, "cpu_s": cpu_seconds() - cpu}
    waiting.cancel()
    await asyncio.wait([waiting])
    return facts


async def _until_one(reader: Reader) -> None:
    while await reader.one() is None:
        pass


async def _main() -> None:
    job = job_of(Job)
    async with reader_of(job) as reader:
        match job.task:
            case "trickle":
                facts = await trickle(reader, job)
            case "idle":
                facts = await idle(reader, job)
            case _:
                facts = await drain(reader, job)
    report("measured", **facts)


if __name__ == "__main__":
    asyncio.run(_main())
