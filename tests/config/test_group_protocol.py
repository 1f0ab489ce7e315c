"""Which group protocols a configuration allows, its assignors, and the keys that a protocol ignores."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from consumer_membership.assignors.assignor import MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.types import GroupProtocol, TopicPartition

CONSUMER, CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class FirstTakesAll:
    """A custom assignor that assigns every partition to the first member."""

    name = "first-takes-all"
    protocols = frozenset({EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        del topics, owned, generation
        return None

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition]]:
        everything = [TopicPartition(name, n) for name, count in topics.partitions.items() for n in range(count)]
        return {min(subscriptions): everything}


class OnlyCooperative(FirstTakesAll):
    name = "only-cooperative"
    protocols = frozenset({COOPERATIVE})


class Nameless(FirstTakesAll):
    name = ""


class Claimant(FirstTakesAll):
    name = "range"


class WithoutProtocols(FirstTakesAll):
    protocols = frozenset()


class Deaf(FirstTakesAll):
    on_assignment = "later"


HERE = __name__
POOL = {"group.instance.id.pool": "a,b"}
WAIT = {"group.instance.id": "a", "group.instance.id.conflict.policy": "wait"}


def config(**keys: object) -> ConsumerConfig:
    """Return a configuration with these keys; underscores stand for dots."""
    given = {key.replace("_", "."): value for key, value in keys.items()}
    return ConsumerConfig.from_mapping({"bootstrap.servers": "broker:9092", "group.id": "orders", **given})


def protocols(**keys: object) -> ProtocolSettings:
    """Return the protocol settings that the member receives."""
    return config(**keys).protocol_settings()


def refusal(keys: Mapping[str, object]) -> ConfigurationError:
    """Return the error that this configuration raises."""
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping({"bootstrap.servers": "broker:9092", "group.id": "orders", **keys})
    return caught.value


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param(
            POOL,
            "remove group.instance.id.pool=a,b, which needs the consumer protocol, and set a different "
            "group.instance.id in each process, to use the classic protocol if the consumer protocol is not available",
            id="pool",
        ),
        pytest.param(
            WAIT | {"group.protocol": "consumer"},
            "remove group.instance.id.conflict.policy=wait, which needs the consumer protocol, and set a different "
            "group.instance.id in each process and set group.protocol to auto, to use the classic protocol if the "
            "consumer protocol is not available",
            id="wait, and consumer was asked for",
        ),
        pytest.param(
            {"group.protocol": "consumer"},
            "set group.protocol to auto, to use the classic protocol if the consumer protocol is not available",
            id="consumer was asked for",
        ),
        pytest.param(
            {"group.protocol": "classic"},
            "set group.protocol to auto, to use the consumer protocol if the group uses it",
            id="classic was asked for",
        ),
        pytest.param(
            {"partition.assignment.strategy": [FirstTakesAll()]},
            "remove the assignor 'first-takes-all' from partition.assignment.strategy, because custom assignors run "
            "in classic groups only, to use the consumer protocol if the group uses it",
            id="an assignor of one's own",
        ),
        pytest.param(
            {"topic.blacklist": "^private"},
            "remove topic.blacklist=^private, which brokers do not know, to use the consumer protocol if "
            "the group uses it",
            id="a blacklist",
        ),
        pytest.param({}, "", id="both are tried"),
    ],
)
def test_protocol_settings_name_change_that_allows_other_protocol(keys: Mapping[str, object], expected: str) -> None:
    """The settings name the key, its value and the change that would allow the other protocol."""
    given = {"bootstrap.servers": "broker:9092", "group.id": "orders", **keys}
    assert ConsumerConfig.from_mapping(given).protocol_settings().alternative == expected


def test_message_abbreviates_long_instance_pool() -> None:
    """A message shows only the first and the last id of a long pool."""
    pool = [f"i{number}" for number in range(100)]
    assert "remove group.instance.id.pool=i0,...,i99, which" in protocols(group_instance_id_pool=pool).alternative


def test_group_protocol_defaults_to_auto_and_prefers_consumer_protocol() -> None:
    """By default, members use the consumer protocol if the coordinator supports it, else the classic one."""
    settings = protocols()
    assert settings.protocols == (CONSUMER, CLASSIC)
    assert settings.reason == "group.protocol=auto"
    assert settings.notes == {CONSUMER: (), CLASSIC: ()}


@pytest.mark.parametrize(("word", "meant"), [("Classic", (CLASSIC,)), ("consumer", (CONSUMER,))])
def test_named_group_protocol_is_the_only_one_allowed(word: str, meant: tuple[GroupProtocol, ...]) -> None:
    """A named protocol, in upper or lower case, excludes the other protocol."""
    settings = protocols(group_protocol=word)
    assert settings.protocols == meant
    assert settings.reason == f"group.protocol={word.lower()}"


def test_topic_blacklist_makes_auto_choose_classic_protocol() -> None:
    """Brokers resolve patterns but do not support topic.blacklist; the reason states this."""
    settings = protocols(topic_blacklist="^internal-,secret")
    assert settings.protocols == (CLASSIC,)
    assert settings.reason.endswith("brokers resolve patterns and do not know topic.blacklist")
    assert settings.classic.blacklist == ("^internal-.*", ".*secret.*")
    assert protocols(topic_blacklist="a", group_protocol="consumer").protocols == (CONSUMER,)
    assert protocols(topic_blacklist="").protocols == (CONSUMER, CLASSIC)


@pytest.mark.parametrize(("value", "reason"), [("a,,b", "an empty pattern"), (",a", "an empty pattern"), ("^(", "a (")])
def test_topic_blacklist_with_invalid_pattern_is_rejected(value: str, reason: str) -> None:
    """Invalid patterns raise an error; librdkafka reads an empty pattern as one that excludes every topic."""
    error = refusal({"topic.blacklist": value})
    assert (error.key, error.value) == ("topic.blacklist", value)
    assert reason in str(error)


def test_classic_defaults_equal_librdkafka_except_heartbeat_interval() -> None:
    """Assignors, session and metadata refresh have librdkafka's defaults; heartbeats are twice as frequent."""
    classic = protocols(group_protocol="classic").classic
    assert [assignor.name for assignor in classic.assignors] == ["range", "roundrobin"]
    assert (classic.session_timeout_s, classic.heartbeat_interval_s, classic.refresh_interval_s) == (45.0, 1.5, 300.0)


