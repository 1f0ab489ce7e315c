"""Requests of any client to a group's coordinator, a scripted broker: responses, refusals, timeouts and moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.runtime.network.group_client import GroupClient, GroupDescription, MemberIdentity
from consumer_membership.types import BrokerAddress, BrokerError, CommittedOffsets, OffsetAndMetadata, TopicPartition
from tests.runtime.clients import (
    DESCRIBE,
    FETCH,
    HEARTBEAT,
    T0,
    T1,
    answers,
    heartbeat,
    node,
    refusal_at_timeout,
    with_client,
)
from tests.support.scripted_broker import DISCONNECT, DROP, NEWEST, Answer, Received, Script, ScriptedBroker
from tests.support.waiting import PATIENCE_S
from tests.wire.frames import heartbeat_answer
from tests.wire.groups import (
    classic_group,
    consumer_group,
    consumer_member,
    fetch_answer_v9,
    leave_answer,
)

ResultT = TypeVar("ResultT")


def result_of(
    scripted: Script,
    ask: Callable[[GroupClient, BrokerAddress], Awaitable[ResultT]],
    versions: Mapping[int, tuple[int, int]] = NEWEST,
) -> ResultT:
    """Return the result of one request to a scripted coordinator."""
    with ScriptedBroker(scripted, versions=versions) as broker:

        async def act(client: Cluster) -> ResultT:
            return await ask(GroupClient(client), node(broker))

        return with_client(broker.servers, act)


def test_group_client_describes_groups_of_both_protocols() -> None:
    """The responses are returned as values."""
    both = answers(describe=consumer_group(consumer_member("a")), classic=classic_group())
    described = result_of(both, lambda client, at: client.describe_consumer_group(at, "g", PATIENCE_S))
    assert [member.member_id for member in described.members] == ["a"]
    classic = result_of(both, lambda client, at: client.describe_classic_group(at, "g", PATIENCE_S))
    assert (classic.state, classic.members) == ("Stable", ())


@pytest.mark.parametrize(
    ("code", "retriable", "rediscover"),
    [(14, True, False), (15, True, True), (16, True, True), (30, False, False), (69, False, False)],
)
def test_describe_refusal_reports_retry_and_coordinator_lookup(code: int, retriable: bool, rediscover: bool) -> None:  # noqa: FBT001
    """The verdicts are the same as for a member's own requests."""
    with pytest.raises(BrokerRefusal) as caught:
        result_of(
            answers(describe=consumer_group(code=code)),
            lambda client, at: client.describe_consumer_group(at, "g", PATIENCE_S),
        )
    refusal = caught.value
    assert (refusal.error.code, refusal.retriable, refusal.rediscover) == (code, retriable, rediscover)


def test_describe_raises_unsupported_version_on_a_broker_without_the_api() -> None:
    """The refusal is final, and names the API."""
    without = {key: ends for key, ends in NEWEST.items() if key != DESCRIBE}
    with pytest.raises(BrokerRefusal, match="ConsumerGroupDescribe") as caught:
        result_of(answers(), lambda client, at: client.describe_consumer_group(at, "g", PATIENCE_S), versions=without)
    assert (caught.value.error.name, caught.value.retriable) == ("UNSUPPORTED_VERSION", False)


@pytest.mark.parametrize(("silence", "seconds"), [(DROP, 0.02), (DISCONNECT, PATIENCE_S)])
def test_describe_without_a_response_raises_transport_error(silence: object, seconds: float) -> None:
    """A missing response or a broken connection does not mean a group without members."""
    with pytest.raises(TransportError):
        result_of(answers(describe=silence), lambda client, at: client.describe_consumer_group(at, "g", seconds))


def test_remove_members_returns_a_result_for_each_member() -> None:
    """One request removes all members."""
    members = (MemberIdentity(member_id="m"), MemberIdentity(instance_id="i"))
    done = answers(leave=leave_answer(("m", None, 0), ("", "i", 25)))
    removed, unknown = result_of(done, lambda client, at: client.remove_members(at, "g", members, "why", PATIENCE_S))
    assert removed is None
    assert unknown is not None
    assert unknown.name == "UNKNOWN_MEMBER_ID"


def test_all_committed_returns_offsets_by_partition() -> None:
    """`all_committed` returns each committed offset of the group with its leader epoch."""
    found = result_of(
        answers(fetch=fetch_answer_v9({T0: (17, 0)})), lambda client, at: client.all_committed(at, "g", PATIENCE_S)
    )
    assert found == {T0: OffsetAndMetadata(offset=17, leader_epoch=3)}


def test_with_coordinator_follows_a_coordinator_that_moved() -> None:
    """The request is repeated within its time after NOT_COORDINATOR, and while a coordinator loads."""

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


def test_with_coordinator_raises_the_last_refusal_when_time_is_over() -> None:
    """The error for a coordinator that keeps loading is COORDINATOR_LOAD_IN_PROGRESS."""

    async def act(client: Cluster, time_s: float) -> GroupDescription:
        return await client.with_coordinator(
            "g", "the group", time_s, lambda at, left_s: GroupClient(client).describe_consumer_group(at, "g", left_s)
        )

    with ScriptedBroker(answers(describe=consumer_group(code=14))) as broker:
        refused = refusal_at_timeout(
            lambda time_s: with_client(broker.servers, lambda client: act(client, time_s)), BrokerRefusal
        )
    assert refused.error.name == "COORDINATOR_LOAD_IN_PROGRESS"


