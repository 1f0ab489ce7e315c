"""TLS and SASL keys: the membership treats a key as librdkafka does, or rejects it."""

from __future__ import annotations

from dataclasses import replace
from importlib.machinery import ModuleSpec
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
    tls_and_sasl,
)
from consumer_membership.config.settings import KerberosSettings
from consumer_membership.config.values import parse_endpoints
from consumer_membership.errors import ConfigurationError
from consumer_membership.installation import install_command
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
    """Return the connections' TLS settings for these keys under security.protocol=ssl."""
    return config(SSL, *keys).connection_settings().tls


def sasl(*keys: Keys) -> SaslSettings | None:
    """Return the connections' SASL settings for these keys."""
    return config(*keys).connection_settings().sasl


# ---- security.protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["plaintext", "PLAINTEXT", "ssl", "Ssl", "sasl_plaintext", "SASL_SSL"])
def test_security_protocol_selects_tls_and_sasl_settings(given: str) -> None:
    """TLS protocols have TLS settings and SASL protocols have SASL settings, in upper or lower case."""
    settings = config(PLAIN, {"security.protocol": given}).connection_settings()
    assert (settings.tls is not None) == given.lower().endswith("ssl")
    assert (settings.sasl is not None) == given.lower().startswith("sasl")


def test_unknown_security_protocol_raises_librdkafkas_error() -> None:
    """The error has librdkafka's message and lists the valid protocols."""
    refused = refusal({"security.protocol": "tls"})
    assert (refused.key, refused.value) == ("security.protocol", "tls")
    assert 'Invalid value "tls" for configuration property "security.protocol"' in str(refused)
    assert "plaintext, ssl, sasl_plaintext, sasl_ssl" in str(refused)


def test_server_prefix_that_contradicts_security_protocol_is_rejected() -> None:
    """A conflicting prefix raises an error; librdkafka drops the broker and those after it, and only logs."""
    assert parse_endpoints("SASL_SSL://a:1,sasl_ssl://b:2,c:3", SecurityProtocol.SASL_SSL) == (
        ("a", 1),
        ("b", 2),
        ("c", 3),
    )
    refused = refusal({"bootstrap.servers": "a:1,SASL_SSL://b:2"})
    assert (refused.key, refused.value) == ("bootstrap.servers", "a:1,SASL_SSL://b:2")
    assert "requires SASL_SSL, but security.protocol is plaintext" in str(refused)
    assert "requires PLAINTEXT, but security.protocol is ssl" in str(
        refusal(SSL, {"bootstrap.servers": "PLAINTEXT://a"})
    )
    assert "requires TLS" in str(refusal(SSL, {"bootstrap.servers": "TLS://a"}))


def test_crash_guardian_rejects_oauthbearer() -> None:
    """The guardian supports TLS and passwords; it cannot renew a token, whose source ends with the member."""
    wanted = {"crash.guardian.enable": "true"}
    for keys in (SSL, PLAIN, {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "security.protocol": "sasl_ssl"}):
        assert config(keys, wanted).connection_settings().crash_guardian
    tokens = {**BEARER, "oauth_cb": lambda _: ("token", 1_000_000.0)}
    refused = refusal(tokens, wanted)
    assert (refused.key, refused.value) == ("crash.guardian.enable", "true")
    assert "no process fetches a new token; remove the key" in str(refused)
    config(tokens, {"crash.guardian.enable": "false"})
    # A protocol without SASL ignores the mechanism.
    config({"security.protocol": "ssl", "sasl.mechanism": "OAUTHBEARER"}, wanted)


# ---- TLS ------------------------------------------------------------------------------------------------------------


