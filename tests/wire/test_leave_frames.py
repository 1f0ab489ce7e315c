# ruff: noqa: ANN401  # entities of many versions, which share no type
"""What is read without kio says what kio's own writers wrote, and what is written without it is what they would."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.api_versions.v0.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.response import Coordinator
from kio.schema.sasl_authenticate import v1, v2
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse

from consumer_membership.wire import leave_frames
from consumer_membership.wire.codec import Call, encode
from consumer_membership.wire.versions import SPOKEN, Api
from tests.support.scripted_broker import frame

ZERO = timedelta(0)
#: SaslAuthenticate's requests and answers.
SASL: dict[int, Any] = {1: v1, 2: v2}
LONG = "a message that is longer than the 127 bytes which fit a length of one byte " * 3


def answer(entity: Any, correlation_id: int = 7) -> bytes:
    """A response as the readers get it: without its size."""
    return frame(entity, correlation_id)[4:]


def heartbeat(version: int, code: ErrorCode = ErrorCode.none, message: str | None = None) -> bytes:
    """An answer to a heartbeat."""
    kind = load_response_schema(Api.CONSUMER_GROUP_HEARTBEAT.value, version)
    entity = kind(
        throttle_time=timedelta(milliseconds=3),
        error_code=code,
        error_message=message,
        member_id="m",
        member_epoch=-1,
        heartbeat_interval=ZERO,
        assignment=None,
    )
    return answer(entity)


def found(version: int, code: ErrorCode = ErrorCode.none) -> bytes:
    """An answer to FindCoordinator."""
    kind = load_response_schema(Api.FIND_COORDINATOR.value, version)
    place: dict[str, Any] = {"node_id": 3, "host": "kafka-3.example", "port": 9093}
    words = {"error_code": code, "error_message": None}
    if version < 4:
        return answer(kind(throttle_time=ZERO, **words, **place))
    return answer(kind(throttle_time=ZERO, coordinators=(Coordinator(key="orders", **words, **place),)))


def leave_group(version: int, code: ErrorCode = ErrorCode.none, *members: tuple[str, str | None, ErrorCode]) -> bytes:
    """An answer to LeaveGroup: each member's ids and code."""
    kind = importlib.import_module(load_response_schema(Api.LEAVE_GROUP.value, version).__module__)
    return answer(
        kind.LeaveGroupResponse(
            throttle_time=timedelta(milliseconds=3),
            error_code=code,
            members=tuple(
                kind.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
                for member_id, instance_id, error in members
            ),
        )
    )


def test_offered_versions_are_those_of_the_broker() -> None:
    """ApiVersions 0, which every broker answers."""
    keys = tuple(
        ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in [(10, 0, 6), (68, 0, 1)]
    )
    offered = leave_frames.offered_versions(answer(ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys)))
    assert offered == {10: (0, 6), 68: (0, 1)}


def test_refused_api_versions_are_malformed() -> None:
    """Nothing can be asked of such a peer."""
    with pytest.raises(leave_frames.MalformedAnswerError, match="error code 35"):
        leave_frames.offered_versions(
            answer(ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=()))
        )


@pytest.mark.parametrize("version", SPOKEN[Api.CONSUMER_GROUP_HEARTBEAT])
@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (ErrorCode.none, None, (0, "")),
        (
            ErrorCode.unknown_member_id,
            "Member m is not a member of group g.",
            (25, "Member m is not a member of group g."),
        ),
        (ErrorCode.not_coordinator, LONG, (16, LONG)),
    ],
)
def test_heartbeat_status(version: int, code: ErrorCode, message: str | None, expected: tuple[int, str]) -> None:
    """In every version that this package speaks."""
    assert leave_frames.consumer_group_heartbeat(heartbeat(version, code, message)) == expected


@pytest.mark.parametrize("version", SPOKEN[Api.LEAVE_GROUP])
@pytest.mark.parametrize(
    ("code", "members", "expected"),
    [
        (ErrorCode.none, [("m", None, ErrorCode.none)], 0),
        (ErrorCode.none, [("m", None, ErrorCode.unknown_member_id)], 25),
        (ErrorCode.none, [(LONG, LONG, ErrorCode.fenced_instance_id)], 82),
        (ErrorCode.not_coordinator, [], 16),
        (ErrorCode.group_authorization_failed, [("m", None, ErrorCode.none)], 30),
    ],
)
def test_leave_group_status(
    version: int, code: ErrorCode, members: list[tuple[str, str | None, ErrorCode]], expected: int
) -> None:
    """The request's error before the member's, in every version that this package speaks."""
    assert leave_frames.leave_group(leave_group(version, code, *members)) == (expected, "")


@pytest.mark.parametrize("count", [0, 2])
def test_leave_of_more_or_less_than_the_one_member_is_malformed(count: int) -> None:
    """Nobody asked for two, and silence about one is no success."""
    members = [("m", None, ErrorCode.none)] * count
    with pytest.raises(leave_frames.MalformedAnswerError, match="the one member"):
        leave_frames.leave_group(leave_group(5, ErrorCode.none, *members))


@pytest.mark.parametrize("version", SPOKEN[Api.LEAVE_GROUP])
def test_leave_group_that_was_cut_is_malformed(version: int) -> None:
    """Wherever it was cut before the member's code; the tagged fields behind it are not read."""
    whole = leave_group(version, ErrorCode.none, ("m", "i", ErrorCode.none))
    needed = len(whole) - 2
    leave_frames.leave_group(whole[:needed])
    for size in range(needed):
        with pytest.raises(leave_frames.MalformedAnswerError):
            leave_frames.leave_group(whole[:size])


