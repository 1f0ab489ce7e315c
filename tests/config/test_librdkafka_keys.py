"""Each key of the installed librdkafka: somebody honours it, it is refused, or the documentation says what it is."""

from __future__ import annotations

import pytest

from consumer_membership import Consumer
from consumer_membership.config.keys import OF_LIBRDKAFKA
from consumer_membership.errors import ConfigurationError
from tests.support.librdkafka_keys import Who, keys, verdict

#: Where a refused key matters, and a value that asks for something.
_TLS = {"security.protocol": "ssl"}
_BEARER = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("token", 0.0)}
_KERBEROS = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"}
_VALUES = {
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.method": "oidc",
    "offset.store.method": "none",
}
#: What confluent-kafka itself adds, and takes out before librdkafka sees it.
_OF_CONFLUENT_KAFKA = {"logger", "oauth_cb", "on_commit"}


def test_the_library_tells_its_keys() -> None:
    """Else every other test here would be true of nothing."""
    assert len(keys()) > 100
    assert keys()["fetch.min.bytes"] == "C"
    assert keys()["linger.ms"] == "P"
    assert keys()["bootstrap.servers"] == "*"


def test_every_key_has_a_verdict() -> None:
    """A new librdkafka's keys are judged before they are taken."""
    assert [key for key in keys() if verdict(key) is None] == []


def test_keys_that_are_guessed_are_the_librarys() -> None:
    """What stands in the package's own list is there."""
    assert set(OF_LIBRDKAFKA) - keys().keys() == _OF_CONFLUENT_KAFKA


@pytest.mark.parametrize(
    "key", [key for key in keys() if (found := verdict(key)) is not None and found.who is Who.REFUSED]
)
def test_what_is_said_to_be_refused_is_refused(key: str) -> None:
    """By its name, where it would matter."""
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
