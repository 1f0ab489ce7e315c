"""TLS and SASL in the configuration: what librdkafka does with a key, the membership does, or the key is refused."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

from consumer_membership.config import (
    ConsumerConfig,
    SaslMechanism,
    SaslSettings,
    SecurityProtocol,
    TlsSettings,
)
from consumer_membership.config.values import parse_endpoints
from consumer_membership.errors import ConfigurationError
from tests.config.secured import (
    ACCOUNT,
    BEARER,
    CLIENT_CERTIFICATE,
    LEAST,
    PLAIN,
    SASL,
    SSL,
    Callback,
    Keys,
    config,
    refusal,
    source,
)

HUNTER = "hunter2"


def tls(*keys: Keys) -> TlsSettings | None:
    """What the connections get of these keys under security.protocol=ssl."""
    return config(SSL, *keys).connection_settings().tls


def sasl(*keys: Keys) -> SaslSettings | None:
    """What the connections get of these keys."""
    return config(*keys).connection_settings().sasl


# ---- security.protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["plaintext", "PLAINTEXT", "ssl", "Ssl", "sasl_plaintext", "SASL_SSL"])
def test_protocol_says_which_settings_there_are(given: str) -> None:
    """In any case of letters: TLS settings for ssl and sasl_ssl, SASL settings for the other two as well."""
    settings = config(PLAIN, {"security.protocol": given}).connection_settings()
    assert (settings.tls is not None) == given.lower().endswith("ssl")
    assert (settings.sasl is not None) == given.lower().startswith("sasl")


def test_unknown_protocol_is_refused_in_librdkafkas_words() -> None:
    """And with what there is."""
    refused = refusal({"security.protocol": "tls"})
    assert (refused.key, refused.value) == ("security.protocol", "tls")
    assert 'Invalid value "tls" for configuration property "security.protocol"' in str(refused)
    assert "plaintext, ssl, sasl_plaintext, sasl_ssl" in str(refused)


def test_prefix_of_a_server_agrees_with_the_protocol() -> None:
    """Where it does not, librdkafka leaves out this broker and those after it, and only logs that."""
    assert parse_endpoints("SASL_SSL://a:1,sasl_ssl://b:2,c:3", SecurityProtocol.SASL_SSL) == (
        ("a", 1),
        ("b", 2),
        ("c", 3),
    )
    refused = refusal({"bootstrap.servers": "a:1,SASL_SSL://b:2"})
    assert (refused.key, refused.value) == ("bootstrap.servers", "a:1,SASL_SSL://b:2")
    assert "asks for SASL_SSL, and security.protocol is plaintext" in str(refused)
    assert "asks for PLAINTEXT, and security.protocol is ssl" in str(
        refusal(SSL, {"bootstrap.servers": "PLAINTEXT://a"})
    )
    assert "asks for TLS" in str(refusal(SSL, {"bootstrap.servers": "TLS://a"}))


def test_guardian_needs_no_tokens() -> None:
    """It speaks TLS and has passwords; a token's end may come before the member's, and its source ends with it."""
    wanted = {"crash.guardian.enable": "true"}
    for keys in (SSL, PLAIN, {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "security.protocol": "sasl_ssl"}):
        assert config(keys, wanted).connection_settings().crash_guardian
    tokens = {**BEARER, "oauth_cb": lambda _: ("token", 1_000_000.0)}
    refused = refusal(tokens, wanted)
    assert (refused.key, refused.value) == ("crash.guardian.enable", "true")
    assert "nobody is left whose oauth_cb could fetch another; remove the key" in str(refused)
    config(tokens, {"crash.guardian.enable": "false"})
    # The mechanism of a protocol that asks for none is nobody's.
    config({"security.protocol": "ssl", "sasl.mechanism": "OAUTHBEARER"}, wanted)


# ---- TLS ------------------------------------------------------------------------------------------------------------


def test_tls_without_keys_trusts_what_the_system_does() -> None:
    """Verification and the check of the host are on, as in librdkafka."""
    assert tls() == TlsSettings()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"ssl.ca.location": "/ca"}, TlsSettings(ca_location="/ca")),
        ({"ssl.ca.location": Path("/ca")}, TlsSettings(ca_location="/ca")),
        ({"ssl.ca.location": "probe"}, TlsSettings()),
        ({"ssl.ca.pem": "PEM"}, TlsSettings(ca_pem="PEM")),
        ({"ssl.ca.location": "/ca", "ssl.ca.pem": "PEM"}, TlsSettings(ca_location="/ca", ca_pem="PEM")),
        ({"ssl.ca.location": "probe", "ssl.ca.pem": "PEM"}, TlsSettings(ca_pem="PEM")),
        ({"ssl.crl.location": "/crl"}, TlsSettings(crl_location="/crl")),
        (CLIENT_CERTIFICATE, TlsSettings(certificate_location="/cert.pem", key_location="/key.pem")),
        (
            {"ssl.certificate.pem": "CERT", "ssl.key.pem": "KEY", "ssl.key.password": HUNTER},
            TlsSettings(certificate_pem="CERT", key_pem="KEY", key_password=HUNTER),
        ),
        (
            {"ssl.certificate.location": "/cert.pem", "ssl.key.pem": "KEY"},
            TlsSettings(certificate_location="/cert.pem", key_pem="KEY"),
        ),
        ({"ssl.cipher.suites": "HIGH"}, TlsSettings(cipher_suites="HIGH")),
        ({"enable.ssl.certificate.verification": "True"}, TlsSettings()),
        ({"enable.ssl.certificate.verification": False}, TlsSettings(verifies=False, checks_hostname=False)),
        ({"ssl.endpoint.identification.algorithm": "NONE"}, TlsSettings(checks_hostname=False)),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, TlsSettings()),
    ],
)
def test_keys_of_tls_end_in_their_fields(keys: Keys, expected: TlsSettings) -> None:
    """A certificate that nobody verifies is not compared with the host either."""
    assert tls(keys) == expected


def test_text_is_read_as_librdkafka_reads_it() -> None:
    """Blanks on the left are not part of a value, and empty text is no value."""
    assert tls({"ssl.ca.location": " \t/ca ", "ssl.crl.location": "", "ssl.keystore.location": ""}) == TlsSettings(
        ca_location="/ca "
    )
    assert sasl(PLAIN, {"sasl.username": " me", "sasl.password": " hunter2"}) == SaslSettings(
        mechanism=SaslMechanism.PLAIN, username="me", password=HUNTER
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ssl.keystore.location", "/store.p12", "openssl pkcs12"),
        ("ssl.keystore.password", "hunter2", "ssl.certificate.location and ssl.key.location"),
        ("ssl.curves.list", "P-256", "remove the key"),
        ("ssl.sigalgs.list", "RSA+SHA256", "remove the key"),
        ("ssl.providers", "default", "ssl.key.location"),
        ("ssl.engine.location", "/engine.so", "ssl.key.location"),
        ("ssl.engine.id", "dynamic", "ssl.key.location"),
        ("ssl.ca.certificate.stores", "Root", "ssl.ca.location"),
        ("ssl.truststore.location", "/store.jks", "Java TrustStores are not supported, use `ssl.ca.location`"),
        ("ssl.of.tomorrow", "x", 'No such configuration property: "ssl.of.tomorrow"'),
        ("enable.ssl.of.tomorrow", "x", 'No such configuration property: "enable.ssl.of.tomorrow"'),
        ("ssl.key.location", "/key.pem", "give ssl.certificate.location"),
        ("ssl.key.pem", "hunter2", "give ssl.certificate.location"),
        ("ssl.certificate.location", "/cert.pem", "give ssl.key.location"),
        ("ssl.certificate.pem", "CERT", "give ssl.key.location"),
        ("enable.ssl.certificate.verification", "maybe", "Expected bool value for"),
        ("ssl.endpoint.identification.algorithm", "ldap", "https, none"),
        ("ssl.endpoint.identification.algorithm", "", "cannot be set to empty value"),
    ],
)
def test_what_tls_cannot_have_is_refused(key: str, value: str, words: str) -> None:
    """Key, value, remedy."""
    refused = refusal(SSL, {key: value})
    assert (refused.key, refused.value) == (key, "***" if value == "hunter2" else value)
    assert words in refused.remedy


@pytest.mark.parametrize("kind", ["certificate", "key"])
def test_certificate_or_key_given_twice_is_refused(kind: str) -> None:
    """OpenSSL would go on with a mixture of them."""
    refused = refusal(SSL, CLIENT_CERTIFICATE, {f"ssl.{kind}.pem": "PEM"})
    assert refused.key == f"ssl.{kind}.pem"
    assert f"ssl.{kind}.location is given, too" in str(refused)


# ---- SASL -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_account_ends_in_its_fields(key: str, mechanism: str) -> None:
    """Both names of the key are the same key."""
    assert sasl(SASL, ACCOUNT, {key: mechanism}) == SaslSettings(
        mechanism=SaslMechanism(mechanism), username="me", password=HUNTER
    )


def test_later_one_of_both_names_wins() -> None:
    """As in librdkafka, which is told one key after the other."""
    settings = sasl(SASL, ACCOUNT, {"sasl.mechanisms": "GSSAPI", "sasl.mechanism": "PLAIN"})
    assert settings is not None
    assert settings.mechanism is SaslMechanism.PLAIN
    assert refusal(SASL, ACCOUNT, {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"}).key == "sasl.mechanisms"


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({}, "sasl.mechanism", "GSSAPI"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({"sasl.kerberos.keytab": "/keytab"}, "sasl.kerberos.keytab", "SCRAM-SHA-512"),
        ({"sasl.mechanism": "plain"}, "sasl.mechanism", "Unsupported SASL mechanism: plain"),
        ({"sasl.mechanism": "SCRAM-SHA-1"}, "sasl.mechanism", "SCRAM-SHA-256"),
        ({"sasl.mechanisms": "PLAIN,GSSAPI"}, "sasl.mechanisms", "Invalid value for configuration property"),
        ({"sasl.mechanism": ""}, "sasl.mechanism", "Invalid value for configuration property"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.username": "me"},
            "sasl.password",
            "sasl.username and sasl.password must be",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.password": "x"}, "sasl.username", "sasl.username and sasl.password must be"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "sasl.username", "sasl.username and sasl.password must be set"),
        ({**PLAIN, "sasl.of.tomorrow": "x"}, "sasl.of.tomorrow", "No such configuration property"),
        ({**PLAIN, "sasl.jaas.config": "x"}, "sasl.jaas.config", "give sasl.mechanism, sasl.username"),
        (BEARER, "oauth_cb", "give an oauth_cb"),
        ({**BEARER, "sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.method", "give an oauth_cb"),
        ({**BEARER, "oauth_cb": print, "sasl.oauthbearer.method": "OIDC"}, "sasl.oauthbearer.method", "oauth_cb"),
        ({**BEARER, "oauth_cb": print, "sasl.oauthbearer.scope": "all"}, "sasl.oauthbearer.scope", "oauth_cb"),
        ({**BEARER, "oauth_cb": print, "https.ca.location": "/ca"}, "https.ca.location", "oauth_cb"),
        (
            {**BEARER, "enable.sasl.oauthbearer.unsecure.jwt": "true"},
            "enable.sasl.oauthbearer.unsecure.jwt",
            "give an oauth_cb",
        ),
        ({**BEARER, "oauth_cb": "hunter2"}, "oauth_cb", "expected oauth_cb property as a callable function"),
        ({**PLAIN, "oauth_cb": print}, "oauth_cb", "sasl.mechanism is PLAIN"),
        ({"security.protocol": "ssl", "oauth_cb": print}, "oauth_cb", "security.protocol is ssl"),
    ],
)
def test_what_sasl_cannot_have_is_refused(keys: Keys, key: str, words: str) -> None:
    """Key, value, remedy; the mechanisms that can be had are named."""
    refused = refusal(SASL, keys)
    assert refused.key == key
    assert words.lower() in refused.remedy.lower()
    assert "hunter2" not in str(refused)
    assert refused.value in {keys.get(key), "***"}


def test_oauth_cb_does_not_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tries must hear of it."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_OAUTH_CB", "package.module:hunter2")
    refused = refusal(BEARER)
    assert "give oauth_cb in the program" in str(refused)
    assert "hunter2" not in str(refused)


def test_environment_gives_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords come from there most of the time."""
    for key, value in {**PLAIN, "security.protocol": "SASL_SSL", "ssl.ca.location": "/ca"}.items():
        monkeypatch.setenv("CONSUMER_MEMBERSHIP_" + key.replace(".", "_").upper(), str(value))
    settings = config().connection_settings()
    assert settings.tls == TlsSettings(ca_location="/ca")
    assert settings.sasl == SaslSettings(mechanism=SaslMechanism.PLAIN, username="me", password=HUNTER)


