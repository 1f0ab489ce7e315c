"""One connection over real TCP: connecting, requests, and every way in which it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from consumer_membership.config import AddressFamily, ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.runtime.network import transport
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.transport import AnswerTimedOutError, BrokerConnection, connect
from consumer_membership.translation import requests
from consumer_membership.wire.codec import Call, Message
from tests.support.kio_entities import as_struct
from tests.support.ports import listening, unused_port
from tests.support.scripted_broker import (
    DISCONNECT,
    DROP,
    NEWEST,
    Answer,
    Gate,
    Later,
    Raw,
    Received,
    ScriptedBroker,
)
from tests.support.waiting import PATIENCE_S
from tests.wire.frames import heartbeat_answer

SETTINGS = ConnectionSettings(bootstrap_servers=(), client_id="tester", connection_setup_timeout_s=PATIENCE_S)


def heartbeats_answered_by(answer: Callable[[Received], Answer]) -> Callable[[Received], Answer]:
    """Return a script that answers only heartbeats."""
    return lambda request: answer(request) if request.api_key == 68 else None


def heartbeat(connection: BrokerConnection, epoch: int = 5) -> Call:
    """Return a heartbeat in the version of this connection."""
    return requests.consumer_group_heartbeat(connection.versions, "g", Heartbeat(member_id="m", member_epoch=epoch))


def epoch_of(request: Received) -> Answer:
    """Return a response with the epoch of the request."""
    return heartbeat_answer(epoch=request.entity.member_epoch)


async def connected(broker: ScriptedBroker, settings: ConnectionSettings = SETTINGS) -> BrokerConnection:
    """Return a connection to the broker's first node."""
    return await connect(*broker.servers[0], settings, ConnectionSecurity(settings))


# ---- requests --------------------------------------------------------------------------------------------------------


def test_request_returns_the_response_as_an_entity() -> None:
    """The request has the client's id."""

    async def run() -> Message:
        connection = await connected(broker)
        answer = await connection.request(heartbeat(connection), PATIENCE_S)
        await connection.close()
        return answer

    with ScriptedBroker(heartbeats_answered_by(lambda _: heartbeat_answer(epoch=7))) as broker:
        assert asyncio.run(run()) == as_struct(heartbeat_answer(epoch=7))
        (request,) = broker.requests(68)
        assert (request.client_id, request.entity.member_epoch) == ("tester", 5)


def test_requests_may_overlap_and_get_their_own_responses() -> None:
    """Several requests are in flight at once, and each caller receives its own response."""

    async def run() -> list[int]:
        connection = await connected(broker)
        answers = await asyncio.gather(
            *(connection.request(heartbeat(connection, epoch), PATIENCE_S) for epoch in range(20))
        )
        await connection.close()
        return [answer.member_epoch for answer in answers]

    with ScriptedBroker(heartbeats_answered_by(epoch_of)) as broker:
        assert asyncio.run(run()) == list(range(20))


