"""Requests of the source to the brokers: existing topics, partitions, and offsets."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, assert_never, cast

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition

from consumer_membership.clients.consumer import Consumer
from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError, TransportError
from consumer_membership.spark.brokers import EARLIEST, LATEST, log_offsets, partitions_of
from consumer_membership.spark.context import Partition
from consumer_membership.spark.source.offsets import OffsetsByPartition, TopicIds
from consumer_membership.spark.source.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtTime,
    Bound,
    Edge,
    SourceOptions,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_log = logging.getLogger("consumer_membership.spark.source")
_TIMEOUT_S = 30.0
#: The errors of a topic that was just deleted, or that this user may not describe.
_WITHOUT_ID = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED})
#: Internal topics of the brokers, which a pattern never matches.
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Logs:
    """The logs of the partitions that a query reads; requests use the connections of `consumer`."""

    def __init__(self, options: SourceOptions, consumer: Consumer) -> None:
        self._options = options
        self._consumer = consumer

    def topics(self) -> tuple[str, ...]:
        """Return the topics to read; for a pattern, the existing topics that match.

        Raises:
            TransportError: no broker responded.
        """
        options = self._options
        if options.pattern is None:
            return options.topics or tuple(sorted({topic for topic, _ in options.partitions}))
        try:
            known = self._consumer.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as failed:
            raise TransportError(f"topics cannot be looked up: {failed.args[0].str()}") from failed
        pattern = re.compile(options.pattern)
        return tuple(sorted(topic for topic in known if topic not in _INTERNAL and pattern.search(topic)))

    def partitions(self, topics: Iterable[str], *, may_lack: bool = False) -> tuple[Partition, ...]:
        """Return the partitions to read; with `may_lack`, partitions that do not exist are left out.

        Raises:
            ConfigurationError: a topic or an assigned partition does not exist.
            TransportError: no broker responded.
        """
        found: list[Partition] = []
        for topic in topics:
            try:
                found += partitions_of(self._consumer, [topic], self._options.config)
            except ConfigurationError:
                if not may_lack:
                    raise
        assigned = self._options.partitions
        for topic, number in () if may_lack else assigned:
            if (topic, number) not in found:
                remedy = f"{topic} has {len([each for each in found if each[0] == topic])} partitions"
                raise ConfigurationError("assign", f"{topic}[{number}]", remedy)
        return tuple(partition for partition in found if partition in assigned) if assigned else tuple(found)

    def topic_ids(self, topics: Iterable[str]) -> TopicIds:
        """Return the id of each topic; topics that do not exist, or that this user may not describe, are left out.

        Raises:
            TransportError: no broker responded.
        """
        found: dict[str, str] = {}
        named = TopicCollection(sorted(topics))
        for topic, answer in self._admin.describe_topics(named, request_timeout=_TIMEOUT_S).items():
            try:
                topic_id = answer.result().topic_id
            except KafkaException as failed:
                if failed.args[0].code() in _WITHOUT_ID:
                    continue
                raise TransportError(f"topic {topic!r} cannot be looked up: {failed.args[0].str()}") from failed
            if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
                found[topic] = str(topic_id)
        return found

    def firsts(self, partitions: Collection[Partition]) -> OffsetsByPartition:
        """Return the first offset of each partition."""
        return log_offsets(self._consumer, partitions, EARLIEST) if partitions else {}

    def ends(self, partitions: Collection[Partition]) -> OffsetsByPartition:
        """Return the end of each partition; with `isolation.level=read_committed`, the end of finished transactions."""
        return log_offsets(self._consumer, partitions, LATEST) if partitions else {}

    def at(
        self, name: str, bound: Bound, partitions: Collection[Partition], committed: OffsetsByPartition
    ) -> OffsetsByPartition:
        """Return the offsets at a bound; `name` begins the option's name, `committed` is for `Edge.GROUP`.

        Raises:
            ConfigurationError: a partition has no such offset; the text names the partition.
            TransportError: no broker responded.
        """
        match bound:
            case Edge.EARLIEST:
                return self.firsts(partitions)
            case Edge.LATEST:
                return self.ends(partitions)
            case Edge.GROUP:
                return self._of_the_group(partitions, committed)
            case AtTime():
                return self._at_time(name, bound, partitions)
            case Mapping():
                return self._named(name, bound, partitions)
            case _:
                assert_never(bound)

    @cached_property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient  # slow to import

        named = {**self._options.config, "group.id": self._options.group or "-"}
        cluster = ConsumerConfig.from_mapping(named).with_servers().cluster_config()
        return AdminClient(cast("dict[str, str | int | float | bool]", cluster))

    def _of_the_group(self, partitions: Collection[Partition], committed: OffsetsByPartition) -> OffsetsByPartition:
        missing = [each for each in partitions if each not in committed]
        found = {partition: committed[partition] for partition in partitions if partition in committed}
        if missing and self._options.reset is None:
            named = ", ".join(f"{topic}[{number}]" for topic, number in missing)
            remedy = (
                f"group {self._options.group!r} has no committed offset of {named}; commit offsets, or use earliest"
            )
            raise ConfigurationError("kafka.auto.offset.reset", "none", remedy)
        if missing:
            found |= self.ends(missing) if self._options.reset is Edge.LATEST else self.firsts(missing)
        return found

    def _at_time(self, name: str, bound: AtTime, partitions: Collection[Partition]) -> OffsetsByPartition:
        option = f"{name}Timestamp" if bound.everywhere is not None else f"{name}OffsetsByTimestamp"
        if bound.everywhere is None:
            _check_names(option, bound.by_partition, partitions)
        times = {p: bound.by_partition[p] if bound.everywhere is None else bound.everywhere for p in partitions}
        try:
            requested = [TopicPartition(*partition, time) for partition, time in times.items()]
            answers = self._consumer.offsets_for_times(requested, _TIMEOUT_S)
        except KafkaException as failed:
            raise TransportError(f"offsets by time could not be looked up: {failed.args[0].str()}") from failed
        found = {(each.topic, each.partition): each.offset for each in answers if each.offset >= 0}
        late = [partition for partition in partitions if partition not in found]
        if late and name == "starting" and not self._options.latest_without_record:
            named = ", ".join(f"{topic}[{number}]" for topic, number in late)
            remedy = (
                f"{named} has no record at or after that time; set an earlier time, or "
                "startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
            raise ConfigurationError(option, times[late[0]], remedy)
        return {**found, **(self.ends(late) if late else {})}

    def _named(self, name: str, bound: OffsetsByPartition, partitions: Collection[Partition]) -> OffsetsByPartition:
        _check_names(f"{name}Offsets", bound, partitions)
        found = dict(bound)
        for word, request in ((EARLIEST_OFFSET, self.firsts), (LATEST_OFFSET, self.ends)):
            partitions = [partition for partition, at in bound.items() if at == word]
            found |= request(partitions) if partitions else {}
        return found


def _check_names(option: str, named: OffsetsByPartition, partitions: Collection[Partition]) -> None:
    for partition in (*named, *partitions):
        if partition not in named or partition not in partitions:
            cause = "this query does not read it" if partition in named else "it is missing (-2: beginning, -1: end)"
            remedy = f"{cause}; name every partition of the query, and no other"
            raise ConfigurationError(option, f"{partition[0]}[{partition[1]}]", remedy)
