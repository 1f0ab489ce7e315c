"""A member's requests to scripted brokers: responses, refusals and timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from consumer_membership.membership.effects import SendHeartbeat
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    CommitVerdict,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.types import BrokerAddress
from tests.runtime.clients import (
    COMMIT,
    FIND,
    HEARTBEAT,
    METADATA,
    T0,
    T1,
    answers,
    commit_of,
    heartbeat,
    node,
    settings,
    with_client,
)
from tests.support.ports import listening
from tests.support.scripted_broker import (
    DISCONNECT,
    DROP,
    NEWEST,
    Answer,
    Gate,
    Later,
    Received,
    Script,
    ScriptedBroker,
)
from tests.support.waiting import PATIENCE_S
from tests.wire.frames import heartbeat_answer
from tests.wire.groups import commit_answer

#: The outcome of a heartbeat.
HeartbeatOutcome = HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed

# ---- the coordinator -------------------------------------------------------------------------------------------------


def test_coordinator_that_was_found_again_is_tried_at_once() -> None:
    """A lookup ends the backoff of a coordinator that was unreachable."""

    async def act(client: Cluster) -> HeartbeatOutcome:
        coordinator = await client.find_coordinator("g")
        await asyncio.to_thread(broker.stop_node, 2)
        assert isinstance(await exchange(client, coordinator, "g", heartbeat(), PATIENCE_S), HeartbeatFailed)
        await asyncio.to_thread(broker.start_node, 2)
        again = await client.find_coordinator("g")
        outcome = await exchange(client, again, "g", heartbeat(), PATIENCE_S)
        assert isinstance(outcome, HeartbeatOutcome)
        return outcome

    with ScriptedBroker(answers(heartbeat=lambda _: heartbeat_answer(epoch=6)), nodes=2) as broker:
        broker.coordinator = 2
        slow = replace(settings(broker.servers[0]), reconnect_backoff_s=100.0, reconnect_backoff_max_s=100.0)
        assert isinstance(with_client(slow, act), HeartbeatAnswered)


# ---- heartbeats ------------------------------------------------------------------------------------------------------


def heartbeat_outcome(
    script: Script, order: SendHeartbeat, versions: Mapping[int, tuple[int, int]]
) -> HeartbeatOutcome:
    """Return the outcome of one heartbeat."""
    with ScriptedBroker(script, versions=versions) as broker:
        outcome = with_client(broker.servers, lambda client: exchange(client, node(broker), "g", order, PATIENCE_S))
    assert isinstance(outcome, HeartbeatOutcome)
    return outcome


def test_heartbeat_response_is_returned_as_an_event() -> None:
    """The response becomes an event of the core."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: heartbeat_answer(epoch=6)), heartbeat(request_id=3), NEWEST)
    assert outcome == HeartbeatAnswered(request_id=3, member_epoch=6, heartbeat_interval_s=5.0, assignment=None)


def test_heartbeat_error_is_returned_with_its_verdict() -> None:
    """H15: an error code becomes an event with the table's verdict."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: heartbeat_answer(code=25)), heartbeat(), NEWEST)
    assert isinstance(outcome, HeartbeatRejected)
    assert (outcome.verdict, outcome.error.code) == (Verdict.REJOIN, 25)


def test_heartbeat_to_a_broker_without_the_protocol_is_a_fatal_rejection() -> None:
    """H32 (client): without api key 68 the member receives UNSUPPORTED_VERSION and the remedy."""
    without = {key: ends for key, ends in NEWEST.items() if key != HEARTBEAT}
    event = heartbeat_outcome(answers(), heartbeat(), without)
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.FATAL, "UNSUPPORTED_VERSION")
    assert "from 4.0 on" in event.error.message


def test_heartbeat_with_a_pattern_to_a_preview_broker_is_a_fatal_rejection() -> None:
    """H32 (client): version 0 of the heartbeat (Kafka 3.7 to 3.9) supports no pattern."""
    event = heartbeat_outcome(answers(), heartbeat(pattern="a.*"), {**NEWEST, HEARTBEAT: (0, 0)})
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.FATAL, "UNSUPPORTED_VERSION")
    assert "does not support regular expressions" in event.error.message


def test_heartbeat_fails_after_a_disconnect() -> None:
    """H10: without a response, the event reports a failed request that may be retried."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: DISCONNECT), heartbeat(request_id=3), NEWEST)
    assert isinstance(outcome, HeartbeatFailed)
    assert (outcome.request_id, outcome.retriable) == (3, True)
    assert "the peer closed the connection" in outcome.reason


def test_heartbeat_after_a_timeout_uses_a_new_connection() -> None:
    """H09: a new connection may reach a silent coordinator, so the old one is closed."""

    def answer_of(request: Received) -> Answer:
        return DROP if request.entity.member_epoch == 1 else heartbeat_answer()

    async def act(client: Cluster) -> list[type]:
        # The short timeout applies to the response, not to the connection.
        first = await exchange(client, node(broker), "g", heartbeat(0), PATIENCE_S)
        lost = await exchange(client, node(broker), "g", heartbeat(1), 0.02)
        found = await exchange(client, node(broker), "g", heartbeat(2), PATIENCE_S)
        return [type(outcome) for outcome in (first, lost, found)]

    with ScriptedBroker(answers(heartbeat=answer_of)) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered, HeartbeatFailed, HeartbeatAnswered]
        first, lost, found = (request.connection for request in broker.requests(HEARTBEAT))
        assert first == lost != found


