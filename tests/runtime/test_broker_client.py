"""The client of a cluster against scripted brokers: finding brokers, asking them, and what remains when they fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as offsets_v7
from kio.schema.metadata.v13 import response as metadata_v13

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.membership.effects import CommitOffsets, Heartbeat, SendHeartbeat
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    CommitVerdict,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.runtime import connections
from consumer_membership.runtime.broker_client import BrokerClient, BrokerRefusal, HeartbeatOutcome
from consumer_membership.types import BrokerAddress, OffsetAndMetadata, TopicPartition
from tests.runtime.test_transport import listening, unused_port
from tests.support.scripted_broker import (
    DISCONNECT,
    DROP,
    NEWEST,
    ZERO,
    Answer,
    Gate,
    Later,
    Received,
    Script,
    ScriptedBroker,
    Topic,
)
from tests.wire.frames import heartbeat_answer
from tests.wire.test_responses import commit_answer, fetch_answer_v9

LIST_OFFSETS, METADATA, COMMIT, FETCH, FIND, HEARTBEAT = 2, 3, 8, 9, 10, 68
PATIENCE_S = 10.0
TOPIC_ID = UUID(int=0xA)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

ResultT = TypeVar("ResultT")


def settings(*servers: tuple[str, int]) -> ConnectionSettings:
    """Settings with backoffs that a test can wait for."""
    return ConnectionSettings(
        bootstrap_servers=servers,
        socket_timeout_s=PATIENCE_S,
        connection_setup_timeout_s=PATIENCE_S,
        reconnect_backoff_s=0.005,
        reconnect_backoff_max_s=0.01,
    )


def with_client(
    servers: tuple[tuple[str, int], ...] | ConnectionSettings,
    act: Callable[[BrokerClient], Awaitable[ResultT]],
    on_coordinator_lost: Callable[[BrokerAddress, str], None] | None = None,
) -> ResultT:
    """What `act` makes of a client, which is closed at the end and leaves no task behind."""

    async def run() -> ResultT:
        known = servers if isinstance(servers, ConnectionSettings) else settings(*servers)
        client = BrokerClient(known, on_coordinator_lost)
        try:
            return await act(client)
        finally:
            await client.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def answers(**by_api: Callable[[Received], Answer]) -> Script:
    """A script by the names of APIs."""
    keys = {"offsets": LIST_OFFSETS, "commit": COMMIT, "fetch": FETCH, "find": FIND, "heartbeat": HEARTBEAT}
    keys["metadata"] = METADATA
    script = {keys[name]: answer for name, answer in by_api.items()}
    return lambda request: script[request.api_key](request) if request.api_key in script else None


def node(broker: ScriptedBroker, node_id: int = 1) -> BrokerAddress:
    """A node's address."""
    host, port = broker.address(node_id)
    return BrokerAddress(node_id=node_id, host=host, port=port)


def beat(epoch: int = 5, request_id: int = 1, pattern: str | None = None) -> SendHeartbeat:
    """A heartbeat's order."""
    return SendHeartbeat(request_id=request_id, heartbeat=Heartbeat(member_id="m", member_epoch=epoch, pattern=pattern))


def commit_of(*partitions: TopicPartition) -> CommitOffsets:
    """A commit's order."""
    return CommitOffsets(
        commit_id=4,
        offsets={partition: OffsetAndMetadata(offset=7) for partition in partitions},
        member_id="m",
        member_epoch=5,
        instance_id=None,
    )


# ---- finding brokers -------------------------------------------------------------------------------------------------


def test_every_bootstrap_server_is_tried() -> None:
    """One server that listens is enough, wherever it stands in the list."""
    with ScriptedBroker(nodes=2) as broker, unused_port() as port:
        servers = (("127.0.0.1", port), broker.servers[1])
        assert with_client(servers, lambda client: client.brokers()) == (node(broker, 1), node(broker, 2))


def test_bootstrap_that_fails_names_every_server_and_reason() -> None:
    """Where no server can be reached, the text says for each of them why."""
    with unused_port() as one, unused_port() as other:
        with pytest.raises(TransportError, match="No broker can be reached: ") as caught:
            with_client((("127.0.0.1", one), ("127.0.0.1", other)), lambda client: client.find_coordinator("g"))
        assert f"127.0.0.1:{one}: connection refused" in str(caught.value)
        assert f"127.0.0.1:{other}: connection refused" in str(caught.value)


