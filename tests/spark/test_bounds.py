"""The progress of a bounded drain."""

from __future__ import annotations

import pytest

from consumer_membership.spark.bounds import Bounds, Tally, tally_in
from consumer_membership.spark.context import OffsetRange

A, B = ("t", 0), ("t", 1)
RUN = "p@7"
#: Ten records of A.
TEN = OffsetRange(topic="t", partition=0, first=50, next_offset=60, records=10)


def tally(records: int, run: str = RUN) -> Tally:
    """A tally of some records from offset 3 on."""
    return Tally(run=run, first=3, records=records, began_at=1.0, ended_at=2.5)


def test_drain_is_done_when_every_partition_is_committed_to_its_end() -> None:
    """A drain is done when all partitions are committed to their ends, by any member."""
    bounds = Bounds(RUN, {A: 10, B: 5})
    assert (bounds.is_done, bounds.left) == (False, {A, B})
    bounds.note(A, 10)
    assert bounds.left == {B}
    bounds.learn(B, 7, "")
    assert bounds.is_done


def test_empty_partition_is_done_without_a_commit() -> None:
    """A partition that never had a record is done without a committed offset."""
    bounds = Bounds(RUN, {A: 0})
    assert bounds.is_done
    bounds.learn(A, -1001, None)
    assert bounds.is_done


def test_run_without_ends_is_never_done() -> None:
    """A run without ends is unbounded and never done."""
    bounds = Bounds(RUN, None)
    bounds.note(A, 10)
    assert (bounds.is_bounded, bounds.is_done, bounds.end_of(A)) == (False, False, None)


def test_partition_added_after_the_plan_is_not_part_of_the_drain() -> None:
    """A partition that was added after the plan ends at offset 0, so that the drain reads nothing from it."""
    bounds = Bounds(RUN, {A: 10})
    bounds.learn(B, -1, None)
    assert (bounds.end_of(B), bounds.left) == (0, {A})


def test_outstanding_counts_the_offsets_up_to_the_ends() -> None:
    """`outstanding` counts the open offsets of the given partitions.

    An unknown position of an open partition makes it None.
    """
    bounds = Bounds(RUN, {A: 10, B: 5})
    assert bounds.outstanding({A: 7, B: 1}, [A, B]) == 7
    assert bounds.outstanding({A: 12}, [A]) == 0
    assert bounds.outstanding({A: 7}, [A, B]) is None
    bounds.note(B, 5)
    assert bounds.outstanding({A: 7}, [A, B]) == 3


def test_reset_committed_offset_makes_a_partition_open_again() -> None:
    """A partition whose committed offset was reset below its end is no longer done."""
    bounds = Bounds(RUN, {A: 10})
    bounds.learn(A, 10, "")
    bounds.learn(A, 4, "")
    assert bounds.left == {A}


def test_tally_continues_the_count_of_another_member() -> None:
    """A tally adds to the count that another member or a killed attempt committed."""
    bounds = Bounds(RUN, {A: 100})
    bounds.learn(A, 50, tally(40).metadata())
    assert tally_in(bounds.metadata(TEN, 5.0, 6.0), RUN) == Tally(
        run=RUN, first=3, records=50, began_at=1.0, ended_at=6.0
    )
    assert bounds.metadata_of(A) == tally(40).metadata()
    bounds.keep(TEN, 5.0, 6.0)
    assert tally_in(bounds.metadata_of(A), RUN) == Tally(run=RUN, first=3, records=50, began_at=1.0, ended_at=6.0)


def test_tally_of_another_run_is_ignored() -> None:
    """A run ignores the tally of another run and begins at its own first record."""
    bounds = Bounds(RUN, {A: 100})
    bounds.learn(A, 50, tally(40, "other@1").metadata())
    assert tally_in(bounds.metadata(TEN, 5.0, 6.0), RUN) == Tally(
        run=RUN, first=50, records=10, began_at=5.0, ended_at=6.0
    )


@pytest.mark.parametrize("metadata", [None, "", "{}", "[]", "7", "somebody else's", '{"run":"p@7","first":"x"}'])
def test_foreign_commit_metadata_is_ignored(metadata: str | None) -> None:
    """Commit metadata that an application wrote is not read as a tally."""
    assert tally_in(metadata, RUN) is None
