"""Secured listeners: requests, the resulting settings, and confluent_kafka clients on real listeners."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from consumer_membership.devbroker import Backend, BackendMissingError, Broker, BrokerUnavailableError, Security, start
from consumer_membership.devbroker.backends import first_of
from consumer_membership.devbroker.container import start_container
from consumer_membership.devbroker.listeners import MUTUAL, SASL, SASL_TLS, SECURED_LISTENERS, TLS, enabled_mechanisms
from consumer_membership.devbroker.request import BrokerRequest
from tests.support.kafka import create_topic, produce, unique
from tests.support.secured import USERS, Materials, materials, unsecured_token
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.brokers import RunBrokers

    Settings = dict[str, object]

MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}


SECURITY = Security(
    key_pem="the key", certificate_chain_pem="the chain", client_authority_pem="the authority", users={"a": "the word"}
)

# The tests cause errors, each of which librdkafka would log to stderr.
_librdkafka = logging.getLogger(f"{__name__}.librdkafka")
_librdkafka.addHandler(logging.NullHandler())
_librdkafka.propagate = False


# Requests.


def test_security_repr_hides_secrets() -> None:
    """The texts of these objects, which failing tests and errors print, contain no secrets."""
    request = BrokerRequest(security=SECURITY)
    shown = f"{SECURITY!r} {request!r} {request}"
    assert not any(secret in shown for secret in ("the key", "the word"))
    assert str(request) == f"Kafka {NEWEST}, 1 node, secured listeners"


def test_security_objects_compare_by_value() -> None:
    """Objects with equal settings are equal, so that the pool returns one broker; objects with other users are not."""
    assert {SECURITY: "found"}.get(replace(SECURITY)) == "found"
    assert replace(SECURITY, users={"a": "another word"}) != SECURITY


def test_security_copies_users() -> None:
    """Later changes of the caller's users have no effect, because the pool looks up brokers by their users."""
    users = {"a": "the word"}
    security = replace(SECURITY, users=users)
    users["b"] = "another"
    assert security.users == {"a": "the word"}


@pytest.mark.parametrize(("users", "named"), [({"": "secret"}, "no name"), ({"a": ""}, "'a' has no password")])
def test_security_with_user_without_name_or_password_raises(users: dict[str, str], named: str) -> None:
    """A user without a name or a password raises an error; SCRAM allows neither, but Kafka would report it late."""
    with pytest.raises(BrokerUnavailableError, match=named):
        replace(SECURITY, users=users)


@pytest.mark.parametrize(
    ("extra", "enabled"),
    [
        ({}, MECHANISMS),
        ({"sasl.enabled.mechanisms": "PLAIN"}, {"PLAIN"}),
        ({"listener.name.sasl_tls.sasl.enabled.mechanisms": "PLAIN"}, MECHANISMS),
        ({"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl.sasl.enabled.mechanisms": "A, B"}, {"A", "B"}),
    ],
)
def test_enabled_mechanisms_prefers_property_of_listener(extra: dict[str, str], enabled: set[str]) -> None:
    """In Kafka, a listener's own property overrides the general one; other listeners' properties do not apply."""
    assert enabled_mechanisms(SASL, extra) == enabled


def test_start_rejects_existing_broker_for_secured_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing broker is rejected for secured listeners, because its listeners cannot be changed."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with pytest.raises(BrokerUnavailableError, match=r"secured listeners.*: .* cannot be set") as refused:
        start(security=SECURITY)
    assert not isinstance(refused.value, BackendMissingError)


def test_docker_way_rejects_secured_listeners_and_jvm_is_used() -> None:
    """For secured listeners, the Docker backend is unavailable, and the JVM backend is used."""
    with pytest.raises(BackendMissingError, match="require the JVM backend"):
        start(backend=Backend.DOCKER, security=SECURITY)

    def absent(_: BrokerRequest) -> Broker:
        raise BackendMissingError("not set")

    def by_jvm(request: BrokerRequest) -> Broker:
        return Broker(backend=Backend.JVM, version=request.kafka_version, bootstrap_servers="127.0.0.1:1")

    starters = {Backend.EXISTING: absent, Backend.DOCKER: start_container, Backend.JVM: by_jvm}
    assert first_of(starters, BrokerRequest(security=SECURITY)).backend is Backend.JVM


