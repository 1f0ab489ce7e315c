"""The secured listeners of a broker: what they show, trust and accept, and their users' credentials.

Every secured listener of a test's interest is there at once, so that one broker serves all of them: encrypted,
encrypted with the client's certificate, authenticated in plain text, and both. PLAINTEXT stays beside them for the
brokers among themselves, for readiness and for a test's own errands. Keys and passwords are the properties' values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from consumer_membership.devbroker.errors import BrokerUnavailableError
from consumer_membership.devbroker.readiness import admin_client

TLS, MUTUAL, SASL, SASL_TLS = "TLS", "MUTUAL", "SASL", "SASL_TLS"

SECURED_LISTENERS: Mapping[str, str] = {TLS: "SSL", MUTUAL: "SSL", SASL: "SASL_PLAINTEXT", SASL_TLS: "SASL_SSL"}
"""The security protocol of each listener, by the listener's name; MUTUAL asks for the client's certificate."""

_MECHANISMS = "sasl.enabled.mechanisms"

_LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    # Without a JWKS endpoint its validator is Kafka's own for unsecured tokens (SaslChannelBuilder.java).
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}

_ITERATIONS = 4096  # the fewest that Kafka takes (ScramMechanism.java)
_SCRAM: Mapping[str, ScramMechanism] = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_TIMEOUT_S = 30.0  # a bound against hanging: it is a matter of hundredths


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What the secured listeners show, trust and accept; equal ones make equal brokers.

    Attributes:
        key_pem: The broker's private key: PKCS #8, not encrypted (Kafka does not read a key of another kind).
        certificate_chain_pem: The broker's certificate and those between it and its authority. Clients reach the
            encrypted listeners at localhost, the others at 127.0.0.1.
        client_authority_pem: The authority's certificate that clients' certificates must come from.
        users: The password of each user, for PLAIN and both SCRAMs alike.

    Raises:
        BrokerUnavailableError: A user has no name or no password.
    """

    key_pem: str = field(repr=False)
    certificate_chain_pem: str = field(repr=False)
    client_authority_pem: str = field(repr=False)
    users: Mapping[str, str] = field(repr=False, hash=False)  # a mapping has no hash; it is compared

    def __post_init__(self) -> None:
        for user, password in self.users.items():
            if not user or not password:
                raise BrokerUnavailableError(f"user {user!r} has no {'password' if user else 'name'}; give it one")
        # A copy: a broker that is kept under this value in a pool must not change its users.
        object.__setattr__(self, "users", MappingProxyType(dict(self.users)))


def secured_host(listener: str) -> str:
    """The host that clients are told: a name where there are certificates, since names are what these are about."""
    return "localhost" if SECURED_LISTENERS[listener].endswith("SSL") else "127.0.0.1"


def secured_properties(security: Security) -> dict[str, str]:
    """The properties of the secured listeners, all but where they listen.

    For all listeners together where Kafka lets it be, so that a property with a listener's name in front wins over it,
    and one without it replaces it.
    """
    modules = {mechanism: f"{module} required" for mechanism, module in _LOGIN_MODULES.items()}
    modules["PLAIN"] += "".join(
        f" {_quoted(f'user_{name}')}={_quoted(password)}" for name, password in security.users.items()
    )
    sasl = [listener for listener, protocol in SECURED_LISTENERS.items() if protocol.startswith("SASL")]
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": security.key_pem,
        "ssl.keystore.certificate.chain": security.certificate_chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": security.client_authority_pem,
        f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
        _MECHANISMS: ",".join(_LOGIN_MODULES),
        **{
            f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": f"{module};"
            for listener in sasl
            for mechanism, module in modules.items()
        },
    }


def enabled_mechanisms(listener: str, extra: Mapping[str, str]) -> frozenset[str]:
    """The SASL mechanisms of a listener, by the properties that win over the room's own."""
    for key in (f"listener.name.{listener.lower()}.{_MECHANISMS}", _MECHANISMS):
        if key in extra:
            return frozenset(extra[key].replace(" ", "").split(","))
    return frozenset(_LOGIN_MODULES)


def _quoted(text: str) -> str:
    """A word as java.io.StreamTokenizer reads it back, which Kafka's JaasConfig.java uses."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def create_credentials(
    security: Security, bootstrap_servers: str, *, sasl_addresses: Iterable[str], mechanisms: Collection[str]
) -> None:
    """Give every user both SCRAM credentials, and return when each of these brokers takes them.

    The controller's answer is too early to go by: it has stored the credentials, and each broker takes them over a
    moment later. A client that comes in between is refused as if its password were wrong, which most hold for final.

    The addresses are those of each node's SASL listener, the mechanisms those that it has enabled: nobody could log in
    by another one.

    Raises:
        BrokerUnavailableError: A credential was refused, or a broker did not take one in time.
    """
    admin = admin_client(bootstrap_servers)
    for mechanism in _SCRAM.values():
        _store(admin, mechanism, security.users)
    for address in sasl_addresses:
        for user, password in security.users.items():
            for name in _SCRAM.keys() & mechanisms:
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
