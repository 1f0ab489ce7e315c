"""Which group protocols a configuration fits, the assignors that it names, and what of it is in vain."""

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
    """A user's own assignor; members are not asked what they want."""

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
    """A configuration with these keys, underscores for dots."""
    given = {key.replace("_", "."): value for key, value in keys.items()}
    return ConsumerConfig.from_mapping({"bootstrap.servers": "broker:9092", "group.id": "orders", **given})


def protocols(**keys: object) -> ProtocolSettings:
    """What the member gets to know of its protocols."""
    return config(**keys).protocol_settings()


def refusal(keys: Mapping[str, object]) -> ConfigurationError:
    """The error that this configuration ends in."""
    with pytest.raises(ConfigurationError) as caught:
        ConsumerConfig.from_mapping({"bootstrap.servers": "broker:9092", "group.id": "orders", **keys})
    return caught.value


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param(
            POOL,
            "leave group.instance.id.pool=a,b out, which works in groups of the consumer protocol only, and give each "
            "process its own group.instance.id, to have the classic protocol where the consumer protocol is not to be "
            "had",
            id="pool",
        ),
        pytest.param(
            WAIT | {"group.protocol": "consumer"},
            "leave group.instance.id.conflict.policy=wait out, which works in groups of the consumer protocol only, "
            "and give each process its own group.instance.id and set group.protocol to auto, to have the classic "
            "protocol where the consumer protocol is not to be had",
            id="wait, and consumer was asked for",
        ),
        pytest.param(
            {"group.protocol": "consumer"},
            "set group.protocol to auto, to have the classic protocol where the consumer protocol is not to be had",
            id="consumer was asked for",
        ),
        pytest.param(
            {"group.protocol": "classic"},
            "set group.protocol to auto, to have the consumer protocol where the group is of that",
            id="classic was asked for",
        ),
        pytest.param(
            {"partition.assignment.strategy": [FirstTakesAll()]},
            "leave the assignor 'first-takes-all' out of partition.assignment.strategy, which runs in classic groups "
            "only, to have the consumer protocol where the group is of that",
            id="an assignor of one's own",
        ),
        pytest.param(
            {"topic.blacklist": "^private"},
            "leave topic.blacklist=^private out, of which brokers cannot be told, to have the consumer protocol where "
            "the group is of that",
            id="a blacklist",
        ),
        pytest.param({}, "", id="both are tried"),
    ],
)
def test_what_would_allow_the_other_protocol_is_said(keys: Mapping[str, object], expected: str) -> None:
    """The refusal of the only protocol that fits names the key, its value and the remedy."""
    given = {"bootstrap.servers": "broker:9092", "group.id": "orders", **keys}
    assert ConsumerConfig.from_mapping(given).protocol_settings().alternative == expected


def test_long_pool_is_told_by_its_ends() -> None:
    """A hundred ids are no sentence."""
    pool = [f"i{number}" for number in range(100)]
    assert "group.instance.id.pool=i0,...,i99 out" in protocols(group_instance_id_pool=pool).alternative


def test_auto_is_the_default_and_prefers_the_consumer_protocol() -> None:
    """Nothing is said: the consumer protocol where the coordinator takes it, else the classic one."""
    settings = protocols()
    assert settings.protocols == (CONSUMER, CLASSIC)
    assert settings.reason == "group.protocol=auto"
    assert settings.notes == {CONSUMER: (), CLASSIC: ()}


@pytest.mark.parametrize(("word", "meant"), [("Classic", (CLASSIC,)), ("consumer", (CONSUMER,))])
def test_named_protocol_is_the_only_one(word: str, meant: tuple[GroupProtocol, ...]) -> None:
    """Who names a protocol gets that one or an error, in whatever case it is written."""
    settings = protocols(group_protocol=word)
    assert settings.protocols == meant
    assert settings.reason == f"group.protocol={word.lower()}"


def test_blacklist_makes_auto_classic() -> None:
    """No broker can be told of it, and a broker assigns what matches a pattern; the reason says so."""
    settings = protocols(topic_blacklist="^internal-,secret")
    assert settings.protocols == (CLASSIC,)
    assert settings.reason.endswith("brokers, which assign what matches a pattern, cannot be told of topic.blacklist")
    assert settings.classic.blacklist == ("^internal-.*", ".*secret.*")
    assert protocols(topic_blacklist="a", group_protocol="consumer").protocols == (CONSUMER,)
    assert protocols(topic_blacklist="").protocols == (CONSUMER, CLASSIC)


@pytest.mark.parametrize(("value", "reason"), [("a,,b", "an empty pattern"), (",a", "an empty pattern"), ("^(", "a (")])
def test_blacklist_that_is_none_is_refused(value: str, reason: str) -> None:
    """An empty pattern is one to librdkafka: it keeps out every topic."""
    error = refusal({"topic.blacklist": value})
    assert (error.key, error.value) == ("topic.blacklist", value)
    assert reason in str(error)


def test_classic_defaults_are_librdkafkas_but_for_the_heartbeat() -> None:
    """Range before roundrobin, a session of 45 s, topics looked up every 5 minutes; heartbeats twice as often."""
    classic = protocols(group_protocol="classic").classic
    assert [assignor.name for assignor in classic.assignors] == ["range", "roundrobin"]
    assert (classic.session_timeout_s, classic.heartbeat_interval_s, classic.refresh_interval_s) == (45.0, 1.5, 300.0)


