"""One connection to one broker, without a socket: bytes in, events out; calls in, bytes out.

A connection begins with ApiVersions, in which both sides exchange their versions (KIP-35, KIP-511). A broker that does
not support the requested version of ApiVersions responds UNSUPPORTED_VERSION in version 0, and receives the request
again in version 0. Authentication follows if it is configured, and then the connection is ready: several requests may
be in flight, and a broker responds in their order.

    NEW -- start() --> NEGOTIATING -- ApiVersions response --> READY -- end, or invalid data --> BROKEN
                            |                                  ^   |
                            +---> AUTHENTICATING --------------+   |
                                  RENEWING <----- renew() ---------+

A broker may limit the time of an authentication (KIP-368): `renew` authenticates again. Requests wait meanwhile,
because a broker that receives another request during it closes the connection; responses to earlier requests still
arrive.
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
from consumer_membership.wire.versions import VERSIONS_FOR_ONE_BROKER, Api, BrokerVersions, VersionRange

if TYPE_CHECKING:
    from consumer_membership.wire.authentication import Authenticated, Authentication
    from consumer_membership.wire.sasl import Mechanism

#: The name that brokers receive for this client (KIP-511); their metrics and logs count clients by it.
SOFTWARE_NAME = "consumer-membership"

#: An ApiVersions response takes about 1 KB. A first frame with a larger size is text or TLS: even a space, the smallest
#: printable character, as the first byte makes a size of 512 MB.
_HANDSHAKE_MAX_BYTES = 1 << 20

_CORRELATION_LIMIT = 1 << 31
_SASL = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})


class ConnectionState(Enum):
    """The state of a connection; see the diagram in this module."""

    NEW = "new"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    RENEWING = "renewing"
    BROKEN = "broken"


class WrongBrokerError(TransportError):
    """The connection reached another broker than the client wanted: the address now belongs to it (KIP-1242)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedBroker:
    """The broker that a connection is meant for, of a cluster whose brokers check it (Kafka 4.4 and later)."""

    cluster_id: str
    node_id: int


def api_versions(software_name: str, software_version: str, expected: ExpectedBroker | None = None) -> Call:
    """Return ApiVersions in the version that names the client (KIP-511), or also the broker (KIP-1242)."""
    fields: dict[str, object] = {"client_software_name": software_name, "client_software_version": software_version}
    if expected is None:
        return Call(api=Api.API_VERSIONS, version=3, fields=fields)
    fields |= {"cluster_id": expected.cluster_id, "node_id": expected.node_id}
    return Call(api=Api.API_VERSIONS, version=VERSIONS_FOR_ONE_BROKER, fields=fields)


def api_versions_v0() -> Call:
    """Return ApiVersions in the version that every broker supports."""
    return Call(api=Api.API_VERSIONS, version=0, fields={})


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesToSend:
    """The handshake continues; send these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The handshake is complete; `versions` are those that the broker offers.

    `session_s`: the lifetime of the authentication (KIP-368); None: until the connection ends.
    """

    versions: BrokerVersions
    session_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The client is authenticated for another `session_s` seconds; send these bytes, which had to wait."""

    session_s: float | None
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReceived:
    """The response to the call with this correlation id."""

    correlation_id: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The stream ended or is not Kafka's; no further event follows, and only a new connection helps."""

    error: TransportError


ConnectionEvent: TypeAlias = BytesToSend | Ready | Renewed | ResponseReceived | Broken

_Expected: TypeAlias = tuple[int, Call]


