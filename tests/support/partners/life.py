"""The arguments of a partner, and the assignors that each client has."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from tests.support.partners.tools_jars import TOOLS_VERSION


class Client(StrEnum):
    """The client library of a partner."""

    OURS = "ours"
    CONFLUENT = "confluent"
    KAFKA_PYTHON = "kafka-python"
    AIOKAFKA = "aiokafka"
    JAVA = "java"


class Strategy(StrEnum):
    """An assignor, by its protocol name."""

    RANGE = "range"
    ROUNDROBIN = "roundrobin"
    STICKY = "sticky"
    COOPERATIVE_STICKY = "cooperative-sticky"


_ALL = frozenset(Strategy)

#: The assignors that come with each client: librdkafka has no eager sticky one, aiokafka no cooperative one.
STRATEGIES = {
    Client.OURS: _ALL,
    Client.CONFLUENT: _ALL - {Strategy.STICKY},
    Client.KAFKA_PYTHON: _ALL,
    Client.AIOKAFKA: _ALL - {Strategy.COOPERATIVE_STICKY},
    Client.JAVA: _ALL,
}

#: The clients that can also be members by KIP-848.
SPEAKS_CONSUMER = frozenset({Client.OURS, Client.CONFLUENT, Client.JAVA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The arguments of a process at its start.

    Attributes:
        client: The client library.
        bootstrap_servers: The brokers.
        group: The group's id.
        topic: The topic that it subscribes to.
        client_id: The name in the coordinator's description.
        protocol: `classic`, `consumer`, or another value of the client's `group.protocol`.
        strategies: Its assignors in a classic group, the preferred one first; a classic member needs at least one.
        instance_id: Makes it a static member.
        session_timeout_ms: For a classic member; with `consumer` the broker's setting applies.
        heartbeat_interval_ms: For a classic member, and for this package with either protocol. It is short, so that a
        rebalance need not wait for it.
        kafka_version: The version of the Java client.
    """

    client: Client
    bootstrap_servers: str
    group: str
    topic: str
    client_id: str
    protocol: str = "classic"
    strategies: tuple[Strategy, ...] = ()
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 200
    kafka_version: str = TOOLS_VERSION

    def __post_init__(self) -> None:
        known = STRATEGIES[self.client]
        if self.protocol == "classic" and not (self.strategies and known.issuperset(self.strategies)):
            raise ValueError(f"{self.client} has {sorted(known)}; give some of them, not {self.strategies}")
        if self.protocol != "classic" and self.client not in SPEAKS_CONSUMER:
            raise ValueError(f"{self.client} speaks the classic protocol only, not {self.protocol}")

    def as_json(self) -> str:
        """The argument on the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `as_json`."""
        words = json.loads(text)
        client = Client(words.pop("client"))
        strategies = tuple(map(Strategy, words.pop("strategies")))
        return cls(client=client, strategies=strategies, **words)
