"""One authentication in Kafka's requests: SaslHandshake, then SaslAuthenticate as the mechanism needs it (KIP-152).

The same exchange on a connection in use is a reauthentication (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.sasl import Mechanism, judge_handshake, judge_reply
from consumer_membership.wire.versions import Api, BrokerVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The client is authenticated for `session_s` seconds (KIP-368); None: until the connection ends."""

    session_s: float | None


class Authentication:
    """One exchange. `begin` returns the first call, `answer` the next step after each response.

    Raises:
        UnsupportedProtocolError: the broker offers no SaslHandshake, or an older version than this package supports.
    """

    __slots__ = ("_handshake", "_mechanism", "_read", "_version")

    def __init__(self, mechanism: Mechanism, versions: BrokerVersions) -> None:
        self._handshake = versions.of(Api.SASL_HANDSHAKE)
        self._version = versions.of(Api.SASL_AUTHENTICATE)
        self._mechanism = mechanism
        self._read: Callable[[Message], Call | Authenticated] = self._handshake_answered

    def begin(self) -> Call:
        """Return the call that requests the mechanism."""
        return Call(api=Api.SASL_HANDSHAKE, version=self._handshake, fields={"mechanism": self._mechanism.name})

    def answer(self, answer: Message) -> Call | Authenticated:
        """Return the next call, or the end of the exchange.

        Raises:
            AuthenticationError: the broker rejected the client, with the broker's message; or it could not prove its
                identity.
        """
        return self._read(answer)

    def _handshake_answered(self, answer: Message) -> Call:
        judge_handshake(self._mechanism.name, int(answer.error_code), answer.mechanisms)
        self._read = self._answered
        return self._authenticate_call(self._mechanism.begin())

    def _answered(self, answer: Message) -> Call | Authenticated:
        judge_reply(self._mechanism.name, int(answer.error_code), answer.error_message)
        message = self._mechanism.answer(answer.auth_bytes)
        if message is not None:
            return self._authenticate_call(message)
        return Authenticated(session_s=answer.session_lifetime_ms / 1000 or None)

    def _authenticate_call(self, message: bytes) -> Call:
        return Call(api=Api.SASL_AUTHENTICATE, version=self._version, fields={"auth_bytes": message})
