"""FastStream's subscriber with `max_workers`, as one of the programs that `handlers.py` describes.

It runs in an environment that has FastStream. Its handlers are coroutines, and its decoder returns the bytes of a
record; everything else is FastStream's default, with its log limited to errors.
"""

# Without `annotations` from __future__: FastStream evaluates the annotations of handlers and decoders.
import asyncio
import logging
import time

from faststream import FastStream
from faststream.confluent import KafkaBroker, KafkaMessage

from tests.benchmarks.workers.handlers import Job, Run, finished_or_ended
from tests.benchmarks.workers.wiring import job_of

_STATIC = "group.instance.id"
_COMMIT_INTERVAL = "auto.commit.interval.ms"


async def undecoded(message: KafkaMessage) -> bytes:
    """Return a record's value."""
    return bytes(message.body)


async def process(run: Run) -> float:
    """Process all records; return how long FastStream took to stop."""
    logger = logging.getLogger("faststream-handlers")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.ERROR)
    config, handle = run.config, run.coroutine()
    broker = KafkaBroker(config["bootstrap.servers"], logger=logger)

    @broker.subscriber(
        run.job.topic,
        group_id=config["group.id"],
        group_instance_id=config.get(_STATIC),
        auto_offset_reset="earliest",
        auto_commit_interval_ms=int(config.get(_COMMIT_INTERVAL, "5000")),
        max_workers=run.job.concurrency,
        decoder=undecoded,
    )
    async def on_record(_: bytes, message: KafkaMessage) -> None:
        await handle(message.raw_message)

    app = FastStream(broker, logger=None)
    running = asyncio.ensure_future(app.run())
    await finished_or_ended(run, running)
    stopping_at = time.monotonic()
    app.exit()
    await running
    return time.monotonic() - stopping_at


def main() -> None:
    """Process the topic once for each group."""
    job = job_of(Job)
    for group in job.groups:
        run = Run(job, group)
        run.report(asyncio.run(process(run)))


if __name__ == "__main__":
    main()
