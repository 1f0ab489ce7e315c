"""The secured listeners of a broker: certificates, authorities, and the credentials of users.

One broker has all secured listeners at the same time, so that it serves all tests: TLS, TLS with a client certificate,
SASL without TLS, and SASL with TLS. The PLAINTEXT listener remains for communication between brokers, the readiness
check, and the setup of tests. Keys and passwords are values of the broker properties.
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
"""The security protocol of each listener, by listener name; MUTUAL requires a client certificate."""

_MECHANISMS = "sasl.enabled.mechanisms"

_LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    # Without a JWKS endpoint, Kafka uses its validator for unsecured tokens (SaslChannelBuilder.java).
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}

_ITERATIONS = 4096  # the minimum of Kafka (ScramMechanism.java)
_SCRAM: Mapping[str, ScramMechanism] = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_TIMEOUT_S = 30.0  # prevents hanging; a login takes hundredths of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Keys, certificates and users of the secured listeners; equal values can share a broker.

    Attributes:
        key_pem: The broker's private key in PKCS #8, not encrypted (Kafka accepts no other format).
        certificate_chain_pem: The broker's certificate and the intermediate certificates. Clients reach the
            encrypted listeners at localhost, the others at 127.0.0.1.
        client_authority_pem: The certificate of the authority that signs client certificates.
        users: The password of each user, for PLAIN and both SCRAM mechanisms.

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
        # A copy, because this value is a key of the broker pool and must not change.
        object.__setattr__(self, "users", MappingProxyType(dict(self.users)))


def secured_host(listener: str) -> str:
    """Return the advertised host: a name for listeners with certificates, because certificates contain names."""
    return "localhost" if SECURED_LISTENERS[listener].endswith("SSL") else "127.0.0.1"


def secured_properties(security: Security) -> dict[str, str]:
    """Return the properties of the secured listeners, except their addresses.

    Where possible, a property applies to all listeners, so that a caller can override it with a listener's prefix or
    replace it without one.
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
    """Return the SASL mechanisms of a listener; the caller's properties override the defaults."""
    for key in (f"listener.name.{listener.lower()}.{_MECHANISMS}", _MECHANISMS):
        if key in extra:
            return frozenset(extra[key].replace(" ", "").split(","))
    return frozenset(_LOGIN_MODULES)


def _quoted(text: str) -> str:
    """Quote a string for java.io.StreamTokenizer, which Kafka's JaasConfig.java uses."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def create_credentials(
    security: Security, bootstrap_servers: str, *, sasl_addresses: Iterable[str], mechanisms: Collection[str]
) -> None:
    """Create both SCRAM credentials for each user, and wait until each broker accepts them.

    The controller's response is too early: it has stored the credentials, but each broker applies them a moment later.
    A login in between fails like one with a wrong password, which most clients treat as final.

    `sasl_addresses` are the SASL listeners of the nodes, and `mechanisms` their enabled mechanisms.

    Raises:
        BrokerUnavailableError: A credential was rejected, or a broker did not accept it in time.
    """
    admin = admin_client(bootstrap_servers)
    for mechanism in _SCRAM.values():
        _store(admin, mechanism, security.users)
    for address in sasl_addresses:
        for user, password in security.users.items():
            for name in _SCRAM.keys() & mechanisms:
                _await_login(address, name, user, password)


def _store(admin: AdminClient, mechanism: ScramMechanism, users: Mapping[str, str]) -> None:
    """Store the credentials of one mechanism; Kafka accepts each user once per request (ScramControlManager.java)."""
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, _ITERATIONS), password.encode())
        for user, password in users.items()
    ]
    if not wanted:  # confluent_kafka rejects an empty list
        return
    for user, stored in admin.alter_user_scram_credentials(wanted, request_timeout=_TIMEOUT_S).items():
        try:
            stored.result()
        except KafkaException as error:
            raise BrokerUnavailableError(f"the SCRAM credentials of user {user!r} were rejected: {error}") from error


def _await_login(address: str, mechanism_name: str, user: str, password: str) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism_name}
    client = admin_client(address, login | {"sasl.username": user, "sasl.password": password})
    try:
        # librdkafka retries a failed login.
        client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerUnavailableError(
            f"user {user!r} was created, but cannot log in with {mechanism_name} at {address}"
            f" after {_TIMEOUT_S:.0f} s: {error}"
        ) from error
