"""Password-based SASL mechanisms; the guardian's process also loads this module, so standard library only."""

from __future__ import annotations

import secrets

# Not from the package's `__init__`, which loads pydantic.
from consumer_membership.config.settings import SaslMechanism, SaslSettings
from consumer_membership.wire.sasl import Mechanism, Plain, Scram

#: 18 random bytes, in letters that a SCRAM message may contain.
_NONCE_BYTES = 18


def password_mechanism(sasl: SaslSettings) -> Mechanism:
    """Return the mechanism that authenticates one connection, once.

    Raises:
        ValueError: the mechanism uses no password, or does not support the user's name or the password.
    """
    if sasl.mechanism is SaslMechanism.PLAIN:
        return Plain(sasl.username, sasl.password)
    return Scram(sasl.mechanism.value, sasl.username, sasl.password, secrets.token_urlsafe(_NONCE_BYTES))
