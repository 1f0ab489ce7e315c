"""What each room gets of the configuration, in its own units: the exits of `ConsumerConfig`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass


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
class ByDuration:
    """Start at the first record that is not older than this at that moment (KIP-1106); at the end if there is none."""

    milliseconds: int

    def moment_ms(self, now_s: float) -> int:
        """The timestamp to look for, in ms since 1970; a longer time than since then means the first record."""
        return max(0, int(now_s * 1000) - self.milliseconds)


#: librdkafka's default.
DEFAULT_RESET: OffsetReset | ByDuration = OffsetReset.LATEST


class SecurityProtocol(Enum):
    """Whether connections are encrypted and authenticated, by the words of `security.protocol`."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def uses_tls(self) -> bool:
        """Whether the keys of TLS have a meaning."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """Whether the keys of SASL have a meaning."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class SaslMechanism(Enum):
    """How to prove who one is, by the words of `sasl.mechanism`."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token (RFC 6750) with what the broker is told beside it; `expires_at` in seconds since 1970."""

    value: str = field(repr=False)
    expires_at: float
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How connections are encrypted, and who is believed to be the broker: paths, or PEM text, as librdkafka has them.

    Attributes:
        ca_location: A file or a folder of certificates to trust.
        ca_pem: The same as text; beside a location both are trusted, and with neither of them what the system trusts.
        crl_location: A file of certificates that were revoked.
        certificate_location: This client's certificate and those between it and the authority's, where it has one.
        certificate_pem: The same as text.
        key_location: The key of that certificate.
        key_pem: The same as text.
        key_password: What opens that key.
        cipher_suites: What may be used with TLS 1.2, in OpenSSL's words; None: OpenSSL's own choice.
        verifies: Whether the broker's certificate must come from somebody who is trusted.
        checks_hostname: Whether it must be for the broker's host, too; never without `verifies`.
    """

    ca_location: str | None = None
    ca_pem: str | None = None
    crl_location: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    cipher_suites: str | None = None
    verifies: bool = True
    checks_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Who this client is to the brokers.

    Attributes:
        mechanism: How it proves that.
        username: For PLAIN and SCRAM.
        password: Likewise.
        token: For OAUTHBEARER: gives the token that is good now, and may take its time.
    """

    mechanism: SaslMechanism
    username: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], Token] | None = None


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
    #: After so long without a request or an answer a connection is closed; 0: never.
    max_idle_s: float = 0.0
    #: Whether bootstrap servers are asked again when no known broker can be reached.
    rebootstraps: bool = True
    #: Whether each address of a bootstrap server is reached by the name that it has itself.
    has_canonical_bootstrap: bool = False
    receive_message_max_bytes: int = 100_000_000
    allow_auto_create_topics: bool = False
    #: Whether another process is to leave the group for the members of this one once it died.
    crash_guardian: bool = False
    #: None: nothing is encrypted.
    tls: TlsSettings | None = None
    #: None: this client does not say who it is.
    sasl: SaslSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What of librdkafka's keys is about its log lines.

    Attributes:
        client_id: Whose lines they are.
        contexts: The words of `debug`.
        level: What `log_level` lets through, by syslog's numbers; everything with `debug`, as in librdkafka.
    """

    client_id: str = "rdkafka"
    contexts: frozenset[str] = frozenset()
    level: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where to listen; port 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is configured, and as URLs have it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """Where probes are told how a consumer is.

    Attributes:
        address: Where HTTP is served; None: nowhere.
        file: What is touched while the process lives; None: nothing.
    """

    address: ListenAddress | None = None
    file: str | None = None

    @property
    def are_wanted(self) -> bool:
        """Whether there is anything to do."""
        return self.address is not None or self.file is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """Where partitions start: what to do without a committed offset, and which offsets count as the end."""

    reset: OffsetReset | ByDuration = OffsetReset.LATEST
    read_committed: bool = True


class RebalanceCallbacks(Enum):
    """What rebalance callbacks are told, whatever protocol the member speaks: `rebalance.callbacks`."""

    #: At each change: on_revoke with everything, then on_assign with the whole, which starts at what is committed.
    EAGER = "eager"
    #: The difference; what stays is untouched.
    INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSettings:
    """What rebalance callbacks are told.

    Attributes:
        chosen: What `rebalance.callbacks` says, if it is set.
        usual: What confluent-kafka would tell them with the same configuration: it joins a classic group, unless
            group.protocol says otherwise, and is eager there, unless its assignors are cooperative.
    """

    chosen: RebalanceCallbacks | None = None
    usual: RebalanceCallbacks = RebalanceCallbacks.EAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """How the patterns of a subscription are read.

    Attributes:
        is_for_brokers: They are RE2/J and go to the broker as they are written (`group.protocol=consumer`, where
            librdkafka does so, too); otherwise they are what librdkafka's classic members read.
        may_meet_brokers: A broker may have to match by them, so that they must be sayable in RE2/J.
        blacklist: What `topic.blacklist` keeps out, as Python's `re` for whole names.
    """

    is_for_brokers: bool = False
    may_meet_brokers: bool = True
    blacklist: tuple[str, ...] = ()

    def keeps_out(self, topic: str) -> bool:
        """Whether this topic is not there for this consumer."""
        return any(re.fullmatch(pattern, topic) for pattern in self.blacklist)
