"""ConsumerConfig: librdkafka's keys and environment variables, checked and split into each package's settings."""

from __future__ import annotations

import pytest

from consumer_membership.config import (
    AddressFamily,
    ConnectionSettings,
    ConsumerConfig,
    OffsetReset,
    StartSettings,
)
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import ConflictPolicy
from tests.config.builders import LEAST, accepted, refused


def test_minimal_config_has_documented_defaults() -> None:
    """M01-M03: Assignor, instance id and rack are unset by default; other keys have librdkafka's defaults."""
    config = ConsumerConfig.from_mapping(LEAST)
    assert config.member_settings() == MemberSettings(group_id="orders", topic_refresh_s=300.0)
    assert config.connection_settings() == ConnectionSettings(bootstrap_servers=(("broker", 9092),))
    assert config.start_settings() == StartSettings(reset=OffsetReset.LATEST, read_committed=True)


def test_member_settings_convert_milliseconds_to_seconds() -> None:
    """M01, M03: Milliseconds become seconds; the member receives assignor, instance id and rack."""
    config = accepted(
        group_instance_id="a",
        group_remote_assignor="range",
        client_rack="r1",
        max_poll_interval_ms="6000",
        enable_auto_commit="False",
        auto_commit_interval_ms=100.0,
        heartbeat_interval_ms=200,
        heartbeat_active_interval_ms=0,
        retry_backoff_ms=50,
        retry_backoff_max_ms=500,
        topic_metadata_refresh_interval_ms=2000,
    )
    assert config.member_settings() == MemberSettings(
        group_id="orders",
        instance_id="a",
        rack_id="r1",
        assignor="range",
        max_poll_interval_s=6.0,
        auto_commit=False,
        auto_commit_interval_s=0.1,
        heartbeat_interval_s=0.2,
        active_heartbeat_interval_s=0.0,
        retry_backoff_s=0.05,
        retry_backoff_max_s=0.5,
        topic_refresh_s=2.0,
        drain_timeout_s=3.0,
    )


def test_connection_and_fetcher_receive_same_connection_keys() -> None:
    """The membership's connections and the fetcher's connections use the same keys."""
    keys: dict[str, object] = {
        "client_id": "me",
        "socket_timeout_ms": 1000,
        "socket_connection_setup_timeout_ms": 2000,
        "socket_keepalive_enable": True,
        "socket_nagle_disable": "f",
        "socket_send_buffer_bytes": 7,
        "socket_receive_buffer_bytes": 8,
        "reconnect_backoff_ms": 10,
        "reconnect_backoff_max_ms": 20,
        "broker_address_family": "V4",
        "receive_message_max_bytes": 5000,
        "allow_auto_create_topics": "1",
    }
    config = accepted(**keys)
    assert config.connection_settings() == ConnectionSettings(
        bootstrap_servers=(("broker", 9092),),
        client_id="me",
        socket_timeout_s=1.0,
        connection_setup_timeout_s=2.0,
        keepalive=True,
        disable_nagle=False,
        send_buffer_bytes=7,
        receive_buffer_bytes=8,
        reconnect_backoff_s=0.01,
        reconnect_backoff_max_s=0.02,
        address_family=AddressFamily.V4,
        receive_message_max_bytes=5000,
        allow_auto_create_topics=True,
    )
    given = {key.replace("_", "."): value for key, value in keys.items()}
    assert {key: value for key, value in config.fetcher_config().items() if key in given} == given


def test_fetcher_config_is_tuned_and_disables_commits_and_membership() -> None:
    """Librdkafka receives tuned fetch settings and unknown keys, but no membership keys."""
    config = accepted(
        group_instance_id="a",
        group_protocol="consumer",
        group_remote_assignor="range",
        heartbeat_interval_ms=200,
        heartbeat_active_interval_ms=1,
        max_poll_interval_ms=1000,
        enable_auto_commit=True,
        auto_commit_interval_ms=1,
        enable_auto_offset_store=False,
        isolation_level="read_uncommitted",
        made_up=1,
    )
    assert config.fetcher_config() == {
        "bootstrap.servers": "broker:9092",
        "group.id": "orders",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.metrics.push": "false",
        "fetch.queue.backoff.ms": "5",
        "fetch.wait.max.ms": "100",
        "isolation.level": "read_uncommitted",
        "made.up": 1,
    }


def test_fetch_settings_of_user_override_tuned_defaults() -> None:
    """The user's fetch settings override the tuned defaults."""
    config = accepted(fetch_queue_backoff_ms=1000, fetch_wait_max_ms=500).fetcher_config()
    assert (config["fetch.queue.backoff.ms"], config["fetch.wait.max.ms"]) == (1000, 500)


@pytest.mark.parametrize(
    ("text", "number"), [("0x2710", 10_000), ("0X2710", 10_000), ("023420", 10_000), (" +10000.5 ", 10_000)]
)
def test_numbers_are_parsed_as_in_librdkafka(text: str, number: int) -> None:
    """Numbers are parsed like `strtol` with base 0, so both kinds of connections use the same number."""
    assert accepted(session_timeout_ms=text).session_timeout_ms == number


