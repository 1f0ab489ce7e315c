"""The package on a system that is not POSIX, as far as that can be shown on one that is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique


def run(*arguments: str) -> list[str]:
    """What an interpreter without POSIX prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.without_posix", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_module_can_be_imported() -> None:
    """Windows has no os.register_at_fork, no fcntl, no SIGHUP; nothing of the package needs them at its import."""
    (imported,) = run()
    assert int(imported.split()[0]) > 150


@pytest.mark.integration
@pytest.mark.slow
def test_consumer_works(kafka: Broker) -> None:
    """It joins, consumes, commits and leaves without any of it."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 100)
    assert run(kafka.bootstrap_servers, topic, "100")[1:] == ["100 records"]
