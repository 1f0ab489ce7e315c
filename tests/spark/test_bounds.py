"""How far a bounded drain is."""

from __future__ import annotations

import pytest

from consumer_membership.spark.bounds import Bounds, Tally, tally_in
from consumer_membership.spark.context import OffsetRange

A, B = ("t", 0), ("t", 1)
RUN = "p@7"
#: Ten records of A.
TEN = OffsetRange(topic="t", partition=0, first=50, next_offset=60, records=10)


def tally(records: int, run: str = RUN) -> Tally:
    """Of some records from offset 3 on."""
    return Tally(run=run, first=3, records=records, began_at=1.0, ended_at=2.5)


def test_done_when_every_partition_is_committed_to_its_end() -> None:
    """By whomever."""
    bounds = Bounds(RUN, {A: 10, B: 5})
    assert (bounds.is_done, bounds.left) == (False, {A, B})
    bounds.note(A, 10)
    assert bounds.left == {B}
    bounds.learn(B, 7, "")
    assert bounds.is_done


def test_empty_partitions_are_done_at_once() -> None:
    """Nothing was ever written there; nothing is committed either."""
    bounds = Bounds(RUN, {A: 0})
    assert bounds.is_done
    bounds.learn(A, -1001, None)
    assert bounds.is_done


def test_run_without_end_is_never_done() -> None:
    """And knows no ends."""
    bounds = Bounds(RUN, None)
    bounds.note(A, 10)
    assert (bounds.is_bounded, bounds.is_done, bounds.end_of(A)) == (False, False, None)


def test_partition_that_came_later_is_not_part_of_it() -> None:
    """Its end is where it begins."""
    bounds = Bounds(RUN, {A: 10})
    bounds.learn(B, -1, None)
    assert (bounds.end_of(B), bounds.left) == (0, {A})


def test_outstanding_are_the_offsets_up_to_the_ends() -> None:
    """Of the partitions asked for; a position that is not known makes it unknown, but not that of a partition done."""
    bounds = Bounds(RUN, {A: 10, B: 5})
    assert bounds.outstanding({A: 7, B: 1}, [A, B]) == 7
    assert bounds.outstanding({A: 12}, [A]) == 0
    assert bounds.outstanding({A: 7}, [A, B]) is None
    bounds.note(B, 5)
    assert bounds.outstanding({A: 7}, [A, B]) == 3


def test_commit_that_was_reset_makes_a_partition_undone() -> None:
    """What the coordinator says counts."""
    bounds = Bounds(RUN, {A: 10})
    bounds.learn(A, 10, "")
    bounds.learn(A, 4, "")
    assert bounds.left == {A}


def test_tally_grows_from_commit_to_commit() -> None:
    """From what another member, or an attempt that was killed, had counted."""
    bounds = Bounds(RUN, {A: 100})
    bounds.learn(A, 50, tally(40).metadata())
    assert tally_in(bounds.metadata(TEN, 5.0, 6.0), RUN) == Tally(
        run=RUN, first=3, records=50, began_at=1.0, ended_at=6.0
    )
    assert bounds.metadata_of(A) == tally(40).metadata()
    bounds.keep(TEN, 5.0, 6.0)
    assert tally_in(bounds.metadata_of(A), RUN) == Tally(run=RUN, first=3, records=50, began_at=1.0, ended_at=6.0)


def test_tally_of_another_run_is_none() -> None:
    """This one begins at its own first record."""
    bounds = Bounds(RUN, {A: 100})
    bounds.learn(A, 50, tally(40, "other@1").metadata())
    assert tally_in(bounds.metadata(TEN, 5.0, 6.0), RUN) == Tally(
        run=RUN, first=50, records=10, began_at=5.0, ended_at=6.0
    )


@pytest.mark.parametrize("metadata", [None, "", "{}", "[]", "7", "somebody else's", '{"run":"p@7","first":"x"}'])
def test_metadata_of_others_are_no_tally(metadata: str | None) -> None:
    """Applications may write there what they like."""
    assert tally_in(metadata, RUN) is None
