"""What a caller may ask for, and the properties that come of it."""

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
    """One node's properties."""
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
def test_versions_with_and_without_the_consumer_protocol_are_accepted(version: str) -> None:
    """Tests of classic members need a broker of the last line that serves nothing else."""
    assert BrokerRequest(version=version).kafka_version == version


def test_unsupported_version_is_refused_with_the_supported_ones() -> None:
    """Whoever mistypes a version learns which exist."""
    with pytest.raises(BrokerUnavailableError) as refused:
        BrokerRequest(version="3.9.0")
    assert "3.9.0" in str(refused.value)
    assert all(version in str(refused.value) for version in SUPPORTED_VERSIONS)


@pytest.mark.parametrize("nodes", [0, -1])
def test_no_nodes_are_refused(nodes: int) -> None:
    """A cluster has a node."""
    with pytest.raises(BrokerUnavailableError, match=f"nodes = {nodes}"):
        BrokerRequest(nodes=nodes)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    """The first of the nodes' ports is a TCP port."""
    with pytest.raises(BrokerUnavailableError, match=f"port = {port}"):
        BrokerRequest(port=port)


def test_ports_of_all_nodes_fit_into_the_port_range() -> None:
    """The last node's port is a TCP port as well."""
    assert BrokerRequest(port=65535).port == 65535
    with pytest.raises(BrokerUnavailableError, match="port = 65534"):
        BrokerRequest(port=65534, nodes=3)


def test_host_goes_with_plaintext_only() -> None:
    """Certificates are for the names of loopback; the wish names the address."""
    assert str(BrokerRequest(host="10.0.0.1")).endswith("host 10.0.0.1")
    with pytest.raises(BrokerUnavailableError, match=r"host = '10\.0\.0\.1' and security"):
        BrokerRequest(host="10.0.0.1", security=SECURITY)


def test_properties_that_place_the_nodes_are_refused() -> None:
    """Another listener than the one that was drawn would start a broker that nobody reaches."""
    with pytest.raises(BrokerUnavailableError, match="listeners"):
        BrokerRequest(properties={"listeners": "PLAINTEXT://:9092"})


def test_what_was_not_asked_for_has_a_default_and_stays_unasked() -> None:
    """An existing broker may be of another version unless one was asked for."""
    request = BrokerRequest()
    assert (request.version, request.kafka_version) == (None, NEWEST)
    assert (request.nodes, request.node_count) == (None, 1)


def test_request_reads_as_what_was_asked_for() -> None:
    """Errors name the wish."""
    request = BrokerRequest(version="4.0.0", nodes=3, properties={"a": "b"}, port=9000)
    assert str(request) == "Kafka 4.0.0, 3 nodes, port 9000, a=b"


def test_extra_properties_win() -> None:
    """A test may change what the room sets by default."""
    assert properties()["group.initial.rebalance.delay.ms"] == "0"
    changed = properties(extra={"group.initial.rebalance.delay.ms": "3000", "group.max.size": "2"})
    assert changed["group.initial.rebalance.delay.ms"] == "3000"
    assert changed["group.max.size"] == "2"


@pytest.mark.parametrize(("nodes", "replicas"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_internal_topics_have_as_many_replicas_as_nodes_but_three(nodes: int, replicas: str) -> None:
    """A group outlives a node where there are several, and one node alone can hold the topics."""
    made = properties(nodes=nodes)
    assert made["offsets.topic.replication.factor"] == replicas
    assert made["transaction.state.log.replication.factor"] == replicas
    assert made["transaction.state.log.min.isr"] == "1"


@pytest.mark.parametrize(("nodes", "controllers"), [(1, [1]), (2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])])
def test_controllers_are_an_odd_number(nodes: int, controllers: list[int]) -> None:
    """Two controllers would stop as soon as either is away."""
    assert list(controller_ids(nodes)) == controllers


def test_node_without_controller_role_does_not_listen_as_one() -> None:
    """Kafka refuses to start a broker that has the controllers' listener among its own."""
    made = properties(node_id=2, nodes=2)
    assert made["process.roles"] == "broker"
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:1000"


def test_listeners_are_told_as_they_are_bound_and_advertised() -> None:
    """Brokers talk to each other over the listener of their own, where there is one."""
    made = properties()
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:1000,CONTROLLER://127.0.0.1:2000"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1000"
    assert made["controller.quorum.voters"] == "1@127.0.0.1:2000"
    assert made["inter.broker.listener.name"] == "PLAINTEXT"


def test_broker_without_security_has_none_of_its_properties() -> None:
    """It starts as it ever did."""
    assert not {key for key in properties() if "ssl" in key or "sasl" in key}


def test_password_is_quoted_for_jaas() -> None:
    """Quotes and backslashes end a word there, and one user's password is not to become another user."""
    made = properties(security=replace(SECURITY, users={"a": 'b" user_c="d\\', "e f": "g"}))
    assert made["listener.name.sasl.plain.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        r' "user_a"="b\" user_c=\"d\\" "user_e f"="g";'
    )


def test_extra_properties_win_for_all_listeners_and_for_one() -> None:
    """Nothing that a test may want to change is set under a longer name than it has to be."""
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


def test_environment_follows_the_rule_of_the_image() -> None:
    """Dots, underscores and dashes come back as they were."""
    assert container_environment({"a.b-c_d": "1"}) == {"KAFKA_A_B___C__D": "1"}


def test_properties_file_keeps_backslashes_and_lines() -> None:
    """A value of several lines, such as a JAAS configuration or a certificate, arrives as one property."""
    assert properties_file({"a": "b\\c\nd\r\ne"}) == "a=b\\\\c\\nd\\r\\ne\n"


def test_properties_file_keeps_letters_that_are_not_latin() -> None:
    """Java reads it as Latin-1 and knows others by the units of UTF-16."""
    assert properties_file({"a": "ü€😀"}) == "a=\\u00fc\\u20ac\\ud83d\\ude00\n"


def test_cluster_id_is_never_taken_for_an_option() -> None:
    """Kafka's format tool wants 22 letters and reads a dash in front as an option."""
    ids = [cluster_id() for _ in range(500)]
    assert {len(made) for made in ids} == {22}
    assert not any(made.startswith("-") for made in ids)
