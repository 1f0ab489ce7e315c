"""The harness's arithmetic: what it makes of measurements. No measurement is made here, and no broker is needed."""

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
from tests.benchmarks.proxy import with_address
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
def test_percentile_is_a_value_that_occurred(values: list[float], percent: float, expected: float) -> None:
    """Nearest rank: with four rounds the worst one is the 90th percentile; nothing is interpolated away."""
    assert percentile(values, percent) == expected


def test_summary_of_a_series() -> None:
    """The median of an even number of values lies between the middle ones."""
    summary = series(4.0, 1.0, 2.0, 3.0).summary

    assert summary is not None
    assert (summary.n, summary.least, summary.median, summary.p90, summary.most) == (4, 1.0, 2.5, 4.0, 4.0)


def test_every_sample_carries_the_load() -> None:
    """A reader can tell a slow client from a busy machine."""
    assert all(sample.load >= 0 and sample.at > 0 for sample in series(1.0, 2.0).samples)


def test_series_without_values_has_no_summary() -> None:
    """What was not measured is not zero."""
    empty = series(failures=2)

    assert (empty.summary, median_of(empty), p90_of(empty)) == (None, None, None)


@pytest.mark.parametrize(
    ("measured", "verdict"), [(0.39, Verdict.PASS), (0.4, Verdict.PASS), (0.41, Verdict.FAIL), (None, Verdict.FAIL)]
)
def test_bound_from_above(measured: float | None, verdict: Verdict) -> None:
    """The limit itself is allowed; what was not measured fails."""
    assert at_most("a bound", measured, 0.4, "s").verdict is verdict


@pytest.mark.parametrize(("measured", "verdict"), [(1.16, Verdict.PASS), (1.15, Verdict.PASS), (1.14, Verdict.FAIL)])
def test_bound_from_below(measured: float, verdict: Verdict) -> None:
    """The limit itself is allowed."""
    assert at_least("a bound", measured, 1.15, "x").verdict is verdict


def test_own_failure_fails_the_bound() -> None:
    """A consumer that sometimes does not work at all keeps no bound, however fast the other rounds were."""
    check = at_most("a bound", 0.1, 0.4, "s", [series(0.1, 0.1, failures=1)])

    assert check == Check(
        bound="a bound",
        measured="0.100 s; limit 0.400 s; 1 failed in 'ours'",
        verdict=Verdict.FAIL,
        limit=0.4,
        unit="s",
    )


def test_failure_of_the_other_side_is_shown() -> None:
    """The other side's failures do not fail our bound, and do not vanish either."""
    check = at_most("a bound", 0.1, 0.4, "s", [series(0.1), series(0.1, failures=2, is_ours=False)])

    assert (check.verdict, "2 failed" in check.measured) == (Verdict.PASS, True)


def test_interval_of_a_median() -> None:
    """Five values cannot hold a median with 95 % confidence; eleven do, between the second and the tenth."""
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
def test_ratio_that_chance_may_explain_is_undecided(ratios: list[float], verdict: Verdict) -> None:
    """A tie is not a miss, and not a pass either."""
    assert ratio_at_least("a bound", ratios, 1.0, [series(1.0)]).verdict is verdict


def test_own_failure_leaves_nothing_undecided() -> None:
    """Chance does not explain a consumer that did not work."""
    check = ratio_at_least("a bound", [0.9] * 6 + [1.1] * 5, 1.0, [series(1.0, failures=1)])

    assert check.verdict is Verdict.FAIL


def test_failed_measurement_is_counted_and_the_run_goes_on() -> None:
    """Only what a worker does wrong is a failed measurement; an error of the harness ends the run."""
    first, second = series(), series()

    with counted_in(first, second):
        raise WorkerFailedError("it ended")
    with pytest.raises(ZeroDivisionError), counted_in(first, second):
        _ = 1 / 0

    assert (first.failures, second.failures) == (["it ended"], ["it ended"])


