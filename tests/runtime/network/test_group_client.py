"""What anybody asks of a group's coordinator, against scripted brokers: answers, refusals, silence, and moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest

from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.runtime.network.group_client import GroupClient, GroupDescription, MemberIdentity
from consumer_membership.types import BrokerAddress, OffsetAndMetadata, TopicPartition
from tests.runtime.clients import (
    DESCRIBE,
    FIND,
    PATIENCE_S,
    T0,
    answers,
    node,
    offset_by_node,
    refusal_at_the_end,
    with_client,
)
from tests.support.scripted_broker import DISCONNECT, DROP, NEWEST, Answer, Received, Script, ScriptedBroker, Topic
from tests.wire.groups import (
    TOPIC_ID,
    classic_group,
    config_answer,
    consumer_group,
    consumer_member,
    fetch_answer_v9,
    leave_answer,
)

ResultT = TypeVar("ResultT")


def asked(
    scripted: Script,
    ask: Callable[[GroupClient, BrokerAddress], Awaitable[ResultT]],
    versions: Mapping[int, tuple[int, int]] = NEWEST,
) -> ResultT:
    """What one question to a scripted coordinator leads to."""
    with ScriptedBroker(scripted, versions=versions) as broker:

        async def act(client: Cluster) -> ResultT:
            return await ask(GroupClient(client), node(broker))

        return with_client(broker.servers, act)


def test_groups_of_both_protocols_are_described() -> None:
    """The answers come as values."""
    both = answers(describe=consumer_group(consumer_member("a")), classic=classic_group())
    described = asked(both, lambda client, at: client.describe_consumer_group(at, "g", PATIENCE_S))
    assert [member.member_id for member in described.members] == ["a"]
    classic = asked(both, lambda client, at: client.describe_classic_group(at, "g", PATIENCE_S))
    assert (classic.state, classic.members) == ("Stable", ())


@pytest.mark.parametrize(
    ("code", "retriable", "rediscover"),
    [(14, True, False), (15, True, True), (16, True, True), (30, False, False), (69, False, False)],
)
def test_refusal_says_whether_and_where_to_ask_again(code: int, retriable: bool, rediscover: bool) -> None:  # noqa: FBT001
    """As with a member's own questions."""
    with pytest.raises(BrokerRefusal) as caught:
        asked(
            answers(describe=consumer_group(code=code)),
            lambda client, at: client.describe_consumer_group(at, "g", PATIENCE_S),
        )
    refusal = caught.value
    assert (refusal.error.code, refusal.retriable, refusal.rediscover) == (code, retriable, rediscover)


def test_broker_without_the_api_refuses_for_good() -> None:
    """UNSUPPORTED_VERSION, with the API's name."""
    without = {key: ends for key, ends in NEWEST.items() if key != DESCRIBE}
    with pytest.raises(BrokerRefusal, match="ConsumerGroupDescribe") as caught:
        asked(answers(), lambda client, at: client.describe_consumer_group(at, "g", PATIENCE_S), versions=without)
    assert (caught.value.error.name, caught.value.retriable) == ("UNSUPPORTED_VERSION", False)


@pytest.mark.parametrize(("silence", "seconds"), [(DROP, 0.02), (DISCONNECT, PATIENCE_S)])
def test_no_answer_is_a_transport_error(silence: object, seconds: float) -> None:
    """Silence and a broken connection are not a group without members."""
    with pytest.raises(TransportError):
        asked(answers(describe=silence), lambda client, at: client.describe_consumer_group(at, "g", seconds))


