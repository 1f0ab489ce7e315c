"""One authentication in Kafka's requests: SaslHandshake, then SaslAuthenticate as the mechanism needs it (KIP-152).

The same exchange, once more on a connection that is in use, is a re-authentication (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.sasl import Mechanism, judge_handshake, judge_reply
from consumer_membership.wire.versions import Api, BrokerVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The broker knows who this is, for `session_s` seconds (KIP-368); None: as long as the connection stands."""

    session_s: float | None


class Authentication:
    """One exchange. `begin` gives the first call, `answer` what its answer and each later one leads to.

    Raises:
        UnsupportedProtocolError: the broker offers no SaslHandshake, or an older one than any that this package is for.
    """

    __slots__ = ("_handshake", "_mechanism", "_read", "_version")

    def __init__(self, mechanism: Mechanism, versions: BrokerVersions) -> None:
        self._handshake = versions.of(Api.SASL_HANDSHAKE)
        self._version = versions.of(Api.SASL_AUTHENTICATE)
        self._mechanism = mechanism
        self._read: Callable[[Message], Call | Authenticated] = self._shaken

    def begin(self) -> Call:
        """Which mechanism is wanted."""
        return Call(api=Api.SASL_HANDSHAKE, version=self._handshake, fields={"mechanism": self._mechanism.name})

    def answer(self, answer: Message) -> Call | Authenticated:
        """The next call, or the end.

        Raises:
            AuthenticationError: the broker refuses, with its words; or it is not who it says.
        """
        return self._read(answer)

    def _shaken(self, answer: Message) -> Call:
        judge_handshake(self._mechanism.name, int(answer.error_code), answer.mechanisms)
        self._read = self._answered
        return self._say(self._mechanism.begin())

    def _answered(self, answer: Message) -> Call | Authenticated:
        judge_reply(self._mechanism.name, int(answer.error_code), answer.error_message)
        message = self._mechanism.answer(answer.auth_bytes)
        if message is not None:
            return self._say(message)
        return Authenticated(session_s=answer.session_lifetime_ms / 1000 or None)

    def _say(self, message: bytes) -> Call:
        return Call(api=Api.SASL_AUTHENTICATE, version=self._version, fields={"auth_bytes": message})
