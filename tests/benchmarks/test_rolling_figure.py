"""The calculations of the figure rolling, without measurements and without a broker."""

from __future__ import annotations

import pytest

from tests.benchmarks.builders import bench
from tests.benchmarks.figures.rolling import CELLS, Change, Kind, Way, changes_between, periods_of
from tests.benchmarks.workers.ownership import Period


def period(first: int, first_at: float, last: int, last_at: float, *, partition: int = 0, sent_at: float = 0) -> Period:
    """Return a period without repeated or skipped records."""
    return Period(partition=partition, first=first, sent_at=sent_at, first_at=first_at, last=last, last_at=last_at)


@pytest.mark.parametrize(("first", "repeated", "lost"), [(10, 0, 0), (8, 2, 0), (13, 0, 3)])
def test_changes_count_repeated_and_lost_records_between_periods(first: int, repeated: int, lost: int) -> None:
    """The later period has to continue at the offset after the earlier period's last record."""
    changes = changes_between([period(first, 5.0, 20, 9.0), period(1, 1.0, 9, 4.0)], began_at=4.5)
    assert changes == [Change(partition=0, gap_s=1.0, stall_s=1.0, repeated=repeated, lost=lost)]


def test_changes_stall_begins_when_the_first_record_is_sent() -> None:
    """A pause of the stream lengthens the gap of a partition, and not its stall."""
    (change,) = changes_between([period(1, 1.0, 9, 4.0), period(10, 5.0, 20, 9.0, sent_at=4.75)], began_at=0.0)
    assert (change.gap_s, change.stall_s) == (1.0, 0.25)


def test_changes_before_the_deployment_do_not_count() -> None:
    """The members' first rebalances move partitions and are not part of the measurement."""
    assert changes_between([period(1, 1.0, 9, 4.0), period(10, 5.0, 20, 9.0)], began_at=6.0) == []


def test_changes_are_between_periods_of_one_partition() -> None:
    """Two partitions that each have one period have no change."""
    assert changes_between([period(1, 1.0, 9, 4.0), period(1, 5.0, 9, 9.0, partition=1)], began_at=0.0) == []


def test_period_counts_repeated_and_skipped_offsets() -> None:
    """Offsets that are received again or skipped within a period count as repeated or lost in the deployment."""
    later = period(10, 5.0, 10, 5.0)
    for offset in (11, 11, 14):
        later.add(offset, 6.0)
    assert (later.repeated, later.skipped, later.last) == (1, 2, 14)
    (change,) = changes_between([period(1, 1.0, 9, 4.0), *periods_of([later.row()])], began_at=0.0)
    assert (change.repeated, change.lost) == (1, 2)


@pytest.mark.parametrize("kind", Kind)
def test_way_gives_each_member_its_id(kind: Kind) -> None:
    """A pool has as many ids as members; restarted members keep their id; dynamic members have none."""
    config = Way(side=bench(None).ours(), kind=kind).config(2, 20)
    expected = {
        Kind.WAIT: {"group.instance.id.pool": "member-{0..19}"},
        Kind.HAND_OVER: {
            "group.instance.id.pool": "member-{0..19}",
            "group.instance.id.conflict.policy": "hand-over",
        },
        Kind.RESTART: {"group.instance.id": "member-2"},
        Kind.SURGE: {},
    }
    assert config == expected[kind]


def test_cells_are_both_sizes_at_both_rates() -> None:
    """Groups of 3 and 20 processes, at 600 and 20,000 records a second."""
    assert [(size.members, size.records_per_s) for size in CELLS.values()] == [
        (members, rate) for members in (3, 20) for rate in (600, 20_000)
    ]
