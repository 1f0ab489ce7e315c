"""Broker requests and the properties that they produce."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.devbroker import SUPPORTED_VERSIONS, BrokerUnavailableError, Security
from consumer_membership.devbroker.properties import (
    cluster_id,
    container_environment,
    controller_ids,
    node_properties,
    properties_file,
)
from consumer_membership.devbroker.request import CLASSIC_VERSIONS, BrokerRequest
from tests.support.versions import NEWEST

BOUND = {"PLAINTEXT": "127.0.0.1:1000", "CONTROLLER": "127.0.0.1:2000"}


SECURITY = Security(
    key_pem="the key", certificate_chain_pem="the chain", client_authority_pem="the authority", users={"a": "the word"}
)


def properties(
    node_id: int = 1, nodes: int = 1, extra: dict[str, str] | None = None, security: Security | None = None
) -> dict[str, str]:
    """Return one node's properties."""
    return node_properties(
        node_id=node_id,
        nodes=nodes,
        log_dir="/data",
        bound=BOUND,
        advertised={"PLAINTEXT": "127.0.0.1:1000"},
        voters={1: "127.0.0.1:2000"},
        security=security,
        extra=extra or {},
    )


@pytest.mark.parametrize("version", [*SUPPORTED_VERSIONS, *CLASSIC_VERSIONS])
def test_request_accepts_versions_with_and_without_consumer_protocol(version: str) -> None:
    """Each supported version is accepted, also versions without the consumer protocol, for tests of classic members."""
    assert BrokerRequest(version=version).kafka_version == version


def test_request_with_unsupported_version_lists_supported_ones() -> None:
    """An unsupported version raises an error that lists the supported versions."""
    with pytest.raises(BrokerUnavailableError) as refused:
        BrokerRequest(version="3.9.0")
    assert "3.9.0" in str(refused.value)
    assert all(version in str(refused.value) for version in SUPPORTED_VERSIONS)


@pytest.mark.parametrize("nodes", [0, -1])
def test_request_with_less_than_one_node_raises(nodes: int) -> None:
    """A request for less than one node raises an error."""
    with pytest.raises(BrokerUnavailableError, match=f"nodes={nodes}"):
        BrokerRequest(nodes=nodes)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_request_with_invalid_port_raises(port: int) -> None:
    """The first node's port must be a TCP port."""
    with pytest.raises(BrokerUnavailableError, match=f"port={port}"):
        BrokerRequest(port=port)


def test_request_rejects_port_range_beyond_65535() -> None:
    """The port of the last node must also be a TCP port."""
    assert BrokerRequest(port=65535).port == 65535
    with pytest.raises(BrokerUnavailableError, match="port=65534"):
        BrokerRequest(port=65534, nodes=3)


def test_request_with_host_and_security_raises() -> None:
    """A host cannot be combined with security, because the certificates are for loopback names only."""
    assert str(BrokerRequest(host="10.0.0.1")).endswith("host 10.0.0.1")
    with pytest.raises(BrokerUnavailableError, match=r"host='10\.0\.0\.1' cannot be combined with security"):
        BrokerRequest(host="10.0.0.1", security=SECURITY)


def test_request_with_listener_property_raises() -> None:
    """The property `listeners` is rejected, because the broker would be unreachable at the chosen address."""
    with pytest.raises(BrokerUnavailableError, match="listeners"):
        BrokerRequest(properties={"listeners": "PLAINTEXT://:9092"})


def test_request_keeps_unset_values_apart_from_defaults() -> None:
    """Unset values differ from defaults: an existing broker may have any version if the request has none."""
    request = BrokerRequest()
    assert (request.version, request.kafka_version) == (None, NEWEST)
    assert (request.nodes, request.node_count) == (None, 1)


def test_request_str_lists_requested_values() -> None:
    """The text of a request, which errors contain, lists the requested values."""
    request = BrokerRequest(version="4.0.0", nodes=3, properties={"a": "b"}, port=9000)
    assert str(request) == "Kafka 4.0.0, 3 nodes, port 9000, a=b"


