"""The connections to leaders that a handle opens before partitions are assigned."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.runtime.application.leader_connections import (
    MOST_LEADERS,
    RENEW_AFTER_S,
    RETRY_AFTER_S,
    LeaderConnections,
)

_TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Handle:
    """A substitute for librdkafka's handle: it has the leaders of partitions, and records requests."""

    def __init__(self, topics: Mapping[str, list[int]]) -> None:
        self.topics = topics
        self.is_connected = True
        self.requests: list[set[tuple[str, int]]] = []

    def list_topics(self, topic: str, _: float) -> SimpleNamespace:
        """Return the metadata of one topic."""
        if not self.is_connected:
            raise _TIMED_OUT
        found = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(self.topics.get(topic, []))}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=found)})

    def offsets_for_times(self, partitions: list[PartitionOffset], timeout: float) -> None:
        """The request times out immediately, because its timeout is 0."""
        assert timeout == 0
        self.requests.append({(one.topic, one.partition) for one in partitions})
        raise _TIMED_OUT


class Scene:
    """The connections of one handle, and its clock."""

    def __init__(self, topics: Mapping[str, list[int]]) -> None:
        self.handle = Handle(topics)
        self.now = 100.0
        self.connections = LeaderConnections(lambda: self.now)

    def after(self, seconds: float) -> list[set[tuple[str, int]]]:
        """Return the requests of one call after this time."""
        self.now += seconds
        self.handle.requests.clear()
        self.connections.open_if_due(cast("LibrdkafkaConsumer", self.handle), self.handle.topics.keys())
        return self.handle.requests.copy()


def test_one_partition_of_each_leader_is_requested() -> None:
    """One request for each leader is enough; partitions without a leader, and unknown topics, have none."""
    assert Scene({"a": [1, 2, 1], "b": [3, -1, 2], "c": []}).after(0) == [{("a", 0), ("a", 1), ("b", 0)}]


def test_connections_are_renewed_once_a_minute() -> None:
    """Leaders move, and idle connections are closed."""
    scene = Scene({"a": [1]})
    assert [len(scene.after(s)) for s in (0, RENEW_AFTER_S - 1, 1, 0)] == [1, 0, 1, 0]


def test_lookup_without_a_response_is_repeated_soon() -> None:
    """The handle may have no connection yet."""
    scene = Scene({"a": [1]})
    scene.handle.is_connected = False
    assert scene.after(0) == []
    scene.handle.is_connected = True
    assert [len(scene.after(s)) for s in (RETRY_AFTER_S / 2, RETRY_AFTER_S / 2)] == [0, 1]


@pytest.mark.parametrize("leaders", [MOST_LEADERS, 5 * MOST_LEADERS])
def test_number_of_leaders_is_bounded(leaders: int) -> None:
    """A member of a large cluster needs connections to a few leaders only."""
    (asked,) = Scene({"a": list(range(leaders))}).after(0)
    assert len(asked) == MOST_LEADERS


def test_without_topics_nothing_is_requested() -> None:
    """A pattern's topics are unknown until partitions are assigned."""
    assert Scene({}).after(0) == []
