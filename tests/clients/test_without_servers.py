"""Without `bootstrap.servers`, as in many unit tests, the consumer is made and waits, as confluent-kafka's does."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer, MemberState
from tests.clients.scripted import Thread
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PROTOCOLS = ["auto", "consumer", "classic"]


@pytest.fixture(params=PROTOCOLS)
def consumer(request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """A real consumer, with a real member, without an address."""
    made = Consumer({"group.id": "g", "group.protocol": request.param, "log_level": 0})
    yield made
    Thread(made.close).outcome()


def polled_until_it_knows(consumer: Consumer) -> None:
    """Poll until the member has the error about missing servers; each poll returns None."""
    consumer.subscribe(["t"])

    def poll() -> None:
        assert consumer.poll(0.05) is None

    wait_until(
        lambda: consumer.membership().last_error,
        "an error in the view",
        between=poll,
        seen=consumer.membership,
    )


def test_poll_without_servers_returns_none_and_the_view_names_the_key(consumer: Consumer) -> None:
    """The consumer waits as for any broker, and the view names the key to set."""
    polled_until_it_knows(consumer)
    assert consumer.consume(1, 0) == []
    view = consumer.membership()
    assert (view.state, view.waits_for) == (MemberState.JOINING, "bootstrap.servers")
    assert view.last_error is not None
    assert "bootstrap.servers is not set" in view.last_error.message
    assert consumer.assignment() == []


def test_consumer_without_servers_uses_hardly_any_cpu_time(consumer: Consumer) -> None:
    """No thread loops: a second of waiting takes a few milliseconds of CPU time."""
    polled_until_it_knows(consumer)
    used = time.process_time()
    assert consumer.poll(1.0) is None
    assert time.process_time() - used < 0.5


def test_close_without_servers_does_not_wait_for_commits() -> None:
    """With brokers that do not respond, each close would wait 5 s for the commit in flight."""
    consumers = [Consumer({"group.id": "g", "group.protocol": one, "log_level": 0}) for one in PROTOCOLS * 2]
    for consumer in consumers:
        consumer.subscribe(["t"])
        consumer.poll(0)
        consumer.commit(offsets=[PartitionOffset("t", 0, 1)])
    begun = time.monotonic()
    for consumer in consumers:
        Thread(consumer.close).outcome()
    assert time.monotonic() - begun < 25


class OwnLogger:
    """An object that `logger=` accepts: it has a `log` method."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, _: int, text: str, *args: object) -> None:
        self.lines.append(text % args)


def test_logger_gets_the_warning_about_missing_servers() -> None:
    """The warning goes to `logger=`, as each line of this consumer does."""
    own = OwnLogger()
    with Consumer({"group.id": "g"}, logger=own) as consumer:
        polled_until_it_knows(consumer)
        consumer.poll(0)
    assert sum("bootstrap.servers is not set; the consumer cannot connect" in line for line in own.lines) == 1, (
        own.lines
    )


def test_missing_servers_are_warned_of_once_at_the_first_use(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that is only made, as in many unit tests, causes no warning."""

    def warnings() -> list[str]:
        return [line.partition("] ")[2] for line in caplog.messages if "bootstrap.servers" in line]

    with caplog.at_level(logging.WARNING):
        consumer.subscribe(["t"])
        assert warnings() == []
        polled_until_it_knows(consumer)
        consumer.poll(1.0)
    assert warnings() == ["bootstrap.servers is not set; the consumer cannot connect"]
