"""SASL on one connection: before it is ready, and again while it is in use."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate import v1, v2
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse

from consumer_membership.errors import AuthenticationError, InternalError, TransportError
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.translation import requests
from consumer_membership.wire.connection import (
    Broken,
    BytesToSend,
    Connection,
    ConnectionEvent,
    ConnectionState,
    Ready,
    Renewed,
    ResponseReceived,
)
from tests.support.kio_entities import as_struct
from tests.support.scripted_broker import NEWEST, frame
from tests.wire.frames import VERSIONS, heartbeat_answer, sent, versions_answer

HEARTBEAT = requests.consumer_group_heartbeat(VERSIONS, "g", Heartbeat(member_id="m", member_epoch=5))


class Countdown:
    """A mechanism with this many messages, each of which is the number of remaining messages."""

    name = "COUNTDOWN"

    def __init__(self, answers: int = 1) -> None:
        self._left = answers

    def begin(self) -> bytes:
        return b"%d" % self._left

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge != b"go on":
            raise AuthenticationError(f"the broker says {challenge!r}")
        self._left -= 1
        return b"%d" % self._left if self._left else None


def shaken(correlation_id: int, code: ErrorCode = ErrorCode.none) -> bytes:
    """Build a SaslHandshake response."""
    return frame(SaslHandshakeResponse(error_code=code, mechanisms=("PLAIN", "GSSAPI")), correlation_id)


def authenticated(
    correlation_id: int,
    challenge: bytes = b"go on",
    *,
    code: ErrorCode = ErrorCode.none,
    message: str | None = None,
    session_s: float = 0,
    version: ModuleType = v2,
) -> bytes:
    """Build a SaslAuthenticate response."""
    entity = version.SaslAuthenticateResponse(
        error_code=code,
        error_message=message,
        auth_bytes=challenge,
        session_lifetime=timedelta(seconds=session_s),
    )
    return frame(entity, correlation_id)


def new_connection(answers: int = 1) -> Connection:
    """Return a connection that has just sent its SaslHandshake, with correlation id 1."""
    connection = Connection(client_id="c", max_frame_bytes=1_000_000, mechanism=Countdown(answers))
    connection.start()
    (event,) = connection.receive(versions_answer())
    header, entity = decoded(event)
    assert (header.request_api_key, header.request_api_version, entity.mechanism) == (17, 1, "COUNTDOWN")
    return connection


def ready_connection(session_s: float = 60) -> Connection:
    """Return an authenticated connection whose next request has correlation id 3."""
    connection = new_connection()
    connection.receive(shaken(1) + authenticated(2, session_s=session_s))
    assert connection.state is ConnectionState.READY
    return connection


def decoded(event: ConnectionEvent) -> tuple[Any, Any]:
    """Return header and entity of the bytes to send."""
    assert isinstance(event, BytesToSend)
    return sent(event.data)


def ending(events: tuple[ConnectionEvent, ...]) -> TransportError:
    """Return the error of the single event, which must be Broken."""
    (event,) = events
    assert isinstance(event, Broken)
    return event.error


# ---- before the connection is ready ----------------------------------------------------------------------------------


def test_connection_authenticates_until_mechanism_is_done() -> None:
    """KIP-152: SaslHandshake names the mechanism, and each message is a separate SaslAuthenticate."""
    connection = new_connection(answers=2)
    (first,) = connection.receive(shaken(1))
    (second,) = connection.receive(authenticated(2))
    assert [decoded(event)[1].auth_bytes for event in (first, second)] == [b"2", b"1"]
    assert connection.state is ConnectionState.AUTHENTICATING
    assert connection.receive(authenticated(3)) == (Ready(versions=VERSIONS),)
    assert connection.state is ConnectionState.READY


def test_ready_event_has_session_lifetime_of_broker() -> None:
    """KIP-368: A lifetime of 0 means that the session lasts as long as the connection."""
    for session_s, expected in ((0, None), (3600, 3600.0), (0.5, 0.5)):
        connection = new_connection()
        connection.receive(shaken(1))
        assert connection.receive(authenticated(2, session_s=session_s)) == (
            Ready(versions=VERSIONS, session_s=expected),
        )


def test_authentication_uses_version_1_with_older_broker() -> None:
    """Kafka 2.4 offers SaslAuthenticate up to version 1."""
    connection = Connection(client_id="c", max_frame_bytes=1_000_000, mechanism=Countdown())
    connection.start()
    connection.receive(older_versions({36: (0, 1)}))
    (event,) = connection.receive(shaken(1))
    assert decoded(event)[0].request_api_version == 1
    (ready,) = connection.receive(authenticated(2, session_s=7, version=v1))
    assert isinstance(ready, Ready)
    assert ready.session_s == 7


def test_broker_without_sasl_breaks_connection_with_reason() -> None:
    """A broker without SaslAuthenticate is a transport error and not an internal error."""
    connection = Connection(client_id="c", max_frame_bytes=1_000_000, mechanism=Countdown())
    connection.start()
    assert "SaslAuthenticate (api key 36) is needed" in str(ending(connection.receive(older_versions({36: None}))))


def older_versions(other: dict[int, tuple[int, int] | None]) -> bytes:
    """Build the ApiVersions response of a broker that differs from the newest one in these APIs."""
    from kio.schema.api_versions.v3 import response  # noqa: PLC0415

    offered = {key: ends for key, ends in {**NEWEST, **other}.items() if ends is not None}
    keys = tuple(response.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in offered.items())
    entity = response.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=timedelta())
    return frame(entity, 0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            shaken(1, ErrorCode.unsupported_sasl_mechanism),
            "the broker does not support COUNTDOWN; set sasl.mechanism to one of: PLAIN, GSSAPI",
        ),
        (shaken(1, ErrorCode.illegal_sasl_state), "set security.protocol to plaintext or ssl"),
        (shaken(1, ErrorCode.unknown_server_error), "rejected COUNTDOWN with error code -1"),
        (
            shaken(1) + authenticated(2, code=ErrorCode.sasl_authentication_failed, message="wrong, sorry"),
            "the broker rejected the credentials for COUNTDOWN: wrong, sorry",
        ),
        (shaken(1) + authenticated(2, code=ErrorCode.sasl_authentication_failed), "COUNTDOWN: error code 58"),
        (shaken(1) + authenticated(2, b"who are you?"), "the broker says b'who are you?'"),
    ],
)
def test_rejected_authentication_breaks_connection_with_brokers_message(answer: bytes, words: str) -> None:
    """The error has the broker's message and the fix."""
    connection = new_connection()
    error = ending(connection.receive(answer)[-1:])
    assert isinstance(error, AuthenticationError)
    assert words in str(error)
    assert connection.state is ConnectionState.BROKEN


