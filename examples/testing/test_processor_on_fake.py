import pytest
from tenacity import Retrying, stop_after_attempt, wait_fixed

from consumer_membership import Message
from consumer_membership.processing import Processor
from consumer_membership.testing import FakeCluster


@pytest.fixture
def config(cluster: FakeCluster) -> dict[str, object]:
    cluster.create_topic("orders", 2)
    return {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}


def test_failed_record_is_tried_again_after_a_minute(cluster: FakeCluster, config: dict[str, object]) -> None:
    attempts: list[float] = []

    def handle(_: Message) -> None:
        attempts.append(cluster.now())
        if len(attempts) < 3:
            raise ConnectionError("the database is down")

    cluster.deliver("orders", "42")
    retry = Retrying(wait=wait_fixed(60), stop=stop_after_attempt(5))
    with Processor(config, ["orders"], handle, retry=retry) as processor:
        cluster.start(processor.run)
        cluster.advance(130)
        first, second, third = attempts
        assert (second - first, third - second) == (60, 60)
        assert cluster.committed("billing") == {("orders", 0): 1}


def test_second_instance_takes_over_without_repetitions(cluster: FakeCluster, config: dict[str, object]) -> None:
    handled: list[bytes] = []

    def handle(message: Message) -> None:
        cluster.advance(10)  # this handler takes 10 seconds
        handled.append(message.value())

    for value in range(20):
        cluster.deliver("orders", str(value))
    with Processor(config, ["orders"], handle) as first, Processor(config, ["orders"], handle) as second:
        cluster.start(first.run)
        cluster.advance(15)
        cluster.start(second.run)
        cluster.advance(200)
        assert [len(member.partitions) for member in cluster.members("billing")] == [1, 1]
    assert sorted(map(int, handled)) == list(range(20))


def test_running_handler_ends_before_the_processor(cluster: FakeCluster, config: dict[str, object]) -> None:
    def handle(_: Message) -> None:
        cluster.advance(20)

    cluster.deliver("orders", "42")
    with Processor(config, ["orders"], handle) as processor:
        running = cluster.start(processor.run)
        cluster.advance(5)
    running.result()
    assert cluster.committed("billing") == {("orders", 0): 1}
