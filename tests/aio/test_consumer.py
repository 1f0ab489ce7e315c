"""`AIOConsumer` with a scripted member: the records it returns, its waits, and the state after a cancellation."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import LifecycleEvent, LifecycleKind
from consumer_membership.aio import AIOConsumer
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.effects import PausePartitions, Problem, RaiseToApplication, RevokePartitions
from consumer_membership.membership.events import CommitRequested, StepFinished
from consumer_membership.recorder.recording import read
from consumer_membership.types import BrokerError, TopicPartition
from tests.aio.conftest import AIOFactory, ScriptedAIOConsumer
from tests.aio.programs import place, run
from tests.clients.conftest import PARTITIONS, RECORDS

pytestmark = pytest.mark.slow

#: The orders of a member when its application leaves.
FAREWELL = (PausePartitions(attempt=9, partitions=None), RevokePartitions(attempt=9, partitions=None))

# ---- polling ----


def test_poll_and_consume_return_every_record_in_order(aio_consumers: AIOFactory, topic: str) -> None:
    """`poll` and `consume` share one sequence, as in `Consumer`: no record is missing when calls alternate."""

    async def program() -> list[tuple[int | None, int | None]]:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, 0)])
        found = [place(await consumer.poll()) for _ in range(5)]
        found += [place(message) for message in await consumer.consume(10, 30)]
        return [*found, place(await consumer.poll(30))]

    assert run(program()) == [(0, offset) for offset in range(16)]


@pytest.mark.parametrize("seconds", [0, 0.0, 0.05])
def test_poll_and_consume_return_nothing_after_the_timeout(
    aio_consumers: AIOFactory, topic: str, seconds: float
) -> None:
    """When the timeout expires, `poll` returns None and `consume` returns an empty list."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, RECORDS)])
        assert await consumer.poll(seconds) is None
        assert await consumer.consume(3, seconds) == []

    run(program())


def test_consume_returns_the_available_records_after_the_timeout(aio_consumers: AIOFactory, topic: str) -> None:
    """When the timeout expires, `consume` returns fewer records than requested instead of waiting for more."""

    async def program() -> int:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, RECORDS - 3)])
        found: list[Message] = []
        while len(found) < 3:
            found += await consumer.consume(100, 0.2)
        return len(found)

    assert run(program()) == 3


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("poll", ("x",), TypeError),
        ("consume", ("x",), TypeError),
        ("consume", (-1,), ValueError),
        ("subscribe", ("t",), TypeError),
        ("assign", ("t",), TypeError),
        ("commit", (1,), TypeError),
        ("seek", (None,), TypeError),
        ("list_topics", (1,), TypeError),
    ],
)
def test_aio_consumer_rejects_bad_arguments_as_consumer_does(
    aio_consumers: AIOFactory, method: str, arguments: tuple[object, ...], kind: type[Exception]
) -> None:
    """The awaited call raises the exception that the same call of `Consumer` raises."""

    async def program() -> None:
        with pytest.raises(kind):
            await getattr(aio_consumers(), method)(*arguments)

    run(program())


