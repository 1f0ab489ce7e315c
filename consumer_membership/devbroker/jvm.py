"""A broker as local JVMs, one per node: no container engine needed, and nodes that tests may stop, kill and restart.

A node's storage lives as long as the broker, not as the process: stopped and started again it has its topics, groups
and offsets. Each process hangs on a `watchdog`, so none outlives the process that asked for it.

Secured listeners are made here alone: tests of TLS and SASL need one real Kafka, and not each listener's port through a
container engine as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.devbroker import watchdog
from consumer_membership.devbroker.broker import Broker
from consumer_membership.devbroker.credentials import create_credentials
from consumer_membership.devbroker.errors import BrokerUnavailableError, WayMissingError
from consumer_membership.devbroker.java import java_for
from consumer_membership.devbroker.ports import (
    LOOPBACK,
    draw_ports,
    node_ports,
    retry_taken_ports,
    taken_port_told_apart,
)
from consumer_membership.devbroker.properties import (
    Listeners,
    cluster_id,
    controller_ids,
    node_properties,
    properties_file,
)
from consumer_membership.devbroker.request import Way
from consumer_membership.devbroker.security import SASL, SECURED_LISTENERS, enabled_mechanisms, secured_host

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from consumer_membership.devbroker.java import Java
    from consumer_membership.devbroker.request import BrokerRequest

_STOP_TIMEOUT_S = 30  # a clean shutdown takes 0.4 s; without a quorum it would retry for minutes
_TAIL_LINES = 25


class JvmNode:
    """One Kafka node: a folder with its configuration, storage and logs, and at times a process."""

    def __init__(self, *, node_id: int, folder: Path, address: str, secured: Mapping[str, str], java: Java) -> None:
        self.node_id = node_id
        self.address = address
        self.secured = secured
        self._folder = folder
        self._java = java
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the JVM, while it runs."""
        return self._pid if self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process is there; it may still be starting up."""
        return self._watchdog is not None and self._watchdog.poll() is None

    def begin_format(self, cluster: str, archive_to: Path | None) -> subprocess.Popen[str]:
        """Start the tool that prepares the storage, which KRaft wants once before the first start."""
        arguments = ["format", "--cluster-id", cluster, "--config", str(self._folder / "server.properties")]
        command = self._java.command("kafka.tools.StorageTool", *arguments, log=self._log, archive_to=archive_to)
        return subprocess.Popen(  # noqa: S603 - a Java command line of our own making
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def start(self) -> None:
        """Start the process; it answers requests some seconds later."""
        self._close_watchdog()
        java = self._java.command("kafka.Kafka", str(self._folder / "server.properties"), log=self._log)
        owner = [str(os.getpid()), str(self._folder.parent), str(self._console)]
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own script and a Java command line
            [sys.executable, "-I", "-S", watchdog.__file__, *owner, *java],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # Apart from the terminal's foreground group: Ctrl-C is for the owner, who then stops the nodes in order.
            start_new_session=True,
        )
        if self._watchdog.stdout is not None:
            with self._watchdog.stdout as answer:
                line = answer.readline()
            self._pid = int(line) if line else None

    def stop(self) -> None:
        """End the process as an operator does (SIGTERM): partitions move away first, logs are closed."""
        self._order(b"T")
        if self._watchdog is not None:
            with suppress(subprocess.TimeoutExpired):
                self._watchdog.wait(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the process as a crash does (SIGKILL)."""
        self._order(b"K")
        self._close_watchdog()

    def log_tail(self) -> str:
        """The last lines of the console and of the log."""
        texts = [path.read_text(errors="replace") for path in (self._console, self._log) if path.exists()]
        return "\n".join(line for text in texts for line in text.splitlines()[-_TAIL_LINES:])

    def _order(self, order: bytes) -> None:
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with suppress(BrokenPipeError):  # the process ended by itself
                self._watchdog.stdin.write(order)

    def _close_watchdog(self) -> None:
        """Wait for the end and only then close the pipe: a pipe that closes first means that the owner has died."""
        if self._watchdog is not None:
            self._watchdog.wait()
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            self._watchdog = None

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    @property
    def _console(self) -> Path:
        return self._folder / "console.log"


