"""A network that resets all connections for most of a session: a member that is back in time keeps its place.

The members of both clients are each behind their own proxy. As in many networks, the client's name of the broker and
the broker's advertised name differ, so knowledge about one of them does not apply to the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import confluent_kafka
import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import configure_group, create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.proxy import HEARTBEAT, Proxy
from tests.support.versions import NEWEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SESSION_S = 12
#: The part of the session without a network. With pauses that double from 0.1 s on, a client would try to connect after
#: 6.3 s, and then after 12.7 s.
CUT_S = 7.0
CLASSIC_HEARTBEAT = 12
BEATS = {"consumer": HEARTBEAT, "classic": CLASSIC_HEARTBEAT}
AnyConsumer: TypeAlias = "Consumer | confluent_kafka.Consumer"


@dataclass(frozen=True, slots=True)
class Member:
    """One member of its own group, and its proxy."""

    proxy: Proxy
    thread: ConsumerThread[Any]

    @property
    def records(self) -> int:
        """The number of records that it has read."""
        return len(self.thread.notes.records)


def behind(servers: str, proxy: Proxy, make: Callable[[dict[str, object]], Any], topic: str, protocol: str) -> Member:
    """A member that polls as soon as the context of its thread is entered."""
    group = unique("group")
    config: dict[str, object] = {
        "bootstrap.servers": proxy.address.replace("127.0.0.1", "localhost"),
        "broker.address.family": "v4",
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    if protocol == "classic":
        config |= {"session.timeout.ms": SESSION_S * 1000, "heartbeat.interval.ms": 500}
    else:
        configure_group(servers, group, {"consumer.session.timeout.ms": str(SESSION_S * 1000)})
    return Member(proxy, ConsumerThread(make(config), [topic]))


@pytest.fixture
def quick(broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions may be short."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


@pytest.fixture
def members(quick: Broker, protocol: str) -> Iterator[tuple[Member, ...]]:
    """One confluent-kafka member and one of ours, which have read all records."""
    topic = create_topic(quick.bootstrap_servers, unique("topic"), 2)
    produce(quick.bootstrap_servers, topic, 10)
    with ExitStack() as stack:
        clients: tuple[Callable[[dict[str, object]], AnyConsumer], ...] = (confluent_kafka.Consumer, Consumer)
        made = tuple(
            behind(quick.bootstrap_servers, stack.enter_context(Proxy(quick.bootstrap_servers)), make, topic, protocol)
            for make in clients
        )
        for member in made:
            stack.enter_context(member.thread)
        for member in made:
            member.proxy.wait(lambda member=member: member.records == 10, "the first records")  # type: ignore[misc]
        yield made


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_member_that_reconnects_within_its_session_keeps_its_place(members: tuple[Member, ...], protocol: str) -> None:
    """No callback runs: the member sends heartbeats again while its session lasts.

    confluent-kafka does the same if its next attempt is in time. That depends on the load of the machine and is not
    asserted.
    """
    for member in members:
        member.proxy.cut()
    cut_at = time.monotonic()
    # Checked whenever our member tries to connect.
    members[-1].proxy.wait(lambda: time.monotonic() - cut_at > CUT_S, "the end of the cut")
    for member in members:
        member.proxy.heal()
    for member in members:
        heartbeats = member.proxy.passed[BEATS[protocol]]
        member.proxy.wait(
            lambda member=member, heartbeats=heartbeats: member.proxy.passed[BEATS[protocol]] >= heartbeats + 3,  # type: ignore[misc]
            "heartbeats",
        )
    theirs, ours = members
    print(f"confluent-kafka called {theirs.thread.notes.calls}")
    assert [call for call, _ in ours.thread.notes.calls] == ["assign"]
