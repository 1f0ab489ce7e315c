"""SCRAM credentials of a secured broker's users: made over the plaintext listener, waited for on the SASL listeners.

The controller's answer is too early to go by: it has stored the credentials, and each broker takes them over from the
metadata log a moment later. A client that comes in between is refused as if its password were wrong, and most
clients hold that for final. Whoever waits here never meets it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.readiness import admin_client

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confluent_kafka.admin import AdminClient

    from consumer_membership.devbroker.security import Security

_ITERATIONS = 4096  # the fewest that Kafka takes (ScramMechanism.java)
_MECHANISMS: Mapping[str, ScramMechanism] = MappingProxyType(
    {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
)
_TIMEOUT_S = 30.0  # a bound against hanging: it is a matter of hundredths


def create_credentials(
    security: Security, bootstrap_servers: str, *, sasl_addresses: Iterable[str], mechanisms: Collection[str]
) -> None:
    """Give every user both SCRAM credentials, and return when each of these brokers takes them.

    Args:
        security: The users.
        bootstrap_servers: The broker's plaintext listener.
        sasl_addresses: host:port of each node's SASL listener.
        mechanisms: What that listener has enabled; nobody could log in by another one.

    Raises:
        BrokerUnavailableError: A credential was refused, or a broker did not take one in time.
    """
    admin = admin_client(bootstrap_servers)
    for mechanism in _MECHANISMS.values():
        _store(admin, mechanism, security.users)
    for address in sasl_addresses:
        for user, password in security.users.items():
            for name in _MECHANISMS.keys() & mechanisms:
                _await_login(address, name, user, password)


def _store(admin: AdminClient, mechanism: ScramMechanism, users: Mapping[str, str]) -> None:
    """In a request per mechanism: Kafka takes each user once in a request (ScramControlManager.java)."""
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, _ITERATIONS), password.encode())
        for user, password in users.items()
    ]
    if not wanted:  # which confluent_kafka refuses
        return
    for user, stored in admin.alter_user_scram_credentials(wanted, request_timeout=_TIMEOUT_S).items():
        try:
            stored.result()
        except KafkaException as error:
            raise BrokerUnavailableError(f"the SCRAM credentials of user {user!r} were refused: {error}") from error


def _await_login(address: str, mechanism_name: str, user: str, password: str) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism_name}
    client = admin_client(address, login | {"sasl.username": user, "sasl.password": password})
    try:
        # librdkafka itself tries again where it was refused.
        client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerUnavailableError(
            f"user {user!r} was made and cannot log in by {mechanism_name} at {address}"
            f" after {_TIMEOUT_S:.0f} s: {error}"
        ) from error
