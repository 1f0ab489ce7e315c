"""Topics and records on a real broker; each call returns when its work is done.

These functions use confluent_kafka and not the package, because tests must not use the code under test to check it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from confluent_kafka import Message

#: Long, because a broker on a busy machine may respond late.
_TIMEOUT_S = 60.0
#: For thousands of logs, each synchronized to a slow disk.
_LOGS_S = 300.0
#: The partitions that one request creates: well below the limit of a controller.
_MOST_PARTITIONS = 5000
_POLL_S = 0.02


def unique(name: str) -> str:
    """Return a topic, group or instance name that no other test uses on a shared broker."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    replication_factor: int = 1,
) -> str:
    """Create a topic and return its name as soon as every partition has a leader.

    A controller refuses more than 10,000 records for one request, so a larger topic grows in steps.

    Raises:
        KafkaException: The broker rejected the request.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    first = min(partitions, _MOST_PARTITIONS)
    topic = NewTopic(name, num_partitions=first, replication_factor=replication_factor, config=dict(config or {}))
    admin.create_topics([topic], operation_timeout=_TIMEOUT_S)[name].result()
    for count in range(first + _MOST_PARTITIONS, partitions + _MOST_PARTITIONS, _MOST_PARTITIONS):
        more = NewPartitions(name, min(count, partitions))
        admin.create_partitions([more], operation_timeout=_TIMEOUT_S)[name].result()
    wait_until(lambda: _leaders(admin, name) == partitions, f"a leader for each partition of {name}")
    return name


def wait_for_logs(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Return when the broker has created the log of each partition of this topic.

    A partition has a leader in the metadata before the leader has created its log. With thousands of partitions, the
    broker creates logs for a minute; until then, a member cannot look up the offsets at which it starts.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wait_until(lambda: _logs(admin, topic, partitions) == partitions, f"the logs of all partitions of {topic}", _LOGS_S)


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Delete a topic and return as soon as it is no longer in the metadata.

    Raises:
        KafkaException: The broker rejected the request.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([name], operation_timeout=_TIMEOUT_S)[name].result()
    wait_until(lambda: _leaders(admin, name) == 0, f"the deletion of {name}")


def produce(
    bootstrap_servers: str, topic: str, records: int | Iterable[tuple[bytes | str | None, bytes | str | None]]
) -> dict[int, int]:
    """Write records to all partitions in turn, and return when all are acknowledged.

    Args:
        bootstrap_servers: The brokers.
        topic: An existing topic.
        records: (key, value) pairs; or the number of records with key None and the values b"0", b"1", ...

    Returns:
        The number of records that each partition received.

    Raises:
        KafkaException: A record was not acknowledged.
    """
    pairs = ((None, str(number).encode()) for number in range(records)) if isinstance(records, int) else records
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})
    partitions = len(producer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
    written: Counter[int] = Counter()
    refused: list[KafkaError] = []

    def acknowledged(partition: int, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)
        else:
            written[partition] += 1

    for number, (key, value) in enumerate(pairs):
        partition = number % partitions
        _enqueue(producer, topic, partition, key, value, partial(acknowledged, partition))
    if producer.flush(_TIMEOUT_S) or refused:
        raise KafkaException(refused[0] if refused else KafkaError(KafkaError._TIMED_OUT))
    return dict(written)


def read_committed(bootstrap_servers: str, topic: str) -> list[Message]:
    """Return the records that `read_committed` consumers receive, up to the last stable offset."""
    reader = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "none", "isolation.level": "read_committed"})
    found: list[Message] = []
    for number in reader.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions:
        start = TopicPartition(topic, number, 0)
        # With read_committed, this is the last stable offset.
        _, end = reader.get_watermark_offsets(start, _TIMEOUT_S)
        reader.assign([start])

        def is_at_end(start: TopicPartition = start, end: int = end) -> bool:
            found.extend(reader.consume(1000, _POLL_S))
            return end == 0 or reader.position([start])[0].offset >= end

        wait_until(is_at_end, f"the end of {topic}[{number}]")
    reader.close()
    assert [message.error() for message in found if message.error()] == []
    return found


def appended(bootstrap_servers: str, topic: str) -> int:
    """Return the number of offsets in a topic, including offsets of open and aborted transactions."""
    return sum(_ends(bootstrap_servers, topic, "read_uncommitted"))


def wait_for_end_of_transactions(bootstrap_servers: str, topic: str) -> None:
    """Return when no transaction is open in the topic.

    The coordinator writes a marker to each partition separately, so committed offsets may be visible before records.
    """
    wait_until(
        lambda: (
            _ends(bootstrap_servers, topic, "read_committed") == _ends(bootstrap_servers, topic, "read_uncommitted")
        ),
        f"the end of the transactions in {topic}",
    )


def _ends(bootstrap_servers: str, topic: str, isolation_level: str) -> list[int]:
    """Return the end offset of each partition for consumers with this isolation level."""
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "none", "isolation.level": isolation_level}
    reader = Consumer(config)
    numbers = reader.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
    ends = [reader.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)[1] for number in numbers]
    reader.close()
    return ends


def _enqueue(
    producer: Producer,
    topic: str,
    partition: int,
    key: bytes | str | None,
    value: bytes | str | None,
    acknowledged: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=acknowledged)
        except BufferError:
            # The queue is full: handling acknowledgements removes records from it.
            producer.poll(_POLL_S)
        else:
            producer.poll(0)
            return


def _leaders(admin: AdminClient, name: str) -> int:
    topic = admin.list_topics(timeout=_TIMEOUT_S).topics.get(name)
    return sum(partition.leader >= 0 for partition in topic.partitions.values()) if topic is not None else 0


def _logs(admin: AdminClient, topic: str, partitions: int) -> int:
    request = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    answers = admin.list_offsets(request, request_timeout=_TIMEOUT_S)
    return sum(answer.exception(_TIMEOUT_S) is None for answer in answers.values())


def commit(bootstrap_servers: str, group: str, *partitions: TopicPartition) -> None:
    """Commit these offsets for a group, without being a member.

    Raises:
        KafkaException: The coordinator rejected the commit.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.commit(offsets=list(partitions), asynchronous=False)
    consumer.close()


def open_transaction(bootstrap_servers: str, topic: str, name: str, partition: int = 0) -> Producer:
    """Open a transaction with one record in this partition; the broker aborts it after ten minutes."""
    settings = {"bootstrap.servers": bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"held", partition=partition)
    producer.flush(_TIMEOUT_S)
    return producer


def configure_group(servers: str, group: str, settings: Mapping[str, str]) -> None:
    """Set these dynamic configurations of the group, as an operator does, and return when the broker has them.

    The controller sends the response, and the broker reads the configurations from the metadata log later.
    """
    changed = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=changed)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    described = ConfigResource(ConfigResource.Type.GROUP, group)

    def has_settings() -> bool:
        found = admin.describe_configs([described], request_timeout=_TIMEOUT_S)[described].result()
        return {name: found[name].value for name in settings if name in found} == dict(settings)

    wait_until(has_settings, f"{dict(settings)} of {group}")