# Real brokers.


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    """Return certificates, users and other security material."""
    return materials(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def broker(request: pytest.FixtureRequest, broker_pool: RunBrokers, made: Materials) -> Broker:
    """Return a secured broker of the newest and of the oldest version."""
    return broker_pool.shared(request.param, backend=Backend.JVM, security=made.security)


@pytest.fixture
def topic(broker: Broker) -> str:
    """Return a topic with one record."""
    name = create_topic(broker.bootstrap_servers, unique("orders"))
    produce(broker.bootstrap_servers, name, 1)
    return name


def over_tls(made: Materials) -> Settings:
    """Return settings of a client that trusts the broker's authority."""
    return {"security.protocol": "SSL", "ssl.ca.location": made.ca_file}


def trusting_a_stranger(made: Materials) -> Settings:
    """Return settings of a client that trusts another authority."""
    return over_tls(made) | {"ssl.ca.location": made.foreign_ca_file}


def looking_at_revocations(made: Materials) -> Settings:
    """Return settings with a list that revokes the broker's certificate."""
    return over_tls(made) | {"ssl.crl.location": made.crl_file}


def with_a_clean_list(made: Materials) -> Settings:
    """Return settings with an empty revocation list."""
    return over_tls(made) | {"ssl.crl.location": made.clean_crl_file}


def with_certificate(made: Materials) -> Settings:
    """Return settings with a client certificate and an encrypted key."""
    return over_tls(made) | {
        "ssl.certificate.location": made.client_cert_file,
        "ssl.key.location": made.encrypted_key_file,
        "ssl.key.password": made.encrypted_key_password,
    }


def with_foreign_certificate(made: Materials) -> Settings:
    """Return settings with a client certificate that the broker does not trust."""
    return over_tls(made) | {
        "ssl.certificate.location": made.foreign_cert_file,
        "ssl.key.location": made.foreign_key_file,
    }


def as_user(mechanism: str, user: str, password: str | None = None) -> Callable[[Materials], Settings]:
    """Return settings of a client that logs in, with the user's password unless another one is given."""
    login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password or USERS[user]}
    return lambda _: {"security.protocol": "SASL_PLAINTEXT", **login}


def encrypted(plain: Callable[[Materials], Settings]) -> Callable[[Materials], Settings]:
    """Return these settings over TLS."""
    return lambda made: plain(made) | over_tls(made) | {"security.protocol": "SASL_SSL"}


def with_token(_: Materials, issued_ago_s: float = 0.0) -> Settings:
    """Return settings with a token that lives for an hour and has a SASL extension."""
    token = unsecured_token("carol", 3600, {"tenant": "blue"}, issued_at_s=time.time() - issued_ago_s)
    # librdkafka itself rejects an expired token, so it receives a later expiry.
    answer = (token.value, time.time() + PATIENCE_S, token.subject, dict(token.extensions))
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _config: answer}


def with_old_token(made: Materials) -> Settings:
    """Return settings with a token that expired an hour ago."""
    return with_token(made, issued_ago_s=7200)


