"""Each key of the installed librdkafka is honored, rejected, or documented as having no effect."""

from __future__ import annotations

import pytest

from consumer_membership import Consumer
from consumer_membership.config.keys import OF_LIBRDKAFKA
from consumer_membership.errors import ConfigurationError
from tests.support.librdkafka_keys import HonoredBy, keys, verdict

#: Configurations in which refused keys have an effect, and values that request an effect.
_TLS = {"security.protocol": "ssl"}
_BEARER = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("token", 0.0)}
_KERBEROS = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"}
_VALUES = {
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.method": "oidc",
    "offset.store.method": "none",
}
#: Keys that confluent-kafka itself adds, and removes before librdkafka receives the configuration.
_OF_CONFLUENT_KAFKA = {"logger", "oauth_cb", "on_commit"}


def test_librdkafka_reports_its_keys() -> None:
    """Librdkafka reports its keys and their scopes; the other tests here depend on this list."""
    assert len(keys()) > 100
    assert keys()["fetch.min.bytes"] == "C"
    assert keys()["linger.ms"] == "P"
    assert keys()["bootstrap.servers"] == "*"


def test_every_librdkafka_key_has_verdict() -> None:
    """Each key of a new librdkafka needs a verdict before that release is supported."""
    assert [key for key in keys() if verdict(key) is None] == []


def test_known_librdkafka_keys_exist_in_librdkafka() -> None:
    """Each key in this package's list of librdkafka keys exists in librdkafka."""
    assert set(OF_LIBRDKAFKA) - keys().keys() == _OF_CONFLUENT_KAFKA


@pytest.mark.parametrize(
    "key", [key for key in keys() if (found := verdict(key)) is not None and found.honored_by is HonoredBy.REFUSED]
)
def test_key_documented_as_rejected_raises_configuration_error(key: str) -> None:
    """A key with the verdict "refused" raises an error that names it, in a configuration that would use it."""
    needs: dict[str, object] = {"group.id": "g"}
    if key.startswith("ssl."):
        needs |= _TLS
    elif key.startswith("sasl.kerberos."):
        needs |= _KERBEROS
    elif "oauthbearer." in key or key.startswith("https."):
        needs |= _BEARER
    with pytest.raises(ConfigurationError) as caught:
        Consumer({**needs, key: _VALUES.get(key, "x")})
    assert key in str(caught.value) or "GSSAPI" in str(caught.value)
