"""The configuration of one consumer: librdkafka's keys, checked, and its exits to the rooms that use them."""

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
    OffsetReset,
    ProbeSettings,
    RebalanceCallbacks,
    SecurityProtocol,
    StartSettings,
    SubscriptionSettings,
)
from consumer_membership.config.strategies import DEFAULT, remote_assignor
from consumer_membership.config.tls_and_sasl import sasl_settings, tls_settings, with_shared_tokens
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.dumps import RecorderSettings
from consumer_membership.text import excerpt
from consumer_membership.types import ConflictPolicy, GroupProtocol

T = TypeVar("T")

#: librdkafka's meaning of auto.commit.interval.ms=0 is "not by time"; the member's schedule takes a day for it.
_NEVER_MS = 86_400_000

#: syslog's numbers: librdkafka's default of `log_level`, and what it becomes with `debug`.
_UP_TO_INFO, _EVERYTHING = 6, 7


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


def _key(read: values.Reader[T], default: T) -> T:
    """A key of the table: how its value is read, and what it is without one."""
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumerConfig:
    """What the caller wrote and the environment says, checked.

    Field names are librdkafka's keys with underscores. `from_mapping` is the way in, and all that checks: it raises
    `ConfigurationError` with key, value and remedy. Values of secret keys appear in no text. The words under a key are
    what `docs/reference/configuration.md` says of it; a key without any means what it means in librdkafka.
    """

    # ---- the member ----
    group_id: str = _key(values.text, "")
    group_instance_id: str | None = _key(values.text, None)
    """a static member: `close` keeps its place and its partitions until the session ends"""
    group_instance_id_pool: tuple[str, ...] = _key(values.pool, ())
    """`orders-{0..7}`, names with commas, or a list: the member claims a free one of these ids"""
    group_instance_id_conflict_policy: ConflictPolicy | None = _key(values.policy, None)
    """what to do where another member holds the id: `takeover`, `wait`, `fail`"""
    group_protocol: tuple[GroupProtocol, ...] = _key(values.protocols, (GroupProtocol.CONSUMER, GroupProtocol.CLASSIC))
    """`consumer`, `classic`, or `auto`: the first of them that broker and configuration allow"""
    group_remote_assignor: str | None = _key(values.text, None)
    """consumer protocol: `uniform`, `range`, or one that the broker was given"""
    partition_assignment_strategy: tuple[Assignor, ...] | None = _key(values.strategies, None)
    """classic: Kafka's four assignors by name, and your own as an object, a class or an import path"""
    rebalance_callbacks: RebalanceCallbacks | None = _key(values.callbacks, None)
    """what `on_revoke` and `on_assign` are told of a change, whatever protocol is spoken: the difference
    (`incremental`), or that everything is revoked and the whole is assigned, from what is committed by then (`eager`)
    """
    session_timeout_ms: int = _key(values.session_ms, 45_000)
    """classic; under the consumer protocol it is the broker's or the group's setting"""
    topic_metadata_refresh_interval_ms: int = _key(values.refresh_ms, 300_000)
    """also how often a member looks whether its topics exist and which topics match its patterns, and a classic leader
    whether they changed; every 1 to 30 s while one is missing; [what it means for
    patterns](../explanation/consumer-groups-and-kip-848.md#patterns)
    """
    topic_blacklist: tuple[str, ...] = _key(values.blacklist, ())
    """topics as if they did not exist; makes `auto` classic, since brokers that match patterns cannot be told"""
    client_rack: str | None = _key(values.text, None)
    max_poll_interval_ms: int = _key(values.positive_ms, 300_000)
    """enforced here: the member leaves, loses its partitions, and rejoins with the next poll; also the rebalance
    timeout that it states to the coordinator
    """
    enable_auto_commit: bool = _key(values.boolean, True)
    auto_commit_interval_ms: int = _key(values.duration_ms, 5_000)
    enable_auto_offset_store: bool = _key(values.boolean, True)
    heartbeat_interval_ms: int | None = _key(values.positive_ms, None)
    """lowers the member's cadence (Java and confluent-kafka in classic groups: 3 s), and with it the time of a
    scale-out, which takes about three heartbeats; confluent-kafka refuses it under the consumer protocol. A heartbeat
    costs the broker about 0.15 ms of CPU: 1,000 members at 1 s take a seventh of a core
    """
    heartbeat_active_interval_ms: int = _key(values.duration_ms, 250)
    """while records flow: heartbeat at least this often (consumer protocol: unless `heartbeat.interval.ms` is set), so
    that a partition which another member gives up is picked up at once; 0 switches it off
    """
    retry_backoff_ms: int = _key(values.retry_ms, 100)
    retry_backoff_max_ms: int = _key(values.retry_ms, 1_000)
    crash_guardian_enable: bool = _key(values.guardian, False)
    """a small process (13 MB, 21 with TLS and SASL) that leaves on behalf of members whose process was killed, while
    their host or container lives; Linux and macOS
    """

    # ---- health and the recorder ----
    health_stuck_after_ms: int = _key(values.positive_ms, 60_000)
    """a partition whose position stands for so long while its end moves away is `stuck` in `health()`
    """
    health_http_address: ListenAddress | None = _key(values.listen_address, None)
    """`0.0.0.0:8080`, `[::]:8080`: serve `/livez`, `/readyz`, `/health` and `/metrics` there, for all consumers of the
    process that name it; port 0: a free one, which the log tells
    """
    health_file: str | None = _key(values.file_path, None)
    """touched every few seconds while a restart would not help, for probes that run a command; its text is the verdict
    as JSON; removed by `close`
    """
    recorder_enable: bool = _key(values.boolean, True)
    """keep the membership's latest events in memory (2 MB at most), for `dump()` and `consumer-membership replay`
    """
    recorder_directory: str | None = _key(values.text, None)
    """where recordings are written, by itself when the consumer is stuck, or its membership ends fatally or fails;
    without it `dump()` alone writes one
    """
    recorder_signal_enable: bool = _key(values.boolean, False)
    """SIGUSR2 writes a recording of each such consumer of the process; a handler that the program has is called, too
    """

    enable_metrics_push: bool = _key(values.boolean, True)
    """push the consumer's [metrics](metrics.md#metrics-that-brokers-ask-for) to brokers that want them (KIP-714), from
    the membership's connections; librdkafka, whose handle is a member of no group, pushes none
    """

    # ---- where partitions start ----
    auto_offset_reset: OffsetReset | ByDuration = _key(values.reset, DEFAULT_RESET)
    """where a partition starts that has no committed offset, or one that is not in the log any more: librdkafka's
    words, and Java's `by_duration:P1D` (KIP-1106): at the first record that is not older, at the end if there is none
    """
    isolation_level: bool = _key(values.read_committed, True)

    # ---- the connection ----
    bootstrap_servers: str | None = _key(values.text, None)
    """without it a consumer waits, as confluent-kafka's does, and says for what"""
    metadata_broker_list: str | None = _key(values.text, None)
    client_id: str = _key(values.text, "rdkafka")
    #: The other keys of TLS and SASL are read in `tls_and_sasl`; these are judged even where they are not used.
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
    """goes with the look whether topics exist, so a subscribed name is created where the broker allows it"""

    #: Everything that was given, as it was given, but for oauth_cb: what the fetcher's handle is made from.
    given: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, config: Mapping[str, object]) -> Self:
        """The checked configuration of this dict and the environment; the dict wins, None in it unsets a key.

        An empty group.instance.id or group.remote.assignor unsets the key, as in librdkafka.

        Raises:
            ConfigurationError: with the key, its value (`***` for a secret) and the remedy.
        """
        in_program = checked_keys(config)
        with naming_variables(in_program):
            # Of several wrong keys the first is refused: librdkafka's own, then those of the table in its order.
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
        """Every key that was given, secrets as `***`."""
        keys = ", ".join(f"{key}={shown(key, value)!r}" for key, value in self.given.items())
        return f"{type(self).__name__}({keys})"

    def with_servers(self) -> Self:
        """The same, for whoever asks a cluster now.

        Raises:
            ConfigurationError: no broker is named.
        """
        require_servers(self.given)
        return self

    # ---- exits ----

    def member_settings(self) -> MemberSettings:
        """What the membership is to do."""
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
            retry_backoff_s=_seconds(self.retry_backoff_ms),
            retry_backoff_max_s=_seconds(max(self.retry_backoff_ms, self.retry_backoff_max_ms)),
        )

    def protocol_settings(self) -> ProtocolSettings:
        """Which group protocols the member may speak, and the classic one's own settings."""
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
        """What rebalance callbacks are told."""
        protocols = self.protocol_settings()
        is_incremental = GroupProtocol.CLASSIC not in protocols.protocols or not protocols.classic.is_eager
        usual = RebalanceCallbacks.INCREMENTAL if is_incremental else RebalanceCallbacks.EAGER
        return CallbackSettings(chosen=self.rebalance_callbacks, usual=usual)

    def subscription_settings(self) -> SubscriptionSettings:
        """How the patterns of a subscription are read."""
        return SubscriptionSettings(
            is_for_brokers=self.group_protocol == (GroupProtocol.CONSUMER,),
            may_meet_brokers=GroupProtocol.CONSUMER in self.protocol_settings().protocols,
            blacklist=self.topic_blacklist,
        )

    @property
    def _topic_refresh_s(self) -> float:
        """At least at the beginning it is seen whether the topics are there, whatever the interval."""
        interval_ms = self.topic_metadata_refresh_interval_ms
        return _seconds(interval_ms if interval_ms > 0 else _NEVER_MS)

    @property
    def _default_policy(self) -> ConflictPolicy:
        """A pool's member takes nothing from anybody: which of the holders would be the dead one?"""
        return ConflictPolicy.WAIT if self.group_instance_id_pool else ConflictPolicy.TAKEOVER

    def connection_settings(self) -> ConnectionSettings:
        """How the membership's own connections reach the brokers: as the fetcher does."""
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
        """What another client of librdkafka is made from that is to reach the same brokers in the same way."""
        return {key: value for key, value in self.given.items() if key.startswith(OF_THE_CLUSTER)}

    def log_settings(self) -> LogSettings:
        """What librdkafka's keys say of log lines; librdkafka itself refuses what has no meaning."""
        contexts = frozenset(filter(None, map(str.strip, str(self.given.get("debug", "")).split(","))))
        level = _EVERYTHING if contexts else _UP_TO_INFO
        if not contexts:
            with suppress(ValueError):
                level = int(str(self.given.get("log_level", level)), 0)
        return LogSettings(client_id=self.client_id, contexts=contexts, level=level)

    def recorder_settings(self) -> RecorderSettings:
        """What is recorded of the member, and where it is written."""
        return RecorderSettings(
            is_on=self.recorder_enable, directory=self.recorder_directory or None, on_signal=self.recorder_signal_enable
        )

    def probe_settings(self) -> ProbeSettings:
        """Where probes are answered."""
        return ProbeSettings(address=self.health_http_address, file=self.health_file)

    def start_settings(self) -> StartSettings:
        """Where partitions start."""
        return StartSettings(reset=self.auto_offset_reset, read_committed=self.isolation_level)

    def fetcher_config(self) -> dict[str, object]:
        """The configuration of librdkafka's handle: it fetches, and is no member of anything."""
        passed_on = {key: value for key, value in self.given.items() if key not in KEPT_FROM_THE_FETCHER}
        if isinstance(self.auto_offset_reset, ByDuration):
            # librdkafka does not have it: it says where it would reset, and the fetcher looks up where to.
            passed_on["auto.offset.reset"] = OffsetReset.ERROR.value
        return {**FETCHER_DEFAULTS, **passed_on, **FETCHER_FORCED}


#: The table of keys: each one that is read here, with its field and how its value is read.
READERS: Mapping[str, tuple[str, values.Reader[object]]] = {
    entry.name.replace("_", "."): (entry.name, entry.metadata["read"])
    for entry in fields(ConsumerConfig)
    if "read" in entry.metadata
}


def _read(given: Mapping[str, object], in_program: Mapping[str, object]) -> dict[str, object]:
    """The values of the table's keys, by the names of their fields; the first one that is wrong is refused."""
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