def test_requests_of_one_turn_need_one_write_while_a_response_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request is written immediately, and the others in one write, as each write lets other threads run."""
    writes: list[int] = []

    async def run() -> list[int]:
        connection = await connected(broker)
        transport = connection._transport
        assert transport is not None
        write = transport.write
        monkeypatch.setattr(transport, "write", lambda data: (writes.append(len(data)), write(data)))
        asked = [connection.request(heartbeat(connection, epoch), PATIENCE_S) for epoch in range(20)]
        answers = await asyncio.gather(*asked)
        await connection.close()
        return [answer.member_epoch for answer in answers]

    with ScriptedBroker(heartbeats_answered_by(epoch_of)) as broker:
        assert (asyncio.run(run()), len(writes)) == (list(range(20)), 2)


def test_closed_connection_has_sent_the_requests_before() -> None:
    """If a member leaves and closes immediately, its leave is still sent, although a response is awaited."""

    async def run() -> None:
        connection = await connected(broker)
        asked = [
            asyncio.create_task(connection.request(heartbeat(connection, epoch), PATIENCE_S)) for epoch in range(3)
        ]
        await asyncio.sleep(0)  # all requests have begun
        connection.drop(TransportError("the end"))
        await asyncio.gather(*asked, return_exceptions=True)

    with ScriptedBroker(heartbeats_answered_by(lambda _: DROP)) as broker:
        asyncio.run(run())
        broker.wait_for(68, 3)


def test_delay_of_a_connection_follows_from_the_time_of_its_requests() -> None:
    """A request waits for the earlier requests; each takes the average time, or 5 ms before the first response."""

    async def run() -> list[bool]:
        connection = await connected(broker)
        assert connection.delay_s == 0.0
        asked = [
            asyncio.create_task(connection.request(heartbeat(connection, epoch), PATIENCE_S)) for epoch in range(20)
        ]
        await asyncio.sleep(0)  # all requests have begun
        before = connection.delay_s
        gate.open()
        await asyncio.gather(*asked)
        after = connection.delay_s
        await connection.close()
        return [before >= 20 * 0.005, after == 0.0]

    gate = Gate()
    with ScriptedBroker(heartbeats_answered_by(lambda request: Later(epoch_of(request), gate))) as broker:
        assert asyncio.run(run()) == [True, True]


def test_late_response_is_dropped_and_the_next_request_succeeds() -> None:
    """H09: a request that timed out leaves the connection usable, and its late response affects no other request."""
    gate = Gate()

    def answer(request: Received) -> Answer:
        reply = heartbeat_answer(epoch=request.entity.member_epoch)
        return Later(reply, gate) if request.entity.member_epoch == 1 else reply

    async def run() -> int:
        connection = await connected(broker)
        with pytest.raises(AnswerTimedOutError, match=r"no response to ConsumerGroupHeartbeat v1 within 0\.02 s"):
            await connection.request(heartbeat(connection, 1), 0.02)
        gate.open()
        answer = await connection.request(heartbeat(connection, 2), PATIENCE_S)
        assert connection.traffic.snapshot().timeouts == 1
        await connection.close()
        return answer.member_epoch

    with ScriptedBroker(heartbeats_answered_by(answer)) as broker:
        assert asyncio.run(run()) == 2


def test_throttled_connection_sends_the_next_requests_after_the_throttle_time_in_their_order() -> None:
    """KIP-219: A response with a throttle time withholds later requests, whose timeouts begin after it.

    The test ends the throttle time by a call of the connection's timer.
    """

    def answer(request: Received) -> Answer:
        epoch = request.entity.member_epoch
        throttle_s = 3600.0 if epoch == 1 else 0.0
        return replace(heartbeat_answer(epoch=epoch), throttle_time=timedelta(seconds=throttle_s))

    async def run() -> list[int]:
        connection = await connected(broker)
        await connection.request(heartbeat(connection, 1), PATIENCE_S)
        assert 3500.0 < connection.throttled_s <= 3600.0
        later = [
            asyncio.ensure_future(connection.request(heartbeat(connection, epoch), PATIENCE_S)) for epoch in (2, 3)
        ]
        # Another connection of the same client is not throttled. Its response proves that the broker received none of
        # these.
        other = await connected(broker)
        await other.request(heartbeat(other, 9), PATIENCE_S)
        assert [request.entity.member_epoch for request in broker.requests(68)] == [1, 9]
        connection._write_withheld()  # the timer calls this method
        answers = [(await one).member_epoch for one in later]
        assert connection.traffic.snapshot().throttles == 1
        await connection.close()
        await other.close()
        return answers

    with ScriptedBroker(heartbeats_answered_by(answer)) as broker:
        assert asyncio.run(run()) == [2, 3]
        assert [request.entity.member_epoch for request in broker.requests(68)] == [1, 9, 2, 3]


def test_cancelled_request_leaves_the_connection_usable() -> None:
    """A caller may be cancelled at any time, and other callers are not affected."""
    gate = Gate()

    def answer(request: Received) -> Answer:
        return Later(heartbeat_answer(epoch=request.entity.member_epoch), gate)

    async def run() -> int:
        connection = await connected(broker)
        given_up = asyncio.create_task(connection.request(heartbeat(connection, 1), PATIENCE_S))
        kept = asyncio.create_task(connection.request(heartbeat(connection, 2), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, 68)
        given_up.cancel()
        gate.open()
        answer = await kept
        await connection.close()
        assert given_up.cancelled()
        return answer.member_epoch

    with ScriptedBroker(heartbeats_answered_by(answer)) as broker:
        assert asyncio.run(run()) == 2


# ---- the end of a connection -----------------------------------------------------------------------------------------


def ends_of(script: Callable[[Received], Answer], callers: int) -> tuple[list[Any], list[str]]:
    """Return the outcome of each caller, and the calls of `on_closed`."""
    closings: list[str] = []

    async def run() -> list[Any]:
        connection = await connected(broker)
        connection.on_closed = lambda error: closings.append(str(error))
        answers = await asyncio.gather(
            *(connection.request(heartbeat(connection), PATIENCE_S) for _ in range(callers)), return_exceptions=True
        )
        with pytest.raises(TransportError, match="the connection is closed"):
            await connection.request(heartbeat(connection), PATIENCE_S)
        await connection.close()
        return answers

    with ScriptedBroker(heartbeats_answered_by(script)) as broker:
        answers = asyncio.run(run())
        peer = broker.bootstrap_servers
    return [str(a).replace(peer, "PEER") for a in answers], [text.replace(peer, "PEER") for text in closings]


def test_disconnect_fails_every_waiting_request_with_the_reason() -> None:
    """H10: each waiting caller and the owner are notified immediately that no response will arrive."""
    text = (
        "PEER: the peer closed the connection instead of responding to the first request; check whether the port "
        "needs SASL (security.protocol)"
    )
    assert ends_of(lambda _: DISCONNECT, 3) == ([text] * 3, [text])


def test_unreadable_response_ends_the_connection_with_the_reason() -> None:
    """A stream that cannot be decoded fails immediately, not after the timeout."""
    answers, closings = ends_of(lambda _: Raw(b"\x7f\xff\xff\xff"), 1)
    text = (
        "PEER: a response has a size of 2147483647 bytes, above receive.message.max.bytes=100000000; raise the key, or "
    )
    assert answers[0].startswith(text)
    assert closings == answers


def test_idle_connection_that_ends_is_reported() -> None:
    """No caller waits, so only the owner is notified."""
    closings: asyncio.Queue[TransportError] = asyncio.Queue()

    async def run() -> bool:
        connection = await connected(broker)
        connection.on_closed = closings.put_nowait
        await asyncio.to_thread(broker.disconnect, 1)
        await closings.get()
        return connection.is_open

    with ScriptedBroker() as broker:
        assert asyncio.run(run()) is False


def test_close_fails_waiting_requests_and_does_not_call_on_closed() -> None:
    """The owner closed the connection itself, and a second close changes nothing."""
    closings: list[object] = []

    async def run() -> None:
        connection = await connected(broker)
        connection.on_closed = lambda *ending: closings.append(ending)
        waiting = asyncio.create_task(connection.request(heartbeat(connection), PATIENCE_S))
        await asyncio.to_thread(broker.wait_for, 68)
        await connection.close()
        await connection.close()
        with pytest.raises(TransportError, match="closed by this side"):
            await waiting

    with ScriptedBroker(heartbeats_answered_by(lambda _: DROP)) as broker:
        asyncio.run(run())
    assert closings == []


# ---- connecting ------------------------------------------------------------------------------------------------------


def refusal(host: str, port: int, settings: ConnectionSettings = SETTINGS) -> str:
    """Return the message of the error with which connecting fails."""
    with pytest.raises(TransportError) as caught:
        asyncio.run(connect(host, port, settings, ConnectionSecurity(settings)))
    return str(caught.value)


def test_connect_to_a_closed_port_names_the_peer_and_the_remedy() -> None:
    """The message names the address and the possible causes."""
    with unused_port() as port:
        assert refusal("127.0.0.1", port) == (
            f"127.0.0.1:{port}: no connection to 127.0.0.1:{port}: connection refused; no process listens there: "
            "check that the broker is running, and the port"
        )


def test_connect_reports_a_disconnect_at_any_moment_of_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the disconnect, not "Bad file descriptor", which the socket's options raise."""
    wrap = transport._wrap

    async def wrapped_when_it_is_over(connection: BrokerConnection, sock: socket.socket, _: None, host: str) -> None:
        await wrap(connection, sock, None, host)
        await connection._ended.wait()

    monkeypatch.setattr(transport, "_wrap", wrapped_when_it_is_over)
    with ScriptedBroker(lambda _: DISCONNECT) as broker:
        text = refusal(*broker.servers[0])
    assert "the peer closed the connection instead of responding to the first request" in text


