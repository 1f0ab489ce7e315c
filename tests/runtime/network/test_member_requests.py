"""The tables of a member's network orders: they contain every order and no other type."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, get_args
from uuid import UUID

import pytest
from kio.schema.describe_groups.v6 import response as describe_groups_v6
from kio.schema.errors import ErrorCode

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.config import ByDuration, ConnectionSettings, OffsetReset, StartSettings
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.effects import FetchCommitted, LookUpTopics, ResolveTopicIds, SendHeartbeat
from consumer_membership.membership.events import (
    CoordinatorFound,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    StartOffsetsFetched,
    TopicIdsResolved,
    Verdict,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.runtime.network import exchanges
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.member_requests import MemberRequests, NetworkOrder
from consumer_membership.translation.consumer_protocol import encode_assignment, encode_subscription
from consumer_membership.types import CONFLICT_CODE, UNRELEASED_INSTANCE_CODE, GroupProtocol, TopicPartition
from consumer_membership.wire.versions import Api
from tests.runtime.clients import (
    COMMIT,
    FETCH,
    METADATA,
    T0,
    T1,
    answers,
    commit_of,
    heartbeat,
    node,
    offsets_answer,
    with_client,
)
from tests.support.protocols import AUTO
from tests.support.scripted_broker import DISCONNECT, ZERO, Answer, Received, ScriptedBroker, Topic
from tests.support.waiting import PATIENCE_S
from tests.wire.frames import heartbeat_answer
from tests.wire.groups import fetch_answer_v9, leave_answer

ExchangeOutcome: TypeAlias = HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed

DESCRIBE, LEAVE, HEARTBEAT = Api.DESCRIBE_GROUPS, Api.LEAVE_GROUP, Api.CONSUMER_GROUP_HEARTBEAT
OF_GROUPS = {DESCRIBE, LEAVE, HEARTBEAT}


@pytest.fixture
def requests() -> MemberRequests:
    """The requests of a member, without a broker."""
    protocols = ProtocolSettings(
        classic=ClassicSettings(assignors=()), protocols=(GroupProtocol.CLASSIC,), reason="a test"
    )
    member = MemberCore(MemberSettings(group_id="g"), protocols, new_member_id=lambda: "m", jitter=lambda: 0.5)
    cluster = Cluster(ConnectionSettings(bootstrap_servers=()))
    start = StartSettings(reset=OffsetReset.LATEST, read_committed=True)
    return MemberRequests(cluster, member, start, lambda _: None)


def test_member_requests_handle_every_network_order(requests: MemberRequests) -> None:
    """If the table lacked an order, that order would end the membership thread."""
    assert requests.handlers.keys() == set(get_args(NetworkOrder))


def test_exchanges_handle_every_coordinator_effect() -> None:
    """If the table lacked an effect, that effect would end the membership thread."""
    assert exchanges._EXCHANGES.keys() == set(get_args(exchanges.CoordinatorEffect))


# ---- classic groups that are not converted ---------------------------------------------------------------------------


def group(
    code: ErrorCode = ErrorCode.none, members: int = 0, *, state: str = "Stable", instance_id: str | None = None
) -> Callable[[Received], Answer]:
    """Return a function that makes the DescribeGroups response of version 6."""

    def answer(request: Received) -> Answer:
        one = describe_groups_v6.DescribedGroupMember(
            member_id="m",
            group_instance_id=instance_id,
            client_id="c",
            client_host="/h",
            member_metadata=encode_subscription(MemberSubscription(topics=frozenset({"t"}))),
            member_assignment=encode_assignment({T0}),
        )
        found = describe_groups_v6.DescribedGroup(
            error_code=code,
            error_message=None,
            group_id="g",
            group_state=state if members else "Empty",
            protocol_type="consumer",
            protocol_data="range",
            members=(one,) * members,
        )
        return request.response(throttle_time=ZERO, groups=(found,))

    return answer


def requested(
    described: Callable[[Received], Answer] | Answer, order: SendHeartbeat, left: Answer = None, partitions: int = 1
) -> tuple[ExchangeOutcome, list[Api]]:
    """Return the outcome of a heartbeat, and the requests that were sent for it."""
    script = answers(classic=described, heartbeat=heartbeat_answer(epoch=1), leave=left)
    member = MemberCore(MemberSettings(group_id="g"), AUTO, new_member_id=lambda: "m", jitter=lambda: 0.5)

    async def act(cluster: Cluster) -> ExchangeOutcome:
        member.handle(CoordinatorFound(coordinator=node(broker)), 1.0)
        start = StartSettings(reset=OffsetReset.LATEST, read_committed=True)
        outcome = await MemberRequests(cluster, member, start, lambda _: None).answer_to(order)
        assert isinstance(outcome, HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed)
        return outcome

    with ScriptedBroker(script, topics={"t": Topic(UUID(int=7), leaders=(1,) * partitions)}) as broker:
        outcome = with_client(broker.servers, act)
        return outcome, [api for request in broker.requests() if (api := Api(request.api_key)) in OF_GROUPS]


def joined(
    described: Callable[[Received], Answer] | Answer, *, refuse_conversion: bool = True
) -> tuple[ExchangeOutcome, int]:
    """Return the outcome of a join, and how many times it was sent."""
    outcome, sent = requested(described, replace(heartbeat(epoch=0), refuse_conversion=refuse_conversion))
    return outcome, sent.count(HEARTBEAT)


def test_join_that_would_convert_a_group_with_members_is_not_sent() -> None:
    """The configuration did not request the conversion; the error names the setting that converts the group."""
    outcome, sent = joined(group(members=2))
    assert isinstance(outcome, HeartbeatRejected)
    assert outcome.error.message == "the group has 2 classic members; group.protocol=consumer converts it"
    assert (outcome.error.code, sent) == (CONFLICT_CODE, 0)


@pytest.mark.parametrize(
    "described",
    [group(), group(ErrorCode.group_id_not_found), group(ErrorCode.group_authorization_failed)],
    ids=["only committed offsets", "no group", "not authorized"],
)
def test_join_is_sent_to_a_group_without_classic_members_or_without_permission(
    described: Callable[[Received], Answer],
) -> None:
    """If the client may not describe the group, the join itself reports the missing permission."""
    outcome, sent = joined(described)
    assert isinstance(outcome, HeartbeatAnswered)
    assert sent == 1


@pytest.mark.parametrize(
    "described",
    [group(ErrorCode.not_coordinator), group(ErrorCode.coordinator_load_in_progress), DISCONNECT],
    ids=["not the coordinator", "loading", "gone"],
)
def test_join_fails_until_the_group_can_be_described(described: Callable[[Received], Answer] | Answer) -> None:
    """As after a heartbeat without a response, the coordinator is looked up, and the join is tried again."""
    outcome, sent = joined(described)
    assert isinstance(outcome, HeartbeatFailed)
    assert sent == 0


def test_join_with_group_protocol_consumer_is_sent_to_a_group_with_classic_members() -> None:
    """The join converts the group, as the configuration requests."""
    outcome, sent = joined(group(members=2), refuse_conversion=False)
    assert isinstance(outcome, HeartbeatAnswered)
    assert sent == 1


# ---- the order of a member's requests --------------------------------------------------------------------------------


def test_leave_withdraws_a_join_that_waits_for_its_describe_response() -> None:
    """If a leave is ordered while the join still describes the group, only the leave changes the group."""
    is_asked, may_answer = threading.Event(), threading.Event()
    member = MemberCore(MemberSettings(group_id="g"), AUTO, new_member_id=lambda: "m", jitter=lambda: 0.5)

    def described(request: Received) -> Answer:
        is_asked.set()
        assert may_answer.wait(PATIENCE_S)
        return group()(request)

    async def act(cluster: Cluster) -> tuple[GroupEvent, GroupEvent]:
        member.handle(CoordinatorFound(coordinator=node(broker)), 1.0)
        start = StartSettings(reset=OffsetReset.LATEST, read_committed=True)
        requests = MemberRequests(cluster, member, start, lambda _: None)
        join = asyncio.create_task(
            requests.answer_to(replace(heartbeat(epoch=0, request_id=1), refuse_conversion=True))
        )
        assert await asyncio.to_thread(is_asked.wait, PATIENCE_S)
        leave = asyncio.create_task(requests.answer_to(heartbeat(epoch=-1, request_id=2)))
        await asyncio.wait((leave,), timeout=0)
        may_answer.set()
        return await join, await leave

    with ScriptedBroker(answers(classic=described, heartbeat=heartbeat_answer(epoch=-1))) as broker:
        joined, left = with_client(broker.servers, act)
        epochs = [request.entity.member_epoch for request in broker.requests() if request.api_key == HEARTBEAT]
    assert isinstance(left, HeartbeatAnswered)
    assert (joined, epochs) == (
        HeartbeatFailed(request_id=1, reason="the member left before its request to join was sent", is_sent=False),
        [-1],
    )


def test_member_requests_keep_their_order_on_a_connection_that_is_not_open_yet() -> None:
    """A commit does not overtake an earlier join that waits for its describe response."""
    member = MemberCore(MemberSettings(group_id="g"), AUTO, new_member_id=lambda: "m", jitter=lambda: 0.5)

    async def act(cluster: Cluster) -> None:
        member.handle(CoordinatorFound(coordinator=node(broker)), 1.0)
        start = StartSettings(reset=OffsetReset.LATEST, read_committed=True)
        requests = MemberRequests(cluster, member, start, lambda _: None)
        join = replace(heartbeat(epoch=0, request_id=1), refuse_conversion=True)
        await asyncio.gather(*map(requests.answer_to, (join, commit_of(T0), heartbeat(epoch=5, request_id=2))))  # type: ignore[arg-type]  # all of them are requests

    script = answers(classic=group(), heartbeat=heartbeat_answer(epoch=1), commit=DISCONNECT)
    with ScriptedBroker(script, topics={"t": Topic(UUID(int=7), leaders=(1,))}) as broker:
        with_client(broker.servers, act)
        keys = [Api(request.api_key) for request in broker.requests() if request.api_key in {*OF_GROUPS, COMMIT}]
    assert keys[:3] == [DESCRIBE, HEARTBEAT, COMMIT]


# ---- classic groups that a static member converts --------------------------------------------------------------------


def static(epoch: int = 0, *, may_take_over: bool = True) -> SendHeartbeat:
    """Return a heartbeat of a member with the instance id "i"."""
    order = heartbeat(epoch=epoch)
    return replace(order, heartbeat=replace(order.heartbeat, instance_id="i"), may_take_over=may_take_over)


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_static_join_without_takeover_keeps_a_classic_holder(state: str) -> None:
    """The conflict policy also protects a classic holder, although the broker would replace it."""
    described = group(members=3, state=state, instance_id="i")
    outcome, sent = requested(described, static(may_take_over=False))
    assert isinstance(outcome, HeartbeatRejected)
    assert (outcome.verdict, outcome.holder, sent) == (Verdict.UNRELEASED, "m", [DESCRIBE])
    assert (outcome.error.code, outcome.error.name) == (UNRELEASED_INSTANCE_CODE, "UNRELEASED_INSTANCE_ID")


@pytest.mark.parametrize(
    ("state", "partitions"), [("PreparingRebalance", 1), ("CompletingRebalance", 1), ("Stable", 2)]
)
def test_static_join_removes_its_classic_predecessor_if_the_assignment_is_outdated(state: str, partitions: int) -> None:
    """KAFKA-21582: a replacement would keep the old assignment, but a new member receives a new one.

    The assignment is outdated while the group rebalances, and after the topic has grown; it covers one partition here.
    """
    described = group(members=3, state=state, instance_id="i")
    outcome, sent = requested(described, static(), leave_answer(("", "i", 0)), partitions)
    assert (type(outcome), sent) == (HeartbeatAnswered, [DESCRIBE, LEAVE, HEARTBEAT])


@pytest.mark.parametrize(
    "described",
    [
        group(members=3, instance_id="i"),
        group(members=3, state="PreparingRebalance", instance_id="other"),
        group(members=3, state="PreparingRebalance"),
        group(),
        group(ErrorCode.group_id_not_found),
        group(ErrorCode.group_authorization_failed),
    ],
    ids=["stable", "another instance", "no instance id", "no members", "no group", "not authorized"],
)
def test_static_join_removes_no_member_if_the_join_is_enough(described: Callable[[Received], Answer]) -> None:
    """A replacement moves no partition, and a new member causes a new assignment."""
    outcome, sent = requested(described, static())
    assert (type(outcome), sent) == (HeartbeatAnswered, [DESCRIBE, HEARTBEAT])


@pytest.mark.parametrize("order", [heartbeat(epoch=0), static(epoch=5)], ids=["a dynamic member's join", "a heartbeat"])
def test_heartbeat_without_a_static_join_sends_no_describe_request(order: SendHeartbeat) -> None:
    """A dynamic member never sends the request, and a static member sends it only to join."""
    outcome, sent = requested(group(members=3, state="PreparingRebalance", instance_id="i"), order)
    assert (type(outcome), sent) == (HeartbeatAnswered, [HEARTBEAT])


@pytest.mark.parametrize(
    ("left", "then"),
    [
        (leave_answer(("", "i", 25)), [HEARTBEAT]),
        (leave_answer(code=30), [HEARTBEAT]),
        (leave_answer(code=16), []),
        (DISCONNECT, []),
    ],
    ids=["unknown member", "not authorized", "not the coordinator", "disconnected"],
)
def test_static_join_is_sent_after_a_final_refusal_of_the_removal(left: Answer, then: list[Api]) -> None:
    """If the removal may succeed later, the join is tried again, as after a heartbeat without a response."""
    described = group(members=3, state="PreparingRebalance", instance_id="i")
    outcome, sent = requested(described, static(), left)
    assert (isinstance(outcome, HeartbeatAnswered), sent) == (bool(then), [DESCRIBE, LEAVE, *then])


# ---- requests that a join makes unnecessary --------------------------------------------------------------------------


def test_join_to_a_described_group_does_not_check_for_a_classic_group() -> None:
    """A group with members of the consumer protocol is not a classic group."""
    outcome, sent = requested(group(members=2), replace(static(), refuse_conversion=True, is_consumer_group=True))
    assert (type(outcome), sent) == (HeartbeatAnswered, [HEARTBEAT])


def after_join(*orders: NetworkOrder, expected: TopicPartition = T0) -> tuple[list[GroupEvent], list[int]]:
    """Return the results of these orders after a join that expects a partition, and the requests that were sent."""
    member = MemberCore(MemberSettings(group_id="g"), AUTO, new_member_id=lambda: "m", jitter=lambda: 0.5)
    script = answers(heartbeat=heartbeat_answer(epoch=1), fetch=lambda _: fetch_answer_v9({T0: (7, 0), T1: (8, 0)}))

    async def act(cluster: Cluster) -> list[GroupEvent]:
        member.handle(CoordinatorFound(coordinator=node(broker)), 1.0)
        start = StartSettings(reset=OffsetReset.LATEST, read_committed=True)
        requests = MemberRequests(cluster, member, start, lambda _: None)
        join = replace(static(), is_consumer_group=True, expected=frozenset({expected}))
        try:
            return [await requests.answer_to(order) for order in (join, *orders)][1:]
        finally:
            await requests.close()

    with ScriptedBroker(script, topics={"t": Topic(UUID(int=7), leaders=(1, 1))}) as broker:
        found = with_client(broker.servers, act)
        return found, [one.api_key for one in broker.requests() if one.api_key in {HEARTBEAT, FETCH, METADATA}]


def fetch_of(*partitions: TopicPartition) -> FetchCommitted:
    """Return the order for the start offsets of an assignment."""
    return FetchCommitted(attempt=1, partitions=frozenset(partitions), member_id="m", member_epoch=5)


def test_committed_offsets_of_the_expected_partitions_are_read_behind_the_join() -> None:
    """The assignment needs no additional round trip."""
    found, sent = after_join(fetch_of(T0))
    assert (found, sent) == ([StartOffsetsFetched(attempt=1, offsets={T0: 7})], [HEARTBEAT, FETCH])


def test_offsets_read_behind_the_join_count_once() -> None:
    """A later assignment may contain a partition that another member owned in between."""
    found, sent = after_join(fetch_of(T0), fetch_of(T0))
    assert (found[0], sent) == (found[1], [HEARTBEAT, FETCH, FETCH])


def test_offsets_read_behind_the_join_end_with_the_next_heartbeat() -> None:
    """The response to the next heartbeat may contain another assignment."""
    _, sent = after_join(heartbeat(epoch=5, request_id=2), fetch_of(T0))
    assert sent[-2:] == [HEARTBEAT, FETCH]
    assert sent.count(HEARTBEAT) == 2


def test_offsets_of_an_unexpected_assignment_are_read_again() -> None:
    """The assignment contains other partitions than the description showed."""
    found, sent = after_join(fetch_of(T0, T1))
    assert (found, sent[0], sent[-1]) == ([StartOffsetsFetched(attempt=1, offsets={T0: 7, T1: 8})], HEARTBEAT, FETCH)


def test_names_of_checked_topics_need_no_request() -> None:
    """A member checks its subscribed topics before it joins, and an id never changes its name."""
    known, unknown = UUID(int=7), UUID(int=8)
    check = LookUpTopics(request_id=1, topics=frozenset({"t"}))
    found, sent = after_join(check, *(ResolveTopicIds(topic_ids=frozenset(ids)) for ids in ({known}, {known, unknown})))
    assert found[1:] == [TopicIdsResolved(names={known: "t"})] * 2
    assert sent.count(METADATA) == 2


# ---- the start of partitions without a committed offset --------------------------------------------------------------


#: A ListOffsets response: TOPIC_AUTHORIZATION_FAILED.
FORBIDDEN = (-1, 29)
#: librdkafka's value for an unknown position.
NO_OFFSET = -1001


def starts(offsets: Callable[[Received], Answer], reset: OffsetReset | ByDuration) -> Mapping[TopicPartition, int]:
    """Return the start offsets of partitions 0 and 1, which have no committed offset."""
    member = MemberCore(MemberSettings(group_id="g"), AUTO, new_member_id=lambda: "m", jitter=lambda: 0.5)
    order = FetchCommitted(attempt=1, partitions=frozenset({T0, T1}), member_id="m", member_epoch=5)
    script = answers(fetch=lambda _: fetch_answer_v9({T0: (-1, 0), T1: (-1, 0)}), offsets=offsets)

    async def act(cluster: Cluster) -> Mapping[TopicPartition, int]:
        member.handle(CoordinatorFound(coordinator=node(broker)), 1.0)
        start = StartSettings(reset=reset, read_committed=False)
        outcome = await MemberRequests(cluster, member, start, lambda _: None).answer_to(order)
        assert isinstance(outcome, StartOffsetsFetched)
        return outcome.offsets

    with ScriptedBroker(script, topics={"t": Topic(UUID(int=7), leaders=(1, 1))}) as broker:
        return with_client(broker.servers, act)


@pytest.mark.parametrize(("reset", "logical"), [(OffsetReset.LATEST, -1), (OffsetReset.EARLIEST, -2)])
def test_start_of_a_refused_partition_is_logical_and_others_are_numbers(reset: OffsetReset, logical: int) -> None:
    """Librdkafka resolves the logical offset of the refused partition."""
    assert starts(lambda _: offsets_answer({T0: (17, 0), T1: FORBIDDEN}), reset) == {T0: 17, T1: logical}


@pytest.mark.parametrize(("young", "expected"), [(17, 17), (-1, 40)], ids=["a recent record", "no recent record"])
def test_start_by_duration_is_found_for_each_partition(young: int, expected: int) -> None:
    """Without a recent record the start is the earlier end offset; without a response the fetcher looks it up later."""

    def offsets(request: Received) -> Answer:
        asks_end = request.entity.topics[0].partitions[0].timestamp == -1
        return offsets_answer({T0: (40 if asks_end else young, 0), T1: FORBIDDEN})

    assert starts(offsets, ByDuration(milliseconds=60_000)) == {T0: expected, T1: NO_OFFSET}
