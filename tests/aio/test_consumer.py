"""`AIOConsumer` over a member that the test plays: what it hands out, what it waits for, what a cancellation leaves."""

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

#: What a member orders when its application leaves.
FAREWELL = (PausePartitions(attempt=9, partitions=None), RevokePartitions(attempt=9, partitions=None))

# ---- polling ----


def test_records_come_one_by_one_and_in_batches(aio_consumers: AIOFactory, topic: str) -> None:
    """As from `Consumer`: in order, and nothing is left out between the two ways."""

    async def program() -> list[tuple[int | None, int | None]]:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, 0)])
        found = [place(await consumer.poll()) for _ in range(5)]
        found += [place(message) for message in await consumer.consume(10, 30)]
        return [*found, place(await consumer.poll(30))]

    assert run(program()) == [(0, offset) for offset in range(16)]


@pytest.mark.parametrize("seconds", [0, 0.0, 0.05])
def test_none_when_the_time_is_over(aio_consumers: AIOFactory, topic: str, seconds: float) -> None:
    """And an empty list."""

    async def program() -> None:
        consumer = aio_consumers()
        await consumer.assign([PartitionOffset(topic, 0, RECORDS)])
        assert await consumer.poll(seconds) is None
        assert await consumer.consume(3, seconds) == []

    run(program())


def test_consume_gives_what_there_is_when_the_time_is_over(aio_consumers: AIOFactory, topic: str) -> None:
    """Fewer than were asked for."""

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
def test_bad_arguments_are_refused_as_by_consumer(
    aio_consumers: AIOFactory, method: str, arguments: tuple[object, ...], kind: type[Exception]
) -> None:
    """The exception comes out of the await."""

    async def program() -> None:
        with pytest.raises(kind):
            await getattr(aio_consumers(), method)(*arguments)

    run(program())


def test_other_tasks_run_while_records_flow(aio_consumers: AIOFactory, topic: str) -> None:
    """A loop that only polls lets others run: every few milliseconds, not when the buffer is empty."""

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
            consumer._yields_at = 0.0  # as if each took its time
            await consumer.poll()
        assert turns - before >= left
        task.cancel()

    run(program())


def test_poll_after_an_awaited_commit_obeys_what_the_commit_learned(aio_consumers: AIOFactory, topic: str) -> None:
    """A loss that arrives while a commit waits for its answer ends delivery at the next poll."""

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


def test_cancelled_polls_lose_nothing(aio_consumers: AIOFactory, topic: str) -> None:
    """Each is cancelled after no time at all, whether a record was on its way to it or not; all come, in order."""

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


def test_cancelled_poll_consumes_nothing(aio_consumers: AIOFactory, topic: str) -> None:
    """What nobody got is neither in the position nor in a commit."""

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
    """It gets this very consumer, and may await its calls."""
    told: list[object] = []

    async def program() -> None:
        consumer = aio_consumers()

        async def on_assign(given: AIOConsumer, partitions: list[PartitionOffset]) -> None:
            told.append(given is consumer)
            await asyncio.sleep(0.05)
            told.append(consumer.member.steps)
            await given.assign([PartitionOffset(one.topic, one.partition, 7) for one in partitions])
            told.append([one.partition for one in await given.assignment()])

        await consumer.subscribe([topic], on_assign=on_assign)
        consumer.member.assign({TopicPartition(topic, 0): 0})
        assert place(await consumer.poll()) == (0, 7)
        assert [step.failed for step in consumer.member.wait_for(StepFinished)] == [False]

    run(program())
    assert told == [True, [], [0]]


def test_functions_are_called_on_the_loop(aio_consumers: AIOFactory, topic: str) -> None:
    """Where they may touch what tasks touch; their arguments are the same."""

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
    """An awaited one: its thread waits for nobody who waits for it."""

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


def test_what_a_callback_raises_comes_out_of_poll(aio_consumers: AIOFactory, topic: str) -> None:
    """As with `Consumer`; and a poll that was cancelled meanwhile leaves it to the next one."""

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


def test_reports_of_librdkafka_reach_coroutines(aio_consumers: AIOFactory, topic: str) -> None:
    """`stats_cb`; likewise `error_cb` and `throttle_cb`."""

    async def program() -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        consumer = aio_consumers(stats_cb=told.put, statistics_interval_ms=50)
        await consumer.assign([PartitionOffset(topic, 0, RECORDS)])
        while told.empty():
            await consumer.poll(0.1)
        assert "client_id" in await told.get()

    run(program())


def test_commits_outcome_reaches_a_coroutine(aio_consumers: AIOFactory, topic: str) -> None:
    """`on_commit` of an asynchronous commit, called by the next poll."""

    async def program() -> None:
        told: list[int] = []

        async def on_commit(error: KafkaError | None, partitions: list[PartitionOffset]) -> None:
            assert error is None
            told.extend(one.offset for one in partitions)

        consumer = aio_consumers(on_commit=on_commit)
        await consumer.assign([PartitionOffset(topic, 0, 0)])
        message = await consumer.poll()
        assert await consumer.commit(message) is None
        while not told:
            await consumer.poll(0.05)
        assert told == [1]
        await consumer.close()

    run(program())


def test_token_of_a_coroutine_is_there_for_the_constructor(aio_consumers: AIOFactory) -> None:
    """The loop itself waits for the constructor, so that the coroutine runs elsewhere."""
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
    """The group is forbidden."""
    error = BrokerError(code=code, name="TOPIC_AUTHORIZATION_FAILED", message="no")
    return RaiseToApplication(problem=Problem.REFUSED, error=error)