def test_connect_to_an_unknown_host_names_the_host_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the resolver's reason and the keys from which the name may come."""
    resolve_to(monkeypatch, 9092)
    text = refusal("broker.example", 9092)
    assert text.startswith(
        "broker.example:9092: the name 'broker.example' cannot be resolved (Name or service not known)"
    )
    assert "bootstrap.servers" in text
    assert "advertised.listeners" in text


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("bro\0ker", 9092, "bro\\x00ker:9092: the host 'bro\\x00ker' has a NUL character at position 3"),
        ("127.0.0.1", 70_000, "127.0.0.1:70000: the port 70000 is not between 1 and 65535"),
        ("127.0.0.1", -1, "127.0.0.1:-1: the port -1 is not between 1 and 65535"),
    ],
)
def test_connect_to_an_invalid_address_raises_a_transport_error(host: str, port: int, message: str) -> None:
    """A broker may advertise any text; it must neither end the member nor enter its log unescaped."""
    text = refusal(host, port)
    assert text == f"{message}; check bootstrap.servers, or advertised.listeners of the broker"


def test_connect_to_a_silent_port_fails_after_the_setup_timeout() -> None:
    """The handshake with a port that accepts and stays silent has its own time limit."""
    with listening() as port:
        text = refusal("127.0.0.1", port, replace(SETTINGS, connection_setup_timeout_s=0.5))
    assert text == (
        f"127.0.0.1:{port}: connected to 127.0.0.1:{port}, no response within 0.5 s; check that this is the port of a "
        "Kafka broker"
    )


