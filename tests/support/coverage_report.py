"""Which lines of the package the full run's tests execute: measured by pytest-cov, reported per package.

Only the processes of pytest are measured, not the programs that tests start.
"""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = "consumer_membership"
#: git ignores its folder.
REPORT = Path(__file__).resolve().parent.parent / "results" / "coverage.txt"
#: pytest-cov leaves its data in the file that this environment variable names.
VARIABLE = "COVERAGE_FILE"
#: For pytest.
FLAGS = (f"--cov={PACKAGE}", "--cov-report=")


def lacking() -> str | None:
    """Return what this machine lacks for the report, and how to provide it; None if it lacks nothing."""
    if importlib.util.find_spec("pytest_cov") is None:
        return "--full measures coverage, and pytest-cov is not installed: pip install --group test"
    return None


def write(data: Iterable[Path]) -> Iterator[str]:
    """Write the report of all stages together, with the missing lines of each module; yield the totals per package."""
    from coverage import Coverage  # noqa: PLC0415 - for the full run only

    paths = [str(path) for path in data]
    if not paths:
        yield "no coverage was measured: no stage with tests ran"
        return
    REPORT.parent.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        together = Coverage(data_file=str(Path(folder) / "data"), include=[f"{PACKAGE}/*"])
        together.combine(paths, keep=True)
        with REPORT.open("w") as file:
            together.report(show_missing=True, skip_covered=True, sort="miss", file=file)
        together.json_report(outfile=str(Path(folder) / "json"))
        files = json.loads((Path(folder) / "json").read_text())["files"]
    yield from totals({path: one["summary"] for path, one in files.items()})
    yield f"missing lines of each module: {REPORT}"


def totals(modules: dict[str, dict[str, int]]) -> Iterator[str]:
    """Yield the share of executed lines of each package, and of all together, from the figures of their modules."""
    executed: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    for path, summary in modules.items():
        parts = Path(path).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        for package in (inside[0] if len(inside) > 1 else "modules of the package itself", "together"):
            executed[package] += summary["covered_lines"]
            lines[package] += summary["num_statements"]
    yield "coverage of the package by the processes of pytest:"
    for package in sorted(lines, key=lambda name: (name == "together", name)):
        if lines[package]:
            yield f"{executed[package] / lines[package]:8.1%}  {executed[package]}/{lines[package]}  {package}"