def test_heartbeats_and_commits_share_a_separate_connection() -> None:
    """No other request uses the group's connection, and its requests keep their order."""

    async def act(client: Cluster) -> None:
        coordinator = await client.find_coordinator("g")
        await asyncio.gather(
            exchange(client, coordinator, "g", heartbeat(5), PATIENCE_S),
            exchange(client, coordinator, "g", commit_of(T0), PATIENCE_S),
            exchange(client, coordinator, "g", heartbeat(-1), PATIENCE_S),
            exchange(client, coordinator, "g", heartbeat(0), PATIENCE_S),
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


def test_slow_response_to_another_request_does_not_delay_heartbeats() -> None:
    """A broker answers each connection in order, so the heartbeat uses another connection."""
    gate = Gate()

    async def act(client: Cluster) -> list[type]:
        coordinator = await client.find_coordinator("g")
        slow = asyncio.create_task(client.topics(["t"]))
        await asyncio.to_thread(broker.wait_for, METADATA)
        outcome = await exchange(client, coordinator, "g", heartbeat(), PATIENCE_S)
        assert not slow.done()
        gate.open()
        await slow
        return [type(outcome)]

    def metadata(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.entity.topics else None

    script = answers(heartbeat=lambda _: heartbeat_answer(), metadata=metadata)
    with ScriptedBroker(script) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered]


def test_loss_of_an_idle_coordinator_connection_is_reported() -> None:
    """Without a request in flight, the loss would be detected only by the next heartbeat."""
    lost: asyncio.Queue[tuple[BrokerAddress, str]] = asyncio.Queue()

    async def act(client: Cluster) -> tuple[BrokerAddress, str]:
        await exchange(client, node(broker), "g", heartbeat(), PATIENCE_S)
        await asyncio.to_thread(broker.disconnect, 1)
        return await lost.get()

    with ScriptedBroker(answers(heartbeat=lambda _: heartbeat_answer())) as broker:
        who, reason = with_client(broker.servers, act, lambda *loss: lost.put_nowait(loss))
        assert (who, reason) == (node(broker), f"{broker.bootstrap_servers}: the peer closed the connection")


def test_loss_during_a_request_is_reported_only_by_the_request() -> None:
    """The failed heartbeat reports it; a second event would look up the coordinator twice."""
    lost: list[object] = []
    with ScriptedBroker(answers(heartbeat=lambda _: DISCONNECT)) as broker:
        with_client(
            broker.servers,
            lambda client: exchange(client, node(broker), "g", heartbeat(), PATIENCE_S),
            lambda *loss: lost.append(loss),
        )
    assert lost == []


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_commit_response_is_returned_by_partition() -> None:
    """The response becomes an event of the core."""
    with ScriptedBroker(answers(commit=lambda _: commit_answer({T0: 0, T1: 113}))) as broker:
        answer = with_client(
            broker.servers, lambda client: exchange(client, node(broker), "g", commit_of(T0, T1), PATIENCE_S)
        )
    assert isinstance(answer, CommitAnswered)
    assert answer.verdict is CommitVerdict.STALE_EPOCH
    assert [error.code if error else None for error in answer.errors.values()] == [None, 113]


def test_commit_timeout_keeps_the_connection_of_the_heartbeats() -> None:
    """The timeout of one commit does not prove a broken connection."""
    gate = Gate()

    async def act(client: Cluster) -> list[type]:
        # The short timeout applies to the response, not to the connection.
        first = await exchange(client, node(broker), "g", heartbeat(), PATIENCE_S)
        failed = await exchange(client, node(broker), "g", commit_of(T0), 0.02)
        gate.open()
        later = await exchange(client, node(broker), "g", heartbeat(), PATIENCE_S)
        return [type(first), type(failed), type(later)]

    script = answers(
        commit=lambda _: Later(commit_answer({T0: 0}), gate),
        heartbeat=lambda _: heartbeat_answer(),
    )
    with ScriptedBroker(script) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered, CommitFailed, HeartbeatAnswered]
        assert len(broker.requests(COMMIT)) == 1
        assert len({request.connection for request in broker.requests() if request.api_key != METADATA}) == 1


def test_commit_to_a_broker_without_its_version_is_not_retriable() -> None:
    """Rules 3.6: members of the consumer protocol commit with version 9, which older brokers never support."""
    with ScriptedBroker(versions={**NEWEST, COMMIT: (2, 8)}) as broker:
        answer = with_client(
            broker.servers, lambda client: exchange(client, node(broker), "g", commit_of(T0), PATIENCE_S)
        )
    assert isinstance(answer, CommitFailed)
    assert not answer.retriable
    assert "OffsetCommit (api key 8) is needed in version 9" in answer.reason


# ---- closing the client ----------------------------------------------------------------------------------------------


def test_close_fails_requests_and_connection_attempts() -> None:
    """Requests, connection attempts and waits for a backoff end, and later requests fail."""

    async def act(client: Cluster) -> list[type]:
        pending = asyncio.create_task(exchange(client, node(broker), "g", heartbeat(), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, HEARTBEAT)
        silent = BrokerAddress(node_id=9, host="127.0.0.1", port=port)
        connecting = asyncio.create_task(exchange(client, silent, "g", heartbeat(), PATIENCE_S))
        await asyncio.sleep(0)
        await client.close()
        outcomes = [await pending, await connecting, await exchange(client, silent, "g", heartbeat(), PATIENCE_S)]
        return [type(outcome) for outcome in outcomes]

    with ScriptedBroker(answers(heartbeat=lambda _: DROP)) as broker, listening() as port:
        assert with_client(broker.servers, act) == [HeartbeatFailed] * 3
