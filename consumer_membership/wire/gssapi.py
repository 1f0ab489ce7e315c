"""SASL GSSAPI (RFC 4752): Kerberos tokens, and then the agreement on no security layer; bytes in, bytes out.

The Kerberos library makes and checks the tokens, behind `GssContext`. Kafka encrypts with TLS and has no security
layer of SASL, so the client accepts only a broker that offers none.

No authorization id is sent: the broker uses the principal that the ticket proves.
"""

from __future__ import annotations

from typing import Final, Protocol

from consumer_membership.errors import AuthenticationError

#: The broker's offer: one byte with the layers as bits, and the size of the largest message in three bytes.
_OFFER_BYTES = 4
_NO_LAYER = 1
#: The client's choice, with no messages under a layer, and without an authorization id.
_CHOICE = bytes((_NO_LAYER, 0, 0, 0))


class GssContext(Protocol):
    """A security context of the client with one broker (RFC 2743), which has requested mutual authentication.

    Its methods raise AuthenticationError for data that was not created with the broker's key.
    """

    @property
    def is_complete(self) -> bool:
        """Whether both sides have proved their identity."""

    def step(self, token: bytes) -> bytes:
        """Return the next token for the broker, empty if it needs none."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message of the broker."""

    def wrap(self, message: bytes) -> bytes:
        """Return a message with this content for the broker, signed and not encrypted."""


class Gssapi:
    """One authentication with Kerberos; `first` is the context's first token.

    The caller makes it, because it may need a ticket for the broker from the KDC. `answer` returns None only after the
    broker has proved its identity.
    """

    __slots__ = ("_context", "_first", "_has_chosen", "name")

    def __init__(self, context: GssContext, first: bytes) -> None:
        self.name: Final = "GSSAPI"
        self._context = context
        self._first = first
        self._has_chosen = False

    def begin(self) -> bytes:
        """Return the first token: the client's ticket for the broker."""
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the next token, then the choice of no security layer, and then None."""
        if self._has_chosen:
            return None
        if not self._context.is_complete:
            return self._context.step(challenge)
        self._check_offer(self._context.unwrap(challenge))
        self._has_chosen = True
        return self._context.wrap(_CHOICE)

    def _check_offer(self, offer: bytes) -> None:
        if len(offer) != _OFFER_BYTES:
            raise AuthenticationError(f"the broker's offer of security layers has {len(offer)} bytes instead of 4")
        if not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                "the broker requires a GSSAPI security layer, which Kafka's protocol does not have; check that the "
                "peer is a Kafka broker"
            )