def test_extra_properties_override_defaults() -> None:
    """A test may change the properties that devbroker sets by default."""
    assert properties()["group.initial.rebalance.delay.ms"] == "0"
    changed = properties(extra={"group.initial.rebalance.delay.ms": "3000", "group.max.size": "2"})
    assert changed["group.initial.rebalance.delay.ms"] == "3000"
    assert changed["group.max.size"] == "2"


@pytest.mark.parametrize(("nodes", "replicas"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_internal_topics_have_one_replica_per_node_up_to_three(nodes: int, replicas: str) -> None:
    """Internal topics have a replica on each node, at most three, so that a group survives the loss of a node."""
    made = properties(nodes=nodes)
    assert made["offsets.topic.replication.factor"] == replicas
    assert made["transaction.state.log.replication.factor"] == replicas
    assert made["transaction.state.log.min.isr"] == "1"


@pytest.mark.parametrize(("nodes", "controllers"), [(1, [1]), (2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])])
def test_controller_ids_are_an_odd_number(nodes: int, controllers: list[int]) -> None:
    """The number of controllers is odd, because two controllers would stop as soon as one of them is unavailable."""
    assert list(controller_ids(nodes)) == controllers


def test_broker_only_node_has_no_controller_listener() -> None:
    """A node without the controller role has no controller listener, because Kafka would not start it."""
    made = properties(node_id=2, nodes=2)
    assert made["process.roles"] == "broker"
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:1000"


def test_node_properties_have_bound_and_advertised_listeners() -> None:
    """A node has bound and advertised listeners, and a listener for the connections between brokers."""
    made = properties()
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:1000,CONTROLLER://127.0.0.1:2000"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1000"
    assert made["controller.quorum.voters"] == "1@127.0.0.1:2000"
    assert made["inter.broker.listener.name"] == "PLAINTEXT"


def test_node_properties_without_security_have_no_tls_or_sasl_keys() -> None:
    """Without security, the properties contain no keys for TLS or SASL."""
    assert not {key for key in properties() if "ssl" in key or "sasl" in key}


def test_node_properties_quote_passwords_for_jaas() -> None:
    """Quotes and backslashes in passwords are escaped in JAAS values, so that no password can define another user."""
    made = properties(security=replace(SECURITY, users={"a": 'b" user_c="d\\', "e f": "g"}))
    assert made["listener.name.sasl.plain.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        r' "user_a"="b\" user_c=\"d\\" "user_e f"="g";'
    )


def test_extra_properties_override_security_properties() -> None:
    """Extra properties override those of the security settings, which therefore have the most general names."""
    assert properties(security=SECURITY)["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    wanted = {
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.key": "another",
        "listener.name.mutual.ssl.client.auth": "requested",
        "listener.name.sasl.plain.connections.max.reauth.ms": "3000",
    }
    changed = properties(security=SECURITY, extra=wanted)
    assert {key: changed[key] for key in wanted} == wanted
    assert not {key for key in changed if key.endswith((".sasl.enabled.mechanisms", ".ssl.keystore.key"))}


def test_container_environment_encodes_property_names() -> None:
    """Dots, underscores and dashes in names of properties are encoded by the image's rule."""
    assert container_environment({"a.b-c_d": "1"}) == {"KAFKA_A_B___C__D": "1"}


def test_properties_file_escapes_backslashes_and_newlines() -> None:
    """A multi-line value, such as a JAAS configuration or a certificate, stays one property."""
    assert properties_file({"a": "b\\c\nd\r\ne"}) == "a=b\\\\c\\nd\\r\\ne\n"


def test_properties_file_escapes_non_ascii_characters() -> None:
    """Other characters than ASCII are written as UTF-16 escapes, because Java reads the file as Latin-1."""
    assert properties_file({"a": "ü€😀"}) == "a=\\u00fc\\u20ac\\ud83d\\ude00\n"


def test_cluster_id_never_starts_with_dash() -> None:
    """A cluster id has 22 characters, as Kafka's format tool expects, and no leading dash, which would be an option."""
    ids = [cluster_id() for _ in range(500)]
    assert {len(made) for made in ids} == {22}
    assert not any(made.startswith("-") for made in ids)
