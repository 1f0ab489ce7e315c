"""A program with a processor, for tests of how it ends.

Run it with `python -m tests.support.processor_program SERVERS TOPIC GROUP KIND`. KIND is `threads` or `coroutines`. The
handler writes `began VALUE` and `ended VALUE`. For a record with the value `held`, it waits until a line arrives on
stdin.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading

from confluent_kafka import Message

from consumer_membership.processing import AsyncProcessor, Processor

_PR_SET_PDEATHSIG = 1
_released = threading.Event()
#: The event for which a coroutine waits on its event loop, instead of `_released`.
_on_loop = asyncio.Event()
_loops: list[asyncio.AbstractEventLoop] = []


def write_line(text: str) -> None:
    """Write one line to stdout."""
    os.write(1, f"{text}\n".encode())


def handle(record: Message) -> None:
    """Handle a record on a thread."""
    value = bytes(record.value() or b"").decode()
    write_line(f"began {value}")
    if value == "held":
        _released.wait()
    write_line(f"ended {value}")


async def handle_on_loop(record: Message) -> None:
    """Handle a record as a coroutine."""
    value = bytes(record.value() or b"").decode()
    write_line(f"began {value}")
    if value == "held":
        await _on_loop.wait()
    write_line(f"ended {value}")


def read_release() -> None:
    """Release the held record when a line arrives."""
    sys.stdin.readline()
    _released.set()
    for loop in _loops:
        loop.call_soon_threadsafe(_on_loop.set)


async def run_on_loop(config: dict[str, object], topic: str) -> None:
    """Run the asynchronous processor."""
    _loops.append(asyncio.get_running_loop())
    async with AsyncProcessor(config, [topic], handle_on_loop, order="partition") as processor:
        await processor.run()


def main() -> None:
    """Run the processor until a signal ends it."""
    servers, topic, group, kind = sys.argv[1:]
    threading.Thread(target=read_release, daemon=True).start()
    config: dict[str, object] = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    if kind == "threads":
        with Processor(config, [topic], handle, order="partition") as processor:
            processor.run()
    else:
        asyncio.run(run_on_loop(config, topic))
    write_line("returned")


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    main()
