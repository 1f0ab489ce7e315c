"""SASL: how a client proves to a broker who it is, one mechanism for one connection; bytes in, bytes out.

Kafka carries the mechanisms' messages in SaslAuthenticate (KIP-152); `connection` does that. Standard library only.
"""

from __future__ import annotations

from typing import Protocol


class Mechanism(Protocol):
    """One authentication under way."""

    @property
    def name(self) -> str:
        """The mechanism's registered name, such as SCRAM-SHA-256."""

    def begin(self) -> bytes:
        """The first message to send."""

    def answer(self, challenge: bytes) -> bytes | None:
        """What to send next; None: nothing, and the broker is who it says, as far as the mechanism can tell.

        Raises:
            AuthenticationError: the challenge is not what an honest broker would send.
        """
