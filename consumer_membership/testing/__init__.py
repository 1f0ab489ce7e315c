"""Tests for applications: a cluster inside the test process, and fixtures for pytest with a real broker.

with FakeCluster() as cluster:
cluster.deliver("orders", b"42")
consumer = cluster.consumer({"auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
assert consumer.poll(10).value() == b"42"
"""

from consumer_membership.testing.cluster import FakeCluster, GroupMember
from consumer_membership.testing.producer import FakeProducer

__all__ = ["FakeCluster", "FakeProducer", "GroupMember"]
