"""`GroupAdmin` on a `FakeCluster`, beyond the scenarios of the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer_membership.admin import GroupAdmin
from consumer_membership.errors import GroupError, UseError
from consumer_membership.testing import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """Start a cluster with virtual time and one record; the group `billing` has committed offset 1."""
    with FakeCluster() as cluster:
        cluster.deliver("orders", "one")
        consumer = cluster.consumer({"group.id": "billing", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert consumer.poll(60) is not None
        consumer.commit(asynchronous=False)
        yield cluster


def test_group_admin_of_an_application_reaches_the_cluster_by_its_servers(cluster: FakeCluster) -> None:
    """An application that creates its own `GroupAdmin` needs no change."""
    assert GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe("billing").lag == 0


def test_group_admin_waits_until_the_groups_are_loaded(cluster: FakeCluster) -> None:
    """After a move of the coordinator, a call waits in virtual time, at most for its timeout."""
    cluster.move_coordinator(loading_s=20)
    with pytest.raises(GroupError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        cluster.group_admin(timeout_s=10).describe("billing")
    report = cluster.group_admin(timeout_s=15).describe("billing")
    assert (report.lag, report.coordinator.node_id) == (0, 2)


def test_group_admin_has_no_history_of_a_fake_cluster(cluster: FakeCluster) -> None:
    """The history of a group raises an error that names the alternative: a fake cluster has no `__consumer_offsets`."""
    with pytest.raises(UseError, match="no history of its groups; use a broker"):
        cluster.group_admin().history("billing", 0)
