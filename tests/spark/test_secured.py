"""Pipelines over TLS and SASL on a real broker: all clients in the driver and in the tasks use the same keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.devbroker import Broker
from consumer_membership.spark import check, drain, read_group
from tests.spark.builders import copying_sink
from tests.spark.recorders import Recorder
from tests.support.brokers import RunBrokers
from tests.support.identity_provider import AUDIENCE, ISSUER, assertion_config, identity_provider, oidc_config
from tests.support.kafka import create_topic, produce, unique
from tests.support.keycloak import RealmClient, running_keycloak
from tests.support.secured import Materials, Way, client_config, over_sasl_and_tls, verifying
from tests.support.versions import NEWEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 300


@pytest.fixture
def secured(broker_pool: RunBrokers, secured_materials: Materials) -> Broker:
    """A broker with listeners for TLS and SASL."""
    return broker_pool.shared(security=secured_materials.security)


@pytest.mark.parametrize("way", [Way.SCRAM_512_OVER_TLS, Way.TOKEN_OVER_TLS, Way.MUTUAL_TLS, Way.PLAIN])
def test_check_drain_and_read_group_work_on_a_secured_cluster(
    spark: SparkSession, secured: Broker, secured_materials: Materials, tmp_path: Path, way: Way
) -> None:
    """`check`, a drain that first alters the group's configuration, and `read_group` work over TLS and SASL."""
    servers = secured.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    config = client_config(secured, secured_materials, way)
    produce(servers, topic, RECORDS)
    found = check(spark, config, [topic], group, instances=2)
    assert [str(finding) for finding in found.errors] == []
    if way.has_tls:
        seen = [finding.found for finding in found.findings if finding.subject == "ssl.ca.location"]
        assert [words.startswith(f"{secured_materials.ca_file} exists on ") for words in seen] == [True]
        moved = check(spark, config | {"ssl.ca.location": "/no/such/ca.pem"}, [topic], group)
        assert {finding.subject for finding in moved.errors} == {"brokers", "ssl.ca.location"}
    result = drain(spark, config, [topic], group, Recorder(tmp_path), 2, assign_at_once=True)
    assert result.records == RECORDS
    produce(servers, topic, 10)
    with read_group(spark, config, [topic], group) as frame:
        assert frame.count() == 10


def test_drain_and_read_group_take_a_client_certificate_as_text(
    spark: SparkSession, secured: Broker, secured_materials: Materials, tmp_path: Path
) -> None:
    """Driver, tasks and the sink's producers present a certificate from text, which needs no file on the hosts."""
    made = secured_materials
    texts = {"ssl.ca.pem": made.ca_pem, "ssl.certificate.pem": made.client_cert_pem, "ssl.key.pem": made.client_key_pem}
    drains_and_reads(spark, secured, over_mutual_tls(secured) | texts, tmp_path)


def test_drain_and_read_group_take_a_keystore(
    spark: SparkSession, secured: Broker, secured_materials: Materials, tmp_path: Path
) -> None:
    """Driver, tasks and the sink's producers present the certificate of a PKCS#12 file with a password."""
    made = secured_materials
    keystore = {
        "ssl.ca.location": made.ca_file,
        "ssl.keystore.location": made.keystore_file,
        "ssl.keystore.password": made.keystore_password,
    }
    config = over_mutual_tls(secured) | keystore
    drains_and_reads(spark, secured, config, tmp_path)
    moved = check(spark, config | {"ssl.keystore.location": "/no/such/client.p12"}, ["any"], "any")
    assert "ssl.keystore.location" in {finding.subject for finding in moved.errors}


def over_mutual_tls(secured: Broker) -> dict[str, object]:
    """Return the settings of a client on the listener that requires a certificate, without a certificate."""
    return {"bootstrap.servers": secured.secured["MUTUAL"], "security.protocol": "ssl"}


@pytest.mark.parametrize("grant", ["client credentials", "assertion"])
def test_drain_and_read_group_take_tokens_of_an_identity_provider(
    spark: SparkSession, broker_pool: RunBrokers, secured_materials: Materials, tmp_path: Path, grant: str
) -> None:
    """Driver, tasks and the sink's producers request their own tokens with a secret, or a key in a file."""
    made, folder = secured_materials, tmp_path / "provider"
    folder.mkdir()
    with identity_provider(made, folder) as provider:
        is_assertion = grant == "assertion"
        keys = assertion_config(provider, made, folder) if is_assertion else oidc_config(provider, made)
        properties = verifying(provider.jwks_url, made.ca_file, AUDIENCE, ISSUER)
        with broker_pool.own(NEWEST, properties=properties, security=made.security) as broker:
            drains_and_reads(spark, broker, over_sasl_and_tls(broker, made) | keys, tmp_path)
        # A request of the driver, and at least one of each of the two tasks of each job.
        assert len(provider.requests) >= 5
        assert {request.authorization is None for request in provider.requests} == {is_assertion}


@pytest.mark.timeout(900)  # Keycloak is fetched and built once.
@pytest.mark.parametrize("has_assertion", [False, True], ids=["client credentials", "assertion"])
def test_drain_and_read_group_take_tokens_of_keycloak(
    spark: SparkSession, broker_pool: RunBrokers, secured_materials: Materials, tmp_path: Path, *, has_assertion: bool
) -> None:
    """Driver and tasks request their own tokens with each grant.

    The sink's producers use client credentials: their requests are those of librdkafka, which does not authenticate the
    client of an assertion.
    """
    made, folder, client = secured_materials, tmp_path / "keycloak", RealmClient(client_id="app", has_assertions=True)
    folder.mkdir()
    with running_keycloak(folder, made, [client]) as keycloak:
        properties = verifying(keycloak.jwks_url, made.ca_file, AUDIENCE, keycloak.issuer)
        with broker_pool.own(NEWEST, properties=properties, security=made.security) as broker:
            place = over_sasl_and_tls(broker, made)
            config = place | keycloak.client_config(client, has_assertion=has_assertion)
            drains_and_reads(spark, broker, config, tmp_path, place | keycloak.client_config(client))
        counted = keycloak.issued_for_assertions if has_assertion else keycloak.issued
        assert counted(client.client_id) >= 5


def drains_and_reads(
    spark: SparkSession,
    broker: Broker,
    config: dict[str, object],
    folder: Path,
    of_sink: dict[str, object] | None = None,
) -> None:
    """Assert that `check` finds no error, and that a drain, a drain into a topic and `read_group` read all records.

    `of_sink` is the configuration of the sink's producers if it is not `config`.
    """
    servers = broker.bootstrap_servers
    topic, out, group = (
        create_topic(servers, unique("topic"), 2),
        create_topic(servers, unique("out"), 2),
        unique("group"),
    )
    produce(servers, topic, RECORDS)
    assert [str(finding) for finding in check(spark, config, [topic], group, instances=2).errors] == []
    assert drain(spark, config, [topic], group, Recorder(folder), 2).records == RECORDS
    assert drain(spark, config, [topic], unique("group"), copying_sink(of_sink or config, out), 2).records == RECORDS
    with read_group(spark, config, [out], group) as frame:
        assert frame.count() == RECORDS
