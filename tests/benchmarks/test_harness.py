"""The calculations of the benchmark harness, without measurements and without a broker."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import report, table
from tests.benchmarks.bench import Bench, Figure, counted_in, types_of
from tests.benchmarks.builders import bench, callback, record, series
from tests.benchmarks.figures.guardian import waits_after
from tests.benchmarks.figures.throughput import paired_ratios
from tests.benchmarks.groups import (
    Tally,
    handovers,
    is_balanced,
    owned_by,
    tally,
)
from tests.benchmarks.plots import draw
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import (
    Check,
    Series,
    Verdict,
    amount,
    at_least,
    at_most,
    difference,
    median_interval,
    median_of,
    p90_of,
    percentile,
    ratio_at_least,
)
from tests.support.proxy import with_own_port


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([1.0], 90, 1.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        (list(range(1, 11)), 90, 9),
        (list(range(1, 12)), 90, 10),
        (list(range(1, 21)), 90, 18),
        (list(range(1, 21)), 100, 20),
        ([1.0, 1.0, 1.0, 9.0], 90, 9.0),
    ],
)
def test_percentile_is_a_measured_value(values: list[float], percent: float, expected: float) -> None:
    """A percentile is the nearest rank and never interpolated; of four rounds the worst is the 90th percentile."""
    assert percentile(values, percent) == expected


def test_series_summary_has_count_extremes_median_and_p90() -> None:
    """The median of an even number of values is between the middle ones."""
    summary = series(4.0, 1.0, 2.0, 3.0).summary

    assert summary is not None
    assert (summary.n, summary.least, summary.median, summary.p90, summary.most) == (4, 1.0, 2.5, 4.0, 4.0)


def test_series_samples_have_the_machine_load_and_time() -> None:
    """Each sample has the load, so that a reader can tell a slow client from a busy machine."""
    assert all(sample.load >= 0 and sample.at > 0 for sample in series(1.0, 2.0).samples)


def test_series_without_values_has_no_summary() -> None:
    """A series without values has no median and no percentile, instead of zero."""
    empty = series(failures=2)

    assert (empty.summary, median_of(empty), p90_of(empty)) == (None, None, None)


@pytest.mark.parametrize(
    ("measured", "verdict"), [(0.39, Verdict.PASS), (0.4, Verdict.PASS), (0.41, Verdict.FAIL), (None, Verdict.FAIL)]
)
def test_at_most_passes_up_to_the_limit_and_fails_without_a_value(measured: float | None, verdict: Verdict) -> None:
    """The limit itself passes, and a missing measurement fails."""
    assert at_most("a bound", measured, 0.4, "s").verdict is verdict


@pytest.mark.parametrize(("measured", "verdict"), [(1.16, Verdict.PASS), (1.15, Verdict.PASS), (1.14, Verdict.FAIL)])
def test_at_least_passes_from_the_limit_on(measured: float, verdict: Verdict) -> None:
    """The limit itself passes."""
    assert at_least("a bound", measured, 1.15, "x").verdict is verdict


def test_at_most_fails_after_a_failure_of_our_side() -> None:
    """A failed round of our side fails the bound, however fast the other rounds were."""
    check = at_most("a bound", 0.1, 0.4, "s", [series(0.1, 0.1, failures=1)])

    assert check == Check(
        bound="a bound",
        measured="0.100 s; limit 0.400 s; 1 failed in 'ours'",
        verdict=Verdict.FAIL,
        limit=0.4,
        unit="s",
    )


def test_at_most_reports_failures_of_the_other_side_and_passes() -> None:
    """Failures of the other side do not fail our bound, but the result shows them."""
    check = at_most("a bound", 0.1, 0.4, "s", [series(0.1), series(0.1, failures=2, is_ours=False)])

    assert (check.verdict, "2 failed" in check.measured) == (Verdict.PASS, True)


def test_median_interval_needs_six_values() -> None:
    """Five values cannot bound a median with 95 % confidence; eleven do, with the second and the tenth."""
    values = [float(value) for value in range(1, 12)]

    assert median_interval(values[:5]) is None
    assert median_interval(values[:6]) == (1.0, 6.0)
    assert median_interval(values) == (2.0, 10.0)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.1] * 11, Verdict.PASS),
        ([0.9] * 11, Verdict.FAIL),
        ([0.9] * 6 + [1.1] * 5, Verdict.UNDECIDED),
        ([0.9] * 5 + [1.1] * 6, Verdict.PASS),
        ([0.9], Verdict.FAIL),
        ([], Verdict.FAIL),
    ],
)
def test_ratio_at_least_is_undecided_if_chance_can_explain_the_ratio(ratios: list[float], verdict: Verdict) -> None:
    """A tie neither passes nor fails."""
    assert ratio_at_least("a bound", ratios, 1.0, [series(1.0)]).verdict is verdict


def test_ratio_at_least_fails_after_a_failure_of_our_side() -> None:
    """Chance cannot explain a consumer that did not work, so the bound fails."""
    check = ratio_at_least("a bound", [0.9] * 6 + [1.1] * 5, 1.0, [series(1.0, failures=1)])

    assert check.verdict is Verdict.FAIL


def test_counted_in_counts_worker_errors_and_raises_harness_errors() -> None:
    """A worker's error counts as a failed measurement; an error of the harness ends the run."""
    first, second = series(), series()

    with counted_in(first, second):
        raise WorkerFailedError("it ended")
    with pytest.raises(ZeroDivisionError), counted_in(first, second):
        _ = 1 / 0

    assert (first.failures, second.failures) == (["it ended"], ["it ended"])


