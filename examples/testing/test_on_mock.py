import threading
from uuid import uuid4

import pytest
from orders import run

from consumer_membership import Consumer, Message, Producer, TopicPartition


def produce(servers: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value=str(value), partition=0)
    producer.flush()


def committed(config: dict[str, object], topic: str) -> int:
    with Consumer(config) as consumer:
        (partition,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        return partition.offset


def test_run_commits_every_handled_record(mock_servers: str, stopping: threading.Event) -> None:
    topic = f"orders-{uuid4()}"
    config = {"bootstrap.servers": mock_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    produce(mock_servers, topic, range(10))
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.value())
        if len(seen) == 10:
            stopping.set()

    run(config, topic, handle, stopping)
    assert seen == [str(value).encode() for value in range(10)]
    assert committed(config, topic) == 10


def test_run_does_not_commit_the_record_whose_handler_raised(mock_servers: str, stopping: threading.Event) -> None:
    topic = f"orders-{uuid4()}"
    config = {"bootstrap.servers": mock_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    produce(mock_servers, topic, range(10))

    def handle(message: Message) -> None:
        if message.offset() == 7:
            raise ValueError("bad record")

    with pytest.raises(ValueError, match="bad record"):
        run(config, topic, handle, stopping)
    assert committed(config, topic) == 7
