"""Keys that confluent-kafka refuses or reads differently: their effect on a broker."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import confluent_kafka
import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Either consumer: the calls are the same.
AnyConsumer = Any


def polled_until_shared(members: list[AnyConsumer], share: int) -> None:
    """Poll these consumers in turn until each has this many partitions."""

    def poll() -> None:
        for member in members:
            message = member.poll(0.05)
            assert message is None or message.error() is None

    wait_until(
        lambda: [len(member.assignment()) for member in members] == [share] * len(members),
        f"{share} partitions each",
        between=poll,
        seen=lambda: [member.assignment() for member in members],
    )


@pytest.mark.parametrize("others", ["range", "cooperative-sticky"])
def test_eager_and_cooperative_strategies_together_join_groups_of_either(kafka: Broker, others: str) -> None:
    """A member with strategies of both kinds joins both kinds of groups. A group can change without a stop (KIP-429).

    confluent-kafka refuses the pair, so its groups have to be stopped.
    """
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 4)
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": unique("group"),
        "group.protocol": "classic",
        "heartbeat.interval.ms": 200,
    }
    theirs: AnyConsumer = confluent_kafka.Consumer({**config, "partition.assignment.strategy": others})
    ours = Consumer({**config, "partition.assignment.strategy": "cooperative-sticky,range"})
    with closing(theirs), closing(ours):
        for member in (theirs, ours):
            member.subscribe([topic])
        polled_until_shared([theirs, ours], 2)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("form", ["{}/", "PLAINTEXT://{}/", "{}/path,{}"])
def test_bootstrap_servers_accepts_urls_with_slash_or_path(kafka: Broker, protocol: str, form: str) -> None:
    """Both clients accept a slash or a path after the port."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    produce(kafka.bootstrap_servers, topic, 1)
    servers = form.format(kafka.bootstrap_servers, kafka.bootstrap_servers)
    for kind in (confluent_kafka.Consumer, Consumer):
        consumer: AnyConsumer = kind(
            {
                "bootstrap.servers": servers,
                "group.id": unique("group"),
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        with closing(consumer):
            consumer.subscribe([topic])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert (message.error(), message.value()) == (None, b"0")


def test_max_poll_interval_below_the_session_timeout_joins_a_classic_group(kafka: Broker) -> None:
    """The broker accepts it with a session of 45 s: the two bounds are independent, as in Java's client."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    produce(kafka.bootstrap_servers, topic, 1)
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": unique("group"),
        "group.protocol": "classic",
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": 20_000,
    }
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"0")
        assert consumer.generation() >= 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
        ("metadata.recovery.strategy", "none"),
        ("connections.max.idle.ms", "200"),
    ],
)
def test_connection_keys_let_a_member_read_and_commit(kafka: Broker, protocol: str, key: str, value: str) -> None:
    """Both clients return the same record and commit result, although connections are closed between two heartbeats."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    produce(kafka.bootstrap_servers, topic, 1)
    answers = []
    for kind in (confluent_kafka.Consumer, Consumer):
        consumer: AnyConsumer = kind(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": unique("group"),
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                # An automatic commit would leave nothing to commit, which is an error.
                "enable.auto.commit": False,
                key: value,
            }
        )
        with closing(consumer):
            consumer.subscribe([topic])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            # No record arrives meanwhile, and only heartbeats and fetches use a connection.
            assert consumer.poll(1.0) is None
            (committed,) = consumer.commit(asynchronous=False)
            answers.append((message.error(), message.value(), committed.offset, committed.error))
    assert answers == [(None, b"0", 1, None)] * 2
