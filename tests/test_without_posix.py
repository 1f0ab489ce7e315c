"""The package on a simulated system without POSIX."""

from __future__ import annotations

import subprocess
import sys

import pytest

from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique


def run(*arguments: str) -> list[str]:
    """Return the lines that an interpreter without POSIX prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.without_posix", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_module_can_be_imported_without_posix() -> None:
    """No module needs os.register_at_fork, fcntl or SIGHUP at its import, because Windows has none of them."""
    (imported,) = run()
    assert int(imported.split()[0]) > 150


@pytest.mark.integration
@pytest.mark.slow
def test_consumer_joins_consumes_commits_and_leaves_without_posix(kafka: Broker) -> None:
    """A consumer joins, consumes, commits and leaves without POSIX."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 100)
    assert run(kafka.bootstrap_servers, topic, "100")[1:] == ["100 records"]