def test_comparison_of_what_was_not_measured() -> None:
    """There is none."""
    assert (difference(1.0, None), difference(None, 1.0), difference(3.0, 1.0)) == (None, None, 2.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (0.0123456, "0.0123 s"), (-0.5, "-0.500 s"), (5.0678, "5.07 s"), (1234567.8, "1,234,568 s")],
)
def test_amounts_show_three_digits(value: float, text: str) -> None:
    """Small values are not rounded to nothing, large ones are readable."""
    assert amount(value, "s") == text


def test_ownership_from_callbacks() -> None:
    """Callbacks bring what changed; one that changes nothing does not move the moment."""
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
def test_balance(shares: list[range], expected: bool) -> None:  # noqa: FBT001 - a table
    """Balanced means: even, each partition once, all of them."""
    assert is_balanced([frozenset(share) for share in shares]) is expected


def test_standstill_is_measured_for_each_partition() -> None:
    """From the last record at the old owner to the first one at the new owner, in whatever order they are told."""
    old = [record(1, 5, 10.0), record(0, 7, 10.5), record(0, 6, 10.0)]
    new = [record(0, 9, 11.5), record(0, 8, 11.0), record(1, 6, 10.25)]

    found = {one.partition: one.standstill_s for one in handovers(old, new, [0, 1])}

    assert found == {0: 0.5, 1: 0.25}


def test_overlap_of_owners_is_below_zero() -> None:
    """Two owners at the same time are not hidden as no standstill."""
    (found,) = handovers([record(0, 5, 10.0)], [record(0, 5, 9.0)], [0])

    assert found.standstill_s == -1.0


def test_partition_without_records_is_a_failure() -> None:
    """A partition that nobody reads any more would otherwise be the best one."""
    with pytest.raises(WorkerFailedError, match=r"\[1\]"):
        handovers([record(0, 5, 10.0), record(1, 5, 10.0)], [record(0, 6, 11.0)], [0, 1])


def test_tally_counts_lost_and_repeated() -> None:
    """A record handled three times is two duplicates; where it was handled does not matter."""
    assert tally([[0, 1, 1], [1, 3]], total=5) == Tally(lost=2, duplicates=2)


def test_ratios_pair_rounds() -> None:
    """A round that one side failed is left out of the ratios (and fails the bound, if it was ours)."""
    ours, raw = series(), series()
    for number, value in ((0, 6.0), (1, 9.0), (3, 5.0)):
        ours.add(value, round=number)
    for number, value in ((1, 3.0), (0, 3.0), (2, 1.0)):
        raw.add(value, round=number)

    assert paired_ratios(ours, raw) == [2.0, 3.0]


def test_proxy_replaces_the_brokers_port_only() -> None:
    """An address is a host followed by a port; other occurrences of either stay, and so does the length."""
    address = b"\x0a127.0.0.1" + struct.pack(">i", 9092)
    frame = b"head" + address + b"127.0.0.1 " + struct.pack(">i", 9092) + address + b"tail"

    changed = with_address(frame, "127.0.0.1", 9092, 40123)

    moved = b"\x0a127.0.0.1" + struct.pack(">i", 40123)
    assert changed == b"head" + moved + b"127.0.0.1 " + struct.pack(">i", 9092) + moved + b"tail"


def test_turns_rotate() -> None:
    """No side always follows the same other side."""
    taken: list[str] = []
    turns = [lambda name=name: taken.append(name) for name in "abc"]

    bench(rounds=None).in_turns(4, *turns)

    assert "".join(taken) == "abcbcacababc"


def test_lanes_share_out_all_rounds() -> None:
    """None is left over, and each lane has chance of its own."""
    lanes = bench(rounds=None).lanes(10, 4)

    assert ([count for count, _ in lanes], len({seed for _, seed in lanes})) == ([3, 3, 2, 2], 4)


def test_rounds_that_were_asked_for_win() -> None:
    """Over the full and over the quick number."""
    assert (bench(rounds=3).count(20, 4), bench(rounds=None).count(20, 4)) == (3, 4)


