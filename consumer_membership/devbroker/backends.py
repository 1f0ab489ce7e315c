"""Select the backend: an existing broker, then Docker, then local JVMs, otherwise an error.

An existing broker is first because the environment names it explicitly. A container runs the official release. JVMs
work wherever Java and Maven are installed. If an existing broker does not match the request (version, number of nodes,
properties), an error is raised: a test that requested 4.0.0 must not silently run on 4.3.
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
    """Return the plaintext broker in the environment variable, checked against the request.

    Versions are compared by minor version, which determines the protocol; brokers do not report the patch version.

    Raises:
        BackendMissingError: The variable is not set.
        BrokerUnavailableError: The broker does not respond, or does not match the request.
    """
    bootstrap_servers = os.environ.get(VARIABLE, "").strip()
    if not bootstrap_servers:
        raise BackendMissingError(f"{VARIABLE} is not set; set it to the host:port of a running broker")
    if request.properties or request.security is not None or (request.port, request.host) != (None, None):
        _refuse(bootstrap_servers, request, "its properties, ports and listeners cannot be set")
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
        f"the existing broker {VARIABLE}={bootstrap_servers} does not match the request ({request}): {reason};"
        f" unset {VARIABLE}, or select another backend"
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
    """Return a ready Apache Kafka broker in KRaft mode; stop it, or use it as a context manager.

    Args:
        version: One of `SUPPORTED_VERSIONS`; None starts `DEFAULT_VERSION` or uses any existing broker.
        nodes: The number of nodes; None starts one or uses any existing broker.
        properties: Broker properties that override the defaults of this package.
        backend: The backend to use instead of the first available one.
        port: The port of the first node, the other nodes use the next ports; None selects free ports.
        security: Adds listeners for TLS and SASL (`Broker.secured`); JVM backend only.
        host: The address of this machine on which the nodes listen and which they advertise; None is 127.0.0.1. JVM
            backend only.

    Raises:
        BackendMissingError: The requested backend is not available on this machine.
        BrokerUnavailableError: No backend is available, with the reason for each; or the broker failed or does not
            match the request.
    """
    request = BrokerRequest(
        version=version, nodes=nodes, properties=properties or {}, port=port, security=security, host=host
    )
    if backend is not None:
        return _STARTERS[backend](request)
    return first_of(_STARTERS, request)


def first_of(starters: Mapping[Backend, Callable[[BrokerRequest], Broker]], request: BrokerRequest) -> Broker:
    """Return a broker of the first available backend.

    Raises:
        BrokerUnavailableError: No backend is available; the message has the reason for each.
    """
    lacks: list[str] = []
    for backend in Backend:
        try:
            return starters[backend](request)
        except BackendMissingError as error:
            lacks.append(f"  {backend.value}: {error}")
    raise BrokerUnavailableError(
        f"no backend is available for {request}. Provide one of these backends:\n" + "\n".join(lacks)
    )
