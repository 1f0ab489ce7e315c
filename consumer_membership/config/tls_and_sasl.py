"""The keys of TLS and SASL: which ones the membership's connections honor, and the settings that they result in.

The membership's own connections honor a key as librdkafka does, or the key is rejected. It is rejected only if it has
an effect: librdkafka ignores keys that do not apply to the security.protocol or the mechanism, so that one
configuration serves several listeners, and this package does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from consumer_membership.config import oidc_keys
from consumer_membership.config.keys import OF_LIBRDKAFKA
from consumer_membership.config.settings import (
    KerberosSettings,
    SaslMechanism,
    SaslSettings,
    SecurityProtocol,
    TlsSettings,
)
from consumer_membership.config.tokens import SharedTokens
from consumer_membership.light_dataclasses import dataclass

_KEEP = "or keep confluent_kafka.Consumer for this cluster"
_OF_OPENSSL = (
    f"the membership's own connections do not support it; remove the key, so that OpenSSL's defaults apply, {_KEEP}"
)
_FOREIGN_KEY = (
    "the membership's own connections support only keys in PEM; set ssl.key.location or ssl.key.pem and "
    f"remove this key, {_KEEP}"
)

#: The text fields of `TlsSettings`; each key is `ssl.` and the field's name with dots.
_TLS_TEXTS = (
    "ca_location",
    "ca_pem",
    "crl_location",
    "certificate_location",
    "certificate_pem",
    "key_location",
    "key_pem",
    "key_password",
    "keystore_location",
    "keystore_password",
    "cipher_suites",
)
HONORED_BY_TLS = frozenset(
    {
        *(f"ssl.{name.replace('_', '.')}" for name in _TLS_TEXTS),
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_REFUSED_BY_TLS: Mapping[str, str] = {
    "ssl.curves.list": _OF_OPENSSL,
    "ssl.sigalgs.list": _OF_OPENSSL,
    "ssl.providers": _FOREIGN_KEY,
    "ssl.engine.location": _FOREIGN_KEY,
    "ssl.engine.id": _FOREIGN_KEY,
    "ssl.ca.certificate.stores": (
        "the membership's own connections trust the certificates that Windows trusts; remove the key, or export the "
        "certificates and set ssl.ca.location"
    ),
}
_BESIDE = "(the same file if it has both), or remove this key"

#: One key with two names; librdkafka sets both in order, so the later one applies.
_MECHANISM_KEYS = ("sasl.mechanism", "sasl.mechanisms")
#: librdkafka's defaults.
_DEFAULT_MECHANISM = SaslMechanism.GSSAPI.value
_SERVICE, _PRINCIPAL = "kafka", "kafkaclient"
_KNOWN_MECHANISMS = frozenset(mechanism.value for mechanism in SaslMechanism)
_MECHANISMS = ", ".join(mechanism.value for mechanism in SaslMechanism)
HONORED_BY_SASL = frozenset(
    {
        *_MECHANISM_KEYS,
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.config",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
    }
)
#: librdkafka runs the command to fill the ticket cache. The membership's connections read that cache, unless a keytab
#: is set: they use the keytab itself.
ONLY_FOR_KINIT = frozenset({"sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"})
_GSSAPI_LIBRARY = "gssapi"
#: Keys for OAUTHBEARER only; https.* concerns the token endpoint of OIDC.
_BEARER = ("sasl.oauthbearer.", "enable.sasl.oauthbearer.", "https.")
#: Both kinds of connections honor these keys: this package fetches the tokens. Without `sasl.oauthbearer.method=oidc`
#: they have no effect, as in librdkafka.
HONORED_BY_OIDC = frozenset(
    key for key in OF_LIBRDKAFKA if key.startswith(("sasl.oauthbearer.", "https.")) and key not in HONORED_BY_SASL
)
_UNSECURE = "enable.sasl.oauthbearer.unsecure.jwt"
_FALSE = frozenset({"false", "f", "0"})
_NO_UNSECURE = (
    "unsigned tokens are for tests of librdkafka; set an oauth_cb that returns such a token, and remove this key"
)

#: The characters that C's isspace() accepts.
_BLANKS = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A key that cannot be honored, and the fix."""

    key: str
    remedy: str


def unhonored(given: Mapping[str, object], protocol: SecurityProtocol) -> Iterator[Refusal]:
    """Yield the keys that the membership's own connections cannot honor as librdkafka does."""
    yield from _mistaken_mechanism(given)
    if protocol.uses_tls:
        yield from _unhonored_by_tls(given)
    if protocol.uses_sasl:
        yield from _unhonored_by_sasl(given)
    yield from _useless_callback(given, protocol)


