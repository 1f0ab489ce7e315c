"""on_warm: the application prepares for partitions that its consumer is about to take over."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.membership.effects import WarmPartitions
from consumer_membership.membership.events import Warmed
from tests.clients.application import at, drain, held
from tests.clients.conftest import ConsumerFactory

pytestmark = pytest.mark.slow

Calls = list[tuple[str, list[int]]]


def test_on_warm_runs_in_poll_before_the_consumer_owns_the_partitions(consumers: ConsumerFactory, topic: str) -> None:
    """on_warm receives partitions without offsets, and its end is reported to the member; nothing is assigned."""
    calls: Calls = []
    consumer = consumers()

    def on_warm(given: Consumer, partitions: list[PartitionOffset]) -> None:
        assert given is consumer
        assert {one.offset for one in partitions} == {OFFSET_INVALID}
        assert consumer.member.of(Warmed) == []
        assert given.poll(0) is None
        calls.append(("warm", [one.partition for one in partitions]))

    def on_assign(_: Consumer, partitions: list[PartitionOffset]) -> None:
        calls.append(("assign", [one.partition for one in partitions]))

    consumer.subscribe([topic], on_assign=on_assign, on_warm=on_warm)
    consumer.poll(0)
    consumer.member.order(WarmPartitions(attempt=3, partitions=frozenset(at(topic, 1, 0))))
    assert consumer.poll(0) is None
    assert (calls, consumer.member.of(Warmed)) == ([("warm", [0, 1])], [Warmed(attempt=3)])
    assert held(consumer) == []
    consumer.member.assign(dict.fromkeys(at(topic, 0), 49))
    assert drain(consumer, 1) == [(0, 49)]
    assert calls == [("warm", [0, 1]), ("assign", [0])]


def test_consumer_without_on_warm_is_ready_at_once(consumers: ConsumerFactory, topic: str) -> None:
    """The member is informed with the next poll."""
    consumer = consumers()
    consumer.subscribe([topic])
    consumer.poll(0)
    consumer.member.order(WarmPartitions(attempt=1, partitions=frozenset(at(topic, 0))))
    consumer.poll(0)
    assert consumer.member.of(Warmed) == [Warmed(attempt=1)]


@pytest.mark.parametrize("error", [LookupError("no cache"), KeyboardInterrupt()], ids=["exception", "ctrl-c"])
def test_on_warm_that_raises_is_reported_as_failed_and_poll_raises(
    consumers: ConsumerFactory, topic: str, error: BaseException
) -> None:
    """The order counts as performed; the callback is called again when the member orders it again."""
    errors = [error]

    def on_warm(_: Consumer, __: list[PartitionOffset]) -> None:
        if errors:
            raise errors.pop()

    consumer = consumers()
    consumer.subscribe([topic], on_warm=on_warm)
    consumer.poll(0)
    consumer.member.order(WarmPartitions(attempt=1, partitions=frozenset(at(topic, 0))))
    with pytest.raises(type(error)):
        consumer.poll(0)
    consumer.poll(0)
    assert consumer.member.of(Warmed) == [Warmed(attempt=1, failed=True)]
    consumer.member.order(WarmPartitions(attempt=2, partitions=frozenset(at(topic, 0))))
    consumer.poll(0)
    assert consumer.member.of(Warmed)[1:] == [Warmed(attempt=2)]


def test_close_does_not_call_on_warm(consumers: ConsumerFactory, topic: str) -> None:
    """A consumer that leaves takes over no partitions."""
    calls: list[object] = []
    consumer = consumers()
    consumer.subscribe([topic], on_warm=lambda *given: calls.append(given))
    consumer.poll(0)
    consumer.member.order(WarmPartitions(attempt=1, partitions=frozenset(at(topic, 0))))
    consumer.close()
    assert calls == []
