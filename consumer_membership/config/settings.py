"""What each room gets of the configuration, in its own units: the exits of `ConsumerConfig`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AddressFamily(Enum):
    """Which addresses of a host to use, by the words of `broker.address.family`."""

    ANY = "any"
    V4 = "v4"
    V6 = "v6"


class OffsetReset(Enum):
    """Where to start a partition that has no committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How to reach brokers; durations in seconds, sizes in bytes (0: the system's default)."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "rdkafka"
    socket_timeout_s: float = 60.0
    connection_setup_timeout_s: float = 30.0
    reconnect_backoff_s: float = 0.1
    reconnect_backoff_max_s: float = 10.0
    keepalive: bool = False
    disable_nagle: bool = True
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    address_family: AddressFamily = AddressFamily.ANY
    receive_message_max_bytes: int = 100_000_000
    allow_auto_create_topics: bool = False
    #: Whether another process is to leave the group for the members of this one once it died.
    crash_guardian: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """Where partitions start: what to do without a committed offset, and which offsets count as the end."""

    reset: OffsetReset = OffsetReset.LATEST
    read_committed: bool = True
