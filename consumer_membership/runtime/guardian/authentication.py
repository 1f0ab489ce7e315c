"""SASL for the guardian's connections: the member's mechanism (`wire.sasl`), in frames that are made without kio.

A module of its own because of what it imports: 4 MB, most of them OpenSSL's (`hashlib`), for members with SASL alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consumer_membership.config.settings import SaslSettings
from consumer_membership.errors import AuthenticationError
from consumer_membership.runtime.guardian.leave_requests import QUESTION
from consumer_membership.runtime.network.passwords import password_mechanism
from consumer_membership.wire.leave_frames import (
    SASL_AUTHENTICATE,
    SASL_AUTHENTICATE_VERSIONS,
    SASL_HANDSHAKE,
    SASL_HANDSHAKE_VERSION,
    newest,
    sasl_authenticate,
    sasl_authenticate_request,
    sasl_handshake,
    sasl_handshake_request,
)
from consumer_membership.wire.sasl import Mechanism, judge_handshake, judge_reply


def authenticate(
    sasl: SaslSettings,
    client_id: str,
    offered: Mapping[int, tuple[int, int]],
    exchange: Callable[[bytes, int], bytes],
) -> None:
    """Tell the broker who the member was; `exchange` gives the answer to a request with this number.

    Raises:
        AuthenticationError: the broker does not believe it, or is not the one that it says it is.
        MalformedAnswerError: the broker does not speak SASL as this package does.
    """
    newest((SASL_HANDSHAKE_VERSION,), offered.get(SASL_HANDSHAKE), SASL_HANDSHAKE)
    version = newest(
        SASL_AUTHENTICATE_VERSIONS,
        offered.get(SASL_AUTHENTICATE),
        SASL_AUTHENTICATE,
    )
    mechanism = _mechanism(sasl)
    number = QUESTION + 1
    offer = sasl_handshake(exchange(sasl_handshake_request(mechanism.name, number, client_id), number))
    judge_handshake(mechanism.name, offer.code, offer.mechanisms)
    message: bytes | None = mechanism.begin()
    while message is not None:
        number += 1
        frame = sasl_authenticate_request(version, message, number, client_id)
        reply = sasl_authenticate(exchange(frame, number), version)
        judge_reply(mechanism.name, reply.status.code, reply.status.message)
        message = mechanism.answer(reply.message)


def _mechanism(sasl: SaslSettings) -> Mechanism:
    try:
        return password_mechanism(sasl)
    except ValueError as error:
        # `set_sasl_credentials` takes any text.
        raise AuthenticationError(f"sasl.mechanism={sasl.mechanism.value}: {error}") from error
