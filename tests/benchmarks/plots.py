"""Pictures of a run: bars of throughput, the distribution of standstills, scale-outs, kills and bounces as points."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, ScalarFormatter

from tests.benchmarks.figures import (
    assignors,
    bounce,
    classic,
    classic_crash,
    crash,
    crash_rounds,
    guardian,
    observability,
    scale_out,
    spark,
    spark_growth,
    spark_recovery,
    standstill,
    throughput,
)
from tests.benchmarks.samples import Series, ecdf

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.benchmarks.bench import Figure

_OURS, _RAW, _OTHER, _BOUND = "#1b6ca8", "#d1782b", "#7a7a7a", "#b03030"
_CONTESTS = throughput.CONTESTS
_DPI = 130
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "font.size": 9.5,
    "legend.frameon": False,
}


def draw(figure: Figure, folder: Path) -> Path | None:
    """Draw a figure into a folder; None where there is no picture of it or nothing to see."""
    drawers = {
        throughput.NAME: _throughput,
        standstill.NAME: _standstill,
        scale_out.NAME: _scale_out,
        guardian.NAME: _guardian,
        crash.NAME: _crash,
        bounce.NAME: lambda bounced: _away(bounced, bounce.FACTOR),
        crash_rounds.NAME: _crash_rounds,
        assignors.NAME: _assignors,
        classic.NAME: _classic,
        classic_crash.NAME: lambda crashed: _away(crashed, classic_crash.FACTOR),
        observability.NAME: _observability,
        spark.NAME: _spark,
        spark_recovery.NAME: _spark_recovery,
        spark_growth.NAME: _spark_growth,
    }
    if figure.name not in drawers or not any(series.samples for series in figure.series):
        return None
    path = folder / f"{figure.name}.png"
    with plt.rc_context(_STYLE):
        drawers[figure.name](figure)
        plt.savefig(path, dpi=_DPI, bbox_inches="tight")
        plt.close("all")
    return path


def _throughput(figure: Figure) -> None:
    """Bars of medians, the single rounds as points, ratios above."""
    rates = [series for series in figure.series if series.unit == "msg/s"]
    costs = [series for series in figure.series if series.unit != "msg/s"]
    _, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.4))
    _bars(left, rates, "faster")
    left.set_title("Messages a second (bars: medians; points: rounds)")
    left.yaxis.set_major_locator(MultipleLocator(500_000))
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:.1f} M"))
    _bars(right, costs, "dearer")
    right.set_title("Client CPU, µs a message")
    left.legend(loc="upper left")
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _bars(axes: Axes, series: list[Series], word: str) -> None:
    width = 0.38
    tops = []
    for place, (ours, raw) in enumerate(zip(series[::2], series[1::2], strict=True)):
        for one, shift, colour, name in ((ours, -width / 2, _OURS, "ours"), (raw, width / 2, _RAW, "raw")):
            if one.summary is None:
                continue
            axes.bar(place + shift, one.summary.median, width, color=colour, label=name if place == 0 else None)
            axes.scatter([place + shift] * len(one.samples), one.values, s=9, color="black", alpha=0.55, zorder=3)
        if throughput.paired_ratios(ours, raw):
            top = max(*ours.values, *raw.values)
            tops.append(top)
            text = f"{statistics.median(throughput.paired_ratios(ours, raw)):.2f} x"
            axes.annotate(text, (place, top), (0, 7), textcoords="offset points", ha="center", weight="bold")
    axes.set_xticks(range(len(_CONTESTS)))
    words = [f"{contest.method}\n{contest.settings}".replace("fetch ", "fetch\n") for contest in _CONTESTS]
    axes.set_xticklabels(words)
    axes.set_ylim(0, max(tops, default=1) * 1.3)
    axes.annotate(
        f"x: ours / raw, median of rounds ({word})",
        (1, 1),
        xycoords="axes fraction",
        ha="right",
        va="top",
        color=_OTHER,
    )


def _standstill(figure: Figure) -> None:
    """The share of moved partitions that stood still no longer than so, for both kinds of change."""
    _, panels = plt.subplots(1, 2, figsize=(11.5, 4.2), sharey=True, sharex=True)
    for axes, change in zip(panels, standstill.CHANGES, strict=True):
        for series in figure.series:
            what, _, whose = series.label.rpartition(", ")
            if what != change or series.summary is None:
                continue
            values, shares = ecdf(series.values)
            colour = _OURS if series.is_ours else _RAW
            label = f"{whose}: median {series.summary.median:.2f} s, p90 {series.summary.p90:.2f} s (n={len(values)})"
            axes.step([max(value, 0.005) for value in values], shares, where="post", color=colour, label=label, lw=2)
            axes.plot(series.summary.p90, 0.9, "o", color=colour)
        axes.axvline(standstill.LIMIT_S, color=_BOUND, ls="--", lw=1)
        axes.annotate(f" bound for p90: {standstill.LIMIT_S} s", (standstill.LIMIT_S, 1.03), color=_BOUND)
        axes.axhline(0.9, color=_OTHER, lw=0.7, ls=":")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_title(change)
        axes.set_xlabel("standstill, s (logarithmic)")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16))
    panels[0].set_ylabel("share of moved partitions")
    panels[0].set_ylim(0, 1.1)
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _scale_out(figure: Figure) -> None:
    """Every scale-out as a point, a row for each side and circumstance."""
    rows = [series for series in figure.series if series.samples]
    _, axes = plt.subplots(figsize=(9.5, 0.55 * len(rows) + 1.6))
    _rows_of_points(axes, rows, [f"p90 {series.summary.p90:.2f}" for series in rows])
    axes.axvline(scale_out.QUICK_CADENCE_S, color=_BOUND, ls="--", lw=1)
    text = f" {scale_out.QUICK_CADENCE_S} s: bound at heartbeat.interval.ms=200"
    axes.annotate(text, (scale_out.QUICK_CADENCE_S, -0.75), color=_BOUND, fontsize=8.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from subscribe until both own 6 of 12 (bar: median)")
    axes.set_title(figure.title.partition(":")[0])
    plt.tight_layout()


def _guardian(figure: Figure) -> None:
    """Every orphaned partition as a point, a row for each side."""
    rows = [series for series in figure.series if series.samples]
    _, axes = plt.subplots(figsize=(9.5, 0.6 * len(rows) + 1.6))
    _rows_of_points(axes, rows, [f"most {series.summary.most:.2f}" for series in rows])
    for limit_s in (guardian.LIMIT_S, guardian.QUICK_LIMIT_S):
        axes.axvline(limit_s, color=_BOUND, ls="--", lw=1)
        axes.annotate(f" {limit_s:.0f} s", (limit_s, -0.75), color=_BOUND, fontsize=8.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("seconds from the kill to the first record at another member (logarithmic; bar: median)")
    axes.set_title(figure.title.partition(":")[0])
    plt.tight_layout()


def _crash(figure: Figure) -> None:
    """Every crash as a point: from the process's start, and from the constructor."""
    _, panels = plt.subplots(1, 2, figsize=(12.5, 2.6), gridspec_kw={"wspace": 0.75})
    limits = {
        crash.FROM_START: {"worst": crash.WORST_S},
        crash.FROM_CONSTRUCTOR: {"median": crash.CONSTRUCTOR_MEDIAN_S},
    }
    for axes, (what, bounds) in zip(panels, limits.items(), strict=True):
        rows = [series for series in figure.series if series.samples and series.label.startswith(what)]
        _rows_of_points(axes, rows, [f"most {series.summary.most:.2f}" for series in rows])
        axes.set_yticks(range(len(rows)), [series.label.rpartition(", ")[2] for series in rows])
        for name, limit_s in bounds.items():
            axes.axvline(limit_s, color=_BOUND, ls="--", lw=1)
            axes.annotate(f" {name} {limit_s} s", (limit_s, -0.75), color=_BOUND, fontsize=8.5)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{what}, s (bar: median)")
    plt.suptitle(figure.title, x=0.01, y=1.04, ha="left", fontsize=12)


