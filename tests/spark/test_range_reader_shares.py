"""How a bounded read distributes offsets over tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.spark.range_reader import LEAST_OFFSETS, ReadRange, divide_ranges


def whole(partition: int, offsets: int, first: int = 0) -> ReadRange:
    """The whole range of one partition."""
    return ReadRange(topic="t", partition=partition, first=first, end=first + offsets)


RANGES = st.lists(
    st.tuples(st.integers(0, 4 * LEAST_OFFSETS) | st.integers(0, 40 * LEAST_OFFSETS), st.integers(0, 2**40)),
    max_size=20,
).map(lambda sizes: [whole(number, offsets, first) for number, (offsets, first) in enumerate(sizes)])


@given(RANGES, st.integers(1, 9))
def test_shares_contain_every_offset_once(ranges: list[ReadRange], tasks: int) -> None:
    """For any sizes, the pieces of a partition are consecutive and cover it."""
    shares = divide_ranges(ranges, tasks)
    assert len(shares) <= tasks
    assert all(shares)
    pieces = [piece for share in shares for piece in share]
    for each in ranges:
        edges = [(piece.first, piece.end) for piece in pieces if piece.topic_partition == each.topic_partition]
        assert [first for first, _ in edges] == ([each.first] if edges else []) + [end for _, end in edges[:-1]]
        assert (edges[-1][1] if edges else each.first) == each.end


@given(RANGES, st.integers(1, 9))
def test_no_piece_is_small_unless_its_partition_is(ranges: list[ReadRange], tasks: int) -> None:
    """No piece costs more to start than to read, and each task has at most one piece per partition."""
    sizes = {each.topic_partition: each.offsets for each in ranges}
    for share in divide_ranges(ranges, tasks):
        assert len({piece.topic_partition for piece in share}) == len(share)
        assert all(piece.offsets >= min(LEAST_OFFSETS, sizes[piece.topic_partition]) for piece in share)


@given(RANGES, st.integers(1, 9))
def test_shares_are_about_equal(ranges: list[ReadRange], tasks: int) -> None:
    """A task exceeds the larger of its even share and `LEAST_OFFSETS` by at most `tasks` times `LEAST_OFFSETS`."""
    even = sum(each.offsets for each in ranges) / tasks
    for share in divide_ranges(ranges, tasks):
        assert sum(piece.offsets for piece in share) <= max(even, LEAST_OFFSETS) + tasks * LEAST_OFFSETS + 1


def test_one_big_partition_is_shared_by_all_tasks() -> None:
    """All slots work although the topic has fewer partitions than Spark has slots."""
    shares = divide_ranges([whole(0, 100_000)], 4)
    assert [[(piece.first, piece.end) for piece in share] for share in shares] == [
        [(0, 25_000)],
        [(25_000, 50_000)],
        [(50_000, 75_000)],
        [(75_000, 100_000)],
    ]


def test_equal_partitions_are_not_cut_without_need() -> None:
    """Two tasks fetch the records around a cut, so partitions are cut only if needed."""
    shares = divide_ranges([whole(number, 83_333) for number in range(12)], 2)
    assert [[piece.partition for piece in share] for share in shares] == [list(range(6)), list(range(6, 12))]


def test_few_records_are_read_by_one_task() -> None:
    """Twelve partitions with a few records each make one task."""
    assert len(divide_ranges([whole(number, 5) for number in range(12)], 8)) == 1


def test_empty_ranges_make_no_task() -> None:
    """Empty ranges are in no share."""
    assert divide_ranges([whole(0, 0), whole(1, 0, first=7)], 4) == ()
