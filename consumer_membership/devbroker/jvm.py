"""Run a broker in local JVMs, one per node, without a container engine; tests can stop, kill and restart nodes.

A node's storage exists until the broker is stopped, so a restarted node has its topics, groups and offsets. A
`watchdog` ends each process when its owner ends.

Only this backend has secured listeners: tests of TLS and SASL need one real Kafka, but not each port in Docker.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from consumer_membership.devbroker import watchdog
from consumer_membership.devbroker.broker import Broker, start_nodes
from consumer_membership.devbroker.errors import BackendMissingError, BrokerUnavailableError
from consumer_membership.devbroker.java import Java, java_for
from consumer_membership.devbroker.listeners import (
    SASL,
    SECURED_LISTENERS,
    create_credentials,
    enabled_mechanisms,
    secured_host,
)
from consumer_membership.devbroker.properties import (
    cluster_id,
    controller_ids,
    node_properties,
    properties_file,
    system_properties,
)
from consumer_membership.devbroker.request import Backend, BrokerRequest
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports, node_ports

_STOP_TIMEOUT_S = 30  # a clean shutdown takes 0.4 s; without a quorum it retries for minutes
_ARCHIVE_TIMEOUT_S = 120  # writing an archive takes 3 s of CPU time, but the machine may be busy
_TAIL_LINES = 25


class _JvmNode:
    """A `Node`: a folder with configuration, storage and logs, and a process while it is running."""

    def __init__(
        self,
        *,
        node_id: int,
        folder: Path,
        address: str,
        secured: Mapping[str, str],
        java: Java,
        system_properties: Mapping[str, str],
        archive_to: Path | None = None,
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.secured = secured
        self._folder = folder
        self._properties, self._log, self._console = (
            folder / name for name in ("server.properties", "server.log", "console.log")
        )
        self._java = java
        self._system_properties = system_properties
        self._archive_to = archive_to
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        return self._pid if self.is_running else None

    @property
    def is_running(self) -> bool:
        return self._watchdog is not None and self._watchdog.poll() is None

    def begin_format(self, cluster: str) -> subprocess.Popen[str]:
        """Start the tool that formats the storage, which KRaft requires before the first start."""
        arguments = ["format", "--cluster-id", cluster, "--config", str(self._properties)]
        command = self._java.command("kafka.tools.StorageTool", *arguments, log=self._log)
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def start(self) -> None:
        self._close_watchdog()
        java = self._java.command(
            "kafka.Kafka",
            str(self._properties),
            log=self._log,
            archive_to=self._archive_to,
            system_properties=self._system_properties,
        )
        owner = [str(os.getpid()), str(self._folder.parent), str(self._console)]
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, *owner, *java],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # In its own session, so that Ctrl-C reaches only the owner, which then stops the nodes in order.
            start_new_session=True,
        )
        if self._watchdog.stdout is not None:
            with self._watchdog.stdout as answer:
                line = answer.readline()
            self._pid = int(line) if line else None

    def use_version(self, version: str) -> None:
        self._java = java_for(version)

    def stop(self) -> None:
        self._order(b"T")
        if self._watchdog is not None:
            with suppress(subprocess.TimeoutExpired):
                self._watchdog.wait(_STOP_TIMEOUT_S if self._archive_to is None else _ARCHIVE_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        self._order(b"K")
        self._close_watchdog()

    def remove(self) -> None:
        # A clean stop of the last of several nodes would wait for a quorum.
        self.kill()

    def log_tail(self) -> str:
        texts = [path.read_text(errors="replace") for path in (self._console, self._log) if path.exists()]
        return "\n".join(line for text in texts for line in text.splitlines()[-_TAIL_LINES:])

    def _order(self, order: bytes) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with suppress(BrokenPipeError):  # the process has ended
                self._watchdog.stdin.write(order)

    def _close_watchdog(self) -> None:
        """Wait for the end before the pipe is closed, because a closed pipe means that the owner has ended."""
        if self._watchdog is not None:
            self._watchdog.wait()
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            self._watchdog = None


def start_jvm(request: BrokerRequest) -> Broker:
    """Start a broker in local JVMs and wait until it is ready.

    Raises:
        BackendMissingError: Java is missing or too old, or both the jars and Maven are missing.
        BrokerUnavailableError: The broker started but did not become ready; the message has the end of its log.
    """
    if not hasattr(signal, "SIGCHLD"):
        raise BackendMissingError("the JVM backend requires Linux or macOS; use an existing broker or Docker")
    java = java_for(request.kafka_version)
    java.make_archive(partial(_write_archive, request.kafka_version, java))
    return start_nodes(request, Backend.JVM, partial(_prepare, request, java), partial(_settle, request))


def _write_archive(version: str, java: Java, archive: Path) -> None:
    """Start a broker and stop it cleanly, so that Java writes the archive of the loaded classes."""
    request = BrokerRequest(version=version)
    with start_nodes(request, Backend.JVM, partial(_prepare, request, java, archive_to=archive)) as broker:
        broker.stop_node(1)


def _settle(request: BrokerRequest, broker: Broker) -> None:
    if request.security is not None:
        create_credentials(
            request.security,
            broker.bootstrap_servers,
            sasl_addresses=broker.secured[SASL].split(","),
            mechanisms=enabled_mechanisms(SASL, request.properties),
        )


def _prepare(request: BrokerRequest, java: Java, held: ExitStack, archive_to: Path | None = None) -> list[_JvmNode]:
    folder = Path(tempfile.mkdtemp(prefix="consumer-membership-kafka-"))
    held.callback(shutil.rmtree, folder, ignore_errors=True)
    count = request.node_count
    host = request.host or LOOPBACK
    clients = node_ports(count, request.port, host)
    ids = controller_ids(count)
    names = SECURED_LISTENERS if request.security is not None else ()
    drawn = iter(draw_ports(len(ids) + count * len(names), avoid=clients))
    voters = {voter: f"{LOOPBACK}:{next(drawn)}" for voter in ids}
    nodes = []
    for node_id, port in enumerate(clients, start=1):
        home = folder / f"node-{node_id}"
        home.mkdir()
        ports = {name: next(drawn) for name in names}
        secured = {name: f"{secured_host(name)}:{ports[name]}" for name in names}
        address = f"{host}:{port}"
        bound = {"PLAINTEXT": address, "CONTROLLER": voters.get(node_id, "")}
        properties = node_properties(
            node_id=node_id,
            nodes=count,
            log_dir=str(home / "data"),
            bound=bound | {name: f"{LOOPBACK}:{ports[name]}" for name in names},
            advertised={"PLAINTEXT": address, **secured},
            voters=voters,
            security=request.security,
            extra=request.properties,
        )
        (home / "server.properties").write_text(properties_file(properties))
        node = _JvmNode(
            node_id=node_id,
            folder=home,
            address=address,
            secured=secured,
            java=java,
            system_properties=system_properties(request.properties),
            archive_to=archive_to,
        )
        nodes.append(node)
    _format(nodes)
    return nodes


def _format(nodes: Sequence[_JvmNode]) -> None:
    """Format the storage of all nodes at the same time."""
    cluster = cluster_id()
    tools = [node.begin_format(cluster) for node in nodes]
    # Wait for all processes before an error is raised, so that none is left running.
    outputs = [tool.communicate()[0] for tool in tools]
    for node, tool, output in zip(nodes, tools, outputs, strict=True):
        if tool.returncode != 0:
            raise BrokerUnavailableError(
                f"the storage of node {node.node_id} could not be formatted; check the broker properties."
                f" Output:\n{output}{node.log_tail()}"
            )