def test_end_during_authentication_breaks_connection_with_hint() -> None:
    """A broker may close the connection without a response."""
    assert "during the authentication without a reason" in str(ending(new_connection().receive_end()))


def test_end_after_first_request_suggests_sasl() -> None:
    """A SASL listener answers ApiVersions and closes an unauthenticated connection at its first request."""
    connection = Connection(client_id="c", max_frame_bytes=1_000_000)
    connection.start()
    connection.receive(versions_answer())
    connection.send(HEARTBEAT)
    assert "check whether the port needs SASL" in str(ending(connection.receive_end()))
    known = ready_connection()
    known.send(HEARTBEAT)
    assert str(ending(known.receive_end())) == "the peer closed the connection"


def test_large_frame_during_authentication_breaks_connection() -> None:
    """No authentication response is that large, so the peer is not a Kafka broker."""
    connection = Connection(client_id="c", max_frame_bytes=100_000_000, mechanism=Countdown())
    connection.start()
    connection.receive(versions_answer())
    assert "not Kafka's protocol" in str(ending(connection.receive((5_000_000).to_bytes(4, "big"))))


# ---- renewal --------------------------------------------------------------------------------------------------------


def test_renewal_delivers_responses_and_holds_back_requests() -> None:
    """KIP-368: A request during the renewal would end the connection. Responses to earlier requests arrive in order."""
    connection = ready_connection()
    before, _ = connection.send(HEARTBEAT)
    header, _ = sent(connection.renew(Countdown()))
    assert header.request_api_key == 17
    during = [connection.send(HEARTBEAT) for _ in range(2)]
    assert [data for _, data in during] == [b"", b""]
    answer = heartbeat_answer(epoch=7)
    assert connection.receive(frame(answer, before)) == (
        ResponseReceived(correlation_id=before, message=as_struct(answer)),
    )
    (event,) = connection.receive(shaken(header.correlation_id))
    (renewed,) = connection.receive(authenticated(decoded(event)[0].correlation_id, session_s=9))
    assert isinstance(renewed, Renewed)
    assert renewed.session_s == 9
    assert [sent(data)[0].correlation_id for data in cut(renewed.data)] == [number for number, _ in during]
    answers = b"".join(frame(answer, number) for number, _ in during)
    assert connection.receive(answers) == tuple(
        ResponseReceived(correlation_id=number, message=as_struct(answer)) for number, _ in during
    )


def test_rejected_renewal_breaks_connection() -> None:
    """The broker no longer accepts the credentials."""
    connection = ready_connection()
    connection.renew(Countdown())
    connection.send(HEARTBEAT)
    refused = authenticated(5, code=ErrorCode.sasl_authentication_failed, message="not any more")
    events = connection.receive(shaken(3) + refused)
    assert isinstance(ending(events[-1:]), AuthenticationError)
    assert connection.receive_end() == ()


def test_overlapping_renewals_raise_internal_error() -> None:
    """A second renewal during the first one is a bug; after the first one, it is allowed."""
    connection = ready_connection()
    connection.renew(Countdown())
    with pytest.raises(InternalError, match="renewing"):
        connection.renew(Countdown())
    connection.receive(shaken(3) + authenticated(4))
    assert connection.state is ConnectionState.READY
    connection.renew(Countdown())


@given(st.lists(st.integers(0, 400), max_size=8))
def test_authentication_events_do_not_depend_on_stream_cuts(places: list[int]) -> None:
    """The same bytes produce the same events, however TCP splits them."""
    stream = shaken(1) + authenticated(2) + authenticated(3, session_s=1)
    whole = new_connection(answers=2).receive(stream)
    ends = [0, *sorted(min(place, len(stream)) for place in places), len(stream)]
    connection = new_connection(answers=2)
    events = [event for start, end in pairwise(ends) for event in connection.receive(stream[start:end])]
    assert tuple(events) == whole


def cut(data: bytes) -> list[bytes]:
    """Split the bytes into requests with their sizes."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        found.append(data[:end])
        data = data[end:]
    return found
