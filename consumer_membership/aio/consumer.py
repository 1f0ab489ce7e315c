"""`AIOConsumer`: the drop-in replacement for `confluent_kafka.aio.AIOConsumer`, on this package's consumer.

`poll` returns buffered records without leaving the loop and without a thread. If the buffer is empty, it waits in a
thread of `workers`. Only records that the awaiting task receives count as delivered: if a `poll` is cancelled, its
record stays in the buffer, is neither counted as consumed nor committed, and the next `poll` returns it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from confluent_kafka import KafkaException, Message, TopicPartition
from confluent_kafka.aio import AIOConsumer as TheirConsumer

from consumer_membership.aio.callbacks import Callback, LoopCallbacks
from consumer_membership.aio.workers import WAITERS, AwaitedPoll, call_in_worker
from consumer_membership.clients import arguments
from consumer_membership.clients.arguments import NOT_GIVEN
from consumer_membership.clients.consumer import Consumer, Membership, session_of
from consumer_membership.clients.exceptions import ClosedConsumerError
from consumer_membership.clients.lease import Lease
from consumer_membership.health.verdict import Health
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import Metrics

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from confluent_kafka.admin._metadata import ClusterMetadata

    from consumer_membership.health.lifecycle import LifecycleEvent
    from consumer_membership.runtime.application.lifecycle_events import EventRegistration

T = TypeVar("T")

#: librdkafka's _PARTITION_EOF.
_END_OF_PARTITION = -191

#: How long records are returned before other tasks of the loop run, in seconds.
_YIELD_EVERY_S = 0.005


class AIOConsumer(TheirConsumer):
    """A consumer for asyncio; create it inside a running event loop, to which it is then bound.

    Its methods are those of `Consumer`, as coroutines. Additions to confluent-kafka's: `async for message in consumer`;
    `membership()`, `generation()`, `owned_since()`, `lease()`, `health()`, `metrics()` and `on_event()`, which are
    plain functions and never block; and `dump()`. Callbacks may be coroutine functions and run on the loop. Rebalances
    take place inside `poll` and `consume`, as in confluent-kafka.

    Args:
        consumer_conf: librdkafka's configuration keys, as for `Consumer`.
        max_workers: accepted and ignored, because no call uses a thread pool. At least 1.
        executor: accepted and ignored.

    Raises:
        ConfigurationError: as for `Consumer`.
        RuntimeError: no event loop is running.
    """

    _consumer: Consumer

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._loop = asyncio.get_running_loop()
        self._callbacks = LoopCallbacks(self._loop)
        self.executor = executor  # type: ignore[assignment]  # theirs always has one
        self._closed = False
        with self._callbacks.in_config(consumer_conf) as config:
            self._consumer = self._made(config)
        session = session_of(self._consumer)
        self._clock = self._callbacks.clock = session.line.time
        self._wake_up = session.gate
        self._ready = session.buffer.ready
        #: The number of `poll` and `consume` calls that wait in a thread.
        self._waiting = 0
        #: Exceptions of callbacks whose call is no longer awaited.
        self._unraised: deque[BaseException] = deque()
        self._yields_at = 0.0
        self._closing: asyncio.Task[None] | None = None

    def _made(self, config: Mapping[str, object]) -> Consumer:
        """Create the consumer; tests create it with another member."""
        return Consumer(dict(config))

    # ---- polling ----

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record or error, or None after `timeout` seconds (negative: wait without limit).

        A cancelled call takes no record; the next call returns it.
        """
        if not self._wake_up.is_set and self._ready and monotonic() < self._yields_at:
            try:
                return ~self._ready
            except IndexError:  # a rebalance removed the records
                pass
        batch = await self._consume(1, arguments.seconds(timeout))
        return batch[0] if batch else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records and errors, gathered for at most `timeout` seconds."""
        return await self._consume(*arguments.limit_and_seconds(num_messages, timeout))

    async def _consume(self, limit: int, seconds: float) -> list[Message]:
        self._refuse_if_closed()
        session = session_of(self._consumer)
        now = session.line.now
        deadline = inf if seconds < 0 else now() + seconds
        if not self._wake_up.is_set and len(self._ready) >= limit > 0:
            await asyncio.sleep(0)
            self._yields_at = monotonic() + _YIELD_EVERY_S
            batch = session.take(limit)
            if batch:
                return batch
        while True:
            try:
                await self._wait(limit, deadline)
            except ClosedConsumerError:
                if self._closing is None:
                    raise
                return []  # the consumer was open when this call began
            self._yields_at = monotonic() + _YIELD_EVERY_S
            batch = session.take(limit)
            if batch or not limit or now() >= deadline or session.life.is_ending:
                return batch

    async def _wait(self, limit: int, deadline: float) -> None:
        """Poll in a thread until records are available or the deadline has passed."""
        if self._unraised:
            raise self._unraised.popleft()
        settled: asyncio.Future[None] = self._loop.create_future()

        def settle(error: BaseException | None) -> None:
            self._waiting -= 1
            if settled.done():
                if error is not None:
                    self._unraised.append(error)
            elif error is None:
                settled.set_result(None)
            else:
                settled.set_exception(error)

        waiting = AwaitedPoll(session_of(self._consumer), limit, deadline, self._loop, settle)
        self._waiting += 1
        WAITERS.begin(waiting)
        try:
            await settled
        except asyncio.CancelledError:
            waiting.cancel()
            raise

    def __aiter__(self) -> Self:
        """Iterate over records; an error is raised as an exception, and the next iteration continues after it."""
        return self

    async def __anext__(self) -> Message:
        """Return the next record, or the end of a partition with `enable.partition.eof`; iteration ends with `close`.

        Raises:
            KafkaException: an error, as `Message.error()` returns it.
        """
        while not self._closed and self._closing is None:
            message = await self.poll()
            if message is None:
                continue
            error = message.error()
            if error is None or error.code() == _END_OF_PARTITION:
                return message
            raise KafkaException(error)
        raise StopAsyncIteration

    # ---- the group ----

    async def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = NOT_GIVEN,  # type: ignore[assignment]
        on_revoke: Callback | None = NOT_GIVEN,  # type: ignore[assignment]
        on_lost: Callback | None = NOT_GIVEN,  # type: ignore[assignment]
        *,
        on_warm: Callback | None = NOT_GIVEN,  # type: ignore[assignment]
    ) -> None:
        """Replace the subscription; callbacks receive this consumer and the partitions, and may be coroutine functions.

        Topics, patterns and `on_warm` are as for `Consumer.subscribe`.
        """
        given: dict[str, object] = {
            "on_assign": on_assign,
            "on_revoke": on_revoke,
            "on_lost": on_lost,
            "on_warm": on_warm,
        }
        listeners: dict[str, Any] = {
            name: self._callbacks.function(callback, first=self) if callable(callback) else callback
            for name, callback in given.items()
            if callback is not NOT_GIVEN
        }
        await self._quickly(partial(self._consumer.subscribe, topics, **listeners))

    async def unsubscribe(self, *, membership: Membership = "default") -> None:
        """Leave the group; the revocation callback runs in one of the next polls, or in `close`."""
        await self._quickly(partial(self._consumer.unsubscribe, membership=membership))

    async def close(self, *, membership: Membership = "default") -> None:
        """Commit (with auto-commit), call on_revoke, leave the group and release all resources. Idempotent.

        Awaited polls return without a record. A second close waits for the first. If the task is cancelled, the close
        continues.
        """
        if self._closing is None:
            self._refuse_if_closed()
            close = partial(self._consumer.close, membership=membership)
            self._closing = self._loop.create_task(self._close(close))
        await asyncio.shield(self._closing)

    async def _close(self, close: Callable[[], None]) -> None:
        try:
            await self._in_thread(close)
        finally:
            self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._closed:
            await self.close()

    # ---- assignment ----

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch exactly these partitions; inside on_assign: accept these of the new partitions."""
        await self._quickly(partial(self._consumer.assign, partitions))

    async def unassign(self) -> None:
        """Stop fetching all partitions; inside on_revoke and on_lost: give up the partitions of the callback."""
        await self._quickly(self._consumer.unassign)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch these partitions in addition."""
        await self._quickly(partial(self._consumer.incremental_assign, partitions))

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        await self._quickly(partial(self._consumer.incremental_unassign, partitions))

    async def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return await self._quickly(self._consumer.assignment)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop returning records of these partitions until they are resumed or revoked."""
        await self._quickly(partial(self._consumer.pause, partitions))

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Return records of these paused partitions again."""
        await self._quickly(partial(self._consumer.resume, partitions))

    async def seek(self, partition: TopicPartition) -> None:
        """Set the next offset of an assigned partition."""
        await self._quickly(partial(self._consumer.seek, partition))

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset after the last returned record of each partition."""
        return await self._quickly(partial(self._consumer.position, partitions))

    # ---- offsets ----

    async def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark offsets as processed for the next commit (requires `enable.auto.offset.store=false`)."""
        await self._quickly(partial(self._consumer.store_offsets, message, offsets))

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: object = True,  # noqa: FBT002 - confluent-kafka's signature
        **alias: object,
    ) -> list[TopicPartition] | None:
        """Commit as `Consumer.commit` does; with `asynchronous=False`, await the result.

        Raises:
            CommitError: the commit failed for every partition, or there is nothing to commit.
        """
        commit = partial(self._consumer.commit, message, offsets, asynchronous, **alias)
        is_awaited = not alias.get("async", asynchronous)
        return await (self._in_thread(commit) if is_awaited else self._quickly(commit))

    async def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets of these partitions (-1001: none)."""
        return await self._in_thread(partial(self._consumer.committed, partitions, timeout))

    async def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets at or after the timestamps (milliseconds) in `.offset` of each partition."""
        return await self._in_thread(partial(self._consumer.offsets_for_times, partitions, timeout))

    async def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[int, int]:
        """Return the low and high watermark of a partition; `cached`: from memory, without a request."""
        return await self._in_thread(partial(self._consumer.get_watermark_offsets, partition, timeout, cached))

    # ---- the cluster and the member ----

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's metadata, of one topic or of all."""
        return await self._in_thread(partial(self._consumer.list_topics, topic, timeout))

    async def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        return await self._in_thread(partial(self._consumer.cluster_id, timeout))

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials for new connections and for reauthentication of existing ones (KIP-368)."""
        await self._quickly(partial(self._consumer.set_sasl_credentials, username, password))

    async def consumer_group_metadata(self) -> bytes:
        """Return the group metadata for `Producer.send_offsets_to_transaction`."""
        return await self._quickly(self._consumer.consumer_group_metadata)

    def memberid(self) -> str | None:
        """Return the member id, or None if it has none yet. Never blocks."""
        return self._consumer.memberid()

    def membership(self) -> MembershipView:
        """Return a snapshot of the member: state, epoch, owned partitions, and what it waits for. Never blocks."""
        return self._consumer.membership()

    def generation(self) -> int:
        """Return the member epoch (classic: the generation), or -1 outside the group. Never blocks."""
        return self._consumer.generation()

    def owned_since(self, partition: TopicPartition) -> int | None:
        """Return the member epoch at which this partition was assigned, or None if it is not owned. Never blocks."""
        return self._consumer.owned_since(partition)

    def lease(self, partition: TopicPartition) -> Lease:
        """Return the lease of an owned partition: until when this consumer may work on it. Never blocks.

        Requires `ownership.lease.enable`.

        Raises:
            KafkaException: leases are not enabled.
            LeaseOverError: the partition is not owned.
        """
        return self._consumer.lease(partition)

    def health(self) -> Health:
        """Return the consumer's health: a verdict with its cause, and the progress of each partition. Never blocks."""
        return self._consumer.health()

    def metrics(self) -> Metrics:
        """Return a snapshot of all counters and durations of the consumer. Never blocks."""
        return self._consumer.metrics()

    def on_event(self, callback: Callable[[LifecycleEvent], object]) -> EventRegistration:
        """Register `callback` for lifecycle events from now on; it runs on the loop and may be a coroutine function.

        As in `Consumer.on_event`, events arrive one at a time, and no call of the consumer waits for the callback.
        Never blocks.

        Raises:
            TypeError: the callback is not callable.
            RuntimeError: the consumer is closed.
        """
        if not callable(callback):
            raise TypeError("on_event expects a callable")
        return self._consumer.on_event(self._callbacks.listener(callback))

    async def dump(self, path: str | PathLike[str] | None = None) -> Path:
        """Write the recording of the membership to this file or into this folder, and return the file's path.

        Without `path`, the file is written into `recorder.directory`, or into the system's folder for temporary files.
        The call works also after `close`. Another thread writes the file; the loop and the membership continue.

        Raises:
            UseError: `recorder.enable` is false.
            OSError: the file cannot be written.
        """
        return await call_in_worker(partial(self._consumer.dump, path), self._clock)

    # ---- how a call is made ----

    async def _quickly(self, call: Callable[[], T]) -> T:
        """Make a call that sends no request. At most, it waits for one slice of a thread that polls at this moment.

        Inside a callback, that thread waits for the callback and blocks nothing.
        """
        self._refuse_if_closed()
        if not self._waiting or self._callbacks.running:
            return call()
        return await self._in_thread(call)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Make a call that may take a while, unless the consumer is closed."""
        self._refuse_if_closed()
        return await call_in_worker(call, self._clock)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
