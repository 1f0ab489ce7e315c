"""The calculations of the classic figures, without measurements and without a broker."""

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
def test_medians_at_most_is_undecided_if_chance_can_explain_the_excess(
    ours: list[float], raw: list[float], verdict: Verdict
) -> None:
    """The values are unpaired: if resampling often brings the quotient below the limit, the bound is undecided."""
    check = medians_at_most("a bound", series(*ours), series(*raw, is_ours=False), 1.1)

    assert check.verdict is verdict


def test_medians_at_most_fails_after_a_failure_of_our_side() -> None:
    """Chance cannot explain a failed measurement, so the bound fails."""
    values = [0.5, 2.0] * 6
    check = medians_at_most("a bound", series(*values, 2.0, failures=1), series(*values, 0.5, is_ours=False), 1.1)

    assert check.verdict is Verdict.FAIL


def test_quotient_interval_is_reproducible() -> None:
    """Equal values have equal intervals, and too few values have none."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = quotient_interval(values, values)

    assert found == quotient_interval(values, values)
    assert found is not None
    assert found[0] < 1.0 < found[1]
    assert quotient_interval(values[:5], values) is None


def test_longest_gaps_returns_the_longest_pause_of_each_partition() -> None:
    """The pauses cover all members; pauses at either end count only within the two times."""
    handled = [record(0, 1, 9.0), record(0, 2, 10.5), record(0, 3, 11.5), record(0, 4, 13.0), record(1, 1, 20.0)]

    assert longest_gaps(handled, 10.0, 12.0) == {0: 1.0, 1: 2.0}


def test_first_record_at_ignores_records_from_before_the_current_assignment() -> None:
    """Records that an eager member read before it gave up its partitions do not count."""
    share = assigned_at(
        [callback("assigned", 1.0, 0, 1, 2), callback("revoked", 2.0, 0, 1), callback("assigned", 3.0, 1)]
    )
    handled = [record(0, 1, 1.5), record(1, 1, 1.6), record(1, 1, 3.5), record(2, 7, 3.6)]

    assert share == {2: 1.0, 1: 3.0}
    assert first_record_at(handled, share) == 3.5
    with pytest.raises(WorkerFailedError, match=r"\[1, 2\]"):
        first_record_at(handled[:2], share)


def test_schedules_cover_all_heartbeat_phases_and_all_leavers() -> None:
    """Each part of the heartbeat interval occurs once, and every member leaves in turn."""
    plan = schedules(bench(rounds=None), 6)

    assert sorted(int(one.out_phase * 6) for one in plan) == list(range(6))
    assert sorted(int(one.leave_phase * 6) for one in plan) == list(range(6))
    assert [one.leaver for one in plan] == [0, 1, 2, 0, 1, 2]