def test_silent_server_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer gets a head start, then the next is tried beside it."""
    monkeypatch.setattr(connections, "_HEAD_START_S", 0.01)
    with ScriptedBroker() as broker, listening() as port:
        found = with_client((("127.0.0.1", port), broker.servers[0]), lambda client: client.brokers())
        assert found == (node(broker),)


def test_known_brokers_are_used_when_the_bootstrap_server_is_gone() -> None:
    """The cluster's own list, learned at the first contact, outlives the bootstrap server."""

    async def act(client: BrokerClient) -> tuple[BrokerAddress, ...]:
        await client.brokers()
        await asyncio.to_thread(broker.stop_node, 1)
        return await client.brokers()

    with ScriptedBroker(nodes=2) as broker:
        assert with_client(broker.servers[:1], act) == (node(broker, 1), node(broker, 2))


def test_client_bootstraps_again_when_all_known_brokers_are_gone() -> None:
    """A cluster that moved altogether is found through bootstrap.servers."""

    async def act(client: BrokerClient) -> tuple[BrokerAddress, ...]:
        await client.brokers()
        await asyncio.to_thread(broker.disconnect, 1)
        broker.advertised.clear()
        return await client.brokers()

    with ScriptedBroker() as broker, unused_port() as port:
        broker.advertised = {1: ("127.0.0.1", port)}
        assert with_client(broker.servers, act) == (node(broker),)


def test_rebootstrap_required_is_obeyed() -> None:
    """KIP-1102: the broker says that what the client knows is stale; it asks again instead of failing."""

    def metadata(request: Received) -> Answer:
        if len(broker.requests(METADATA)) != 2:
            return None
        return metadata_v13.MetadataResponse(
            throttle_time=ZERO, brokers=(), topics=(), error_code=ErrorCode.rebootstrap_required
        )

    with ScriptedBroker(answers(metadata=metadata)) as broker:
        assert with_client(broker.servers, lambda client: client.brokers()) == (node(broker),)
        assert len(broker.requests(METADATA)) == 3


def test_unreachable_broker_is_left_alone_during_its_backoff(caplog: pytest.LogCaptureFixture) -> None:
    """reconnect.backoff.ms: a second request fails at once with the first one's reason; the log says it once."""

    async def act(client: BrokerClient) -> list[str]:
        coordinator = BrokerAddress(node_id=1, host="127.0.0.1", port=port)
        outcomes = [await client.heartbeat(coordinator, "g", beat(), PATIENCE_S) for _ in range(3)]
        return [outcome.event.reason for outcome in outcomes if isinstance(outcome.event, HeartbeatFailed)]

    with unused_port() as port, caplog.at_level(logging.DEBUG, logger="consumer_membership.network"):
        patient = replace(settings(("127.0.0.1", port)), reconnect_backoff_s=60.0, reconnect_backoff_max_s=60.0)
        first, *others = with_client(patient, act)
    assert first.endswith("is the broker running, and is the port right?")
    assert others == [f"{first} (next attempt in 60.0 s)"] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_broker_is_tried_again_after_its_backoff() -> None:
    """A broker that comes back is used again, without anybody asking for it."""

    async def act(client: BrokerClient) -> tuple[BrokerAddress, ...]:
        asked = asyncio.create_task(client.brokers())
        await asyncio.to_thread(broker.start_node, 1)
        return await asked

    with ScriptedBroker() as broker:
        broker.stop_node(1)
        assert with_client(broker.servers, act) == (node(broker),)


# ---- the coordinator -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [(0, 3), (0, 6)])
def test_coordinator_is_found(versions: tuple[int, int]) -> None:
    """Protocol rules 2.5, in the single form and in the batch."""
    with ScriptedBroker(nodes=2, versions={**NEWEST, FIND: versions}) as broker:
        broker.coordinator = 2
        assert with_client(broker.servers, lambda client: client.find_coordinator("g")) == node(broker, 2)


@pytest.mark.parametrize(("code", "retriable"), [(14, True), (15, True), (30, False)])
def test_refused_lookup_says_whether_waiting_helps(code: int, retriable: bool) -> None:  # noqa: FBT001
    """A fresh cluster has no coordinator yet; a missing right stays missing."""

    def find(request: Received) -> Answer:
        found = broker.own_answer(request)
        (one,) = found.coordinators
        return replace(found, coordinators=(replace(one, error_code=ErrorCode(code), node_id=-1, host="", port=-1),))

    with ScriptedBroker(answers(find=find)) as broker, pytest.raises(BrokerRefusal) as caught:
        with_client(broker.servers, lambda client: client.find_coordinator("g"))
    assert (caught.value.error.code, caught.value.retriable) == (code, retriable)