def test_poll_lets_other_tasks_run_while_records_are_buffered(aio_consumers: AIOFactory, topic: str) -> None:
    """A loop that only polls yields to other tasks every few milliseconds, also while the buffer has records."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, partition, 0) for partition in range(PARTITIONS)])
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await consumer.poll()
        while len(consumer._ready) < 2 * RECORDS:
            await consumer.poll(0)
            consumer._consumer._session.fetcher.fill(0.1)  # type: ignore[union-attr]
        before, left = turns, len(consumer._ready)
        for _ in range(left):
            consumer._yields_at = 0.0  # as if the last yield were long ago
            await consumer.poll()
        assert turns - before >= left
        task.cancel()

    run(program())


def test_poll_returns_no_record_after_a_loss_that_arrived_during_a_commit(
    aio_consumers: AIOFactory, topic: str
) -> None:
    """A loss that arrives while a commit waits for its response ends delivery at the next poll."""

    async def program() -> tuple[Message | None, list[int]]:
        consumer = aio_consumers()
        lost: list[int] = []

        async def on_lost(_: object, partitions: list[PartitionOffset]) -> None:
            lost.extend(partition.partition for partition in partitions)

        await consumer.subscribe([topic], on_lost=on_lost)
        await consumer.poll(0)
        consumer.member.assign({TopicPartition(topic, 0): 0})
        while not consumer._ready:
            assert await consumer.poll(30) is not None
        consumer.member.lose()
        await consumer.commit(offsets=[PartitionOffset(topic, 0, 1)], asynchronous=False)
        return await consumer.poll(0), lost

    assert run(program()) == (None, [0])


# ---- cancellation ----


def test_cancelled_polls_lose_no_record(aio_consumers: AIOFactory, topic: str) -> None:
    """Polls that are cancelled at any moment lose no record; every record is returned once, in order."""

    async def program() -> list[tuple[int | None, int | None]]:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, 0)])
        found: list[tuple[int | None, int | None]] = []
        while len(found) < RECORDS:
            polling = asyncio.ensure_future(consumer.poll())
            await asyncio.sleep(0)
            if not polling.done():
                await asyncio.wait([polling], timeout=0.001)
            if not polling.done() and polling.cancel():
                await asyncio.wait([polling])
            if not polling.cancelled():
                found.append(place(polling.result()))
        return found

    assert run(program()) == [(0, offset) for offset in range(RECORDS)]


def test_cancelled_consume_moves_neither_position_nor_commit(aio_consumers: AIOFactory, topic: str) -> None:
    """Records that no caller received count neither in the position nor in a commit."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, 0)])
        place(await consumer.poll())
        for _ in range(20):
            polling = asyncio.ensure_future(consumer.consume(1000))
            await asyncio.sleep(0)
            polling.cancel()
            await asyncio.wait([polling])
        (position,) = await consumer.position([PartitionOffset(topic, 0)])
        (committed,) = await consumer.commit(asynchronous=False) or []
        assert (position.offset, committed.offset) == (1, 1)

    run(program())


# ---- callbacks ----


def test_coroutine_callback_is_awaited_before_the_step_is_finished(aio_consumers: AIOFactory, topic: str) -> None:
    """The callback receives this consumer, may await its calls, and ends before the member's step is finished."""
    reported: list[object] = []

    async def program() -> None:
        consumer = aio_consumers()

        async def on_assign(given: AIOConsumer, partitions: list[PartitionOffset]) -> None:
            reported.append(given is consumer)
            await asyncio.sleep(0.05)
            reported.append(consumer.member.steps)
            await given.assign([PartitionOffset(one.topic, one.partition, 7) for one in partitions])
            reported.append([one.partition for one in await given.assignment()])

        await consumer.subscribe([topic], on_assign=on_assign)
        consumer.member.assign({TopicPartition(topic, 0): 0})
        assert place(await consumer.poll()) == (0, 7)
        assert [step.failed for step in consumer.member.wait_for(StepFinished)] == [False]

    run(program())
    assert reported == [True, [], [0]]


def test_plain_callback_is_called_on_the_event_loop(aio_consumers: AIOFactory, topic: str) -> None:
    """A callback that is a plain function runs on the event loop, where it may use the state of tasks."""

    async def program() -> list[object]:
        loops: list[object] = []
        consumer = aio_consumers()
        await consumer.subscribe([topic], on_assign=lambda *_: loops.append(asyncio.get_running_loop()))
        consumer.member.assign({TopicPartition(topic, 0): 0})
        await consumer.poll()
        assert loops == [asyncio.get_running_loop()]
        return loops

    run(program())


def test_commit_inside_on_revoke_reaches_the_member(aio_consumers: AIOFactory, topic: str) -> None:
    """An awaited commit inside on_revoke completes; the callback does not block the thread that the commit needs."""

    async def program() -> None:
        consumer = aio_consumers(enable_auto_commit=False)
        partition = TopicPartition(topic, 0)

        async def on_revoke(given: AIOConsumer, _: list[PartitionOffset]) -> None:
            assert await given.commit(offsets=[PartitionOffset(topic, 0, 3)], asynchronous=False)

        await consumer.subscribe([topic], on_revoke=on_revoke)
        consumer.member.assign({partition: 0})
        await consumer.poll()
        consumer.member.pause([partition])
        consumer.member.revoke([partition])
        while not consumer.member.of(CommitRequested):
            await consumer.poll(0.1)
        assert consumer.member.committed[partition].offset == 3  # type: ignore[union-attr]

    run(program())