class Connection:
    """The protocol of one connection. The owner of the socket calls `start`, `send`, `receive` and `receive_end`.

    With a `mechanism`, it authenticates before it is ready. With an `expected` broker, it breaks with WrongBrokerError
    if another broker answers; brokers before Kafka 4.4 do not check that.

    Responses are expected in the order of the calls, as brokers send them. The division of the stream into pieces has
    no effect: equal bytes cause equal events. `Broken` is the last event, and occurs once.
    """

    def __init__(
        self,
        *,
        client_id: str,
        max_frame_bytes: int,
        software_version: str = "unknown",
        mechanism: Mechanism | None = None,
        expected: ExpectedBroker | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.state = ConnectionState.NEW
        #: Counts all traffic; several connections may share one object.
        self.traffic = traffic or Traffic()
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._software_version = software_version
        self._mechanism = mechanism
        self._expected_broker = expected
        self._versions = BrokerVersions()
        self._authentication: Authentication | None = None
        self._buffer = bytearray()
        self._expected: deque[_Expected] = deque()
        self._held: list[tuple[_Expected, bytes]] = []
        self._next_id = 0
        self._throttle_s = 0.0
        #: Whether the broker responded to any request other than ApiVersions.
        self._is_welcome = False

    def start(self) -> bytes:
        """Return the first bytes to send."""
        if self.state is not ConnectionState.NEW:
            raise InternalError(f"a connection was started while it was {self.state.value}")
        self.state = ConnectionState.NEGOTIATING
        self.traffic.connects += 1
        return self._put(api_versions(SOFTWARE_NAME, self._software_version, self._expected_broker))

    def send(self, call: Call) -> tuple[int, bytes]:
        """Return the correlation id of the call, and the bytes to send: none during a reauthentication."""
        if self.state is ConnectionState.RENEWING:
            expected, data = self._numbered(call)
            self._held.append((expected, data))
            return expected[0], b""
        if self.state is not ConnectionState.READY:
            raise InternalError(f"a request was sent on a connection that is {self.state.value}")
        correlation_id = self._next_id
        return correlation_id, self._put(call)

    def renew(self, mechanism: Mechanism) -> bytes:
        """Begin a reauthentication and return its first bytes; `Renewed` is its end."""
        if self.state is not ConnectionState.READY:
            raise InternalError(f"a renewal was begun on a connection that is {self.state.value}")
        self.state = ConnectionState.RENEWING
        return self._authenticate(mechanism)

    def receive(self, data: bytes) -> tuple[ConnectionEvent, ...]:
        """Return the events that these bytes complete."""
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

    def take_throttle_s(self) -> float:
        """Return the longest throttle time of the responses since the last call, in seconds.

        The broker has already sent the response and reads no further request until that time has passed; clients wait
        also (KIP-219).
        """
        longest_s, self._throttle_s = self._throttle_s, 0.0
        return longest_s

    def receive_end(self) -> tuple[ConnectionEvent, ...]:
        """Return the events of the end of the stream."""
        if self.state is ConnectionState.BROKEN:
            return ()
        if self._buffer:
            text = f"the peer closed the connection in the middle of a response ({len(self._buffer)} bytes received)"
        elif self.state is ConnectionState.NEGOTIATING:
            text = (
                "the peer closed the connection instead of responding to the first request; check whether the port "
                "needs TLS or SASL (security.protocol), or is not a port of a Kafka broker"
            )
        elif self.state is ConnectionState.AUTHENTICATING:
            text = "the peer closed the connection during the authentication without a reason; see the broker's log"
        else:
            text = "the peer closed the connection"
            if self._expected and not self._is_welcome:
                # Behavior of a listener that requires authentication first: it responds only to ApiVersions.
                text += (
                    " instead of responding to the first request; check whether the port needs SASL (security.protocol)"
                )
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
        # The correlation id is in every frame, so no frame is shorter.
        if SIZE_BYTES <= size <= limit:
            return
        if in_handshake:
            raise TransportError(_foreign(bytes(self._buffer[:SIZE_BYTES])))
        raise TransportError(
            f"a response has a size of {size} bytes, above receive.message.max.bytes={limit}; raise the key, or check "
            "what corrupts the stream"
        )

    def _handle(self, frame: bytes) -> ConnectionEvent:
        number = int.from_bytes(frame[:SIZE_BYTES], "big", signed=True)
        if not self._expected:
            raise TransportError(f"a response with correlation id {number} arrived while none was expected")
        correlation_id, call = self._expected.popleft()
        if number != correlation_id:
            raise TransportError(f"the response to {call.name} has correlation id {number} instead of {correlation_id}")
        self.traffic.answers += 1
        if self.state is ConnectionState.NEGOTIATING:
            return self._negotiate(call, frame)
        message = self._decoded(call, frame)
        if self._authentication is not None and call.api in _SASL:
            return self._authenticated(self._authentication.answer(message))
        self._is_welcome = True
        return ResponseReceived(correlation_id=correlation_id, message=message)

    def _decoded(self, call: Call, frame: bytes) -> Message:
        message = decode(call.api, call.version, frame)
        throttle_ms: int = getattr(message, "throttle_time_ms", 0)  # absent in old versions and in responses of SASL
        if throttle_ms > 0:
            self.traffic.throttled(throttle_ms / 1000)
            self._throttle_s = max(self._throttle_s, throttle_ms / 1000)
        return message

    def _negotiate(self, call: Call, frame: bytes) -> ConnectionEvent:
        # Response header v0 and then the error code, in every version: readable before the version of the response is
        # known.
        code = int.from_bytes(frame[4:6], "big", signed=True)
        if code == ErrorCode.unsupported_version and call.version > 0:
            return BytesToSend(data=self._put(api_versions_v0()))
        if code == ErrorCode.rebootstrap_required and self._expected_broker is not None:
            wanted = self._expected_broker
            raise WrongBrokerError(
                f"the peer is not broker {wanted.node_id} of cluster {wanted.cluster_id}, whose address this was"
            )
        if code != ErrorCode.none:
            raise TransportError(
                f"{call.name} was rejected with error code {code}; check that the peer is a Kafka broker"
            )
        return self._negotiated(_offered(self._decoded(call, frame)))

    def _negotiated(self, versions: BrokerVersions) -> ConnectionEvent:
        self._versions = versions
        if self._mechanism is None:
            self.state = ConnectionState.READY
            return Ready(versions=versions)
        self.state = ConnectionState.AUTHENTICATING
        mechanism, self._mechanism = self._mechanism, None
        return BytesToSend(data=self._authenticate(mechanism))

    def _authenticate(self, mechanism: Mechanism) -> bytes:
        from consumer_membership.wire.authentication import Authentication  # noqa: PLC0415 - needed only with SASL

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
    """Return the likely cause of a stream that is not Kafka's, from its first four bytes."""
    # A TLS record begins with its type (21 alert, 22 handshake) and the major version 3.
    if head[:2] in (b"\x15\x03", b"\x16\x03"):
        return (
            "the peer responded with TLS; set security.protocol to ssl or sasl_ssl, or use the broker's plaintext port"
        )
    if head == b"HTTP":
        return "the peer is an HTTP server, not a Kafka broker; check the port"
    return f"the peer's response begins with {head!r}, which is not Kafka's protocol; check the port"
