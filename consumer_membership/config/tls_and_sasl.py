"""The keys of TLS and SASL: what of them is honoured, and what connections get of it.

What librdkafka does with a key, the membership's own connections do too; where they cannot, the key is refused. It is
refused where it would matter only: librdkafka leaves unused what this security.protocol or mechanism has no use for, so
that one configuration serves several listeners, and so does this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from consumer_membership.config.settings import SaslMechanism, SaslSettings, SecurityProtocol, TlsSettings
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.light_dataclasses import dataclass

_KEEP = "or keep confluent_kafka.Consumer for this cluster"
_PKCS12 = (
    "a PKCS#12 keystore cannot be read by the membership's own connections; convert it (`openssl pkcs12 -in KEYSTORE "
    "-clcerts -nokeys -out cert.pem`, `openssl pkcs12 -in KEYSTORE -nocerts -out key.pem`), and give "
    "ssl.certificate.location and ssl.key.location, with the passphrase of the key in ssl.key.password"
)
_OF_OPENSSL = (
    f"the membership's own connections cannot be told so; remove the key, so that both take OpenSSL's choice, {_KEEP}"
)
_FOREIGN_KEY = (
    "the membership's own connections use no other key than one in PEM; give it as ssl.key.location or ssl.key.pem and "
    f"remove this key, {_KEEP}"
)

#: The fields of `TlsSettings` that are texts; each key is `ssl.` and the field's name with dots.
_TLS_TEXTS = (
    "ca_location",
    "ca_pem",
    "crl_location",
    "certificate_location",
    "certificate_pem",
    "key_location",
    "key_pem",
    "key_password",
    "cipher_suites",
)
HONOURED_BY_TLS = frozenset(
    {
        *(f"ssl.{name.replace('_', '.')}" for name in _TLS_TEXTS),
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_REFUSED_BY_TLS: Mapping[str, str] = {
    "ssl.keystore.location": _PKCS12,
    "ssl.keystore.password": _PKCS12,
    "ssl.curves.list": _OF_OPENSSL,
    "ssl.sigalgs.list": _OF_OPENSSL,
    "ssl.providers": _FOREIGN_KEY,
    "ssl.engine.location": _FOREIGN_KEY,
    "ssl.engine.id": _FOREIGN_KEY,
    "ssl.ca.certificate.stores": (
        "the membership's own connections trust what Windows trusts; remove the key, or export the certificates and "
        "give them as ssl.ca.location"
    ),
}
_BESIDE = "too (the same file where both stand in one), or leave this key out"
#: What means the system's certificates.
_PROBE = "probe"

#: One key under two names; librdkafka is told one after the other, so the later one holds.
_MECHANISM_KEYS = ("sasl.mechanism", "sasl.mechanisms")
#: librdkafka's default.
_KERBEROS_MECHANISM = "GSSAPI"
_KNOWN_MECHANISMS = frozenset(mechanism.value for mechanism in SaslMechanism)
_MECHANISMS = ", ".join(mechanism.value for mechanism in SaslMechanism)
HONOURED_BY_SASL = frozenset({*_MECHANISM_KEYS, "sasl.username", "sasl.password", "sasl.oauthbearer.config"})
_KERBEROS = "sasl.kerberos."
_NO_KERBEROS = (
    "GSSAPI (Kerberos), which is also librdkafka's default, is not spoken by the membership's own connections; set "
    f"sasl.mechanism to one of {_MECHANISMS}, {_KEEP}"
)
#: What only OAUTHBEARER has a use for; https.* is about fetching tokens from a server (OIDC).
_BEARER = ("sasl.oauthbearer.", "enable.sasl.oauthbearer.", "https.")
#: Values that ask for nothing.
_ASKS_NOTHING: Mapping[str, frozenset[str]] = {
    "sasl.oauthbearer.method": frozenset({"default"}),
    "enable.sasl.oauthbearer.unsecure.jwt": frozenset({"false", "f", "0"}),
}
_TOKENS = (
    "tokens come from the application here: give an oauth_cb that fetches the token and returns it, with its "
    "extensions if it has any, and remove this key"
)

#: What C's isspace() takes for a blank.
_BLANKS = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A key that cannot be honoured, and what to do instead."""

    key: str
    remedy: str


