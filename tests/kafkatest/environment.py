"""The environment of a scenario: a cluster, a topic with a producer, and groups of one client's members."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription

from consumer_membership.devbroker import Broker
from tests.kafkatest.clients import Client, GroupProtocol, MemberOptions
from tests.kafkatest.group import Group
from tests.support.kafka import create_topic, unique
from tests.support.waiting import PATIENCE_S, wait_until

#: Records per second, as in Kafka's tests.
_RATE = 500
_PERIOD_S = 0.02
#: Without log lines: librdkafka logs each stopped broker to stderr, and the scenarios stop brokers.
_QUIET = {"log_level": 0}


class SteadyProducer:
    """Writes numbered records from its own thread until it is closed; a context manager."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5, **_QUIET})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)

    def await_acknowledged(self, number: int = 1000) -> None:
        """Wait until this number of additional records is acknowledged."""
        enough = self.acknowledged + number
        wait_until(lambda: self.acknowledged >= enough, f"{number} additional acknowledged records")

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_PERIOD_S):
            for _ in range(int(_RATE * _PERIOD_S)):
                try:
                    self._producer.produce(self._topic, str(number), on_delivery=self._on_delivery)
                except BufferError:  # no broker is accepting records
                    break
                number += 1
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1


@dataclass(slots=True)
class Environment:
    """One scenario's cluster, client and topic.

    Attributes:
        broker: The cluster. If it has several nodes, the scenario may restart them.
        client: The client of all members.
        folder: The folder of the members' logs.
        bounces: How many times a scenario restarts members or brokers; in Kafka's tests five times.
        topic: The topic of the scenario.
        partitions: The number of the topic's partitions.
        group_id: The group of the scenario.
        config: The content of the members' properties file.
    """

    broker: Broker
    client: Client
    folder: Path
    bounces: int
    topic: str
    partitions: int
    group_id: str
    config: Mapping[str, str]
    _admin: AdminClient | None = field(default=None, init=False)

    @classmethod
    def prepare(
        cls,
        broker: Broker,
        client: Client,
        folder: Path,
        *,
        bounces: int,
        partitions: int,
        config: Mapping[str, str] = MappingProxyType({}),
    ) -> Environment:
        """Create the topic of a scenario."""
        topic = unique("kafkatest")
        replicas = max(1, len(broker.node_ids))
        create_topic(broker.bootstrap_servers, topic, partitions, replication_factor=replicas)
        group_id = unique("kafkatest-group")
        return cls(
            broker=broker,
            client=client,
            folder=folder,
            bounces=bounces,
            topic=topic,
            partitions=partitions,
            group_id=group_id,
            config=config,
        )

    @contextmanager
    def group(self, options: MemberOptions, *, members: int = 3, is_static: bool = False) -> Iterator[Group]:
        """Yield a group with this number of members, without starting them."""
        with Group(
            bootstrap_servers=self.broker.bootstrap_servers,
            group_id=self.group_id,
            topic=self.topic,
            partitions=self.partitions,
            folder=self.folder,
            options=options,
            config=self.config,
        ) as group:
            for index in range(members):
                group.add(self.client, instance_id=self.instance_id(index) if is_static else None)
            yield group

    def instance_id(self, index: int) -> str:
        """Return the instance id of the member with this number."""
        return f"{self.group_id}-instance-{index}"

    def producer(self) -> SteadyProducer:
        """Return a producer for the topic."""
        return SteadyProducer(self.broker.bootstrap_servers, self.topic)

    def await_state(self, state: str) -> None:
        """Wait until the coordinator describes the group with this state."""
        wait_until(lambda: self._described().state.name == state, f"the state {state} of the group", PATIENCE_S)

    def await_type(self, protocol: GroupProtocol) -> None:
        """Wait until the coordinator describes the group with this type."""
        wait_until(
            lambda: self._described().type.name.lower() == protocol, f"a group of the type {protocol}", PATIENCE_S
        )

    def restart_nodes(self) -> Iterator[int]:
        """Restart the nodes one after the other; yield the id of each node when it is ready again."""
        for node in self.broker.node_ids:
            self.broker.stop_node(node)
            self.broker.start_node(node)
            self.broker.wait_ready()
            yield node

    def _described(self) -> ConsumerGroupDescription:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, **_QUIET})
        described: ConsumerGroupDescription = self._admin.describe_consumer_groups([self.group_id])[
            self.group_id
        ].result()
        return described