@pytest.mark.parametrize("version", SPOKEN[Api.FIND_COORDINATOR])
def test_coordinator_and_refusal(version: int) -> None:
    """In every version that this package speaks."""
    assert leave_frames.find_coordinator(found(version), version) == ((0, ""), "kafka-3.example", 9093)
    assert leave_frames.find_coordinator(found(version, ErrorCode.coordinator_not_available), version).status.code == 15


@pytest.mark.parametrize("version", SPOKEN[Api.FIND_COORDINATOR])
def test_answer_that_was_cut_is_malformed(version: int) -> None:
    """Wherever it was cut: the guardian tries again instead of reading what is not there."""
    whole = found(version)
    # The tagged fields at the end, one byte on each level, are not read.
    needed = len(whole) - (1 if version < 4 else 2)
    leave_frames.find_coordinator(whole[:needed], version)
    for size in range(needed):
        with pytest.raises(leave_frames.MalformedAnswerError):
            leave_frames.find_coordinator(whole[:size], version)


def test_number_without_end_is_malformed() -> None:
    """Five bytes hold every length; more are noise."""
    with pytest.raises(leave_frames.MalformedAnswerError, match="does not end"):
        leave_frames.consumer_group_heartbeat(b"\0\0\0\7" + b"\xff" * 9)


def test_correlation_id_is_the_first_number() -> None:
    """The same in every header."""
    assert leave_frames.correlation_id(heartbeat(1)) == 7


# ---- SASL ------------------------------------------------------------------------------------------------------------


def shaken(code: ErrorCode = ErrorCode.none, mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-512")) -> bytes:
    """An answer to SaslHandshake."""
    return answer(SaslHandshakeResponse(error_code=code, mechanisms=mechanisms))


def authenticated(
    version: int, message: bytes = b"v=go on", code: ErrorCode = ErrorCode.none, words: str | None = None
) -> bytes:
    """An answer to SaslAuthenticate."""
    return answer(
        SASL[version].SaslAuthenticateResponse(
            error_code=code, error_message=words, auth_bytes=message, session_lifetime=timedelta(hours=1)
        )
    )


def test_sasl_is_spoken_in_the_versions_of_this_package() -> None:
    """The guardian chooses among the same as a member."""
    assert SPOKEN[Api.SASL_HANDSHAKE] == (leave_frames.SASL_HANDSHAKE_VERSION,)
    assert SPOKEN[Api.SASL_AUTHENTICATE] == leave_frames.SASL_AUTHENTICATE_VERSIONS
    assert (leave_frames.SASL_HANDSHAKE, leave_frames.SASL_AUTHENTICATE) == (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)


@pytest.mark.parametrize("client_id", ["rdkafka", "", "jürgen", LONG])
def test_sasl_handshake_request_is_kios(client_id: str) -> None:
    """Byte by byte, size and header included."""
    call = Call(api=Api.SASL_HANDSHAKE, version=1, fields={"mechanism": "SCRAM-SHA-512"})
    assert leave_frames.sasl_handshake_request("SCRAM-SHA-512", 2, client_id) == encode(call, 2, client_id)


@pytest.mark.parametrize("version", SPOKEN[Api.SASL_AUTHENTICATE])
@pytest.mark.parametrize("message", [b"", b"n,,n=alice,r=nonce", b"\0alice\0" + b"x" * 126, b"y" * 20_000])
def test_sasl_authenticate_request_is_kios(version: int, message: bytes) -> None:
    """In both versions; from the second on lengths are of one byte, two, three."""
    call = Call(api=Api.SASL_AUTHENTICATE, version=version, fields={"auth_bytes": message})
    assert leave_frames.sasl_authenticate_request(version, message, 3, "jürgen") == encode(call, 3, "jürgen")


@pytest.mark.parametrize("mechanisms", [(), ("PLAIN",), ("PLAIN", "SCRAM-SHA-256", LONG)])
@pytest.mark.parametrize("code", [ErrorCode.none, ErrorCode.unsupported_sasl_mechanism])
def test_sasl_handshake_says_what_the_broker_takes(code: ErrorCode, mechanisms: tuple[str, ...]) -> None:
    """With the code; the names are worth most where it refuses."""
    assert leave_frames.sasl_handshake(shaken(code, mechanisms)) == (code, mechanisms)


@pytest.mark.parametrize("version", SPOKEN[Api.SASL_AUTHENTICATE])
@pytest.mark.parametrize(
    ("message", "code", "words", "expected"),
    [
        (b"r=nonce,s=salt,i=4096", ErrorCode.none, None, ((0, ""), b"r=nonce,s=salt,i=4096")),
        (b"", ErrorCode.none, "", ((0, ""), b"")),
        (b"", ErrorCode.sasl_authentication_failed, LONG, ((58, LONG), b"")),
        (b"v" * 300, ErrorCode.none, None, ((0, ""), b"v" * 300)),
    ],
)
def test_sasl_authenticate_says_the_brokers_message(
    version: int, message: bytes, code: ErrorCode, words: str | None, expected: object
) -> None:
    """Or its refusal, with its words."""
    assert leave_frames.sasl_authenticate(authenticated(version, message, code, words), version) == expected


def test_sasl_answers_that_were_cut_are_malformed() -> None:
    """Wherever they were cut; how long the broker believes it, and the tagged fields behind, are not read."""
    readers: list[tuple[bytes, Callable[[bytes], object], int]] = [(shaken(), leave_frames.sasl_handshake, 0)]
    for version, unread in ((1, 8), (2, 9)):
        whole = authenticated(version, words="why")
        readers.append((whole, partial(leave_frames.sasl_authenticate, version=version), unread))
    for whole, read, unread in readers:
        needed = len(whole) - unread
        read(whole[:needed])
        for size in range(needed):
            with pytest.raises(leave_frames.MalformedAnswerError):
                read(whole[:size])
