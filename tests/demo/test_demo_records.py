"""Numbers, partitions, runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.demo.records import Run, Runs, key_of, partition_of, value_of


@given(number=st.integers(0, 10**9), partitions=st.integers(1, 500))
def test_key_belongs_to_one_partition(number: int, partitions: int) -> None:
    """A record's key names its partition, so that a key never moves."""
    key = int(key_of(number, partitions).removeprefix(b"customer-"))
    assert partition_of(key, partitions) == partition_of(number, partitions)


def test_value_is_the_number() -> None:
    """In decimal."""
    assert value_of(127) == b"127"


@given(
    numbers=st.lists(st.integers(0, 200)),
    partitions=st.integers(1, 12),
)
def test_runs_hold_the_numbers_that_were_added(numbers: list[int], partitions: int) -> None:
    """Whatever the order, and with repetitions; in each partition in the order of arrival."""
    runs = Runs(partitions)
    for number in numbers:
        runs.add(number)
    told = [
        number for run in runs.take() for number in range(run.first, run.first + run.length * partitions, partitions)
    ]
    for partition in range(partitions):
        expected = [number for number in numbers if number % partitions == partition]
        assert [number for number in told if number % partitions == partition] == expected
    assert runs.take() == ()


def test_consecutive_numbers_of_a_partition_are_one_run() -> None:
    """That is the point of runs."""
    runs = Runs(3)
    for number in range(9):
        runs.add(number)
    assert runs.take() == (Run(0, 3), Run(1, 3), Run(2, 3))