def test_error_is_a_message_and_ends_an_iteration(aio_consumers: AIOFactory, topic: str) -> None:
    """`poll` returns it, `async for` raises it; another iteration goes on behind it."""

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


def test_close_ends_what_waits(aio_consumers: AIOFactory, topic: str) -> None:
    """An awaited poll gets None, an iteration ends, on_revoke is awaited, and everything is refused afterwards."""

    async def program() -> None:
        told: list[int] = []

        async def on_revoke(_: AIOConsumer, partitions: list[PartitionOffset]) -> None:
            await asyncio.sleep(0.01)
            told.append(len(partitions))

        async with aio_consumers() as consumer:
            await consumer.subscribe([topic], on_revoke=on_revoke)
            consumer.member.assign({TopicPartition(topic, 0): RECORDS})
            assert await consumer.poll(0.1) is None
            await consumer.commit(
                offsets=[PartitionOffset(topic, 0, 1)], asynchronous=False
            )  # a member that said something
            polling = asyncio.ensure_future(consumer.poll())
            iteration = asyncio.ensure_future(_count(consumer))
            await asyncio.sleep(0)
            consumer.member.farewell = list(FAREWELL)
            await consumer.close()
            assert await polling is None
            assert await iteration == 0
        assert told == [1]
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
    """As that of `Consumer`: the member is in its group until the callback has ended."""

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


def test_polls_while_it_closes_come_to_an_end(aio_consumers: AIOFactory, topic: str) -> None:
    """A task that polls again and again lets the close go on, gets nothing, and then the word that it is closed."""

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


def test_close_at_once_from_two_tasks(aio_consumers: AIOFactory) -> None:
    """Both await the same end; a third one comes after it, as a second close of `Consumer` does."""

    async def program() -> None:
        consumer = aio_consumers()
        await asyncio.gather(consumer.close(), consumer.close())
        await consumer.close()

    run(program())


def test_cancelled_close_goes_on(aio_consumers: AIOFactory, topic: str) -> None:
    """The group is left in good order all the same."""

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


def test_recording_is_written_beside_the_loop(tmp_path: Path) -> None:
    """Into a folder, and after close, too; what stands in the way is raised where it was asked for."""

    async def program() -> None:
        consumer = AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        path = await consumer.dump(tmp_path)
        assert read(path).settings.group_id == "g"
        with pytest.raises(OSError, match="No such file"):
            await consumer.dump(tmp_path / "no" / "where")
        await consumer.close()
        assert (await consumer.dump(tmp_path / "closed")) == tmp_path / "closed"

    run(program())


def test_constructor_needs_a_loop_and_checks_what_it_takes() -> None:
    """And names what is wrong with the configuration."""
    with pytest.raises(RuntimeError, match="no running event loop"):
        AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})

    async def program() -> None:
        with pytest.raises(ValueError, match="max_workers must be at least 1"):
            AIOConsumer({"group.id": "g"}, max_workers=0)
        with pytest.raises(ConfigurationError, match=r"group\.instance\.id"):
            AIOConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.instance.id": "x" * 40_000})

    run(program())


# ---- events ---------------------------------------------------------------------------------------------------------


def test_events_are_told_on_the_loop_one_after_the_other(aio_consumers: AIOFactory, topic: str) -> None:
    """To coroutine functions and functions, in order, while polls are awaited; `close` may be awaited inside."""
    told: list[str] = []

    async def program() -> None:
        loop, consumer, is_over = asyncio.get_running_loop(), aio_consumers(), asyncio.Event()

        async def hear(event: LifecycleEvent) -> None:
            assert asyncio.get_running_loop() is loop
            told.append(f"{event.kind.value} begins")
            await asyncio.sleep(0)
            if event.kind is LifecycleKind.REVOKED:
                await consumer.close()
            told.append(f"{event.kind.value} ends")
            if event.kind is LifecycleKind.CLOSED:
                is_over.set()

        consumer.on_event(hear)
        consumer.on_event(lambda event: told.append(event.kind.value))
        poll = loop.create_task(consumer.poll())
        await asyncio.sleep(0)
        consumer.member.happens(owned={TopicPartition(topic, 0): 1})
        consumer.member.happens(owned={})
        await is_over.wait()
        assert await poll is None

    run(program())
    assert told[:3] == ["assigned begins", "assigned ends", "assigned"]
    assert told[3:6] == ["revoked begins", "revoked ends", "revoked"]
    assert told[6:8] == ["closed begins", "closed ends"]


def test_events_that_a_loop_leaves_behind_are_not_worth_a_word(
    aio_consumers: AIOFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """What it cancels at its end, and what happens afterwards; what a callback raises is."""
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


def test_what_an_event_callback_raises_is_logged(aio_consumers: AIOFactory, caplog: pytest.LogCaptureFixture) -> None:
    """As of `Consumer`'s: the next one is called again."""

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
    assert "A callback of on_event raised at the event 'assigned', 1 times by now" in caplog.text


def test_only_what_can_be_called_is_told_of_events(aio_consumers: AIOFactory) -> None:
    """As in `Consumer`."""

    async def program() -> None:
        consumer = aio_consumers()
        with pytest.raises(TypeError, match="on_event expects a callable"):
            consumer.on_event(None)  # type: ignore[arg-type]

    run(program())