def test_tls_without_keys_uses_system_trust_store() -> None:
    """Certificate verification and the host name check are enabled by default, as in librdkafka."""
    assert tls() == TlsSettings()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"ssl.ca.location": "/ca"}, TlsSettings(ca_location="/ca")),
        ({"ssl.ca.location": Path("/ca")}, TlsSettings(ca_location="/ca")),
        ({"ssl.ca.location": "probe"}, TlsSettings(ca_location="probe")),
        ({"ssl.ca.pem": "PEM"}, TlsSettings(ca_pem="PEM")),
        ({"ssl.ca.location": "/ca", "ssl.ca.pem": "PEM"}, TlsSettings(ca_location="/ca", ca_pem="PEM")),
        ({"ssl.ca.location": "probe", "ssl.ca.pem": "PEM"}, TlsSettings(ca_location="probe", ca_pem="PEM")),
        (
            {"ssl.keystore.location": "/store.p12", "ssl.keystore.password": HUNTER, "ssl.key.password": HUNTER},
            TlsSettings(keystore_location="/store.p12", keystore_password=HUNTER, key_password=HUNTER),
        ),
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
def test_tls_keys_set_their_fields(keys: Keys, expected: TlsSettings) -> None:
    """Each TLS key sets its field; without verification, the host name is not checked either."""
    assert tls(keys) == expected


def test_tls_and_sasl_text_is_parsed_as_in_librdkafka() -> None:
    """Leading blanks are stripped, and an empty text is not a value."""
    assert tls({"ssl.ca.location": " \t/ca ", "ssl.crl.location": "", "ssl.keystore.location": ""}) == TlsSettings(
        ca_location="/ca "
    )
    assert sasl(PLAIN, {"sasl.username": " me", "sasl.password": " hunter2"}) == SaslSettings(
        mechanism=SaslMechanism.PLAIN, username="me", password=HUNTER
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ssl.curves.list", "P-256", "remove the key"),
        ("ssl.sigalgs.list", "RSA+SHA256", "remove the key"),
        ("ssl.providers", "default", "ssl.key.location"),
        ("ssl.engine.location", "/engine.so", "ssl.key.location"),
        ("ssl.engine.id", "dynamic", "ssl.key.location"),
        ("ssl.ca.certificate.stores", "Root", "ssl.ca.location"),
        ("ssl.truststore.location", "/store.jks", "Java TrustStores are not supported, use `ssl.ca.location`"),
        ("ssl.of.tomorrow", "x", 'No such configuration property: "ssl.of.tomorrow"'),
        ("enable.ssl.of.tomorrow", "x", 'No such configuration property: "enable.ssl.of.tomorrow"'),
        ("ssl.key.location", "/key.pem", "set ssl.certificate.location"),
        ("ssl.key.pem", "hunter2", "set ssl.certificate.location"),
        ("ssl.certificate.location", "/cert.pem", "set ssl.key.location"),
        ("ssl.certificate.pem", "CERT", "set ssl.key.location"),
        ("enable.ssl.certificate.verification", "maybe", "Expected bool value for"),
        ("ssl.endpoint.identification.algorithm", "ldap", "https, none"),
        ("ssl.endpoint.identification.algorithm", "", "cannot be set to empty value"),
    ],
)
def test_invalid_tls_keys_are_rejected(key: str, value: str, message: str) -> None:
    """An invalid TLS key raises an error that names key, value and fix."""
    refused = refusal(SSL, {key: value})
    assert (refused.key, refused.value) == (key, "***" if value == "hunter2" else value)
    assert message in refused.remedy


@pytest.mark.parametrize("kind", ["certificate", "key"])
def test_certificate_or_key_given_as_file_and_pem_is_rejected(kind: str) -> None:
    """OpenSSL would continue with a mixture of both, so the configuration raises an error."""
    refused = refusal(SSL, CLIENT_CERTIFICATE, {f"ssl.{kind}.pem": "PEM"})
    assert refused.key == f"ssl.{kind}.pem"
    assert f"ssl.{kind}.location is also set" in str(refused)


@pytest.mark.parametrize("key", ["ssl.certificate.location", "ssl.key.pem"])
def test_keystore_with_certificate_or_key_is_rejected(key: str) -> None:
    """Librdkafka would load both, one over the other."""
    refused = refusal(SSL, {"ssl.keystore.location": "/store.p12", key: "x"})
    assert refused.key == key
    assert "ssl.keystore.location is also set" in str(refused)


# ---- SASL -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_username_and_password_set_their_fields(key: str, mechanism: str) -> None:
    """sasl.mechanism and sasl.mechanisms are two names of the same key."""
    assert sasl(SASL, ACCOUNT, {key: mechanism}) == SaslSettings(
        mechanism=SaslMechanism(mechanism), username="me", password=HUNTER
    )