def test_poll_raises_what_a_callback_raised_after_a_cancelled_poll(aio_consumers: AIOFactory, topic: str) -> None:
    """`poll` raises a callback's exception as in `Consumer`; if that poll was cancelled, the next poll raises it."""

    async def program() -> None:
        consumer = aio_consumers()
        entered = asyncio.Event()
        goes_on = asyncio.Event()

        async def on_assign(_: AIOConsumer, __: list[PartitionOffset]) -> None:
            entered.set()
            await goes_on.wait()
            raise LookupError("mine")

        await consumer.subscribe([topic], on_assign=on_assign)
        consumer.member.assign({TopicPartition(topic, 0): 0})
        polling = asyncio.ensure_future(consumer.poll())
        await entered.wait()
        polling.cancel()
        await asyncio.wait([polling])
        goes_on.set()
        with pytest.raises(LookupError, match="mine"):
            await _poll_for_ever(consumer)

    run(program())


def test_stats_cb_may_be_a_coroutine_function(aio_consumers: AIOFactory, topic: str) -> None:
    """`stats_cb` may be a coroutine function, and so may `error_cb` and `throttle_cb`."""

    async def program() -> None:
        reported: asyncio.Queue[str] = asyncio.Queue()
        consumer = aio_consumers(stats_cb=reported.put, statistics_interval_ms=50)
        await consumer.assign([PartitionOffset(topic, 0, RECORDS)])
        while reported.empty():
            await consumer.poll(0.1)
        assert "client_id" in await reported.get()

    run(program())


def test_on_commit_may_be_a_coroutine_function(aio_consumers: AIOFactory, topic: str) -> None:
    """The next poll awaits `on_commit` with the outcome of an asynchronous commit."""

    async def program() -> None:
        reported: list[int] = []

        async def on_commit(error: KafkaError | None, partitions: list[PartitionOffset]) -> None:
            assert error is None
            reported.extend(one.offset for one in partitions)

        consumer = aio_consumers(on_commit=on_commit)
        await consumer.assign([PartitionOffset(topic, 0, 0)])
        message = await consumer.poll()
        assert await consumer.commit(message) is None
        while not reported:
            await consumer.poll(0.05)
        assert reported == [1]
        await consumer.close()

    run(program())


def test_constructor_gets_a_token_from_a_coroutine_oauth_cb(aio_consumers: AIOFactory) -> None:
    """The constructor blocks the event loop, so a coroutine `oauth_cb` runs outside that loop."""
    asked: list[str] = []

    async def oauth_cb(config: str) -> tuple[str, float]:
        asked.append(config)
        await asyncio.sleep(0)
        return "token", 4e9

    async def program() -> None:
        keys = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        aio_consumers(oauth_cb=oauth_cb, **keys)

    run(program())
    assert asked


# ---- errors, the end ----


def refusal(code: int = 29) -> RaiseToApplication:
    """The member has no right to read the group's topic."""
    error = BrokerError(code=code, name="TOPIC_AUTHORIZATION_FAILED", message="no")
    return RaiseToApplication(problem=Problem.REFUSED, error=error)


