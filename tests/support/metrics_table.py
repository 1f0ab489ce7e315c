"""Generate the table of `docs/reference/metrics.md` from the catalog: `python -m tests.support.metrics_table`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import consumer_membership
from consumer_membership.metrics.catalog import CATALOG, Metric

DOCUMENT = Path(consumer_membership.__file__).parents[1] / "docs" / "reference/metrics.md"
BEGIN, END = "<!-- metrics: begin -->", "<!-- metrics: end -->"


def rows() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| Prometheus | type | labels | description | OpenTelemetry | Java client |"
    yield "|---|---|---|---|---|---|"
    for row in CATALOG:
        names = f"{_opentelemetry(row)} | {_java(row)}"
        yield f"| `{row.prometheus}` | {row.kind.value} | {', '.join(row.labels)} | {row.help} | {names} |"


def renewed(text: str) -> str:
    """Return the document with the current table."""
    before, _, rest = text.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n" + "".join(f"{row}\n" for row in rows()) + f"{END}{after}"


def _opentelemetry(row: Metric) -> str:
    names = [row.opentelemetry, *((row.convention.name, row.convention.former) if row.convention else ())]
    return ", ".join(f"`{name}`" for name in names if name)


def _java(row: Metric) -> str:
    groups: dict[str, list[str]] = {}
    for metric in row.java:
        groups.setdefault(metric.group, []).append(f"`{metric.name}`")
    return "; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items())


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
