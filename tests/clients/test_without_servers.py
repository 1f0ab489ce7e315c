"""No `bootstrap.servers`, as in many programs' own unit tests: the consumer is made and waits, as confluent-kafka's."""

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
    """A real consumer, with a real member, that was given no address."""
    made = Consumer({"group.id": "g", "group.protocol": request.param, "log_level": 0})
    yield made
    Thread(made.close).outcome()


def polled_until_it_knows(consumer: Consumer) -> None:
    """Poll until the member has heard that there is nobody to ask; every poll is None."""
    consumer.subscribe(["t"])

    def poll() -> None:
        assert consumer.poll(0.05) is None

    wait_until(
        lambda: consumer.membership().last_error,
        "an error in the view",
        between=poll,
        seen=consumer.membership,
    )


def test_polls_are_none_and_the_view_says_why(consumer: Consumer) -> None:
    """It waits, as for any broker, and names the key that would help."""
    polled_until_it_knows(consumer)
    assert consumer.consume(1, 0) == []
    view = consumer.membership()
    assert (view.state, view.waits_for) == (MemberState.JOINING, "a broker; bootstrap.servers is not set")
    assert view.last_error is not None
    assert "bootstrap.servers is not set" in view.last_error.message
    assert consumer.assignment() == []


def test_waiting_costs_nothing(consumer: Consumer) -> None:
    """No thread turns in circles: a second of waiting is a few milliseconds of work."""
    polled_until_it_knows(consumer)
    used = time.process_time()
    assert consumer.poll(1.0) is None
    assert time.process_time() - used < 0.5


def test_close_does_not_wait_for_commits_that_nobody_takes() -> None:
    """With brokers that do not answer each of these would wait 5 s for the commit that is on its way."""
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
    """What `logger=` takes: anything that has a `log` method."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, _: int, text: str, *args: object) -> None:
        self.lines.append(text % args)


def test_application_s_own_logger_is_warned() -> None:
    """Like every line of this consumer it goes where `logger=` says."""
    own = OwnLogger()
    with Consumer({"group.id": "g"}, logger=own) as consumer:
        polled_until_it_knows(consumer)
        consumer.poll(0)
    assert sum("bootstrap.servers is not set: this consumer waits" in line for line in own.lines) == 1, own.lines


def test_log_warns_once_and_at_the_first_use(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that is only made, as in programs' own unit tests, is nothing to warn of."""

    def warnings() -> list[str]:
        return [line for line in caplog.messages if "bootstrap.servers" in line]

    with caplog.at_level(logging.WARNING):
        consumer.subscribe(["t"])
        assert warnings() == []
        polled_until_it_knows(consumer)
        consumer.poll(1.0)
    assert warnings() == ["bootstrap.servers is not set: this consumer waits for brokers that nobody names"]