def test_difference_with_a_missing_value_is_none() -> None:
    """A difference with a missing measurement is None."""
    assert (difference(1.0, None), difference(None, 1.0), difference(3.0, 1.0)) == (None, None, 2.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (0.0123456, "0.0123 s"), (-0.5, "-0.500 s"), (5.0678, "5.07 s"), (1234567.8, "1,234,568 s")],
)
def test_amount_shows_three_significant_digits(value: float, text: str) -> None:
    """Small values are not rounded to zero, and large ones are readable."""
    assert amount(value, "s") == text


def test_owned_by_follows_the_callbacks_and_the_last_change() -> None:
    """Callbacks add and remove partitions; a callback without a change does not move the time."""
    events = [
        callback("assigned", 1.0, *range(12)),
        callback("revoked", 2.0, *range(6)),
        callback("assigned", 3.0),
        callback("lost", 4.0, 11),
        callback("assigned", 5.0, 11),
        callback("assigned", 6.0, 11),
    ]

    assert owned_by(events) == (frozenset(range(6, 12)), 5.0)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([range(12)], True),
        ([range(6), range(6, 12)], True),
        ([range(6), range(5, 11)], False),
        ([range(6), range(6, 11)], False),
        ([range(7), range(7, 12)], False),
        ([range(12), ()], False),
        ([range(3), range(3, 6), range(6, 9), range(9, 12)], True),
        ([range(3), range(3, 6), range(6, 8), range(8, 10), range(10, 12)], True),
    ],
)
def test_is_balanced_requires_even_complete_and_disjoint_shares(shares: list[range], expected: bool) -> None:  # noqa: FBT001 - a table
    """Balanced shares are even, cover all partitions, and have each partition once."""
    assert is_balanced([frozenset(share) for share in shares]) is expected


def test_handovers_measure_the_standstill_of_each_partition() -> None:
    """The standstill lasts from the old owner's last record to the new owner's first one, in any order of reports."""
    old = [record(1, 5, 10.0), record(0, 7, 10.5), record(0, 6, 10.0)]
    new = [record(0, 9, 11.5), record(0, 8, 11.0), record(1, 6, 10.25)]

    found = {one.partition: one.standstill_s for one in handovers(old, new, [0, 1])}

    assert found == {0: 0.5, 1: 0.25}


def test_handovers_report_overlapping_owners_as_a_negative_standstill() -> None:
    """Two simultaneous owners give a negative standstill, not a standstill of zero."""
    (found,) = handovers([record(0, 5, 10.0)], [record(0, 5, 9.0)], [0])

    assert found.standstill_s == -1.0


