"""The broker handle: which nodes a caller may control, and when the broker is released."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from consumer_membership.devbroker import Backend, Broker, BrokerUnavailableError
from consumer_membership.devbroker.readiness import probe_groups


class ScriptedNode:
    """A node that records its orders."""

    pid = None

    def __init__(self, node_id: int, secured: Mapping[str, str] = MappingProxyType({})) -> None:
        self.node_id = node_id
        self.address = f"127.0.0.1:{9000 + node_id}"
        self.secured = secured
        self.is_running = True
        self.orders: list[str] = []

    def start(self) -> None:
        self.orders.append("start")
        self.is_running = True

    def use_version(self, version: str) -> None:
        self.orders.append(version)

    def stop(self) -> None:
        self.orders.append("stop")
        self.is_running = False

    def kill(self) -> None:
        self.orders.append("kill")
        self.is_running = False

    def remove(self) -> None:
        self.orders.append("remove")

    def log_tail(self) -> str:
        return f"last words of {self.node_id}"


def broker_of(*nodes: ScriptedNode, backend: Backend = Backend.JVM) -> Broker:
    """Return a broker of these scripted nodes."""
    addresses = ",".join(node.address for node in nodes) or "elsewhere:9092"
    return Broker(backend=backend, version="4.3.1", bootstrap_servers=addresses, nodes=nodes)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode without the sign, as Utils.abs does."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) % 2**32
    return value & 0x7FFFFFFF


def test_broker_stops_kills_and_starts_node_by_id() -> None:
    """Nodes are controlled by Kafka's node ids, so that a test can stop a node that it found in the metadata."""
    first, second = ScriptedNode(1), ScriptedNode(2)
    broker = broker_of(first, second)
    broker.stop_node(2)
    broker.start_node(2)
    broker.kill_node(2)
    assert first.orders == []
    assert second.orders == ["stop", "start", "kill"]
    assert broker.node_ids == (1, 2)


def test_start_node_ignores_running_node() -> None:
    """`start_node` ignores a running node, because a second process would corrupt the storage."""
    node = ScriptedNode(1)
    broker_of(node).start_node(1)
    assert node.orders == []


def test_kill_node_of_unknown_id_raises_error_with_known_ids() -> None:
    """An unknown node id raises an error that lists the node ids, which start at 1."""
    with pytest.raises(BrokerUnavailableError, match="its node ids are 1, 2"):
        broker_of(ScriptedNode(1), ScriptedNode(2)).kill_node(0)


def test_stop_node_of_existing_broker_raises() -> None:
    """`stop_node` raises for an existing broker, which this package did not start."""
    with pytest.raises(BrokerUnavailableError, match="does not control an existing broker"):
        broker_of(backend=Backend.EXISTING).stop_node(1)


def test_start_node_with_version_upgrades_stopped_node_only() -> None:
    """`start_node` with a version upgrades a stopped node and ignores a running node."""
    first, second = ScriptedNode(1), ScriptedNode(2)
    broker = broker_of(first, second)
    broker.stop_node(1)
    for node_id in (1, 2):
        broker.start_node(node_id, "4.4.0")
    assert (first.orders, second.orders) == (["stop", "4.4.0", "start"], [])


def test_start_node_of_stopped_broker_raises() -> None:
    """A node of a stopped broker cannot be started, because its storage is deleted."""
    broker = broker_of(ScriptedNode(1))
    broker.stop()
    with pytest.raises(BrokerUnavailableError, match="has been stopped"):
        broker.start_node(1)


def test_broker_stop_releases_once() -> None:
    """A second `stop` has no effect, because a test and its fixture may both call `stop`."""
    released: list[str] = []
    broker = Broker(
        backend=Backend.JVM, version="4.3.1", bootstrap_servers="x:1", release=lambda: released.append("released")
    )
    with broker:
        broker.stop()
    assert broker.is_stopped
    assert released == ["released"]


def test_secured_listener_lists_all_nodes() -> None:
    """The servers of a secured listener include all nodes, so that a client can use any node."""
    nodes = [ScriptedNode(number, {"TLS": f"a:{number}", "SASL": f"b:{number}"}) for number in (1, 2)]
    assert broker_of(*nodes).secured == {"TLS": "a:1,a:2", "SASL": "b:1,b:2"}


def test_broker_without_security_has_no_secured_listeners() -> None:
    """Neither a started nor an existing broker has secured listeners without security settings."""
    assert broker_of(ScriptedNode(1)).secured == {}
    assert broker_of(backend=Backend.EXISTING).secured == {}


def test_wait_ready_raises_with_log_tail_of_dead_node() -> None:
    """If a node's process has ended, `wait_ready` raises an error with the end of the node's log."""
    node = ScriptedNode(1)
    node.is_running = False
    with pytest.raises(BrokerUnavailableError, match="last words of 1"):
        broker_of(node).wait_ready(timeout_s=0)


def test_require_nodes_accepts_deliberately_stopped_node() -> None:
    """`require_nodes` accepts a node that was stopped deliberately, because the other nodes may form a cluster."""
    broker = broker_of(ScriptedNode(1), ScriptedNode(2))
    broker.stop_node(2)
    broker.require_nodes()


@pytest.mark.parametrize("partitions", [1, 3, 8, 50])
def test_probe_groups_cover_every_offsets_partition(partitions: int) -> None:
    """Each partition of the offsets topic has its own coordinator, and the readiness check covers all of them."""
    covered = {java_hash(group_id) % partitions for group_id in probe_groups(partitions)}
    assert covered == set(range(partitions))
