"""The arithmetic of the classic figures. No measurement is made here, and no broker is needed."""

from __future__ import annotations

import pytest

from tests.benchmarks.builders import bench, callback, record, series
from tests.benchmarks.figures.classic import schedules
from tests.benchmarks.groups import assigned_at, first_record_at, longest_gaps
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Verdict, medians_at_most, quotient_interval


@pytest.mark.parametrize(
    ("ours", "raw", "verdict"),
    [
        ([1.0] * 12, [1.0] * 12, Verdict.PASS),
        ([1.2] * 12, [1.0] * 12, Verdict.FAIL),
        ([0.5, 2.0] * 6 + [2.0], [0.5, 2.0] * 6 + [0.5], Verdict.UNDECIDED),
        ([1.2], [1.0], Verdict.FAIL),
        ([], [1.0], Verdict.FAIL),
        ([1.0], [], Verdict.FAIL),
    ],
)
def test_median_that_chance_may_put_above_the_limit_is_undecided(
    ours: list[float], raw: list[float], verdict: Verdict
) -> None:
    """Unpaired values: what resampling of them often brings below the limit is no miss."""
    check = medians_at_most("a bound", series(*ours), series(*raw, is_ours=False), 1.1)

    assert check.verdict is verdict


def test_own_failure_is_not_excused_by_chance() -> None:
    """As for ratios."""
    values = [0.5, 2.0] * 6
    check = medians_at_most("a bound", series(*values, 2.0, failures=1), series(*values, 0.5, is_ours=False), 1.1)

    assert check.verdict is Verdict.FAIL


def test_interval_of_a_quotient_is_reproducible() -> None:
    """The same values, the same interval; too few have none."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = quotient_interval(values, values)

    assert found == quotient_interval(values, values)
    assert found is not None
    assert found[0] < 1.0 < found[1]
    assert quotient_interval(values[:5], values) is None


def test_longest_gaps_between_two_moments() -> None:
    """Of each partition, whoever handled it; a silence at either end counts as far as it lies between them."""
    handled = [record(0, 1, 9.0), record(0, 2, 10.5), record(0, 3, 11.5), record(0, 4, 13.0), record(1, 1, 20.0)]

    assert longest_gaps(handled, 10.0, 12.0) == {0: 1.0, 1: 2.0}


def test_first_record_is_one_of_the_present_share() -> None:
    """What an eager member read before it gave everything up, and got some of it again, does not count."""
    share = assigned_at(
        [callback("assigned", 1.0, 0, 1, 2), callback("revoked", 2.0, 0, 1), callback("assigned", 3.0, 1)]
    )
    handled = [record(0, 1, 1.5), record(1, 1, 1.6), record(1, 1, 3.5), record(2, 7, 3.6)]

    assert share == {2: 1.0, 1: 3.0}
    assert first_record_at(handled, share) == 3.5
    with pytest.raises(WorkerFailedError, match=r"\[1, 2\]"):
        first_record_at(handled[:2], share)


def test_schedules_meet_early_and_late_phases() -> None:
    """Each part of a heartbeat's interval is met once, and every member leaves in turn."""
    plan = schedules(bench(rounds=None), 6)

    assert sorted(int(one.out_phase * 6) for one in plan) == list(range(6))
    assert sorted(int(one.leave_phase * 6) for one in plan) == list(range(6))
    assert [one.leaver for one in plan] == [0, 1, 2, 0, 1, 2]
