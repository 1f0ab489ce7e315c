"""The leave on behalf of one member: to its coordinator, wherever that is by now, until it is answered or too late.

Blocking sockets and the standard library only; one thread for each member.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, TypeVar

from consumer_membership.runtime.guardian.wills import Address, Frames, Will
from consumer_membership.wire import bare

#: How long a leave is tried: most of a session's 45 s, after which it is pointless.
PATIENCE_S = 30.0
#: One broker on the same continent answers in 0.3 s.
_CONNECT_S, _ANSWER_S = 3.0, 5.0
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 2.0
#: The answers that are read take about 1 KB; a larger size is not Kafka's.
_LONGEST_ANSWER = 1 << 20
_FIND_COORDINATOR, _LEAVE_GROUP, _HEARTBEAT = 10, 13, 68
_SECOND_REQUEST = 1

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR = 14, 15, 16
#: What says that the coordinator does not count on this member any more.
_GONE = {25: "UNKNOWN_MEMBER_ID", 69: "GROUP_ID_NOT_FOUND", 82: "FENCED_INSTANCE_ID", 110: "FENCED_MEMBER_EPOCH"}

ResultT = TypeVar("ResultT")


class Level(Enum):
    """How much an operator should care."""

    INFO = "INFO"
    WARNING = "WARNING"


class Outcome(NamedTuple):
    """What became of one leave, in words."""

    level: Level
    text: str


class _TryAgainError(Exception):
    """No final answer: ask again, elsewhere if the place is what was wrong."""

    def __init__(self, reason: str, *, is_elsewhere: bool = True) -> None:
        super().__init__(reason)
        self.is_elsewhere = is_elsewhere


def leave(
    will: Will,
    *,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Send this leave until the coordinator has answered it, or `patience_s` is over."""
    give_up_at = clock() + patience_s
    backoff_s = _BACKOFF_S
    coordinator: Address | None = will.coordinator
    while True:
        try:
            if coordinator is None:
                coordinator = _find(will)
            return _leave_at(will, coordinator)
        except _TryAgainError as error:
            if clock() >= give_up_at:
                text = f"could not leave on its behalf within {patience_s:.0f} s: {error}; its session's end removes it"
                return Outcome(Level.WARNING, text)
            if error.is_elsewhere:
                coordinator = None
        # A host that ran out of memory lets many guardians go at once: half of the wait is chance.
        sleep(backoff_s * (0.5 + os.urandom(1)[0] / 512))
        backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)


def _leave_at(will: Will, coordinator: Address) -> Outcome:
    if will.member_epoch is None:
        verdict = _ask(will, coordinator, _LEAVE_GROUP, will.leave, lambda answer, _: bare.leave_group(answer))
        way = "LeaveGroup"
    else:
        verdict = _ask(
            will, coordinator, _HEARTBEAT, will.leave, lambda answer, _: bare.consumer_group_heartbeat(answer)
        )
        way = f"epoch {will.member_epoch}"
    place = f"coordinator {_shown(coordinator)}"
    if verdict.code == 0:
        return Outcome(Level.INFO, f"left on its behalf ({way}) at {place}")
    if verdict.code in _GONE:
        return Outcome(Level.INFO, f"it had left or was removed before: {place} answers {_GONE[verdict.code]}")
    if verdict.code in (_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR):
        reason = f"{place} answers error code {verdict.code}"
        raise _TryAgainError(reason, is_elsewhere=verdict.code != _LOADING)
    words = f"{place} refuses it with error code {verdict.code} ({verdict.message or 'no words'})"
    return Outcome(Level.WARNING, f"could not leave on its behalf: {words}; its session's end removes it")


def _find(will: Will) -> Address:
    """The group's coordinator, as the first broker that answers names it."""
    reasons = []
    for broker in will.bootstrap_servers:
        try:
            found = _ask(will, broker, _FIND_COORDINATOR, will.find_coordinator, bare.find_coordinator)
        except _TryAgainError as error:
            reasons.append(str(error))
            continue
        if found.verdict.code == 0:
            return found.host, found.port
        reasons.append(f"{_shown(broker)} knows no coordinator: error code {found.verdict.code}")
    raise _TryAgainError("; ".join(reasons) or "no broker is known")


def _ask(will: Will, broker: Address, api_key: int, frames: Frames, read: Callable[[bytes, int], ResultT]) -> ResultT:
    """What this broker answers, over a connection of its own, in the newest version that both sides know."""
    try:
        with _connected(broker, will.address_family) as sock:
            offered = bare.offered_versions(_exchange(sock, will.hello, 0))
            version = _newest(frames, offered.get(api_key), api_key)
            return read(_exchange(sock, frames[version], _SECOND_REQUEST), version)
    except OSError as error:
        raise _TryAgainError(f"{_shown(broker)}: {error.strerror or error}") from error
    except (bare.MalformedAnswerError, UnicodeError) as error:
        raise _TryAgainError(f"{_shown(broker)}: {error}") from error


def _newest(frames: Frames, offered: tuple[int, int] | None, api_key: int) -> int:
    lowest, highest = offered or (0, -1)
    common = [version for version in frames if lowest <= version <= highest]
    if not common:
        raise bare.MalformedAnswerError(f"it offers no version of api {api_key} that this package speaks")
    return max(common)


@contextlib.contextmanager
def _connected(broker: Address, family: int) -> Iterator[socket.socket]:
    host, port = broker
    # Bytes spare the codec for international names, which is slow to import.
    name = host.encode() if host.isascii() else host
    failure = OSError("the name has no address")
    for kind, _, _, _, sockaddr in socket.getaddrinfo(name, port, family, socket.SOCK_STREAM):
        sock = socket.socket(kind, socket.SOCK_STREAM)
        try:
            sock.settimeout(_CONNECT_S)
            sock.connect(sockaddr)
        except OSError as error:
            sock.close()
            failure = error
            continue
        with sock:
            sock.settimeout(_ANSWER_S)
            yield sock
        return
    raise failure


def _exchange(sock: socket.socket, request: bytes, number: int) -> bytes:
    """The answer to this request, without its size."""
    sock.sendall(request)
    size = int.from_bytes(_receive(sock, 4), "big")
    if size > _LONGEST_ANSWER:
        raise bare.MalformedAnswerError(f"an answer says it has {size} bytes, which is not Kafka's; is TLS wanted?")
    answer = _receive(sock, size)
    if bare.correlation_id(answer) != number:
        raise bare.MalformedAnswerError(f"the answer has number {bare.correlation_id(answer)} instead of {number}")
    return answer


def _receive(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise ConnectionResetError(f"closed the connection after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
