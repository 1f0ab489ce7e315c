"""`AIOGroupMember`: `GroupMember` for asyncio, for programs that distribute work that is not in Kafka.

A waiting `poll` needs no thread: the membership thread wakes its event loop. A thread is used only while callbacks of a
rebalance are called, and for calls that wait for a broker. With `membership.threads=shared`, a process can therefore
have thousands of members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Self

from confluent_kafka import TopicPartition

from consumer_membership.aio.callbacks import Callback, LoopCallbacks
from consumer_membership.aio.workers import call_in_worker, call_on_loop
from consumer_membership.clients import arguments
from consumer_membership.clients.exceptions import ClosedConsumerError
from consumer_membership.clients.group_member import GroupMember, member_session_of
from consumer_membership.clients.lease import Lease
from consumer_membership.health.verdict import Health
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import Metrics

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from consumer_membership.clients.consumer import Membership

#: The longest time after which a waiting poll counts as a poll again, and reads the view: a missed poll ends the
#: membership without an order for the application.
_CHECK_S = 1.0


class AIOGroupMember:
    """A group member for asyncio; create it inside a running event loop, to which it is then bound.

    Its methods are those of `GroupMember`, as coroutines; `membership()`, `generation()`, `lease()`, `health()` and
    `metrics()` are plain functions and never block. Callbacks may be coroutine functions and run on the loop.

    Args:
        config: a dict with the keys of `Consumer`, as for `GroupMember`.

    Raises:
        ConfigurationError: as for `GroupMember`.
        RuntimeError: no event loop is running.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks = LoopCallbacks(self._loop)
        with self._callbacks.in_config(config) as given:
            self._member = self._made(given)
        self._session = session = member_session_of(self._member)
        self._clock = self._callbacks.clock = session.line.time
        self._changed = asyncio.Event()
        session.orders.listen(partial(call_on_loop, self._loop, self._changed.set))
        #: The call that performs orders in a thread; it outlives a cancelled `poll`, and the next one gets its result.
        self._serving: asyncio.Task[bool] | None = None
        self._is_polled = False
        self._closing: asyncio.Task[None] | None = None

    def _made(self, config: Mapping[str, object]) -> GroupMember:
        """Create the member; tests create it with another membership."""
        return GroupMember(config)

    async def subscribe(
        self,
        topics: list[str],
        *,
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
        on_warm: Callback | None = None,
    ) -> None:
        """Replace the subscription; callbacks receive this member and the partitions, and may be coroutine functions.

        They run inside `poll` and `close`, as in `GroupMember.subscribe`.
        """
        given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost, "on_warm": on_warm}
        listeners = {
            name: self._callbacks.function(callback, first=self) if callable(callback) else callback
            for name, callback in given.items()
        }
        self._member.subscribe(topics, **listeners)
        self._changed.set()

    async def poll(self, timeout: float = -1) -> bool:
        """Call the pending callbacks, or wait `timeout` seconds for one (negative: without limit).

        As `GroupMember.poll`: call it in a loop, from one task. If the task is cancelled while a callback runs, the
        callback continues, and the next `poll` returns its result.

        Raises:
            FatalGroupError: the membership ended (fenced, refused); raised again at most once a second.
            GroupError: another error of the group; each once.
            RuntimeError: the member is closed, or another `poll` is running, for example the one that called this
                callback.
        """
        if self._is_polled:
            raise RuntimeError("another poll of this member is running; call poll from one task, not in callbacks")
        member_session_of(self._member)  # raises if it is closed
        self._is_polled = True
        try:
            return await self._poll(arguments.seconds(timeout))
        finally:
            self._is_polled = False

    async def _poll(self, seconds: float) -> bool:
        session = self._session
        deadline = inf if seconds < 0 else self._loop.time() + seconds
        while True:
            self._changed.clear()
            if session.life.is_ending:
                return False
            if self._serving is not None or session.has_work:
                if await self._serve():
                    return True
            else:
                session.note_poll()
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _CHECK_S)):
                    await self._changed.wait()

    async def _serve(self) -> bool:
        """Perform the waiting orders in a thread; return whether partitions were assigned, revoked or lost."""
        serving = self._serving
        if serving is None:
            serving = self._serving = self._loop.create_task(call_in_worker(partial(self._member.poll, 0), self._clock))
        moved = False
        try:
            moved = await asyncio.shield(serving)
        except ClosedConsumerError:
            if self._closing is None:
                raise  # otherwise the member was open when this call began
        finally:
            if serving.done():
                self._serving = None
        return moved

    async def commit(self, offsets: list[TopicPartition]) -> list[TopicPartition]:
        """Commit these offsets and metadata, and await the response, as `GroupMember.commit`."""
        return await call_in_worker(partial(self._member.commit, offsets), self._clock)

    async def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets and metadata of these partitions (-1001: none)."""
        return await call_in_worker(partial(self._member.committed, partitions, timeout), self._clock)

    async def close(self, *, membership: Membership = "default") -> None:
        """Call on_revoke, leave the group and release everything. Idempotent.

        A waiting `poll` returns False. A second close waits for the first. If the task is cancelled, the close
        continues.
        """
        if self._closing is None:
            close: Callable[[], None] = partial(self._member.close, membership=membership)
            self._closing = self._loop.create_task(call_in_worker(close, self._clock))
        await asyncio.shield(self._closing)

    def membership(self) -> MembershipView:
        """Return a snapshot: state, epoch, owned partitions, and what the member waits for. Never blocks."""
        return self._member.membership()

    def generation(self) -> int:
        """Return the member epoch (classic: the generation), or -1 outside the group. Never blocks."""
        return self._member.generation()

    def lease(self, partition: TopicPartition) -> Lease:
        """Return the lease of an owned partition, as `GroupMember.lease`. Never blocks."""
        return self._member.lease(partition)

    def health(self) -> Health:
        """Return the member's health, as `GroupMember.health`. Never blocks."""
        return self._member.health()

    def metrics(self) -> Metrics:
        """Return a snapshot of all counters and durations of the member. Never blocks."""
        return self._member.metrics()

    async def dump(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the recording of the membership, as `GroupMember.dump`; another thread writes the file."""
        return await call_in_worker(partial(self._member.dump, path), self._clock)

    async def __aenter__(self) -> Self:
        """Return the member itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the member; an exception propagates."""
        await self.close()
