"""The order of the backends: an existing broker, then Docker, then local JVMs, then a clear error.

Why this order: whoever names a broker wants that one; a container is the release as Kafka's project publishes it;
JVMs work wherever there are Java and Maven. What an existing broker cannot promise (its version, its size, its
properties) is refused and never quietly ignored: a test that asked for 4.0.0 and ran on 4.3 has shown nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from consumer_membership.devbroker.broker import Broker
from consumer_membership.devbroker.container import start_container
from consumer_membership.devbroker.errors import BackendMissingError, BrokerUnavailableError
from consumer_membership.devbroker.jvm import start_jvm
from consumer_membership.devbroker.listeners import Security
from consumer_membership.devbroker.readiness import count_brokers, minor_line
from consumer_membership.devbroker.request import Backend, BrokerRequest

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"

_ANSWER_TIMEOUT_S = 5.0
_READY_TIMEOUT_S = 15.0


def start_existing(request: BrokerRequest) -> Broker:
    """The broker that the environment names, checked against the request; plaintext only.

    A version is matched by its minor line, which is what decides the protocol and all that a broker tells about itself.

    Raises:
        BackendMissingError: The variable is not set.
        BrokerUnavailableError: The broker does not answer, or cannot promise what was asked for.
    """
    bootstrap_servers = os.environ.get(VARIABLE, "").strip()
    if not bootstrap_servers:
        raise BackendMissingError(f"{VARIABLE} is not set; set it to the host:port of a running broker")
    if request.properties or request.security is not None or (request.port, request.host) != (None, None):
        _refuse(bootstrap_servers, request, "its properties, ports and listeners are not ours to set")
    brokers = count_brokers(bootstrap_servers, _ANSWER_TIMEOUT_S)
    if request.nodes is not None and request.nodes != brokers:
        _refuse(bootstrap_servers, request, f"it has {brokers} nodes")
    line = minor_line(bootstrap_servers.partition(",")[0].strip(), _ANSWER_TIMEOUT_S)
    if request.version is not None and not request.version.startswith(f"{line}."):
        _refuse(bootstrap_servers, request, f"its version is {line}")
    broker = Broker(backend=Backend.EXISTING, version=line, bootstrap_servers=bootstrap_servers)
    broker.wait_ready(_READY_TIMEOUT_S)
    return broker


def _refuse(bootstrap_servers: str, request: BrokerRequest, reason: str) -> None:
    raise BrokerUnavailableError(
        f"the existing broker {VARIABLE}={bootstrap_servers} cannot be {request}: {reason};"
        f" unset {VARIABLE}, or ask for another backend"
    )


_STARTERS: Mapping[Backend, Callable[[BrokerRequest], Broker]] = {
    Backend.EXISTING: start_existing,
    Backend.DOCKER: start_container,
    Backend.JVM: start_jvm,
}


def start(
    version: str | None = None,
    nodes: int | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    backend: Backend | None = None,
    port: int | None = None,
    security: Security | None = None,
    host: str | None = None,
) -> Broker:
    """A ready Apache Kafka in KRaft mode; stop it, or use it as a context manager.

    Args:
        version: One of `SUPPORTED_VERSIONS`; None starts `DEFAULT_VERSION` and takes an existing broker as it is.
        nodes: How many nodes; None starts one and takes an existing broker as it is.
        properties: Broker properties that win over the room's own.
        backend: The one backend to use, instead of the first that exists here.
        port: The first node's port, the others count up; None draws free ones.
        security: Makes listeners for TLS and SASL beside the plaintext one (`Broker.secured`); by the JVM backend only.
        host: The address of this machine where the nodes listen for clients, and which they advertise; None is
            127.0.0.1. By the JVM backend only.

    Raises:
        BackendMissingError: The backend that was asked for does not exist on this machine.
        BrokerUnavailableError: No backend exists, and what each of them lacks; or a broker that was found or started
            cannot do what was asked.
    """
    request = BrokerRequest(
        version=version, nodes=nodes, properties=properties or {}, port=port, security=security, host=host
    )
    if backend is not None:
        return _STARTERS[backend](request)
    return first_of(_STARTERS, request)


def first_of(starters: Mapping[Backend, Callable[[BrokerRequest], Broker]], request: BrokerRequest) -> Broker:
    """The broker of the first backend that exists.

    Raises:
        BrokerUnavailableError: None does; the text names each backend and what it lacks.
    """
    lacks: list[str] = []
    for backend in Backend:
        try:
            return starters[backend](request)
        except BackendMissingError as error:
            lacks.append(f"  {backend.value}: {error}")
    raise BrokerUnavailableError(
        f"no broker can be had for {request}. One of these backends must exist:\n" + "\n".join(lacks)
    )
