"""The arguments of a partner, and the assignors and protocols that each client supports."""

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

#: The assignors of each client: librdkafka has no eager sticky assignor, aiokafka no cooperative assignor.
STRATEGIES = {
    Client.OURS: _ALL,
    Client.CONFLUENT: _ALL - {Strategy.STICKY},
    Client.KAFKA_PYTHON: _ALL,
    Client.AIOKAFKA: _ALL - {Strategy.COOPERATIVE_STICKY},
    Client.JAVA: _ALL,
}

#: The clients that also support the consumer protocol (KIP-848).
SUPPORTS_CONSUMER = frozenset({Client.OURS, Client.CONFLUENT, Client.JAVA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The arguments of a process at its start.

    Attributes:
        client: The client library.
        bootstrap_servers: The brokers.
        group: The group's id.
        topic: The topic to which the partner subscribes.
        client_id: The client id, which the coordinator's description of the group contains.
        protocol: `classic`, `consumer`, or another value of the client's `group.protocol`.
        strategies: The assignors in a classic group, the preferred assignor first; a classic member needs at least one.
        instance_id: The group.instance.id of a static member; None: a dynamic member.
        session_timeout_ms: The session timeout of a classic member; with `consumer` the broker's setting applies.
        heartbeat_interval_ms: The heartbeat interval of a classic member, and of this package with both protocols. It
            is short, so that members learn of a rebalance soon.
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
            raise ValueError(f"{self.client} supports the strategies {sorted(known)}, not {self.strategies}")
        if self.protocol != "classic" and self.client not in SUPPORTS_CONSUMER:
            raise ValueError(f"{self.client} supports only the classic protocol, not {self.protocol}")

    def as_json(self) -> str:
        """Return the argument for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `as_json`."""
        values = json.loads(text)
        client = Client(values.pop("client"))
        strategies = tuple(map(Strategy, values.pop("strategies")))
        return cls(client=client, strategies=strategies, **values)
