"""`consume` and `broker` on the real broker, as processes."""

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
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-m", "consumer_membership"]
PARTITIONS = 3


@pytest.fixture
def topic(kafka: Broker) -> str:
    """A topic with nine records; tests use its name as the group's too."""
    name = create_topic(kafka.bootstrap_servers, unique("cli"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, [(b"key", b"%d" % number) for number in range(8)] + [(None, b"\xff")])
    return name


@contextmanager
def consuming(
    kafka: Broker, topic: str, *words: str, stdout: IO[str] | int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """A `consume` of this topic from the beginning; killed at the end if it is still there."""
    arguments = ["consume", "-b", kafka.bootstrap_servers, "-g", topic, "-t", topic, "--from-beginning", *words]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], count: int) -> list[str]:
    """The first lines of its stdout."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Its exit code and what it said on stderr."""
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said.splitlines()


def has_members(kafka: Broker, group: str) -> bool:
    """Whether the coordinator knows a member of this group."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return bool(admin.describe_consumer_groups([group], request_timeout=20)[group].result().members)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_consume_prints_records_and_leaves_cleanly(kafka: Broker, topic: str, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM: committed, left, exit code 0; records on stdout, the membership on stderr."""
    with consuming(kafka, topic) as process:
        lines = lines_until(process, 9)
        assert has_members(kafka, topic)
        process.send_signal(number)
        code, said = ended(process)
    assert sorted(line.partition(" value=")[2] for line in lines) == [*(f"{n}\n" for n in range(8)), r"\xff" + "\n"]
    assert code == 0
    assert not has_members(kafka, topic)
    committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
    assert committed == end == {0: 3, 1: 3, 2: 3}
    told = [line[13:] for line in said]
    assert any(line.startswith("UNSUBSCRIBED -> JOINING") for line in told)
    assert f"assigned {topic}[0-2]" in told
    assert f"revoked {topic}[0-2]" in told
    assert any(line.startswith("UNSUBSCRIBING -> UNSUBSCRIBED") for line in told)


def test_consume_stops_at_the_limit_and_goes_on_there(kafka: Broker, topic: str) -> None:
    """-n: exactly so many are printed, and no more are committed; JSON says all of a record."""
    shown: list[dict[str, object]] = []
    for limit in (4, 5):
        with consuming(kafka, topic, "--json", "-n", str(limit)) as process:
            out, _ = process.communicate(timeout=PATIENCE_S)
        records = [json.loads(line) for line in out.splitlines()]
        assert (process.returncode, len(records)) == (0, limit)
        shown += records
    assert sorted((record["partition"], record["offset"]) for record in shown) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(3)
    ]
    values = [record["value"] for record in shown]
    assert {"base64": "/w=="} in values
    assert sorted(value for value in values if isinstance(value, str)) == [str(number) for number in range(8)]


def test_consume_ends_after_a_silence(kafka: Broker, topic: str) -> None:
    """--timeout: so long without a record."""
    with consuming(kafka, topic, "--timeout", "10") as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, len(out.splitlines())) == (0, 9)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_consume_onto_a_full_disk_is_one_line(kafka: Broker, topic: str) -> None:
    """No traceback, exit code 1, and the group is left."""
    with Path("/dev/full").open("w") as full, consuming(kafka, topic, stdout=full) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "error: No space left on device" in said
    assert "Traceback" not in said
    assert not has_members(kafka, topic)


def test_consume_into_a_closed_pipe_ends_quietly(kafka: Broker, topic: str) -> None:
    """`| head -1`: no traceback, and the group is left."""
    produce(kafka.bootstrap_servers, topic, 20_000)
    with consuming(kafka, topic) as process:
        assert lines_until(process, 1)[0].startswith(f"{topic}[")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert not has_members(kafka, topic)


def test_consume_of_an_unknown_topic_ends_with_1(kafka: Broker) -> None:
    """Without a topic there is nothing to wait for, and the reason is in the last lines."""
    topic = unique("missing")
    with consuming(kafka, topic) as process:
        code, said = ended(process)
    assert code == 1
    assert any(line.endswith(f"nothing to consume: topic {topic} does not exist") for line in said), said


def test_consume_as_a_static_member_keeps_its_place(kafka: Broker, topic: str) -> None:
    """--instance-id: the coordinator still counts on it after Ctrl-C."""
    with consuming(kafka, topic, "--instance-id", "desk", "-n", "9") as process:
        code, _ = ended(process)
    assert code == 0
    assert has_members(kafka, topic)


def test_broker_runs_until_it_is_told_to_stop() -> None:
    """It says where it is, and nobody listens there afterwards."""
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
            socket.create_connection((host, int(port)), timeout=5).close()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