# ---- heartbeats ------------------------------------------------------------------------------------------------------


def heartbeat_outcome(script: Script, order: SendHeartbeat, versions: dict[int, tuple[int, int]]) -> HeartbeatOutcome:
    """What becomes of one heartbeat."""
    with ScriptedBroker(script, versions=versions) as broker:
        return with_client(broker.servers, lambda client: client.heartbeat(node(broker), "g", order, PATIENCE_S))


def test_heartbeat_is_answered_with_its_round_trip() -> None:
    """The answer comes as the core's event, with the time it took."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: heartbeat_answer(epoch=6)), beat(request_id=3), NEWEST)
    assert outcome.event == HeartbeatAnswered(request_id=3, member_epoch=6, heartbeat_interval_s=5.0, assignment=None)
    assert 0 < outcome.round_trip_s < PATIENCE_S


def test_heartbeat_is_rejected_with_its_verdict() -> None:
    """H15: an error code is an event with the table's verdict."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: heartbeat_answer(code=25)), beat(), NEWEST)
    assert isinstance(outcome.event, HeartbeatRejected)
    assert (outcome.event.verdict, outcome.event.error.code) == (Verdict.REJOIN, 25)


def test_broker_without_the_protocol_is_a_fatal_rejection() -> None:
    """H32 (client): no api key 68; the member is told with the broker's own code, and the remedy."""
    without = {key: ends for key, ends in NEWEST.items() if key != HEARTBEAT}
    event = heartbeat_outcome(answers(), beat(), without).event
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.FATAL, "UNSUPPORTED_VERSION")
    assert "from 4.0 on" in event.error.message


def test_pattern_on_a_preview_broker_is_a_fatal_rejection() -> None:
    """H32 (client): version 0 of the heartbeat (Kafka 3.7 to 3.9) takes no pattern."""
    event = heartbeat_outcome(answers(), beat(pattern="a.*"), {**NEWEST, HEARTBEAT: (0, 0)}).event
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.FATAL, "UNSUPPORTED_VERSION")
    assert "does not support regular expressions" in event.error.message


def test_disconnect_is_a_failed_heartbeat() -> None:
    """H10: no answer, so the event says that the request failed, and that a retry may help."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: DISCONNECT), beat(request_id=3), NEWEST)
    assert isinstance(outcome.event, HeartbeatFailed)
    assert (outcome.event.request_id, outcome.event.retriable, outcome.round_trip_s) == (3, True, 0.0)
    assert "the peer closed the connection" in outcome.event.reason


def test_heartbeat_after_a_timeout_goes_over_a_new_connection() -> None:
    """H09: a coordinator that is silent may be reached by a new connection, so the old one is given up."""

    def heartbeat(request: Received) -> Answer:
        return DROP if request.entity.member_epoch == 1 else heartbeat_answer()

    async def act(client: BrokerClient) -> list[type]:
        lost = await client.heartbeat(node(broker), "g", beat(1), 0.02)
        found = await client.heartbeat(node(broker), "g", beat(2), PATIENCE_S)
        return [type(lost.event), type(found.event)]

    with ScriptedBroker(answers(heartbeat=heartbeat)) as broker:
        assert with_client(broker.servers, act) == [HeartbeatFailed, HeartbeatAnswered]
        one, other = broker.requests(HEARTBEAT)
        assert one.connection != other.connection


def test_heartbeats_and_commits_share_a_connection_of_their_own() -> None:
    """Nothing else travels on the group's connection, and what travels on it keeps its order."""

    async def act(client: BrokerClient) -> None:
        coordinator = await client.find_coordinator("g")
        await asyncio.gather(
            client.heartbeat(coordinator, "g", beat(5), PATIENCE_S),
            client.commit(coordinator, "g", commit_of(T0), PATIENCE_S),
            client.heartbeat(coordinator, "g", beat(-1), PATIENCE_S),
            client.heartbeat(coordinator, "g", beat(0), PATIENCE_S),
        )
        await client.topics(["t"])

    script = answers(heartbeat=lambda _: heartbeat_answer(), commit=lambda _: commit_answer({T0: 0}))
    with ScriptedBroker(script) as broker:
        with_client(broker.servers, act)
        group = [request for request in broker.requests() if request.api_key in (HEARTBEAT, COMMIT)]
        others = [request for request in broker.requests() if request.api_key in (METADATA, FIND)]
    assert len({request.connection for request in group}) == 1
    assert {request.connection for request in group}.isdisjoint(request.connection for request in others)
    assert [getattr(request.entity, "member_epoch", "commit") for request in group] == [5, "commit", -1, 0]