def test_program_wins_over_the_environment_under_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanism has two names."""
    for name, other in (("sasl.mechanism", "sasl.mechanisms"), ("sasl.mechanisms", "sasl.mechanism")):
        monkeypatch.setenv("CONSUMER_MEMBERSHIP_" + name.replace(".", "_").upper(), "SCRAM-SHA-256")
        made = config(SASL, ACCOUNT, {other: "PLAIN"})
        assert made.connection_settings().sasl == SaslSettings(
            mechanism=SaslMechanism.PLAIN, username="me", password=HUNTER
        )
        confluent_kafka.Consumer(made.fetcher_config()).close()
        monkeypatch.undo()


# ---- as librdkafka --------------------------------------------------------------------------------------------------


def test_other_clients_of_the_cluster_get_what_reaches_it() -> None:
    """An admin client that is made beside the consumer, and nothing that it would refuse."""
    keys = {
        "bootstrap.servers": "a:1",
        "client.id": "me",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "enable.ssl.certificate.verification": "true",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "socket.timeout.ms": 5000,
    }
    made = ConsumerConfig.from_mapping({**keys, "group.id": "g", "auto.offset.reset": "earliest"})
    assert made.cluster_config() == keys


def test_fetcher_gets_all_of_it_as_it_was_given() -> None:
    """The same keys for both kinds of connections."""
    keys = {**PLAIN, **CLIENT_CERTIFICATE, "security.protocol": "Sasl_SSL", "ssl.key.password": " x"}
    given = config(keys).fetcher_config()
    assert {key: given[key] for key in keys} == keys


CONSTRUCTED: dict[str, Keys] = {
    "tls keys without tls": {
        "ssl.ca.location": "/nowhere",
        "ssl.ca.pem": "no certificate",
        "ssl.key.location": "/nowhere",
        "ssl.keystore.location": "/nowhere",
        "ssl.keystore.password": "x",
        "ssl.providers": "default",
        "ssl.curves.list": "P-256",
        "enable.ssl.certificate.verification": False,
    },
    "tls keys under sasl_plaintext": {**PLAIN, "ssl.ca.location": "/nowhere", "ssl.curves.list": "P-256"},
    "sasl keys without sasl": {**PLAIN, "security.protocol": "plaintext"},
    "unknown mechanism without sasl": {"sasl.mechanism": "bogus"},
    "other mechanisms' keys": {
        **PLAIN,
        "sasl.kerberos.service.name": "kafka",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.scope": "x",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "https.ca.pem": "x",
    },
    "sasl keys under ssl": {**PLAIN, "security.protocol": "SSL"},
    "system's certificates": {**SSL, "ssl.ca.location": "probe"},
    "no verification": {**SSL, "enable.ssl.certificate.verification": "f"},
    "empty paths": {**SSL, "ssl.ca.location": "", "ssl.crl.location": "", "ssl.key.location": ""},
    "mechanism after a blank": {**PLAIN, "sasl.mechanism": " PLAIN"},
    "matching prefix": {**SSL, "bootstrap.servers": "ssl://127.0.0.1:1"},
    "token": {**BEARER, "oauth_cb": lambda _: ("t", 4e9)},
    "token by the default method": {
        **BEARER,
        "oauth_cb": lambda _: ("t", 4e9, "me", {"a": "b"}),
        "sasl.oauthbearer.method": "DEFAULT",
        "sasl.oauthbearer.config": "x",
        "enable.sasl.oauthbearer.unsecure.jwt": False,
        "sasl.kerberos.service.name": "kafka",
        "sasl.username": "me",
    },
}

REFUSED: dict[str, Keys] = {
    "protocol": {"security.protocol": "x"},
    "no protocol": {"security.protocol": ""},
    "verification": {"enable.ssl.certificate.verification": "maybe"},
    "no verification": {"enable.ssl.certificate.verification": ""},
    "identification": {"ssl.endpoint.identification.algorithm": "x"},
    "no identification": {"ssl.endpoint.identification.algorithm": ""},
    "two mechanisms": {"sasl.mechanisms": "PLAIN,GSSAPI"},
    "trailing blank": {"sasl.mechanisms": "PLAIN "},
    "mechanism in small letters": {**PLAIN, "sasl.mechanism": "plain"},
    "no username": {**SASL, "sasl.mechanism": "PLAIN", "sasl.password": "x"},
    "no password": {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "x"},
    "empty account": {**PLAIN, "sasl.username": "", "sasl.password": ""},
    "truststore": {"ssl.truststore.location": "/x"},
    "jaas": {"sasl.jaas.config": "x"},
    "unknown key of tls": {**SSL, "ssl.foo": 1},
    "unknown key of sasl": {**PLAIN, "sasl.foo": 1},
}


#: confluent-kafka's constructor sleeps for a second before it looks whether the callback was called.
SLOW = [pytest.param(name, marks=pytest.mark.slow if "oauth_cb" in keys else ()) for name, keys in CONSTRUCTED.items()]


@pytest.mark.parametrize("name", SLOW)
def test_what_confluent_kafka_constructs_is_taken(name: str) -> None:
    """One configuration serves several listeners: what a protocol does not use is not judged."""
    keys = {**LEAST, "log_level": 0, **CONSTRUCTED[name]}
    confluent_kafka.Consumer(keys).close()
    ours = ConsumerConfig.from_mapping(keys)
    ours.connection_settings()
    confluent_kafka.Consumer(ours.fetcher_config()).close()


@pytest.mark.parametrize("name", REFUSED)
def test_what_confluent_kafka_refuses_is_refused_in_its_words(name: str) -> None:
    """Ours may say more."""
    keys = {**LEAST, "log_level": 0, **REFUSED[name]}
    with pytest.raises(KafkaException) as theirs:
        confluent_kafka.Consumer(keys)
    with pytest.raises(ConfigurationError) as ours:
        ConsumerConfig.from_mapping(keys)
    assert theirs.value.args[0].str() in str(ours.value)


# ---- secrets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret"],
)
def test_secrets_are_in_no_representation(key: str) -> None:
    """Neither of the configuration nor of what is cut out of it."""
    whole = {**ACCOUNT, "sasl.mechanism": "SCRAM-SHA-256", "security.protocol": "sasl_ssl"}
    for keys in ({}, {**whole, **CLIENT_CERTIFICATE}, {**whole, "ssl.certificate.location": "/c", "ssl.key.pem": "k"}):
        if key == "ssl.key.pem" and "ssl.key.location" in keys:
            continue
        made = config(keys, {key: "hunter2"})
        settings = made.connection_settings()
        assert "hunter2" not in f"{made!r} {made} {settings!r} {settings.tls!r} {settings.sasl!r}"


def test_callback_and_token_are_in_no_representation() -> None:
    """A callback may hold secrets, too."""
    made = config(BEARER, {"oauth_cb": Callback("hunter2"), "sasl.oauthbearer.config": "hunter2"})
    token = source(made).token()
    assert token.value == "hunter2"
    settings = made.connection_settings()
    assert "hunter2" not in f"{made!r} {settings!r} {settings.sasl!r} {token!r} {source(made)!r}"


def test_missing_password_is_shown_as_missing() -> None:
    """Stars would say that there is one."""
    assert refusal(SASL, {"sasl.mechanism": "PLAIN", "sasl.username": "me"}).value is None
