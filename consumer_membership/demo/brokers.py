"""Start the demo's broker, and read the committed and end offsets at the end.

The backends are tried in devbroker's order: the broker in KAFKA_BOOTSTRAP_SERVERS, Docker, local JVMs. If none of them
is available, the demo uses librdkafka's mock cluster and prints that it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from consumer_membership.demo.mock import mock_cluster
from consumer_membership.devbroker import Backend, BackendMissingError, BrokerUnavailableError, start
from consumer_membership.devbroker.backends import VARIABLE

#: The backend of the mock cluster, in addition to those of devbroker.
MOCK = "mock"
#: All backends, in the order in which they are tried.
BACKENDS = (*(backend.value for backend in Backend), MOCK)

#: Shorter than Kafka's default of 45 s, so that the demo does not take long.
SESSION_TIMEOUT_MS = 6_000
#: A session contains several heartbeats.
HEARTBEAT_INTERVAL_MS = 1_000
_SESSION_KEY = "group.consumer.session.timeout.ms"
_PROPERTIES: Mapping[str, str] = {
    _SESSION_KEY: str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCluster:
    """A broker that is ready for the demo; `remarks` are printed with the results."""

    title: str
    bootstrap_servers: str
    session_timeout_s: float
    remarks: tuple[str, ...] = ()


@contextmanager
def demo_cluster(
    backend: str | None, version: str | None, *, topic: str, partitions: int, group: str
) -> Iterator[DemoCluster]:
    """Yield a broker with this topic; an existing broker is cleaned up from the topic and the group at the end.

    Raises:
        BrokerUnavailableError: The requested backend is not available, or the broker failed.
        KafkaException: The broker rejected the topic.
        MockUnavailableError: The mock cluster did not start.
    """
    lacks: list[str] = []
    with ExitStack() as held:
        for each in [backend] if backend is not None else BACKENDS:
            is_mock = each == MOCK
            opened = (
                _mock(topic, partitions, lacks) if is_mock else _kafka(Backend(each), version, topic, partitions, group)
            )
            try:
                cluster = held.enter_context(opened)
            except BackendMissingError as error:
                if backend is not None:
                    raise
                lacks.append(f"{each}: {error}")
            else:
                yield cluster
                return
    raise BrokerUnavailableError("\n".join(lacks))


@contextmanager
def _kafka(backend: Backend, version: str | None, topic: str, partitions: int, group: str) -> Iterator[DemoCluster]:
    is_existing = backend is Backend.EXISTING
    # The properties of an existing broker cannot be set.
    with start(version, properties=None if is_existing else _PROPERTIES, backend=backend) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        new_topic = NewTopic(topic, num_partitions=partitions)
        admin.create_topics([new_topic], operation_timeout=_TIMEOUT_S)[topic].result()
        try:
            yield DemoCluster(
                title=f"Apache Kafka {broker.version} ({backend.value})",
                bootstrap_servers=broker.bootstrap_servers,
                session_timeout_s=_session_timeout_s(admin),
                remarks=(f"Using the existing broker in {VARIABLE}.",) if is_existing else (),
            )
        finally:
            if is_existing:
                _tidy_up(admin, topic, group)


@contextmanager
def _mock(topic: str, partitions: int, lacks: Sequence[str]) -> Iterator[DemoCluster]:
    with mock_cluster(topic, partitions, SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS) as bootstrap_servers:
        yield DemoCluster(
            title="librdkafka's mock cluster",
            bootstrap_servers=bootstrap_servers,
            session_timeout_s=SESSION_TIMEOUT_MS / 1000,
            remarks=(
                "THIS IS NOT APACHE KAFKA: the broker is librdkafka's embedded mock cluster.",
                *(("No real broker is available:",) if lacks else ()),
                *(f"  {lack}" for lack in lacks),
            ),
        )


def _tidy_up(admin: AdminClient, topic: str, group: str) -> None:
    """Delete the topic and the group from an existing broker."""
    admin.delete_topics([topic], request_timeout=_TIMEOUT_S)[topic].result()
    # A group with a member that was just killed cannot be deleted; the broker removes it later.
    with suppress(KafkaException):
        admin.delete_consumer_groups([group], request_timeout=_TIMEOUT_S)[group].result()


def _session_timeout_s(admin: AdminClient) -> float:
    """Return the broker's session timeout in seconds."""
    node = str(next(iter(admin.list_topics(timeout=_TIMEOUT_S).brokers)))
    resource = ConfigResource(ResourceType.BROKER, node)
    entries = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    return int(entries[_SESSION_KEY].value) / 1000


def offsets_at_end(
    bootstrap_servers: str, *, group: str, topic: str, partitions: int
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the group's committed offsets and the end offsets by partition, read by a plain confluent-kafka client.

    Raises:
        KafkaException: The broker did not respond.
    """
    # Without a subscription, the client does not join the group.
    reader = PlainConsumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        committed = {}
        for place in reader.committed(wanted, timeout=_TIMEOUT_S):
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset >= 0:
                committed[place.partition] = place.offset
        end = {place.partition: reader.get_watermark_offsets(place, timeout=_TIMEOUT_S)[1] for place in wanted}
    finally:
        reader.close()
    return committed, end
