"""SASL for the guardian's connections: the member's mechanism (`wire.sasl`), as the member itself used it.

A separate module because of its imports: 4 MB, most of them OpenSSL's (`hashlib`), only for members with SASL.
"""

from __future__ import annotations

import sys

from consumer_membership.config.settings import SaslMechanism, SaslSettings
from consumer_membership.errors import AuthenticationError, TransportError, UnsupportedProtocolError
from consumer_membership.runtime.guardian.leave_requests import QUESTION, Exchange
from consumer_membership.runtime.network.passwords import password_mechanism
from consumer_membership.wire.authentication import Authentication
from consumer_membership.wire.codec import Call, decode, encode
from consumer_membership.wire.sasl import Mechanism
from consumer_membership.wire.versions import BrokerVersions


def load_for(sasl: SaslSettings) -> None:
    """Import the modules that this mechanism needs, while they exist: an upgrade may remove them later."""
    if sasl.mechanism is SaslMechanism.GSSAPI:
        if sasl.kerberos is not None and sasl.kerberos.library_folder not in sys.path:
            # This process runs without site-packages (`owner`), which are not needed otherwise.
            sys.path.append(sasl.kerberos.library_folder)
        from consumer_membership.runtime.network import kerberos  # noqa: F401


def authenticate(sasl: SaslSettings, host: str, client_id: str, offered: BrokerVersions, exchange: Exchange) -> None:
    """Authenticate at this host as the member; `exchange` returns the response to a request with this number.

    Raises:
        AuthenticationError: the broker refuses the credentials, or its own proof is wrong.
        TransportError: the broker does not support SASL as this package does, or no KDC responds.
    """
    try:
        authentication = Authentication(_mechanism(sasl, host), offered)
    except UnsupportedProtocolError as error:
        raise TransportError(str(error)) from error
    number, step = QUESTION, authentication.begin()
    while True:
        number += 1
        answer = decode(step.api, step.version, exchange(encode(step, number, client_id), number))
        following = authentication.answer(answer)
        if not isinstance(following, Call):
            return
        step = following


def _mechanism(sasl: SaslSettings, host: str) -> Mechanism:
    if sasl.kerberos is not None:
        load_for(sasl)
        from consumer_membership.runtime.network.kerberos import kerberos_mechanism

        return kerberos_mechanism(sasl.kerberos, host)
    try:
        return password_mechanism(sasl)
    except ValueError as error:
        # `set_sasl_credentials` accepts any text.
        raise AuthenticationError(f"sasl.mechanism={sasl.mechanism.value}: {error}") from error
