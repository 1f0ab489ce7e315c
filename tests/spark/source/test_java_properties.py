"""Java's configuration keys, translated to librdkafka's."""

from __future__ import annotations

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.source.java_properties import as_librdkafka


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"client.id": "a", "fetch.min.bytes": "1"}, {"client.id": "a", "fetch.min.bytes": "1"}),
        ({"fetch.max.wait.ms": "50", "max.poll.records": "7"}, {"fetch.wait.max.ms": "50"}),
        (
            {
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="alice" password="a\\"b;c";'
            },
            {"sasl.username": "alice", "sasl.password": 'a"b;c'},
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.truststore.password": "x"},
            {"ssl.ca.location": "/ca.pem"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "secret"},
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "secret"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem", "ssl.key.password": "p"},
            {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem", "ssl.key.password": "p"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ],
)
def test_java_keys_are_translated_to_librdkafka_keys(given: dict[str, str], found: dict[str, str]) -> None:
    """A query that switches its source keeps its Java options."""
    assert as_librdkafka(given) == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.truststore.location": "/t.jks"}, "export it as PEM"),
        ({"ssl.keystore.location": "/t.jks"}, "kafka.ssl.keystore.type=PKCS12"),
        ({"sasl.jaas.config": "x.Krb5LoginModule required useKeyTab=true;"}, "kafka.sasl.username"),
        ({"sasl.jaas.config": 'x.PlainLoginModule required username="a";'}, "has no username or password"),
        ({"sasl.jaas.config": "pass=word"}, "kafka.sasl.username"),
        ({"interceptor.classes": "a.B"}, "Java classes cannot run here"),
        ({"value.deserializer": "a.B"}, "values are bytes"),
    ],
)
def test_keys_that_only_java_has_are_refused_with_the_replacement(given: dict[str, str], words: str) -> None:
    """The error names the librdkafka key to use and never shows a password."""
    with pytest.raises(ConfigurationError) as refused:
        as_librdkafka(given)
    assert words in str(refused.value)
    assert "pass=word" not in str(refused.value)
