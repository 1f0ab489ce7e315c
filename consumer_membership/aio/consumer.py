"""`AIOConsumer`: the drop-in for `confluent_kafka.aio.AIOConsumer`, on this package's consumer.

A record that waits in the buffer is handed out by `poll` without leaving the loop, and without a thread; only who finds
the buffer empty waits, in a thread of `workers`. What is handed out is what the awaiting task gets: a record whose
`poll` was cancelled stays in the buffer, is neither counted as consumed nor committed, and comes with the next one.
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
from consumer_membership.aio.workers import WAITERS, WORKERS, AwaitedPoll, call_on_loop
from consumer_membership.clients import arguments
from consumer_membership.clients.arguments import NOT_GIVEN
from consumer_membership.clients.consumer import Consumer, Membership, session_of
from consumer_membership.clients.exceptions import ClosedConsumerError
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

#: How long records are handed out without letting other tasks run, in seconds.
_YIELD_EVERY_S = 0.005


class AIOConsumer(TheirConsumer):
    """A member of a consumer group for asyncio; construct it inside a running loop, whose it then is.

    Its methods are `Consumer`'s, to be awaited. Beside confluent-kafka's: `async for message in consumer`, and
    `membership()`, `generation()`, `owned_since()`, `health()`, `metrics()`, `on_event()`, which wait for nothing, and
    `dump()`. Callbacks may be coroutine functions, and run on the loop; rebalances take place inside `poll` and
    `consume`, as there.

    Args:
        consumer_conf: librdkafka's configuration keys, as `Consumer` takes them.
        max_workers: taken, and not needed: no call has a thread of a pool. At least 1.
        executor: likewise.

    Raises:
        ConfigurationError: as `Consumer`.
        RuntimeError: no loop is running.
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
        self._wake_up = session.line.wake_up
        self._ready = session.buffer.ready
        #: How many `poll`s and `consume`s wait in a thread.
        self._waiting = 0
        #: What callbacks raised when nobody awaited it any more.
        self._unraised: deque[BaseException] = deque()
        self._yields_at = 0.0
        self._closing: asyncio.Task[None] | None = None

    def _made(self, config: Mapping[str, object]) -> Consumer:
        """Make the consumer; tests give it another member."""
        return Consumer(dict(config))

    # ---- polling ----

    async def poll(self, timeout: float = -1) -> Message | None:
        """The next record or error, or None when `timeout` seconds are over (negative: wait for ever).

        Cancelled, it takes nothing: the record comes with the next one.
        """
        if not self._wake_up.is_set and self._ready and monotonic() < self._yields_at:
            try:
                return ~self._ready
            except IndexError:  # a rebalance took them back
                pass
        batch = await self._consume(1, arguments.seconds(timeout))
        return batch[0] if batch else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Gather records and errors until there are `num_messages` or `timeout` seconds are over."""
        return await self._consume(*arguments.limit_and_seconds(num_messages, timeout))

    async def _consume(self, limit: int, seconds: float) -> list[Message]:
        deadline = inf if seconds < 0 else monotonic() + seconds
        self._refuse_if_closed()
        session = session_of(self._consumer)
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
                return []  # it was open when this began
            self._yields_at = monotonic() + _YIELD_EVERY_S
            batch = session.take(limit)
            if batch or not limit or monotonic() >= deadline or session.life.is_ending:
                return batch

    async def _wait(self, limit: int, deadline: float) -> None:
        """Have a thread poll until there is something to take, or the time is over."""
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
        """Records, one by one; an error comes as an exception, and the next iteration goes on behind it."""
        return self

    async def __anext__(self) -> Message:
        """The next record, or the end of a partition if `enable.partition.eof` asks for it; ends with `close`.

        Raises:
            KafkaException: an error, as `Message.error()` has it.
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
    ) -> None:
        """Ask for these topics; callbacks get this consumer and the partitions, and may be coroutine functions."""
        given: dict[str, object] = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        listeners: dict[str, Any] = {
            name: self._callbacks.function(callback, first=self) if callable(callback) else callback
            for name, callback in given.items()
            if callback is not NOT_GIVEN
        }
        await self._quickly(partial(self._consumer.subscribe, topics, **listeners))

    async def unsubscribe(self, *, membership: Membership = "default") -> None:
        """Leave the group; the revocation callback is served by the next polls, or by close."""
        await self._quickly(partial(self._consumer.unsubscribe, membership=membership))

    async def close(self, *, membership: Membership = "default") -> None:
        """Commit (if that is automatic), call on_revoke, leave the group, let everything go.

        Polls that are awaited end with nothing. A second close awaits the first one. Cancelled, it goes on.
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
        """Fetch exactly these; inside on_assign: take these of the arriving partitions."""
        await self._quickly(partial(self._consumer.assign, partitions))

    async def unassign(self) -> None:
        """Fetch nothing; inside on_revoke and on_lost: give up the partitions that these are about."""
        await self._quickly(self._consumer.unassign)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch these as well."""
        await self._quickly(partial(self._consumer.incremental_assign, partitions))

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching these."""
        await self._quickly(partial(self._consumer.incremental_unassign, partitions))

    async def assignment(self) -> list[TopicPartition]:
        """What is assigned."""
        return await self._quickly(self._consumer.assignment)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Hold back these until they are resumed or revoked."""
        await self._quickly(partial(self._consumer.pause, partitions))

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Let these go on."""
        await self._quickly(partial(self._consumer.resume, partitions))

    async def seek(self, partition: TopicPartition) -> None:
        """Go on from this offset of an assigned partition."""
        await self._quickly(partial(self._consumer.seek, partition))

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset after the last delivered record of each."""
        return await self._quickly(partial(self._consumer.position, partitions))

    # ---- offsets ----

    async def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Say what is consumed, for the commits to come (`enable.auto.offset.store=false`)."""
        await self._quickly(partial(self._consumer.store_offsets, message, offsets))

    async def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: object = True,  # noqa: FBT002 - confluent-kafka's signature
        **alias: object,
    ) -> list[TopicPartition] | None:
        """Commit, as `Consumer.commit`; `asynchronous=False` awaits the outcome.

        Raises:
            CommitError: it failed for every partition, or there is nothing to commit.
        """
        commit = partial(self._consumer.commit, message, offsets, asynchronous, **alias)
        is_awaited = not alias.get("async", asynchronous)
        return await (self._in_thread(commit) if is_awaited else self._quickly(commit))

    async def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The group's committed offsets of these partitions (-1001: none)."""
        return await self._in_thread(partial(self._consumer.committed, partitions, timeout))

    async def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The first offsets at or after the timestamps that stand in `.offset`."""
        return await self._in_thread(partial(self._consumer.offsets_for_times, partitions, timeout))

    async def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[int, int]:
        """The lowest and the next offset of a partition."""
        return await self._in_thread(partial(self._consumer.get_watermark_offsets, partition, timeout, cached))

    # ---- the cluster and the member ----

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The cluster's metadata."""
        return await self._in_thread(partial(self._consumer.list_topics, topic, timeout))

    async def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        return await self._in_thread(partial(self._consumer.cluster_id, timeout))

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Set the credentials with which connections to come authenticate."""
        await self._quickly(partial(self._consumer.set_sasl_credentials, username, password))

    async def consumer_group_metadata(self) -> bytes:
        """What `Producer.send_offsets_to_transaction` wants."""
        return await self._quickly(self._consumer.consumer_group_metadata)

    def memberid(self) -> str | None:
        """The member id. Never waits."""
        return self._consumer.memberid()

    def membership(self) -> MembershipView:
        """The member as it is now: state, epoch, what it owns, what it waits for and since when. Never waits."""
        return self._consumer.membership()

    def generation(self) -> int:
        """The member epoch (classic: the generation), -1 when not a member. Never waits."""
        return self._consumer.generation()

    def owned_since(self, partition: TopicPartition) -> int | None:
        """The member epoch at which this partition was taken; None: it is not owned. Never waits."""
        return self._consumer.owned_since(partition)

    def health(self) -> Health:
        """How the consumer is: one verdict with its cause, and how far each partition is. Never waits."""
        return self._consumer.health()

    def metrics(self) -> Metrics:
        """All that is counted of the consumer, as it is now. Never waits."""
        return self._consumer.metrics()

    def on_event(self, callback: Callable[[LifecycleEvent], object]) -> EventRegistration:
        """Have this called on the loop with what happens to the consumer from now on; a coroutine function is right.

        As `Consumer.on_event`: one event after the other, and no call of the consumer waits for it. Never waits.

        Raises:
            TypeError: it is not callable.
            RuntimeError: the consumer is closed.
        """
        if not callable(callback):
            raise TypeError("on_event expects a callable")
        return self._consumer.on_event(self._callbacks.listener(callback))

    async def dump(self, path: str | PathLike[str] | None = None) -> Path:
        """Write what is recorded of the membership to this file, or into this folder; the file's path.

        None: into `recorder.directory`, or the system's folder for temporary files. After close, too. Another thread
        writes; the loop and the membership go on.

        Raises:
            UseError: `recorder.enable` is false.
            OSError: the file cannot be written.
        """
        return await self._beside(partial(self._consumer.dump, path))

    # ---- how a call is made ----

    async def _quickly(self, call: Callable[[], T]) -> T:
        """Make a call that asks nobody. Only a thread that polls just now could hold it up, for one slice.

        Inside a callback that thread waits for the callback, and holds up nothing.
        """
        self._refuse_if_closed()
        if not self._waiting or self._callbacks.running:
            return call()
        return await self._in_thread(call)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Make a call that may take a while, unless the consumer is closed."""
        self._refuse_if_closed()
        return await self._beside(call)

    async def _beside(self, call: Callable[[], T]) -> T:
        """Make a call in another thread. Cancelled, it goes on, and nobody hears of it."""
        loop = self._loop
        made: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if made.done():
                return
            if error is None:
                made.set_result(result)  # type: ignore[arg-type]  # the call's own
            else:
                made.set_exception(error)

        def make() -> None:
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it comes out of the awaited call
                call_on_loop(loop, partial(settle, None, error))
            else:
                call_on_loop(loop, partial(settle, result, None))

        WORKERS.do(make)
        return await made

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")
