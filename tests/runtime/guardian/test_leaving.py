"""The guardian's leave on behalf of a member over TCP, also after the coordinator moved."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.config import TlsSettings
from consumer_membership.runtime.guardian.leaving import Level, leave
from tests.runtime.clients import FIND
from tests.runtime.guardian.leave_requests import (
    HEARTBEAT,
    LEAVE_GROUP,
    Clock,
    OneAttempt,
    classic_leave_request,
    classic_script,
    heartbeat_response,
    leave_group_response,
    leave_request,
    left,
    script,
)
from tests.support.ports import unused_port
from tests.support.scripted_broker import DISCONNECT, NEWEST, Answer, Raw, Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give slow brokers on a busy machine enough time, so that they receive no second request."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.asking._ANSWER_S", 60.0)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leave_reaches_the_coordinator(instance_id: str | None, epoch: int) -> None:
    """The leave needs one connection and one request, in the newest version that both support."""
    with ScriptedBroker(script(ErrorCode.none)) as broker:
        (place,) = broker.servers
        outcome = left(leave_request(place, instance_id=instance_id))
        assert outcome == (Level.INFO, f"left on its behalf (epoch {epoch}) at coordinator {place[0]}:{place[1]}")
        asked = [(r.api_key, r.version) for r in broker.requests()]
        assert asked == [(18, 0), (HEARTBEAT, 1)]
        (request,) = broker.requests(HEARTBEAT)
        assert (request.entity.member_id, request.entity.member_epoch) == ("m", epoch)


def test_leave_to_an_older_broker_uses_the_older_version() -> None:
    """The guardian chooses the version in the same way as a member."""
    with ScriptedBroker(script(ErrorCode.none), versions={18: (0, 3), HEARTBEAT: (0, 0)}) as broker:
        assert left(leave_request(broker.servers[0])).level is Level.INFO
        assert broker.requests(HEARTBEAT)[0].version == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.group_id_not_found,
    ],
)
def test_leave_of_a_member_that_is_gone_ends_with_info(code: ErrorCode) -> None:
    """The member had left, another member has its place, or the group no longer exists."""
    with ScriptedBroker(script(code)) as broker:
        outcome = left(leave_request(broker.servers[0]))
        assert outcome.level is Level.INFO
        assert code.name.upper() in outcome.text
        assert len(broker.requests(HEARTBEAT)) == 1


def test_leave_that_is_refused_ends_with_the_brokers_message() -> None:
    """A refusal is final, because a retry would not help."""
    with ScriptedBroker(script(ErrorCode.group_authorization_failed)) as broker:
        outcome = left(leave_request(broker.servers[0]))
        assert outcome.level is Level.WARNING
        assert "error code 30 (the broker's message)" in outcome.text


def test_leave_is_sent_again_to_a_loading_coordinator() -> None:
    """A loading broker is still the group's coordinator, so no other broker receives a request."""
    with ScriptedBroker(script(ErrorCode.coordinator_load_in_progress, ErrorCode.none)) as broker:
        assert left(leave_request(broker.servers[0])).level is Level.INFO
        assert len(broker.requests(HEARTBEAT)) == 2
        assert broker.requests(FIND) == []


@pytest.mark.parametrize("code", [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available])
def test_leave_looks_up_a_coordinator_that_moved(code: ErrorCode) -> None:
    """The bootstrap servers return the new coordinator."""

    def answer(request: Received) -> Answer:
        if request.api_key != HEARTBEAT:
            return None
        return heartbeat_response(request, code if request.node_id == 1 else ErrorCode.none)

    with ScriptedBroker(answer, nodes=2) as broker:
        broker.coordinator = 2
        first, second = broker.servers
        outcome = left(leave_request(first, [first]))
        assert outcome.text.endswith(f"at coordinator {second[0]}:{second[1]}")
        assert [request.node_id for request in broker.requests(HEARTBEAT)] == [1, 2]


def test_leave_looks_up_a_coordinator_that_stopped() -> None:
    """A running bootstrap server returns the new coordinator; the first server in the list is down."""
    with ScriptedBroker(script(ErrorCode.none), nodes=2) as broker:
        broker.coordinator = 2
        first, second = broker.servers
        broker.stop_node(1)
        assert left(leave_request(first, [first, second])).text.endswith(f"at coordinator {second[0]}:{second[1]}")


def test_leave_looks_up_the_coordinator_with_the_older_version() -> None:
    """Librdkafka's mock cluster supports FindCoordinator up to version 3."""
    with ScriptedBroker(
        script(ErrorCode.not_coordinator, ErrorCode.none), versions={18: (0, 3), FIND: (0, 3), HEARTBEAT: (0, 1)}
    ) as broker:
        assert left(leave_request(broker.servers[0], broker.servers)).level is Level.INFO
        assert broker.requests(FIND)[0].version == 3


