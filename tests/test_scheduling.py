"""A process of a test run that ends fails the test that it was at, and nothing else."""

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
#: The first one leaves a note each time it is run.
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
def test_test_that_ends_its_process_is_failed_once(tmp_path: Path, *, is_last: bool) -> None:
    """Also where it is the last one: then there is nothing left for the next process."""
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
