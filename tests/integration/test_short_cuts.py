"""A network that resets everything for most of a session: whoever is back in time keeps its place.

Members of both clients, each behind a proxy of its own. The name that they are given and the one that the broker goes
by differ, as they often do: what is known of the one says nothing of the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Self, TypeAlias

import confluent_kafka
import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.proxy import HEARTBEAT, Proxy
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Of the session's six seconds. With its pauses doubling from 0.1 s on a client tries after 3.1 s, and after 6.3 s.
CUT_S = 4.0
CLASSIC_HEARTBEAT = 12
BEATS = {"consumer": HEARTBEAT, "classic": CLASSIC_HEARTBEAT}
AnyConsumer: TypeAlias = "Consumer | confluent_kafka.Consumer"


class Member:
    """One member of its own group that polls on a thread; a context manager that closes it."""

    def __init__(
        self, make: Callable[[dict[str, object]], AnyConsumer], proxy: Proxy, topic: str, protocol: str
    ) -> None:
        self.proxy = proxy
        self.calls: list[str] = []
        self.records = 0
        config: dict[str, object] = {
            "bootstrap.servers": proxy.address.replace("127.0.0.1", "localhost"),
            "broker.address.family": "v4",
            "group.id": unique("group"),
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self._consumer = make(config)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, args=[topic])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(PATIENCE_S)

    def _run(self, topic: str) -> None:
        self._consumer.subscribe(
            [topic],
            on_assign=lambda *_: self.calls.append("assign"),
            on_revoke=lambda *_: self.calls.append("revoke"),
            on_lost=lambda *_: self.calls.append("lost"),
        )
        while not self._is_over:
            message = self._consumer.poll(0.05)
            self.records += message is not None and message.error() is None
        self._consumer.close()


@pytest.fixture
def quick(broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions end after 6 s."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


@pytest.fixture
def members(quick: Broker, protocol: str) -> Iterator[tuple[Member, ...]]:
    """One of confluent-kafka and one of ours, which have read what there is."""
    topic = create_topic(quick.bootstrap_servers, unique("topic"), 2)
    produce(quick.bootstrap_servers, topic, 10)
    with ExitStack() as stack:
        clients: tuple[Callable[[dict[str, object]], AnyConsumer], ...] = (confluent_kafka.Consumer, Consumer)
        made = tuple(
            stack.enter_context(Member(make, stack.enter_context(Proxy(quick.bootstrap_servers)), topic, protocol))
            for make in clients
        )
        for member in made:
            member.proxy.wait(lambda member=member: member.records == 10, "the first records")  # type: ignore[misc]
        yield made


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_member_that_is_back_within_its_session_keeps_its_place(members: tuple[Member, ...], protocol: str) -> None:
    """No callback: the member heartbeats again while the coordinator still counts it in.

    The same happens to confluent-kafka where its next attempt is in time, which a busy machine decides: not asserted.
    """
    for member in members:
        member.proxy.cut()
    cut_at = time.monotonic()
    # Looked at whenever our member tries to connect.
    members[-1].proxy.wait(lambda: time.monotonic() - cut_at > CUT_S, "the end of the cut")
    for member in members:
        member.proxy.heal()
    for member in members:
        beats = member.proxy.passed[BEATS[protocol]]
        member.proxy.wait(
            lambda member=member, beats=beats: member.proxy.passed[BEATS[protocol]] >= beats + 3,  # type: ignore[misc]
            "heartbeats",
        )
    theirs, ours = members
    print(f"confluent-kafka called {theirs.calls}")
    assert ours.calls == ["assign"]
