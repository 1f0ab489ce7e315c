"""Consumers of asyncio on the mock cluster, whose member the test plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from consumer_membership.aio import AIOConsumer
from consumer_membership.clients.consumer import Consumer
from tests.clients.conftest import cluster, topic
from tests.clients.scripted import ScriptedConsumer, ScriptedMember
from tests.support.mock_cluster import MockCluster

__all__ = ["cluster", "topic"]


class ScriptedAIOConsumer(AIOConsumer):
    """A consumer of asyncio whose member is played by the test."""

    @property
    def member(self) -> ScriptedMember:
        """The played member."""
        assert isinstance(self._consumer, ScriptedConsumer)
        return self._consumer.member

    def _made(self, config: Mapping[str, object]) -> Consumer:
        return ScriptedConsumer(dict(config))


AIOFactory = Callable[..., ScriptedAIOConsumer]


@pytest.fixture
def aio_consumers(cluster: MockCluster) -> Iterator[AIOFactory]:
    """Makes them, inside a running loop; what is open at the end of the test is closed."""
    made: list[ScriptedAIOConsumer] = []

    def make(**config: object) -> ScriptedAIOConsumer:
        settings: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        settings |= {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in config.items()}
        if "on.commit" in settings:
            settings["on_commit"] = settings.pop("on.commit")
        consumer = ScriptedAIOConsumer(settings)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.member.confirms_leaves = True
        consumer._consumer.close()
