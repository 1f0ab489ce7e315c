"""A process that was stopped for longer than its session returns no buffered record that other members may own.

Both clients run on a real broker: a reader with a full buffer is stopped (SIGSTOP) until the group has removed it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.sleeper import BATCH
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 30_000


@pytest.fixture
def quick(broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions end after 6 s."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


@contextmanager
def reader(quick: Broker, client: str, protocol: str, group: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """The process of one member."""
    config: dict[str, object] = {
        "bootstrap.servers": quick.bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    if protocol == "classic":
        config |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500}
    life = json.dumps({"config": config, "topic": topic, "client": client})
    command = [sys.executable, "-m", "tests.support.sleeper", life]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def handed_out(output: IO[str], since: float, until: str) -> int:
    """The number of records that were returned from this moment up to this call."""
    count = 0
    for line in output:
        match json.loads(line):
            case [int(number), float(at)]:
                count += number if at > since else 0
            case call if call == until:
                return count
    raise AssertionError(f"the process ended before {until}")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("client", ["confluent-kafka", "ours"])
def test_resumed_process_returns_no_buffered_record_before_on_lost(quick: Broker, client: str, protocol: str) -> None:
    """Only the batch that was being returned at the stop may come before on_lost."""
    topic, group = create_topic(quick.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(quick.bootstrap_servers, topic, RECORDS)
    with reader(quick, client, protocol, group, topic) as process:
        assert process.stdout is not None
        assert handed_out(process.stdout, 0.0, until="assign") == 0
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        admin = GroupAdmin({"bootstrap.servers": quick.bootstrap_servers})
        wait_until(lambda: not admin.describe(group).group.members, "the end of its session")
        goes_on_at = time.monotonic()
        process.send_signal(signal.SIGCONT)
        after = handed_out(process.stdout, goes_on_at, until="lost")
    if client == "ours":  # confluent-kafka's number depends on its threads
        assert after <= BATCH
