"""Aligned columns of plain text: rows in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_GAP = "  "
#: What stands where nothing is known.
UNKNOWN = "-"


def table(
    columns: Sequence[str], rows: Sequence[Mapping[str, str]], numbers: frozenset[str] = frozenset()
) -> list[str]:
    """The rows under their headings, columns in which no row has anything left out; `numbers` to the right."""
    shown = [column for column in columns if any(row.get(column) for row in rows)]
    lines = [{column: column for column in shown}, *rows]
    widths = {column: max(len(line.get(column) or UNKNOWN) for line in lines) for column in shown}
    return [
        _GAP.join(_cell(line, column, widths[column], column in numbers) for column in shown).rstrip() for line in lines
    ]


def _cell(line: Mapping[str, str], column: str, width: int, is_number: bool) -> str:  # noqa: FBT001
    text = line.get(column) or UNKNOWN
    return text.rjust(width) if is_number else text.ljust(width)


def number(value: int | None) -> str:
    """The number with separators, empty where there is none."""
    return "" if value is None else f"{value:,}"