def tls_settings(
    given: Mapping[str, object], protocol: SecurityProtocol, *, verifies: bool, checks_hostname: bool
) -> TlsSettings | None:
    """Return how connections are encrypted, or None if they are not."""
    if not protocol.uses_tls:
        return None
    texts = {name: _text(given, f"ssl.{name.replace('_', '.')}") for name in _TLS_TEXTS}
    return TlsSettings(**texts, verifies=verifies, checks_hostname=verifies and checks_hostname)


def sasl_settings(given: Mapping[str, object], protocol: SecurityProtocol) -> SaslSettings | None:
    """Return the client's credentials, or None if connections are not authenticated."""
    if not protocol.uses_sasl:
        return None
    mechanism = SaslMechanism(_mechanism(given))
    if mechanism is SaslMechanism.GSSAPI:
        return SaslSettings(mechanism=mechanism, kerberos=_kerberos_settings(given))
    if mechanism is SaslMechanism.OAUTHBEARER:
        tokens = given["oauth_cb"]
        return SaslSettings(mechanism=mechanism, token=tokens.token if isinstance(tokens, SharedTokens) else None)
    return SaslSettings(
        mechanism=mechanism, username=_text(given, "sasl.username") or "", password=_text(given, "sasl.password") or ""
    )


def _kerberos_settings(given: Mapping[str, object]) -> KerberosSettings:
    keytab, principal = _text(given, "sasl.kerberos.keytab"), _text(given, "sasl.kerberos.principal")
    return KerberosSettings(
        service=_text(given, "sasl.kerberos.service.name") or _SERVICE,
        keytab=keytab,
        principal=principal or (None if keytab is None else _PRINCIPAL),
        library_folder=_library_folder(_GSSAPI_LIBRARY),
    )


def _library_folder(name: str) -> str:
    """Return the folder in which this package is installed; "" if it is not."""
    found = find_spec(name)
    return "" if found is None or found.origin is None else found.origin.rpartition("/")[0].rpartition("/")[0]


def with_shared_tokens(given: Mapping[str, object]) -> dict[str, object]:
    """Return the configuration with an oauth_cb that both librdkafka and the membership can call.

    It calls the application's oauth_cb, or requests tokens from a token endpoint (OIDC).
    """
    callback = given.get("oauth_cb")
    if callable(callback):
        return {**given, "oauth_cb": SharedTokens(callback, _text(given, "sasl.oauthbearer.config"))}
    if not _needs_endpoint(given):
        return dict(given)
    from consumer_membership.config.token_endpoint import TokenEndpoint

    endpoint = TokenEndpoint(oidc_keys.oidc_settings(given))
    return {**given, "oauth_cb": SharedTokens.of_endpoint(endpoint)}


def _needs_endpoint(given: Mapping[str, object]) -> bool:
    """Return whether the brokers require a token, and it comes from a token endpoint."""
    protocol = str(given.get("security.protocol", "")).strip().lower()
    uses_sasl = protocol in {SecurityProtocol.SASL_PLAINTEXT.value, SecurityProtocol.SASL_SSL.value}
    return uses_sasl and _mechanism(given) == SaslMechanism.OAUTHBEARER.value and oidc_keys.uses_oidc(given)


def _unhonored_by_tls(given: Mapping[str, object]) -> Iterator[Refusal]:
    for key in _present(given, *given):
        if key.startswith(("ssl.", "enable.ssl.")) and key not in HONORED_BY_TLS:
            yield Refusal(key=key, remedy=_REFUSED_BY_TLS.get(key) or _unknown(key))
    certificates = _present(given, "ssl.certificate.location", "ssl.certificate.pem")
    keys = _present(given, "ssl.key.location", "ssl.key.pem")
    keystores = _present(given, "ssl.keystore.location")
    for pair in (certificates, keys, [*keystores, *certificates, *keys][:2] if keystores else []):
        for text in pair[1:]:
            remedy = f"{pair[0]} is also set, and OpenSSL would mix both; set only one of them"
            yield Refusal(key=text, remedy=remedy)
    if keys and not certificates:
        remedy = "Private key check failed: no certificate assigned; set ssl.certificate.location"
        yield Refusal(key=keys[0], remedy=f"{remedy} {_BESIDE}")
    if certificates and not keys:
        remedy = "a certificate without its private key cannot be used, and librdkafka ignores it; set ssl.key.location"
        yield Refusal(key=certificates[0], remedy=f"{remedy} {_BESIDE}")


def _mistaken_mechanism(given: Mapping[str, object]) -> Iterator[Refusal]:
    """Yield an invalid mechanism, which librdkafka checks for every protocol."""
    text = _mechanism(given)
    if not text or " " in text or "," in text:
        remedy = f'Invalid value for configuration property "sasl.mechanisms": {text}; use one of {_MECHANISMS}'
        yield Refusal(key=_mechanism_key(given), remedy=remedy)


