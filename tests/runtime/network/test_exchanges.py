"""What a member asks of brokers, against scripted ones: answers, refusals, and silence."""

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
    beat,
    commit_of,
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

#: What becomes of a heartbeat.
HeartbeatOutcome = HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed

# ---- the coordinator -------------------------------------------------------------------------------------------------


def test_coordinator_that_is_named_anew_is_tried_at_once() -> None:
    """It was unreachable and has a backoff; another broker knows better by now."""

    async def act(client: Cluster) -> HeartbeatOutcome:
        coordinator = await client.find_coordinator("g")
        await asyncio.to_thread(broker.stop_node, 2)
        assert isinstance(await exchange(client, coordinator, "g", beat(), PATIENCE_S), HeartbeatFailed)
        await asyncio.to_thread(broker.start_node, 2)
        again = await client.find_coordinator("g")
        outcome = await exchange(client, again, "g", beat(), PATIENCE_S)
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
    """What becomes of one heartbeat."""
    with ScriptedBroker(script, versions=versions) as broker:
        outcome = with_client(broker.servers, lambda client: exchange(client, node(broker), "g", order, PATIENCE_S))
    assert isinstance(outcome, HeartbeatOutcome)
    return outcome


def test_heartbeat_is_answered_as_an_event() -> None:
    """The answer comes as the core's event."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: heartbeat_answer(epoch=6)), beat(request_id=3), NEWEST)
    assert outcome == HeartbeatAnswered(request_id=3, member_epoch=6, heartbeat_interval_s=5.0, assignment=None)


def test_heartbeat_is_rejected_with_its_verdict() -> None:
    """H15: an error code is an event with the table's verdict."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: heartbeat_answer(code=25)), beat(), NEWEST)
    assert isinstance(outcome, HeartbeatRejected)
    assert (outcome.verdict, outcome.error.code) == (Verdict.REJOIN, 25)


def test_broker_without_the_protocol_is_a_fatal_rejection() -> None:
    """H32 (client): no api key 68; the member is told with the broker's own code, and the remedy."""
    without = {key: ends for key, ends in NEWEST.items() if key != HEARTBEAT}
    event = heartbeat_outcome(answers(), beat(), without)
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.FATAL, "UNSUPPORTED_VERSION")
    assert "from 4.0 on" in event.error.message


def test_pattern_on_a_preview_broker_is_a_fatal_rejection() -> None:
    """H32 (client): version 0 of the heartbeat (Kafka 3.7 to 3.9) takes no pattern."""
    event = heartbeat_outcome(answers(), beat(pattern="a.*"), {**NEWEST, HEARTBEAT: (0, 0)})
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.FATAL, "UNSUPPORTED_VERSION")
    assert "does not support regular expressions" in event.error.message


def test_disconnect_is_a_failed_heartbeat() -> None:
    """H10: no answer, so the event says that the request failed, and that a retry may help."""
    outcome = heartbeat_outcome(answers(heartbeat=lambda _: DISCONNECT), beat(request_id=3), NEWEST)
    assert isinstance(outcome, HeartbeatFailed)
    assert (outcome.request_id, outcome.retriable) == (3, True)
    assert "the peer closed the connection" in outcome.reason


def test_heartbeat_after_a_timeout_goes_over_a_new_connection() -> None:
    """H09: a coordinator that is silent may be reached by a new connection, so the old one is given up."""

    def heartbeat(request: Received) -> Answer:
        return DROP if request.entity.member_epoch == 1 else heartbeat_answer()

    async def act(client: Cluster) -> list[type]:
        # The short time is for an answer, not to connect in.
        first = await exchange(client, node(broker), "g", beat(0), PATIENCE_S)
        lost = await exchange(client, node(broker), "g", beat(1), 0.02)
        found = await exchange(client, node(broker), "g", beat(2), PATIENCE_S)
        return [type(outcome) for outcome in (first, lost, found)]

    with ScriptedBroker(answers(heartbeat=heartbeat)) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered, HeartbeatFailed, HeartbeatAnswered]
        first, lost, found = (request.connection for request in broker.requests(HEARTBEAT))
        assert first == lost != found