def test_slow_answer_to_something_else_does_not_delay_heartbeats() -> None:
    """A broker answers one connection in order: only on another one does the heartbeat pass."""
    gate = Gate()

    async def act(client: BrokerClient) -> list[type]:
        coordinator = await client.find_coordinator("g")
        slow = asyncio.create_task(client.topics(["t"]))
        await asyncio.to_thread(broker.wait_for, METADATA, 2)
        outcome = await client.heartbeat(coordinator, "g", beat(), PATIENCE_S)
        assert not slow.done()
        gate.open()
        await slow
        return [type(outcome.event)]

    def metadata(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.entity.topics else None

    script = answers(heartbeat=lambda _: heartbeat_answer(), metadata=metadata)
    with ScriptedBroker(script) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered]


def test_loss_of_an_idle_coordinator_connection_is_told() -> None:
    """Nothing is in flight, so nobody else would learn of it before the next heartbeat."""
    told: asyncio.Queue[tuple[BrokerAddress, str]] = asyncio.Queue()

    async def act(client: BrokerClient) -> tuple[BrokerAddress, str]:
        await client.heartbeat(node(broker), "g", beat(), PATIENCE_S)
        await asyncio.to_thread(broker.disconnect, 1)
        return await told.get()

    with ScriptedBroker(answers(heartbeat=lambda _: heartbeat_answer())) as broker:
        who, reason = with_client(broker.servers, act, lambda *loss: told.put_nowait(loss))
        assert (who, reason) == (node(broker), f"{broker.bootstrap_servers}: the peer closed the connection")


def test_loss_under_a_request_is_told_by_the_request_alone() -> None:
    """The heartbeat that failed says it; a second event would look up the coordinator twice."""
    told: list[object] = []
    with ScriptedBroker(answers(heartbeat=lambda _: DISCONNECT)) as broker:
        with_client(
            broker.servers,
            lambda client: client.heartbeat(node(broker), "g", beat(), PATIENCE_S),
            lambda *loss: told.append(loss),
        )
    assert told == []


# ---- commits and committed offsets -----------------------------------------------------------------------------------


def test_commit_is_answered_by_partition() -> None:
    """The answer comes as the core's event."""
    with ScriptedBroker(answers(commit=lambda _: commit_answer({T0: 0, T1: 113}))) as broker:
        answer = with_client(
            broker.servers, lambda client: client.commit(node(broker), "g", commit_of(T0, T1), PATIENCE_S)
        )
    assert isinstance(answer, CommitAnswered)
    assert answer.verdict is CommitVerdict.STALE_EPOCH
    assert [error.code if error else None for error in answer.errors.values()] == [None, 113]


def test_commit_that_takes_too_long_does_not_cost_the_heartbeats_their_connection() -> None:
    """The application's patience with one commit says nothing about the connection."""
    gate = Gate()

    async def act(client: BrokerClient) -> list[type]:
        failed = await client.commit(node(broker), "g", commit_of(T0), 0.02)
        gate.open()
        outcome = await client.heartbeat(node(broker), "g", beat(), PATIENCE_S)
        return [type(failed), type(outcome.event)]

    script = answers(
        commit=lambda _: Later(commit_answer({T0: 0}), gate),
        heartbeat=lambda _: heartbeat_answer(),
    )
    with ScriptedBroker(script) as broker:
        assert with_client(broker.servers, act) == [CommitFailed, HeartbeatAnswered]
        assert len({request.connection for request in broker.requests() if request.api_key != METADATA}) == 1


def test_commit_in_a_version_that_the_broker_lacks_is_final() -> None:
    """Protocol rules 3.6: members of the consumer protocol commit with version 9; older brokers never will."""
    with ScriptedBroker(versions={**NEWEST, COMMIT: (2, 8)}) as broker:
        answer = with_client(broker.servers, lambda client: client.commit(node(broker), "g", commit_of(T0), PATIENCE_S))
    assert isinstance(answer, CommitFailed)
    assert not answer.retriable
    assert "OffsetCommit (api key 8) is needed in version 9" in answer.reason