@pytest.mark.parametrize(
    ("answer", "diagnosis"),
    [
        pytest.param(Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "the peer is an HTTP server", id="HTTP"),
        pytest.param(Raw(b"\x15\x03\x03\x00\x02\x02\x50"), "the peer responded with TLS", id="TLS"),
        pytest.param(DISCONNECT, "check whether the port needs TLS or SASL", id="disconnect"),
    ],
)
def test_connect_explains_a_peer_that_is_not_a_plaintext_kafka_listener(answer: Answer, diagnosis: str) -> None:
    """The error has the peer's address and the diagnosis of the handshake."""
    with ScriptedBroker(lambda _: answer) as broker:
        text = refusal(*broker.servers[0])
        assert text.startswith(f"{broker.bootstrap_servers}: ")
        assert diagnosis in text


def test_connect_to_an_old_broker_repeats_api_versions_in_an_older_version() -> None:
    """If the broker does not support the version of ApiVersions, the request is repeated on the same connection."""

    async def run() -> int:
        connection = await connected(broker)
        answer = await connection.request(heartbeat(connection), PATIENCE_S)
        await connection.close()
        return answer.member_epoch

    versions = {**NEWEST, 18: (0, 2)}
    script = heartbeats_answered_by(lambda _: heartbeat_answer(epoch=7))
    with ScriptedBroker(script, versions=versions) as broker:
        assert asyncio.run(run()) == 7
        assert [(r.version, r.connection) for r in broker.requests(18)] == [(3, 1), (0, 1)]


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 loopback address."""
    try:
        with listening(socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_connect_tries_all_addresses_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without a listener does not hide the next address of the name."""

    async def run() -> None:
        await (await connect("broker.example", broker.servers[0][1], SETTINGS, ConnectionSecurity(SETTINGS))).close()

    with ScriptedBroker() as broker:
        resolve_to(monkeypatch, broker.servers[0][1], "::1", "127.0.0.1")
        asyncio.run(run())


def test_connect_names_the_reason_for_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all addresses fail, the error has all reasons."""
    with unused_port() as port:
        resolve_to(monkeypatch, port, "127.0.0.1", "127.0.0.2")
        text = refusal("broker.example", port)
    assert f"no connection to 127.0.0.1:{port}: connection refused" in text
    assert f"no connection to 127.0.0.2:{port}: connection refused" in text


def resolve_to(monkeypatch: pytest.MonkeyPatch, port: int, *addresses: str) -> None:
    """Let the resolver return these addresses, or raise its error if there are none."""
    found = [
        (socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in addresses
    ]

    def resolver(*_: object, flags: int = 0, **__: object) -> list[Any]:
        if not found or flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    monkeypatch.setattr(socket, "getaddrinfo", resolver)


def test_connect_with_an_address_family_uses_only_its_addresses() -> None:
    """broker.address.family: an IPv4 literal has no IPv6 address."""
    text = refusal("127.0.0.1", 9092, replace(SETTINGS, address_family=AddressFamily.V6))
    assert "the name '127.0.0.1' cannot be resolved" in text


@pytest.mark.parametrize(("keepalive", "disable_nagle"), [(False, True), (True, False)])
def test_socket_options_follow_the_settings(keepalive: bool, disable_nagle: bool) -> None:  # noqa: FBT001
    """socket.keepalive.enable, socket.nagle.disable and the buffer sizes are set on the socket."""
    settings = replace(
        SETTINGS,
        keepalive=keepalive,
        disable_nagle=disable_nagle,
        send_buffer_bytes=50_000,
        receive_buffer_bytes=60_000,
    )

    async def run() -> list[int]:
        connection = await connected(broker, settings)
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        options = [
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        ]
        await connection.close()
        return options

    with ScriptedBroker() as broker:
        # Linux doubles the given sizes for its own overhead.
        keeps_alive, no_delay, send_bytes, receive_bytes = asyncio.run(run())
    assert (bool(keeps_alive), bool(no_delay)) == (keepalive, disable_nagle)
    assert (send_bytes >= 50_000, receive_bytes >= 60_000) == (True, True)


def test_connect_that_is_cancelled_closes_its_socket() -> None:
    """Connecting may be cancelled during the handshake; a leaked socket would fail the test run."""

    async def run() -> None:
        attempt = asyncio.create_task(connected(broker))
        await asyncio.to_thread(broker.wait_for, 18)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    with ScriptedBroker(lambda _: DROP) as broker:
        asyncio.run(run())
