"""Asyncio consumers on the mock cluster whose member the test scripts."""

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
    """An asyncio consumer whose member the test scripts."""

    @property
    def member(self) -> ScriptedMember:
        """The scripted member."""
        assert isinstance(self._consumer, ScriptedConsumer)
        return self._consumer.member

    def _made(self, config: Mapping[str, object]) -> Consumer:
        return ScriptedConsumer(dict(config))


AIOFactory = Callable[..., ScriptedAIOConsumer]


@pytest.fixture
def aio_consumers(cluster: MockCluster) -> Iterator[AIOFactory]:
    """Create consumers inside a running loop; consumers still open at the end of the test are closed."""
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
