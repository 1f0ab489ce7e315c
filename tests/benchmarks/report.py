"""The table and the JSON of a run."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.samples import Verdict, amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.bench import Figure
    from tests.benchmarks.samples import Series

_PACKAGES = ("confluent-kafka", "consumer-membership", "kio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The environment and the settings of a run."""

    began: str
    broker: str
    subject: str
    is_quick: bool
    seed: int
    python: str
    versions: dict[str, str]
    cores: int
    machine: str


def circumstances(*, broker: str, subject: str, is_quick: bool, seed: int) -> Circumstances:
    """Return the facts that a reader needs to compare this run with another one."""
    return Circumstances(
        began=time.strftime("%Y-%m-%d %H:%M:%S %z"),
        broker=broker,
        subject=subject,
        is_quick=is_quick,
        seed=seed,
        python=sys.version.split()[0],
        versions={name: _version(name) for name in _PACKAGES},
        cores=os.cpu_count() or 0,
        machine=f"{platform.system()} {platform.machine()}, {_processor()}",
    )


def markdown(run: Circumstances, figures: Sequence[Figure]) -> str:
    """Return the whole run as a Markdown document."""
    versions = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    head = [
        "# Benchmarks",
        "",
        (
            f"{run.began}; Kafka {run.broker}; ours = `{run.subject}`; {'quick' if run.is_quick else 'full'} run,"
            f" seed {run.seed}."
        ),
        f"Python {run.python}, {versions}; {run.cores} cores, {run.machine}.",
        "",
        "p90: nearest rank. A failed measurement is counted, and fails the bounds that rest on it if it is ours.",
    ]
    return "\n".join([*head, *(figure_markdown(figure) for figure in figures)]) + "\n"


def figure_markdown(figure: Figure) -> str:
    """Return one figure as Markdown: its bounds with the measured values, then all series."""
    lines = ["", f"## {figure.title}", "", "| bound | measured | verdict |", "|---|---|---|"]
    lines += [f"| {check.bound} | {check.measured} | **{check.verdict.value}** |" for check in figure.checks]
    lines += ["", "| | unit | n | min | median | p90 | max | failed |", "|---|---|---:|---:|---:|---:|---:|---:|"]
    lines += [_row(series) for series in figure.series]
    lines += ["", *(f"- {note}" for note in figure.notes), f"- load average {_loads(figure)}"]
    return "\n".join(lines)


def as_json(run: Circumstances, figures: Sequence[Figure]) -> str:
    """Return all measurements as JSON, each sample with its time and the machine's load at that time."""
    return json.dumps({"run": asdict(run), "figures": [_plain(asdict(figure)) for figure in figures]}, indent=1)


def missed(figures: Sequence[Figure]) -> list[str]:
    """Return the bounds that do not hold, without the undecided ones."""
    return [check.bound for figure in figures for check in figure.checks if check.verdict is Verdict.FAIL]


def _row(series: Series) -> str:
    summary = series.summary
    if summary is None:
        return f"| {series.label} | {series.unit} | 0 | | | | | {len(series.failures)} |"
    cells = (amount(value, "") for value in (summary.least, summary.median, summary.p90, summary.most))
    return f"| {series.label} | {series.unit} | {summary.n} | {' | '.join(cells)} | {len(series.failures)} |"


def _loads(figure: Figure) -> str:
    loads = [sample.load for series in figure.series for sample in series.samples]
    if not loads:
        return f"{figure.began_load:.1f} at the start"
    return f"{figure.began_load:.1f} at the start, {min(loads):.1f} to {max(loads):.1f} while measuring"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, Verdict) else value


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        return "from the checkout"


def _processor() -> str:
    """Return the processor's name, if Linux reports it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