def test_sides_differ_in_the_module_only() -> None:
    """The configuration is equal, so that what differs is the consumer; ours chooses the protocol as a user's does."""
    one = bench(rounds=None)
    ours, raw = one.ours(fetch_wait_max_ms="100"), one.raw(fetch_wait_max_ms="100")

    told = one.config(ours, "group")
    assert told.pop("rebalance.callbacks") == "incremental"
    assert {**told, "group.protocol": "consumer"} == one.config(raw, "group")
    assert "group.protocol" not in ours.config
    assert (ours.module, raw.module) == ("ours_module", "confluent_kafka")


def test_classic_sides_have_equal_configurations() -> None:
    """Where a figure names the protocol, both sides speak it."""
    one = bench(rounds=None)

    assert one.ours(group_protocol="classic").config == one.raw(group_protocol="classic").config


def test_raw_against_raw_speaks_one_protocol() -> None:
    """Raw would choose the classic protocol: the noise of the harness is that of two members of the same kind."""
    one = Bench(bootstrap="127.0.0.1:1", subject="confluent_kafka", is_quick=True, rounds=None, seed=1)

    assert one.ours().config == one.raw().config == {"group.protocol": "consumer"}


def test_group_tells_whose_it_is() -> None:
    """The report says which type the groups of each side were, by their names."""
    one = bench(rounds=None)
    groups = {one.group(one.ours()): "consumer", one.group(one.raw()): "classic", one.group(one.raw()): "classic"}

    assert types_of(groups) == "groups on the broker, by their type: ours 1 consumer, raw 2 classic"


def test_report_shows_bounds_and_failures() -> None:
    """In the table and, with every sample, in the JSON."""
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


def test_picture_is_of_what_was_measured(tmp_path: Path) -> None:
    """A panel for each unit, with wide and with negative values; without a sample there is no picture."""
    wide = Series(label="wide", unit="msg/s")
    for value in (1.0, 1_000.0):
        wide.add(value)
    checks = (at_most("a bound", 1.5, 1.0, "s"),)
    figure = Figure(name="start", title="Start", series=(series(-1.0, 2.0), series(), wide), checks=checks)
    assert draw(figure, tmp_path) == tmp_path / "start.png"
    assert (tmp_path / "start.png").stat().st_size > 10_000
    assert draw(Figure(name="none", title="None", series=(series(),), checks=()), tmp_path) is None


def test_table_has_every_figure_and_every_worker() -> None:
    """Each module of a figure is in one row, and each program of a worker in a row or in the harness."""
    folder = Path(table.__file__).parent
    modules = sorted(row.measure.__module__.rpartition(".")[2] for row in table.ROWS)
    assert modules == sorted(path.stem for path in (folder / "figures").glob("[!_]*.py"))
    programs = {path.stem for path in (folder / "workers").glob("*.py") if "__main__" in path.read_text()}
    assert {name for row in table.ROWS for name in row.workers} == programs - {"bulk", "stream"}


def test_harness_refuses_a_figure_that_is_not_the_one_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table would name a unit that the figure does not have; otherwise the figure gets its name and load."""
    monkeypatch.setattr(Bench, "groups", lambda _: {})
    figure = Figure(title="Start", series=(series(1.0),), checks=())
    row = table.Row(name="start", measure=lambda _: figure, compares="ours", unit="s", bounds=())
    assert table.measured(row, bench(rounds=None)).name == "start"
    with pytest.raises(ValueError, match=r"start has no series in MiB"):
        table.measured(replace(row, unit="MiB"), bench(rounds=None))


def test_waits_after_a_kill_are_those_of_the_first_records_behind_it() -> None:
    """Of the orphaned partitions only, at whichever survivor."""
    handled = [record(0, 1, 9.9), record(0, 2, 10.7), record(0, 1, 10.5), record(1, 1, 12.0), record(2, 1, 10.1)]
    assert waits_after(10.0, [0, 1], handled) == {0: 0.5, 1: 2.0}


def test_orphaned_partition_that_nobody_handled_is_a_failure() -> None:
    """Not a short wait."""
    with pytest.raises(WorkerFailedError, match=r"partitions \[1\]"):
        waits_after(10.0, [0, 1], [record(0, 1, 10.5), record(1, 1, 9.5)])