def record_read(servers: str, topic: str, settings: Settings) -> bytes | None:
    """Return the record's value as a client with these settings reads it, or None."""
    with closing(consumer_of(servers, settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = consumer.consume(1, PATIENCE_S)
        return messages[0].value() if messages else None


def await_refusal(servers: str, settings: Settings, pattern: str) -> None:
    """Wait until a client with these settings receives an error whose name and message contain this pattern.

    On a busy machine, an attempt may first end with a timeout, which is also an error.
    """
    errors: list[str] = []

    def keep(error: KafkaError) -> None:
        errors.append(f"{error.name()}: {error.str()}")

    with closing(consumer_of(servers, settings | {"error_cb": keep})) as consumer:
        consumer.assign([TopicPartition("any", 0, 0)])
        wait_until(
            lambda: any(re.search(pattern, error) for error in errors),
            f"an error with {pattern!r}",
            between=lambda: consumer.poll(0.05),
            seen=lambda: errors,
        )


def consumer_of(servers: str, settings: Settings) -> Consumer:
    """Return a consumer that does not log to stderr."""
    return Consumer({"bootstrap.servers": servers, "group.id": unique("group"), **settings}, logger=_librdkafka)


SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ("listener", "settings"),
    [
        pytest.param(TLS, over_tls, id="tls"),
        pytest.param(TLS, with_a_clean_list, id="tls, nothing revoked"),
        pytest.param(MUTUAL, with_certificate, id="mutual"),
        pytest.param(SASL, as_user("PLAIN", "alice"), id="plain"),
        pytest.param(SASL, as_user("PLAIN", "bob"), id="plain, odd letters"),
        pytest.param(SASL, as_user(SCRAM_256, "alice"), id="scram-256"),
        pytest.param(SASL, as_user(SCRAM_512, "bob"), id="scram-512, odd letters"),
        pytest.param(SASL, with_token, id="token"),
        pytest.param(SASL_TLS, encrypted(as_user("PLAIN", "alice")), id="plain over tls"),
        pytest.param(SASL_TLS, encrypted(as_user(SCRAM_512, "alice")), id="scram-512 over tls"),
        pytest.param(SASL_TLS, encrypted(with_token), id="token over tls"),
    ],
)
def test_confluent_kafka_client_reads_over_secured_listener(
    broker: Broker, made: Materials, topic: str, listener: str, settings: Callable[[Materials], Settings]
) -> None:
    """A confluent_kafka client bootstraps on the listener and is redirected to the same listener."""
    assert record_read(broker.secured[listener], topic, settings(made)) == b"0"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ("listener", "settings", "pattern"),
    [
        pytest.param(TLS, trusting_a_stranger, "certificate verify failed", id="unknown authority"),
        pytest.param(TLS, looking_at_revocations, "certificate verify failed", id="revoked"),
        # The broker's alert, unless the system reports the closed connection first.
        pytest.param(MUTUAL, over_tls, "_SSL|_TRANSPORT", id="no certificate"),
        pytest.param(MUTUAL, with_foreign_certificate, "_SSL|_TRANSPORT", id="foreign certificate"),
        pytest.param(SASL, as_user("PLAIN", "alice", "wrong"), "_AUTHENTICATION", id="plain"),
        pytest.param(SASL, as_user(SCRAM_256, "alice", "wrong"), "_AUTHENTICATION", id="scram-256"),
        pytest.param(SASL, as_user(SCRAM_512, "bob", "wrong"), "_AUTHENTICATION", id="scram-512"),
        pytest.param(SASL, with_old_token, "_AUTHENTICATION.*invalid_token", id="token"),
        pytest.param(SASL_TLS, encrypted(as_user("PLAIN", "alice", "wrong")), "_AUTHENTICATION", id="plain over tls"),
        pytest.param(SASL_TLS, encrypted(with_old_token), "_AUTHENTICATION.*invalid_token", id="token over tls"),
    ],
)
def test_client_with_wrong_credentials_is_rejected(
    broker: Broker, made: Materials, listener: str, settings: Callable[[Materials], Settings], pattern: str
) -> None:
    """Both sides reject untrusted certificates; the broker rejects wrong passwords and expired tokens."""
    await_refusal(broker.secured[listener], settings(made), pattern)


@pytest.mark.integration
@pytest.mark.slow
def test_pool_shares_secured_broker_for_equal_security(
    broker: Broker, broker_pool: RunBrokers, made: Materials
) -> None:
    """All tests with equal certificates and users share one start."""
    assert broker_pool.shared(broker.version, backend=Backend.JVM, security=replace(made.security)) is broker


# A different cluster: two nodes, limited SASL sessions, fewer mechanisms, and certificates for another host.

ELSEWHERE = "elsewhere.test"
TUNED = {
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-256",
    "connections.max.reauth.ms": "60000",
    "listener.name.sasl.plain.connections.max.reauth.ms": "3000",
}


@pytest.fixture(scope="module")
def made_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    """Return certificates for another host than the broker's."""
    return materials(tmp_path_factory.mktemp("elsewhere"), hosts=[ELSEWHERE])