def test_classic_timeouts_convert_milliseconds_to_seconds() -> None:
    """Milliseconds become seconds; -1 disables the periodic metadata refresh."""
    classic = protocols(
        session_timeout_ms="6000", heartbeat_interval_ms=500, topic_metadata_refresh_interval_ms=-1
    ).classic
    assert (classic.session_timeout_s, classic.heartbeat_interval_s, classic.refresh_interval_s) == (6.0, 0.5, 86400.0)


def test_short_session_timeout_shortens_default_heartbeat_interval() -> None:
    """The default heartbeat interval is at most a third of the session timeout."""
    assert protocols(session_timeout_ms=3000).classic.heartbeat_interval_s == 1.0


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("cooperative-sticky", ["cooperative-sticky"]),
        ("range, roundrobin", ["range", "roundrobin"]),
        (["sticky", "range"], ["sticky", "range"]),
        (f"{HERE}:FirstTakesAll,range", ["first-takes-all", "range"]),
        (FirstTakesAll, ["first-takes-all"]),
        ([FirstTakesAll(), "range"], ["first-takes-all", "range"]),
    ],
)
def test_assignors_accept_names_paths_classes_and_objects(given: object, names: list[str]) -> None:
    """Each form of an assignor is accepted, and the order of preference is kept."""
    classic = protocols(group_protocol="classic", partition_assignment_strategy=given).classic
    assert [assignor.name for assignor in classic.assignors] == names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([OnlyCooperative, "range"], "no rebalance protocol (eager or cooperative) in common"),
        (Nameless, "has the name ''"),
        (Claimant, "which is one of Kafka's own assignors"),
        (WithoutProtocols, "a frozenset of RebalanceProtocol.EAGER"),
        (f"{HERE}:Nothing", "cannot be imported"),
        ([None], "NoneType is not an assignor"),
        ([Deaf()], "on_assignment of the assignor Deaf is not callable; make it a method"),
    ],
)
def test_invalid_assignor_is_rejected(given: object, message: str) -> None:
    """The error states what is wrong with the assignor and what an assignor requires."""
    error = refusal({"partition.assignment.strategy": given})
    assert error.key == "partition.assignment.strategy"
    assert message in str(error)


def test_custom_assignor_makes_auto_choose_classic_protocol() -> None:
    """Brokers accept no client-side assignors (KIP-848), so a custom one requires a classic group."""
    settings = protocols(partition_assignment_strategy=[FirstTakesAll, "range"])
    assert settings.protocols == (CLASSIC,)
    assert "'first-takes-all'" in settings.reason


