"""Without a broker, no call blocks or raises where confluent-kafka's would not, and the view has the reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import CommitError, Consumer, MemberState
from tests.clients.scripted import Thread
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

NOBODY = "127.0.0.1:1"


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    """A real consumer, with a real member, whose broker is unreachable."""
    made = Consumer({"bootstrap.servers": NOBODY, "group.id": "g", "log_level": 0, "socket.timeout.ms": 1000})
    yield made
    Thread(made.close).outcome()


def lines_about_it(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines about the unreachable address."""
    return [line for line in caplog.messages if NOBODY in line]


def test_poll_without_a_broker_waits_and_the_view_has_the_reason(
    consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """The member keeps looking for its coordinator; the log names the address once, not at each attempt."""
    consumer.subscribe(["t"])

    def poll() -> None:
        assert consumer.poll(0.05) is None

    with caplog.at_level(logging.WARNING):
        wait_until(lambda: lines_about_it(caplog), "the address in the log", between=poll)
        assert consumer.poll(0.5) is None  # at least one more attempt
    view = consumer.membership()
    assert (view.state, view.waits_for) == (MemberState.JOINING, "group coordinator")
    assert len(lines_about_it(caplog)) == 1


def test_subscribed_consumer_waits_for_a_poll_until_it_polls_or_closes(consumer: Consumer) -> None:
    """A member joins inside `poll`, so the view names the poll as what it waits for."""
    assert consumer.membership().waits_for is None
    consumer.subscribe(["t"])
    view = consumer.membership()
    assert (view.state, view.waits_for) == (MemberState.UNSUBSCRIBED, "poll to join")
    assert view.waits_since is not None
    consumer.unsubscribe()
    assert consumer.membership().waits_for is None
    consumer.subscribe(["t"])
    Thread(consumer.close).outcome()
    assert consumer.membership().waits_for is None


def test_close_without_a_broker_returns_quickly(consumer: Consumer) -> None:
    """C17: The member never contacted a coordinator, so it has no group to leave.

    A leave that waits would take 10 s.
    """
    consumer.subscribe(["t"])
    consumer.poll(0.1)
    begun = time.monotonic()
    Thread(consumer.close).outcome()
    assert time.monotonic() - begun < 9


def test_synchronous_commit_without_a_broker_raises_wait_coord_after_the_socket_timeout(consumer: Consumer) -> None:
    """The error is `_WAIT_COORD`, as confluent-kafka's, and has the known cause."""
    committing = Thread(lambda: consumer.commit(offsets=[PartitionOffset("t", 0, 1)], asynchronous=False))
    with pytest.raises(CommitError, match=r"127\.0\.0\.1:1: connection refused") as caught:
        committing.outcome()
    assert caught.value.code == -180


@pytest.mark.parametrize("method", ["list_topics", "committed", "get_watermark_offsets", "offsets_for_times"])
def test_requests_without_a_broker_raise_librdkafka_s_error_at_their_timeout(consumer: Consumer, method: str) -> None:
    """A request waits in slices, so that Ctrl-C and other threads get through."""
    argument: dict[str, list[object]] = {
        "list_topics": ["t"],
        "committed": [[PartitionOffset("t", 0)]],
        "get_watermark_offsets": [PartitionOffset("t", 0)],
        "offsets_for_times": [[PartitionOffset("t", 0, 5)]],
    }
    with pytest.raises(KafkaException):
        Thread(lambda: getattr(consumer, method)(*argument[method], 1.2)).outcome()
