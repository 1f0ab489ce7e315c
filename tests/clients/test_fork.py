"""A forked child: each call names the remedy, and no call blocks or crashes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.mock_cluster import MockCluster
from tests.support.waiting import PROCESS_S

pytestmark = pytest.mark.slow

_PROGRAM = """
import os, sys
from confluent_kafka import TopicPartition
from consumer_membership import Consumer, UseError

config = {"bootstrap.servers": sys.argv[1], "group.id": "fork", "log_level": 0}
consumer = Consumer(config)
consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
assert consumer.poll(60).offset() == 0
assert consumer.poll(60).offset() == 1

def refusals():
    calls = {
        "poll": lambda: consumer.poll(0),
        "consume": lambda: consumer.consume(1, 0),
        "commit": lambda: consumer.commit(asynchronous=False),
        "subscribe": lambda: consumer.subscribe(["a"]),
        "assignment": lambda: consumer.assignment(),
        "memberid": lambda: consumer.memberid(),
        "membership": lambda: consumer.membership(),
        "list_topics": lambda: consumer.list_topics(timeout=1),
        "close": lambda: consumer.close(),
    }
    for name, call in calls.items():
        try:
            call()
        except UseError as error:
            assert isinstance(error, RuntimeError) and "spawn" in str(error), error
        else:
            raise AssertionError(name + " was not refused")

child = os.fork()
if child == 0:
    refusals()
    {end}
_, status = os.waitpid(child, 0)
assert status == 0, status
assert consumer.poll(60).offset() == 2
consumer.close()
print("fine")
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "del consumer; sys.exit(0)", "sys.exit(0)"])
def test_forked_child_gets_errors_and_exits_while_the_parent_continues(
    cluster: MockCluster, topic: str, end: str
) -> None:
    """The child never destroys the handle, because its destruction in a child would crash it."""
    program = _PROGRAM.replace("{end}", end)
    done = subprocess.run(
        [sys.executable, "-c", program, cluster.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
