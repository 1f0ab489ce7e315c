"""How a client proves who it is by a password; loaded by the guardian's process too, so standard library only."""

from __future__ import annotations

import secrets

# Not from the room's door, which loads pydantic.
from consumer_membership.config.settings import SaslMechanism, SaslSettings
from consumer_membership.wire.sasl import Mechanism, Plain, Scram

#: 18 bytes of chance, in letters that a SCRAM message may hold.
_NONCE_BYTES = 18


def password_mechanism(sasl: SaslSettings) -> Mechanism:
    """What says so on one connection, once.

    Raises:
        ValueError: the mechanism is none of a password, or cannot carry the user's name or the password.
    """
    if sasl.mechanism is SaslMechanism.PLAIN:
        return Plain(sasl.username, sasl.password)
    return Scram(sasl.mechanism.value, sasl.username, sasl.password, secrets.token_urlsafe(_NONCE_BYTES))
