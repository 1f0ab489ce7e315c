"""The flags that leave tests out, run on this folder itself."""

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
    """What pytest says when it collects this folder's tests: the same for all that ask."""
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), "--collect-only", "-q", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout


@pytest.mark.parametrize(
    ("flag", "marker", "module", "needs"),
    [
        ("--no-broker", "integration", "test_jvm.py", "KAFKA_BOOTSTRAP_SERVERS"),
        ("--no-docker", "docker", "test_container.py", "Docker engine"),
    ],
)
def test_flag_leaves_tests_out_and_says_how_many(flag: str, marker: str, module: str, needs: str) -> None:
    """What was not run is in the summary, with what it would have needed."""
    everything, rest = collect(), collect(flag)
    assert f"{module}::" in everything
    assert f"{module}::" not in rest
    assert "left out" not in everything
    told = re.search(rf"{flag}: (\d+) tests marked '{marker}' were not run; they need .*{needs}", rest)
    assert told is not None
    assert int(told[1]) == everything.count("::") - rest.count("::")


def test_tests_that_need_docker_are_left_out_without_a_broker_too() -> None:
    """A container holds a real broker."""
    assert "test_container.py::" not in collect("--no-broker")
