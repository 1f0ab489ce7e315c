"""`Scheduling` fails only the running test if a worker process of a test run ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
from tests.support.scheduling import Scheduling


def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""
#: `test_ends` appends a note each time it runs.
TESTS = """
import os
import pathlib


def test_before():
    pass


def test_ends():
    with pathlib.Path("begun").open("a") as notes:
        notes.write("once ")
    os._exit(1)


def test_behind():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_last", [False, True])
def test_scheduling_fails_a_test_that_ends_its_process_once(tmp_path: Path, *, is_last: bool) -> None:
    """The test fails once and is not repeated, also if it is the last one and leaves nothing for the next process."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_a.py").write_text(TESTS.rpartition("\n\n\n")[0] if is_last else TESTS)
    (tmp_path / "test_b.py").write_text("def test_beside():\n    pass\n")
    words = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "--rootdir", "."]
    found = subprocess.run(
        [sys.executable, *words],
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert f"1 failed, {2 if is_last else 3} passed" in found.stdout, found.stdout + found.stderr
    assert (tmp_path / "begun").read_text() == "once "