@pytest.mark.parametrize(("keys", "key"), [(POOL, "group.instance.id.pool"), (WAIT, [*WAIT][1])])
def test_instance_pool_and_wait_policy_exclude_classic_protocol(keys: dict[str, object], key: str) -> None:
    """In a classic group the newest member with an instance id wins, so no member can wait for a free id."""
    settings = config(**keys).protocol_settings()
    assert settings.protocols == (CONSUMER,)
    assert key in settings.reason
    error = refusal({**keys, "group.protocol": "classic"})
    assert error.key == key
    assert "set group.protocol to consumer or auto" in str(error)
    error = refusal({**keys, "partition.assignment.strategy": FirstTakesAll})
    assert error.key == key
    assert "remove the assignor 'first-takes-all'" in str(error)


def test_takeover_policy_allows_both_protocols() -> None:
    """Under both protocols, takeover lets the newest member with an instance id win."""
    keys = {"group_instance_id": "a", "group_instance_id_conflict_policy": "takeover"}
    assert protocols(**keys).protocols == (CONSUMER, CLASSIC)
    assert protocols(group_protocol="classic", **keys).protocols == (CLASSIC,)


def test_keys_of_other_protocol_produce_notes() -> None:
    """Keys of the other protocol do not choose a protocol; a note names the setting to change."""
    notes = protocols(
        session_timeout_ms=6000, partition_assignment_strategy="cooperative-sticky", group_remote_assignor="uniform"
    ).notes
    session, strategy = notes[CONSUMER]
    assert session.startswith("session.timeout.ms=6000 is not used under the consumer protocol")
    assert "group.consumer.session.timeout.ms" in session
    assert "consumer.session.timeout.ms for one group" in session
    assert "with its assignor uniform" in strategy
    (remote,) = notes[CLASSIC]
    assert remote.startswith("group.remote.assignor=uniform is not used under the classic protocol")


def test_range_assignor_selects_broker_range_assignor() -> None:
    """A member that prefers range requests the broker's range assignor; others use the broker's default."""
    assert config(partition_assignment_strategy="range,roundrobin").member_settings().assignor == "range"
    assert config(partition_assignment_strategy="roundrobin,range").member_settings().assignor is None
    chosen = config(partition_assignment_strategy="range", group_remote_assignor="uniform")
    assert chosen.member_settings().assignor == "uniform"
    assert config().member_settings().assignor is None


@pytest.mark.parametrize("key", ["session.timeout.ms", "partition.assignment.strategy", "group.protocol.type"])
def test_consumer_protocol_rejects_classic_keys(key: str) -> None:
    """Classic keys under group.protocol=consumer raise confluent-kafka's error."""
    value = {"session.timeout.ms": 6000, "partition.assignment.strategy": "range", "group.protocol.type": "consumer"}
    error = refusal({"group.protocol": "consumer", key: value[key]})
    assert error.key == key
    assert "is not supported for `group.protocol=consumer`" in str(error)


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"heartbeat.interval.ms": 45000}, "heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
        (
            {"group.protocol": "classic", "session.timeout.ms": 6000, "heartbeat.interval.ms": 6000},
            "heartbeat.interval.ms",
            "a third of session.timeout.ms",
        ),
        (
            {"max.poll.interval.ms": 5000, "session.timeout.ms": 6000},
            "max.poll.interval.ms",
            "`max.poll.interval.ms`must be >= `session.timeout.ms`",
        ),
    ],
)
def test_conflicting_timeouts_are_rejected(keys: dict[str, object], key: str, message: str) -> None:
    """A session timeout that cannot last until the next heartbeat raises an error on construction."""
    error = refusal(keys)
    assert error.key == key
    assert message in str(error)


def test_classic_protocol_accepts_long_heartbeat_interval_with_longer_session() -> None:
    """The consumer protocol's limit on heartbeats does not apply to a classic member."""
    keys = {"group_protocol": "classic", "session_timeout_ms": 120000, "heartbeat_interval_ms": 60000}
    assert protocols(**keys).classic.heartbeat_interval_s == 60.0


def test_fetcher_config_has_no_membership_keys() -> None:
    """The inner librdkafka handle is not a member, so it receives no membership keys."""
    fetcher = config(
        group_protocol="classic", session_timeout_ms=6000, partition_assignment_strategy=FirstTakesAll
    ).fetcher_config()
    assert not {"group.protocol", "session.timeout.ms", "partition.assignment.strategy"} & fetcher.keys()
