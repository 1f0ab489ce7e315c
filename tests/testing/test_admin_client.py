"""How an application gets the admin client of a `FakeCluster`; `admin_scenarios` tests the client's methods."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from consumer_membership.errors import UseError
from consumer_membership.testing import FakeAdminClient, FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Start a cluster with virtual time."""
    with FakeCluster(partitions=2) as cluster:
        yield cluster


class OwnAdmin(AdminClient):
    """A subclass that an application defines."""

    def __init__(self, conf: dict[str, str | int | float | bool]) -> None:
        super().__init__(conf)
        self.calls = 0

    def count(self) -> int:
        """Count the topics."""
        self.calls += 1
        return len(self.list_topics(timeout=1).topics)


def test_installed_cluster_serves_admin_clients_by_their_servers(cluster: FakeCluster) -> None:
    """Every admin client with the cluster's servers uses the cluster, however the class was imported or derived."""
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap_servers}
    with cluster.installed():
        for admin in (AdminClient(config), confluent_kafka.admin.AdminClient({}, **config)):
            assert isinstance(admin, FakeAdminClient)
        AdminClient(config).create_topics([NewTopic("orders")])["orders"].result(0)
        own = OwnAdmin(config)
        assert (isinstance(own, OwnAdmin), own.count(), own.calls) == (True, 1, 1)
    assert cluster.admin_client().list_topics().topics["orders"].partitions.keys() == {0, 1}


def test_other_admin_clients_are_not_changed(cluster: FakeCluster) -> None:
    """Admin clients with other servers connect to these servers, inside the `with` block and after it."""
    config: dict[str, str | int | float | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    with cluster.installed(), FakeCluster() as second, second.installed():
        assert type(AdminClient(config)) is AdminClient
        assert second.admin_client().list_topics().topics == {}
    fake = {**config, "bootstrap.servers": cluster.bootstrap_servers}
    assert [type(AdminClient(one)) for one in (config, fake)] == [AdminClient, AdminClient]
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=0.01)


def test_configuration_is_checked_as_by_librdkafka(cluster: FakeCluster) -> None:
    """An unknown key raises confluent-kafka's exception."""
    with pytest.raises(KafkaException, match=r"No such configuration property"):
        cluster.admin_client({"fetch.wait": 1})


def test_calls_that_the_cluster_cannot_answer_raise(cluster: FakeCluster) -> None:
    """A call that the cluster does not support raises an error instead of returning a future that never completes."""
    with pytest.raises(UseError, match="real broker"):
        cluster.admin_client().delete_records([])


def test_deleted_topic_takes_its_configuration_along(cluster: FakeCluster) -> None:
    """A topic that is created again has the default configuration."""
    admin = cluster.admin_client()
    resource = confluent_kafka.admin.ConfigResource("topic", "orders")
    for config, expected in (({"retention.ms": "1"}, "1"), ({}, "604800000")):
        admin.create_topics([NewTopic("orders", 1, config=config)])["orders"].result(0)
        assert admin.describe_configs([resource])[resource].result(0)["retention.ms"].value == expected
        admin.delete_topics(["orders"])["orders"].result(0)
