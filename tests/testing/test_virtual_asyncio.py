"""`AIOConsumer` and `AIOGroupMember` on the virtual time of a `FakeCluster`: their waits take no real time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, TopicPartition

from consumer_membership.aio import AIOConsumer, AIOGroupMember
from consumer_membership.errors import UseError
from consumer_membership.testing import FakeCluster

GROUP = "billing"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Start a cluster with virtual time and one topic."""
    with FakeCluster() as cluster, cluster.installed():
        cluster.create_topic("orders", 2)
        yield cluster


def config(cluster: FakeCluster) -> dict[str, object]:
    """Return the configuration of an application."""
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "group.protocol": "consumer",
    }


def value_of(message: Message | None) -> object:
    """Return the value of a record."""
    assert message is not None
    assert message.error() is None
    return message.value()


def test_poll_waits_in_virtual_time_until_a_task_delivers_a_record(cluster: FakeCluster) -> None:
    """Other tasks of the event loop run while a poll waits."""

    async def deliver_later() -> None:
        await asyncio.sleep(600)
        cluster.deliver("orders", "late")

    async def main() -> float:
        async with AIOConsumer(config(cluster)) as consumer:
            await consumer.subscribe(["orders"])
            assert await consumer.poll(5) is None
            delivering = asyncio.create_task(deliver_later())
            assert value_of(await consumer.poll(3600)) == b"late"
            ended_at = cluster.now()
            await delivering
            await consumer.commit(asynchronous=False)
            return ended_at

    assert cluster.run(main()) == pytest.approx(605, abs=2)
    assert set(cluster.committed(GROUP).values()) == {1}


def test_coroutine_callbacks_sleep_in_virtual_time(cluster: FakeCluster) -> None:
    """A callback may await: the poll that calls it waits, and the heartbeats continue."""
    called: list[tuple[str, int]] = []

    async def on_assign(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(100)
        assert len(await consumer.committed(partitions, timeout=10)) == len(partitions)
        called.append(("assign", len(partitions)))

    async def on_revoke(_: AIOConsumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(10)
        called.append(("revoke", len(partitions)))

    async def on_lost(_: AIOConsumer, partitions: list[TopicPartition]) -> None:
        called.append(("lost", len(partitions)))

    async def main() -> None:
        cluster.deliver("orders", "one")
        async with AIOConsumer(config(cluster)) as consumer:
            await consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
            assert value_of(await consumer.poll(300)) == b"one"

    cluster.run(main())
    assert called == [("assign", 2), ("revoke", 2)]
    assert cluster.now() < 400


def test_cancelled_poll_loses_no_record(cluster: FakeCluster) -> None:
    """`asyncio.timeout` ends a poll in virtual time, and the next poll returns the record."""

    async def main() -> object:
        async with AIOConsumer(config(cluster)) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await consumer.poll()
            cluster.deliver("orders", "one")
            return value_of(await consumer.poll(60))

    assert cluster.run(main()) == b"one"


def test_members_of_several_tasks_share_the_partitions(cluster: FakeCluster) -> None:
    """Five tasks poll at the same time, each with its own consumer."""

    async def read(consumer: AIOConsumer, values: list[object]) -> None:
        await consumer.subscribe(["wide"])
        while (message := await consumer.poll(120)) is not None:
            values.append(value_of(message))
        await consumer.close()

    async def main() -> list[object]:
        values: list[object] = []
        consumers = [AIOConsumer(config(cluster)) for _ in range(5)]
        async with asyncio.TaskGroup() as tasks:
            for consumer in consumers:
                tasks.create_task(read(consumer, values))
            await asyncio.sleep(60)
            for number in range(5):
                cluster.deliver("wide", str(number), partition=number)
        return values

    cluster.create_topic("wide", 5)
    assert set(cluster.run(main())) == {b"0", b"1", b"2", b"3", b"4"}


def test_group_member_awaits_its_partitions_in_virtual_time(cluster: FakeCluster) -> None:
    """`AIOGroupMember` waits on the event loop of the cluster, and its callbacks may await."""
    owned: list[int] = []

    async def on_assign(_: AIOGroupMember, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(30)
        owned.extend(partition.partition for partition in partitions)

    async def main() -> None:
        async with AIOGroupMember(config(cluster)) as member:
            await member.subscribe(["orders"], on_assign=on_assign)
            assert await member.poll(60)
            assert not await member.poll(60)

    cluster.run(main())
    assert sorted(owned) == [0, 1]


@pytest.mark.parametrize("kind", [AIOConsumer, AIOGroupMember])
def test_event_loop_on_real_time_is_refused(cluster: FakeCluster, kind: type[AIOConsumer | AIOGroupMember]) -> None:
    """The error names the alternatives, because the loop would wait in real time."""

    async def main() -> None:
        client = kind(config(cluster))
        await client.subscribe(["orders"])
        await client.poll(5)

    with pytest.raises(UseError, match=r"cluster\.run\(coroutine\)"):
        asyncio.run(main())
