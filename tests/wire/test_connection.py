"""The protocol of one connection: handshake, order, and peers that do not use the Kafka protocol."""

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
    ExpectedBroker,
    Ready,
    ResponseReceived,
    WrongBrokerError,
)
from tests.support.kio_entities import as_struct
from tests.support.scripted_broker import frame
from tests.wire.frames import VERSIONS, heartbeat_answer, ready_connection, sent, versions_answer

HEARTBEAT = requests.consumer_group_heartbeat(VERSIONS, "g", Heartbeat(member_id="m", member_epoch=5))


def new_connection() -> Connection:
    """Return a connection that waits for the ApiVersions response."""
    connection = Connection(client_id="rdkafka", max_frame_bytes=1_000_000, software_version="1.2")
    connection.start()
    return connection


def only_error(events: tuple[ConnectionEvent, ...]) -> str:
    """Return the error text of the single event, which must be Broken."""
    (event,) = events
    assert isinstance(event, Broken)
    return str(event.error)


# ---- the handshake ---------------------------------------------------------------------------------------------------


def test_handshake_sends_client_id_and_software() -> None:
    """KIP-511: The first request is ApiVersions with the client's id, software and version."""
    header, entity = sent(Connection(client_id="rdkafka", max_frame_bytes=1, software_version="1.2").start())
    assert (header.request_api_key, header.request_api_version, header.client_id) == (18, 3, "rdkafka")
    assert (entity.client_software_name, entity.client_software_version) == ("consumer-membership", "1.2")


def test_handshake_returns_ready_with_brokers_versions() -> None:
    """The response makes the connection ready and is returned."""
    connection = new_connection()
    assert connection.receive(versions_answer()) == (Ready(versions=VERSIONS),)
    assert connection.state is ConnectionState.READY


def test_handshake_retries_in_version_0_after_unsupported_version() -> None:
    """KIP-511: UNSUPPORTED_VERSION arrives in version 0 for any requested version, and the retry uses version 0."""
    connection = new_connection()
    (event,) = connection.receive(versions_answer(version=0, code=ErrorCode.unsupported_version))
    assert isinstance(event, BytesToSend)
    header, _ = sent(event.data)
    assert (header.request_api_key, header.request_api_version) == (18, 0)
    assert connection.receive(versions_answer(header.correlation_id, version=0)) == (Ready(versions=VERSIONS),)


def test_handshake_names_the_expected_broker() -> None:
    """KIP-1242: ApiVersions v5 ends with the cluster and the node that the client wants to reach."""
    expected = ExpectedBroker(cluster_id="blue", node_id=3)
    data = Connection(client_id="c", max_frame_bytes=1_000_000, software_version="1.2", expected=expected).start()
    assert data[4:8] == bytes((0, 18, 0, 5))
    assert data.endswith(b"\x05blue" + bytes((0, 0, 0, 3)) + b"\0")


def test_handshake_with_another_broker_breaks_connection() -> None:
    """KIP-1242: A broker that is not the expected one answers REBOOTSTRAP_REQUIRED (129)."""
    expected = ExpectedBroker(cluster_id="blue", node_id=3)
    connection = Connection(client_id="c", max_frame_bytes=1_000_000, expected=expected)
    connection.start()
    (event,) = connection.receive(versions_answer(code=ErrorCode(129)))
    assert isinstance(event, Broken)
    assert isinstance(event.error, WrongBrokerError)
    assert "the peer is not broker 3 of cluster blue" in str(event.error)


def test_second_unsupported_version_breaks_connection() -> None:
    """The handshake retries only once, so there is no loop."""
    connection = new_connection()
    connection.receive(versions_answer(version=0, code=ErrorCode.unsupported_version))
    text = only_error(connection.receive(versions_answer(1, version=0, code=ErrorCode.unsupported_version)))
    assert "ApiVersions v0 was rejected with error code 35" in text


def test_send_before_handshake_raises_internal_error() -> None:
    """A send before the connection is ready and a second start are bugs."""
    connection = new_connection()
    with pytest.raises(InternalError, match="negotiating"):
        connection.send(HEARTBEAT)
    with pytest.raises(InternalError, match="started"):
        connection.start()


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_responses_have_correlation_ids_of_their_calls() -> None:
    """Several calls may be in flight; each response carries its call's correlation id."""
    connection = ready_connection()
    numbers = [connection.send(HEARTBEAT)[0] for _ in range(3)]
    answers = [heartbeat_answer(epoch=epoch) for epoch in (7, 8, 9)]
    data = b"".join(frame(answer, number) for number, answer in zip(numbers, answers, strict=True))
    assert connection.receive(data) == tuple(
        ResponseReceived(correlation_id=number, message=as_struct(answer))
        for number, answer in zip(numbers, answers, strict=True)
    )


def test_send_returns_one_frame_with_header_and_size() -> None:
    """A call is one frame with the correlation id that its response will carry."""
    number, data = ready_connection().send(HEARTBEAT)
    header, entity = sent(data)
    assert (header.correlation_id, header.request_api_key, header.request_api_version) == (number, 68, 1)
    assert (entity.group_id, entity.member_id, entity.member_epoch) == ("g", "m", 5)


