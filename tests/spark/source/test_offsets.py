"""The offsets in a checkpoint, and the size of a batch."""

from __future__ import annotations

import json

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.source.offsets import StreamOffsets, limited, read_offsets


def test_offsets_have_the_same_text_in_any_order() -> None:
    """Spark compares offsets as text, and a different text would start a new batch."""
    one = StreamOffsets(offsets={("b", 10): 1, ("a", 0): 2, ("b", 9): 3}, group="g")
    other = StreamOffsets(offsets={("a", 0): 2, ("b", 9): 3, ("b", 10): 1}, group="g")
    text = json.dumps(one.as_json())
    assert text == json.dumps(other.as_json())
    assert text == '{"version": 1, "group": "g", "offsets": {"a": {"0": 2}, "b": {"9": 3, "10": 1}}}'


def test_written_offsets_are_read_back() -> None:
    """Offsets round-trip, with the start of the first batch; those of spark-sql-kafka are also read."""
    first = StreamOffsets(offsets={("a", 0): 2}, group="g", start={("a", 0): 1})
    assert read_offsets(first.as_json(), "g") == first
    known = StreamOffsets(offsets={("a", 0): 2}, group="g", topic_ids={"b": "B", "a": "A"})
    assert list(known.as_json()["topicIds"]) == ["a", "b"]  # type: ignore[call-overload]  # a mapping
    assert read_offsets(known.as_json(), "g") == known
    assert read_offsets({"a": {"0": 2}}, "g") == StreamOffsets(offsets={("a", 0): 2}, group=None)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"version": 1, "group": "other", "offsets": {}}, "belongs to a query with group.id='other'"),
        ({"version": 2, "group": "g"}, "this release reads version 1"),
        ({"seq": 5}, "these are not Kafka offsets"),
        ({"version": 1, "group": "g", "offsets": None}, "these are not Kafka offsets"),
        ({"version": 1, "group": "g", "offsets": {}, "topicIds": ["A"]}, "these are not topic ids"),
    ],
)
def test_checkpoints_of_another_group_version_or_source_are_refused(found: dict[str, object], words: str) -> None:
    """The error names the reason."""
    with pytest.raises(ConfigurationError, match=words):
        read_offsets(found, "g")


def test_limited_batch_takes_a_proportional_share_of_each_partition() -> None:
    """Each partition with records contributes at least one record."""
    start = {("a", 0): 0, ("a", 1): 10, ("a", 2): 5, ("a", 3): 7}
    ends = {("a", 0): 900, ("a", 1): 110, ("a", 2): 6, ("a", 3): 7}
    assert limited(start, ends, None) == ends
    assert limited(start, ends, 1001) == ends
    assert limited(start, ends, 100) == {("a", 0): 89, ("a", 1): 19, ("a", 2): 6, ("a", 3): 7}
