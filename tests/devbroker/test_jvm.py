"""Real brokers as local JVMs: they start, respond, restart with their data, and leave no processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from consumer_membership.devbroker import SUPPORTED_VERSIONS, Backend, Broker, BrokerUnavailableError, start
from consumer_membership.devbroker.readiness import minor_line
from consumer_membership.devbroker.tcp_ports import draw_ports
from tests.support.broker_pool import BrokerPool
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# A broker that was killed can register again only after its previous session has ended: 9 s by default.
QUICK_SESSIONS = {"broker.session.timeout.ms": "2500", "broker.heartbeat.interval.ms": "500"}


REPOSITORY = Path(__file__).parents[2]


def java_processes() -> list[psutil.Process]:
    """Return the JVMs that descend from this process."""
    return [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]


def topics(bootstrap_servers: str) -> set[str]:
    """Return the topics in the metadata."""
    return set(AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=PATIENCE_S).topics)


def offset_of(bootstrap_servers: str, group_id: str, topic: str) -> int:
    """Return the committed offset of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group_id})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)[0].offset
    finally:
        consumer.close()


def commit(bootstrap_servers: str, group_id: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0, synchronously."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group_id})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def while_a_node_is_fenced() -> Retrying:
    """Return a retry for missing nodes: with short sessions, a node is fenced briefly if its machine is busy."""

    def lacks_nodes(error: BaseException) -> bool:
        if isinstance(error, KafkaException):
            return bool(error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR)
        return isinstance(error, AssertionError)

    return Retrying(
        retry=retry_if_exception(lacks_nodes), wait=wait_fixed(0.1), stop=stop_after_delay(PATIENCE_S), reraise=True
    )


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_started_broker_serves_topics_and_groups_and_leaves_no_process(version: str) -> None:
    """After `start`, topics and groups work immediately without retries; after `stop`, no process remains."""
    before = java_processes()
    with start(version, backend=Backend.JVM) as broker:
        servers = broker.bootstrap_servers
        pid = broker.node_pid(1)
        assert pid in {process.pid for process in java_processes()}
        topic = create_topic(servers, unique("orders"), 3)
        assert produce(servers, topic, 30) == {0: 10, 1: 10, 2: 10}
        commit(servers, "group", topic, 7)
        assert offset_of(servers, "group", topic) == 7
        delete_topic(servers, topic)
        assert topic not in topics(servers)
        assert version.startswith(f"{minor_line(servers, PATIENCE_S)}.")
        assert (broker.version, broker.backend) == (version, Backend.JVM)
    assert java_processes() == before
    assert broker.is_stopped


def test_broker_does_not_auto_create_topics(kafka_broker: BrokerFactory) -> None:
    """The broker creates no topic automatically, so a misspelled topic stays unknown, as in production."""
    broker = kafka_broker(backend=Backend.JVM)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "allow.auto.create.topics": True})
    admin.list_topics("misspelt", timeout=PATIENCE_S)
    assert "misspelt" not in topics(broker.bootstrap_servers)


@pytest.mark.parametrize("ending", [Broker.stop_node, Broker.kill_node])
def test_restarted_node_keeps_topics_and_committed_offsets(kafka_broker: BrokerFactory, ending: object) -> None:
    """A restarted node has a new process, but keeps its port, topics and committed offsets."""
    assert callable(ending)
    broker = kafka_broker(properties=QUICK_SESSIONS, backend=Backend.JVM, is_shared=False)
    servers = broker.bootstrap_servers
    topic = while_a_node_is_fenced()(create_topic, servers, unique("orders"))
    produce(servers, topic, 5)
    commit(servers, "group", topic, 3)
    pid = broker.node_pid(1)
    ending(broker, 1)
    assert broker.node_pid(1) is None
    broker.start_node(1)
    broker.wait_ready()
    assert broker.node_pid(1) != pid
    assert broker.bootstrap_servers == servers
    assert topic in topics(servers)
    assert offset_of(servers, "group", topic) == 3


@pytest.mark.slow
def test_upgraded_node_keeps_topics_and_committed_offsets(kafka_broker: BrokerFactory) -> None:
    """A newer version reads the storage of the older one, and answers with its own versions of the protocol."""
    older, newer = SUPPORTED_VERSIONS[-2:]
    broker = kafka_broker(older, properties=QUICK_SESSIONS, backend=Backend.JVM, is_shared=False)
    servers = broker.bootstrap_servers
    topic = while_a_node_is_fenced()(create_topic, servers, unique("orders"))
    commit(servers, "group", topic, 3)
    broker.stop_node(1)
    broker.start_node(1, newer)
    broker.wait_ready()
    assert newer.startswith(minor_line(servers, PATIENCE_S))
    assert offset_of(servers, "group", topic) == 3


def test_three_nodes_survive_killing_any_node(kafka_broker: BrokerFactory) -> None:
    """Groups and topics survive a killed node, even a controller or a coordinator."""
    broker = kafka_broker(nodes=3, properties=QUICK_SESSIONS, backend=Backend.JVM, is_shared=False)
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for attempt in while_a_node_is_fenced():
        with attempt:
            metadata = admin.list_topics("__consumer_offsets", timeout=PATIENCE_S)
            assert set(metadata.brokers) == set(broker.node_ids) == {1, 2, 3}
    replicas = metadata.topics["__consumer_offsets"].partitions[0].replicas
    assert set(replicas) == {1, 2, 3}
    topic = while_a_node_is_fenced()(create_topic, servers, unique("orders"), replication_factor=3)
    commit(servers, "group", topic, 11)
    for node_id in broker.node_ids:
        broker.kill_node(node_id)
        broker.wait_ready()
        assert offset_of(servers, "group", topic) == 11
        broker.start_node(node_id)
        broker.wait_ready()


