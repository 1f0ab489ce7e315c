"""The order of the ways: an existing broker, then Docker, then local JVMs, then a clear error.

Why this order: whoever names a broker wants that one; a container is the release as Kafka's project publishes it;
JVMs work wherever there are Java and Maven.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from consumer_membership.devbroker.container import start_container
from consumer_membership.devbroker.errors import BrokerUnavailableError, WayMissingError
from consumer_membership.devbroker.existing import start_existing
from consumer_membership.devbroker.jvm import start_jvm
from consumer_membership.devbroker.request import BrokerRequest, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from consumer_membership.devbroker.broker import Broker
    from consumer_membership.devbroker.security import Security

_STARTERS: Mapping[Way, Callable[[BrokerRequest], Broker]] = MappingProxyType(
    {Way.EXISTING: start_existing, Way.DOCKER: start_container, Way.JVM: start_jvm}
)


def start(
    version: str | None = None,
    nodes: int | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    way: Way | None = None,
    port: int | None = None,
    security: Security | None = None,
) -> Broker:
    """A ready Apache Kafka in KRaft mode; stop it, or use it as a context manager.

    Args:
        version: One of `SUPPORTED_VERSIONS`; None starts `DEFAULT_VERSION` and takes an existing broker as it is.
        nodes: How many nodes; None starts one and takes an existing broker as it is.
        properties: Broker properties that win over the room's own.
        way: The one way to use, instead of the first that exists here.
        port: The first node's port on 127.0.0.1, the others count up; None draws free ones.
        security: Makes listeners for TLS and SASL beside the plaintext one (`Broker.secured`); by the JVM way only.

    Raises:
        WayMissingError: The way that was asked for does not exist on this machine.
        BrokerUnavailableError: No way exists, and what each of them lacks; or a broker that was found or started
            cannot do what was asked.
    """
    request = BrokerRequest(version=version, nodes=nodes, properties=properties or {}, port=port, security=security)
    if way is not None:
        return _STARTERS[way](request)
    return first_of(_STARTERS, request)


def first_of(starters: Mapping[Way, Callable[[BrokerRequest], Broker]], request: BrokerRequest) -> Broker:
    """The broker of the first way that exists.

    Raises:
        BrokerUnavailableError: None does; the text names each way and what it lacks.
    """
    lacks: list[str] = []
    for way in Way:
        try:
            return starters[way](request)
        except WayMissingError as error:
            lacks.append(f"  {way.value}: {error}")
    raise BrokerUnavailableError(
        f"no broker can be had for {request}. One of these ways must exist:\n" + "\n".join(lacks)
    )