def fetched(script: Script, *partitions: TopicPartition) -> Any:  # noqa: ANN401
    """What fetch_committed gives."""
    with ScriptedBroker(script) as broker:
        return with_client(
            broker.servers,
            lambda client: client.fetch_committed(
                node(broker), "g", partitions, "m", 5, require_stable=True, timeout_s=PATIENCE_S
            ),
        )


def test_committed_offsets_are_fetched_as_the_member() -> None:
    """None means that nothing is committed; the request carries member and epoch (version 9)."""
    seen: list[Received] = []

    def fetch(request: Received) -> Answer:
        seen.append(request)
        return fetch_answer_v9({T0: (17, 0), T1: (-1, 0)})

    assert fetched(answers(fetch=fetch), T0, T1) == {T0: OffsetAndMetadata(offset=17, leader_epoch=3), T1: None}
    (group,) = seen[0].entity.groups
    assert (group.member_id, group.member_epoch, seen[0].entity.require_stable) == ("m", 5, True)


@pytest.mark.parametrize(
    ("code", "retriable", "rediscover"),
    [(14, True, False), (16, True, True), (25, False, False), (88, True, False), (113, True, False)],
)
def test_refused_fetch_is_never_no_offset(code: int, retriable: bool, rediscover: bool) -> None:  # noqa: FBT001
    """Protocol rules 3.7: the refusal says whether to wait, to look up the coordinator, or to give up."""
    with pytest.raises(BrokerRefusal) as caught:
        fetched(answers(fetch=lambda _: fetch_answer_v9({}, code)), T0)
    refusal = caught.value
    assert (refusal.error.code, refusal.retriable, refusal.rediscover) == (code, retriable, rediscover)


def test_unanswered_fetch_is_never_no_offset() -> None:
    """A connection that breaks is an error of the transport."""
    with pytest.raises(TransportError, match="the peer closed the connection"):
        fetched(answers(fetch=lambda _: DISCONNECT), T0)


def test_fetch_of_nothing_asks_nobody() -> None:
    """No partitions, no request."""
    assert fetched(answers()) == {}


# ---- topics and offsets ----------------------------------------------------------------------------------------------


def offsets_answer(results: dict[TopicPartition, tuple[int, int]]) -> offsets_v7.ListOffsetsResponse:
    """A ListOffsets answer with offset and code of each partition."""
    return offsets_v7.ListOffsetsResponse(
        throttle_time=ZERO,
        topics=tuple(
            offsets_v7.ListOffsetsTopicResponse(
                name=topic,
                partitions=(
                    offsets_v7.ListOffsetsPartitionResponse(
                        partition_index=partition, error_code=ErrorCode(code), offset=offset
                    ),
                ),
            )
            for (topic, partition), (offset, code) in results.items()
        ),
    )


def asked_partitions(request: Received) -> list[TopicPartition]:
    """The partitions of a ListOffsets request."""
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.entity.topics
        for partition in topic.partitions
    ]


def offset_by_node(request: Received) -> Answer:
    """Each node says its own number for the partitions that it is asked for."""
    return offsets_answer({partition: (request.node_id, 0) for partition in asked_partitions(request)})


def listed(broker: ScriptedBroker, timeout_s: float = PATIENCE_S) -> Any:  # noqa: ANN401
    """The ends of both partitions."""
    return with_client(
        broker.servers,
        lambda client: client.list_offsets({T0: -1, T1: -1}, read_committed=True, timeout_s=timeout_s),
    )


def test_offsets_are_asked_of_the_leaders() -> None:
    """Each leader is asked for its own partitions, with the isolation level."""
    topics = {"t": Topic(TOPIC_ID, leaders=(1, 2))}
    with ScriptedBroker(answers(offsets=offset_by_node), nodes=2, topics=topics) as broker:
        assert listed(broker) == {T0: 1, T1: 2}
        assert {request.entity.isolation_level for request in broker.requests(LIST_OFFSETS)} == {1}


