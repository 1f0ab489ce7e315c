"""One connection's protocol: handshake, order, and streams that are not Kafka's."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from consumer_membership.errors import InternalError
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.translation import requests
from consumer_membership.wire.connection import (
    Broken,
    BytesToSend,
    Connection,
    ConnectionEvent,
    ConnectionState,
    Ready,
    ResponseReceived,
)
from tests.support.kio_entities import as_struct
from tests.support.scripted_broker import frame
from tests.wire.frames import VERSIONS, heartbeat_answer, ready_connection, sent, versions_answer

HEARTBEAT = requests.consumer_group_heartbeat(VERSIONS, "g", Heartbeat(member_id="m", member_epoch=5))


def new_connection() -> Connection:
    """A connection that waits for the answer to ApiVersions."""
    connection = Connection(client_id="rdkafka", max_frame_bytes=1_000_000, software_version="1.2")
    connection.start()
    return connection


def only_error(events: tuple[ConnectionEvent, ...]) -> str:
    """The text of the one event, which says that the connection is broken."""
    (event,) = events
    assert isinstance(event, Broken)
    return str(event.error)


# ---- the handshake ---------------------------------------------------------------------------------------------------


def test_handshake_tells_the_broker_who_asks() -> None:
    """KIP-511: the first request is ApiVersions with the client's id, software and version."""
    header, entity = sent(Connection(client_id="rdkafka", max_frame_bytes=1, software_version="1.2").start())
    assert (header.request_api_key, header.request_api_version, header.client_id) == (18, 3, "rdkafka")
    assert (entity.client_software_name, entity.client_software_version) == ("consumer-membership", "1.2")


def test_handshake_ends_with_what_the_broker_offers() -> None:
    """The answer makes the connection ready and is handed on."""
    connection = new_connection()
    assert connection.receive(versions_answer()) == (Ready(versions=VERSIONS),)
    assert connection.state is ConnectionState.READY


def test_broker_that_does_not_know_the_version_is_asked_in_version_0() -> None:
    """KIP-511: UNSUPPORTED_VERSION comes in version 0, whatever was asked; the next question is in version 0."""
    connection = new_connection()
    (event,) = connection.receive(versions_answer(version=0, code=ErrorCode.unsupported_version))
    assert isinstance(event, BytesToSend)
    header, _ = sent(event.data)
    assert (header.request_api_key, header.request_api_version) == (18, 0)
    assert connection.receive(versions_answer(header.correlation_id, version=0)) == (Ready(versions=VERSIONS),)


def test_broker_that_knows_no_version_is_given_up() -> None:
    """The second UNSUPPORTED_VERSION is the last: there is no loop."""
    connection = new_connection()
    connection.receive(versions_answer(version=0, code=ErrorCode.unsupported_version))
    text = only_error(connection.receive(versions_answer(1, version=0, code=ErrorCode.unsupported_version)))
    assert "ApiVersions v0 was refused with error code 35" in text


def test_requests_wait_for_the_handshake() -> None:
    """To send before the connection is ready is a bug of ours, as is a second start."""
    connection = new_connection()
    with pytest.raises(InternalError, match="negotiating"):
        connection.send(HEARTBEAT)
    with pytest.raises(InternalError, match="started"):
        connection.start()


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_answers_belong_to_the_calls_in_their_order() -> None:
    """Several calls may be under way; each answer comes with its call's number."""
    connection = ready_connection()
    numbers = [connection.send(HEARTBEAT)[0] for _ in range(3)]
    answers = [heartbeat_answer(epoch=epoch) for epoch in (7, 8, 9)]
    data = b"".join(frame(answer, number) for number, answer in zip(numbers, answers, strict=True))
    assert connection.receive(data) == tuple(
        ResponseReceived(correlation_id=number, message=as_struct(answer))
        for number, answer in zip(numbers, answers, strict=True)
    )


def test_call_is_sent_with_header_and_size() -> None:
    """The bytes of a call are one frame with the number that its answer will carry."""
    number, data = ready_connection().send(HEARTBEAT)
    header, entity = sent(data)
    assert (header.correlation_id, header.request_api_key, header.request_api_version) == (number, 68, 1)
    assert (entity.group_id, entity.member_id, entity.member_epoch) == ("g", "m", 5)


def test_numbers_wrap_before_they_leave_int32() -> None:
    """A connection may live for more than 2^31 requests."""
    connection = ready_connection()
    connection._next_id = 2**31 - 1
    assert [connection.send(HEARTBEAT)[0] for _ in range(3)] == [2**31 - 1, 0, 1]


def test_answer_out_of_order_breaks_the_connection() -> None:
    """Brokers answer in order; where one seems not to, nothing that follows can be trusted."""
    connection = ready_connection()
    number, _ = connection.send(HEARTBEAT)
    text = only_error(connection.receive(frame(heartbeat_answer(), number + 1)))
    assert text == f"the answer to ConsumerGroupHeartbeat v1 has number {number + 1} instead of {number}"
    assert connection.receive(frame(heartbeat_answer(), number)) == ()