@pytest.mark.parametrize("pool", [None, "orders-{0..1}"])
def test_empty_instance_id_and_assignor_count_as_unset(pool: str | None) -> None:
    """An empty value means a dynamic member with the broker's default assignor, as in librdkafka."""
    config = accepted(group_instance_id="", group_remote_assignor="", group_instance_id_pool=pool)
    settings = config.member_settings()
    assert (settings.instance_id, config.group_remote_assignor) == (None, None)
    assert {"group.instance.id", "group.remote.assignor"}.isdisjoint(config.given)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"enable_auto_commit": "yes"}, 'Expected bool value for "enable.auto.commit": true or false'),
        ({"max_poll_interval_ms": 0}, "value 0 is outside allowed range 1..86400000"),
        ({"max_poll_interval_ms": "46k"}, "expected an integer"),
        ({"auto_commit_interval_ms": -1}, "value -1 is outside allowed range 0..86400000"),
        ({"heartbeat_interval_ms": 0}, "value 0 is outside allowed range"),
        ({"heartbeat_interval_ms": 45000}, "group.consumer.session.timeout.ms"),
        ({"socket_timeout_ms": 1}, "value 1 is outside allowed range 10..300000"),
        ({"auto_offset_reset": "nope"}, 'Invalid value "nope" for configuration property "auto.offset.reset"'),
        ({"isolation_level": "x"}, 'Invalid value "x"'),
        ({"broker_address_family": "v5"}, 'Invalid value "v5"'),
        ({"group_protocol": "nope"}, 'Invalid value "nope" for configuration property "group.protocol"'),
        ({"group_protocol_type": "connect"}, "remove the key"),
        ({"session_timeout_ms": 0}, "value 0 is outside allowed range 1..3600000"),
        ({"topic_metadata_refresh_interval_ms": -2}, "value -2 is outside allowed range -1..3600000"),
        ({"partition_assignment_strategy": ""}, "the list of assignors is empty"),
        ({"partition_assignment_strategy": "nope"}, "use one of range, roundrobin, sticky, cooperative-sticky"),
        ({"partition_assignment_strategy": "range,range"}, "duplicate assignor 'range'"),
        ({"partition_assignment_strategy": "no.such.module:Name"}, "cannot be imported"),
        ({"partition_assignment_strategy": 7}, "it needs name, protocols, user_data() and assign()"),
        ({"group_id": None}, "group.id must be set"),
        ({"group_id": ""}, "CONSUMER_MEMBERSHIP_GROUP_ID"),
        ({"group_id": "a\0b"}, "NUL"),
        ({"bootstrap_servers": "a:b"}, "'a:b' is not HOST:PORT"),
        ({"bootstrap_servers": ["a:1", "b:2"]}, "is not HOST:PORT; expected a comma-separated list of HOST:PORT"),
        ({"bootstrap_servers": "http://a:1"}, "'http://a:1' requires http, but security.protocol is plaintext"),
        ({"session_timeout_ms": "10s"}, "expected an integer"),
        ({"session_timeout_ms": "1e4"}, "expected an integer"),
        ({"session_timeout_ms": "0x"}, "expected an integer"),
        ({"session_timeout_ms": "0890"}, "expected an integer"),
        ({"offset_store_method": "file"}, "never to a file; remove the key"),
        ({"offset_store_method": "none"}, "enable.auto.commit=false"),
        ({"bootstrap_servers": "a/:9092"}, "'a/:9092' is not HOST:PORT"),
        ({"bootstrap_servers": "a:99999"}, "1..65535"),
        ({"bootstrap_servers": "SSL://a:1"}, "security.protocol is plaintext"),
        ({"broker_address_family": ""}, 'property "broker.address.family" cannot be set to empty value'),
        ({"enable_auto_commit": ""}, 'property "enable.auto.commit" cannot be set to empty value'),
        ({"test_mock_num_brokers": 1}, "Producer"),
    ],
)
def test_invalid_value_raises_error_with_key_value_and_fix(keys: dict[str, object], message: str) -> None:
    """The error for an invalid value names the key, the value and the fix."""
    refusal = refused(**keys)
    ((key, value),) = keys.items()
    assert refusal.key == key.replace("_", ".")
    assert str(refusal.value).lower() == str(value).lower()
    assert message in str(refusal)


@pytest.mark.parametrize("servers", [None, "", " , "])
def test_with_servers_rejects_missing_bootstrap_servers(servers: str | None) -> None:
    """A consumer without servers may be created and waits, as in confluent-kafka; an admin call raises."""
    config = accepted(bootstrap_servers=servers)
    assert config.connection_settings().bootstrap_servers == ()
    with pytest.raises(ConfigurationError, match="CONSUMER_MEMBERSHIP_BOOTSTRAP_SERVERS") as caught:
        config.with_servers()
    assert (caught.value.key, caught.value.value) == ("bootstrap.servers", servers)
    assert accepted().with_servers() == accepted()