def test_heartbeats_and_commits_share_a_connection_of_their_own() -> None:
    """Nothing else travels on the group's connection, and what travels on it keeps its order."""

    async def act(client: Cluster) -> None:
        coordinator = await client.find_coordinator("g")
        await asyncio.gather(
            exchange(client, coordinator, "g", beat(5), PATIENCE_S),
            exchange(client, coordinator, "g", commit_of(T0), PATIENCE_S),
            exchange(client, coordinator, "g", beat(-1), PATIENCE_S),
            exchange(client, coordinator, "g", beat(0), PATIENCE_S),
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

    async def act(client: Cluster) -> list[type]:
        coordinator = await client.find_coordinator("g")
        slow = asyncio.create_task(client.topics(["t"]))
        await asyncio.to_thread(broker.wait_for, METADATA)
        outcome = await exchange(client, coordinator, "g", beat(), PATIENCE_S)
        assert not slow.done()
        gate.open()
        await slow
        return [type(outcome)]

    def metadata(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.entity.topics else None

    script = answers(heartbeat=lambda _: heartbeat_answer(), metadata=metadata)
    with ScriptedBroker(script) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered]


def test_loss_of_an_idle_coordinator_connection_is_told() -> None:
    """Nothing is in flight, so nobody else would learn of it before the next heartbeat."""
    told: asyncio.Queue[tuple[BrokerAddress, str]] = asyncio.Queue()

    async def act(client: Cluster) -> tuple[BrokerAddress, str]:
        await exchange(client, node(broker), "g", beat(), PATIENCE_S)
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
            lambda client: exchange(client, node(broker), "g", beat(), PATIENCE_S),
            lambda *loss: told.append(loss),
        )
    assert told == []


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_commit_is_answered_by_partition() -> None:
    """The answer comes as the core's event."""
    with ScriptedBroker(answers(commit=lambda _: commit_answer({T0: 0, T1: 113}))) as broker:
        answer = with_client(
            broker.servers, lambda client: exchange(client, node(broker), "g", commit_of(T0, T1), PATIENCE_S)
        )
    assert isinstance(answer, CommitAnswered)
    assert answer.verdict is CommitVerdict.STALE_EPOCH
    assert [error.code if error else None for error in answer.errors.values()] == [None, 113]


def test_commit_that_takes_too_long_does_not_cost_the_heartbeats_their_connection() -> None:
    """The application's patience with one commit says nothing about the connection."""
    gate = Gate()

    async def act(client: Cluster) -> list[type]:
        # The short time is for an answer, not to connect in.
        first = await exchange(client, node(broker), "g", beat(), PATIENCE_S)
        failed = await exchange(client, node(broker), "g", commit_of(T0), 0.02)
        gate.open()
        later = await exchange(client, node(broker), "g", beat(), PATIENCE_S)
        return [type(first), type(failed), type(later)]

    script = answers(
        commit=lambda _: Later(commit_answer({T0: 0}), gate),
        heartbeat=lambda _: heartbeat_answer(),
    )
    with ScriptedBroker(script) as broker:
        assert with_client(broker.servers, act) == [HeartbeatAnswered, CommitFailed, HeartbeatAnswered]
        assert len(broker.requests(COMMIT)) == 1
        assert len({request.connection for request in broker.requests() if request.api_key != METADATA}) == 1


def test_commit_in_a_version_that_the_broker_lacks_is_final() -> None:
    """Rules 3.6: members of the consumer protocol commit with version 9; older brokers never will."""
    with ScriptedBroker(versions={**NEWEST, COMMIT: (2, 8)}) as broker:
        answer = with_client(
            broker.servers, lambda client: exchange(client, node(broker), "g", commit_of(T0), PATIENCE_S)
        )
    assert isinstance(answer, CommitFailed)
    assert not answer.retriable
    assert "OffsetCommit (api key 8) is needed in version 9" in answer.reason


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_close_fails_what_is_under_way() -> None:
    """Requests, attempts to connect and waits for a backoff end; nothing can be had afterwards."""

    async def act(client: Cluster) -> list[type]:
        heartbeat = asyncio.create_task(exchange(client, node(broker), "g", beat(), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, HEARTBEAT)
        silent = BrokerAddress(node_id=9, host="127.0.0.1", port=port)
        connecting = asyncio.create_task(exchange(client, silent, "g", beat(), PATIENCE_S))
        await asyncio.sleep(0)
        await client.close()
        outcomes = [await heartbeat, await connecting, await exchange(client, silent, "g", beat(), PATIENCE_S)]
        return [type(outcome) for outcome in outcomes]

    with ScriptedBroker(answers(heartbeat=lambda _: DROP)) as broker, listening() as port:
        assert with_client(broker.servers, act) == [HeartbeatFailed] * 3
