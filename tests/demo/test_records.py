"""Numbers, partitions and runs of records, and the demo's check, which must fail for each lost or repeated record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.demo.records import CheckResult, GatheredRuns, Run, SeenRecords, key_of, partition_of, value_of

PARTITIONS = 3
PRODUCED = 9
ENDS = {0: 3, 1: 3, 2: 3}
FIRST, SECOND, THIRD = range(3)
EVERYTHING = tuple((FIRST, Run(partition, 3)) for partition in range(PARTITIONS))


@given(number=st.integers(0, 10**9), partitions=st.integers(1, 500))
def test_key_belongs_to_one_partition(number: int, partitions: int) -> None:
    """A record's key determines its partition, so that a key never moves."""
    key = int(key_of(number, partitions).removeprefix(b"customer-"))
    assert partition_of(key, partitions) == partition_of(number, partitions)


def test_value_is_the_number_in_decimal() -> None:
    """A record's value is its number in decimal."""
    assert value_of(127) == b"127"


@given(
    numbers=st.lists(st.integers(0, 200)),
    partitions=st.integers(1, 12),
)
def test_runs_hold_the_numbers_that_were_added(numbers: list[int], partitions: int) -> None:
    """Runs keep all numbers, with repetitions, in the order of arrival of each partition."""
    runs = GatheredRuns(partitions)
    for number in numbers:
        runs.add(number)
    returned = [
        number for run in runs.take() for number in range(run.first, run.first + run.length * partitions, partitions)
    ]
    for partition in range(partitions):
        expected = [number for number in numbers if number % partitions == partition]
        assert [number for number in returned if number % partitions == partition] == expected
    assert runs.take() == ()


def test_consecutive_numbers_of_a_partition_are_one_run() -> None:
    """Consecutive numbers of a partition are stored as one run."""
    runs = GatheredRuns(3)
    for number in range(9):
        runs.add(number)
    assert runs.take() == (Run(0, 3), Run(1, 3), Run(2, 3))


def records_seen(*seen: tuple[int, Run]) -> SeenRecords:
    """Return the records that these members received."""
    records = SeenRecords(PARTITIONS)
    for member, run in seen:
        records.add(member, run)
    return records


def check(
    records: SeenRecords, *, killed: tuple[int, ...] = (), committed: dict[int, int] | None = None
) -> CheckResult:
    """Return the result of the check for nine records, three in each partition."""
    return records.check(produced=PRODUCED, killed=killed, committed=ENDS if committed is None else committed, end=ENDS)


def test_check_holds_if_every_record_was_seen_once() -> None:
    """The check holds if all records were seen once and committed offsets equal end offsets."""
    expected = CheckResult(produced=9, seen=9, twice=0, committed=9, end=9, findings=())
    assert check(records_seen(*EVERYTHING)) == expected
    assert expected.holds


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        pytest.param(((FIRST, Run(0, 3)), (FIRST, Run(1, 3)), (FIRST, Run(2, 2))), "8", id="the last one"),
        pytest.param(((FIRST, Run(0, 3)), (FIRST, Run(1, 3)), (FIRST, Run(5, 2))), "2", id="the first one"),
        pytest.param(((FIRST, Run(0, 3)), (FIRST, Run(1, 1)), (FIRST, Run(7, 1)), (FIRST, Run(2, 3))), "4", id="a gap"),
    ],
)
def test_check_fails_for_a_lost_record_and_names_it(seen: tuple[tuple[int, Run], ...], missing: str) -> None:
    """The check fails if no member received a record, and its finding has the record's number."""
    result = check(records_seen(*seen))
    assert result.findings == (f"records never consumed: 1 ({missing})",)
    assert not result.holds


def test_check_without_seen_records_names_the_first_numbers() -> None:
    """The finding about missing records has at most five numbers."""
    assert check(records_seen()).findings == ("records never consumed: 9 (0, 1, 2, 3, 4, ...)",)


def test_check_fails_for_a_duplicate_without_a_killed_member() -> None:
    """The check fails for a duplicate without a kill, because a join or a clean leave never duplicates a record."""
    result = check(records_seen(*EVERYTHING, (SECOND, Run(4, 2))))
    finding = "records consumed more than once, although no killed member consumed them: 2 (4, 7)"
    assert result.findings == (finding,)
    assert result.twice == 0


def test_check_fails_for_a_duplicate_of_a_member_that_was_not_killed() -> None:
    """A kill excuses only the duplicates of the killed member."""
    result = check(records_seen(*EVERYTHING, (SECOND, Run(4, 1))), killed=(THIRD,))
    finding = "records consumed more than once, although no killed member consumed them: 1 (4)"
    assert result.findings == (finding,)


def test_check_fails_if_a_member_sees_its_own_record_again() -> None:
    """The check fails if a member receives a record again, because its own position must not go back."""
    assert not check(records_seen(*EVERYTHING, (FIRST, Run(4, 1)))).holds


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_check_allows_duplicates_of_a_killed_member(order: tuple[int, int]) -> None:
    """Uncommitted records of a killed member are redelivered, in whatever order the reports arrive."""
    former, later = order
    records = records_seen((former, Run(0, 3)), (former, Run(1, 3)), (former, Run(2, 3)), (later, Run(3, 2)))
    result = check(records, killed=(FIRST,))
    assert (result.holds, result.twice) == (True, 2)


@pytest.mark.parametrize(
    ("committed", "finding"),
    [
        ({0: 3, 1: 2, 2: 3}, "partition 1: committed offset 2, end offset 3"),
        ({0: 3, 1: 4, 2: 3}, "partition 1: committed offset 4, end offset 3"),
        ({0: 3, 2: 3}, "partition 1: committed offset none, end offset 3"),
    ],
)
def test_check_fails_if_a_committed_offset_is_not_the_end_offset(committed: dict[int, int], finding: str) -> None:
    """The check fails if a committed offset is behind the end, beyond the end or missing, and names the partition."""
    assert check(records_seen(*EVERYTHING), committed=committed).findings == (finding,)


def test_check_accepts_an_empty_partition_without_a_commit() -> None:
    """The check accepts a missing commit of a partition whose end offset is 0."""
    records = records_seen((FIRST, Run(0, 1)))
    assert records.check(produced=1, killed=(), committed={0: 1}, end={0: 1, 1: 0, 2: 0}).holds


def test_check_fails_for_a_record_that_was_never_produced() -> None:
    """The check fails for a number beyond the last produced record, and names the number."""
    assert check(records_seen(*EVERYTHING, (FIRST, Run(9, 1)))).findings == (
        "records consumed, but never produced: 1 (9)",
    )


@pytest.mark.parametrize("count", ["foreign", "unacknowledged"])
def test_check_fails_for_foreign_or_unacknowledged_records(count: str) -> None:
    """The check fails if there are foreign or unacknowledged records, because its numbers would prove nothing."""
    counts = {count: 1}
    result = records_seen(*EVERYTHING).check(produced=PRODUCED, killed=(), committed=ENDS, end=ENDS, **counts)
    assert len(result.findings) == 1
