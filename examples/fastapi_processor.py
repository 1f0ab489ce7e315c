"""A FastAPI application with a processor in its lifespan, which starts and stops with the application.

    pip install fastapi uvicorn
    KAFKA_BOOTSTRAP_SERVERS=localhost:9092 uvicorn --app-dir examples fastapi_processor:app
    curl http://localhost:8000/orders

Handlers are coroutines on the application's event loop: many records wait for databases and services at the same time,
and records of one key run one after the other. Settings from the environment: KAFKA_BOOTSTRAP_SERVERS, TOPIC and GROUP.
"""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from consumer_membership import Message
from consumer_membership.processing import AsyncProcessor

log = logging.getLogger("uvicorn.error")
CONFIG = {
    "bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"),
    "group.id": os.environ.get("GROUP", "fastapi-processor"),
    "auto.offset.reset": "earliest",
}


def shut_down_if_failed(task: asyncio.Task[None]) -> None:
    """Shut the application down if its processor fails. Without this, asyncio would keep the exception to itself."""
    if not task.cancelled() and task.exception() is not None:
        log.error("the processor failed; shutting down", exc_info=task.exception())
        os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the processor before the first request, and stop it after the last one."""
    counts = app.state.counts = Counter()

    async def handle(record: Message) -> None:
        """Replace this with your work."""
        await asyncio.sleep(0.01)
        counts[(record.key() or b"none").decode()] += 1

    topics = [os.environ.get("TOPIC", "orders")]
    async with AsyncProcessor(CONFIG, topics, handle, concurrency=100) as processor:
        app.state.processor = processor
        task = asyncio.create_task(processor.run(handle_signals=False))  # uvicorn handles signals
        task.add_done_callback(shut_down_if_failed)
        yield
        await processor.stop()
        await asyncio.wait([task])


app = FastAPI(lifespan=lifespan)


@app.get("/orders")
async def orders(request: Request) -> dict[str, int]:
    """Return the number of records for each key."""
    return dict(request.app.state.counts)


@app.get("/readyz")
async def ready(request: Request, response: Response) -> dict[str, str]:
    """Return 200 while the processor works or has nothing to do, else 503, with the reason."""
    health = request.app.state.processor.health()
    response.status_code = 200 if health.is_ready else 503
    return {"verdict": health.verdict.value, "why": health.why}