def unhonoured(given: Mapping[str, object], protocol: SecurityProtocol) -> Iterator[Refusal]:
    """What of this configuration the membership's own connections would not do as librdkafka does."""
    yield from _mistaken_mechanism(given)
    if protocol.uses_tls:
        yield from _unhonoured_by_tls(given)
    if protocol.uses_sasl:
        yield from _unhonoured_by_sasl(given)
    yield from _useless_callback(given, protocol)


def tls_settings(
    given: Mapping[str, object], protocol: SecurityProtocol, *, verifies: bool, checks_hostname: bool
) -> TlsSettings | None:
    """How connections are encrypted; None where they are not."""
    if not protocol.uses_tls:
        return None
    texts = {name: _text(given, f"ssl.{name.replace('_', '.')}") for name in _TLS_TEXTS}
    if texts["ca_location"] == _PROBE:
        texts["ca_location"] = None
    return TlsSettings(**texts, verifies=verifies, checks_hostname=verifies and checks_hostname)


def sasl_settings(given: Mapping[str, object], protocol: SecurityProtocol) -> SaslSettings | None:
    """Who this client is; None where it is not asked."""
    if not protocol.uses_sasl:
        return None
    mechanism = SaslMechanism(_mechanism(given))
    if mechanism is SaslMechanism.OAUTHBEARER:
        tokens = given["oauth_cb"]
        return SaslSettings(mechanism=mechanism, token=tokens.token if isinstance(tokens, SharedTokens) else None)
    return SaslSettings(
        mechanism=mechanism, username=_text(given, "sasl.username") or "", password=_text(given, "sasl.password") or ""
    )


def with_shared_tokens(given: Mapping[str, object]) -> dict[str, object]:
    """The same configuration with an oauth_cb that librdkafka and the membership can both ask."""
    callback = given.get("oauth_cb")
    if not callable(callback):
        return dict(given)
    return {**given, "oauth_cb": SharedTokens(callback, _text(given, "sasl.oauthbearer.config"))}


def _unhonoured_by_tls(given: Mapping[str, object]) -> Iterator[Refusal]:
    for key in _present(given, *given):
        if key.startswith(("ssl.", "enable.ssl.")) and key not in HONOURED_BY_TLS:
            yield Refusal(key=key, remedy=_REFUSED_BY_TLS.get(key) or _unknown(key))
    certificates = _present(given, "ssl.certificate.location", "ssl.certificate.pem")
    keys = _present(given, "ssl.key.location", "ssl.key.pem")
    for pair in (certificates, keys):
        for text in pair[1:]:
            remedy = f"{pair[0]} is given, too, and OpenSSL would go on with a mixture of both; give one of them"
            yield Refusal(key=text, remedy=remedy)
    if keys and not certificates:
        remedy = "Private key check failed: no certificate assigned; give ssl.certificate.location"
        yield Refusal(key=keys[0], remedy=f"{remedy}, {_BESIDE}")
    if certificates and not keys:
        remedy = "a certificate without its key proves nothing, and librdkafka leaves it out; give ssl.key.location"
        yield Refusal(key=certificates[0], remedy=f"{remedy}, {_BESIDE}")


def _mistaken_mechanism(given: Mapping[str, object]) -> Iterator[Refusal]:
    """What librdkafka judges whatever the protocol."""
    text = _mechanism(given)
    if not text or " " in text or "," in text:
        remedy = f'Invalid value for configuration property "sasl.mechanisms": {text}; give one of {_MECHANISMS}'
        yield Refusal(key=_mechanism_key(given), remedy=remedy)


