"""The calculations of the figure hand-over, without measurements and without a broker."""

from __future__ import annotations

import pytest

from tests.benchmarks.builders import record, series
from tests.benchmarks.figures.hand_over import Measured, judge


@pytest.mark.parametrize(("first", "repeated", "lost"), [(4, 0, 0), (3, 1, 0), (1, 3, 0), (6, 0, 2)])
def test_judge_counts_repeated_and_lost_records_between_the_processes(first: int, repeated: int, lost: int) -> None:
    """The new process has to continue at the offset after the old one's last record."""
    old = [record(0, offset, float(offset)) for offset in (1, 2, 3)]
    new = [record(0, offset, 10.0 + offset - first) for offset in (first, first + 1)]
    into = Measured(gap=series(), repeated=series(), lost=series())
    judge(old, new, frozenset({0}), into)
    assert [one.values for one in into.series] == [[7.0], [repeated], [lost]]


def test_judge_counts_a_replacement_without_records_as_failed() -> None:
    """A partition without a record at the new process has no gap that could be measured."""
    into = Measured(gap=series(), repeated=series(), lost=series())
    judge([record(0, 1, 1.0)], [], frozenset({0}), into)
    assert [(one.values, len(one.failures)) for one in into.series] == [([], 1)] * 3
