"""The offsets of a stream in its checkpoint, and the size of the next batch.

In the checkpoint, they are JSON:

    {"version": 1, "group": "billing", "topicIds": {"orders": "..."}, "offsets": {"orders": {"0": 17}}}

The ids distinguish a topic from a later one with its name; older checkpoints have no ids. The first batch also has its
start (`start`), because Spark requests the start again when it repeats that batch. Offsets of spark-sql-kafka,
`{"orders": {"0": 17}}`, can be read also, so a query may continue from a checkpoint of spark-sql-kafka.

Spark compares offsets as text, so topics and partitions are always in the same order.
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
#: The id of each topic: a topic that was deleted and created again has another id.
TopicIds: TypeAlias = Mapping[str, str]
#: The JSON object that Spark stores.
JsonObject: TypeAlias = "dict[str, object]"

OFFSETS_VERSION = 1
_REMEDY = "use the checkpoint of this query, or a new folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffsets:
    """The end of a batch in a checkpoint; `start` is its start, which only the first batch of a query has.

    `group` is None for offsets of spark-sql-kafka. `topic_ids` has the known ids.
    """

    offsets: OffsetsByPartition
    group: str | None
    start: OffsetsByPartition | None = None
    topic_ids: TopicIds = field(default_factory=dict)

    def as_json(self) -> JsonObject:
        """Return the JSON object for Spark."""
        found: JsonObject = {"version": OFFSETS_VERSION, "group": self.group}
        if self.topic_ids:
            found["topicIds"] = dict(sorted(self.topic_ids.items()))
        found["offsets"] = nested_offsets(self.offsets)
        return found if self.start is None else {**found, "start": nested_offsets(self.start)}


def read_offsets(found: JsonObject, group: str) -> StreamOffsets:
    """Read the offsets in a checkpoint, for a query of this group.

    Raises:
        ConfigurationError: the offsets belong to another group, a later version, or another source than Kafka.
    """
    if "version" not in found:
        return StreamOffsets(offsets=flat_offsets(found), group=None)
    if found["version"] != OFFSETS_VERSION:
        remedy = f"this release reads version {OFFSETS_VERSION}; update consumer-membership"
        raise ConfigurationError("checkpointLocation", f"offsets of version {found['version']}", remedy)
    if found.get("group") != group:
        remedy = (
            f"it belongs to a query with group.id={found.get('group')!r}; use that group, or a new folder with "
            "startingOffsets=group to begin at the committed offsets of this group"
        )
        raise ConfigurationError("checkpointLocation", f"a checkpoint of group {found.get('group')!r}", remedy)
    start = found.get("start")
    topic_ids = found.get("topicIds", {})
    if not isinstance(topic_ids, dict):
        raise ConfigurationError("checkpointLocation", topic_ids, f"these are not topic ids; {_REMEDY}")
    return StreamOffsets(
        offsets=flat_offsets(found.get("offsets")),
        group=group,
        start=None if start is None else flat_offsets(start),
        topic_ids=topic_ids,
    )


def nested_offsets(offsets: OffsetsByPartition) -> dict[str, dict[str, int]]:
    """Return offsets by topic and partition number, sorted, in the form of spark-sql-kafka."""
    by_topic: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, number), offset in sorted(offsets.items()):
        by_topic[topic][str(number)] = offset
    return dict(by_topic)


def flat_offsets(found: object) -> dict[Partition, int]:
    """Return offsets by partition; raise ConfigurationError if they are not Kafka offsets."""
    try:
        return {
            (topic, int(number)): int(offset)
            for topic, by_number in found.items()  # type: ignore[attr-defined]  # other types raise below
            for number, offset in by_number.items()
        }
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise ConfigurationError("checkpointLocation", found, f"these are not Kafka offsets; {_REMEDY}") from None


def limited(start: OffsetsByPartition, ends: OffsetsByPartition, most: int | None) -> OffsetsByPartition:
    """Return the ends of a batch of about `most` offsets, divided in proportion to the backlogs of the partitions.

    Each partition with a backlog is included, so a batch may exceed `most` by up to one offset for each partition.
    """
    sizes = {partition: end - start[partition] for partition, end in ends.items() if end > start[partition]}
    total = sum(sizes.values())
    if most is None or total <= most:
        return ends
    found = dict(ends)
    for partition, size in sizes.items():
        share = most * size / total
        found[partition] = start[partition] + min(size, ceil(share) if share < 1 else floor(share))
    return found
