"""The plot of a figure: a panel for each unit, with a row of points for each series and a line for each bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import ScalarFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.benchmarks.bench import Figure
    from tests.benchmarks.samples import Series

_OURS, _OTHER, _BOUND = "#1b6ca8", "#d1782b", "#b03030"
#: A panel whose values span more than this factor has a logarithmic axis.
_WIDE = 30


def draw(figure: Figure, folder: Path) -> Path | None:
    """Draw a figure into a folder; return None if it has no samples."""
    panels: dict[str, list[Series]] = {}
    for series in figure.series:
        if series.samples:
            panels.setdefault(series.unit, []).append(series)
    if not panels:
        return None
    path = folder / f"{figure.name}.png"
    heights = [len(rows) + 1.5 for rows in panels.values()]
    with plt.rc_context(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "font.size": 9.5,
        }
    ):
        size = (10.5, 0.4 * sum(heights) + 0.6)
        drawn, axes = plt.subplots(len(panels), 1, figsize=size, height_ratios=heights, squeeze=False)
        for (unit, rows), (one,) in zip(panels.items(), axes, strict=True):
            _points(one, rows)
            one.set_xlabel(f"{unit} (bar: median)".strip())
            for limit in sorted({check.limit for check in figure.checks if check.unit == unit}):
                one.axvline(limit, color=_BOUND, ls="--", lw=1)
        drawn.suptitle(figure.title, x=0.01, ha="left", fontsize=12)
        drawn.tight_layout()
        drawn.savefig(path, dpi=130, bbox_inches="tight")
        plt.close(drawn)
    return path


def _points(axes: Axes, rows: Sequence[Series]) -> None:
    """Draw the samples of each series as points, its median as a bar, and its values at the end of the row."""
    for place, series in enumerate(rows):
        spread = [place + 0.12 * (number % 5 - 2) / 2 for number in range(len(series.samples))]
        colour = _OURS if series.is_ours else _OTHER
        axes.scatter(series.values, spread, s=26, color=colour, alpha=0.75, edgecolors="none")
        summary = series.summary
        if summary is not None:
            axes.plot([summary.median] * 2, [place - 0.3, place + 0.3], color="black", lw=2)
            text = f"median {summary.median:.3g}, p90 {summary.p90:.3g} (n={summary.n})"
            axes.annotate(text, (1.01, place), xycoords=("axes fraction", "data"), va="center")
    axes.set_yticks(range(len(rows)), [series.label for series in rows])
    axes.set_ylim(len(rows) - 0.5, -1)
    values = [value for series in rows for value in series.values]
    if min(values) > 0 and max(values) > _WIDE * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
    else:
        axes.set_xlim(left=min(0.0, *values))
