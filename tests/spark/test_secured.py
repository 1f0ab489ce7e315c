"""Pipelines over TLS and SASL on a real broker: all clients in the driver and in the tasks use the same keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.devbroker import Broker
from consumer_membership.spark import check, drain, read_group
from tests.spark.recorders import Recorder
from tests.support.brokers import RunBrokers
from tests.support.identity_provider import AUDIENCE, ISSUER, identity_provider, oidc_config
from tests.support.kafka import create_topic, produce, unique
from tests.support.secured import Materials, Way, client_config, verifying
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
    """Driver and tasks present a certificate from text, which needs no file on the hosts."""
    made = secured_materials
    config = client_config(secured, made, Way.MUTUAL_TLS)
    del config["ssl.certificate.location"], config["ssl.key.location"]
    config |= {"ssl.certificate.pem": made.client_cert_pem, "ssl.key.pem": made.client_key_pem}
    drains_and_reads(spark, secured, config, tmp_path)


def test_drain_and_read_group_take_tokens_of_an_identity_provider(
    spark: SparkSession, broker_pool: RunBrokers, secured_materials: Materials, tmp_path: Path
) -> None:
    """The driver and each task request their own tokens with client credentials."""
    made, folder = secured_materials, tmp_path / "provider"
    folder.mkdir()
    with identity_provider(made, folder) as provider:
        properties = verifying(provider.jwks_url, made.ca_file, AUDIENCE, ISSUER)
        with broker_pool.own(NEWEST, properties=properties, security=made.security) as broker:
            config = {
                "bootstrap.servers": broker.secured["SASL_TLS"],
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": made.ca_file,
                **oidc_config(provider, made),
            }
            drains_and_reads(spark, broker, config, tmp_path)
        # The driver's, and at least one for each of the two tasks of both jobs.
        assert len(provider.requests) >= 5


def drains_and_reads(spark: SparkSession, broker: Broker, config: dict[str, object], folder: Path) -> None:
    """A drain and a `read_group` read all records."""
    servers = broker.bootstrap_servers
    topic, group = create_topic(servers, unique("topic"), 2), unique("group")
    produce(servers, topic, RECORDS)
    assert drain(spark, config, [topic], group, Recorder(folder), 2).records == RECORDS
    produce(servers, topic, 10)
    with read_group(spark, config, [topic], group) as frame:
        assert frame.count() == 10
