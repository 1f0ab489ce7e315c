"""Offsets of a stream as a checkpoint holds them, and how far the next batch goes.

In the checkpoint they are JSON:

    {"version": 1, "group": "billing", "topicIds": {"orders": "..."}, "offsets": {"orders": {"0": 17}}}

The ids tell a topic from one that was made anew with its name; older checkpoints have none. The first batch also says
where it began (`start`), for Spark asks a source anew when it repeats that batch. What spark-sql-kafka wrote,
`{"orders": {"0": 17}}`, is read as well: a query may go on here from the checkpoint that it had there.

Spark compares offsets as texts, so topics and partitions are always in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import TypeAlias

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.context import Partition

#: The next offset of each partition.
OffsetsByPartition: TypeAlias = Mapping[Partition, int]
#: What Kafka calls each topic, whatever its name: a topic made anew has another id.
TopicIds: TypeAlias = Mapping[str, str]
#: What Spark keeps: JSON.
JsonObject: TypeAlias = "dict[str, object]"

OFFSETS_VERSION = 1
_REMEDY = "take the checkpoint that belongs to this query, or a new folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffsets:
    """Where a batch ends, as it stands in a checkpoint; `start` is where it began, where only it can say so.

    `group` is None where spark-sql-kafka wrote it; `topic_ids` are those that are known.
    """

    offsets: OffsetsByPartition
    group: str | None
    start: OffsetsByPartition | None = None
    topic_ids: TopicIds = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """For Spark."""
        found: JsonObject = {"version": OFFSETS_VERSION, "group": self.group}
        if self.topic_ids:
            found["topicIds"] = dict(sorted(self.topic_ids.items()))
        found["offsets"] = nested_offsets(self.offsets)
        return found if self.start is None else {**found, "start": nested_offsets(self.start)}


def read_offsets(found: JsonObject, group: str) -> StreamOffsets:
    """What a checkpoint says, for a query of this group.

    Raises:
        ConfigurationError: it is another group's, of a later version, or of no Kafka source at all.
    """
    if "version" not in found:
        return StreamOffsets(offsets=flat_offsets(found), group=None)
    if found["version"] != OFFSETS_VERSION:
        remedy = f"this release reads version {OFFSETS_VERSION}; update consumer-membership"
        raise ConfigurationError("checkpointLocation", f"offsets of version {found['version']}", remedy)
    if found.get("group") != group:
        remedy = (
            f"it belongs to a query with group.id={found.get('group')!r}; give that group, or a new folder, which "
            "startingOffsets=group begins where this group is"
        )
        raise ConfigurationError("checkpointLocation", f"a checkpoint of group {found.get('group')!r}", remedy)
    start = found.get("start")
    topic_ids = found.get("topicIds", {})
    if not isinstance(topic_ids, dict):
        raise ConfigurationError("checkpointLocation", topic_ids, f"these are no topics' ids; {_REMEDY}")
    return StreamOffsets(
        offsets=flat_offsets(found.get("offsets")),
        group=group,
        start=None if start is None else flat_offsets(start),
        topic_ids=topic_ids,
    )


def nested_offsets(offsets: OffsetsByPartition) -> dict[str, dict[str, int]]:
    """By topic and number, in their order, as spark-sql-kafka has them."""
    by_topic: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, number), offset in sorted(offsets.items()):
        by_topic[topic][str(number)] = offset
    return dict(by_topic)


def flat_offsets(found: object) -> dict[Partition, int]:
    """By partition; raises ConfigurationError for what are no offsets of Kafka."""
    try:
        return {
            (topic, int(number)): int(offset)
            for topic, by_number in found.items()  # type: ignore[attr-defined]  # what is none is refused below
            for number, offset in by_number.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigurationError("checkpointLocation", found, f"these are no offsets of Kafka; {_REMEDY}") from None


def limited(start: OffsetsByPartition, ends: OffsetsByPartition, most: int | None) -> OffsetsByPartition:
    """The ends of a batch of about `most` offsets, each partition in proportion to what there is of it.

    Nothing that has a backlog is left out, so a batch may have a few offsets more, one for each partition.
    """
    sizes = {place: end - start[place] for place, end in ends.items() if end > start[place]}
    total = sum(sizes.values())
    if most is None or total <= most:
        return ends
    found = dict(ends)
    for place, size in sizes.items():
        share = most * size / total
        found[place] = start[place] + min(size, ceil(share) if share < 1 else floor(share))
    return found
