"""SIGTERM and Ctrl-C end a program with a processor: the first one drains, the second one does not wait."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from consumer_membership.devbroker import Broker
from tests.integration.processors import committed
from tests.support.kafka import create_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: A deadline against hanging.
ENDS_S = 60.0


@contextmanager
def program(broker: Broker, topic: str, group: str, kind: str) -> Iterator[subprocess.Popen[str]]:
    """Start the program, and kill it at the end of the block if it still runs."""
    command = [sys.executable, "-m", "tests.support.processor_program", broker.bootstrap_servers, topic, group, kind]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], line: str) -> list[str]:
    """Return the lines of the program up to this one."""
    assert process.stdout is not None
    found: list[str] = []
    for text in process.stdout:
        found.append(text.strip())
        if found[-1] == line:
            return found
    raise AssertionError(f"the program ended after {found}")


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_drains_and_run_returns(broker: Broker, kind: str, number: signal.Signals) -> None:
    """The running handler ends, its record is committed, queued records are left, and the program ends with 0."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(None, "first"), (None, "held"), (None, "third")])
    with program(broker, topic, group, kind) as process:
        read_until(process, "began held")
        process.send_signal(number)
        assert process.stdin is not None
        process.stdin.write("release\n")
        process.stdin.flush()
        lines = read_until(process, "returned")
        assert process.wait(ENDS_S) == 0
    assert lines[0] == "ended held"
    assert committed(broker.bootstrap_servers, group, topic, 1)[0][0] == 1 + sum(
        line.startswith("ended") for line in lines
    )


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_second_signal_ends_at_once_and_what_is_committed_is_correct(broker: Broker, kind: str) -> None:
    """The second signal does not wait for the handler; its record is not committed."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(None, "first"), (None, "held"), (None, "third")])
    with program(broker, topic, group, kind) as process:
        read_until(process, "began held")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        read_until(process, "returned")
    assert committed(broker.bootstrap_servers, group, topic, 1)[0][0] == 1
