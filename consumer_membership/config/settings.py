"""The settings of each package, in its own units: the results of `ConsumerConfig`'s methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass


class AddressFamily(Enum):
    """The address families of a host to use: the values of `broker.address.family`."""

    ANY = "any"
    V4 = "v4"
    V6 = "v6"


class OffsetReset(Enum):
    """Where to start a partition without a committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDuration:
    """Start at the first record that is not older than this duration (KIP-1106), or at the end if there is none."""

    milliseconds: int

    def moment_ms(self, now_s: float) -> int:
        """Return the timestamp to look up, in ms since 1970; it is at least 0, which finds the first record."""
        return max(0, int(now_s * 1000) - self.milliseconds)


#: librdkafka's default.
DEFAULT_RESET: OffsetReset | ByDuration = OffsetReset.LATEST


class SecurityProtocol(Enum):
    """Whether connections are encrypted and authenticated: the values of `security.protocol`."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"

    @property
    def uses_tls(self) -> bool:
        """Whether the TLS keys apply."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """Whether the SASL keys apply."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class SaslMechanism(Enum):
    """How the client authenticates: the values of `sasl.mechanism`."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    GSSAPI = "GSSAPI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token (RFC 6750) with the extensions that are sent with it; `expires_at` in seconds since 1970."""

    value: str = field(repr=False)
    expires_at: float
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How connections are encrypted and how the broker is verified: paths, or PEM text, as in librdkafka.

    Attributes:
        ca_location: A file or a folder of trusted certificates, or `probe`: the first of the files in which systems
            keep them.
        ca_pem: Trusted certificates as text, in addition to `ca_location`. Without both, the system's trusted
            certificates apply.
        crl_location: A file of revoked certificates.
        certificate_location: A file with this client's certificate and the intermediate certificates, if it has one.
        certificate_pem: The same certificates as text.
        key_location: A file with the private key of that certificate.
        key_pem: The private key as text.
        key_password: The password of the private key.
        keystore_location: A PKCS#12 file with certificate and key, instead of both.
        keystore_password: The password of that file.
        cipher_suites: Ciphers for TLS 1.2 in OpenSSL's notation; None: OpenSSL's default.
        verifies: Whether the broker's certificate must be signed by a trusted authority.
        checks_hostname: Whether the certificate must match the broker's host name; always False without `verifies`.
    """

    ca_location: str | None = None
    ca_pem: str | None = None
    crl_location: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    cipher_suites: str | None = None
    verifies: bool = True
    checks_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosSettings:
    """How the client obtains its Kerberos tickets.

    Attributes:
        service: The first part of the brokers' principal; the second is the broker's host name.
        keytab: The file with the client's key, from which tickets are requested; None: the tickets of the default
            ticket cache are used.
        principal: The client's principal; None: the principal of the ticket cache.
        library_folder: Where `gssapi` is installed: the guardian's process does not search for packages.
    """

    service: str
    keytab: str | None = None
    principal: str | None = None
    library_folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """The client's credentials.

    Attributes:
        mechanism: The SASL mechanism.
        username: The user name for PLAIN and SCRAM.
        password: The password for PLAIN and SCRAM.
        token: For OAUTHBEARER: returns the token that is valid now; it may block.
        kerberos: For GSSAPI: how tickets are obtained.
    """

    mechanism: SaslMechanism
    username: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], Token] | None = None
    kerberos: KerberosSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How to connect to brokers; durations in seconds, sizes in bytes (0: the system's default)."""

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
    #: Close a connection after this idle time in seconds; 0: never.
    max_idle_s: float = 0.0
    #: Whether to use the bootstrap servers again when no known broker can be reached.
    rebootstraps: bool = True
    #: Whether to connect to each address of a bootstrap server by its canonical name.
    has_canonical_bootstrap: bool = False
    receive_message_max_bytes: int = 100_000_000
    allow_auto_create_topics: bool = False
    #: Whether a guardian process leaves the group for members of this process after its death.
    crash_guardian: bool = False
    #: None: connections are not encrypted.
    tls: TlsSettings | None = None
    #: None: connections are not authenticated.
    sasl: SaslSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The logging settings among librdkafka's keys.

    Attributes:
        client_id: The client id in log lines.
        contexts: The contexts of `debug`.
        level: The level of `log_level` in syslog's numbers; everything with `debug`, as in librdkafka.
    """

    client_id: str = "rdkafka"
    contexts: frozenset[str] = frozenset()
    level: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """The address of the HTTP probes; port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as it is configured and as URLs write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """Where the health of a consumer is reported to probes.

    Attributes:
        address: The HTTP address; None: no HTTP server.
        file: The file to touch while the process is live; None: no file.
    """

    address: ListenAddress | None = None
    file: str | None = None

    @property
    def are_wanted(self) -> bool:
        """Whether any probe is configured."""
        return self.address is not None or self.file is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """Where partitions start: the reset policy, and whether the end of the log is the end of committed records."""

    reset: OffsetReset | ByDuration = OffsetReset.LATEST
    read_committed: bool = True


class MembershipThreads(Enum):
    """Which thread runs a member: the values of `membership.threads`."""

    #: The thread of all members of the process with this value.
    SHARED = "shared"
    #: A thread of its own.
    OWN = "own"


class RebalanceCallbacks(Enum):
    """Which partitions rebalance callbacks receive, with any group protocol: the values of `rebalance.callbacks`."""

    #: At each change: on_revoke with all partitions, then on_assign with all, which start at their committed offsets.
    EAGER = "eager"
    #: Only the partitions that change; retained partitions are not affected.
    INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSettings:
    """Which partitions rebalance callbacks receive.

    Attributes:
        chosen: The value of `rebalance.callbacks`, if it is set.
        usual: What confluent-kafka does with the same configuration: it joins a classic group unless group.protocol is
            set, and calls eager callbacks there unless its assignors are cooperative.
    """

    chosen: RebalanceCallbacks | None = None
    usual: RebalanceCallbacks = RebalanceCallbacks.EAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """How the patterns of a subscription are read.

    Attributes:
        is_for_brokers: Patterns are RE2/J and are sent to the broker unchanged, as librdkafka does with
            `group.protocol=consumer`; otherwise they are those of librdkafka's classic members.
        may_meet_brokers: A broker may have to match the patterns, so they must be expressible in RE2/J.
        blacklist: The patterns of `topic.blacklist` as Python's `re` for whole names.
    """

    is_for_brokers: bool = False
    may_meet_brokers: bool = True
    blacklist: tuple[str, ...] = ()

    def excludes(self, topic: str) -> bool:
        """Return whether the blacklist excludes this topic."""
        return any(re.fullmatch(pattern, topic) for pattern in self.blacklist)
