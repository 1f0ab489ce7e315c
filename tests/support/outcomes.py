"""The outcome of each test of a stage: pytest appends it to a file, and `python -m tests` reads it at any time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass(slots=True)
class Outcomes:
    """The known outcomes of a stage's tests.

    Attributes:
        total: The number of tests; 0 until they are collected.
        done: The number of tests that ended.
        failed: The ids of the tests that failed, and the paths of the files that could not be collected.
        skipped: The reason of each skipped test.
    """

    total: int = 0
    done: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Outcomes:
        """Return the outcomes so far; none if pytest has not begun. An incomplete last line is ignored."""
        found = cls()
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        for kind, value, reason in (json.loads(line) for line in lines if line.endswith("\n")):
            match kind:
                case "total":
                    found.total = value
                case "done":
                    found.done += 1
                case "failed":
                    if value not in found.failed:
                        found.failed.append(value)
                case "skipped":
                    found.skipped[value] = reason
        return found


class OutcomeWriter:
    """A pytest plugin that appends outcomes to a file; with xdist, the main process registers it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the number of tests."""
        self._write("total", len(session.items))

    @pytest.hookimpl(optionalhook=True)  # xdist's
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Write the number of tests, which is equal in all processes."""
        self._write("total", len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that could not be collected."""
        if report.failed:
            self._write("failed", report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of one phase; the last phase ends the test. Expected failures do not count as skipped."""
        if report.failed:
            self._write("failed", report.nodeid)
        elif report.skipped and not hasattr(report, "wasxfail"):
            self._write("skipped", report.nodeid, _reason(report))
        if report.when == "teardown":
            self._write("done", report.nodeid)

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, kind: str, value: str | int, reason: str = "") -> None:
        self._file.write(json.dumps([kind, value, reason]) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """Return the reason of a skip."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def skip_lines(skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each test function and reason, with the number of its cases."""
    cases = Counter((test.partition("[")[0], reason) for test, reason in skipped.items())
    for (function, reason), count in sorted(cases.items()):
        yield f"skipped: {function}{f' ({count} cases)' if count > 1 else ''}: {reason}"
