"""One connection to one broker, without a socket: bytes in, events out; calls in, bytes out.

A connection begins with ApiVersions, in which both sides say what they speak (KIP-35, KIP-511). A broker that does not
know the asked version of ApiVersions answers UNSUPPORTED_VERSION in version 0, and is asked again in version 0.
Authentication comes next, where the configuration asks for it, and then the connection is ready: requests may be
sent, several at once, and a broker answers them in their order.

    NEW -- start() --> NEGOTIATING -- ApiVersions answered --> READY -- the end, or nonsense --> BROKEN
                            |                                  ^   |
                            +---> AUTHENTICATING --------------+   |
                                  RENEWING <----- renew() ---------+

A broker may believe a client for a while only (KIP-368): `renew` authenticates once more. Whatever is to be sent
meanwhile waits, because a broker that reads another request in the middle of it ends the connection; answers to what
was sent before still come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from consumer_membership.errors import InternalError, TransportError, UnsupportedProtocolError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.wire.codec import SIZE_BYTES, Call, Message, decode, encode
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.traffic import Traffic
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange

if TYPE_CHECKING:
    from consumer_membership.wire.authentication import Authenticated, Authentication
    from consumer_membership.wire.sasl import Mechanism

#: What the broker is told of this client (KIP-511): its metrics and logs count clients by it.
SOFTWARE_NAME = "consumer-membership"

#: An ApiVersions answer takes about 1 KB. A first frame that says it is larger than this is text or TLS: the smallest
#: letter in front makes a size of 512 MB.
_HANDSHAKE_MAX_BYTES = 1 << 20

_CORRELATION_LIMIT = 1 << 31
_SASL = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})


class ConnectionState(Enum):
    """How far a connection is; the module's text draws it."""

    NEW = "new"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    RENEWING = "renewing"
    BROKEN = "broken"


def api_versions(software_name: str, software_version: str) -> Call:
    """ApiVersions in the version that names the client (KIP-511)."""
    return Call(
        api=Api.API_VERSIONS,
        version=3,
        fields={"client_software_name": software_name, "client_software_version": software_version},
    )


def api_versions_v0() -> Call:
    """ApiVersions in the version that every broker knows."""
    return Call(api=Api.API_VERSIONS, version=0, fields={})


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesToSend:
    """The handshake goes on: send these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The handshake is over; `versions` is what the broker offers.

    `session_s`: for how long the broker believes who this is (KIP-368); None: while the connection stands.
    """

    versions: BrokerVersions
    session_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The broker believes who this is for another `session_s`; send these bytes, which had to wait."""

    session_s: float | None
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """The answer to the call that `send` numbered so."""

    correlation_id: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The stream ended or is not Kafka's; nothing more comes, and only a new connection helps."""

    error: TransportError


ConnectionEvent: TypeAlias = BytesToSend | Ready | Renewed | ResponseReceived | Broken

_Expected: TypeAlias = tuple[int, Call]