def _unhonored_by_sasl(given: Mapping[str, object]) -> Iterator[Refusal]:
    mechanism = _mechanism(given)
    for key in _present(given, *given):
        remedy = _remedy_of_sasl_key(key, str(given[key]).strip().lower(), mechanism)
        if remedy is not None:
            yield Refusal(key=key, remedy=remedy)
    if mechanism == SaslMechanism.GSSAPI.value:
        if find_spec(_GSSAPI_LIBRARY) is None:
            from consumer_membership.installation import install_command

            remedy = (
                "GSSAPI (Kerberos), which is also librdkafka's default, needs the package gssapi: run "
                f"`{install_command('kerberos')}`, or set sasl.mechanism to one of {_MECHANISMS}"
            )
            yield Refusal(key=_mechanism_key(given), remedy=remedy)
    elif mechanism not in _KNOWN_MECHANISMS:
        remedy = f"Failed to create consumer: Unsupported SASL mechanism: {mechanism}; use one of {_MECHANISMS}"
        yield Refusal(key=_mechanism_key(given), remedy=remedy)
    elif mechanism == SaslMechanism.OAUTHBEARER.value:
        yield from _without_tokens(given)
    else:
        for key in ("sasl.username", "sasl.password"):
            if not _present(given, key):
                remedy = "Failed to create consumer: sasl.username and sasl.password must be set"
                yield Refusal(key=key, remedy=f"{remedy} for {mechanism}; set both")


def _without_tokens(given: Mapping[str, object]) -> Iterator[Refusal]:
    """Yield the keys for which OAUTHBEARER has no source of tokens, or one that cannot work."""
    if "oauth_cb" not in given:
        remedy = (
            "OAUTHBEARER needs tokens; set an oauth_cb that fetches one and returns (token, expiry in seconds since "
            "1970), or sasl.oauthbearer.method=oidc, or another sasl.mechanism"
        )
        yield Refusal(key="oauth_cb", remedy=remedy)
    tokens = given.get("oauth_cb")
    has_callback = tokens is not None and not (isinstance(tokens, SharedTokens) and tokens.is_of_endpoint)
    for key, remedy in oidc_keys.refusals(given, has_callback=has_callback):
        yield Refusal(key=key, remedy=remedy)


def _remedy_of_sasl_key(key: str, value: str, mechanism: str) -> str | None:
    """Return why the key cannot be honored with this mechanism; None if it can, or does not apply."""
    if key in HONORED_BY_SASL or key in HONORED_BY_OIDC or key in ONLY_FOR_KINIT:
        return None
    if key == _UNSECURE and value in _FALSE:
        return None
    if key.startswith(_BEARER):
        if mechanism != SaslMechanism.OAUTHBEARER.value:
            return None
        return _NO_UNSECURE if key == _UNSECURE else _unknown(key)
    return _unknown(key) if key.startswith(("sasl.", "enable.sasl.")) else None


def _useless_callback(given: Mapping[str, object], protocol: SecurityProtocol) -> Iterator[Refusal]:
    """Yield an oauth_cb without effect: confluent-kafka waits 10 s for a token that librdkafka never requests."""
    if "oauth_cb" not in given:
        return
    why = None
    if not callable(given["oauth_cb"]):
        why = "expected oauth_cb property as a callable function; pass one, or remove the key"
    elif not protocol.uses_sasl:
        why = f"security.protocol={protocol.value} needs no token; remove oauth_cb, or set security.protocol=sasl_ssl"
    elif _mechanism(given) != SaslMechanism.OAUTHBEARER.value:
        mechanism = _mechanism(given)
        why = f"sasl.mechanism={mechanism} needs no token; remove oauth_cb, or set sasl.mechanism=OAUTHBEARER"
    if why is not None:
        yield Refusal(key="oauth_cb", remedy=why)


def _present(given: Mapping[str, object], *keys: str) -> list[str]:
    """Return the keys that have a value."""
    return [key for key in keys if _text(given, key) is not None]


def _text(given: Mapping[str, object], key: str) -> str | None:
    """Return a text value as librdkafka reads it: without leading blanks; empty text is unset."""
    value = given.get(key)
    return None if value is None else str(value).lstrip(_BLANKS) or None


def _mechanism_key(given: Mapping[str, object]) -> str:
    names = [key for key in given if key in _MECHANISM_KEYS]
    return names[-1] if names else _MECHANISM_KEYS[0]


def _mechanism(given: Mapping[str, object]) -> str:
    return str(given.get(_mechanism_key(given), _DEFAULT_MECHANISM)).lstrip(_BLANKS)


def _unknown(key: str) -> str:
    return (
        f'No such configuration property: "{key}", or the membership\'s own connections cannot honor it; remove '
        f"it, {_KEEP}"
    )
