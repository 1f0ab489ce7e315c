"""SASL GSSAPI with a scripted Kerberos library: the tokens, and then the agreement on no security layer."""

from __future__ import annotations

import pytest

from consumer_membership.errors import AuthenticationError
from consumer_membership.wire.gssapi import Gssapi

NO_LAYER, INTEGRITY = 1, 2


class Context:
    """A context that is complete after these tokens of the broker; a message is wrapped in parentheses."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.read: list[bytes] = []

    @property
    def is_complete(self) -> bool:
        return not self._answers

    def step(self, token: bytes) -> bytes:
        self.read.append(token)
        return self._answers.pop(0)

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"(") or not message.endswith(b")"):
            raise AuthenticationError("the broker's GSSAPI message was rejected: it is not signed")
        return message[1:-1]

    def wrap(self, message: bytes) -> bytes:
        return b"(" + message + b")"


def offer(layers: int, largest: int = 0) -> bytes:
    """Return the broker's signed offer."""
    return b"(" + bytes((layers,)) + largest.to_bytes(3, "big") + b")"


def test_gssapi_sends_tokens_and_then_chooses_no_layer() -> None:
    """RFC 4752, section 3.1: an empty message follows the last token, and the choice has no authorization id."""
    context = Context(b"second", b"")
    mechanism = Gssapi(context, b"first")
    assert (mechanism.name, mechanism.begin()) == ("GSSAPI", b"first")
    assert mechanism.answer(b"token") == b"second"
    assert mechanism.answer(b"proof") == b""
    assert mechanism.answer(offer(NO_LAYER | INTEGRITY, 65536)) == b"(\x01\x00\x00\x00)"
    assert mechanism.answer(b"") is None
    assert context.read == [b"token", b"proof"]


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (offer(INTEGRITY), "the broker requires a GSSAPI security layer"),
        (b"(\x01)", "has 1 bytes instead of 4"),
        (b"", "it is not signed"),
        (b"\x01\x00\x00\x00", "it is not signed"),
    ],
)
def test_gssapi_rejects_offers_that_are_not_kafkas(challenge: bytes, message: str) -> None:
    """A broker that requires a layer, or whose offer its key did not sign, is not accepted."""
    mechanism = Gssapi(Context(), b"first")
    with pytest.raises(AuthenticationError, match=message):
        mechanism.answer(challenge)