def test_error_is_returned_by_poll_and_raised_by_iteration(aio_consumers: AIOFactory, topic: str) -> None:
    """`poll` returns an error as a message and `async for` raises it; a new iteration continues after it."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.subscribe([topic])
        consumer.member.order(refusal())
        message = await consumer.poll()
        assert message is not None
        assert message.error() is not None
        consumer.member.order(refusal())
        with pytest.raises(KafkaException) as raised:
            async for _ in consumer:
                pass
        assert raised.value.args[0].code() == 29
        consumer.member.assign({TopicPartition(topic, 0): 0})
        found = []
        async for record in consumer:
            found.append(place(record))
            if len(found) == RECORDS:
                break
        assert found == [(0, offset) for offset in range(RECORDS)]

    run(program())


def test_close_ends_waiting_polls_and_iterations(aio_consumers: AIOFactory, topic: str) -> None:
    """`close` makes a waiting poll return None, ends an iteration and awaits on_revoke.

    Later calls raise RuntimeError.
    """

    async def program() -> None:
        reported: list[int] = []

        async def on_revoke(_: AIOConsumer, partitions: list[PartitionOffset]) -> None:
            await asyncio.sleep(0.01)
            reported.append(len(partitions))

        async with aio_consumers() as consumer:
            await consumer.subscribe([topic], on_revoke=on_revoke)
            consumer.member.assign({TopicPartition(topic, 0): RECORDS})
            assert await consumer.poll(0.1) is None
            await consumer.commit(
                offsets=[PartitionOffset(topic, 0, 1)], asynchronous=False
            )  # the member has sent a request
            polling = asyncio.ensure_future(consumer.poll())
            iteration = asyncio.ensure_future(_count(consumer))
            await asyncio.sleep(0)
            consumer.member.farewell = list(FAREWELL)
            await consumer.close()
            assert await polling is None
            assert await iteration == 0
        assert reported == [1]
        for call in (consumer.poll, consumer.assignment, consumer.unsubscribe):
            with pytest.raises(RuntimeError, match="Consumer closed"):
                await call()

    run(program())


async def _poll_for_ever(consumer: AIOConsumer) -> None:
    while True:
        await consumer.poll(0.05)


async def _count(consumer: AIOConsumer) -> int:
    return len([record async for record in consumer])


def test_on_revoke_of_close_may_commit(aio_consumers: AIOFactory, topic: str) -> None:
    """As in `Consumer`, the member stays in its group until the on_revoke callback of `close` has ended."""

    async def program() -> None:
        consumer = aio_consumers(enable_auto_commit=False)
        partition = TopicPartition(topic, 0)

        async def on_revoke(given: AIOConsumer, partitions: list[PartitionOffset]) -> None:
            assert (
                await given.commit(offsets=[PartitionOffset(one.topic, one.partition, 5) for one in partitions]) is None
            )
            assert await given.commit(
                offsets=[PartitionOffset(one.topic, one.partition, 7) for one in partitions], asynchronous=False
            )

        await consumer.subscribe([topic], on_revoke=on_revoke)
        consumer.member.assign({partition: 0})
        await consumer.commit(await consumer.poll(), asynchronous=False)
        consumer.member.farewell = list(FAREWELL)
        await consumer.close()
        assert consumer.member.committed[partition].offset == 7  # type: ignore[union-attr]

    run(program())


def test_polling_task_ends_while_the_consumer_closes(aio_consumers: AIOFactory, topic: str) -> None:
    """A task that polls in a loop does not block `close`; its polls return None and then raise RuntimeError."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.subscribe([topic])
        consumer.member.assign({TopicPartition(topic, 0): RECORDS})
        polling = asyncio.ensure_future(_poll_for_ever(consumer))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await polling

    run(program())


def test_close_may_be_awaited_by_two_tasks(aio_consumers: AIOFactory) -> None:
    """Two concurrent `close` calls wait for the same end; a later call returns as a second `Consumer.close` does."""

    async def program() -> None:
        consumer = aio_consumers()
        await asyncio.gather(consumer.close(), consumer.close())
        await consumer.close()

    run(program())


