import threading

from orders import run

from consumer_membership import Message
from consumer_membership.testing import FakeCluster


def config(cluster: FakeCluster) -> dict[str, object]:
    for value in range(10):
        cluster.deliver("orders", str(value))
    return {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"}


def test_every_handled_record_is_committed(cluster: FakeCluster, stopping: threading.Event) -> None:
    def handle(message: Message) -> None:
        if message.value() == b"9":
            stopping.set()

    run(config(cluster), "orders", handle, stopping)
    assert cluster.committed("billing") == {("orders", 0): 10}


def test_fenced_member_handles_uncommitted_records_again(cluster: FakeCluster, stopping: threading.Event) -> None:
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.offset())
        if len(seen) == 4:
            (member,) = cluster.members("billing")
            cluster.fence(member.member_id, "billing")
            cluster.advance(10)  # the member learns it from its next heartbeat
        elif message.offset() == 9:
            stopping.set()

    run(config(cluster), "orders", handle, stopping)
    assert seen == [0, 1, 2, 3, *range(10)]
    assert cluster.committed("billing") == {("orders", 0): 10}


def test_record_of_a_slow_handler_is_handled_again(cluster: FakeCluster, stopping: threading.Event) -> None:
    seen = []

    def handle(message: Message) -> None:
        seen.append(message.offset())
        if len(seen) == 1:
            cluster.advance(301)  # longer than max.poll.interval.ms
        elif message.offset() == 9:
            stopping.set()

    run(config(cluster), "orders", handle, stopping)
    assert seen == [0, *range(10)]