def _away(figure: Figure, factor: float) -> None:
    """Every absence as a point, and the medians as multiples of raw's."""
    starts = (crash.FROM_START, crash.FROM_CONSTRUCTOR)
    rows = [series for series in figure.series if series.samples and series.label.startswith(starts)]
    _, axes = plt.subplots(figsize=(9.5, 0.5 * len(rows) + 1.6))
    _rows_of_points(axes, rows, _multiples(rows))
    axes.set_xlim(left=0)
    axes.set_xlabel(f"seconds (bar: median); bound: {factor} x raw")
    axes.set_title(figure.title.partition(":")[0])
    plt.tight_layout()


def _multiples(rows: list[Series]) -> list[str]:
    """Beside each of our rows how many times raw's median its own is."""
    medians = {series.label: series.summary.median for series in rows}
    words = []
    for series in rows:
        raw = medians.get(f"{series.label.rpartition(', ')[0]}, raw")
        words.append(f"{medians[series.label] / raw:.2f} x raw" if raw and series.is_ours else "")
    return words


def _classic(figure: Figure) -> None:
    """Every join, scale-out and leave as a point, a row for each side, strategy and circumstance."""
    _, panels = plt.subplots(len(classic.STEPS), 1, figsize=(9.5, 9.5))
    for axes, step in zip(panels, classic.STEPS, strict=True):
        rows = [series for series in figure.series if series.samples and series.label.startswith(f"{step}, ")]
        _rows_of_points(axes, rows, _multiples(rows))
        axes.set_yticks(range(len(rows)), [series.label.removeprefix(f"{step}, ") for series in rows])
        axes.set_xlim(left=0)
        axes.set_title(step)
    panels[-1].set_xlabel(f"seconds (bar: median); bound: {classic.FACTOR} x raw")
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _crash_rounds(figure: Figure) -> None:
    """The recoveries in their order, and below them what was in flight and what was handled twice."""
    series = {one.label: one for one in figure.series}
    _, (above, below) = plt.subplots(2, 1, figsize=(10.5, 5.2), sharex=True, height_ratios=(2, 1))
    recovery = series[crash_rounds.RECOVERY]
    for one, colour in ((series[crash_rounds.EVERYTHING], _OTHER), (recovery, _OURS)):
        above.scatter(
            [sample.detail["round"] for sample in one.samples], one.values, s=26, color=colour, label=one.label
        )
    if recovery.summary is not None:
        median_s = recovery.summary.median
        above.axhline(median_s, color=_OURS, lw=1, ls=":")
        above.annotate(f" median {median_s:.2f} s", (1.0, median_s), xycoords=("axes fraction", "data"), va="center")
    above.set_ylim(bottom=0)
    above.set_ylabel("s")
    for name, shift, colour in ((crash_rounds.IN_FLIGHT, -0.2, _OTHER), (crash_rounds.TWICE, 0.2, _OURS)):
        samples = series[name].samples
        rounds = [sample.detail["round"] + shift for sample in samples]
        below.bar(rounds, [sample.value for sample in samples], 0.4, color=colour, label=name)
    below.axhline(crash_rounds.BATCH, color=_BOUND, lw=1, ls="--")
    below.annotate(" a batch", (1.0, crash_rounds.BATCH), xycoords=("axes fraction", "data"), va="center", color=_BOUND)
    below.set_ylabel("records")
    below.set_xlabel("round")
    for axes in (above, below):
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8.5)
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _assignors(figure: Figure) -> None:
    """Seconds over the size of the group: a line for each change, a panel for each assignor."""
    series = {one.label: one for one in figure.series}
    _, panels = plt.subplots(1, len(assignors.ASSIGNORS), figsize=(10.5, 3.8), sharey=True)
    for axes, assignor in zip(panels, assignors.ASSIGNORS, strict=True):
        for change, colour in zip(assignors.CHANGES, (_OTHER, _RAW, _OURS), strict=True):
            lines = [series[assignors.label(assignor, change, size)] for size in assignors.SIZES]
            medians = [statistics.median(line.values) for line in lines]
            axes.plot(assignors.SIZES, medians, "o-", color=colour, label=change)
            for size, line in zip(assignors.SIZES, lines, strict=True):
                axes.scatter([size] * len(line.values), line.values, s=9, color=colour, alpha=0.5)
        axes.axhline(assignors.LIMIT_S, color=_BOUND, ls="--", lw=1)
        axes.annotate(
            f" bound at {assignors.SIZES[-1]:,} members",
            (assignors.SIZES[0], assignors.LIMIT_S),
            color=_BOUND,
            va="bottom",
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(assignors.SIZES, [f"{size:,} x {size * 10:,}" for size in assignors.SIZES])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.set_title(assignor)
        axes.set_xlabel("members x partitions")
    panels[0].set_ylabel("s (line: median)")
    panels[-1].legend(loc="lower right")
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _observability(figure: Figure) -> None:
    """What everything on is to all of it off: each pair as a point, with the bounds."""
    pairs = {
        on.label.removesuffix(", on"): observability.Pair(on=on, off=off)
        for on, off in itertools.pairwise(figure.series)
        if on.label.endswith(", on")
    }
    rates = {method: observability.paired_ratios(*pairs.pop(method).both) for method in observability.METHODS}
    costs = {method: observability.paired_ratios(*pairs.pop(f"CPU: {method}").both) for method in observability.METHODS}
    share = pairs.pop(observability.SHARE)
    weights = {
        what: [on - off for on, off in zip(pair.on.values, pair.off.values, strict=True)]
        for what, pair in pairs.items()
    }
    drawn = (
        ("records a second, on / off (bar: median)", rates, observability.LEAST_RATIO),
        ("processor time a record, on / off (bar: median)", costs, 2 - observability.LEAST_RATIO),
        (
            "share of a core, on - off, % (bar: median)",
            {"idle": observability.paired_differences(share)},
            observability.MOST_CPU_PERCENT,
        ),
        ("memory, on - off, MiB (bar: median)", weights, observability.MOST_MIB),
    )
    heights = [len(values) + 1.4 for _, values, _ in drawn]
    _, panels = plt.subplots(len(drawn), 1, figsize=(9.5, 0.5 * sum(heights)), gridspec_kw={"height_ratios": heights})
    for axes, (words, values, limit) in zip(panels, drawn, strict=True):
        rows = _rows(values)
        _rows_of_points(axes, rows, [f"(n={len(row.samples)})" for row in rows])
        axes.axvline(limit, color=_BOUND, ls="--", lw=1)
        axes.set_xlabel(words)
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _rows(values: Mapping[str, list[float]]) -> list[Series]:
    """A series for each name that has values."""
    rows = []
    for name, numbers in values.items():
        row = Series(label=name, unit="", is_ours=True)
        for number in numbers:
            row.add(number)
        rows += [row] if numbers else []
    return rows


def _spark(figure: Figure) -> None:
    """Bars of medians, the single turns as points, how many times as fast above; less is better."""
    _, axes = plt.subplots(figsize=(8.5, 4.4))
    width, tops = 0.38, [1.0]
    for place, (ours, theirs) in enumerate(zip(figure.series[::2], figure.series[1::2], strict=True)):
        for one, shift, colour in ((ours, -width / 2, _OURS), (theirs, width / 2, _RAW)):
            if one.summary is None:
                continue
            name = one.label.rpartition(": ")[2] if place == 0 else None
            axes.bar(place + shift, one.summary.median, width, color=colour, label=name)
            axes.scatter([place + shift] * len(one.samples), one.values, s=9, color="black", alpha=0.55, zorder=3)
            tops.append(max(one.values))
        ratios = throughput.paired_ratios(theirs, ours)
        if ratios:
            text = f"{statistics.median(ratios):.2f} x as fast\n(bound {spark.CONTESTS[place].factor} x)"
            top = max(*ours.values, *theirs.values)
            axes.annotate(text, (place, top), (0, 7), textcoords="offset points", ha="center", weight="bold")
    axes.set_xticks(range(len(spark.CONTESTS)), [f"{one.ours}\n{one.theirs}" for one in spark.CONTESTS])
    axes.set_ylim(0, max(tops) * 1.3)
    axes.set_ylabel("s on the driver (bars: medians; points: turns)")
    axes.legend(loc="upper right")
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _spark_recovery(figure: Figure) -> None:
    """A row for each scenario: from the kill, and from the replacement's start, to its first record."""
    rows = [series for series in figure.series if series.unit == "s" and series.summary is not None]
    _, axes = plt.subplots(figsize=(9.5, 0.6 * len(rows) + 1.4))
    _rows_of_points(axes, rows, [f"max {max(one.values):.2f} (n={len(one.samples)})" for one in rows])
    axes.axvline(spark_recovery.LIMIT_S, color=_BOUND, ls="--", lw=1)
    axes.annotate(
        " bound, from its start", (spark_recovery.LIMIT_S, 1), xycoords=("data", "axes fraction"), color=_BOUND
    )
    axes.set_xlim(left=0)
    axes.set_xlabel("s")
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _spark_growth(figure: Figure) -> None:
    """Seconds over records with a line for each number of tasks, and records a second over tasks."""
    _, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0))
    samples = [sample for series in figure.series for sample in series.samples]
    sizes = sorted({sample.detail["records"] for sample in samples})
    grid = {
        (tasks, size): [one.value for one in samples if (one.detail["tasks"], one.detail["records"]) == (tasks, size)]
        for tasks in spark_growth.TASKS
        for size in sizes
    }
    for tasks, colour in zip(spark_growth.TASKS, (_OTHER, _OURS, _RAW), strict=True):
        there = [size for size in sizes if grid[tasks, size]]
        label = f"{tasks} {'task' if tasks == 1 else 'tasks'}"
        left.plot(there, [statistics.median(grid[tasks, size]) for size in there], "o-", color=colour, label=label)
    for size, colour in zip(sizes, (_OTHER, _OURS, _RAW), strict=False):
        there = [tasks for tasks in spark_growth.TASKS if grid[tasks, size]]
        rates = [size / statistics.median(grid[tasks, size]) for tasks in there]
        right.plot(there, rates, "o-", color=colour, label=f"{size:,} records")
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xticks(sizes, [f"{size:,}" for size in sizes])
    left.minorticks_off()
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter(ScalarFormatter())
    left.set_xlabel("records")
    left.set_ylabel("s (medians)")
    right.set_xticks(spark_growth.TASKS)
    right.set_ylim(bottom=0)
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    right.set_xlabel("tasks")
    right.set_ylabel("records a second")
    for axes in (left, right):
        axes.legend()
    plt.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
    plt.tight_layout()


def _rows_of_points(axes: Axes, rows: list[Series], words: list[str]) -> None:
    """A row for each series: its samples as points, its median as a bar, and words at the end."""
    for place, (series, more) in enumerate(zip(rows, words, strict=True)):
        colour = _OURS if series.is_ours else _RAW
        spread = [place + 0.12 * ((number % 5) - 2) / 2 for number in range(len(series.samples))]
        axes.scatter(series.values, spread, s=26, color=colour, alpha=0.75, edgecolors="none")
        axes.plot([series.summary.median] * 2, [place - 0.3, place + 0.3], color="black", lw=2)
        text = f"median {series.summary.median:.2f}  {more}"
        axes.annotate(text, (1.01, place), xycoords=("axes fraction", "data"), va="center", color="#333333")
    axes.set_yticks(range(len(rows)), [series.label for series in rows])
    axes.set_ylim(len(rows) - 0.5, -1)
