"""Requests that several clients of the same connections make at the same moment, and that a broker receives once.

Two kinds: clients that request the same thing share one response (`together`), and clients that request different
things which fit into one request are served by one request for all of them (`in_batch`). If one client ends, the
request continues for the others. This module has no socket, and does not retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")


class RequestBatch(Generic[ItemT]):
    """The items of one request that is not written yet."""

    def __init__(self, on_take: Callable[[], object]) -> None:
        self._items: dict[ItemT, None] = {}
        self._on_take = on_take

    def add(self, item: ItemT) -> None:
        """Add an item that is requested now; an equal item is requested once."""
        self._items[item] = None

    def take(self) -> tuple[ItemT, ...]:
        """Return all items in their order, right before the request is written; later items begin another batch."""
        self._on_take()
        return tuple(self._items)


class SharedRequests:
    """The requests in flight that several clients wait for; used from one loop."""

    def __init__(self) -> None:
        self._in_flight: dict[object, asyncio.Task[Any]] = {}
        self._batches: dict[object, tuple[RequestBatch[Any], asyncio.Task[Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def together(self, key: object, send: Callable[[], Coroutine[None, None, AnswerT]]) -> AnswerT:
        """Return the result of `send`, or of the call with an equal key that is in flight; raises its exception."""
        task: asyncio.Task[AnswerT] | None = self._in_flight.get(key)
        if task is None:
            task = self._in_flight[key] = self._begin(send())
            task.add_done_callback(lambda _: self._in_flight.pop(key))
        return await asyncio.shield(task)

    async def in_batch(
        self,
        key: object,
        item: ItemT,
        send: Callable[[RequestBatch[ItemT]], Coroutine[None, None, Mapping[ItemT, AnswerT]]],
    ) -> AnswerT:
        """Return the result for `item` of a request that also has the items which other clients request now.

        `send` receives the batch, takes its items when it can write the request, and returns a result for each. All
        clients of the batch get its exception.
        """
        found: tuple[RequestBatch[ItemT], asyncio.Task[Mapping[ItemT, AnswerT]]] | None = self._batches.get(key)
        if found is None:
            batch: RequestBatch[ItemT] = RequestBatch(lambda: self._batches.pop(key, None))
            found = self._batches[key] = batch, self._begin(send(batch))
            # A request that failed before it was written has not taken its items.
            found[1].add_done_callback(lambda task: self._forget(key, task))
        batch, task = found
        batch.add(item)
        return (await asyncio.shield(task))[item]

    async def close(self) -> None:
        """End all requests in flight."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, request: Coroutine[None, None, AnswerT]) -> asyncio.Task[AnswerT]:
        task = asyncio.create_task(request, name="request of several clients")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio would log an exception that no client retrieves

    def _forget(self, key: object, task: asyncio.Task[Any]) -> None:
        if self._batches.get(key, (None, None))[1] is task:
            del self._batches[key]