def test_leader_that_moved_is_looked_up_again() -> None:
    """NOT_LEADER_OR_FOLLOWER costs the partition another round, with fresh metadata; the others keep their answer."""

    def offsets(request: Received) -> Answer:
        if len(broker.requests(LIST_OFFSETS)) > 1:
            return offset_by_node(request)
        broker.topics["t"] = Topic(TOPIC_ID, leaders=(1, 2))
        return offsets_answer({T0: (1, 0), T1: (-1, 6)})

    with ScriptedBroker(answers(offsets=offsets), nodes=2, topics={"t": Topic(TOPIC_ID, leaders=(1, 1))}) as broker:
        assert listed(broker) == {T0: 1, T1: 2}
        assert [asked_partitions(request) for request in broker.requests(LIST_OFFSETS)] == [[T0, T1], [T1]]


def test_topic_that_appears_late_is_waited_for() -> None:
    """A topic that was just made may be missing in a broker's metadata, or have no leader yet."""

    def metadata(_: Received) -> Answer:
        stages = [{}, {}, {"t": Topic(TOPIC_ID, leaders=(1, -1))}, {"t": Topic(TOPIC_ID, leaders=(1, 1))}]
        broker.topics = stages[min(len(broker.requests(METADATA)), 3)]
        return None

    with ScriptedBroker(answers(offsets=offset_by_node, metadata=metadata)) as broker:
        assert listed(broker) == {T0: 1, T1: 1}


def test_offsets_of_an_unknown_topic_are_refused_at_the_end_of_the_time() -> None:
    """The last refusal is raised, not a bare timeout."""
    with ScriptedBroker() as broker, pytest.raises(BrokerRefusal) as caught:
        listed(broker, timeout_s=0.05)
    assert (caught.value.error.name, caught.value.retriable) == ("UNKNOWN_TOPIC_OR_PARTITION", True)


def test_final_refusal_of_a_leader_ends_the_attempts() -> None:
    """A missing right does not come by waiting, whatever the other partitions say."""
    results = {T0: (-1, 6), T1: (-1, 29)}
    topics = {"t": Topic(TOPIC_ID, leaders=(1, 1))}
    with (
        ScriptedBroker(answers(offsets=lambda _: offsets_answer(results)), topics=topics) as broker,
        pytest.raises(BrokerRefusal) as caught,
    ):
        listed(broker)
    assert (caught.value.error.name, caught.value.retriable) == ("TOPIC_AUTHORIZATION_FAILED", False)


def test_topic_ids_are_resolved() -> None:
    """KIP-516: names by id; an id that the cluster does not know is absent."""
    with ScriptedBroker(topics={"t": Topic(TOPIC_ID, leaders=(1,))}) as broker:
        wanted = frozenset({TOPIC_ID, UUID(int=1)})
        names = with_client(broker.servers, lambda client: client.topic_names(wanted, PATIENCE_S))
        assert names == {TOPIC_ID: "t"}
        assert with_client(broker.servers, lambda client: client.topic_names(frozenset(), PATIENCE_S)) == {}


def test_question_that_anybody_may_ask_is_asked_again() -> None:
    """A connection that breaks under Metadata costs another attempt, not the answer."""

    def metadata(request: Received) -> Answer:
        return DISCONNECT if len(broker.requests(METADATA)) < 3 else None

    with ScriptedBroker(answers(metadata=metadata)) as broker:
        assert with_client(broker.servers, lambda client: client.brokers()) == (node(broker),)


def test_silent_cluster_is_an_error_of_the_transport() -> None:
    """Where nothing at all came back within the time, the text says what was asked."""
    with (
        ScriptedBroker(answers(metadata=lambda _: DROP)) as broker,
        pytest.raises(TransportError, match=r"No broker answered within 0\.05 s when asked for metadata"),
    ):
        with_client(broker.servers, lambda client: client.topics(["t"], timeout_s=0.05))


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_close_fails_what_is_under_way() -> None:
    """Requests, attempts to connect and waits for a backoff end; nothing can be had afterwards."""

    async def act(client: BrokerClient) -> list[type]:
        heartbeat = asyncio.create_task(client.heartbeat(node(broker), "g", beat(), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, HEARTBEAT)
        silent = BrokerAddress(node_id=9, host="127.0.0.1", port=port)
        connecting = asyncio.create_task(client.heartbeat(silent, "g", beat(), PATIENCE_S))
        await asyncio.sleep(0)
        await client.close()
        outcomes = [await heartbeat, await connecting, await client.heartbeat(silent, "g", beat(), PATIENCE_S)]
        return [type(outcome.event) for outcome in outcomes]

    with ScriptedBroker(answers(heartbeat=lambda _: DROP)) as broker, listening() as port:
        assert with_client(broker.servers, act) == [HeartbeatFailed] * 3
