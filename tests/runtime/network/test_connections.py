"""Connections on demand: one for each broker and purpose, attempted in parallel, with a backoff after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network import connections, transport
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.connections import Connections, Listener, Pinned, Purpose
from consumer_membership.translation import requests
from consumer_membership.types import BrokerAddress
from tests.runtime.clients import METADATA, node, settings
from tests.support.ports import listening, unused_port
from tests.support.scripted_broker import Answer, Gate, Later, Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S

API_VERSIONS = 18

ResultT = TypeVar("ResultT")


def with_connections(
    act: Callable[[Connections], Awaitable[ResultT]],
    known: ConnectionSettings | None = None,
    on_silence: Callable[[str], None] = lambda _: None,
    longest_pause_s: Callable[[], float | None] = lambda: None,
) -> ResultT:
    """Return the result of `act` with connections, which are closed at the end."""

    async def run() -> ResultT:
        wanted = known or settings()
        security = ConnectionSecurity(wanted)
        pool = Connections(wanted, security)
        pool.add(Listener(on_silence=on_silence, longest_pause_s=longest_pause_s))
        try:
            return await act(pool)
        finally:
            await pool.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(run())


def broker_at(port: int) -> BrokerAddress:
    """Return the address of a broker with this port."""
    return BrokerAddress(node_id=9, host="127.0.0.1", port=port)


def test_idle_connection_is_closed_and_replaced_on_demand() -> None:
    """After connections.max.idle.ms the connection is closed, and no loss is reported."""

    async def act(pool: Connections) -> list[bool]:
        first = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        await first._ended.wait()
        second = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        return [first.is_open, second is first, second.is_open]

    with ScriptedBroker() as broker:
        assert with_connections(act, replace(settings(), max_idle_s=0.05)) == [False, False, True]


def test_connection_with_a_request_in_flight_is_not_idle() -> None:
    """A broker may take minutes to answer a request of a rebalance."""

    async def act(pool: Connections) -> float:
        connection = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        asked = asyncio.create_task(connection.request(requests.metadata_of_names(connection.versions, ()), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, METADATA)
        pool._close_when_idle(connection)
        idle_s = connection.idle_s
        gate.open()
        await asked
        return idle_s

    def metadata_later(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == METADATA else None

    gate = Gate()
    with ScriptedBroker(metadata_later) as broker:
        assert with_connections(act, replace(settings(), max_idle_s=0.05)) == 0.0


def test_connections_are_shared_by_broker_and_purpose() -> None:
    """The same broker and purpose share a connection; another purpose has another connection."""

    async def act(pool: Connections) -> list[bool]:
        group = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        again = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        cluster = await pool.get(Purpose.CLUSTER, node(broker), PATIENCE_S)
        return [group is again, group is cluster, pool.any_open(Purpose.CLUSTER) is cluster]

    with ScriptedBroker() as broker:
        assert with_connections(act) == [True, False, True]


def test_blocked_connection_gets_an_additional_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without a response blocks its connection for other clients; its own client stays there, in order."""
    monkeypatch.setattr(connections, "BLOCKED_AFTER_S", 0.0)
    monkeypatch.setattr(connections, "_ADDITIONAL_WAIT_S", PATIENCE_S)
    gate = Gate()

    async def act(pool: Connections) -> list[bool]:
        first = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        asked = asyncio.create_task(first.request(requests.metadata_of_names(first.versions, ()), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, METADATA)
        pinned = Pinned(first, node(broker), first.written)
        second = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        during = [second is first, pinned.holds(node(broker)), first.unanswered == 1]
        gate.open()
        await asked
        third = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        return [*during, third in (first, second), pinned.holds(node(broker)), first.unanswered == 0]

    def metadata_later(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == METADATA else None

    with ScriptedBroker(metadata_later) as broker:
        assert with_connections(act) == [False, True, True, True, False, True]


def test_blocked_requests_open_several_connections_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the coordinator, joins of many new groups wait for each other only if they share a connection."""
    monkeypatch.setattr(connections, "BLOCKED_AFTER_S", 0.0)
    monkeypatch.setattr(connections, "_ADDITIONAL_WAIT_S", PATIENCE_S)
    gate = Gate()

    async def act(pool: Connections) -> int:
        first = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        asked = asyncio.create_task(first.request(requests.metadata_of_names(first.versions, ()), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, METADATA)
        waiting = [asyncio.create_task(pool.get(Purpose.GROUP, node(broker), PATIENCE_S)) for _ in range(5)]
        await asyncio.sleep(0)  # lets the loop read the responses that have arrived
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        dialed = len(pool._dialing)
        await asyncio.gather(*waiting)
        gate.open()
        await asked
        return dialed

    def metadata_later(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == METADATA else None

    with ScriptedBroker(metadata_later) as broker:
        assert with_connections(act) == 5


def test_many_requests_need_no_other_connection_to_a_quick_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay counts, not the number of requests, because an additional connection costs a file and a handshake."""
    monkeypatch.setattr(connections, "BLOCKED_AFTER_S", PATIENCE_S)
    gate = Gate()

    async def act(pool: Connections) -> list[bool]:
        first = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        call = requests.metadata_of_names(first.versions, ())
        asked = [asyncio.create_task(first.request(call, PATIENCE_S)) for _ in range(50)]
        await asyncio.to_thread(broker.wait_for, METADATA)
        again = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        gate.open()
        await asyncio.gather(*asked)
        return [first is again]

    def metadata_later(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == METADATA else None

    with ScriptedBroker(metadata_later) as broker:
        assert with_connections(act) == [True]


def test_additional_connection_is_not_used_while_the_first_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The additional connection becomes idle and is then closed, even if it has fewer requests."""
    monkeypatch.setattr(connections, "BLOCKED_AFTER_S", 0.0)
    monkeypatch.setattr(connections, "_ADDITIONAL_WAIT_S", PATIENCE_S)
    gate = Gate()

    async def act(pool: Connections) -> list[bool]:
        first = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        call = requests.metadata_of_names(first.versions, ())
        asked = asyncio.create_task(first.request(call, PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, METADATA)
        second = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        monkeypatch.setattr(connections, "BLOCKED_AFTER_S", PATIENCE_S)
        third = await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        gate.open()
        await asked
        return [second is first, third is first]

    def metadata_later(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == METADATA else None

    with ScriptedBroker(metadata_later) as broker:
        assert with_connections(act) == [False, True]


def test_rebalance_has_a_connection_for_each_member_which_ends_with_it() -> None:
    """A JoinGroup waits at the coordinator for other members, so no other member's request may wait behind it."""

    async def act(pool: Connections) -> list[bool]:
        listeners = Listener(), Listener()
        for listener in listeners:
            pool.add(listener)
        one, other = [await pool.get(Purpose.REBALANCE, node(broker), PATIENCE_S, each) for each in listeners]
        again = await pool.get(Purpose.REBALANCE, node(broker), PATIENCE_S, listeners[0])
        pool.remove(listeners[0])
        return [one is other, again is one, one.is_open, other.is_open]

    with ScriptedBroker() as broker:
        assert with_connections(act) == [False, True, False, True]


def test_connection_attempt_is_shared_and_survives_the_timeout_of_a_caller() -> None:
    """One attempt serves all callers, and the timeout of one caller does not end it for the others."""
    gate = Gate()

    def held_back(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == API_VERSIONS else None

    async def act(pool: Connections) -> bool:
        patient = asyncio.create_task(pool.get(Purpose.GROUP, node(broker), PATIENCE_S))
        cancelled = asyncio.create_task(pool.get(Purpose.GROUP, node(broker), PATIENCE_S))
        with pytest.raises(TransportError, match=r"not connected within 0\.01 s"):
            await pool.get(Purpose.GROUP, node(broker), 0.01)
        cancelled.cancel()
        gate.open()
        return (await patient).is_open

    with ScriptedBroker(held_back) as broker:
        assert with_connections(act) is True
        assert len(broker.requests(API_VERSIONS)) == 1


def test_first_of_tries_the_next_broker_while_another_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not respond has a head start; then the next broker is tried in parallel."""
    monkeypatch.setattr(connections, "_HEAD_START_S", 0.01)

    async def act(pool: Connections) -> BrokerAddress:
        found, _ = await pool.first_of(Purpose.CLUSTER, [broker_at(silent), node(broker)])
        return found

    with ScriptedBroker() as broker, listening() as silent:
        assert with_connections(act) == node(broker)


def test_first_of_returns_an_open_connection() -> None:
    """A caller that needs any broker uses the open connection; a second connection would stay unclosed."""

    async def act(pool: Connections) -> tuple[bool, int]:
        _, one = await pool.first_of(Purpose.CLUSTER, [node(broker)])
        _, other = await pool.first_of(Purpose.CLUSTER, [node(broker)])
        return one is other, len(broker.requests(API_VERSIONS))

    with ScriptedBroker() as broker:
        assert with_connections(act) == (True, 1)


def test_first_of_tries_the_next_broker_at_once_after_a_refusal() -> None:
    """A broker that refuses the connection has no head start."""

    async def act(pool: Connections) -> BrokerAddress:
        found, _ = await pool.first_of(Purpose.CLUSTER, [broker_at(refusing), node(broker)])
        return found

    with ScriptedBroker() as broker, unused_port() as refusing:
        assert with_connections(act) == node(broker)


def test_backoff_doubles_up_to_its_maximum_and_ends_with_a_success() -> None:
    """reconnect.backoff.ms and reconnect.backoff.max.ms apply, with up to one base interval of jitter."""

    async def act(pool: Connections) -> list[float]:
        waits = []
        for _ in range(5):
            with pytest.raises(TransportError):
                await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
            waits.append(pool._backoff(node(broker)).wait_s)
            pool.clear_backoff(node(broker))
        await asyncio.to_thread(broker.start_node, 1)
        await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        await asyncio.to_thread(broker.stop_node, 1)
        with pytest.raises(TransportError):
            await pool.get(Purpose.CLUSTER, node(broker), PATIENCE_S)
        return [*waits, pool._backoff(node(broker)).wait_s]

    slow = replace(settings(), reconnect_backoff_s=100.0, reconnect_backoff_max_s=900.0)
    with ScriptedBroker() as broker:
        broker.stop_node(1)
        waits = with_connections(act, slow)
    # Time passes between the failure and the reading of the backoff.
    grace_s = 30.0
    expected = [(100, 200), (200, 300), (400, 500), (800, 900), (900, 900), (100, 200)]
    assert [low - grace_s <= wait <= high for wait, (low, high) in zip(waits, expected, strict=True)] == [True] * 6


def test_clear_backoff_allows_an_immediate_attempt() -> None:
    """A broker's backoff ends when another broker returns its address."""

    async def act(pool: Connections) -> bool:
        with pytest.raises(TransportError):
            await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        await asyncio.to_thread(broker.start_node, 1)
        with pytest.raises(TransportError):
            await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        pool.clear_backoff(node(broker))
        return (await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)).is_open

    slow = replace(settings(), reconnect_backoff_s=100.0, reconnect_backoff_max_s=900.0)
    with ScriptedBroker() as broker:
        broker.stop_node(1)
        assert with_connections(act, slow) is True


def test_backoff_is_limited_by_the_owner() -> None:
    """The owner's limit applies down to reconnect.backoff.ms; without a limit the settings apply."""
    pauses: list[float | None] = [None, 7.0, 0.01]

    async def act(pool: Connections) -> list[float]:
        waits = []
        for _ in pauses:
            pool._backoff(broker_at(port))._delays.failures = 7
            pool.clear_backoff(broker_at(port))
            with pytest.raises(TransportError):
                await pool.get(Purpose.GROUP, broker_at(port), PATIENCE_S)
            waits.append(pool._backoff(broker_at(port)).wait_s)
        return waits

    patient = replace(settings(), reconnect_backoff_s=1.0, reconnect_backoff_max_s=900.0)
    with unused_port() as port:
        waits = with_connections(act, patient, longest_pause_s=iter(pauses).__next__)
    assert waits[0] > 100
    assert (waits[1] <= 7.0, waits[2] <= 1.0) == (True, True)


def test_get_after_close_raises_transport_error() -> None:
    """The error tells a late caller that the client was closed."""

    async def act(pool: Connections) -> None:
        await pool.close()
        with pytest.raises(TransportError, match="the client is closed"):
            await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)

    with ScriptedBroker() as broker:
        with_connections(act)


# ---- a port that accepts connections and never responds --------------------------------------------------------------


def silence(port: int) -> str:
    """Return the warning about a silent port."""
    return (
        f"127.0.0.1:{port} accepted the connection and did not respond within 0.01 s; check that it is a Kafka listener"
    )


def test_silent_port_is_reported_once_long_before_the_attempt_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one warning, each attempt calls `on_silence`, and a caller whose time is over receives the text."""
    monkeypatch.setattr(transport, "SILENT_AFTER_S", 0.01)
    reported: asyncio.Queue[str] = asyncio.Queue()

    async def act(pool: Connections) -> tuple[list[str], tuple[str, ...], str]:
        attempts = [asyncio.create_task(pool.first_of(purpose, [broker_at(port)])) for purpose in Purpose]
        texts = [await asyncio.wait_for(reported.get(), PATIENCE_S) for _ in attempts]
        with pytest.raises(TransportError) as caught:
            await pool.get(Purpose.GROUP, broker_at(port), 0.01)
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        return texts, pool.silences, str(caught.value)

    with listening() as port:
        texts, silences, given_up = with_connections(act, on_silence=reported.put_nowait)
        expected = silence(port)
    assert (texts, silences) == ([expected] * len(Purpose), (expected,))
    assert given_up == f"127.0.0.1:{port}: not connected within 0.01 s: {expected}"
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [expected]


def test_silence_of_a_slow_broker_ends_with_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that responds late is not silent afterwards."""
    monkeypatch.setattr(transport, "SILENT_AFTER_S", 0.01)
    gate = Gate()

    def held_back(request: Received) -> Answer:
        return Later(broker.own_answer(request), gate) if request.api_key == API_VERSIONS else None

    async def act(pool: Connections) -> tuple[str, ...]:
        await pool.get(Purpose.GROUP, node(broker), PATIENCE_S)
        return pool.silences

    with ScriptedBroker(held_back) as broker:
        assert with_connections(act, on_silence=lambda _: gate.open()) == ()
