"""The request for a broker: version, number of nodes, properties and secured listeners.

The values are checked here once, so that the backends do not check them. This module starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.listeners import Security

SUPPORTED_VERSIONS = ("4.0.0", "4.1.2", "4.2.2", "4.3.1", "4.4.0")
"""The first release with the consumer protocol, and the last patch of each later minor line, oldest first."""

CLASSIC_VERSIONS = ("3.9.1",)
"""The last minor version that supports only classic groups by default. It can be requested, but is not offered to
users, because it does not support the consumer protocol."""

DEFAULT_VERSION = SUPPORTED_VERSIONS[-1]

RESERVED_PROPERTIES = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)
"""Properties that each backend derives from its ports and folders; with other values clients could not connect."""


class Backend(Enum):
    """The sources of a broker, in the order in which they are tried."""

    EXISTING = "existing"
    DOCKER = "docker"
    JVM = "jvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """The arguments of `backends.start`; None means "not requested".

    Raises:
        BrokerUnavailableError: The version is not supported, or a number or a property is invalid.
    """

    version: str | None = None
    nodes: int | None = None
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    port: int | None = None
    security: Security | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.version not in SUPPORTED_VERSIONS + CLASSIC_VERSIONS:
            raise BrokerUnavailableError(
                f"Kafka version {self.version!r} is not supported; use one of {', '.join(SUPPORTED_VERSIONS)}"
            )
        if self.nodes is not None and self.nodes < 1:
            raise BrokerUnavailableError(f"nodes={self.nodes} is invalid; use at least 1")
        if self.port is not None and not 0 < self.port <= 2**16 - self.node_count:
            raise BrokerUnavailableError(f"port={self.port} is not a valid TCP port; omit it to use a free port")
        if self.host is not None and self.security is not None:
            raise BrokerUnavailableError(
                f"host={self.host!r} cannot be combined with security: secured listeners use loopback only; omit one"
            )
        reserved = sorted(RESERVED_PROPERTIES.intersection(self.properties))
        if reserved:
            raise BrokerUnavailableError(
                f"broker property {', '.join(reserved)} is set by devbroker; omit it (the port and the number of nodes"
                " have their own options)"
            )

    @property
    def kafka_version(self) -> str:
        """The version to start."""
        return self.version if self.version is not None else DEFAULT_VERSION

    @property
    def node_count(self) -> int:
        """The number of nodes to start."""
        return self.nodes if self.nodes is not None else 1

    def __str__(self) -> str:
        """Return the request as text for errors."""
        parts = [f"Kafka {self.kafka_version}", f"{self.node_count} node{'s' * (self.node_count > 1)}"]
        parts += [f"port {self.port}"] if self.port is not None else []
        parts += [f"host {self.host}"] if self.host is not None else []
        parts += ["secured listeners"] if self.security is not None else []
        parts += [f"{key}={value}" for key, value in sorted(self.properties.items())]
        return ", ".join(parts)
