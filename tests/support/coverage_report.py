"""The coverage of the package in the full run: measured by pytest-cov, and reported for each package.

pytest-cov measures only the processes of pytest, not the programs that tests start.
"""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = "consumer_membership"
#: The report; git ignores its folder.
REPORT = Path(__file__).resolve().parent.parent / "results" / "coverage.txt"
#: pytest-cov writes its data to the file that this environment variable names.
VARIABLE = "COVERAGE_FILE"
#: Options of pytest.
FLAGS = (f"--cov={PACKAGE}", "--cov-report=")


def lacking() -> str | None:
    """Return the requirement that this machine lacks, and how to install it; None if it lacks none."""
    if importlib.util.find_spec("pytest_cov") is None:
        return "--full measures coverage, and pytest-cov is not installed: pip install --group test"
    return None


def write(data: Iterable[Path]) -> Iterator[str]:
    """Write the report for all stages, with the missing lines of each module; yield the totals for each package."""
    from coverage import Coverage  # noqa: PLC0415 - only the full run needs it

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
    """Yield the share of executed lines for each package, and for all packages together, from the modules' figures."""
    executed: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    for path, summary in modules.items():
        parts = Path(path).parts
        inside = parts[parts.index(PACKAGE) + 1 :]
        for package in (inside[0] if len(inside) > 1 else "modules of the package itself", "together"):
            executed[package] += summary["covered_lines"]
            lines[package] += summary["num_statements"]
    yield "coverage of the package, in the processes of pytest:"
    for package in sorted(lines, key=lambda name: (name == "together", name)):
        if lines[package]:
            yield f"{executed[package] / lines[package]:8.1%}  {executed[package]}/{lines[package]}  {package}"