def start_jvm(request: BrokerRequest) -> Broker:
    """A ready broker of local JVMs.

    Raises:
        WayMissingError: No Java, too old a Java, or neither jars nor Maven.
        BrokerUnavailableError: It was started and did not get ready; the tail of its log is in the text.
    """
    if not hasattr(signal, "SIGCHLD"):
        raise WayMissingError("a JVM is watched over as only Linux and macOS can; name a broker that runs already")
    java = java_for(request.kafka_version)
    # Fresh ports mean fresh voters, so the whole cluster is made anew.
    return retry_taken_ports(lambda: _start_cluster(request, java))


def _start_cluster(request: BrokerRequest, java: Java) -> Broker:
    held = ExitStack()
    with ExitStack() as on_failure:
        on_failure.callback(held.close)
        folder = Path(tempfile.mkdtemp(prefix="consumer-membership-kafka-"))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        nodes = _prepare(request, java, folder)
        _format(nodes, java, folder)
        for node in nodes:
            # A kill and not a clean stop: the storage goes too, and the last of several nodes would wait for a quorum.
            held.callback(node.kill)
            node.start()
        broker = Broker(
            way=Way.JVM,
            version=request.kafka_version,
            bootstrap_servers=",".join(node.address for node in nodes),
            nodes=nodes,
            release=held.close,
        )
        with taken_port_told_apart():
            broker.wait_ready()
        if request.security is not None:
            create_credentials(
                request.security,
                broker.bootstrap_servers,
                sasl_addresses=[node.secured[SASL] for node in nodes],
                mechanisms=enabled_mechanisms(SASL, request.properties),
            )
        on_failure.pop_all()
    return broker


def _prepare(request: BrokerRequest, java: Java, folder: Path) -> list[JvmNode]:
    count = request.node_count
    controllers = controller_ids(count)
    clients = node_ports(count, request.port)
    voters = dict(zip(controllers, draw_ports(len(controllers), avoid=clients), strict=True))
    secured = _secured_ports(request, avoid=[*clients, *voters.values()])
    nodes = []
    for node_id, (port, further) in enumerate(zip(clients, secured, strict=True), start=1):
        home = folder / f"node-{node_id}"
        home.mkdir()
        bound = {"PLAINTEXT": port, **further}
        told = {name: f"{secured_host(name)}:{secured_port}" for name, secured_port in further.items()}
        advertised = {"PLAINTEXT": f"{LOOPBACK}:{port}", **told}
        listeners = Listeners(
            broker=",".join(f"{name}://{LOOPBACK}:{bound_port}" for name, bound_port in bound.items()),
            controller=f"CONTROLLER://{LOOPBACK}:{voters.get(node_id)}",
            advertised=",".join(f"{name}://{address}" for name, address in advertised.items()),
            inter_broker="PLAINTEXT",
            voters=",".join(f"{voter}@{LOOPBACK}:{voter_port}" for voter, voter_port in voters.items()),
        )
        properties = node_properties(
            node_id=node_id,
            nodes=count,
            log_dir=str(home / "data"),
            listeners=listeners,
            security=request.security,
            extra=request.properties,
        )
        (home / "server.properties").write_text(properties_file(properties))
        address = advertised["PLAINTEXT"]
        nodes.append(JvmNode(node_id=node_id, folder=home, address=address, secured=told, java=java))
    return nodes


def _secured_ports(request: BrokerRequest, avoid: Collection[int]) -> list[dict[str, int]]:
    """For each node the ports of its secured listeners, by their names; none without security."""
    names = SECURED_LISTENERS if request.security is not None else ()
    drawn = iter(draw_ports(request.node_count * len(names), avoid=avoid))
    return [{name: next(drawn) for name in names} for _ in range(request.node_count)]


def _format(nodes: Sequence[JvmNode], java: Java, folder: Path) -> None:
    """Format the storage of all nodes at the same time; the first format ever leaves a class data archive behind."""
    cluster = cluster_id()
    fresh = None if java.archive.exists() else folder / "classes.jsa"
    tools = [node.begin_format(cluster, fresh if node is nodes[0] else None) for node in nodes]
    # All are waited for before any is judged, so that none is left behind.
    outputs = [tool.communicate()[0] for tool in tools]
    if fresh is not None:
        java.keep_archive(fresh)
    for node, tool, output in zip(nodes, tools, outputs, strict=True):
        if tool.returncode != 0:
            raise BrokerUnavailableError(
                f"the storage of node {node.node_id} could not be formatted; check the broker properties."
                f" Kafka said:\n{output}{node.log_tail()}"
            )