def test_classic_times_are_the_given_ones() -> None:
    """Milliseconds become seconds; -1 means that topics are not looked up by time."""
    classic = protocols(
        session_timeout_ms="6000", heartbeat_interval_ms=500, topic_metadata_refresh_interval_ms=-1
    ).classic
    assert (classic.session_timeout_s, classic.heartbeat_interval_s, classic.refresh_interval_s) == (6.0, 0.5, 86400.0)


def test_short_session_shortens_the_default_heartbeat() -> None:
    """A session shorter than three default heartbeats would end by one lost heartbeat."""
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
def test_assignors_are_names_paths_classes_and_objects(given: object, names: list[str]) -> None:
    """They are kept in the order of preference."""
    classic = protocols(group_protocol="classic", partition_assignment_strategy=given).classic
    assert [assignor.name for assignor in classic.assignors] == names


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([OnlyCooperative, "range"], "no rebalance protocol in common"),
        (Nameless, "has the name ''"),
        (Claimant, "by which every client means Kafka's own"),
        (WithoutProtocols, "a frozenset of RebalanceProtocol.EAGER"),
        (f"{HERE}:Nothing", "cannot be imported"),
        ([None], "NoneType is no assignor"),
        ([Deaf()], "on_assignment of the assignor Deaf cannot be called; make it a method"),
    ],
)
def test_what_is_no_assignor_is_refused(given: object, words: str) -> None:
    """The refusal says what is wrong with it, and what an assignor has."""
    error = refusal({"partition.assignment.strategy": given})
    assert error.key == "partition.assignment.strategy"
    assert words in str(error)


def test_own_assignor_makes_auto_classic() -> None:
    """Brokers do not take assignors from clients (KIP-848): a user's own runs in classic groups only."""
    settings = protocols(partition_assignment_strategy=[FirstTakesAll, "range"])
    assert settings.protocols == (CLASSIC,)
    assert "'first-takes-all'" in settings.reason


@pytest.mark.parametrize(("keys", "key"), [(POOL, "group.instance.id.pool"), (WAIT, [*WAIT][1])])
def test_what_only_the_consumer_protocol_can_do_rules_classic_out(keys: dict[str, object], key: str) -> None:
    """In a classic group the newest holder of an instance id wins: nobody can wait for it, or look for a free one."""
    settings = config(**keys).protocol_settings()
    assert settings.protocols == (CONSUMER,)
    assert key in settings.reason
    error = refusal({**keys, "group.protocol": "classic"})
    assert error.key == key
    assert "set group.protocol to consumer or auto" in str(error)
    error = refusal({**keys, "partition.assignment.strategy": FirstTakesAll})
    assert error.key == key
    assert "leave the assignor 'first-takes-all' out" in str(error)


def test_takeover_is_what_classic_groups_do() -> None:
    """The newest wins under both protocols."""
    keys = {"group_instance_id": "a", "group_instance_id_conflict_policy": "takeover"}
    assert protocols(**keys).protocols == (CONSUMER, CLASSIC)
    assert protocols(group_protocol="classic", **keys).protocols == (CLASSIC,)


def test_keys_of_the_other_protocol_are_noted() -> None:
    """They do not decide; the note names the setting to change."""
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


def test_range_asks_the_broker_for_range() -> None:
    """Who prefers range wants what it keeps together, and the broker has it; the others are the broker's default."""
    assert config(partition_assignment_strategy="range,roundrobin").member_settings().assignor == "range"
    assert config(partition_assignment_strategy="roundrobin,range").member_settings().assignor is None
    chosen = config(partition_assignment_strategy="range", group_remote_assignor="uniform")
    assert chosen.member_settings().assignor == "uniform"
    assert config().member_settings().assignor is None


@pytest.mark.parametrize("key", ["session.timeout.ms", "partition.assignment.strategy", "group.protocol.type"])
def test_named_consumer_protocol_refuses_the_classic_keys(key: str) -> None:
    """As confluent-kafka does, in its words."""
    value = {"session.timeout.ms": 6000, "partition.assignment.strategy": "range", "group.protocol.type": "consumer"}
    error = refusal({"group.protocol": "consumer", key: value[key]})
    assert error.key == key
    assert "is not supported for `group.protocol=consumer`" in str(error)


@pytest.mark.parametrize(
    ("keys", "key", "words"),
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
def test_times_that_exclude_each_other_are_refused(keys: dict[str, object], key: str, words: str) -> None:
    """A session that cannot last until the next heartbeat is worth an error before the first one is lost."""
    error = refusal(keys)
    assert error.key == key
    assert words in str(error)


def test_long_classic_heartbeat_is_fine_with_a_longer_session() -> None:
    """The bound of the consumer protocol's brokers does not hold for a classic member."""
    keys = {"group_protocol": "classic", "session_timeout_ms": 120000, "heartbeat_interval_ms": 60000}
    assert protocols(**keys).classic.heartbeat_interval_s == 60.0


def test_fetcher_sees_none_of_it() -> None:
    """The inner handle is no member: what makes one is kept from it."""
    fetcher = config(
        group_protocol="classic", session_timeout_ms=6000, partition_assignment_strategy=FirstTakesAll
    ).fetcher_config()
    assert not {"group.protocol", "session.timeout.ms", "partition.assignment.strategy"} & fetcher.keys()
