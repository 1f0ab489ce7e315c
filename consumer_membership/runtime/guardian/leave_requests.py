"""The messages of the application's process to its guardian: one line of JSON for each change of a leave request.

Pure, and shared by both processes. A line may contain a key and a password, and is only sent through the pipe. A line
that was cut short by the application's death is ignored: the earlier lines remain valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from consumer_membership.config.settings import KerberosSettings, SaslSettings, TlsSettings

#: One frame for each version in which the request may be sent.
Frames: TypeAlias = Mapping[int, bytes]
HostPort: TypeAlias = tuple[str, int]

#: Sends a frame with this number to one broker and returns the answer.
Exchange: TypeAlias = Callable[[bytes, int], bytes]

#: The correlation ids of a connection's first and last request; the SASL requests between them have higher ids.
HELLO, QUESTION = 0, 1


class LeaveRequest(NamedTuple):
    """The request for one member whose process has ended, and its addresses; not a dataclass, which would cost 1 MB.

    `member_epoch` is the epoch of the ConsumerGroupHeartbeat that leaves; None: the member uses the classic protocol,
    and `leave` is its LeaveGroup. `hello` is an ApiVersions of version 0; `leave` and `find_coordinator` have the
    correlation id 1. `coordinator` is the last known coordinator of the group; `address_family` is the socket module's
    number. `tls` and `sasl` are the member's own, with absolute paths, and never with tokens.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    member_epoch: int | None
    coordinator: HostPort
    bootstrap_servers: tuple[HostPort, ...]
    address_family: int
    client_id: str
    tls: TlsSettings | None
    sasl: SaslSettings | None
    hello: bytes
    leave: Frames
    find_coordinator: Frames


def line_of(key: int, request: LeaveRequest | None) -> bytes:
    """Return the line that sets the leave request of the member with this key; None: there is nothing left to do."""
    return json.dumps({"key": key, "leave": None if request is None else _plain(request)}).encode() + b"\n"


def _plain(request: LeaveRequest) -> dict[str, object]:
    return {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "instance_id": request.instance_id,
        "member_epoch": request.member_epoch,
        "coordinator": request.coordinator,
        "bootstrap_servers": request.bootstrap_servers,
        "address_family": request.address_family,
        "client_id": request.client_id,
        "tls": None if request.tls is None else _slots(request.tls),
        "sasl": None
        if request.sasl is None
        else {
            "mechanism": request.sasl.mechanism.value,
            "username": request.sasl.username,
            "password": request.sasl.password,
            "kerberos": None if request.sasl.kerberos is None else _slots(request.sasl.kerberos),
        },
        "hello": request.hello.hex(),
        "leave": {version: frame.hex() for version, frame in request.leave.items()},
        "find_coordinator": {version: frame.hex() for version, frame in request.find_coordinator.items()},
    }


def _slots(settings: TlsSettings | KerberosSettings) -> dict[str, object]:
    return {name: getattr(settings, name) for name in settings.__slots__}


class LeaveRequests:
    """The valid requests, from the bytes of all lines so far, however they are split."""

    def __init__(self) -> None:
        self._requests: dict[int, LeaveRequest] = {}
        self._unfinished = b""

    @property
    def standing(self) -> tuple[LeaveRequest, ...]:
        """The leave request of each member that has not left, oldest first."""
        return tuple(self._requests.values())

    def take(self, data: bytes) -> None:
        """Process these bytes, after all earlier ones. Invalid lines are skipped: the others remain valid."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            try:
                fields = json.loads(line)
                key, request = int(fields["key"]), fields["leave"]
                read = None if request is None else _read(request)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue
            if read is None:
                self._requests.pop(key, None)
            else:
                self._requests[key] = read


def _read(fields: Mapping[str, object]) -> LeaveRequest:
    return LeaveRequest(
        group_id=str(fields["group_id"]),
        member_id=str(fields["member_id"]),
        instance_id=cast("str | None", fields["instance_id"]),
        member_epoch=cast("int | None", fields["member_epoch"]),
        coordinator=_address(fields["coordinator"]),
        bootstrap_servers=tuple(map(_address, cast("list[object]", fields["bootstrap_servers"]))),
        address_family=cast("int", fields["address_family"]),
        client_id=str(fields["client_id"]),
        tls=_tls(fields["tls"]),
        sasl=_sasl(fields["sasl"]),
        hello=bytes.fromhex(str(fields["hello"])),
        leave=_frames(fields["leave"]),
        find_coordinator=_frames(fields["find_coordinator"]),
    )


def _tls(fields: object) -> TlsSettings | None:
    if fields is None:
        return None
    from consumer_membership.config.settings import TlsSettings  # other members' guardians need no imports

    return TlsSettings(**cast("dict[str, Any]", fields))


def _sasl(fields: object) -> SaslSettings | None:
    if fields is None:
        return None
    from consumer_membership.config.settings import KerberosSettings, SaslMechanism, SaslSettings

    read = cast("dict[str, Any]", fields)
    kerberos = read["kerberos"]
    return SaslSettings(
        mechanism=SaslMechanism(read["mechanism"]),
        username=read["username"],
        password=read["password"],
        kerberos=None if kerberos is None else KerberosSettings(**kerberos),
    )


def _frames(fields: object) -> Frames:
    frames = cast("Mapping[str, str]", fields)
    return {int(version): bytes.fromhex(frame) for version, frame in frames.items()}


def _address(pair: object) -> HostPort:
    host, port = cast("HostPort", pair)
    return str(host), int(port)
