"""The calculations of the Spark figures, without measurements, a broker or Spark."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks import __main__ as runner
from tests.benchmarks.builders import bench
from tests.benchmarks.figures import spark, spark_growth
from tests.benchmarks.figures.spark import COMPARISONS, MeasuredSide
from tests.benchmarks.figures.spark_recovery import (
    CELLS,
    WORKER,
    Audit,
    Counted,
    audit,
    checks,
    chosen,
    latest,
    replacement,
)
from tests.benchmarks.samples import Verdict
from tests.benchmarks.workers.spark_marks import Mark
from tests.benchmarks.workers.spark_turns import Turn


def mark(instance: int, attempt: int, pid: int = 10) -> Mark:
    """Return an attempt that received its first record half a second after its start."""
    return Mark(instance=instance, attempt=attempt, pid=pid, executor=5, began_at=attempt, first_at=attempt + 0.5)


def measured_sides(ours: list[float], theirs: list[float]) -> tuple[MeasuredSide, MeasuredSide]:
    """Return both sides of the first comparison with these times, after a warm-up that does not count."""
    run = bench(rounds=None)
    both = (MeasuredSide.of(run.ours(), COMPARISONS[0]), MeasuredSide.of(run.raw("spark-sql-kafka"), COMPARISONS[0]))
    for one, seconds in zip(both, (ours, theirs), strict=True):
        for number, wall_s in enumerate([99.0, *seconds]):
            one.count(wall_s, number, 1000)
    return both


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([1.0, 1.0, 2.0], [5.0, 6.0, 8.0], Verdict.PASS),
        ([1.0, 1.0, 2.0], [4.9, 6.0, 8.0], Verdict.FAIL),
        ([1.0], [], Verdict.FAIL),
    ],
)
def test_check_compares_the_median_ratio_of_times_without_the_warm_up(
    ours: list[float], theirs: list[float], verdict: Verdict
) -> None:
    """The ratio divides their time by ours: five times as fast means a fifth of the seconds."""
    assert spark.check(*measured_sides(ours, theirs)).verdict is verdict


def test_check_fails_after_a_failed_turn_of_our_side() -> None:
    """A failed turn of our side fails the bound, however fast the other turns were."""
    ours, theirs = measured_sides([1.0], [9.0])
    assert spark.check(ours, theirs).verdict is Verdict.PASS
    ours.wall.fail("because")
    assert spark.check(ours, theirs).verdict is Verdict.FAIL


def test_turn_order_is_one_word_and_round_trips() -> None:
    """An order contains no blank, because workers split their input at blanks."""
    turn = Turn(way="our-messages", topic="t", group="g-1", instances=2)
    assert len(turn.order().split()) == 1
    assert Turn(**json.loads(turn.order())) == turn


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([0, 1, 2, 3], Audit(lost=0, twice=0, strangers=0)),
        ([0, 1, 3], Audit(lost=1, twice=0, strangers=0)),
        ([0, 1, 1, 1, 2, 3], Audit(lost=0, twice=2, strangers=0)),
        ([0, 1, 2, 3, 7, 7, -1], Audit(lost=0, twice=0, strangers=3)),
        ([], Audit(lost=4, twice=0, strangers=0)),
    ],
)
def test_audit_counts_lost_duplicate_and_unknown_records_separately(numbers: list[int], found: Audit) -> None:
    """A duplicate does not compensate for a lost record, as it would in a comparison of totals."""
    assert audit(numbers, 4) == found


def test_replacement_is_the_next_attempt_of_the_same_member() -> None:
    """The replacement is neither another member's attempt nor an earlier one."""
    marks = [mark(0, 3), mark(1, 4), mark(0, 9), mark(0, 7)]
    assert replacement(marks, mark(0, 3)) == mark(0, 7)
    assert replacement(marks, mark(1, 4)) is None
    assert latest(marks) == {0: mark(0, 9), 1: mark(1, 4)}


def test_scenario_pid_is_the_worker_or_its_executor() -> None:
    """The victim is the Python worker or the executor that started it."""
    assert [scenario.pid(mark(0, 1)) for scenario in CELLS.values()] == [
        10 if scenario.victim == WORKER else 5 for scenario in CELLS.values()
    ]


def test_chosen_returns_all_cells_or_the_requested_ones_in_table_order() -> None:
    """The cells combine every victim with every sink."""
    assert list(CELLS) == [
        f"{victim}-{sink}" for victim in ("worker", "executor") for sink in ("parquet", "postgresql", "kafka")
    ]
    assert chosen([]) == list(CELLS.values())
    assert chosen(["executor-kafka", "worker-parquet"]) == [CELLS["worker-parquet"], CELLS["executor-kafka"]]


def counted(recovery: list[float], lost: int | None = 0, twice: int | None = 0) -> Counted:
    """Return the measurements of one cell."""
    made = Counted.of(CELLS["executor-kafka"])
    for number, seconds in enumerate(recovery):
        made.recovery.add(seconds, round=number)
    for series, found in ((made.lost, lost), (made.twice, twice)):
        if found is not None:
            series.add(found)
    return made


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (counted([0.5, 2.0, 0.25]), "3 kills, 0 lost, 0 twice, recovery worst 2 s, median 0.500 s: PASS"),
        (counted([0.5, 2.01]), "2 kills, 0 lost, 0 twice, recovery worst 2.01 s, median 1.25 s: FAIL"),
        (counted([0.5], lost=1), "1 kills, 1 lost, 0 twice, recovery worst 0.500 s, median 0.500 s: FAIL"),
        (counted([0.5], twice=2), "1 kills, 0 lost, 2 twice, recovery worst 0.500 s, median 0.500 s: FAIL"),
        (counted([0.5], lost=None, twice=None), "1 kills, ? lost, ? twice, recovery worst"),
        (counted([], lost=None, twice=None), "0 kills, ? lost, ? twice, no recovery: FAIL"),
    ],
)
def test_counted_cell_is_printed_in_one_line_with_its_verdict(cell: Counted, words: str) -> None:
    """The worst recovery decides, and a missing measurement passes no bound."""
    assert str(cell).startswith(f"executor killed, Kafka: {words}")


def test_checks_fail_after_a_failure_in_their_cell() -> None:
    """A failure fails the bounds, whatever the cell measured before."""
    cell = counted([0.5])
    assert {check.verdict for check in checks(cell, 1)} == {Verdict.PASS}
    for series in cell.series:
        series.fail("because")
    assert {check.verdict for check in checks(cell, 1)} == {Verdict.FAIL}
    assert str(cell).endswith("FAIL")


def test_option_cell_rejects_an_unknown_name_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown cell is an error that lists the known names."""
    with pytest.raises(SystemExit):
        runner.main(["spark-recovery", "--cell", "driver-kafka"])
    assert "executor-kafka" in capsys.readouterr().err


def test_growth_sizes_end_at_sixteen_times_the_first() -> None:
    """Quick runs use fewer records and the same factor."""
    assert spark_growth.sizes(is_quick=False) == [1_000_000, 4_000_000, 16_000_000]
    assert spark_growth.sizes(is_quick=True)[-1] == 16 * spark_growth.sizes(is_quick=True)[0]
