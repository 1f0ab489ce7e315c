"""What a test of asyncio does with its coroutine, and with a record."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from confluent_kafka import Message

from tests.support.waiting import PATIENCE_S

T = TypeVar("T")


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine, which must come to its end."""

    async def bounded() -> T:
        return await asyncio.wait_for(program, PATIENCE_S)

    return asyncio.run(bounded())


def place(message: Message | None) -> tuple[int | None, int | None]:
    """Partition and offset of a record."""
    assert message is not None
    assert message.error() is None
    return message.partition(), message.offset()
