"""Which offsets of which partitions a list of records has; in C as far as it goes, since every record is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from operator import methodcaller

from confluent_kafka import Message

from consumer_membership.spark.context import OffsetRange
from consumer_membership.spark.plan import Partition

_partition, _offset, _topic = methodcaller("partition"), methodcaller("offset"), methodcaller("topic")


def ranges_of(records: Sequence[Message], topics: Sequence[str]) -> tuple[OffsetRange, ...]:
    """One range for each partition, by topic and partition; `topics` are those that the records may be of.

    Records of one partition come in the order of their offsets.
    """
    if not records:
        return ()
    is_single = len(topics) == 1
    numbers: list[int] = list(map(_partition, records))
    offsets: list[int] = list(map(_offset, records))
    keys: Sequence[Hashable] = numbers if is_single else list(zip(map(_topic, records), numbers, strict=True))
    last = dict(zip(keys, offsets, strict=True))
    first = dict(zip(reversed(keys), reversed(offsets), strict=True))
    counts = Counter(keys)
    places: dict[Partition, Hashable] = {((topics[0], key) if is_single else key): key for key in last}  # type: ignore[misc]  # a number, or topic and number
    return tuple(
        OffsetRange(topic=topic, partition=number, first=first[key], next_offset=last[key] + 1, records=counts[key])
        for (topic, number), key in sorted(places.items(), key=lambda item: item[0])
    )


def before(records: Sequence[Message], ends: Mapping[Partition, int]) -> list[Message]:
    """The records below the end of their partition; each has one."""
    return [m for m in records if (m.offset() or 0) < ends[(m.topic() or "", m.partition() or 0)]]