def fetched(script: Script, *partitions: TopicPartition) -> Any:
    """Return the result of fetch_committed."""
    with ScriptedBroker(script) as broker:
        return with_client(
            broker.servers,
            lambda client: GroupClient(client).fetch_committed(
                node(broker), "g", partitions, member_id="m", member_epoch=5, require_stable=True, timeout_s=PATIENCE_S
            ),
        )


def test_fetch_committed_sends_member_id_and_epoch() -> None:
    """None means that the partition has no committed offset; the request uses version 9."""
    seen: list[Received] = []

    def fetch(request: Received) -> Answer:
        seen.append(request)
        return fetch_answer_v9({T0: (17, 0), T1: (-1, 0)})

    assert fetched(answers(fetch=fetch), T0, T1) == {T0: OffsetAndMetadata(offset=17, leader_epoch=3), T1: None}
    (group,) = seen[0].entity.groups
    assert (group.member_id, group.member_epoch, seen[0].entity.require_stable) == ("m", 5, True)


@pytest.mark.parametrize(
    ("code", "retriable", "rediscover"),
    [(14, True, False), (16, True, True), (25, True, False), (30, False, False), (88, True, False), (113, True, False)],
)
def test_fetch_committed_raises_a_refusal_instead_of_no_offset(code: int, retriable: bool, rediscover: bool) -> None:  # noqa: FBT001
    """Rules 3.7: the refusal shows whether to wait, to look up the coordinator, or to fail."""
    with pytest.raises(BrokerRefusal) as caught:
        fetched(answers(fetch=lambda _: fetch_answer_v9({}, code)), T0)
    refusal = caught.value
    assert (refusal.error.code, refusal.retriable, refusal.rediscover) == (code, retriable, rediscover)


def test_fetch_committed_raises_a_transport_error_instead_of_no_offset() -> None:
    """A connection that breaks raises TransportError."""
    with pytest.raises(TransportError, match="the peer closed the connection"):
        fetched(answers(fetch=lambda _: DISCONNECT), T0)


def test_fetch_committed_without_partitions_sends_no_request() -> None:
    """Without partitions the result is empty."""
    assert fetched(answers()) == {}


def result_by_partition(script: Script, member_id: str, timeout_s: float = PATIENCE_S) -> CommittedOffsets:
    """Return the result of committed_by_partition for two partitions."""
    with ScriptedBroker(script) as broker:
        return with_client(
            broker.servers,
            lambda client: GroupClient(client).committed_by_partition(
                node(broker),
                "g",
                (T0, T1),
                member_id=member_id,
                member_epoch=5,
                require_stable=True,
                timeout_s=timeout_s,
            ),
        )


def test_committed_by_partition_returns_an_offset_or_an_error_for_each_partition() -> None:
    """The error of one partition does not hide the offsets of the others."""
    found = result_by_partition(answers(fetch=lambda _: fetch_answer_v9({T0: (17, 0), T1: (-1, 29)})), "m")
    assert found[T0] == OffsetAndMetadata(offset=17, leader_epoch=3)
    assert found[T1] == BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="Topic authorization failed.")


@pytest.mark.parametrize(
    ("code", "as_member", "as_nobody"),
    [(14, True, True), (16, True, True), (25, True, False), (69, True, False), (113, True, False), (30, False, False)],
)
def test_identity_error_of_a_fetch_is_retriable_only_for_a_member(code: int, as_member: bool, as_nobody: bool) -> None:  # noqa: FBT001
    """A member's heartbeats bring another epoch or membership; a client without membership would retry forever."""
    for member_id, expected in (("m", as_member), ("", as_nobody)):
        with pytest.raises(BrokerRefusal) as caught:
            result_by_partition(answers(fetch=lambda _: fetch_answer_v9({}, code)), member_id)
        assert caught.value.retriable is expected


def test_committed_by_partition_retries_during_an_open_transaction() -> None:
    """KIP-447: UNSTABLE_OFFSET_COMMIT marks the partition, and the end of the transaction decides its offset."""
    with pytest.raises(BrokerRefusal, match="UNSTABLE_OFFSET_COMMIT") as caught:
        result_by_partition(answers(fetch=lambda _: fetch_answer_v9({T0: (17, 0), T1: (-1, 88)})), "")
    assert caught.value.retriable


def test_committed_by_partition_closes_a_connection_that_did_not_respond() -> None:
    """A client without heartbeats would use the dead connection again and again."""

    def first_connection_is_dead(request: Received) -> Answer:
        if request.api_key != FETCH:
            return heartbeat_answer() if request.api_key == HEARTBEAT else None
        asked.append(request.connection)
        return DROP if asked.index(request.connection) == 0 else fetch_answer_v9({T0: (17, 0), T1: (-1, 0)})

    async def act(client: Cluster) -> CommittedOffsets:
        # The short timeout applies to the response, not to the connection.
        await exchange(client, node(broker), "g", heartbeat(), PATIENCE_S)
        with pytest.raises(TransportError):
            await ask(client, 0.05)
        return await ask(client, PATIENCE_S)

    async def ask(client: Cluster, timeout_s: float) -> CommittedOffsets:
        return await GroupClient(client).committed_by_partition(
            node(broker), "g", (T0, T1), member_id="", member_epoch=-1, require_stable=True, timeout_s=timeout_s
        )

    asked: list[int] = []
    with ScriptedBroker(first_connection_is_dead) as broker:
        assert with_client(broker.servers, act)[T1] is None
    assert len(set(asked)) == 2