def test_answer_to_nothing_breaks_the_connection() -> None:
    """An answer without a call is no answer."""
    assert "none was expected" in only_error(ready_connection().receive(frame(heartbeat_answer(), 1)))


def test_answer_that_cannot_be_read_breaks_the_connection() -> None:
    """Bytes that do not hold the entity end the connection with a text that says so."""
    connection = ready_connection()
    number, _ = connection.send(HEARTBEAT)
    data = (12).to_bytes(4, "big") + number.to_bytes(4, "big") + b"\x00" + bytes(7)
    text = only_error(connection.receive(data))
    assert "an answer of 12 bytes cannot be read (ConsumerGroupHeartbeatResponse v1" in text


def test_unknown_error_code_does_not_break_the_connection() -> None:
    """A code that kio does not know (its list ends at 133) arrives as a number."""
    connection = ready_connection()
    number, _ = connection.send(HEARTBEAT)
    data = frame(heartbeat_answer(code=110), number)
    (event,) = connection.receive(data.replace((110).to_bytes(2, "big"), (199).to_bytes(2, "big")))
    assert isinstance(event, ResponseReceived)
    assert event.message.error_code == 199


@given(cuts=st.sets(st.integers(min_value=1, max_value=400)), ending=st.sampled_from([b"", b"HTTP", bytes(8)]))
def test_the_same_bytes_give_the_same_events_however_they_are_cut(cuts: set[int], ending: bytes) -> None:
    """TCP keeps bytes, not messages: any cutting of the stream gives what the whole gives."""

    def events(chunks: list[bytes]) -> list[str]:
        connection = new_connection()
        handshake = list(connection.receive(versions_answer()))
        numbers = [connection.send(HEARTBEAT)[0] for _ in range(3)]
        assert numbers == [1, 2, 3]
        return [repr(event) for event in (*handshake, *(e for chunk in chunks for e in connection.receive(chunk)))]

    stream = b"".join(frame(heartbeat_answer(epoch=number, message="x" * 40), number) for number in (1, 2, 3)) + ending
    ends = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    assert events([stream[start:end] for start, end in pairwise(ends)]) == events([stream])


@given(cuts=st.sets(st.integers(min_value=1, max_value=100)))
def test_the_handshake_may_be_cut_too(cuts: set[int]) -> None:
    """The answer to ApiVersions is found in any cutting."""
    stream = versions_answer()
    ends = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    connection = new_connection()
    events = [event for start, end in pairwise(ends) for event in connection.receive(stream[start:end])]
    assert events == [Ready(versions=VERSIONS)]


# ---- streams that are not Kafka's ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "said"),
    [
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x46", "the peer answered with TLS", id="TLS alert"),
        pytest.param(b"\x16\x03\x03\x00\x7a\x02", "the peer answered with TLS", id="TLS handshake"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "the peer is an HTTP server", id="HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "begins with b'SSH-', which is not Kafka's protocol", id="SSH"),
        pytest.param(b"\xff\xff\xff\xff", "is this the port of a Kafka broker?", id="negative size"),
        pytest.param(bytes(4), "is this the port of a Kafka broker?", id="empty frame"),
    ],
)
def test_foreign_peer_is_named_with_the_likely_cause(received: bytes, said: str) -> None:
    """The first bytes tell who answered: a TLS port, a web server, anything but a broker."""
    connection = new_connection()
    assert said in only_error(connection.receive(received))
    assert connection.state is ConnectionState.BROKEN


def test_answer_above_the_limit_is_refused_before_it_is_stored() -> None:
    """receive.message.max.bytes bounds what one answer may take of memory; the text names the key."""
    connection = ready_connection(max_frame_bytes=1000)
    connection.send(HEARTBEAT)
    text = only_error(connection.receive((1001).to_bytes(4, "big")))
    assert text.startswith("an answer says it has 1001 bytes, and receive.message.max.bytes allows 1000")


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_end_in_the_handshake_hints_at_the_port() -> None:
    """A TLS or SASL port, and a broker that refuses the client, close the connection at the first request."""
    assert "is this port one for TLS or SASL" in only_error(new_connection().receive_end())


def test_end_inside_an_answer_says_how_much_came() -> None:
    """A partial frame at the end is an error of its own."""
    connection = ready_connection()
    connection.send(HEARTBEAT)
    connection.receive(b"\x00\x00\x00\x20\x00\x00")
    assert "in the middle of an answer (6 bytes of it came)" in only_error(connection.receive_end())


def test_end_between_answers_is_just_an_end() -> None:
    """Brokers close idle connections, and themselves."""
    assert only_error(ready_connection().receive_end()) == "the peer closed the connection"


def test_broken_is_the_last_event_and_comes_once() -> None:
    """Whatever arrives behind it is ignored."""
    connection = new_connection()
    connection.receive(b"HTTP/1.1")
    assert connection.receive(versions_answer()) == ()
    assert connection.receive_end() == ()
