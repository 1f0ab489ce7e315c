"""`unsubscribe` or another subscription while records are buffered, beside confluent-kafka on a broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 5000
READ = 100
Calls = list[tuple[str, int]]
Records = list[tuple[str, int]]
#: Either consumer: the calls are the same.
AnyConsumer = Any

PROTOCOLS = {
    "consumer": {"group.protocol": "consumer"},
    "eager": {"group.protocol": "classic"},
    "cooperative": {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
}


@dataclass(slots=True)
class Lifetime:
    """One consumer of one partition, and the callbacks and records that it saw."""

    consumer: AnyConsumer
    group: str
    calls: Calls = field(default_factory=list)
    records: Records = field(default_factory=list)

    def subscribe(self, *topics: str) -> None:
        """Subscribe to these topics."""
        self.consumer.subscribe(
            list(topics), **{f"on_{name}": partial(self._told, name) for name in ("assign", "revoke")}
        )

    def _told(self, name: str, _: AnyConsumer, partitions: list[Partition]) -> None:
        if partitions:
            self.calls.append((name, len(partitions)))

    def poll_until(self, is_so: Callable[[], bool]) -> None:
        """Poll until this condition holds."""

        def poll() -> None:
            message = self.consumer.poll(0.05)
            if message is not None:
                assert message.error() is None
                self.records.append((message.topic(), message.offset()))

        self._wait_until(is_so, poll)

    def consume_until(self, is_so: Callable[[], bool]) -> None:
        """Call `consume` until this condition holds; batches may bypass the buffer."""

        def consume() -> None:
            self.records += [(one.topic(), one.offset()) for one in self.consumer.consume(READ, 0.05)]

        self._wait_until(is_so, consume)

    def _wait_until(self, is_so: Callable[[], bool], between: Callable[[], None]) -> None:
        wait_until(is_so, "the records and calls", between=between, seen=lambda: (self.calls, self.records[-3:]))


class PolledGroup:
    """A broker with two topics of one partition each, and a group."""

    def __init__(self, kafka: Broker, protocol: str) -> None:
        self.servers = kafka.bootstrap_servers
        self.topic, self.other = (create_topic(self.servers, unique(name), 1) for name in ("topic", "other"))
        for name in (self.topic, self.other):
            produce(self.servers, name, RECORDS)
        self.config = {
            "bootstrap.servers": self.servers,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 600_000,
            **PROTOCOLS[protocol],
        }

    def play(
        self, kind: Callable[..., AnyConsumer], scene: Callable[[Lifetime, PolledGroup], None]
    ) -> tuple[tuple[Calls, Records], dict[str, int]]:
        """Return what a consumer of this class saw in this scene, and the committed offsets after its end."""
        group = unique("group")
        with closing(kind({**self.config, "group.id": group})) as consumer:
            life = Lifetime(consumer, group)
            scene(life, self)
        return (life.calls, life.records), self.committed(group)

    def has_members(self, group: str) -> bool:
        """Whether the group has a member."""
        return bool(GroupAdmin({"bootstrap.servers": self.servers}).describe(group, with_offsets=False).group.members)

    def committed(self, group: str) -> dict[str, int]:
        """The committed offsets of a group."""
        committed = GroupAdmin({"bootstrap.servers": self.servers}).committed(group)
        names = {self.topic: "topic", self.other: "other"}
        return {
            names[at.topic]: found.offset
            for at, found in committed.items()
            if isinstance(at, TopicPartition) and isinstance(found, OffsetAndMetadata)
        }


def read_some(life: Lifetime, stage: PolledGroup) -> None:
    """Read a hundred records; many more are in the buffer."""
    life.subscribe(stage.topic)
    life.poll_until(lambda: len(life.records) == READ)


def unsubscribed(life: Lifetime, stage: PolledGroup) -> None:
    """Unsubscribe and call `poll` until the revocation, and longer."""
    read_some(life, stage)
    life.consumer.unsubscribe()
    life.poll_until(lambda: ("revoke", 1) in life.calls)
    # Under the consumer protocol, confluent-kafka never joins again if it subscribes before its leave is over.
    wait_until(lambda: not stage.has_members(life.group), "the end of the leave")
    assert life.consumer.poll(0.3) is None


def unsubscribed_in_batches(life: Lifetime, stage: PolledGroup) -> None:
    """Unsubscribe and call `consume`."""
    read_some(life, stage)
    life.consumer.unsubscribe()
    life.consume_until(lambda: ("revoke", 1) in life.calls)
    assert life.consumer.consume(READ, 0.3) == []


def unsubscribed_and_closed(life: Lifetime, stage: PolledGroup) -> None:
    """Unsubscribe and close without another poll."""
    read_some(life, stage)
    life.consumer.unsubscribe()


def resubscribed(life: Lifetime, stage: PolledGroup) -> None:
    """Subscribe to the same topic after the old membership has ended."""
    unsubscribed(life, stage)
    life.subscribe(stage.topic)
    life.poll_until(lambda: len(life.records) == 2 * READ)


SCENES: dict[Callable[[Lifetime, PolledGroup], None], dict[str, int]] = {
    unsubscribed: {"topic": READ},
    unsubscribed_in_batches: {"topic": READ},
    unsubscribed_and_closed: {"topic": READ},
    resubscribed: {"topic": 2 * READ},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("scene", SCENES)
def test_unsubscribe_returns_no_further_record_and_commits_as_confluent_kafka(
    kafka: Broker, protocol: str, scene: Callable[[Lifetime, PolledGroup], None]
) -> None:
    """`unsubscribe` drops the buffered records.

    The last returned record sets the committed offset and the next start.
    """
    stage = PolledGroup(kafka, protocol)
    theirs, ours = (stage.play(kind, scene) for kind in (confluent_kafka.Consumer, Consumer))
    assert ours == theirs
    assert ours[1] == SCENES[scene]


# ---- another subscription at once -----------------------------------------------------------------------------------


def resubscribed_at_once(life: Lifetime, stage: PolledGroup) -> None:
    """Subscribe to the same topic again without a poll in between."""
    read_some(life, stage)
    life.consumer.unsubscribe()
    life.subscribe(stage.topic)
    life.poll_until(lambda: len(life.records) == 2 * READ)


def replaced(life: Lifetime, stage: PolledGroup, *, leaves: bool) -> None:
    """Replace the subscription by the other topic."""
    read_some(life, stage)
    if leaves:
        life.consumer.unsubscribe()
    life.subscribe(stage.other)
    life.poll_until(lambda: len(life.records) == 2 * READ)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_immediate_resubscribe_continues_after_the_last_record(kafka: Broker, protocol: str) -> None:
    """The old membership ends and a new one begins. confluent-kafka never joins again under the consumer protocol."""
    stage = PolledGroup(kafka, protocol)
    (calls, records), committed = stage.play(Consumer, resubscribed_at_once)
    assert (calls[:3], committed) == ([("assign", 1), ("revoke", 1), ("assign", 1)], {"topic": 2 * READ})
    assert records == [(stage.topic, offset) for offset in range(2 * READ)]
    if protocol != "consumer":
        assert stage.play(confluent_kafka.Consumer, resubscribed_at_once) == ((calls, records), committed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("leaves", [True, False], ids=["unsubscribed", "not unsubscribed"])
def test_subscription_to_another_topic_stops_records_of_the_former_topic_at_once(
    kafka: Broker, protocol: str, *, leaves: bool
) -> None:
    """KAFKA-19356: Records of a dropped topic stop immediately, even before the group revokes its partitions.

    confluent-kafka does so with the eager strategies; with other strategies, and without `unsubscribe`, it continues to
    read the old topic until the rebalance.
    """
    stage = PolledGroup(kafka, protocol)
    scene = partial(replaced, leaves=leaves)
    (calls, records), committed = stage.play(Consumer, scene)
    assert calls[:3] == [("assign", 1), ("revoke", 1), ("assign", 1)]
    assert records == [(name, offset) for name in (stage.topic, stage.other) for offset in range(READ)]
    assert committed == {"topic": READ, "other": READ}
    if protocol == "eager":
        assert stage.play(confluent_kafka.Consumer, scene) == ((calls, records), committed)
