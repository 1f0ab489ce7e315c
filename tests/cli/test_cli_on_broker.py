"""`consume` and `broker` as processes on a real broker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka.admin import AdminClient

from consumer_membership.demo.brokers import offsets_at_end
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, PROCESS_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "consumer_membership"]
PARTITIONS = 3


@pytest.fixture
def topic(kafka: Broker) -> str:
    """Create a topic with nine records; tests use its name also as the group id."""
    name = create_topic(kafka.bootstrap_servers, unique("cli"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, [(b"key", b"%d" % number) for number in range(8)] + [(None, b"\xff")])
    return name


@contextmanager
def consuming(
    kafka: Broker, topic: str, *words: str, stdout: IO[str] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Run `consume` on this topic from the beginning, and kill it at the end if it still runs."""
    arguments = ["consume", "-b", kafka.bootstrap_servers, "-g", topic, "-t", topic, "--from-beginning", *words]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], count: int) -> list[str]:
    """Return the first lines of the process's stdout."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Wait until the process ends, and return its exit code and its stderr lines."""
    _, output = process.communicate(timeout=PROCESS_S)
    return process.returncode, output.splitlines()


def has_members(kafka: Broker, group: str) -> bool:
    """Return whether the coordinator has a member of this group."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return bool(admin.describe_consumer_groups([group], request_timeout=PATIENCE_S)[group].result().members)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_consume_prints_records_and_leaves_group_on_signal(kafka: Broker, topic: str, number: signal.Signals) -> None:
    """SIGINT and SIGTERM commit, leave and exit with 0; records go to stdout, membership events to stderr."""
    with consuming(kafka, topic) as process:
        lines = lines_until(process, 9)
        assert has_members(kafka, topic)
        process.send_signal(number)
        code, output = ended(process)
    assert sorted(line.partition(" value=")[2] for line in lines) == [*(f"{n}\n" for n in range(8)), r"\xff" + "\n"]
    assert code == 0
    assert not has_members(kafka, topic)
    committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
    assert committed == end == {0: 3, 1: 3, 2: 3}
    narration = [line[13:] for line in output]
    assert any(line.startswith("UNSUBSCRIBED -> JOINING") for line in narration)
    assert f"assigned {topic}[0-2]" in narration
    assert f"revoked {topic}[0-2]" in narration
    assert any(line.startswith("UNSUBSCRIBING -> UNSUBSCRIBED") for line in narration)


def test_consume_stops_at_limit_and_resumes_after_it(kafka: Broker, topic: str) -> None:
    """With -n, exactly that many records are printed and committed; JSON has all fields of a record."""
    shown: list[dict[str, object]] = []
    for limit in (4, 5):
        with consuming(kafka, topic, "--json", "-n", str(limit)) as process:
            out, _ = process.communicate(timeout=PROCESS_S)
        records = [json.loads(line) for line in out.splitlines()]
        assert (process.returncode, len(records)) == (0, limit)
        shown += records
    assert sorted((record["partition"], record["offset"]) for record in shown) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(3)
    ]
    values = [record["value"] for record in shown]
    assert {"base64": "/w=="} in values
    assert sorted(value for value in values if isinstance(value, str)) == [str(number) for number in range(8)]


def test_consume_ends_after_timeout_without_records(kafka: Broker, topic: str) -> None:
    """With --timeout, the command exits with 0 after this time without a record."""
    # The limit is long, because on a busy machine the first record arrives late.
    with consuming(kafka, topic, "--timeout", "20") as process:
        out, _ = process.communicate(timeout=PROCESS_S)
    assert (process.returncode, len(out.splitlines())) == (0, 9)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_consume_to_full_disk_exits_1_with_one_error_line(kafka: Broker, topic: str) -> None:
    """If the disk is full, the command prints no traceback, exits with 1, and its member leaves the group."""
    with Path("/dev/full").open("w") as full, consuming(kafka, topic, stdout=full) as process:
        _, output = process.communicate(timeout=PROCESS_S)
    assert process.returncode == 1
    assert "error: No space left on device" in output
    assert "Traceback" not in output
    assert not has_members(kafka, topic)


def test_consume_into_closed_pipe_exits_0_and_leaves_group(kafka: Broker, topic: str) -> None:
    """If the pipe is closed, as by `| head -1`, the command prints no traceback, and its member leaves the group."""
    produce(kafka.bootstrap_servers, topic, 20_000)
    with consuming(kafka, topic) as process:
        assert lines_until(process, 1)[0].startswith(f"{topic}[")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PROCESS_S) == 0
        assert process.stderr is not None
        output = process.stderr.read()
    assert "Traceback" not in output
    assert "BrokenPipe" not in output
    assert not has_members(kafka, topic)


def test_consume_of_unknown_topic_exits_1(kafka: Broker) -> None:
    """If the topic does not exist, the command exits with 1 and prints the reason."""
    topic = unique("missing")
    with consuming(kafka, topic) as process:
        code, output = ended(process)
    assert code == 1
    assert any(line.endswith(f"error: topic {topic} does not exist") for line in output), output


def test_consume_with_instance_id_stays_in_group(kafka: Broker, topic: str) -> None:
    """With --instance-id, the coordinator keeps the member after the process ends."""
    with consuming(kafka, topic, "--instance-id", "desk", "-n", "9") as process:
        code, _ = ended(process)
    assert code == 0
    assert has_members(kafka, topic)


def test_broker_command_runs_until_sigint() -> None:
    """The command prints the broker's address, and after the signal no server listens at this address."""
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"}
    with subprocess.Popen(
        [*COMMAND, "broker", "-p", "group.max.size=7"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _ready, servers = lines_until(process, 2)
            host, _, port = servers.strip().removeprefix("bootstrap.servers=").partition(":")
            socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=PATIENCE_S)