@pytest.mark.parametrize(
    ("key", "protocol"),
    [
        ("ssl.of.tomorrow.password", "ssl"),
        ("ssl.key.pem", "ssl"),
        ("sasl.oauthbearer.of.tomorrow.secret", "sasl_ssl"),
        ("sasl.jaas.config", "plaintext"),
        ("oauth_cb", "plaintext"),
    ],
)
def test_error_of_rejected_secret_hides_its_value(key: str, protocol: str) -> None:
    """An error never contains a secret's value, even if that value is rejected."""
    given = {**LEAST, "security.protocol": protocol, "sasl.mechanism": "OAUTHBEARER", key: "hunter2"}
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping(given)
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.value} {caught.value.args}"
    assert key in str(caught.value)


def test_config_repr_hides_secrets_of_unknown_keys() -> None:
    """repr() masks each value whose key looks like a secret and shows the other values."""
    text = repr(ConsumerConfig.from_mapping({**LEAST, "plugin.password": "hunter2", "client.rack": "r"}))
    assert "hunter2" not in text
    assert "client.rack='r'" in text


def test_environment_provides_keys_that_program_omits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable's name is the prefix and the key in capitals; the program's value wins."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_GROUP_ID", "from-environment")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_BOOTSTRAP_SERVERS", "elsewhere:1")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_FETCH_MIN_BYTES", "7")
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_LOG_LEVEL", "3")
    config = ConsumerConfig.from_mapping({"bootstrap.servers": "broker:9092"})
    assert config.group_id == "from-environment"
    assert config.connection_settings().bootstrap_servers == (("broker", 9092),)
    assert config.fetcher_config()["fetch.min.bytes"] == "7"
    assert config.fetcher_config()["log_level"] == "3"


def test_none_overrides_environment_with_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """None means the default, as in confluent-kafka, even if the environment sets the key."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID", "a")
    assert accepted(group_instance_id=None).member_settings().instance_id is None


def test_error_of_environment_variable_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the value comes from the environment, the error names the variable."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_MAX_POLL_INTERVAL_MS", "0")
    refusal = refused()
    assert (refusal.key, refusal.value) == ("max.poll.interval.ms", "0")
    assert "CONSUMER_MEMBERSHIP_MAX_POLL_INTERVAL_MS" in str(refusal)


def test_auto_commit_interval_of_zero_disables_timer() -> None:
    """Zero disables the timer; commits before revocations and at close remain."""
    settings = accepted(auto_commit_interval_ms=0).member_settings()
    assert (settings.auto_commit, settings.auto_commit_interval_s) == (True, 86400.0)


def test_empty_client_rack_counts_as_unset() -> None:
    """M03: librdkafka's default of client.rack is the empty string, which means no rack."""
    assert accepted(client_rack="").member_settings().rack_id is None


def test_both_bootstrap_keys_are_merged() -> None:
    """bootstrap.servers and metadata.broker.list form one list."""
    config = ConsumerConfig.from_mapping({"metadata.broker.list": "b", "bootstrap.servers": "a:1,a:1", "group.id": "g"})
    assert config.connection_settings().bootstrap_servers == (("a", 1), ("b", 9092))


def test_conflict_policy_defaults_to_takeover_or_wait_with_pool() -> None:
    """A fixed id defaults to takeover; a pool member waits, because it cannot identify the dead holder."""
    assert accepted(group_instance_id="i").member_settings().conflict_policy is ConflictPolicy.TAKEOVER
    assert accepted(group_instance_id_pool="a,b").member_settings().conflict_policy is ConflictPolicy.WAIT
    chosen = accepted(group_instance_id_pool="a,b", group_instance_id_conflict_policy="Fail")
    assert chosen.member_settings().conflict_policy is ConflictPolicy.FAIL


def test_conflicting_instance_id_keys_are_rejected() -> None:
    """Two sources of the id, takeover with a pool, hand-over without an id, and an unknown policy raise an error."""
    assert "cannot be combined with group.instance.id" in str(
        refused(group_instance_id_pool="a,b", group_instance_id="i")
    )
    for policy in ("takeover", "takeover-when-dead"):
        robs = refused(group_instance_id_pool="a,b", group_instance_id_conflict_policy=policy)
        assert (robs.key, "the live holder of an id cannot be identified" in str(robs)) == (
            "group.instance.id.conflict.policy",
            True,
        )
    alone = refused(group_instance_id_conflict_policy="Hand-Over")
    assert "set group.instance.id or group.instance.id.pool" in str(alone)
    assert "takeover, takeover-when-dead, wait, fail" in str(refused(group_instance_id_conflict_policy="steal"))


def test_fetcher_config_has_no_instance_id_keys() -> None:
    """Librdkafka's handle is not a member, so it receives no instance id."""
    config = accepted(group_instance_id_pool="a,b", group_instance_id_conflict_policy="wait").fetcher_config()
    assert not [key for key in config if key.startswith("group.instance")]
