"""The demo's check: it must fail where the promise is broken, or it shows nothing."""

from __future__ import annotations

import pytest

from consumer_membership.demo.ledger import Ledger, Verdict
from consumer_membership.demo.records import Run

PARTITIONS = 3
PRODUCED = 9
ENDS = {0: 3, 1: 3, 2: 3}
FIRST, SECOND, THIRD = range(3)


def a_ledger(*seen: tuple[int, Run]) -> Ledger:
    """A ledger that was told so."""
    ledger = Ledger(PARTITIONS)
    for member, run in seen:
        ledger.note(member, run)
    return ledger


def check(ledger: Ledger, *, killed: tuple[int, ...] = (), committed: dict[int, int] | None = None) -> Verdict:
    """The verdict on nine records, three in each partition."""
    return ledger.check(produced=PRODUCED, killed=killed, committed=ENDS if committed is None else committed, end=ENDS)


EVERYTHING = tuple((FIRST, Run(partition, 3)) for partition in range(PARTITIONS))


def test_check_holds_where_every_record_was_seen_once() -> None:
    """All seen, none twice, committed offsets = end offsets."""
    expected = Verdict(produced=9, seen=9, twice=0, committed=9, end=9, findings=())
    assert check(a_ledger(*EVERYTHING)) == expected
    assert expected.holds


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        pytest.param(((FIRST, Run(0, 3)), (FIRST, Run(1, 3)), (FIRST, Run(2, 2))), "8", id="the last one"),
        pytest.param(((FIRST, Run(0, 3)), (FIRST, Run(1, 3)), (FIRST, Run(5, 2))), "2", id="the first one"),
        pytest.param(((FIRST, Run(0, 3)), (FIRST, Run(1, 1)), (FIRST, Run(7, 1)), (FIRST, Run(2, 3))), "4", id="a gap"),
    ],
)
def test_lost_record_makes_the_check_fail(seen: tuple[tuple[int, Run], ...], missing: str) -> None:
    """A number that nobody saw is named."""
    verdict = check(a_ledger(*seen))
    assert verdict.findings == (f"1 records were never seen: {missing}",)
    assert not verdict.holds


def test_check_fails_where_nothing_was_seen_at_all() -> None:
    """The numbers are named up to a handful."""
    assert check(a_ledger()).findings == ("9 records were never seen: 0, 1, 2, 3, 4, ...",)


def test_doubled_record_makes_the_check_fail_where_nobody_was_killed() -> None:
    """A leave in good order or a join causes no double."""
    verdict = check(a_ledger(*EVERYTHING, (SECOND, Run(4, 2))))
    assert verdict.findings == ("2 records were seen more than once although no killed member had them: 4, 7",)
    assert verdict.twice == 0


def test_doubled_record_of_another_member_makes_the_check_fail_after_a_kill() -> None:
    """A kill excuses the doubles of the killed member only."""
    verdict = check(a_ledger(*EVERYTHING, (SECOND, Run(4, 1))), killed=(THIRD,))
    assert verdict.findings == ("1 records were seen more than once although no killed member had them: 4",)


def test_member_that_sees_its_own_record_again_makes_the_check_fail() -> None:
    """To go back behind one's own position is a double as well."""
    assert not check(a_ledger(*EVERYTHING, (FIRST, Run(4, 1)))).holds


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_record_of_a_killed_member_may_be_seen_twice(order: tuple[int, int]) -> None:
    """What it had not committed comes again, in whatever order the reports arrive."""
    former, later = order
    ledger = a_ledger((former, Run(0, 3)), (former, Run(1, 3)), (former, Run(2, 3)), (later, Run(3, 2)))
    verdict = check(ledger, killed=(FIRST,))
    assert (verdict.holds, verdict.twice) == (True, 2)


@pytest.mark.parametrize(
    ("committed", "finding"),
    [
        ({0: 3, 1: 2, 2: 3}, "partition 1: committed offset 2, end offset 3"),
        ({0: 3, 1: 4, 2: 3}, "partition 1: committed offset 4, end offset 3"),
        ({0: 3, 2: 3}, "partition 1: committed offset none, end offset 3"),
    ],
)
def test_committed_offset_other_than_the_end_makes_the_check_fail(committed: dict[int, int], finding: str) -> None:
    """Behind, beyond or missing: the partition is named."""
    assert check(a_ledger(*EVERYTHING), committed=committed).findings == (finding,)


def test_partition_without_records_needs_no_commit() -> None:
    """An end offset of 0 and no commit agree."""
    ledger = a_ledger((FIRST, Run(0, 1)))
    assert ledger.check(produced=1, killed=(), committed={0: 1}, end={0: 1, 1: 0, 2: 0}).holds


def test_record_that_was_never_produced_makes_the_check_fail() -> None:
    """A number beyond the last one."""
    assert check(a_ledger(*EVERYTHING, (FIRST, Run(9, 1)))).findings == ("1 records were seen and never produced: 9",)


@pytest.mark.parametrize("count", ["strange", "unacknowledged"])
def test_record_that_is_not_accounted_for_makes_the_check_fail(count: str) -> None:
    """Foreign records and unacknowledged ones: the numbers prove nothing then."""
    counts = {count: 1}
    verdict = a_ledger(*EVERYTHING).check(produced=PRODUCED, killed=(), committed=ENDS, end=ENDS, **counts)
    assert len(verdict.findings) == 1