def test_start_with_invalid_property_raises_kafkas_error(kafka_broker: BrokerFactory) -> None:
    """If the broker rejects a property, the error contains the broker's own message."""
    with pytest.raises(BrokerUnavailableError, match=r"group\.consumer\.max\.size"):
        kafka_broker(properties={"group.consumer.max.size": "minus one"}, backend=Backend.JVM, is_shared=False)


def test_start_uses_requested_port() -> None:
    """The broker uses the requested port, so that a demo can document its address."""
    port = draw_ports(1)[0]
    with start(backend=Backend.JVM, port=port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


def test_start_uses_existing_broker_unchanged(kafka_broker: BrokerFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is queried over the wire, a mismatch raises an error, and stop() leaves the broker running."""
    running = kafka_broker("4.1.2", backend=Backend.JVM)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", running.bootstrap_servers)
    with start() as broker:
        assert (broker.backend, broker.version) == (Backend.EXISTING, "4.1")
        assert broker.bootstrap_servers == running.bootstrap_servers
        assert broker.node_ids == ()
    running.wait_ready(timeout_s=PATIENCE_S)
    with start("4.1.2", 1) as broker:
        assert broker.backend is Backend.EXISTING
    with pytest.raises(BrokerUnavailableError, match=rf"Kafka {re.escape(NEWEST)}.* its version is 4\.1"):
        start(NEWEST)
    with pytest.raises(BrokerUnavailableError, match=r"3 nodes\): it has 1 node"):
        start(nodes=3)


@pytest.mark.usefixtures("kafka_broker")
def test_start_raises_if_existing_broker_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the existing broker does not respond, an error is raised, and no other broker is started instead."""
    address = f"127.0.0.1:{draw_ports(1)[0]}"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", address)
    with pytest.raises(BrokerUnavailableError, match=f"no broker responds at {address}"):
        start()


def test_pool_shares_equal_brokers_and_stops_them() -> None:
    """All tests that request an equal broker share one start."""
    with BrokerPool() as pool:
        first = pool.shared(properties={"group.max.size": "3"}, backend=Backend.JVM)
        assert pool.shared(properties={"group.max.size": "3"}, backend=Backend.JVM) is first
        first.stop()
        second = pool.shared(properties={"group.max.size": "3"}, backend=Backend.JVM)
        assert second is not first
    assert second.is_stopped


class Owner:
    """Another Python process that starts a broker."""

    def __init__(self, program: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "KAFKA_BOOTSTRAP_SERVERS"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"PYTHONPATH": str(REPOSITORY)},
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        """Kill the process and close its pipe."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def storage_of(java: psutil.Process) -> Path:
    """Return the cluster folder that a broker process uses."""
    return Path(java.cmdline()[-1]).parents[1]


def test_killed_owner_leaves_no_jvm_and_no_storage() -> None:
    """Neither `kill -9` nor a surviving forked child leaves JVMs on the machine."""
    owner = Owner(
        "import os, signal\n"
        "from consumer_membership.devbroker import Backend, start\n"
        "broker = start(backend=Backend.JVM, nodes=2)\n"
        "child = os.fork()\n"
        "if child: print(broker.node_pid(1), broker.node_pid(2), child, flush=True)\n"
        "signal.pause()\n"
    )
    first, second, child = (psutil.Process(int(pid)) for pid in owner.line().split())
    storage = storage_of(first)
    assert (storage / "node-1" / "data" / "meta.properties").exists()
    watchdogs = [first.parent(), second.parent()]
    owner.close()
    _, alive = psutil.wait_procs([first, second, *(dog for dog in watchdogs if dog)], timeout=PATIENCE_S)
    child.kill()
    assert alive == []
    assert not storage.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_foreground_broker_runs_until_signal_and_stops_cleanly(number: signal.Signals) -> None:
    """The command prints its broker's address and ends with exit code 0."""
    owner = Owner(
        "import sys\n"
        "from consumer_membership.devbroker import Backend\n"
        "from consumer_membership.devbroker.foreground import run_foreground\n"
        "properties = {'group.max.size': '5'}\n"
        f"sys.exit(run_foreground({NEWEST!r}, 1, properties, sys.stdout, sys.stderr, backend=Backend.JVM))\n"
    )
    assert owner.line() == f"Kafka {NEWEST} is ready: jvm, 1 node"
    name, _, servers = owner.line().partition("=")
    assert name == "bootstrap.servers"
    assert "__consumer_offsets" in topics(servers)
    assert "Ctrl-C" in owner.line()
    (java,) = [child for child in psutil.Process(owner.process.pid).children(recursive=True) if child.name() == "java"]
    owner.process.send_signal(number)
    assert owner.process.wait(PATIENCE_S) == 0
    assert owner.line() == "Stopped."
    assert not java.is_running()
    owner.close()


def test_foreground_broker_that_dies_is_reported() -> None:
    """If the broker's process ends unexpectedly, the command reports this and ends."""
    owner = Owner(
        "import sys\n"
        "from consumer_membership.devbroker import Backend\n"
        "from consumer_membership.devbroker.foreground import run_foreground\n"
        "sys.exit(run_foreground(None, None, {}, sys.stdout, sys.stdout, backend=Backend.JVM))\n"
    )
    for _ in range(3):
        owner.line()
    (java,) = [child for child in psutil.Process(owner.process.pid).children(recursive=True) if child.name() == "java"]
    java.kill()
    assert owner.process.wait(PATIENCE_S) == 1
    assert owner.line().startswith(f"consumer-membership broker: node 1 of Kafka {NEWEST}")
    owner.close()
