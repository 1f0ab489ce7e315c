"""A FastAPI application with a consumer in its lifespan, which starts and stops with the application.

    pip install fastapi uvicorn
    KAFKA_BOOTSTRAP_SERVERS=localhost:9092 uvicorn --app-dir examples fastapi_app:app
    curl http://localhost:8000/orders

Settings from the environment: KAFKA_BOOTSTRAP_SERVERS, TOPIC and GROUP.
"""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from consumer_membership import KafkaException, Message
from consumer_membership.aio import AIOConsumer

log = logging.getLogger("uvicorn.error")
CONFIG = {
    "bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
    "group.id": os.environ.get("GROUP", "fastapi"),
    "auto.offset.reset": "earliest",
    "enable.auto.offset.store": False,  # automatic commits contain stored offsets only
}


async def handle(message: Message, counts: Counter[str]) -> None:
    """Replace this with your work."""
    counts[(message.key() or b"none").decode()] += 1


async def consume(consumer: AIOConsumer, counts: Counter[str], stopping: asyncio.Event) -> None:
    """Handle records until the application shuts down. An exception ends the task."""
    while not stopping.is_set():
        message = await consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            log.warning("%s", message.error())
            continue
        await handle(message, counts)
        await consumer.store_offsets(message)


def shut_down_if_failed(task: asyncio.Task[None]) -> None:
    """Shut the application down if its consumer fails. Without this, asyncio would keep the exception to itself."""
    if not task.cancelled() and task.exception() is not None:
        log.error("the consumer failed; shutting down", exc_info=task.exception())
        os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the consumer before the first request, and stop it after the last one."""
    app.state.counts = Counter()
    stopping = asyncio.Event()
    async with AIOConsumer(CONFIG) as consumer:  # the end of the block commits and leaves the group
        await consumer.subscribe([os.environ.get("TOPIC", "orders")])
        app.state.consumer = consumer
        task = asyncio.create_task(consume(consumer, app.state.counts, stopping))
        task.add_done_callback(shut_down_if_failed)
        yield
        stopping.set()
        await asyncio.wait([task])


app = FastAPI(lifespan=lifespan)


@app.get("/orders")
async def orders(request: Request) -> dict[str, int]:
    """Return the number of records for each key."""
    return dict(request.app.state.counts)


@app.get("/readyz")
async def ready(request: Request, response: Response) -> dict[str, str]:
    """Return 200 while the consumer works or has nothing to do, else 503, with the reason."""
    health = request.app.state.consumer.health()
    response.status_code = 200 if health.is_ready else 503
    return {"verdict": health.verdict.value, "why": health.why}