def test_later_sasl_mechanism_key_wins() -> None:
    """The later of the two keys wins, as in librdkafka, which receives the keys in order."""
    settings = sasl(SASL, ACCOUNT, {"sasl.mechanisms": "GSSAPI", "sasl.mechanism": "PLAIN"})
    assert settings is not None
    assert settings.mechanism is SaslMechanism.PLAIN
    assert refusal(SASL, {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "x"}).key == "sasl.mechanisms"


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
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
        ({**PLAIN, "sasl.jaas.config": "x"}, "sasl.jaas.config", "set sasl.mechanism, sasl.username"),
        (BEARER, "oauth_cb", "set an oauth_cb"),
        ({**BEARER, "sasl.oauthbearer.scope": "all"}, "oauth_cb", "or sasl.oauthbearer.method=oidc"),
        ({**BEARER, "oauth_cb": print, "sasl.oauthbearer.of.tomorrow": "x"}, "sasl.oauthbearer.of.tomorrow", "No such"),
        (
            {**BEARER, "enable.sasl.oauthbearer.unsecure.jwt": "true"},
            "enable.sasl.oauthbearer.unsecure.jwt",
            "set an oauth_cb",
        ),
        (
            {**BEARER, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.metadata.authentication.type": "aws_iam"},
            "sasl.oauthbearer.metadata.authentication.type",
            "set an oauth_cb that returns AWS's token (examples/msk_iam.py",
        ),
        ({**BEARER, "oauth_cb": "hunter2"}, "oauth_cb", "expected oauth_cb property as a callable function"),
        ({**PLAIN, "oauth_cb": print}, "oauth_cb", "sasl.mechanism=PLAIN"),
        ({"security.protocol": "ssl", "oauth_cb": print}, "oauth_cb", "security.protocol=ssl"),
    ],
)
def test_invalid_sasl_keys_are_rejected(keys: Keys, key: str, message: str) -> None:
    """The error names key, value, fix and the supported mechanisms."""
    refused = refusal(SASL, keys)
    assert refused.key == key
    assert message.lower() in refused.remedy.lower()
    assert "hunter2" not in str(refused)
    assert refused.value in {keys.get(key), "***"}


KERBEROS: Keys = {**SASL, "sasl.mechanism": "GSSAPI"}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # librdkafka's default mechanism.
        (SASL, KerberosSettings(service="kafka")),
        (KERBEROS, KerberosSettings(service="kafka")),
        (
            {**KERBEROS, "sasl.kerberos.keytab": "/k", "sasl.kerberos.service.name": "queue"},
            KerberosSettings(service="queue", keytab="/k", principal="kafkaclient"),
        ),
        (
            {**KERBEROS, "sasl.kerberos.principal": "me@R", "sasl.kerberos.kinit.cmd": "kinit"},
            KerberosSettings(service="kafka", principal="me@R"),
        ),
    ],
)
def test_kerberos_keys_set_their_fields(
    monkeypatch: pytest.MonkeyPatch, keys: Keys, expected: KerberosSettings
) -> None:
    """With a keytab the principal has librdkafka's default; without one the ticket cache has a principal."""
    monkeypatch.setattr(tls_and_sasl, "find_spec", lambda _: ModuleSpec("gssapi", None, origin="/lib/gssapi/a.py"))
    assert sasl(keys) == SaslSettings(mechanism=SaslMechanism.GSSAPI, kerberos=replace(expected, library_folder="/lib"))


def test_kerberos_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs the library, and the other mechanisms."""
    monkeypatch.setattr(tls_and_sasl, "find_spec", lambda _: None)
    refused = refusal(KERBEROS)
    assert refused.key == "sasl.mechanism"
    assert install_command("kerberos") in refused.remedy
    assert "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER" in refused.remedy


def test_oauth_cb_in_environment_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oauth_cb in the environment raises an error; the program has to set it."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_OAUTH_CB", "package.module:hunter2")
    refused = refusal(BEARER)
    assert "set oauth_cb in the program" in str(refused)
    assert "hunter2" not in str(refused)


def test_environment_provides_tls_and_sasl_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS and SASL keys, such as passwords, may come from the environment."""
    for key, value in {**PLAIN, "security.protocol": "SASL_SSL", "ssl.ca.location": "/ca"}.items():
        monkeypatch.setenv("CONSUMER_MEMBERSHIP_" + key.replace(".", "_").upper(), str(value))
    settings = config().connection_settings()
    assert settings.tls == TlsSettings(ca_location="/ca")
    assert settings.sasl == SaslSettings(mechanism=SaslMechanism.PLAIN, username="me", password=HUNTER)