def test_handovers_fail_for_a_partition_without_new_records() -> None:
    """A partition without a reader fails, because it would otherwise have the best result."""
    with pytest.raises(WorkerFailedError, match=r"\[1\]"):
        handovers([record(0, 5, 10.0), record(1, 5, 10.0)], [record(0, 6, 11.0)], [0, 1])


def test_tally_counts_lost_and_duplicate_records() -> None:
    """A record that was handled three times counts as two duplicates, at any member."""
    assert tally([[0, 1, 1], [1, 3]], total=5) == Tally(lost=2, duplicates=2)


def test_paired_ratios_omit_rounds_that_one_side_missed() -> None:
    """A round that one side missed has no ratio; it fails the bound if the failed side is ours."""
    ours, raw = series(), series()
    for number, value in ((0, 6.0), (1, 9.0), (3, 5.0)):
        ours.add(value, round=number)
    for number, value in ((1, 3.0), (0, 3.0), (2, 1.0)):
        raw.add(value, round=number)

    assert paired_ratios(ours, raw) == [2.0, 3.0]


def test_with_own_port_replaces_only_the_port_of_the_broker() -> None:
    """An address is a host followed by a port; other occurrences of either stay, and the length does not change."""
    address = b"\x0a127.0.0.1" + struct.pack(">i", 9092)
    frame = b"head" + address + b"127.0.0.1 " + struct.pack(">i", 9092) + address + b"tail"

    changed = with_own_port(frame, "127.0.0.1", 9092, 40123)

    moved = b"\x0a127.0.0.1" + struct.pack(">i", 40123)
    assert changed == b"head" + moved + b"127.0.0.1 " + struct.pack(">i", 9092) + moved + b"tail"


def test_in_turns_rotates_the_sides() -> None:
    """No side always follows the same other side."""
    taken: list[str] = []
    turns = [lambda name=name: taken.append(name) for name in "abc"]

    bench(rounds=None).in_turns(4, *turns)

    assert "".join(taken) == "abcbcacababc"


def test_lanes_divide_all_rounds_with_a_seed_for_each_lane() -> None:
    """The lanes have all rounds in total, and each lane has its own seed."""
    lanes = bench(rounds=None).lanes(10, 4)

    assert ([count for count, _ in lanes], len({seed for _, seed in lanes})) == ([3, 3, 2, 2], 4)


def test_count_prefers_the_requested_rounds() -> None:
    """Requested rounds override the full and the quick number."""
    assert (bench(rounds=3).count(20, 4), bench(rounds=None).count(20, 4)) == (3, 4)


def test_sides_differ_only_in_module_and_protocol_choice() -> None:
    """Both sides have equal settings, so that only the consumer can cause a difference.

    Our side selects the protocol as it does for a user.
    """
    one = bench(rounds=None)
    ours, raw = one.ours(fetch_wait_max_ms="100"), one.raw(fetch_wait_max_ms="100")

    config = one.config(ours, "group")
    assert config.pop("rebalance.callbacks") == "incremental"
    assert {**config, "group.protocol": "consumer"} == one.config(raw, "group")
    assert "group.protocol" not in ours.config
    assert (ours.module, raw.module) == ("ours_module", "confluent_kafka")


def test_classic_sides_have_equal_configurations() -> None:
    """If a figure names the protocol, both sides have that setting."""
    one = bench(rounds=None)

    assert one.ours(group_protocol="classic").config == one.raw(group_protocol="classic").config


def test_raw_against_raw_uses_one_protocol_on_both_sides() -> None:
    """Both sides use the consumer protocol, so that the noise is that of two members of one kind.

    Raw members would otherwise use the classic one.
    """
    one = Bench(bootstrap="127.0.0.1:1", subject="confluent_kafka", is_quick=True, rounds=None, seed=1)

    assert one.ours().config == one.raw().config == {"group.protocol": "consumer"}


