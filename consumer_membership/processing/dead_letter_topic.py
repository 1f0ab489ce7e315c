"""Read the dead letters of a topic, up to its present end, without joining a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Self, cast

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.admin.group_admin import DEFAULT_TIMEOUT_S
from consumer_membership.config import ConsumerConfig
from consumer_membership.config.checks import checked_keys
from consumer_membership.errors import ConfigurationError, GroupError, MembershipError, TransportError
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.processing.dead_letter_headers import DeadLetter
from consumer_membership.text import LONGEST_TOPIC, problem_of
from consumer_membership.types import OffsetAndMetadata

#: A placeholder: librdkafka needs a group id for reading without a group.
_NO_GROUP = "-"
#: The reader commits nothing. It sees only committed records, and the end of each partition.
_READER: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # With the default, librdkafka pauses for a second each time that its queue is full.
    "fetch.queue.backoff.ms": 5,
    "log_level": 0,
}
_BATCH, _SLICE_S = 1_000, 0.25
#: The setting of a topic with the age at which it rejects records.
_REJECTED_MS = "message.timestamp.before.max.ms"
_NO_RESPONSE = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT}
)
#: Errors after which a reader waits: connections are made again, and an error about the group does not matter to it.
_IGNORED = _NO_RESPONSE | {KafkaError.GROUP_AUTHORIZATION_FAILED}
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSelection:
    """Which dead letters to read; the default is all of them.

    Attributes:
        partitions: Only dead letters in these partitions; empty: in all partitions.
        first_offset: Only dead letters at or after this offset.
        last_offset: Only those at or before this offset; None: no limit.
        exception: Only dead letters whose exception, or its cause, has this class name, with or without its module.
        original_topic: Only dead letters of records from this topic.
        most: Only this many; None: no limit.
    """

    partitions: frozenset[int] = frozenset()
    first_offset: int = 0
    last_offset: int | None = None
    exception: str | None = None
    original_topic: str | None = None
    most: int | None = None

    def includes(self, letter: DeadLetter) -> bool:
        """Return whether the dead letter matches every condition but `most`."""
        return (
            letter.offset >= self.first_offset
            and (self.last_offset is None or letter.offset <= self.last_offset)
            and (self.original_topic is None or letter.original_topic == self.original_topic)
            and (self.exception is None or self.exception in _names_of(letter))
        )

    def end_within(self, end: int) -> int:
        """Return the offset after the last one to read in a partition with this end."""
        return end if self.last_offset is None else min(end, self.last_offset + 1)


def _names_of(letter: DeadLetter) -> set[str]:
    """Return the class names of the exception and its cause, with and without their modules."""
    names = {name for name in (letter.exception, letter.cause) if name is not None}
    return names | {name.rpartition(".")[2] for name in names}


class DeadLetterTopic:
    """Reads a dead-letter topic up to its present end; a context manager that closes the connections.

    Args:
        config: The configuration of a consumer; keys for membership or fetching have no effect.
        topic: The dead-letter topic.
        group: The group of a replay.
        timeout_s: How long to wait for a response of the brokers.

    Raises:
        ConfigurationError: a key or a value is invalid.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topic: str,
        *,
        group: str = _NO_GROUP,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.topic, self.group = topic, group
        self.timeout_s = timeout_s
        checked = ConsumerConfig.from_mapping({**checked_keys(config), "group.id": group}).with_servers()
        self.cluster_config = checked.cluster_config()
        try:
            self._consumer = LibrdkafkaConsumer({**self.cluster_config, **_READER, "group.id": group})
        except KafkaException as refused:
            raise ConfigurationError("config", checked, refused.args[0].str()) from refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def partitions(self) -> Sequence[int]:
        """Return the partitions of the topic.

        Raises:
            ConfigurationError: the topic does not exist.
            GroupError: a broker rejected the request.
            TransportError: no broker responded.
        """
        count = self.partition_count(self.topic)
        if count is None:
            raise ConfigurationError("topic", self.topic, "the topic does not exist; correct the name")
        return range(count)

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of any topic; None if it does not exist. Raises like `partitions`."""
        if not topic or problem_of(topic, LONGEST_TOPIC) is not None:
            return None
        try:
            found = self._consumer.list_topics(topic, timeout=self.timeout_s).topics[topic]
        except KafkaException as failed:
            raise _failure(f"topic {topic!r} cannot be looked up", failed.args[0]) from failed
        if found.error is None:
            return len(found.partitions)
        if found.error.code() in _NO_TOPIC:
            return None
        raise _failure(f"topic {topic!r} cannot be looked up", found.error)

    def greatest_age_ms(self, topic: str) -> float:
        """Return how old a record may be so that a topic accepts and keeps it; inf if this client may not read that."""
        # Imported here, because it is slow to import and only replays need it.
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # noqa: PLC0415

        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin = AdminClient(cast("dict[str, str | int | float | bool]", {**self.cluster_config, "log_level": 0}))
        try:
            entries = admin.describe_configs([resource], request_timeout=self.timeout_s)[resource].result()
        except KafkaException:
            return inf
        settings = {name: str(entry.value) for name, entry in entries.items()}
        deletes = "delete" in settings.get("cleanup.policy", "")
        names = ("retention.ms", _REJECTED_MS) if deletes else (_REJECTED_MS,)
        limits = [int(settings[name]) for name in names if name in settings]
        return min((limit for limit in limits if limit >= 0), default=inf)

    def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset and the last stable offset. Raises like `partitions`."""
        try:
            found: tuple[int, int] = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), timeout=self.timeout_s
            )
        except KafkaException as failed:
            raise _failure(f"{self.topic}[{partition}] cannot be looked up", failed.args[0]) from failed
        return found

    def committed(self, partitions: Sequence[int]) -> Mapping[int, OffsetAndMetadata]:
        """Return the committed offsets of the group, which no open transaction can change. Raises like `partitions`."""
        wanted = [TopicPartition(self.topic, partition) for partition in partitions]
        try:
            found = self._consumer.committed(wanted, timeout=self.timeout_s)
        except KafkaException as failed:
            raise _failure(f"committed offsets of group {self.group!r} cannot be read", failed.args[0]) from failed
        for one in found:
            if one.error is not None:
                raise _failure(f"the committed offset of {self.topic}[{one.partition}] cannot be read", one.error)
        return {
            one.partition: OffsetAndMetadata(offset=one.offset, metadata=(one.metadata or "").rstrip("\0"))
            for one in found
            if one.offset >= 0
        }

    def group_metadata(self) -> bytes:
        """Return the group of a replay as a producer of transactions sends it."""
        return bytes(self._consumer.consumer_group_metadata())

    def letters(self, selection: LetterSelection) -> Iterator[DeadLetter]:
        """Yield the selected dead letters by partition and offset. Raises like `partitions`."""
        found = 0
        for partition in self.selected_partitions(selection):
            first, end = self.bounds(partition)
            for record in self.records(partition, max(first, selection.first_offset), selection.end_within(end)):
                if found == selection.most:
                    return
                letter = DeadLetter.of(record)
                if selection.includes(letter):
                    found += 1
                    yield letter

    def selected_partitions(self, selection: LetterSelection) -> Sequence[int]:
        """Return the partitions of the topic that are selected. Raises like `partitions`."""
        existing = self.partitions()
        for partition in selection.partitions:
            if partition not in existing:
                remedy = f"topic {self.topic!r} has the partitions 0 to {existing[-1]}"
                raise ConfigurationError("partition", partition, remedy)
        return sorted(selection.partitions) or existing

    def records(self, partition: int, start: int, end: int) -> Iterator[Message]:
        """Yield the records from `start` to before `end`.

        Raises:
            GroupError: a broker rejected the request.
            TransportError: no record arrived within the timeout.
        """
        if start >= end:
            return
        self._consumer.assign([TopicPartition(self.topic, partition, start)])
        try:
            deadline = time.monotonic() + self.timeout_s
            while True:
                for message in self._batch():
                    error = message.error()
                    if error is None:
                        deadline = time.monotonic() + self.timeout_s
                        if (message.offset() or 0) >= end:
                            return
                        yield message
                        if (message.offset() or 0) + 1 == end:
                            return
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return
                    elif error.code() not in _IGNORED:
                        raise _failure(f"{self.topic}[{partition}] cannot be read", error)
                if time.monotonic() > deadline:
                    raise TransportError(f"{self.topic}[{partition}]: no record within {self.timeout_s:g} s")
        finally:
            self._consumer.unassign()

    def _batch(self) -> Iterator[Message]:
        """Yield the available records; a single `consume` would wait until the batch is full or the timeout is over."""
        yield from self._consumer.consume(1, _SLICE_S)
        yield from self._consumer.consume(_BATCH, 0)


def _failure(what: str, error: KafkaError) -> MembershipError:
    text = f"{what}: {error.str()}"
    return TransportError(text) if error.code() in _NO_RESPONSE else GroupError(text, error.code())