def test_correlation_ids_wrap_within_int32() -> None:
    """A connection may send more than 2^31 requests."""
    connection = ready_connection()
    connection._next_id = 2**31 - 1
    assert [connection.send(HEARTBEAT)[0] for _ in range(3)] == [2**31 - 1, 0, 1]


def test_response_out_of_order_breaks_connection() -> None:
    """Brokers respond in order; after a mismatch, no later byte can be trusted."""
    connection = ready_connection()
    number, _ = connection.send(HEARTBEAT)
    text = only_error(connection.receive(frame(heartbeat_answer(), number + 1)))
    assert text == f"the response to ConsumerGroupHeartbeat v1 has correlation id {number + 1} instead of {number}"
    assert connection.receive(frame(heartbeat_answer(), number)) == ()


def test_response_without_call_breaks_connection() -> None:
    """A response without a pending call is invalid."""
    assert "none was expected" in only_error(ready_connection().receive(frame(heartbeat_answer(), 1)))


def test_unreadable_response_breaks_connection() -> None:
    """Bytes that are not the expected entity end the connection with an error that states this."""
    connection = ready_connection()
    number, _ = connection.send(HEARTBEAT)
    data = (12).to_bytes(4, "big") + number.to_bytes(4, "big") + b"\x00" + bytes(7)
    text = only_error(connection.receive(data))
    assert "a response of 12 bytes cannot be decoded (ConsumerGroupHeartbeatResponse v1" in text


def test_unknown_error_code_keeps_connection() -> None:
    """A code that kio does not know (its list ends at 133) arrives as a number."""
    connection = ready_connection()
    number, _ = connection.send(HEARTBEAT)
    data = frame(heartbeat_answer(code=110), number)
    (event,) = connection.receive(data.replace((110).to_bytes(2, "big"), (199).to_bytes(2, "big")))
    assert isinstance(event, ResponseReceived)
    assert event.message.error_code == 199


@given(cuts=st.sets(st.integers(min_value=1, max_value=400)), ending=st.sampled_from([b"", b"HTTP", bytes(8)]))
def test_events_do_not_depend_on_stream_cuts(cuts: set[int], ending: bytes) -> None:
    """TCP preserves bytes, not messages, so every split of the stream produces the same events."""

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
def test_handshake_does_not_depend_on_stream_cuts(cuts: set[int]) -> None:
    """The ApiVersions response is parsed from every split of its bytes."""
    stream = versions_answer()
    ends = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    connection = new_connection()
    events = [event for start, end in pairwise(ends) for event in connection.receive(stream[start:end])]
    assert events == [Ready(versions=VERSIONS)]


# ---- streams that are not Kafka's ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "message"),
    [
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x46", "the peer responded with TLS", id="TLS alert"),
        pytest.param(b"\x16\x03\x03\x00\x7a\x02", "the peer responded with TLS", id="TLS handshake"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "the peer is an HTTP server", id="HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "begins with b'SSH-', which is not Kafka's protocol", id="SSH"),
        pytest.param(b"\xff\xff\xff\xff", "check the port", id="negative size"),
        pytest.param(bytes(4), "check the port", id="empty frame"),
    ],
)
def test_foreign_peer_breaks_connection_with_likely_cause(received: bytes, message: str) -> None:
    """The first bytes identify the peer, for example a TLS port or a web server."""
    connection = new_connection()
    assert message in only_error(connection.receive(received))
    assert connection.state is ConnectionState.BROKEN


def test_response_above_limit_breaks_connection_before_it_is_stored() -> None:
    """The key receive.message.max.bytes limits the memory of one response; the error names the key."""
    connection = ready_connection(max_frame_bytes=1000)
    connection.send(HEARTBEAT)
    text = only_error(connection.receive((1001).to_bytes(4, "big")))
    assert text.startswith("a response has a size of 1001 bytes, above receive.message.max.bytes=1000")


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_end_during_handshake_suggests_wrong_port() -> None:
    """A TLS or SASL port, or a broker that rejects the client, closes the connection at the first request."""
    assert "check whether the port needs TLS or SASL" in only_error(new_connection().receive_end())


def test_end_inside_response_reports_received_bytes() -> None:
    """An incomplete frame at the end has its own error."""
    connection = ready_connection()
    connection.send(HEARTBEAT)
    connection.receive(b"\x00\x00\x00\x20\x00\x00")
    assert "in the middle of a response (6 bytes received)" in only_error(connection.receive_end())


def test_end_between_responses_reports_closed_connection() -> None:
    """Brokers close idle connections and close all connections on shutdown."""
    assert only_error(ready_connection().receive_end()) == "the peer closed the connection"


def test_broken_is_last_event_and_occurs_once() -> None:
    """Bytes after the Broken event are ignored."""
    connection = new_connection()
    connection.receive(b"HTTP/1.1")
    assert connection.receive(versions_answer()) == ()
    assert connection.receive_end() == ()
