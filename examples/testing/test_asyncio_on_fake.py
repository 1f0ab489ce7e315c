import asyncio

from consumer_membership import TopicPartition
from consumer_membership.aio import AIOConsumer
from consumer_membership.testing import FakeCluster


def test_loop_receives_a_record_of_the_next_hour(cluster: FakeCluster) -> None:
    warmed: list[float] = []

    async def warm_up(_: AIOConsumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(30 * len(partitions))  # the cache of each partition takes half a minute
        warmed.append(cluster.now())

    async def write_later() -> None:
        await asyncio.sleep(3600)
        cluster.deliver("orders", "42")

    async def main() -> bytes:
        config = {"group.id": "billing", "auto.offset.reset": "earliest"}
        async with cluster.aio_consumer(config) as consumer, asyncio.TaskGroup() as tasks:
            await consumer.subscribe(["orders"], on_assign=warm_up)
            tasks.create_task(write_later())
            message = await consumer.poll(7200)
            await consumer.commit(message, asynchronous=False)
            return message.value()

    cluster.create_topic("orders", 2)
    assert cluster.run(main()) == b"42"
    assert 60 <= warmed[0] < 70
    assert set(cluster.committed("billing").values()) == {1}
