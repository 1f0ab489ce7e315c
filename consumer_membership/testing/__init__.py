"""Test support for applications: a cluster inside the test process, and pytest fixtures with a real broker.

A test of a consumer with a `FakeCluster`:

    with FakeCluster() as cluster:
        cluster.deliver("orders", b"42")
        consumer = cluster.consumer({"auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert consumer.poll(10).value() == b"42"
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consumer_membership.testing.admin_client import FakeAdminClient
    from consumer_membership.testing.cluster import ClusterMember, FakeCluster
    from consumer_membership.testing.producer import FakeProducer
    from consumer_membership.testing.running_call import RunningCall
    from consumer_membership.testing.shared_broker import SharedBroker

__all__ = ["ClusterMember", "FakeAdminClient", "FakeCluster", "FakeProducer", "RunningCall", "SharedBroker"]

#: The module of each public name. Modules are imported on first use, because the broker keeper needs no cluster.
_MODULES = {
    "FakeAdminClient": "admin_client",
    "FakeCluster": "cluster",
    "FakeProducer": "producer",
    "ClusterMember": "cluster",
    "RunningCall": "running_call",
    "SharedBroker": "shared_broker",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
