"""The configuration of one consumer: librdkafka's keys, checked, and methods that return each package's settings."""

# ruff: noqa: RUF009  # _key is dataclasses.field: it makes no default of its own

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Self, TypeVar

from consumer_membership.assignors.assignor import Assignor
from consumer_membership.config import values
from consumer_membership.config.checks import (
    checked_keys,
    is_unset,
    refuse_connection,
    refuse_contradictions,
    refuse_texts,
    require_servers,
    servers_in,
)
from consumer_membership.config.environment import from_environment, naming_variables, variable_of
from consumer_membership.config.group_protocol import protocol_settings
from consumer_membership.config.keys import (
    FETCHER_DEFAULTS,
    FETCHER_FORCED,
    KEPT_FROM_THE_FETCHER,
    OF_THE_CLUSTER,
    shown,
)
from consumer_membership.config.settings import (
    DEFAULT_RESET,
    AddressFamily,
    ByDuration,
    CallbackSettings,
    ConnectionSettings,
    ListenAddress,
    LogSettings,
    MembershipThreads,
    OffsetReset,
    ProbeSettings,
    RebalanceCallbacks,
    SecurityProtocol,
    StartSettings,
    SubscriptionSettings,
)
from consumer_membership.config.strategies import DEFAULT, are_built_in, remote_assignor
from consumer_membership.config.tls_and_sasl import sasl_settings, tls_settings, with_shared_tokens
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.dumps import RecorderSettings
from consumer_membership.text import excerpt
from consumer_membership.types import ConflictPolicy, GroupProtocol

T = TypeVar("T")

#: The part of max.poll.interval.ms, the rebalance timeout, that a release of partitions may use. The rest is for the
#: commit and the acknowledgment.
_DRAIN_SHARE = 0.5
#: In librdkafka, auto.commit.interval.ms=0 means "not by time"; one day represents it in the member's schedule.
_NEVER_MS = 86_400_000

#: syslog's numbers: librdkafka's default of `log_level`, and its value with `debug`.
_UP_TO_INFO, _EVERYTHING = 6, 7


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


