"""The handle of a running broker: its addresses, and methods to stop and start its nodes.

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
from consumer_membership.devbroker.tcp_ports import distinguish_taken_port, retry_taken_ports

READY_TIMEOUT_S = 60.0
"""Ten times the duration of a start on two idle cores."""


class Node(Protocol):
    """One Kafka node under our control."""

    @property
    def node_id(self) -> int:
        """Kafka's `node.id`, from 1."""

    @property
    def address(self) -> str:
        """The plaintext address for clients, host:port."""

    @property
    def secured(self) -> Mapping[str, str]:
        """The addresses (host:port) of the secured listeners, by listener name; empty without security."""

    @property
    def pid(self) -> int | None:
        """The process id on this machine; None if the node is not running."""

    @property
    def is_running(self) -> bool:
        """Whether the process exists; it may still be starting."""

    def start(self) -> None:
        """Start the node on its previous port and storage."""

    def use_version(self, version: str) -> None:
        """Use this Kafka version from the next start on."""

    def stop(self) -> None:
        """Stop the node cleanly and wait for its end; no effect if it is not running."""

    def kill(self) -> None:
        """Kill the node like a crash and wait for its end; no effect if it is not running."""

    def remove(self) -> None:
        """Kill the node if it is running, and delete its data."""

    def log_tail(self) -> str:
        """Return the last lines of the node's log."""


class Broker:
    """A running Kafka broker with one or more nodes; a context manager that stops it.

    Not thread safe: one thread controls the broker; any number of threads may use it. Methods with a node id raise
    BrokerUnavailableError if this object does not control such a node.

    `version` is the Kafka version, or for an existing broker the minor version ("4.3") or "unknown".
    `bootstrap_servers` is a comma-separated list of the plaintext host:port of all nodes. `stop` calls `release` once
    to end all processes and free all resources.
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
        """The bootstrap servers of each secured listener, by listener name (see `Security`); empty without security."""
        return self._secured

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of the controlled nodes, as in the cluster's metadata: 1, 2, ...; empty for an existing broker."""
        return tuple(self._nodes)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    def stop(self) -> None:
        """Stop all nodes immediately and delete their data; no effect on an existing broker. Idempotent."""
        if not self._is_stopped:
            self._is_stopped = True
            self._release()

    def stop_node(self, node_id: int) -> None:
        """Stop one node cleanly (SIGTERM) and wait for its end; it first moves the leadership of its partitions."""
        node = self._node(node_id)
        self._expected_running.discard(node_id)
        node.stop()

    def kill_node(self, node_id: int) -> None:
        """Kill one node like a crash (SIGKILL) and wait for its end."""
        node = self._node(node_id)
        self._expected_running.discard(node_id)
        node.kill()

    def start_node(self, node_id: int, version: str | None = None) -> None:
        """Start a node again on its port and storage; no effect if it is running.

        Call `wait_ready` to wait until it responds. With `version`, the node runs this Kafka version from now on, as
        after an upgrade; `Broker.version` stays that of the first start. Only the JVM backend can do it.
        """
        node = self._node(node_id)
        self._expected_running.add(node_id)
        if not node.is_running:
            if version is not None:
                node.use_version(version)
            node.start()

    def node_pid(self, node_id: int) -> int | None:
        """Return the process id of a node on this machine, or None if it is not running."""
        return self._node(node_id).pid

    def log_tail(self, node_id: int) -> str:
        """Return the last lines of a node's log."""
        return self._node(node_id).log_tail()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all started nodes are registered, their listeners are open, and groups have a coordinator.

        Raises:
            BrokerUnavailableError: A node has ended, with the end of its log; or the timeout was exceeded.
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
        """Check that every started node runs.

        Raises:
            BrokerUnavailableError: A node has ended unexpectedly; the message has the end of its log.
        """
        for node_id in self._expected_running:
            node = self._nodes[node_id]
            if not node.is_running:
                raise BrokerUnavailableError(
                    f"node {node_id} of Kafka {self.version} at {node.address} ended unexpectedly."
                    f" The end of its log:\n{node.log_tail()}"
                )

    def _node(self, node_id: int) -> Node:
        if node_id in self._nodes and not self._is_stopped:
            return self._nodes[node_id]
        if self._is_stopped:
            reason = "the broker has been stopped"
        elif self._nodes:
            reason = f"its node ids are {', '.join(map(str, self._nodes))}"
        else:
            reason = "devbroker does not control an existing broker; use backend=Backend.JVM or backend=Backend.DOCKER"
        raise BrokerUnavailableError(f"node {node_id} of {self!r} cannot be controlled: {reason}")


def start_nodes(
    request: BrokerRequest,
    backend: Backend,
    prepare: Callable[[ExitStack], Sequence[Node]],
    settle: Callable[[Broker], None] = lambda _: None,
) -> Broker:
    """Start nodes and return the ready broker; if another process takes a port meanwhile, retry with new ports.

    `prepare` creates the nodes and registers its cleanup with the stack; `settle` completes the ready broker.
    """

    def attempt() -> Broker:
        held = ExitStack()
        with ExitStack() as on_failure, distinguish_taken_port():
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
    """Return the addresses of all nodes by listener, comma separated."""
    names = of_nodes[0] if of_nodes else ()
    return MappingProxyType({name: ",".join(of_node[name] for of_node in of_nodes) for name in names})