def test_leave_is_sent_again_after_a_lost_connection() -> None:
    """The broker may have received the first leave, but a second leave does no harm."""
    losses = [DISCONNECT]

    def answer(request: Received) -> Answer:
        if request.api_key != HEARTBEAT:
            return None
        return losses.pop() if losses else heartbeat_response(request, ErrorCode.unknown_member_id)

    with ScriptedBroker(answer) as broker:
        assert left(leave_request(broker.servers[0], broker.servers)).level is Level.INFO


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x50", b"\0\0\0\2ab"])
def test_leave_to_a_peer_that_is_not_a_broker_ends_in_time(noise: bytes) -> None:
    """The pauses grow and end after 30 s; if no leave succeeds, the group removes the member when its session ends."""
    clock = Clock()
    with ScriptedBroker(lambda _: Raw(noise)) as broker:
        outcome = left(leave_request(broker.servers[0]), clock)
        assert outcome.level is Level.WARNING
        assert "could not leave on its behalf within 30 s" in outcome.text
        assert 30 <= clock.now < 33
        assert 0.025 <= clock.slept[0] <= 0.05
        assert max(clock.slept) <= 2.0


def test_leave_to_an_unreachable_cluster_ends_with_the_reason() -> None:
    """The outcome names the server and the refused connection."""
    with unused_port() as port:
        place = ("127.0.0.1", port)
        outcome = left(leave_request(place, [place]))
    assert outcome.level is Level.WARNING
    assert f"127.0.0.1:{port}: Connection refused" in outcome.text


@pytest.mark.parametrize("name", ["no host", "kafka..ü"])
def test_leave_to_an_unknown_host_name_ends_with_the_reason(name: str) -> None:
    """The reason is the message of the resolver, or of the codec for international names."""
    nowhere = (name, 9092)
    outcome = left(leave_request(nowhere, [nowhere]))
    assert f"{name}:9092" in outcome.text


TLS = TlsSettings(verifies=False, checks_hostname=False)


@pytest.mark.parametrize("tls", [None, TLS], ids=["plaintext", "tls"])
@pytest.mark.parametrize("times", [-1, 1])
def test_leave_to_an_invalid_port_ends_with_the_reason(times: int, tls: TlsSettings | None) -> None:
    """A broker may advertise any number; the server whose port it is modulo 65536 receives nothing."""
    with ScriptedBroker(script(ErrorCode.none)) as broker:
        nowhere = ("127.0.0.1", broker.servers[0][1] + times * 2**16)
        outcome = left(leave_request(nowhere, [nowhere], tls=tls))
        assert outcome.level is Level.WARNING
        assert f"127.0.0.1:{nowhere[1]}: the port is not between 1 and 65535" in outcome.text
        assert broker.requests() == []


@pytest.mark.parametrize("tls", [None, TLS], ids=["plaintext", "tls"])
def test_leave_to_a_host_with_a_nul_ends_with_the_reason(tls: TlsSettings | None) -> None:
    """A broker may advertise any text; the guardian does not connect to the part before the NUL or log the NUL."""
    with ScriptedBroker(script(ErrorCode.none)) as broker:
        nowhere = ("127.0.0.1\0kafka", broker.servers[0][1])
        outcome = left(leave_request(nowhere, [nowhere], tls=tls))
        assert outcome.level is Level.WARNING
        assert f"127.0.0.1\\x00kafka:{nowhere[1]}: the host has a NUL character" in outcome.text
        assert "\0" not in outcome.text
        assert broker.requests() == []


def test_leave_looks_up_a_coordinator_with_an_invalid_host() -> None:
    """The other brokers return a coordinator that can be reached."""
    with ScriptedBroker(script(ErrorCode.none)) as broker:
        assert left(leave_request(("kafka\0", 9092), broker.servers)).level is Level.INFO
        assert [request.api_key for request in broker.requests()] == [18, FIND, 18, HEARTBEAT]


def test_leave_to_a_hanging_peer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that accepts connections and sends nothing must not block the guardian."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.asking._ANSWER_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        outcome = left(leave_request(place), OneAttempt())
        assert "timed out" in outcome.text


