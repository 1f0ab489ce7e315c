"""The demo from end to end, and the processes that it leaves when it is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from consumer_membership.demo.application import MemberArguments
from tests.support.texts import is_of_busy_broker
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, PROCESS_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "consumer_membership", "demo", "--plain"]
NOWHERE = "127.0.0.1:1"


@contextmanager
def demo(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a demo without a broker from the environment; kill it at the end if it still runs."""
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"}
    with subprocess.Popen(
        [*COMMAND, *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The signals of a test, like a terminal's Ctrl-C, must not reach pytest's process group.
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Read the lines of the process up to a line that contains these words."""
    seen = []
    for line in process.stdout or ():
        seen.append(line)
        if words in line:
            return
    pytest.fail(f"{words!r} never came: {''.join(seen)} {process.communicate()[1]}")


@pytest.mark.integration
def test_demo_passes_its_check_on_a_real_broker() -> None:
    """The demo exits with code 0 after all its steps, and its numbers agree."""
    with demo("--seconds", "1") as process:
        out, err = process.communicate(timeout=PROCESS_S)
    errors = [line for line in err.splitlines() if not is_of_busy_broker(line)]
    assert (process.returncode, errors) == (0, []), out
    assert out.startswith("Starting a broker")
    assert re.search(rf"^Apache Kafka {re.escape(NEWEST)} \((docker|jvm)\) is ready", out, re.MULTILINE)
    assert re.findall(r"STEP (\d) of 5", out) == list("12345")
    counts = {
        words: int(count.replace(",", "")) for words, count in re.findall(r"^  (\w.*?)  +([\d,]+)$", out, re.MULTILINE)
    }
    produced = counts["records produced"]
    assert produced > 10_000
    assert counts["records consumed"] == counts["committed offsets, all partitions"] == produced
    assert counts["end offsets, all partitions"] == produced
    assert out.splitlines()[-1].startswith("CHECK PASSED")
    # Before the kill there must be no duplicates, because a clean leave causes none.
    before_the_kill = out.partition("STEP 4")[0]
    assert set(re.findall(r"([\d,]+) consumed twice", before_the_kill)) == {"0"}


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.timeout(120)
def test_interrupted_or_killed_demo_leaves_no_process(ending: signal.Signals) -> None:
    """However the demo ends, its members and its mock cluster also end; SIGINT and SIGTERM cause exit code 130."""
    with demo("--backend", "mock", "--seconds", "1") as process:
        read_until(process, "STEP 2")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2  # a member and the cluster
        process.send_signal(ending)
        process.wait(PATIENCE_S)
        gone, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        expected = {signal.SIGKILL: -signal.SIGKILL}.get(ending, 130)
        assert (process.returncode, len(gone), alive) == (expected, len(children), [])


@pytest.mark.timeout(120)
def test_demo_with_a_closed_stdout_ends_without_a_traceback() -> None:
    """If the reader closes the pipe (`| head`), the demo ends with its children and without a traceback."""
    with demo("--backend", "mock", "--seconds", "1") as process:
        read_until(process, "STEP 1")
        children = psutil.Process(process.pid).children(recursive=True)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert psutil.wait_procs(children, timeout=PATIENCE_S)[1] == []


@pytest.mark.timeout(120)
def test_demo_on_the_mock_cluster_states_that_it_is_not_kafka() -> None:
    """On the mock cluster, the demo prints that this is not Apache Kafka, and its check passes."""
    with demo("--backend", "mock", "--seconds", "0.5") as process:
        out, _ = process.communicate(timeout=110)
    assert "THIS IS NOT APACHE KAFKA" in out
    assert out.splitlines()[-1].startswith("CHECK PASSED"), out
    assert process.returncode == 0


def test_demo_member_ends_with_its_parent() -> None:
    """A member ends when its parent ends, which closes the member's stdin, even if no broker responds."""
    arguments = MemberArguments(name="m", bootstrap_servers=NOWHERE, group="g", topic="t", partitions=3)
    member = subprocess.Popen(
        [sys.executable, "-m", "consumer_membership.demo.application", arguments.to_argument()],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with member:
        try:
            assert member.stdout is not None
            assert any("JOINING" in line for line in member.stdout)
            assert member.stdin is not None
            member.stdin.close()
            assert member.wait(PATIENCE_S) in (0, 1)
        finally:
            member.kill()


def test_unavailable_backend_of_the_demo_exits_with_a_remedy() -> None:
    """If the requested backend is not available, the demo exits with code 1 and prints the remedy."""
    with demo("--backend", "existing") as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (1, "")
    assert "No broker: KAFKA_BOOTSTRAP_SERVERS is not set" in out