@pytest.fixture(scope="module")
def cluster(made_elsewhere: Materials) -> Iterator[Broker]:
    """Return a cluster whose nodes tests may stop and start."""
    with start(nodes=2, properties=TUNED, backend=Backend.JVM, security=made_elsewhere.security) as broker:
        yield broker


def session_ms(connection: socket.socket, user: str) -> int:
    """Return the lifetime of a PLAIN login as the broker reports it (KIP-368); 0 means unlimited."""
    login = f"\0{user}\0{USERS[user]}".encode()
    with connection:
        connection.settimeout(PATIENCE_S)
        exchange(connection, api=17, body=struct.pack(">h", len("PLAIN")) + b"PLAIN")  # SaslHandshake
        answer = exchange(connection, api=36, body=struct.pack(">i", len(login)) + login)  # SaslAuthenticate
    # error_code, error_message, auth_bytes, session_lifetime_ms
    (error,) = struct.unpack_from(">h", answer)
    assert error == KafkaError.NO_ERROR
    (lifetime,) = struct.unpack(">q", answer[-8:])
    return int(lifetime)


def exchange(connection: socket.socket, *, api: int, body: bytes) -> bytes:
    """Send a version 1 request without client id and return the response after the correlation id."""
    request = struct.pack(">hhih", api, 1, 0, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    with connection.makefile("rb") as answers:
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)[4:]


def first_node(cluster: Broker, listener: str) -> socket.socket:
    """Return a connection to a listener of the first node."""
    host, _, port = cluster.secured[listener].partition(",")[0].partition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


@pytest.mark.integration
@pytest.mark.slow
def test_each_node_has_each_listener_on_own_port(cluster: Broker) -> None:
    """Each node has all secured listeners and the plaintext listener on different ports."""
    servers = [server for listed in cluster.secured.values() for server in listed.split(",")]
    ports = {server.partition(":")[2] for server in [*servers, *cluster.bootstrap_servers.split(",")]}
    assert list(cluster.secured) == list(SECURED_LISTENERS)
    assert len(ports) == 2 * (len(SECURED_LISTENERS) + 1)


@pytest.mark.integration
@pytest.mark.slow
def test_listener_property_overrides_general_property(cluster: Broker, made_elsewhere: Materials) -> None:
    """A property with a listener's prefix overrides the general property, here the length of SASL sessions."""
    trust = ssl.create_default_context(cafile=made_elsewhere.ca_file)
    over_tls = trust.wrap_socket(first_node(cluster, SASL_TLS), server_hostname=ELSEWHERE)
    assert session_ms(over_tls, "bob") == 60_000
    assert session_ms(first_node(cluster, SASL), "bob") == 3_000


@pytest.mark.integration
@pytest.mark.slow
def test_disabled_mechanism_is_rejected(cluster: Broker, made_elsewhere: Materials) -> None:
    """A login with a disabled mechanism is rejected, and the cluster's start did not wait for this mechanism."""
    await_refusal(cluster.secured[SASL], as_user(SCRAM_512, "alice")(made_elsewhere), "Unsupported SASL mechanism")


@pytest.mark.integration
@pytest.mark.slow
def test_certificate_for_other_host_is_rejected(cluster: Broker, made_elsewhere: Materials) -> None:
    """A client rejects a certificate for another host than the host to which it connects."""
    await_refusal(cluster.secured[TLS], over_tls(made_elsewhere), "certificate verify failed")


@pytest.mark.integration
@pytest.mark.slow
def test_restarted_node_accepts_its_users_again(cluster: Broker, made_elsewhere: Materials) -> None:
    """After a restart and wait_ready(), the node's secured listeners accept its users at the previous addresses."""
    cluster.stop_node(2)
    cluster.start_node(2)
    cluster.wait_ready()
    topic = create_topic(cluster.bootstrap_servers, unique("orders"), replication_factor=2)
    produce(cluster.bootstrap_servers, topic, 1)
    _, second = cluster.secured[SASL].split(",")
    assert record_read(second, topic, as_user(SCRAM_256, "alice")(made_elsewhere)) == b"0"
