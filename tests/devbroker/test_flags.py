"""The flags that deselect tests, applied to this folder."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]


@cache
def collect(*flags: str) -> str:
    """Return pytest's collection output for this folder, cached by flags."""
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "--collect-only", "-q", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout


@pytest.mark.parametrize(
    ("flag", "marker", "module", "needs"),
    [
        ("--no-broker", "integration", "test_jvm.py", "KAFKA_BOOTSTRAP_SERVERS"),
        ("--no-docker", "docker", "test_container.py", "Docker engine"),
    ],
)
def test_deselecting_flag_reports_number_of_skipped_tests(flag: str, marker: str, module: str, needs: str) -> None:
    """The summary reports how many tests were not run and what they need."""
    everything, rest = collect(), collect(flag)
    assert f"{module}::" in everything
    assert f"{module}::" not in rest
    assert "left out" not in everything
    note = re.search(rf"{flag}: (\d+) tests marked '{marker}' were not run; they need .*{needs}", rest)
    assert note is not None
    assert int(note[1]) == everything.count("::") - rest.count("::")


def test_no_broker_flag_also_skips_docker_tests() -> None:
    """--no-broker also deselects tests of containers, because a container runs a real broker."""
    assert "test_container.py::" not in collect("--no-broker")