def _key(read: values.Reader[T], default: T) -> T:
    """Return a field of the table: how its value is read, and its default."""
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumerConfig:
    """The checked configuration of the caller and the environment.

    Field names are librdkafka's keys with underscores. Create it with `from_mapping`, which makes all checks and raises
    `ConfigurationError` with the key, the value and the fix. Values of secret keys appear in no text. The text under a
    field is the key's description in `docs/reference/configuration.md`; a key without a description means the same as
    in librdkafka.
    """

    # ---- the member ----
    group_id: str = _key(values.text, "")

    group_instance_id: str | None = _key(values.text, None)
    """Makes the consumer a static member: after `close`, it keeps its partitions until the session timeout.
    """
    group_instance_id_pool: tuple[str, ...] = _key(values.pool, ())
    """The member claims a free one of these ids as its `group.instance.id`: a range such as `orders-{0..7}`,
    comma-separated names, or a list.
    """
    group_instance_id_conflict_policy: ConflictPolicy | None = _key(values.policy, None)
    """What to do if another member holds the id: take it over, take it over only from a dead process, wait until it is
    free, have the holder hand it over (consumer protocol and an instance id; needs READ on the group
    `<group.id>.hand-over`), or raise an error.
    """
    group_instance_id_lock_directory: str | None = _key(values.text, None)
    """`takeover-when-dead`: the directory in which each process keeps a locked file, which proves to its replacement on
    the same host whether it is alive.
    """
    group_protocol: tuple[GroupProtocol, ...] = _key(values.protocols, (GroupProtocol.CONSUMER, GroupProtocol.CLASSIC))
    """The group protocol; `auto` uses the first one of `consumer` and `classic` that the broker and the configuration
    support.
    """
    group_remote_assignor: str | None = _key(values.text, None)
    """Consumer protocol: the assignor of the broker, `uniform`, `range`, or a custom one that is installed in the
    broker.
    """
    partition_assignment_strategy: tuple[Assignor, ...] | None = _key(values.strategies, None)
    """Classic protocol: the assignors in order of preference, Kafka's by name (`range`, `roundrobin`, `sticky`,
    `cooperative-sticky`) and your own as an object, a class or an import path.
    """
    rebalance_callbacks: RebalanceCallbacks | None = _key(values.callbacks, None)
    """Which partitions the callbacks receive, with any protocol. `incremental`: only those that change. `eager`: at
    each change `on_revoke` receives all partitions, and `on_assign` receives the complete new assignment, which
    starts at the committed offsets.
    """
    session_timeout_ms: int = _key(values.session_ms, 45_000)
    """Classic protocol: the session timeout. With the consumer protocol, the broker or the group's configuration sets
    it.
    """
    topic_metadata_refresh_interval_ms: int = _key(values.refresh_ms, 300_000)
    """Also how often a member checks that its topics exist and which topics match its
    [patterns](../explanation/consumer-groups-and-kip-848.md#patterns), and how often a classic leader checks for
    changed topics; every 1 to 30 s while a topic is missing.
    """
    topic_blacklist: tuple[str, ...] = _key(values.blacklist, ())
    """Patterns of topics that the consumer ignores. With a blacklist, `auto` uses the classic protocol, because brokers
    that resolve patterns do not know the list.
    """
    client_rack: str | None = _key(values.text, None)
    max_poll_interval_ms: int = _key(values.positive_ms, 300_000)
    """If the application does not poll for this time, the member leaves, loses its partitions, and rejoins with the
    next poll. Also the rebalance timeout that the coordinator receives.
    """
    drain_timeout_ms: int = _key(values.duration_ms, 30_000)
    """How long a release of partitions may take, at most half of `max.poll.interval.ms`. A consumer that hands its
    instance id over has this time, and 10 s more, for its commit and `on_revoke`; then it leaves and loses its
    partitions. A processor's running handlers may finish for this time when partitions are revoked; then coroutines and
    worker processes are cancelled, and the results of threads are ignored.
    """
    enable_auto_commit: bool = _key(values.boolean, True)
    auto_commit_interval_ms: int = _key(values.duration_ms, 5_000)
    enable_auto_offset_store: bool = _key(values.boolean, True)
    ownership_lease_enable: bool = _key(values.boolean, False)
    """No record is returned after the time for which its partition is certainly owned, which `lease()` returns: it is
    checked for each record, counts suspensions of the machine, and ends 5 % before the session, which is read from the
    group's configuration. See [leases](../consuming/leases.md).
    """
    allow_commit_revoked: bool = _key(values.boolean, False)
    """Also sends commits of partitions that this consumer gave up, as confluent-kafka does: a late worker can then move
    the new owner's committed offset back. By default such commits fail with `_ASSIGNMENT_LOST`.
    """
    heartbeat_interval_ms: int | None = _key(values.positive_ms, None)
    """Shortens the heartbeat interval, and with it the time of a scale-out, which takes about three heartbeats (Java
    and confluent-kafka in classic groups: 3 s). confluent-kafka rejects the key with the consumer protocol. A
    heartbeat costs the broker about 0.15 ms of CPU time: 1,000 members at 1 s use a seventh of a core.
    """
    heartbeat_active_interval_ms: int = _key(values.duration_ms, 250)
    """While records flow, the greatest heartbeat interval (consumer protocol: unless `heartbeat.interval.ms` is set),
    so that the member quickly receives partitions that another member releases. 0 disables it.
    """
    retry_backoff_ms: int = _key(values.retry_ms, 100)
    retry_backoff_max_ms: int = _key(values.retry_ms, 1_000)
    membership_threads: MembershipThreads = _key(values.threads, MembershipThreads.OWN)
    """`shared`: the consumers of this process share one membership thread, and those with equal settings of the
    connection also its connections. `own`: this consumer has both for itself, as a consumer with an assignor of your
    own always has.
    """
    crash_guardian_enable: bool = _key(values.guardian, False)
    """Starts a small process (13 MB, 21 MB with TLS and SASL) that leaves the group for members whose process was
    killed, while their host or container lives. Linux and macOS.
    """

    # ---- health and the recorder ----
    health_stuck_after_ms: int = _key(values.positive_ms, 60_000)
    """`health()` reports a partition as `stuck` if its position does not move for this time while its end offset
    increases.
    """
    health_http_address: ListenAddress | None = _key(values.listen_address, None)
    """Serves `/livez`, `/readyz`, `/health` and `/metrics` at this address, such as `0.0.0.0:8080` or `[::]:8080`, for
    all consumers of the process with this address. Port 0 uses a free port, which is logged.
    """
    health_file: str | None = _key(values.file_path, None)
    """A file for probes that run a command: touched every few seconds while a restart would not help, with the health
    as JSON; removed by `close`.
    """
    recorder_enable: bool = _key(values.boolean, True)
    """Keeps the membership's latest events in memory (2 MB at most) for `dump()` and `consumer-membership replay`."""
    recorder_directory: str | None = _key(values.text, None)
    """The folder into which recordings are written automatically if the consumer is stuck, or its membership ends with
    a fatal error or fails. Without it, only `dump()` writes a recording.
    """
    recorder_signal_enable: bool = _key(values.boolean, False)
    """SIGUSR2 writes a recording of each consumer of the process that has this key; the program's own handler is also
    called.
    """

    enable_metrics_push: bool = _key(values.boolean, True)
    """Pushes the consumer's [metrics](metrics.md#metrics-that-brokers-ask-for) to brokers that request them (KIP-714),
    on the membership's connections. librdkafka's own push is off, because its handle is not a group member.
    """

    # ---- where partitions start ----
    auto_offset_reset: OffsetReset | ByDuration = _key(values.reset, DEFAULT_RESET)
    """Where a partition starts that has no committed offset, or one that is no longer in the log. `by_duration:P1D`
    (Java, KIP-1106) starts at the first record that is not older than the duration, or at the end if there is none.
    """
    isolation_level: bool = _key(values.read_committed, True)

    # ---- the connection ----
    bootstrap_servers: str | None = _key(values.text, None)
    """Comma-separated list of `host:port`. Without it the consumer waits, as confluent-kafka's does, and `health()`
    shows the reason.
    """
    metadata_broker_list: str | None = _key(values.text, None)
    client_id: str = _key(values.text, "rdkafka")
    #: The other keys of TLS and SASL are read in `tls_and_sasl`; these are checked even if they have no effect.
    security_protocol: SecurityProtocol = _key(values.security, SecurityProtocol.PLAINTEXT)
    enable_ssl_certificate_verification: bool = _key(values.boolean, True)
    ssl_endpoint_identification_algorithm: bool = _key(values.identification, True)
    socket_timeout_ms: int = _key(values.socket_timeout_ms, 60_000)
    socket_connection_setup_timeout_ms: int = _key(values.setup_timeout_ms, 30_000)
    socket_keepalive_enable: bool = _key(values.boolean, False)
    socket_nagle_disable: bool = _key(values.boolean, True)
    socket_send_buffer_bytes: int = _key(values.buffer_bytes, 0)
    socket_receive_buffer_bytes: int = _key(values.buffer_bytes, 0)
    reconnect_backoff_ms: int = _key(values.reconnect_ms, 100)
    reconnect_backoff_max_ms: int = _key(values.reconnect_ms, 10_000)
    broker_address_family: AddressFamily = _key(values.family, AddressFamily.ANY)
    connections_max_idle_ms: int = _key(values.idle_ms, 0)
    metadata_recovery_strategy: bool = _key(values.rebootstraps, True)
    client_dns_lookup: bool = _key(values.canonical, False)
    receive_message_max_bytes: int = _key(values.receive_bytes, 100_000_000)
    allow_auto_create_topics: bool = _key(values.boolean, False)
    """Sent with the check that topics exist, so that a subscribed topic is created if the broker allows it."""

    #: All keys and values as they were given, except oauth_cb; the fetcher's handle is created from them.
    given: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, config: Mapping[str, object]) -> Self:
        """Return the checked configuration of this dict and the environment; the dict wins, and None unsets a key.

        An empty group.instance.id or group.remote.assignor unsets the key, as in librdkafka.

        Raises:
            ConfigurationError: with the key, its value (`***` for a secret) and the fix.
        """
        in_program = checked_keys(config)
        with naming_variables(in_program):
            # Of several invalid keys the first one is reported: librdkafka's keys, then those of the table in order.
            ours = {key: in_program[key] for key in READERS if key in in_program}
            others = {key: value for key, value in in_program.items() if key not in ours}
            together = checked_keys({**from_environment(), **others, **ours})
            given = {key: value for key, value in together.items() if not is_unset(key, value)}
            refuse_texts(given)
            refuse_contradictions(given)
            given = with_shared_tokens(given)
            made = cls(given=given, **_read(given, in_program))  # type: ignore[arg-type]  # of each reader's own type
            refuse_connection(given, made.security_protocol, has_guardian=made.crash_guardian_enable)
            made.protocol_settings()
            return made

    def __repr__(self) -> str:
        """Show every key that was set, secrets as `***`."""
        keys = ", ".join(f"{key}={shown(key, value)!r}" for key, value in self.given.items())
        return f"{type(self).__name__}({keys})"

    def with_servers(self) -> Self:
        """Return this configuration if it has brokers, for calls that need a broker now.

        Raises:
            ConfigurationError: no broker is configured.
        """
        require_servers(self.given)
        return self

    # ---- the settings of each package ----

    @property
    def drain_timeout_s(self) -> float:
        """How long a release of partitions may take; the rest of the rebalance timeout is for its acknowledgment."""
        return min(self.drain_timeout_ms, _DRAIN_SHARE * self.max_poll_interval_ms) / 1000

    def member_settings(self) -> MemberSettings:
        """Return the settings of the membership."""
        heartbeat_ms = self.heartbeat_interval_ms
        return MemberSettings(
            group_id=self.group_id,
            instance_id=self.group_instance_id,
            instance_pool=self.group_instance_id_pool,
            conflict_policy=self.group_instance_id_conflict_policy or self._default_policy,
            rack_id=self.client_rack or None,
            assignor=self.group_remote_assignor or remote_assignor(self.partition_assignment_strategy or ()),
            max_poll_interval_s=_seconds(self.max_poll_interval_ms),
            auto_commit=self.enable_auto_commit,
            auto_commit_interval_s=_seconds(self.auto_commit_interval_ms or _NEVER_MS),
            heartbeat_interval_s=None if heartbeat_ms is None else _seconds(heartbeat_ms),
            active_heartbeat_interval_s=_seconds(self.heartbeat_active_interval_ms),
            topic_refresh_s=self._topic_refresh_s,
            may_commit_revoked=self.allow_commit_revoked,
            has_leases=self.ownership_lease_enable,
            drain_timeout_s=self.drain_timeout_s,
            retry_backoff_s=_seconds(self.retry_backoff_ms),
            retry_backoff_max_s=_seconds(max(self.retry_backoff_ms, self.retry_backoff_max_ms)),
        )

    @property
    def shares_thread(self) -> bool:
        """Whether the member may share its thread; the `user_data()` of an application's assignor may block it."""
        assignors = self.partition_assignment_strategy or ()
        return self.membership_threads is MembershipThreads.SHARED and are_built_in(assignors)

    def protocol_settings(self) -> ProtocolSettings:
        """Return the group protocols that the member may use, and the settings of the classic protocol."""
        return protocol_settings(
            self.given,
            wanted=self.group_protocol,
            strategies=self.partition_assignment_strategy or DEFAULT,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            refresh_interval_ms=self.topic_metadata_refresh_interval_ms,
            blacklist=self.topic_blacklist,
        )

    def callback_settings(self) -> CallbackSettings:
        """Return which partitions rebalance callbacks receive."""
        protocols = self.protocol_settings()
        is_incremental = GroupProtocol.CLASSIC not in protocols.protocols or not protocols.classic.is_eager
        usual = RebalanceCallbacks.INCREMENTAL if is_incremental else RebalanceCallbacks.EAGER
        return CallbackSettings(chosen=self.rebalance_callbacks, usual=usual)

    def subscription_settings(self) -> SubscriptionSettings:
        """Return how the patterns of a subscription are read."""
        return SubscriptionSettings(
            is_for_brokers=self.group_protocol == (GroupProtocol.CONSUMER,),
            may_meet_brokers=GroupProtocol.CONSUMER in self.protocol_settings().protocols,
            blacklist=self.topic_blacklist,
        )

    @property
    def _topic_refresh_s(self) -> float:
        """The interval in seconds. The member checks its topics at least at the beginning, with any interval."""
        interval_ms = self.topic_metadata_refresh_interval_ms
        return _seconds(interval_ms if interval_ms > 0 else _NEVER_MS)

    @property
    def _default_policy(self) -> ConflictPolicy:
        """A pool's member takes over no id, because the live holder cannot be identified."""
        return ConflictPolicy.WAIT if self.group_instance_id_pool else ConflictPolicy.TAKEOVER

    def connection_settings(self) -> ConnectionSettings:
        """Return how the membership's own connections reach the brokers: as the fetcher does."""
        return ConnectionSettings(
            bootstrap_servers=values.parse_endpoints(servers_in(self.given), self.security_protocol),
            client_id=self.client_id,
            socket_timeout_s=_seconds(self.socket_timeout_ms),
            connection_setup_timeout_s=_seconds(self.socket_connection_setup_timeout_ms),
            reconnect_backoff_s=_seconds(self.reconnect_backoff_ms),
            reconnect_backoff_max_s=_seconds(self.reconnect_backoff_max_ms),
            keepalive=self.socket_keepalive_enable,
            disable_nagle=self.socket_nagle_disable,
            send_buffer_bytes=self.socket_send_buffer_bytes,
            receive_buffer_bytes=self.socket_receive_buffer_bytes,
            address_family=self.broker_address_family,
            max_idle_s=_seconds(self.connections_max_idle_ms),
            rebootstraps=self.metadata_recovery_strategy,
            has_canonical_bootstrap=self.client_dns_lookup,
            receive_message_max_bytes=self.receive_message_max_bytes,
            allow_auto_create_topics=self.allow_auto_create_topics,
            crash_guardian=self.crash_guardian_enable,
            tls=tls_settings(
                self.given,
                self.security_protocol,
                verifies=self.enable_ssl_certificate_verification,
                checks_hostname=self.ssl_endpoint_identification_algorithm,
            ),
            sasl=sasl_settings(self.given, self.security_protocol),
        )

    def cluster_config(self) -> dict[str, object]:
        """Return the configuration of another librdkafka client that connects to the same brokers in the same way."""
        return {key: value for key, value in self.given.items() if key.startswith(OF_THE_CLUSTER)}

    def log_settings(self) -> LogSettings:
        """Return the logging settings; librdkafka itself rejects invalid values."""
        contexts = frozenset(filter(None, map(str.strip, str(self.given.get("debug", "")).split(","))))
        level = _EVERYTHING if contexts else _UP_TO_INFO
        if not contexts:
            with suppress(ValueError):
                level = int(str(self.given.get("log_level", level)), 0)
        return LogSettings(client_id=self.client_id, contexts=contexts, level=level)

    def recorder_settings(self) -> RecorderSettings:
        """Return whether the member is recorded, and where recordings are written."""
        return RecorderSettings(
            is_on=self.recorder_enable, directory=self.recorder_directory or None, on_signal=self.recorder_signal_enable
        )

    def probe_settings(self) -> ProbeSettings:
        """Return where probes are served."""
        return ProbeSettings(address=self.health_http_address, file=self.health_file)

    def start_settings(self) -> StartSettings:
        """Return where partitions start."""
        return StartSettings(reset=self.auto_offset_reset, read_committed=self.isolation_level)

    def fetcher_config(self) -> dict[str, object]:
        """Return the configuration of librdkafka's handle, which fetches and is not a group member."""
        passed_on = {key: value for key, value in self.given.items() if key not in KEPT_FROM_THE_FETCHER}
        if isinstance(self.auto_offset_reset, ByDuration):
            # librdkafka does not support it: it reports where it would reset, and the fetcher looks up the offset.
            passed_on["auto.offset.reset"] = OffsetReset.ERROR.value
        return {**FETCHER_DEFAULTS, **passed_on, **FETCHER_FORCED}


#: The table of keys: each key that is read here, with its field and its reader.
READERS: Mapping[str, tuple[str, values.Reader[object]]] = {
    entry.name.replace("_", "."): (entry.name, entry.metadata["read"])
    for entry in fields(ConsumerConfig)
    if "read" in entry.metadata
}


def _read(given: Mapping[str, object], in_program: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the table's keys by field name.

    Raises:
        ConfigurationError: for the first invalid value.
    """
    found: dict[str, object] = {}
    for key, (name, read) in READERS.items():
        if key in given:
            try:
                found[name] = read(key, given[key])
            except ValueError as refused:
                value = shown(key, in_program.get(key, os.environ.get(variable_of(key))))
                value = excerpt(value) if isinstance(value, str) else value
                raise ConfigurationError(key, value, str(refused)) from None
    return found
