"""Draw the bar charts of docs/compare/benchmarks.md from its tables.

    python -m tests.support.benchmark_plots

The command writes one SVG file for each chart to `docs/assets`. It reads the values from the tables, so that a chart
and its table cannot differ. `tests/test_benchmark_plots.py` checks that the files are up to date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.support.documents import DOCS, tables

DOCUMENT = DOCS / "compare" / "benchmarks.md"
ASSETS = DOCS / "assets"

_SIDES = ("confluent-kafka", "here")
#: Gray is the other client's color. Both colors are readable on light and on dark pages.
_COLORS = ("#8a8f98", "#1b7fc4")
_TEXT = "#7d828a"
_LEFT, _WIDTH, _RIGHT = 330, 760, 90
_BAR, _GAP, _TOP = 15, 18, 46


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart.

    Attributes:
        name: The name of the file.
        title: The title, with a note on whether lower or higher values are better.
        unit: The unit of all values.
        rows: For each pair of bars: the label, the first cell of the table row, and for each client a regular
            expression whose group matches the value.
    """

    name: str
    title: str
    unit: str
    rows: tuple[tuple[str, str, str, str], ...]


_FIRST = r"^([\d.]+)"
CHARTS = (
    Chart(
        name="benchmark-crashes",
        title="Time without records after kill -9 (lower is better)",
        unit="s",
        rows=(
            (
                "static member, KIP-848",
                "`kill -9` of a static member and restart at once: process start to first record",
                r"stall for ([\d.]+) s",
                _FIRST,
            ),
            ("dynamic member, crash guardian", "`kill -9` of a dynamic member: its partitions stall", _FIRST, _FIRST),
        ),
    ),
    Chart(
        name="benchmark-scaling",
        title="Time until the group is balanced after a scale-out (lower is better)",
        unit="s",
        rows=(
            ("KIP-848, records flowing", "scale-out 1 -> 2 until balanced, records flowing", _FIRST, _FIRST),
            ("KIP-848, idle", "scale-out 1 -> 2 until balanced, idle group", _FIRST, _FIRST),
            ("classic range, records flowing", "`range`, scale-out 3 -> 4, records flowing", _FIRST, _FIRST),
            (
                "classic cooperative-sticky, records flowing",
                "`cooperative-sticky`, scale-out 3 -> 4, records flowing",
                _FIRST,
                _FIRST,
            ),
        ),
    ),
    Chart(
        name="benchmark-throughput",
        title="Million records per second, 100 bytes each (higher is better)",
        unit="M/s",
        rows=(
            ("poll(), equal fetch settings", "1,000,000 x 100 B, `poll()`, equal fetch settings", _FIRST, _FIRST),
            (
                "consume(500), equal fetch settings",
                "1,000,000 x 100 B, `consume(500)`, equal fetch settings",
                _FIRST,
                _FIRST,
            ),
            ("poll(), own defaults", "1,000,000 x 100 B, `poll()`, own defaults", _FIRST, _FIRST),
            ("consume(500), own defaults", "1,000,000 x 100 B, `consume(500)`, own defaults", _FIRST, _FIRST),
        ),
    ),
)


def drawn(text: str) -> dict[Path, str]:
    """Return the charts for a document with this text, by file."""
    cells = {
        row[0]: row
        for table in tables(text)
        for line in table
        if len(row := [cell.strip() for cell in line.strip("|").split("|")]) == len(_SIDES) + 1
    }
    return {ASSETS / f"{chart.name}.svg": _svg(chart, cells) for chart in CHARTS}


def _svg(chart: Chart, cells: dict[str, list[str]]) -> str:
    values = [(label, [_value(p, cells[key][at + 1]) for at, p in enumerate(ps)]) for label, key, *ps in chart.rows]
    scale = (_WIDTH - _LEFT - _RIGHT) / max(float(value) for _, pair in values for value in pair)
    height = _TOP + len(values) * (2 * _BAR + _GAP) + 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(chart.title)}</title>",
        f'<g font-family="sans-serif" font-size="13" fill="{_TEXT}">',
        f'<text x="0" y="16" font-size="15" font-weight="bold">{escape(chart.title)}</text>',
    ]
    for at, side in enumerate(_SIDES):
        lines += [
            f'<rect x="{_LEFT + at * 140}" y="26" width="11" height="11" fill="{_COLORS[at]}"/>',
            f'<text x="{_LEFT + at * 140 + 17}" y="36">{side}</text>',
        ]
    y = _TOP
    for label, pair in values:
        lines.append(f'<text x="{_LEFT - 10}" y="{y + _BAR + 5}" text-anchor="end">{escape(label)}</text>')
        for at, value in enumerate(pair):
            width, top = max(1.0, float(value) * scale), y + at * _BAR
            lines += [
                f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR - 2}" fill="{_COLORS[at]}"/>',
                f'<text x="{_LEFT + width + 6:.1f}" y="{top + 11}" font-size="12">{value} {chart.unit}</text>',
            ]
        y += 2 * _BAR + _GAP
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _value(pattern: str, cell: str) -> str:
    found = re.search(pattern, cell)
    assert found is not None, (pattern, cell)
    return found[1]


if __name__ == "__main__":
    for file, picture in drawn(DOCUMENT.read_text()).items():
        file.write_text(picture)
