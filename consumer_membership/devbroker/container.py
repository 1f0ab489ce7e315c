"""Run a broker in Docker containers, one per node, with testcontainers and the image apache/kafka.

Each node's client port is published on 127.0.0.1 at a host port that is selected before the start, because the
advertised listener must be correct when the broker starts. The nodes communicate by name over a separate network. A
stopped container keeps its storage, so nodes can be restarted as in `jvm`.

testcontainers' cleaner (ryuk) is not used: it needs a second image and the engine's socket in a container. Instead,
every container has a label with the pid of its owner, and the next start on this host removes containers whose owner
has ended.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from consumer_membership.devbroker.broker import Broker, start_nodes
from consumer_membership.devbroker.errors import BackendMissingError, BrokerUnavailableError
from consumer_membership.devbroker.properties import cluster_id, container_environment, controller_ids, node_properties
from consumer_membership.devbroker.request import Backend, BrokerRequest
from consumer_membership.devbroker.tcp_ports import LOOPBACK, node_ports
from consumer_membership.installation import install_command

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient
    from testcontainers.core.network import Network

_IMAGE = "apache/kafka"
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_OWNER_LABEL = "consumer-membership.devbroker.owner"
_CHECK_TIMEOUT_S = 1  # a local engine answers in milliseconds
_REQUEST_TIMEOUT_S = 120  # also the longest pause in an image pull
_STOP_TIMEOUT_S = 30
_TAIL_LINES = 25
_CLIENT_PORT, _CONTROLLER_PORT, _INTERNAL_PORT = 9092, 9093, 9094
_LOG_DIR = "/var/lib/kafka/data"  # the image's own, writable by its user


class _ContainerNode:
    """A `Node` in a container."""

    secured: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *, node_id: int, address: str, container: DockerContainer) -> None:
        self.node_id = node_id
        self.address = address
        self._container = container
        self._is_created = False

    @property
    def pid(self) -> int | None:
        if sys.platform != "linux" or not self.is_running:
            return None  # on other systems, containers run in a virtual machine
        pid: int = self._container.get_wrapped_container().attrs["State"]["Pid"]
        return pid

    @property
    def is_running(self) -> bool:
        if not self._is_created:
            return False
        with _translated(f"inspecting node {self.node_id}"):
            wrapped = self._container.get_wrapped_container()
            wrapped.reload()
            return bool(wrapped.status == "running")

    def start(self) -> None:
        with _translated(f"starting node {self.node_id}"):
            if self._is_created:
                self._container.get_wrapped_container().start()
            else:
                with _without_ryuk():
                    self._container.start()
                self._is_created = True

    def use_version(self, version: str) -> None:
        raise BrokerUnavailableError(
            f"node {self.node_id} cannot run Kafka {version}: its image is fixed; use backend=Backend.JVM"
        )

    def stop(self) -> None:
        if self.is_running:
            with _translated(f"stopping node {self.node_id}"):
                self._container.get_wrapped_container().stop(timeout=_STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self.is_running:
            with _translated(f"killing node {self.node_id}"):
                wrapped = self._container.get_wrapped_container()
                wrapped.kill()
                wrapped.wait()

    def remove(self) -> None:
        with _translated(f"removing node {self.node_id}"):
            self._container.stop()

    def log_tail(self) -> str:
        with _translated(f"reading the log of node {self.node_id}"):
            log: bytes = self._container.get_wrapped_container().logs(tail=_TAIL_LINES)
        return log.decode(errors="replace")


def start_container(request: BrokerRequest) -> Broker:
    """Start a broker in containers and wait until it is ready.

    Raises:
        BackendMissingError: testcontainers, the Docker engine or the image is missing, or the request has secured
            listeners or a host.
        BrokerUnavailableError: The broker started but did not become ready; the message has the end of its log.
    """
    if request.security is not None:
        raise BackendMissingError("secured listeners require the JVM backend")
    if request.host is not None:
        raise BackendMissingError(f"container ports are published on 127.0.0.1 only, not on {request.host}")
    image = f"{_IMAGE}:{request.kafka_version}"
    engine = _engine()
    try:
        _require_image(engine, image)
        _remove_orphans(engine)
    finally:
        engine.client.close()
    return start_nodes(request, Backend.DOCKER, lambda held: _prepare(request, image, held))


def _engine() -> DockerClient:
    try:
        from testcontainers.core.docker_client import DockerClient, get_docker_host
    except ImportError as error:
        raise BackendMissingError(f"{error}; install testcontainers: {install_command('dev-broker')}") from error
    host = get_docker_host() or _DEFAULT_HOST
    scheme, _, path = host.partition("://")
    if scheme != "unix" or not hasattr(socket, "AF_UNIX"):
        raise BackendMissingError(
            f"the Docker engine {host} may be remote; only a local engine publishes ports on {LOOPBACK}"
        )
    with _translated(f"connecting to the Docker engine {host}", BackendMissingError):
        # Connect without the docker library first, because it leaks a socket if no engine listens.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_CHECK_TIMEOUT_S)
            probe.connect(path)
        engine = DockerClient(timeout=_CHECK_TIMEOUT_S)
    engine.client.api.timeout = _REQUEST_TIMEOUT_S
    return engine


def _require_image(engine: DockerClient, image: str) -> None:
    if engine.client.images.list(name=image):
        return
    with _translated(f"pulling the image {image}", BackendMissingError):
        engine.client.images.pull(image)


def _prepare(request: BrokerRequest, image: str, held: ExitStack) -> list[_ContainerNode]:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

    network = Network(docker_network_kw={"labels": {_OWNER_LABEL: _owner()}})
    with _translated("creating a network"):
        network.create()
    held.callback(_remove_network, network)
    count = request.node_count
    cluster = cluster_id()
    ports = {"PLAINTEXT": _CLIENT_PORT, "INTERNAL": _INTERNAL_PORT, "CONTROLLER": _CONTROLLER_PORT}
    bound = {name: f":{port}" for name, port in ports.items()}
    nodes = []
    for node_id, port in enumerate(node_ports(count, request.port), start=1):
        name = f"kafka-{node_id}"
        properties = node_properties(
            node_id=node_id,
            nodes=count,
            log_dir=_LOG_DIR,
            bound=bound,
            advertised={"PLAINTEXT": f"{LOOPBACK}:{port}", "INTERNAL": f"{name}:{_INTERNAL_PORT}"},
            voters={voter: f"kafka-{voter}:{_CONTROLLER_PORT}" for voter in controller_ids(count)},
            extra=request.properties,
        )
        environment = container_environment(properties) | {"CLUSTER_ID": cluster, "KAFKA_HEAP_OPTS": "-Xmx1g"}
        container = DockerContainer(image, docker_client_kw={"timeout": _REQUEST_TIMEOUT_S}, env=environment)
        # The pair limits the port to loopback, which with_bind_ports cannot express.
        container.ports[f"{_CLIENT_PORT}/tcp"] = (LOOPBACK, port)  # type: ignore[assignment]  # docker takes a pair
        container.with_network(network).with_network_aliases(name)
        container.with_kwargs(labels={_OWNER_LABEL: _owner()})
        nodes.append(_ContainerNode(node_id=node_id, address=f"{LOOPBACK}:{port}", container=container))
    return nodes


def _remove_network(network: Network) -> None:
    with _translated("removing the network"):
        network.remove()


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _remove_orphans(engine: DockerClient) -> None:
    """Remove containers and networks of processes on this host that have ended."""
    labelled = {"label": _OWNER_LABEL}
    with _translated("removing containers whose owner has ended"):
        for container in engine.client.containers.list(all=True, filters=labelled):
            if _is_orphan(container.labels[_OWNER_LABEL]):
                container.remove(force=True, v=True)
        for network in engine.client.networks.list(filters=labelled):
            if _is_orphan(network.attrs["Labels"][_OWNER_LABEL]):
                network.remove()


def _is_orphan(owner: str) -> bool:
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextmanager
def _without_ryuk() -> Iterator[None]:
    """Disable testcontainers' cleaner for this package's containers, and restore the program's setting afterwards."""
    from testcontainers.core.config import testcontainers_config

    before = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = before


@contextmanager
def _translated(act: str, kind: type[BrokerUnavailableError] = BrokerUnavailableError) -> Iterator[None]:
    """Translate the errors of docker, requests and testcontainers."""
    from docker.errors import DockerException  # type: ignore[import-untyped]
    from testcontainers.core.exceptions import ContainerStartException

    try:
        yield
    except (DockerException, ContainerStartException, OSError) as error:  # requests' errors are OSErrors
        raise kind(f"{act} failed: {error}") from error
