"""The calculations of the figure overlap, without measurements and without a broker."""

from __future__ import annotations

import pytest

from tests.benchmarks.tenures import Overlap, Tenure, overlap, tenures_of


def tenure(owner: str, *moments: float) -> Tenure:
    """Return a tenure with these hand-outs."""
    return Tenure(owner=owner, moments=moments)


def test_overlap_is_the_time_from_the_newer_owners_first_hand_out_to_the_older_owners_last_one() -> None:
    """The records that the older owner hands out in this time are counted."""
    found = overlap([tenure("new", 3.0, 9.0), tenure("old", 1.0, 2.0, 3.5, 4.0)])
    assert found == Overlap(ms=1000.0, records=2, gap_ms=None, has_changed=True)


def test_overlap_is_zero_if_the_older_owner_stopped_before_the_newer_one_began() -> None:
    """The gap between the two is reported."""
    found = overlap([tenure("old", 1.0, 2.0), tenure("new", 2.5, 4.0)])
    assert found == Overlap(ms=0.0, records=0, gap_ms=500.0, has_changed=True)


def test_overlap_of_a_partition_that_never_moved_is_zero_without_a_change() -> None:
    """Rounds without a second owner prove nothing and can be counted separately."""
    found = overlap([tenure("old", 1.0, 2.0), tenure("old", 5.0)])
    assert found == Overlap(ms=0.0, records=0, gap_ms=None, has_changed=False)


def test_partition_that_returns_to_its_former_owner_does_not_overlap() -> None:
    """Hand-outs under a later assignment belong to another tenure."""
    found = overlap([tenure("old", 1.0, 2.0), tenure("old", 7.0, 8.0), tenure("new", 3.0, 6.0)])
    assert found == Overlap(ms=0.0, records=0, gap_ms=1000.0, has_changed=True)


def test_longest_overlap_of_several_changes_counts() -> None:
    """Each pair of tenures of different owners is compared."""
    found = overlap([tenure("old", 1.0, 3.0), tenure("new", 2.0, 9.0), tenure("old", 5.0, 8.0)])
    assert found.ms == 4000.0


@pytest.mark.parametrize("moments", [[], [[]]])
def test_assignment_without_a_record_is_no_tenure(moments: list[list[float]]) -> None:
    """An owner that handed out no record does not overlap with any other one."""
    assert tenures_of("old", moments) == []
