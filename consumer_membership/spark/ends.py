"""Where a bounded run ends, and whether it still can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import ConfigurationError, DrainError, TransportError
from consumer_membership.spark.plan import MemberPlan, Partition

_TIMEOUT_S = 30.0
#: The times of the first and of the next record, as ListOffsets takes them.
EARLIEST, LATEST = -2, -1
#: librdkafka looks for a connection twice in this time at most. A new handle needs its second one soon: to the broker
#: that it heard of over the first one, which it ends then, often without having the answer to its question.
_QUICK = {"reconnect.backoff.ms": 20}
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - librdkafka's own codes


def partitions_of(consumer: Consumer, topics: Sequence[str]) -> tuple[Partition, ...]:
    """Every partition of these topics.

    Raises:
        ConfigurationError: there is no such topic.
        TransportError: no broker says.
    """
    partitions: list[Partition] = []
    for topic in topics:
        try:
            known = consumer.list_topics(topic, _TIMEOUT_S).topics[topic]
        except KafkaException as failed:
            raise TransportError(f"topic {topic!r} cannot be looked up: {failed.args[0].str()}") from failed
        if known.error is not None:
            raise ConfigurationError("topics", topic, f"the broker says: {known.error.str()}; create it, or correct it")
        partitions += [(topic, number) for number in sorted(known.partitions)]
    return tuple(partitions)


def ends_now(plan: MemberPlan) -> dict[Partition, int]:
    """The end of each partition of a plan's topics, asked with a consumer of its own.

    Raises:
        ConfigurationError, TransportError: as `end_offsets`.
    """
    with Consumer({**_QUICK, **plan.config, "group.id": plan.group}) as asking:
        return end_offsets(asking, plan.topics)


def end_offsets(consumer: Consumer, topics: Sequence[str]) -> dict[Partition, int]:
    """The end of each partition now; with `isolation.level=read_committed` the last stable offset.

    Raises:
        ConfigurationError: there is no such topic.
        TransportError: no broker says.
    """
    return log_offsets(consumer, partitions_of(consumer, topics), LATEST)


def log_offsets(consumer: Consumer, partitions: Iterable[Partition], which: int) -> dict[Partition, int]:
    """The `EARLIEST` or `LATEST` offset of each of these partitions.

    One request for each broker; watermarks would be one for each partition.

    Raises:
        TransportError: no broker says.
    """
    try:
        found = consumer.offsets_for_times([TopicPartition(*p, which) for p in partitions], _TIMEOUT_S)
    except KafkaException as failed:
        raise TransportError(f"the ends of partitions cannot be had: {failed.args[0].str()}") from failed
    for each in found:
        if each.error is not None:
            raise TransportError(f"{each.topic}[{each.partition}]: no end offset: {each.error.str()}")
    return {(each.topic, each.partition): each.offset for each in found}


def check_ends(consumer: Consumer, ends: Mapping[Partition, int]) -> None:
    """Return if these ends can be reached.

    Raises:
        DrainError: a topic is gone, or has fewer records than when the run began (it was made anew).
    """
    for (topic, number), end in sorted(ends.items()):
        try:
            watermarks = consumer.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)
        except KafkaException as failed:
            if failed.args[0].code() in _GONE:
                raise DrainError(
                    f"{topic}[{number}] was to be read up to offset {end} and does not exist any more: the topic was "
                    "deleted meanwhile"
                ) from failed
            continue
        if watermarks[1] < end:
            raise DrainError(
                f"{topic}[{number}] was to be read up to offset {end} and ends at {watermarks[1]} now: the topic was "
                "deleted and made anew, or records were lost"
            )
