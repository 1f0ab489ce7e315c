"""One authentication in Kafka's requests: SaslHandshake, then SaslAuthenticate as the mechanism needs it (KIP-152).

The same exchange, once more on a connection that is in use, is a re-authentication (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from kio.static.protocol import ResponsePayload

from consumer_membership.wire.frames import Call
from consumer_membership.wire.sasl import Mechanism, judge_handshake, judge_reply
from consumer_membership.wire.versions import Api, BrokerVersions

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v1.response import SaslAuthenticateResponse as SaslAuthenticateResponseV1
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse as SaslAuthenticateResponseV2
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

    SaslAuthenticateResponse: TypeAlias = SaslAuthenticateResponseV1 | SaslAuthenticateResponseV2

#: From this version on the strings and bytes are compact (KIP-482).
_COMPACT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The broker knows who this is, for `session_s` seconds (KIP-368); None: as long as the connection stands."""

    session_s: float | None


class Authentication:
    """One exchange. `begin` gives the first call, `answer` what its answer and each later one leads to.

    Raises:
        UnsupportedProtocolError: the broker offers no SaslHandshake, or an older one than any that this package is for.
    """

    __slots__ = ("_mechanism", "_read", "_version")

    def __init__(self, mechanism: Mechanism, versions: BrokerVersions) -> None:
        versions.of(Api.SASL_HANDSHAKE)
        self._version = versions.of(Api.SASL_AUTHENTICATE)
        self._mechanism = mechanism
        self._read: Callable[[ResponsePayload], Call[ResponsePayload] | Authenticated] = self._shaken

    def begin(self) -> Call[SaslHandshakeResponse]:
        """Which mechanism is wanted."""
        from kio.schema.sasl_handshake.v1 import (  # noqa: PLC0415  # see requests.py
            SaslHandshakeRequest,
            SaslHandshakeResponse,
        )

        return Call(
            entity=SaslHandshakeRequest(mechanism=self._mechanism.name),
            layout=SaslHandshakeRequest,
            response=SaslHandshakeResponse,
        )

    def answer(self, entity: ResponsePayload) -> Call[ResponsePayload] | Authenticated:
        """The next call, or the end.

        Raises:
            AuthenticationError: the broker refuses, with its words; or it is not who it says.
        """
        return self._read(entity)

    def _shaken(self, entity: ResponsePayload) -> Call[ResponsePayload]:
        answer = cast("SaslHandshakeResponse", entity)
        judge_handshake(self._mechanism.name, int(answer.error_code), answer.mechanisms)
        self._read = self._answered
        return self._say(self._mechanism.begin())

    def _answered(self, entity: ResponsePayload) -> Call[ResponsePayload] | Authenticated:
        answer = cast("SaslAuthenticateResponse", entity)
        judge_reply(self._mechanism.name, int(answer.error_code), answer.error_message)
        message = self._mechanism.answer(answer.auth_bytes)
        if message is not None:
            return self._say(message)
        return Authenticated(session_s=answer.session_lifetime.total_seconds() or None)

    def _say(self, message: bytes) -> Call[SaslAuthenticateResponse]:
        from kio.schema.sasl_authenticate import v1, v2  # noqa: PLC0415  # see requests.py

        if self._version < _COMPACT:
            return Call(
                entity=v1.SaslAuthenticateRequest(auth_bytes=message),
                layout=v1.SaslAuthenticateRequest,
                response=v1.SaslAuthenticateResponse,
            )
        return Call(
            entity=v2.SaslAuthenticateRequest(auth_bytes=message),
            layout=v2.SaslAuthenticateRequest,
            response=v2.SaslAuthenticateResponse,
        )