class Connection:
    """The protocol of one connection. Whoever owns the socket calls `start`, `send`, `receive` and `receive_end`.

    With a `mechanism` it authenticates before it is ready; without one it does not.

    Answers are expected in the order of the calls, as brokers give them. How the stream is cut into pieces does not
    matter: the same bytes give the same events. `Broken` is the last event, and comes once.
    """

    def __init__(
        self,
        *,
        client_id: str,
        max_frame_bytes: int,
        software_version: str = "unknown",
        mechanism: Mechanism | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.state = ConnectionState.NEW
        #: Where everything is counted; several connections may share one.
        self.traffic = traffic or Traffic()
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._software_version = software_version
        self._mechanism = mechanism
        self._versions = BrokerVersions()
        self._authentication: Authentication | None = None
        self._buffer = bytearray()
        self._expected: deque[_Expected] = deque()
        self._held: list[tuple[_Expected, bytes]] = []
        self._next_id = 0
        #: Whether the broker answered anything but ApiVersions.
        self._is_welcome = False

    def start(self) -> bytes:
        """The first bytes to send."""
        if self.state is not ConnectionState.NEW:
            raise InternalError(f"a connection was started while it was {self.state.value}")
        self.state = ConnectionState.NEGOTIATING
        self.traffic.connects += 1
        return self._put(api_versions(SOFTWARE_NAME, self._software_version))

    def send(self, call: Call) -> tuple[int, bytes]:
        """The number under which the answer will come, and the bytes to send: none yet during a renewal."""
        if self.state is ConnectionState.RENEWING:
            expected, data = self._numbered(call)
            self._held.append((expected, data))
            return expected[0], b""
        if self.state is not ConnectionState.READY:
            raise InternalError(f"a request was sent on a connection that is {self.state.value}")
        correlation_id = self._next_id
        return correlation_id, self._put(call)

    def renew(self, mechanism: Mechanism) -> bytes:
        """Authenticate once more; the first bytes of it to send. `Renewed` is its end."""
        if self.state is not ConnectionState.READY:
            raise InternalError(f"a renewal was begun on a connection that is {self.state.value}")
        self.state = ConnectionState.RENEWING
        return self._authenticate(mechanism)

    def receive(self, data: bytes) -> tuple[ConnectionEvent, ...]:
        """What these bytes, after all earlier ones, complete."""
        if self.state is ConnectionState.BROKEN:
            return ()
        self._buffer += data
        self.traffic.bytes_received += len(data)
        events: list[ConnectionEvent] = []
        try:
            events.extend(map(self._handle, self._frames()))
        except TransportError as error:
            events.append(self._broken(error))
        return tuple(events)

    def receive_end(self) -> tuple[ConnectionEvent, ...]:
        """What it means that the stream ended here."""
        if self.state is ConnectionState.BROKEN:
            return ()
        if self._buffer:
            text = f"the peer closed the connection in the middle of an answer ({len(self._buffer)} bytes of it came)"
        elif self.state is ConnectionState.NEGOTIATING:
            text = (
                "the peer closed the connection instead of answering the first request; is this port one for TLS or "
                "SASL, or no port of a Kafka broker?"
            )
        elif self.state is ConnectionState.AUTHENTICATING:
            text = "the peer closed the connection during the authentication, without a reason; the broker's log has it"
        else:
            text = "the peer closed the connection"
            if self._expected and not self._is_welcome:
                # What a listener does that wants to be told first who this is: it answers ApiVersions, and no more.
                text += " instead of answering the first request; does this port want SASL (security.protocol)?"
        return (self._broken(TransportError(text)),)

    def _broken(self, error: TransportError) -> Broken:
        self.state = ConnectionState.BROKEN
        self.traffic.disconnects += 1
        self._buffer.clear()
        return Broken(error=error)

    def _put(self, call: Call) -> bytes:
        expected, data = self._numbered(call)
        self._expected.append(expected)
        return data

    def _numbered(self, call: Call) -> tuple[_Expected, bytes]:
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % _CORRELATION_LIMIT
        data = encode(call, correlation_id, self._client_id)
        self.traffic.sent(call.api.title, len(data))
        return (correlation_id, call), data

    def _frames(self) -> Iterator[bytes]:
        buffer = self._buffer
        while len(buffer) >= SIZE_BYTES:
            size = int.from_bytes(buffer[:SIZE_BYTES], "big", signed=True)
            self._check_size(size)
            end = SIZE_BYTES + size
            if len(buffer) < end:
                return
            frame = bytes(memoryview(buffer)[SIZE_BYTES:end])
            del buffer[:end]
            yield frame

    def _check_size(self, size: int) -> None:
        in_handshake = self.state in (ConnectionState.NEGOTIATING, ConnectionState.AUTHENTICATING)
        limit = min(self._max_frame_bytes, _HANDSHAKE_MAX_BYTES) if in_handshake else self._max_frame_bytes
        # The correlation id is in every frame, so none is shorter than it.
        if SIZE_BYTES <= size <= limit:
            return
        if in_handshake:
            raise TransportError(_foreign(bytes(self._buffer[:SIZE_BYTES])))
        raise TransportError(
            f"an answer says it has {size} bytes, and receive.message.max.bytes allows {limit}; raise it, or look for "
            "what breaks the stream"
        )

    def _handle(self, frame: bytes) -> ConnectionEvent:
        number = int.from_bytes(frame[:SIZE_BYTES], "big", signed=True)
        if not self._expected:
            raise TransportError(f"an answer came (number {number}) while none was expected")
        correlation_id, call = self._expected.popleft()
        if number != correlation_id:
            raise TransportError(f"the answer to {call.name} has number {number} instead of {correlation_id}")
        self.traffic.answers += 1
        if self.state is ConnectionState.NEGOTIATING:
            return self._negotiate(call, frame)
        message = decode(call.api, call.version, frame)
        if self._authentication is not None and call.api in _SASL:
            return self._authenticated(self._authentication.answer(message))
        self._is_welcome = True
        return ResponseReceived(correlation_id=correlation_id, message=message)

    def _negotiate(self, call: Call, frame: bytes) -> ConnectionEvent:
        # Header v0 and then the error code, in every version: readable before it is known which version came back.
        code = int.from_bytes(frame[4:6], "big", signed=True)
        if code == ErrorCode.unsupported_version and call.version > 0:
            return BytesToSend(data=self._put(api_versions_v0()))
        if code != ErrorCode.none:
            raise TransportError(f"{call.name} was refused with error code {code}; is the peer a Kafka broker?")
        return self._negotiated(_offered(decode(call.api, call.version, frame)))

    def _negotiated(self, versions: BrokerVersions) -> ConnectionEvent:
        self._versions = versions
        if self._mechanism is None:
            self.state = ConnectionState.READY
            return Ready(versions=versions)
        self.state = ConnectionState.AUTHENTICATING
        mechanism, self._mechanism = self._mechanism, None
        return BytesToSend(data=self._authenticate(mechanism))

    def _authenticate(self, mechanism: Mechanism) -> bytes:
        from consumer_membership.wire.authentication import Authentication  # noqa: PLC0415 - only who has SASL needs it

        try:
            self._authentication = Authentication(mechanism, self._versions)
        except UnsupportedProtocolError as error:
            raise TransportError(str(error)) from error
        return self._put(self._authentication.begin())

    def _authenticated(self, reached: Call | Authenticated) -> ConnectionEvent:
        if isinstance(reached, Call):
            return BytesToSend(data=self._put(reached))
        self._authentication = None
        self._is_welcome = True
        was, self.state = self.state, ConnectionState.READY
        if was is ConnectionState.AUTHENTICATING:
            return Ready(versions=self._versions, session_s=reached.session_s)
        held, self._held = self._held, []
        self._expected.extend(expected for expected, _ in held)
        return Renewed(session_s=reached.session_s, data=b"".join(data for _, data in held))


def _offered(answer: Message) -> BrokerVersions:
    return BrokerVersions({key.api_key: VersionRange(key.min_version, key.max_version) for key in answer.api_keys})


def _foreign(head: bytes) -> str:
    """What a stream that is not Kafka's looks like by its first four bytes, with the likely cause."""
    # A TLS record begins with its type (21 alert, 22 handshake) and the major version 3.
    if head[:2] in (b"\x15\x03", b"\x16\x03"):
        return (
            "the peer answered with TLS, so this is a port for TLS; set security.protocol to ssl or sasl_ssl, or use "
            "the broker's plaintext port"
        )
    if head == b"HTTP":
        return "the peer is an HTTP server; this is not the port of a Kafka broker"
    return f"the peer's answer begins with {head!r}, which is not Kafka's protocol; is this the port of a Kafka broker?"