def test_leave_ends_after_its_total_time_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """If many brokers hang, the brokers after the end of the total time receive no request."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.asking._ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server, unused_port() as port:
        server.settimeout(0.0)
        outcome = leave(leave_request(("127.0.0.1", port), [server.getsockname()] * 100), patience_s=0.5)
        accepted = list(iter(lambda: accepted_by(server), None))
        for one in accepted:
            one.close()
    assert outcome.level is Level.WARNING
    # Each attempt takes at least a twentieth of a second.
    assert len(accepted) <= 11


def accepted_by(server: socket.socket) -> socket.socket | None:
    """Return the next connection that waits in this listening socket."""
    try:
        return server.accept()[0]
    except BlockingIOError:
        return None


def test_leave_to_a_peer_that_sends_byte_by_byte_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a response counts from the request, not from the latest byte."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.asking._ANSWER_S", 0.3)
    is_over = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"\0\0\x40\0")
            while not is_over.wait(0.01):
                connection.sendall(b"\0")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, args=(server,), daemon=True)
        dripping.start()
        outcome = left(leave_request(server.getsockname()), OneAttempt())
        is_over.set()
        dripping.join(PATIENCE_S)
    assert "timed out" in outcome.text


def test_leaves_of_several_members_do_not_wait_for_each_other() -> None:
    """Each leave has its own thread and shares no state with the others."""
    with ScriptedBroker(script(ErrorCode.none)) as broker:
        asked = [leave_request(broker.servers[0], member_id=f"m{number}") for number in range(20)]
        threads = [threading.Thread(target=leave, args=(one,)) for one in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(r.entity.member_id for r in broker.requests(HEARTBEAT)) == sorted(one.member_id for one in asked)


@pytest.mark.parametrize(("offered", "version"), [((0, 5), 5), ((0, 4), 4)])
def test_classic_leave_reaches_the_coordinator(offered: tuple[int, int], version: int) -> None:
    """The request is a LeaveGroup of this member, in the newest version that both support."""
    script_of_one = classic_script((ErrorCode.none, ErrorCode.none))
    with ScriptedBroker(script_of_one, versions={**NEWEST, LEAVE_GROUP: offered}) as broker:
        host, port = broker.servers[0]
        outcome = left(classic_leave_request(broker))
        assert outcome == (Level.INFO, f"left on its behalf (LeaveGroup) at coordinator {host}:{port}")
        assert [(r.api_key, r.version) for r in broker.requests()] == [(18, 0), (LEAVE_GROUP, version)]
        (member,) = broker.requests(LEAVE_GROUP)[0].entity.members
        assert (member.member_id, member.group_instance_id) == ("m", None)


@pytest.mark.parametrize("codes", [(ErrorCode.none, ErrorCode.unknown_member_id), (ErrorCode.unknown_member_id, None)])
def test_classic_leave_of_a_member_that_is_gone_ends_with_info(codes: tuple[ErrorCode, ErrorCode | None]) -> None:
    """The group no longer has the member, or the group does not exist, which the request's error code reports."""
    with ScriptedBroker(classic_script(codes)) as broker:
        outcome = left(classic_leave_request(broker))
        assert outcome.level is Level.INFO
        assert outcome.text.endswith("responded with UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize(
    "codes", [(ErrorCode.group_authorization_failed, None), (ErrorCode.none, ErrorCode.group_authorization_failed)]
)
def test_classic_leave_that_is_refused_ends_with_the_error_code(codes: tuple[ErrorCode, ErrorCode | None]) -> None:
    """The code belongs to the request or to the member; the protocol has no message for it."""
    with ScriptedBroker(classic_script(codes)) as broker:
        outcome = left(classic_leave_request(broker))
        assert outcome.level is Level.WARNING
        assert "responded with error code 30 (no message)" in outcome.text


def test_classic_leave_follows_a_coordinator_that_moved() -> None:
    """The first coordinator is loading and then rejects the leave with NOT_COORDINATOR."""
    codes = [ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator]

    def answer(request: Received) -> Answer:
        if request.api_key != LEAVE_GROUP:
            return None
        if request.node_id == 1:
            return leave_group_response(request, codes.pop(0), None)
        return leave_group_response(request, ErrorCode.none, ErrorCode.none)

    with ScriptedBroker(answer, nodes=2) as broker:
        broker.coordinator = 2
        host, port = broker.servers[1]
        outcome = left(classic_leave_request(broker, *broker.servers))
        assert outcome == (Level.INFO, f"left on its behalf (LeaveGroup) at coordinator {host}:{port}")
        assert [request.node_id for request in broker.requests(LEAVE_GROUP)] == [1, 1, 2]


def test_classic_leave_is_sent_again_if_the_response_omits_the_member() -> None:
    """A response without the member is not a success."""
    codes = [(ErrorCode.none, None), (ErrorCode.none, ErrorCode.none)]
    with ScriptedBroker(classic_script(*codes)) as broker:
        assert left(classic_leave_request(broker, *broker.servers)).level is Level.INFO
        assert len(broker.requests(LEAVE_GROUP)) == 2
