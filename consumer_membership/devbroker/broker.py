"""The handle of a running broker: where it is, and how its nodes are stopped and started.

All backends return the same class. `Node` is the interface to one node; an existing broker has no controllable nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Protocol, Self

from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.readiness import await_ready
from consumer_membership.devbroker.request import Backend, BrokerRequest
from consumer_membership.devbroker.tcp_ports import retry_taken_ports, taken_port_told_apart

READY_TIMEOUT_S = 60.0
"""Ten times what a start takes on two idle cores."""


class Node(Protocol):
    """One Kafka node under our control."""

    @property
    def node_id(self) -> int:
        """Kafka's `node.id`, from 1."""

    @property
    def address(self) -> str:
        """Where clients reach it in plaintext, host:port."""

    @property
    def secured(self) -> Mapping[str, str]:
        """Where clients reach its secured listeners: host:port by the listener's name; empty without security."""

    @property
    def pid(self) -> int | None:
        """Its process id on this machine; None when it is not running."""

    @property
    def is_running(self) -> bool:
        """Whether its process is there; it may still be starting up."""

    def start(self) -> None:
        """Start it on the port and the storage that it had."""

    def stop(self) -> None:
        """End it cleanly and wait for the end; nothing where it is not running."""

    def kill(self) -> None:
        """End it as a crash would and wait for the end; nothing where it is not running."""

    def remove(self) -> None:
        """End it by force and throw away what it has, running or not."""

    def log_tail(self) -> str:
        """The last lines that it logged."""


class Broker:
    """A running Kafka, one node or several; a context manager that stops it.

    Not thread safe: one thread controls a broker, any number may use it. A method that takes a node's id raises a
    BrokerUnavailableError where no such node is under our control.

    `version` is Kafka's, or as much as is known of an existing broker's: "4.3" or "unknown". `bootstrap_servers` are
    host:port of every node, comma separated, in plaintext. `release` is called once, by `stop`: it ends what is running
    and frees what is held.
    """

    def __init__(
        self,
        *,
        backend: Backend,
        version: str,
        bootstrap_servers: str,
        nodes: Sequence[Node] = (),
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.backend = backend
        self.version = version
        self.bootstrap_servers = bootstrap_servers
        self._nodes = {node.node_id: node for node in nodes}
        self._secured = _joined([node.secured for node in nodes])
        self._expected_running = set(self._nodes)
        self._release = release
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Broker({self.bootstrap_servers}, Kafka {self.version}, {self.backend.value})"

    @property
    def secured(self) -> Mapping[str, str]:
        """The bootstrap servers of each secured listener, by its name (see `Security`); empty without security."""
        return self._secured

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of the nodes under our control, as metadata show them: 1, 2, ...; none for an existing broker."""
        return tuple(self._nodes)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    def stop(self) -> None:
        """End all nodes at once and throw their storage away; an existing broker is left alone. May be repeated."""
        if not self._is_stopped:
            self._is_stopped = True
            self._release()

    def stop_node(self, node_id: int) -> None:
        """End one node as an operator does (SIGTERM) and wait for its end; it hands its partitions over first."""
        node = self._node(node_id)
        self._expected_running.discard(node_id)
        node.stop()

    def kill_node(self, node_id: int) -> None:
        """End one node as a crash does (SIGKILL) and wait for its end."""
        node = self._node(node_id)
        self._expected_running.discard(node_id)
        node.kill()

    def start_node(self, node_id: int) -> None:
        """Start a node again, on its port and with its storage; `wait_ready` tells when it answers.

        Nothing happens where it is running.
        """
        node = self._node(node_id)
        self._expected_running.add(node_id)
        if not node.is_running:
            node.start()

    def node_pid(self, node_id: int) -> int | None:
        """The process id of a node on this machine, to freeze or to measure it; None where it is not running."""
        return self._node(node_id).pid

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return as soon as all nodes that should run are registered and groups find their coordinator.

        Their secured listeners are open by then.

        Raises:
            BrokerUnavailableError: A node has died, with the tail of its log; or the time ran out.
        """
        running = [self._nodes[node_id] for node_id in sorted(self._expected_running)]
        expected = [node.address for node in running]
        await_ready(
            ",".join(expected) or self.bootstrap_servers,
            nodes=expected,
            secured=[address for node in running for address in node.secured.values()],
            check=self.require_nodes,
            timeout_s=timeout_s,
        )

    def require_nodes(self) -> None:
        """Return if every node that should run does run.

        Raises:
            BrokerUnavailableError: A node has ended by itself; the tail of its log is in the text.
        """
        for node_id in self._expected_running:
            node = self._nodes[node_id]
            if not node.is_running:
                raise BrokerUnavailableError(
                    f"node {node_id} of Kafka {self.version} at {node.address} ended by itself."
                    f" The end of its log:\n{node.log_tail()}"
                )

    def _node(self, node_id: int) -> Node:
        if node_id in self._nodes and not self._is_stopped:
            return self._nodes[node_id]
        if self._is_stopped:
            reason = "the broker has been stopped"
        elif self._nodes:
            reason = f"its nodes are {', '.join(map(str, self._nodes))}"
        else:
            reason = "devbroker does not control an existing broker; use backend=Backend.JVM or backend=Backend.DOCKER"
        raise BrokerUnavailableError(f"node {node_id} of {self!r} cannot be controlled: {reason}")


def start_nodes(
    request: BrokerRequest,
    backend: Backend,
    prepare: Callable[[ExitStack], Sequence[Node]],
    settle: Callable[[Broker], None] = lambda _: None,
) -> Broker:
    """A ready broker of nodes of ours; all anew, a few times, where it loses the race for a port.

    `prepare` makes the nodes on fresh ports, and leaves with the stack how to undo the rest that it made; `settle` does
    what is left to do on the ready broker.
    """

    def attempt() -> Broker:
        held = ExitStack()
        with ExitStack() as on_failure, taken_port_told_apart():
            on_failure.callback(held.close)
            nodes = prepare(held)
            for node in nodes:
                held.callback(node.remove)
                node.start()
            broker = Broker(
                backend=backend,
                version=request.kafka_version,
                bootstrap_servers=",".join(node.address for node in nodes),
                nodes=nodes,
                release=held.close,
            )
            broker.wait_ready()
            settle(broker)
            on_failure.pop_all()
        return broker

    return retry_taken_ports(attempt)


def _joined(of_nodes: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """The addresses of all nodes for each listener, comma separated."""
    names = of_nodes[0] if of_nodes else ()
    return MappingProxyType({name: ",".join(of_node[name] for of_node in of_nodes) for name in names})
