"""Where a coordinator writes a group down."""

from __future__ import annotations

import pytest

from consumer_membership.runtime.group_log import partition_of


@pytest.mark.parametrize(
    ("group_id", "java_hash"), [("test", 3_556_498), ("\U0001f600", 1_772_899), ("polygenelubricants", -(1 << 31))]
)
def test_partition_of_a_group_is_by_javas_hash(group_id: str, java_hash: int) -> None:
    """Over UTF-16, with sign; the least number has no absolute value, and counts as 0."""
    assert partition_of(group_id, 50) == (0 if java_hash == -(1 << 31) else abs(java_hash) % 50)