def _unhonoured_by_sasl(given: Mapping[str, object]) -> Iterator[Refusal]:
    mechanism = _mechanism(given)
    for key in _present(given, *given):
        remedy = _remedy_of_sasl_key(key, str(given[key]).strip().lower(), mechanism)
        if remedy is not None:
            yield Refusal(key=key, remedy=remedy)
    if mechanism == _KERBEROS_MECHANISM:
        yield Refusal(key=_mechanism_key(given), remedy=_NO_KERBEROS)
    elif mechanism not in _KNOWN_MECHANISMS:
        remedy = f"Failed to create consumer: Unsupported SASL mechanism: {mechanism}; give one of {_MECHANISMS}"
        yield Refusal(key=_mechanism_key(given), remedy=remedy)
    elif mechanism == SaslMechanism.OAUTHBEARER.value:
        if "oauth_cb" not in given:
            remedy = (
                "OAUTHBEARER needs tokens; give an oauth_cb that fetches one and returns (token, expiry in seconds "
                "since 1970), or another sasl.mechanism"
            )
            yield Refusal(key="oauth_cb", remedy=remedy)
    else:
        for key in ("sasl.username", "sasl.password"):
            if not _present(given, key):
                remedy = "Failed to create consumer: sasl.username and sasl.password must be set"
                yield Refusal(key=key, remedy=f"{remedy} for {mechanism}; give both")


def _remedy_of_sasl_key(key: str, value: str, mechanism: str) -> str | None:
    """Why the key cannot be honoured with this mechanism; None if it can, or if the mechanism has no use for it."""
    if key in HONOURED_BY_SASL or value in _ASKS_NOTHING.get(key, ()):
        return None
    if key.startswith(_KERBEROS):
        return _NO_KERBEROS if mechanism == _KERBEROS_MECHANISM else None
    if key.startswith(_BEARER):
        return _TOKENS if mechanism == SaslMechanism.OAUTHBEARER.value else None
    return _unknown(key) if key.startswith(("sasl.", "enable.sasl.")) else None


def _useless_callback(given: Mapping[str, object], protocol: SecurityProtocol) -> Iterator[Refusal]:
    """confluent-kafka waits for a token that librdkafka never asks for, and gives up after 10 s."""
    if "oauth_cb" not in given:
        return
    why = None
    if not callable(given["oauth_cb"]):
        why = "expected oauth_cb property as a callable function; give one, or leave it out"
    elif not protocol.uses_sasl:
        why = f"security.protocol is {protocol.value}, which needs no token; leave it out, or set that to sasl_ssl"
    elif _mechanism(given) != SaslMechanism.OAUTHBEARER.value:
        why = f"sasl.mechanism is {_mechanism(given)}, which needs no token; leave it out, or set that to OAUTHBEARER"
    if why is not None:
        yield Refusal(key="oauth_cb", remedy=why)


def _present(given: Mapping[str, object], *keys: str) -> list[str]:
    """Those of the keys that have a value."""
    return [key for key in keys if _text(given, key) is not None]


def _text(given: Mapping[str, object], key: str) -> str | None:
    """A textual value as librdkafka has it: without blanks on its left, and empty is unset."""
    value = given.get(key)
    return None if value is None else str(value).lstrip(_BLANKS) or None


def _mechanism_key(given: Mapping[str, object]) -> str:
    names = [key for key in given if key in _MECHANISM_KEYS]
    return names[-1] if names else _MECHANISM_KEYS[0]


def _mechanism(given: Mapping[str, object]) -> str:
    return str(given.get(_mechanism_key(given), _KERBEROS_MECHANISM)).lstrip(_BLANKS)


def _unknown(key: str) -> str:
    return (
        f'No such configuration property: "{key}", or none that the membership\'s own connections could honour; remove '
        f"it, {_KEEP}"
    )