def test_program_sasl_mechanism_overrides_environment_under_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's value wins under both names of the SASL mechanism key."""
    for name, other in (("sasl.mechanism", "sasl.mechanisms"), ("sasl.mechanisms", "sasl.mechanism")):
        monkeypatch.setenv("CONSUMER_MEMBERSHIP_" + name.replace(".", "_").upper(), "SCRAM-SHA-256")
        made = config(SASL, ACCOUNT, {other: "PLAIN"})
        assert made.connection_settings().sasl == SaslSettings(
            mechanism=SaslMechanism.PLAIN, username="me", password=HUNTER
        )
        confluent_kafka.Consumer(made.fetcher_config()).close()
        monkeypatch.undo()


# ---- as librdkafka --------------------------------------------------------------------------------------------------


def test_cluster_config_has_only_connection_keys() -> None:
    """Another client of the cluster, such as an admin client, receives only keys that it accepts."""
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


def test_fetcher_config_keeps_tls_and_sasl_keys_unchanged() -> None:
    """The fetcher receives the TLS and SASL keys unchanged, so both kinds of connections use the same keys."""
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
    "token of a callback beside the keys of oidc": {
        **BEARER,
        "oauth_cb": lambda _: ("t", 4e9),
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "x",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/",
    },
    "keys of oidc without its method": {
        **BEARER,
        "oauth_cb": lambda _: ("t", 4e9),
        "sasl.oauthbearer.scope": "x",
        "https.ca.pem": "x",
    },
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


#: confluent-kafka's constructor sleeps for a second before it checks whether the callback was called.
SLOW = [pytest.param(name, marks=pytest.mark.slow if "oauth_cb" in keys else ()) for name, keys in CONSTRUCTED.items()]


@pytest.mark.parametrize("name", SLOW)
def test_config_that_confluent_kafka_accepts_is_accepted(name: str) -> None:
    """Keys that the chosen protocol does not use are not checked, because one dict may serve many listeners."""
    keys = {**LEAST, "log_level": 0, **CONSTRUCTED[name]}
    confluent_kafka.Consumer(keys).close()
    ours = ConsumerConfig.from_mapping(keys)
    ours.connection_settings()
    confluent_kafka.Consumer(ours.fetcher_config()).close()


@pytest.mark.parametrize("name", REFUSED)
def test_config_that_confluent_kafka_rejects_raises_its_message(name: str) -> None:
    """This package's error contains confluent-kafka's message and may add to it."""
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
def test_config_and_settings_repr_hide_secrets(key: str) -> None:
    """Neither the repr of the configuration nor that of its settings contains a secret."""
    whole = {**ACCOUNT, "sasl.mechanism": "SCRAM-SHA-256", "security.protocol": "sasl_ssl"}
    for keys in ({}, {**whole, **CLIENT_CERTIFICATE}, {**whole, "ssl.certificate.location": "/c", "ssl.key.pem": "k"}):
        if key == "ssl.key.pem" and "ssl.key.location" in keys:
            continue
        made = config(keys, {key: "hunter2"})
        settings = made.connection_settings()
        assert "hunter2" not in f"{made!r} {made} {settings!r} {settings.tls!r} {settings.sasl!r}"


def test_config_and_settings_repr_hide_callback_and_token() -> None:
    """A callback may hold secrets, so its repr is hidden as well."""
    made = config(BEARER, {"oauth_cb": Callback("hunter2"), "sasl.oauthbearer.config": "hunter2"})
    token = source(made).token()
    assert token.value == "hunter2"
    settings = made.connection_settings()
    assert "hunter2" not in f"{made!r} {settings!r} {settings.sasl!r} {token!r} {source(made)!r}"


def test_error_shows_missing_password_as_none() -> None:
    """The error shows None for a missing password, because stars would suggest that it is set."""
    assert refusal(SASL, {"sasl.mechanism": "PLAIN", "sasl.username": "me"}).value is None
