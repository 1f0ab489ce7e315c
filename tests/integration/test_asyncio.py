"""`AIOConsumer` in a group on a real broker, beside confluent-kafka's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.aio import AIOConsumer as RawAIOConsumer
from confluent_kafka.serialization import StringDeserializer

from consumer_membership.aio import AIOConsumer, AsyncDeserializingConsumer
from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from tests.aio.programs import run
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, async_wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = 6


@pytest.fixture
def quick_broker(broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions end within a test."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


def settings(broker: Broker, group: str, **more: object) -> dict[str, Any]:
    """The settings of a member that reads from the beginning."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 200,
        "log_level": 0,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


class Member:
    """A program as users write it: a task that polls, and callbacks that are coroutine functions."""

    def __init__(self, kind: type[RawAIOConsumer], config: dict[str, Any], topic: str) -> None:
        self.consumer = kind(config)
        self.calls: list[tuple[str, int]] = []
        self.mine: list[int] = []
        self.records: list[tuple[int | None, int | None]] = []
        self._topic = topic

    async def work(self) -> None:
        """Subscribe and poll until cancelled."""
        await self.consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        while True:
            message = await self.consumer.poll(0.2)
            if not message:
                continue
            if message.error():
                raise KafkaException(message.error())
            self.records.append((message.partition(), message.offset()))

    async def _assigned(self, consumer: RawAIOConsumer, partitions: list[Partition]) -> None:
        assert consumer is self.consumer
        await asyncio.sleep(0)
        self.mine = [one.partition for one in partitions]
        self.calls.append(("assign", len(partitions)))

    async def _revoked(self, consumer: RawAIOConsumer, partitions: list[Partition]) -> None:
        assert {one.partition for one in await consumer.assignment()} >= {one.partition for one in partitions}
        self.calls.append(("revoke", len(partitions)))


async def scale_out_and_in(kind: type[RawAIOConsumer], broker: Broker, topic: str) -> dict[str, object]:
    """Run two members, of which the second joins and leaves while records arrive.

    Return their callbacks and records.
    """
    group = unique("group")
    first, second = (Member(kind, settings(broker, group), topic) for _ in range(2))
    tasks = [asyncio.create_task(first.work())]
    await async_wait_until(
        lambda: len(first.mine) == PARTITIONS and len(first.records) == 10 * PARTITIONS, "the records with the first"
    )
    tasks.append(asyncio.create_task(second.work()))
    await async_wait_until(lambda: (len(first.mine), len(second.mine)) == (3, 3), "three partitions each")
    produce(broker.bootstrap_servers, topic, 10 * PARTITIONS)
    await async_wait_until(lambda: len(first.records) + len(second.records) == 20 * PARTITIONS, "the records with both")
    tasks[1].cancel()
    await asyncio.wait(tasks[1:])
    await second.consumer.close()
    await async_wait_until(lambda: len(first.mine) == PARTITIONS, "all partitions with the first")
    tasks[0].cancel()
    await asyncio.wait(tasks)
    await first.consumer.close()
    everything = sorted(first.records + second.records)
    calls = [[call for call in member.calls if call[1]] for member in (first, second)]
    return {"calls": calls, "records": len(everything), "different": len(set(everything))}


def test_aio_members_get_the_callbacks_and_records_of_confluent_kafka(quick_broker: Broker) -> None:
    """Both clients call the same callbacks for a join and a clean leave and return each record once."""
    found = []
    for kind in (RawAIOConsumer, AIOConsumer):
        topic = create_topic(quick_broker.bootstrap_servers, unique("topic"), PARTITIONS)
        produce(quick_broker.bootstrap_servers, topic, 10 * PARTITIONS)
        found.append(run(scale_out_and_in(kind, quick_broker, topic)))
    assert found[0] == found[1]
    assert found[1]["records"] == found[1]["different"] == 20 * PARTITIONS


def shape(value: object) -> object:
    """A result in a form that can be compared."""
    match value:
        case Partition():
            return (value.partition, value.offset, value.error is None)
        case Message():
            return (value.partition(), value.offset(), value.value())
        case list():
            return [shape(one) for one in value]
        case bytes():
            return "bytes"
        case KafkaException():
            return ("KafkaException", value.args[0].name())
        case Exception():
            return type(value).__mro__[-3].__name__ if isinstance(value, RuntimeError) else type(value).__name__
        case _ if hasattr(value, "topics"):
            return "metadata"
        case _:
            return value


async def outcome(call: Coroutine[Any, Any, object]) -> object:
    """The outcome of a call."""
    try:
        return shape(await call)
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return shape(error)


async def all_verbs(kind: type[RawAIOConsumer], broker: Broker, topic: str) -> list[object]:
    """Call each method once, in a realistic order."""
    place = Partition(topic, 0)
    found: list[object] = []
    async with kind(settings(broker, unique("group"), enable_auto_commit=False)) as consumer:
        await consumer.assign([Partition(topic, 0, 0)])
        records: list[Message] = []
        while len(records) < 3:
            records += await consumer.consume(3 - len(records), 5)
        found += [
            shape(records),
            await outcome(consumer.assignment()),
            await outcome(consumer.position([place])),
            await outcome(consumer.commit(records[-1], asynchronous=False)),
            await outcome(consumer.commit(offsets=[Partition(topic, 0, 2)])),
            await outcome(consumer.commit(offsets=[Partition(topic, 0, 3)], asynchronous=False)),
            await outcome(consumer.committed([place], timeout=PATIENCE_S)),
            await outcome(consumer.get_watermark_offsets(place, timeout=PATIENCE_S)),
            await outcome(consumer.offsets_for_times([Partition(topic, 0, 0)], timeout=PATIENCE_S)),
            await outcome(consumer.list_topics(topic, timeout=PATIENCE_S)),
            await outcome(consumer.pause([place])),
            await outcome(consumer.poll(0.1)),
            await outcome(consumer.resume([place])),
            await outcome(consumer.seek(Partition(topic, 0, 1))),
            await outcome(consumer.poll(PATIENCE_S)),
            await outcome(consumer.incremental_assign([Partition(topic, 1, 0)])),
            await outcome(consumer.incremental_unassign([Partition(topic, 1)])),
            await outcome(consumer.store_offsets(offsets=[place])),
            await outcome(consumer.consumer_group_metadata()),
            await outcome(consumer.unassign()),
            await outcome(consumer.poll("x")),
            await outcome(consumer.consume(-1)),
            await outcome(consumer.subscribe("t")),
            await outcome(consumer.seek(Partition(topic, 5, 1))),
        ]
    return [*found, await outcome(consumer.poll(1)), await outcome(consumer.close())]


