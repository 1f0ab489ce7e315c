"""What a secured broker is given, and the properties of its listeners for TLS and SASL.

Every listener of a test's interest is there at once, so that one broker serves all of them: encrypted, encrypted with
the client's certificate, authenticated in plain text, and both. PLAINTEXT stays beside them for the brokers among
themselves, for readiness and for a test's own errands. Keys and passwords are the properties' values; no file is
needed. Nothing here is started or reached: the users' SCRAM credentials are `credentials`' task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from consumer_membership.devbroker.errors import BrokerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

TLS, MUTUAL, SASL, SASL_TLS = "TLS", "MUTUAL", "SASL", "SASL_TLS"

SECURED_LISTENERS: Mapping[str, str] = MappingProxyType(
    {TLS: "SSL", MUTUAL: "SSL", SASL: "SASL_PLAINTEXT", SASL_TLS: "SASL_SSL"}
)
"""The security protocol of each listener, by the listener's name; MUTUAL asks for the client's certificate."""

_MECHANISMS = "sasl.enabled.mechanisms"

_LOGIN_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
        # Without a JWKS endpoint its validator is Kafka's own for unsecured tokens (SaslChannelBuilder.java).
        "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    }
)


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
