"""The broker's handle: who may control which node, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from consumer_membership.devbroker import Broker, BrokerUnavailableError, Way
from consumer_membership.devbroker.readiness import probe_groups


class ScriptedNode:
    """A node that remembers its orders."""

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


def broker_of(*nodes: ScriptedNode, way: Way = Way.JVM) -> Broker:
    """A broker of these nodes, none of which is real."""
    addresses = ",".join(node.address for node in nodes) or "elsewhere:9092"
    return Broker(way=way, version="4.3.1", bootstrap_servers=addresses, nodes=nodes)


def java_hash(text: str) -> int:
    """String.hashCode, without its sign as Utils.abs takes it away."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) % 2**32
    return value & 0x7FFFFFFF


def test_node_is_stopped_killed_and_started_by_its_id() -> None:
    """Ids are Kafka's, so that a test can stop the node that metadata name."""
    first, second = ScriptedNode(1), ScriptedNode(2)
    broker = broker_of(first, second)
    broker.stop_node(2)
    broker.start_node(2)
    broker.kill_node(2)
    assert first.orders == []
    assert second.orders == ["stop", "start", "kill"]
    assert broker.node_ids == (1, 2)


def test_running_node_is_not_started_again() -> None:
    """A second process on the same storage would destroy it."""
    node = ScriptedNode(1)
    broker_of(node).start_node(1)
    assert node.orders == []


def test_unknown_node_is_refused_with_the_known_ones() -> None:
    """The ids start at 1."""
    with pytest.raises(BrokerUnavailableError, match="its nodes are 1, 2"):
        broker_of(ScriptedNode(1), ScriptedNode(2)).kill_node(0)


def test_existing_broker_is_not_controlled() -> None:
    """Somebody else's broker is never stopped."""
    with pytest.raises(BrokerUnavailableError, match="not ours to control"):
        broker_of(way=Way.EXISTING).stop_node(1)


def test_stopped_broker_is_not_controlled() -> None:
    """Its storage is gone."""
    broker = broker_of(ScriptedNode(1))
    broker.stop()
    with pytest.raises(BrokerUnavailableError, match="has been stopped"):
        broker.start_node(1)


def test_broker_is_released_once() -> None:
    """`stop` may be called by a test and by the fixture behind it."""
    released: list[str] = []
    broker = Broker(way=Way.JVM, version="4.3.1", bootstrap_servers="x:1", release=lambda: released.append("released"))
    with broker:
        broker.stop()
    assert broker.is_stopped
    assert released == ["released"]


def test_secured_listener_is_reached_at_all_nodes() -> None:
    """A client that is given the servers of one listener finds the cluster by any of them."""
    nodes = [ScriptedNode(number, {"TLS": f"a:{number}", "SASL": f"b:{number}"}) for number in (1, 2)]
    assert broker_of(*nodes).secured == {"TLS": "a:1,a:2", "SASL": "b:1,b:2"}


def test_broker_without_security_has_no_secured_listener() -> None:
    """Neither ours nor somebody else's."""
    assert broker_of(ScriptedNode(1)).secured == {}
    assert broker_of(way=Way.EXISTING).secured == {}


def test_node_that_ended_by_itself_is_reported_with_its_last_words() -> None:
    """Waiting for a dead process is in vain."""
    node = ScriptedNode(1)
    node.is_running = False
    with pytest.raises(BrokerUnavailableError, match="last words of 1"):
        broker_of(node).wait_ready(timeout_s=0)


def test_node_that_was_stopped_on_purpose_is_not_missed() -> None:
    """Two of three nodes are a working cluster."""
    broker = broker_of(ScriptedNode(1), ScriptedNode(2))
    broker.stop_node(2)
    broker.require_nodes()


@pytest.mark.parametrize("partitions", [1, 3, 8, 50])
def test_probe_groups_cover_every_coordinator(partitions: int) -> None:
    """Each partition of the offsets topic coordinates other groups; readiness asks all of them."""
    covered = {java_hash(group_id) % partitions for group_id in probe_groups(partitions)}
    assert covered == set(range(partitions))