def test_cancelled_close_still_leaves_the_group(aio_consumers: AIOFactory, topic: str) -> None:
    """Cancelling `close` does not stop it: the member still leaves its group."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.subscribe([topic])
        closing = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await consumer.close()
        assert consumer.member.is_stopped

    run(program())


def test_dump_writes_a_recording_also_after_close(tmp_path: Path) -> None:
    """`dump` writes into a folder, also after `close`, and raises the OSError to its caller."""

    async def program() -> None:
        consumer = AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        path = await consumer.dump(tmp_path)
        assert read(path).settings.group_id == "g"
        with pytest.raises(OSError, match="No such file"):
            await consumer.dump(tmp_path / "no" / "where")
        await consumer.close()
        assert (await consumer.dump(tmp_path / "closed")) == tmp_path / "closed"

    run(program())


def test_constructor_requires_a_running_loop_and_valid_arguments() -> None:
    """The constructor raises without a running event loop, and names the invalid argument or configuration key."""
    with pytest.raises(RuntimeError, match="no running event loop"):
        AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})

    async def program() -> None:
        with pytest.raises(ValueError, match="max_workers must be at least 1"):
            AIOConsumer({"group.id": "g"}, max_workers=0)
        with pytest.raises(ConfigurationError, match=r"group\.instance\.id"):
            AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.instance.id": "x" * 40_000})

    run(program())


# ---- events ---------------------------------------------------------------------------------------------------------


def test_on_event_callbacks_run_on_the_loop_in_order(aio_consumers: AIOFactory, topic: str) -> None:
    """Functions and coroutine functions receive the events in order during a poll; a callback may await `close`."""
    reported: list[str] = []

    async def program() -> None:
        loop, consumer, is_over = asyncio.get_running_loop(), aio_consumers(), asyncio.Event()

        async def hear(event: LifecycleEvent) -> None:
            assert asyncio.get_running_loop() is loop
            reported.append(f"{event.kind.value} begins")
            await asyncio.sleep(0)
            if event.kind is LifecycleKind.REVOKED:
                await consumer.close()
            reported.append(f"{event.kind.value} ends")

        def note(event: LifecycleEvent) -> None:
            reported.append(event.kind.value)
            if event.kind is LifecycleKind.CLOSED:
                is_over.set()

        consumer.on_event(hear)
        consumer.on_event(note)
        poll = loop.create_task(consumer.poll())
        await asyncio.sleep(0)
        consumer.member.happens(owned={TopicPartition(topic, 0): 1})
        consumer.member.happens(owned={})
        await is_over.wait()
        assert await poll is None

    run(program())
    assert reported[:3] == ["assigned begins", "assigned ends", "assigned"]
    assert reported[3:6] == ["revoked begins", "revoked ends", "revoked"]
    assert reported[6:] == ["closed begins", "closed ends", "closed"]


def test_on_event_logs_nothing_for_events_after_the_loop_ended(
    aio_consumers: AIOFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Callbacks that the loop cancels at its end, and events after that end, are not logged."""
    made: list[ScriptedAIOConsumer] = []

    async def program() -> None:
        consumer, is_heard = aio_consumers(), asyncio.Event()
        made.append(consumer)

        async def hear(_: LifecycleEvent) -> None:
            is_heard.set()
            await asyncio.Event().wait()

        consumer.on_event(hear)
        consumer.member.happens(owned={TopicPartition("t", 0): 1})
        await is_heard.wait()

    run(program())
    (consumer,) = made
    consumer.member.happens(owned={})
    teller = next(thread for thread in threading.enumerate() if thread.name == "membership events")
    consumer._consumer.close()
    teller.join(60.0)
    assert not teller.is_alive()
    assert caplog.text == ""


def test_on_event_callback_that_raises_is_logged(aio_consumers: AIOFactory, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of a callback is logged as in `Consumer`, and the callback is called again for the next event."""

    async def program() -> None:
        consumer, is_over = aio_consumers(), asyncio.Event()

        async def fail(event: LifecycleEvent) -> None:
            if event.kind is LifecycleKind.CLOSED:
                is_over.set()
            raise RuntimeError("the application's")

        consumer.on_event(fail)
        consumer.member.happens(owned={TopicPartition("t", 0): 1})
        await consumer.close()
        await is_over.wait()

    run(program())
    assert "A callback of on_event raised an exception at the event 'assigned' (1 times in all)" in caplog.text


def test_on_event_rejects_an_argument_that_is_not_callable(aio_consumers: AIOFactory) -> None:
    """`on_event` raises TypeError for an argument that is not callable, as in `Consumer`."""

    async def program() -> None:
        consumer = aio_consumers()
        with pytest.raises(TypeError, match="on_event expects a callable"):
            consumer.on_event(None)  # type: ignore[arg-type]

    run(program())
