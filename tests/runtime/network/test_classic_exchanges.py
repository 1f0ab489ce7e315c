"""A classic member's requests to scripted brokers: responses, refusals, timeouts, and which request waits for which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from consumer_membership.config import ConnectionSettings
from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicLeft,
    ClassicVerdict,
    ExchangeFailed,
    JoinAnswered,
    JoinRejected,
    SyncAnswered,
    SyncRejected,
)
from consumer_membership.membership.events import CommitFailed
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.translation.consumer_protocol import encode_assignment, encode_subscription
from consumer_membership.types import BrokerAddress
from tests.runtime.clients import API_VERSIONS, COMMIT, LIST_OFFSETS, METADATA, T0, commit_of, node, settings
from tests.support.scripted_broker import DISCONNECT, DROP, Answer, Gate, Later, Received, Script, ScriptedBroker
from tests.support.waiting import PATIENCE_S
from tests.wire.classic import (
    CLASSIC_HEARTBEAT,
    JOIN,
    LEAVE,
    OFFERED,
    OFFERED_BY_MOCK,
    SUBSCRIBED,
    SYNC,
    classic_heartbeat_answer,
    heartbeat_order,
    join_answer,
    join_order,
    leave_order,
    sync_answer,
    sync_order,
)
from tests.wire.groups import commit_answer, leave_answer

ResultT = TypeVar("ResultT")

#: A rebalance timeout that ends long after a test's time limit.
LONG = join_order(rebalance_timeout_s=300.0)


def script(**by_api: Callable[[Received], Answer] | Answer) -> Script:
    """Return a script by the kind of request."""
    keys = {"join": JOIN, "sync": SYNC, "heartbeat": CLASSIC_HEARTBEAT, "leave": LEAVE, "commit": COMMIT}
    scripted = {keys[name]: answer for name, answer in by_api.items()}

    def answer(request: Received) -> Answer:
        found = scripted.get(request.api_key)
        return found(request) if callable(found) else found

    return answer


def result_of(
    broker: ScriptedBroker,
    ask: Callable[[Cluster, BrokerAddress], Awaitable[ResultT]],
    known: ConnectionSettings | None = None,
    on_coordinator_lost: Callable[[BrokerAddress, str], None] | None = None,
) -> ResultT:
    """Return the result of a request to a scripted coordinator; the client is closed and leaves no task behind."""

    async def run() -> ResultT:
        client = Cluster(known or settings(*broker.servers), on_coordinator_lost=on_coordinator_lost)
        try:
            return await ask(client, node(broker))
        finally:
            await client.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


async def each(client: Cluster, at: BrokerAddress, timeout_s: float = PATIENCE_S) -> list[object]:
    """Return the outcome of one request of each kind."""
    return [
        await exchange(client, at, "g", join_order(rebalance_timeout_s=0.0), timeout_s),
        await exchange(client, at, "g", sync_order(), timeout_s),
        await exchange(client, at, "g", heartbeat_order(), timeout_s),
        await exchange(client, at, "g", leave_order(), timeout_s),
        await exchange(client, at, "g", commit_of(T0), timeout_s, is_classic=True),
    ]


ANSWERS = {"leave": leave_answer(("m", None, 0)), "commit": commit_answer({T0: 0})}


@pytest.mark.parametrize(
    ("offered", "versions"),
    [
        (OFFERED, {JOIN: 9, SYNC: 5, CLASSIC_HEARTBEAT: 4}),
        (OFFERED_BY_MOCK, {JOIN: 5, SYNC: 3, CLASSIC_HEARTBEAT: 4}),
        ({**OFFERED, CLASSIC_HEARTBEAT: (0, 3), COMMIT: (0, 8)}, {CLASSIC_HEARTBEAT: 3, COMMIT: 8}),
    ],
    ids=["4.3", "mock", "3.0"],
)
def test_classic_exchange_uses_the_newest_common_version(
    offered: Mapping[int, tuple[int, int]], versions: Mapping[int, int]
) -> None:
    """The responses are returned as values, in order."""

    def joined(request: Received) -> Answer:
        return join_answer(version=request.version, members={"m": encode_subscription(SUBSCRIBED)})

    def synced(request: Received) -> Answer:
        return sync_answer(version=request.version, assignment=encode_assignment({T0}))

    def heartbeat_response(request: Received) -> Answer:
        return classic_heartbeat_answer(version=request.version)

    scripted = script(join=joined, sync=synced, heartbeat=heartbeat_response, **ANSWERS)
    with ScriptedBroker(scripted, versions=offered) as broker:
        join, sync, heartbeat, leave, commit = result_of(broker, each)
        used = {api: broker.requests(api)[0].version for api in versions}
    assert used == versions
    assert isinstance(join, JoinAnswered)
    assert (join.is_leader, join.members) == (True, {"m": SUBSCRIBED})
    assert isinstance(sync, SyncAnswered)
    assert sync.assignment == {T0}
    assert (heartbeat, leave) == (ClassicHeartbeatAnswered(request_id=9), ClassicLeft(request_id=10))
    assert isinstance(commit, ClassicCommitAnswered)
    assert (commit.membership, commit.answer.errors) == (None, {T0: None})


def test_classic_exchange_returns_refusals_as_events() -> None:
    """Each refusal is an event with its verdict, and nothing is raised."""
    scripted = script(
        join=join_answer(code=25),
        sync=sync_answer(code=27),
        heartbeat=classic_heartbeat_answer(22),
        leave=leave_answer(("m", None, 25)),
        commit=commit_answer({T0: 22}),
    )
    with ScriptedBroker(scripted, versions=OFFERED) as broker:
        join, sync, heartbeat, leave, commit = result_of(broker, each)
    assert isinstance(join, JoinRejected)
    assert isinstance(sync, SyncRejected)
    assert isinstance(heartbeat, ClassicHeartbeatRejected)
    assert [join.verdict, sync.verdict, heartbeat.verdict] == [
        ClassicVerdict.REJOIN,
        ClassicVerdict.REJOIN_NOW,
        ClassicVerdict.REJOIN_KEEP_ID,
    ]
    assert isinstance(leave, ClassicLeft)
    assert leave.error is not None
    assert leave.error.name == "UNKNOWN_MEMBER_ID"
    assert isinstance(commit, ClassicCommitAnswered)
    assert commit.membership is ClassicVerdict.REJOIN_KEEP_ID


def test_classic_exchange_without_the_classic_protocol_is_fatal() -> None:
    """The error is UNSUPPORTED_VERSION, and its message names the missing API."""
    offered = {key: ends for key, ends in OFFERED.items() if key in {LIST_OFFSETS, METADATA, 10, 18}}
    with ScriptedBroker(versions=offered) as broker:
        join, sync, heartbeat, leave, commit = result_of(broker, each)
    assert isinstance(join, JoinRejected)
    assert isinstance(sync, SyncRejected)
    assert isinstance(heartbeat, ClassicHeartbeatRejected)
    assert {join.verdict, sync.verdict, heartbeat.verdict} == {ClassicVerdict.FATAL}
    assert [join.error.name, sync.error.name, heartbeat.error.name] == ["UNSUPPORTED_VERSION"] * 3
    assert "JoinGroup (api key 11)" in join.error.message
    assert isinstance(leave, ClassicLeft)
    assert leave.error is not None
    assert isinstance(commit, CommitFailed)
    assert not commit.retriable


def failures(events: list[object]) -> list[str]:
    """Return the reasons of the events that report a missing response."""
    reasons = []
    for event in events:
        assert isinstance(event, ExchangeFailed | CommitFailed), event
        reasons.append(event.reason)
    return reasons


def test_classic_exchange_reports_a_disconnect_as_a_failure() -> None:
    """A failure has no verdict, because the client does not know whether the coordinator handled the request."""
    gone = script(**dict.fromkeys(("join", "sync", "heartbeat", "leave", "commit"), DISCONNECT))
    with ScriptedBroker(gone, versions=OFFERED) as broker:
        reasons = failures(result_of(broker, each))
    assert all("the peer closed the connection" in reason for reason in reasons)


def test_classic_exchange_reports_an_unreachable_coordinator_as_a_failure() -> None:
    """The coordinator has stopped."""

    async def act(client: Cluster, at: BrokerAddress) -> list[object]:
        broker.stop_node(1)
        return await each(client, at)

    with ScriptedBroker(versions=OFFERED) as broker:
        assert len(failures(result_of(broker, act))) == 5


def test_classic_exchange_reports_silence_as_a_failure_after_its_timeout() -> None:
    """A join waits longer than its rebalance timeout, so this test omits it."""
    silent = script(**dict.fromkeys(("sync", "heartbeat", "leave", "commit"), DROP))

    async def act(client: Cluster, at: BrokerAddress) -> list[object]:
        return [
            await exchange(client, at, "g", sync_order(), 0.02),
            await exchange(client, at, "g", heartbeat_order(), 0.02),
            await exchange(client, at, "g", leave_order(), 0.02),
            await exchange(client, at, "g", commit_of(T0), 0.02, is_classic=True),
        ]

    with ScriptedBroker(silent, versions=OFFERED) as broker:
        reasons = failures(result_of(broker, act))
    assert all("no response to" in reason or "not connected within" in reason for reason in reasons)


# ---- the long wait of a join -----------------------------------------------------------------------------------------


def test_heartbeats_commits_and_leaves_do_not_wait_behind_a_join() -> None:
    """A broker answers nothing on a connection with a waiting join, so the other requests use their own connection."""
    gate = Gate()

    async def act(client: Cluster, at: BrokerAddress) -> tuple[Sequence[object], object]:
        joining = asyncio.create_task(exchange(client, at, "g", LONG, PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, JOIN)
        others = [
            await exchange(client, at, "g", heartbeat_order(), PATIENCE_S),
            await exchange(client, at, "g", commit_of(T0), PATIENCE_S, is_classic=True),
            await exchange(client, at, "g", leave_order(), PATIENCE_S),
        ]
        assert not joining.done()
        gate.open()
        return others, await joining

    scripted = script(join=Later(join_answer(), gate), heartbeat=classic_heartbeat_answer(), **ANSWERS)
    with ScriptedBroker(scripted, versions=OFFERED) as broker:
        others, joined = result_of(broker, act)
        connections = {api: broker.requests(api)[0].connection for api in (JOIN, CLASSIC_HEARTBEAT, COMMIT, LEAVE)}
    assert [type(event) for event in others] == [ClassicHeartbeatAnswered, ClassicCommitAnswered, ClassicLeft]
    assert isinstance(joined, JoinAnswered)
    assert connections[CLASSIC_HEARTBEAT] == connections[COMMIT] == connections[LEAVE] != connections[JOIN]


def test_join_waits_for_the_group_longer_than_a_request_timeout() -> None:
    """Rules 4.2: a join waits for the rebalance timeout and 5 s, if that is longer than the request timeout."""
    gate = Gate()

    async def act(client: Cluster, at: BrokerAddress) -> object:
        # The short timeout applies to the response, not to the connection.
        await exchange(client, at, "g", sync_order(), PATIENCE_S)
        joining = asyncio.create_task(exchange(client, at, "g", LONG, 0.2))
        await asyncio.to_thread(broker.wait_for, JOIN)
        done, _ = await asyncio.wait((joining,), timeout=0.3)
        assert not done
        gate.open()
        return await joining

    scripted = script(join=Later(join_answer(), gate), sync=sync_answer(assignment=encode_assignment({T0})))
    with ScriptedBroker(scripted, versions=OFFERED) as broker:
        assert isinstance(result_of(broker, act), JoinAnswered)


def test_join_prepares_the_connection_of_later_requests_while_it_waits() -> None:
    """Requests after the join use another connection, which is open by the time the join is answered."""
    gate = Gate()

    async def act(client: Cluster, at: BrokerAddress) -> object:
        joining = asyncio.create_task(exchange(client, at, "g", LONG, PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, JOIN)
        await asyncio.to_thread(broker.wait_for, API_VERSIONS, 2)
        gate.open()
        await joining
        return await exchange(client, at, "g", heartbeat_order(), PATIENCE_S)

    with ScriptedBroker(
        script(join=Later(join_answer(), gate), heartbeat=classic_heartbeat_answer()), versions=OFFERED
    ) as broker:
        result_of(broker, act)
        assert len(broker.requests(API_VERSIONS)) == 2


@pytest.mark.parametrize("kind", ["join", "sync"])
def test_next_join_does_not_wait_behind_a_cancelled_request(kind: str) -> None:
    """The broker would read the join only after its response to the cancelled request."""
    gate = Gate()
    first = [Later(join_answer() if kind == "join" else sync_answer(assignment=encode_assignment({T0})), gate)]

    def answer(_: Received) -> Answer:
        return first.pop() if first else join_answer(generation_id=6)

    async def act(client: Cluster, at: BrokerAddress) -> object:
        waits = (
            exchange(client, at, "g", LONG, PATIENCE_S)
            if kind == "join"
            else exchange(client, at, "g", sync_order(), 9.0)
        )
        given_up = asyncio.create_task(waits)
        await asyncio.to_thread(broker.wait_for, JOIN if kind == "join" else SYNC)
        given_up.cancel()
        await asyncio.wait((given_up,))
        assert given_up.cancelled()
        return await exchange(client, at, "g", replace(LONG, request_id=8), PATIENCE_S)

    with ScriptedBroker(script(join=answer, sync=answer), versions=OFFERED) as broker:
        joined = result_of(broker, act)
        gate.open()
    assert isinstance(joined, JoinAnswered)
    assert (joined.request_id, joined.generation) == (8, 6)


def test_end_of_the_joins_connection_reports_no_lost_coordinator() -> None:
    """The join's own outcome reports the end, and the connection of the heartbeats stays open."""
    lost: list[str] = []

    async def act(client: Cluster, at: BrokerAddress) -> list[object]:
        failed = await exchange(client, at, "g", LONG, PATIENCE_S)
        return [failed, await exchange(client, at, "g", heartbeat_order(), PATIENCE_S)]

    with ScriptedBroker(script(join=DISCONNECT, heartbeat=classic_heartbeat_answer()), versions=OFFERED) as broker:
        events = result_of(broker, act, on_coordinator_lost=lambda _, reason: lost.append(reason))
    assert [type(event) for event in events] == [ExchangeFailed, ClassicHeartbeatAnswered]
    assert lost == []
