"""How texts name the records of a batch."""

from __future__ import annotations

import pytest

from consumer_membership.spark.context import OffsetRange, described


def part(number: int, first: int, next_offset: int) -> OffsetRange:
    """Records of one partition."""
    return OffsetRange(
        topic="orders", partition=number, first=first, next_offset=next_offset, records=next_offset - first
    )


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([part(0, 17, 18)], "orders-0@17"),
        ([part(0, 0, 100), part(3, 5, 6)], "orders-0@0..99, orders-3@5"),
        (
            [part(number, 0, 10) for number in range(2000)],
            "orders-0@0..9, orders-1@0..9, orders-2@0..9, and 1997 more partitions",
        ),
    ],
)
def test_described_names_records_in_bounded_length(ranges: list[OffsetRange], text: str) -> None:
    """`described` names the records of at most three partitions and counts the other partitions."""
    assert described(ranges) == text