def test_lookup_gives_up_a_connection_that_does_not_answer_in_its_time() -> None:
    """A path that forgot the connection: the next lookup makes a new one, long before socket.timeout.ms is over."""
    silent: list[int] = []

    def first_connection_is_dead(request: Received) -> Answer:
        if request.api_key != FIND:
            return None
        silent.append(request.connection)
        return DROP if request.connection == silent[0] else None

    async def look_up_twice(client: GroupClient, _: BrokerAddress) -> BrokerAddress:
        with pytest.raises(TransportError):
            await client.cluster.find_coordinator("g", 0.05)
        return await client.cluster.find_coordinator("g", PATIENCE_S)

    assert asked(first_connection_is_dead, look_up_twice).node_id == 1
    assert len(set(silent)) == 2


def test_members_are_removed_each_with_its_result() -> None:
    """One request for all of them."""
    members = (MemberIdentity(member_id="m"), MemberIdentity(instance_id="i"))
    done = answers(leave=leave_answer(("m", None, 0), ("", "i", 25)))
    removed, unknown = asked(done, lambda client, at: client.remove_members(at, "g", members, "why", PATIENCE_S))
    assert removed is None
    assert unknown is not None
    assert unknown.name == "UNKNOWN_MEMBER_ID"


def test_everything_committed() -> None:
    """By partition."""
    found = asked(
        answers(fetch=fetch_answer_v9({T0: (17, 0)})), lambda client, at: client.all_committed(at, "g", PATIENCE_S)
    )
    assert found == {T0: OffsetAndMetadata(offset=17, leader_epoch=3)}


def test_configuration_comes_from_any_broker() -> None:
    """And a refusal of it is one, with the group's name."""
    settings = {"consumer.session.timeout.ms": "45000"}
    found = asked(
        answers(configs=config_answer(settings)), lambda client, _: client.cluster.group_config("g", PATIENCE_S)
    )
    assert found == settings
    with pytest.raises(BrokerRefusal, match="Not authorized to access group: g"):
        asked(
            answers(configs=config_answer({}, code=30)), lambda client, _: client.cluster.group_config("g", PATIENCE_S)
        )
    with pytest.raises(TransportError):
        asked(answers(configs=DROP), lambda client, _: client.cluster.group_config("g", 0.02))


def test_one_partition_without_leader_keeps_no_other_back() -> None:
    """Each partition has its end, or why it is not known."""
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, (1, -1))}) as broker:
        wanted = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)]
        found = with_client(broker.servers, lambda client: client.end_offsets(wanted))
    assert found[wanted[0]] == 1
    refusals = [found[partition] for partition in wanted[1:]]
    assert [str(refusal).split(":")[0] for refusal in refusals] == [
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]


def test_coordinator_that_moved_is_looked_up_and_asked_again() -> None:
    """NOT_COORDINATOR and a coordinator that is loading are waited for, within the time."""

    def describe(request: Received) -> Answer:
        if request.node_id == 1:
            broker.coordinator = 2
            return consumer_group(code=16)
        return consumer_group(code=14) if len(broker.requests(DESCRIBE)) == 2 else consumer_group()

    async def act(client: Cluster) -> GroupDescription:
        return await client.with_coordinator(
            "g",
            "the group",
            PATIENCE_S,
            lambda at, left_s: GroupClient(client).describe_consumer_group(at, "g", left_s),
        )

    with ScriptedBroker(answers(describe=describe), nodes=2) as broker:
        assert with_client(broker.servers, act).group_id == "g"
        assert [request.node_id for request in broker.requests(DESCRIBE)] == [1, 2, 2]


def test_asking_ends_with_the_last_refusal_when_time_is_over() -> None:
    """A coordinator that stays loading is said to be loading."""

    async def act(client: Cluster, time_s: float) -> GroupDescription:
        return await client.with_coordinator(
            "g", "the group", time_s, lambda at, left_s: GroupClient(client).describe_consumer_group(at, "g", left_s)
        )

    with ScriptedBroker(answers(describe=consumer_group(code=14))) as broker:
        refused = refusal_at_the_end(
            lambda time_s: with_client(broker.servers, lambda client: act(client, time_s)), BrokerRefusal
        )
    assert refused.error.name == "COORDINATOR_LOAD_IN_PROGRESS"