def test_types_of_reports_the_group_types_of_each_side() -> None:
    """The report derives the side of each group from the group's name."""
    one = bench(rounds=None)
    groups = {one.group(one.ours()): "consumer", one.group(one.raw()): "classic", one.group(one.raw()): "classic"}

    assert types_of(groups) == "groups on the broker, by their type: ours 1 consumer, raw 2 classic"


def test_report_has_bounds_and_failures_in_table_and_json() -> None:
    """The table and the JSON have bounds and failures; the JSON has every sample."""
    figure = Figure(
        name="start",
        title="Start",
        series=(series(1.0, 2.0, failures=1), series()),
        checks=(at_most("a bound", 1.5, 1.0, "s"),),
        notes=("a note",),
    )
    run = report.circumstances(broker="4.3.1", subject="a_module", is_quick=True, seed=7)

    table, plain = report.markdown(run, [figure]), json.loads(report.as_json(run, [figure]))

    assert "| a bound | 1.50 s; limit 1 s | **FAIL** |" in table
    assert "| ours | s | 2 | 1 | 1.50 | 2 | 2 | 1 |" in table
    assert "| ours | s | 0 | | | | | 0 |" in table
    assert [sample["value"] for sample in plain["figures"][0]["series"][0]["samples"]] == [1.0, 2.0]
    assert plain["figures"][0]["checks"][0]["verdict"] == "FAIL"
    assert report.missed([figure]) == ["a bound"]


def test_draw_writes_a_picture_only_if_there_are_samples(tmp_path: Path) -> None:
    """The picture has a panel for each unit, also for wide ranges and negative values."""
    wide = Series(label="wide", unit="msg/s")
    for value in (1.0, 1_000.0):
        wide.add(value)
    checks = (at_most("a bound", 1.5, 1.0, "s"),)
    figure = Figure(name="start", title="Start", series=(series(-1.0, 2.0), series(), wide), checks=checks)
    assert draw(figure, tmp_path) == tmp_path / "start.png"
    assert (tmp_path / "start.png").stat().st_size > 10_000
    assert draw(Figure(name="none", title="None", series=(series(),), checks=()), tmp_path) is None


def test_table_lists_every_figure_module_and_worker_program() -> None:
    """Each figure module is in one row, and each worker program is in a row or in the harness."""
    folder = Path(table.__file__).parent
    modules = sorted(row.measure.__module__.rpartition(".")[2] for row in table.ROWS)
    assert modules == sorted(path.stem for path in (folder / "figures").glob("[!_]*.py"))
    programs = {path.stem for path in (folder / "workers").glob("*.py") if "__main__" in path.read_text()}
    assert {name for row in table.ROWS for name in row.workers} == programs - {"bulk", "stream"}


def test_measured_rejects_a_figure_without_the_unit_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row must name a unit that its figure has; a valid figure receives the row's name and the load."""
    monkeypatch.setattr(Bench, "groups", lambda _: {})
    figure = Figure(title="Start", series=(series(1.0),), checks=())
    row = table.Row(name="start", measure=lambda _: figure, compares="ours", unit="s", bounds=())
    assert table.measured(row, bench(rounds=None)).name == "start"
    with pytest.raises(ValueError, match=r"start has no series in MiB"):
        table.measured(replace(row, unit="MiB"), bench(rounds=None))


def test_waits_after_measures_the_first_record_of_each_orphaned_partition() -> None:
    """The wait ends with the first record after the kill, at any surviving member."""
    handled = [record(0, 1, 9.9), record(0, 2, 10.7), record(0, 1, 10.5), record(1, 1, 12.0), record(2, 1, 10.1)]
    assert waits_after(10.0, [0, 1], handled) == {0: 0.5, 1: 2.0}


def test_waits_after_fails_for_an_orphaned_partition_without_records() -> None:
    """An orphaned partition without a record is a failure and not a short wait."""
    with pytest.raises(WorkerFailedError, match=r"partitions \[1\]"):
        waits_after(10.0, [0, 1], [record(0, 1, 10.5), record(1, 1, 9.5)])