def test_aio_methods_return_and_raise_what_confluent_kafka_does(quick_broker: Broker) -> None:
    """Each `AIOConsumer` method returns the result or raises the exception of confluent-kafka's method."""
    topic = create_topic(quick_broker.bootstrap_servers, unique("topic"), PARTITIONS)
    produce(quick_broker.bootstrap_servers, topic, 10 * PARTITIONS)
    raw, ours = (run(all_verbs(kind, quick_broker, topic)) for kind in (RawAIOConsumer, AIOConsumer))
    assert ours[:-1] == raw[:-1]
    # confluent-kafka refuses a second close; here it does nothing, as in `Consumer`.
    assert ours[-1] is None


def test_blocked_event_loop_does_not_end_the_membership(quick_broker: Broker) -> None:
    """Heartbeats continue while a task blocks the event loop for two sessions, and the member keeps its partitions."""

    async def program() -> None:
        topic = create_topic(quick_broker.bootstrap_servers, unique("topic"), PARTITIONS)
        async with AIOConsumer(settings(quick_broker, unique("group"))) as consumer:
            await consumer.subscribe([topic])
            while consumer.membership().state is not MemberState.STABLE:
                await consumer.poll(0.1)
            waiting = asyncio.ensure_future(consumer.poll())
            await asyncio.sleep(0)
            until = time.monotonic() + 12  # two sessions
            while (consumer.membership().last_heartbeat_at or 0) < until:
                time.sleep(0.05)  # noqa: ASYNC251 - to block the loop is what this is about
            out = {MemberState.FENCED, MemberState.STALE, MemberState.FATAL}
            assert not out & {transition.new for transition in consumer.membership().transitions}
            assert len(await consumer.assignment()) == PARTITIONS
            produce(quick_broker.bootstrap_servers, topic, 1)
            message = await waiting
            assert message is not None
            assert message.error() is None

    run(program())


def test_aio_deserializing_consumer_uses_this_package_s_consumer(quick_broker: Broker) -> None:
    """confluent-kafka's deserializing class wraps this package's consumer, so it has a membership."""

    async def program() -> None:
        topic = create_topic(quick_broker.bootstrap_servers, unique("topic"), 1)
        produce(quick_broker.bootstrap_servers, topic, 1)
        config = settings(quick_broker, unique("group")) | {"value.deserializer": StringDeserializer("utf_8")}
        consumer = await AsyncDeserializingConsumer(config)
        assert isinstance(consumer, AIOConsumer)
        await consumer.subscribe([topic])
        message = await consumer.poll(PATIENCE_S)
        assert message is not None
        assert isinstance(message.deserialized_value(), str)
        assert consumer.membership().group_id == config["group.id"]
        await consumer.close()

    run(program())


def test_async_iteration_returns_all_records_and_ends_with_close(quick_broker: Broker) -> None:
    """`async for` in one task returns all records and ends when another task calls `close`."""

    async def program() -> None:
        topic = create_topic(quick_broker.bootstrap_servers, unique("topic"), PARTITIONS)
        produce(quick_broker.bootstrap_servers, topic, 10 * PARTITIONS)
        consumer = AIOConsumer(settings(quick_broker, unique("group")))
        await consumer.subscribe([topic])
        found: list[tuple[int | None, int | None]] = []

        async def read() -> None:
            async for message in consumer:
                found.append((message.partition(), message.offset()))  # noqa: PERF401 - it has no end of its own

        reading = asyncio.create_task(read())
        await async_wait_until(lambda: len(found) == 10 * PARTITIONS, "the records")
        await consumer.close()
        await reading
        assert len(set(found)) == 10 * PARTITIONS

    run(program())


def test_async_iteration_raises_the_fatal_error(quick_broker: Broker) -> None:
    """An iteration raises the broker's own error code after another process has taken over the instance id."""

    async def program() -> None:
        topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 1), unique("group")
        first = AIOConsumer(settings(quick_broker, group, group_instance_id="one"))
        await first.subscribe([topic])

        async def read() -> None:
            async for _ in first:
                pass

        reading = asyncio.create_task(read())
        await async_wait_until(lambda: first.membership().state is MemberState.STABLE, "STABLE", seen=first.membership)
        async with AIOConsumer(settings(quick_broker, group, group_instance_id="one")) as second:
            await second.subscribe([topic])
            polling = asyncio.ensure_future(second.poll())
            with pytest.raises(KafkaException) as raised:
                await reading
            assert (raised.value.args[0].code(), raised.value.args[0].fatal()) == (
                KafkaError.FENCED_INSTANCE_ID,
                True,
            )
            polling.cancel()
        await first.close()

    run(program())
