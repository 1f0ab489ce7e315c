"""SASL for the guardian's connections: the member's mechanism (`wire.sasl`), as the member itself used it.

A module of its own because of what it imports: 4 MB, most of them OpenSSL's (`hashlib`), for members with SASL alone.
"""

from __future__ import annotations

from consumer_membership.config.settings import SaslSettings
from consumer_membership.errors import AuthenticationError
from consumer_membership.runtime.guardian.asking import Exchange, Offered, newest
from consumer_membership.runtime.guardian.leave_requests import QUESTION
from consumer_membership.runtime.network.passwords import password_mechanism
from consumer_membership.wire.codec import Call, Fields, Message, decode, encode
from consumer_membership.wire.sasl import Mechanism, judge_handshake, judge_reply
from consumer_membership.wire.versions import SPOKEN, Api


def authenticate(sasl: SaslSettings, client_id: str, offered: Offered, exchange: Exchange) -> None:
    """Tell the broker who the member was; `exchange` gives the answer to a request with this number.

    Raises:
        AuthenticationError: the broker does not believe it, or is not the one that it says it is.
        TransportError: the broker does not speak SASL as this package does.
    """
    versions = {api: newest(SPOKEN[api], offered, api) for api in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)}
    number = QUESTION

    def asked(api: Api, fields: Fields) -> Message:
        nonlocal number
        number += 1
        call = Call(api=api, version=versions[api], fields=fields)
        return decode(api, call.version, exchange(encode(call, number, client_id), number))

    mechanism = _mechanism(sasl)
    offer = asked(Api.SASL_HANDSHAKE, {"mechanism": mechanism.name})
    judge_handshake(mechanism.name, offer.error_code, offer.mechanisms)
    message: bytes | None = mechanism.begin()
    while message is not None:
        reply = asked(Api.SASL_AUTHENTICATE, {"auth_bytes": message})
        judge_reply(mechanism.name, reply.error_code, reply.error_message or "")
        message = mechanism.answer(reply.auth_bytes)


def _mechanism(sasl: SaslSettings) -> Mechanism:
    try:
        return password_mechanism(sasl)
    except ValueError as error:
        # `set_sasl_credentials` takes any text.
        raise AuthenticationError(f"sasl.mechanism={sasl.mechanism.value}: {error}") from error
