"""The environments of level 5: a broker, and the protocol and strategy of its members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, unique
from tests.support.versions import NEWEST, OLDEST

#: The modes of members, as settings of a `Worker`. Without settings, group.protocol=auto selects the consumer protocol.
CONSUMER: Mapping[str, object] = MappingProxyType({})
#: Classic members refresh their metadata often, because tests would otherwise wait minutes for new topics.
_CLASSIC = {"group_protocol": "classic", "topic_metadata_refresh_interval_ms": 300}
EAGER: Mapping[str, Any] = MappingProxyType(_CLASSIC | {"partition_assignment_strategy": "range"})
COOPERATIVE: Mapping[str, Any] = MappingProxyType(_CLASSIC | {"partition_assignment_strategy": "cooperative-sticky"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A broker, and the protocol and strategy of its members."""

    broker: Broker
    mode: Mapping[str, Any]

    @property
    def is_classic(self) -> bool:
        """Whether the members use the classic protocol."""
        return self.mode is not CONSUMER

    @property
    def is_eager(self) -> bool:
        """Whether members revoke all partitions before each rebalance."""
        return self.mode is EAGER

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address."""
        return self.broker.bootstrap_servers

    def topic(self, partitions: int = 12, name: str = "topic") -> str:
        """Create a topic."""
        return create_topic(self.bootstrap_servers, unique(name), partitions)

    def member(
        self,
        group: str,
        topics: Iterable[str],
        on_call: Callable[[str, Consumer, list[Partition]], None] | None = None,
        handle: Callable[[Consumer, Message], None] | None = None,
        **config: object,
    ) -> Worker:
        """Return a member of this mode, in a thread."""
        return Worker(self.bootstrap_servers, group, topics, on_call, handle, **{**self.mode, **config})


VERSIONS = {"oldest": OLDEST, "newest": NEWEST}
MODES = {"consumer": CONSUMER, "eager": EAGER, "cooperative": COOPERATIVE}
#: Each protocol on both brokers, and each strategy on one broker.
SOME = ("newest-consumer", "oldest-consumer", "newest-cooperative", "oldest-eager")
EVERY = (*SOME, "newest-eager", "oldest-cooperative")
CLASSIC = tuple(one for one in EVERY if not one.endswith("consumer"))


def on(*environments: str) -> pytest.MarkDecorator:
    """Run the test in these environments."""
    return pytest.mark.parametrize("environment", environments, indirect=True)
