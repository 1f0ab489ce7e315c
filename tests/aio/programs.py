"""Helpers that run the coroutine of an asyncio test and read a record."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from confluent_kafka import Message

from tests.support.waiting import PATIENCE_S

T = TypeVar("T")


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; it fails if the coroutine does not finish in time."""

    async def bounded() -> T:
        return await asyncio.wait_for(program, PATIENCE_S)

    return asyncio.run(bounded())


def place(message: Message | None) -> tuple[int | None, int | None]:
    """The partition and offset of a record."""
    assert message is not None
    assert message.error() is None
    return message.partition(), message.offset()
