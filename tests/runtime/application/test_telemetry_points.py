"""What brokers are told of a consumer: Java's names, and nothing that is not known."""

from __future__ import annotations

from dataclasses import replace

from consumer_membership.health.progress import PartitionHealth
from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application.telemetry_points import points_of
from consumer_membership.runtime.line import BrokerTraffic, MemberFigures
from consumer_membership.types import TopicPartition
from consumer_membership.wire.traffic import TrafficSnapshot
from tests.support.views import view_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PREFIX = "org.apache.kafka.consumer."
NOTHING = Health(
    verdict=HealthVerdict.IDLE,
    since=None,
    why="a test",
    until=None,
    would_restart_help=False,
    partitions={},
    looked_at=None,
)


def traffic(*, is_of_group: bool, **requests: int) -> BrokerTraffic:
    """Of one broker."""
    counts = TrafficSnapshot(
        requests=requests, answers=0, bytes_sent=0, bytes_received=0, connects=1, disconnects=0, timeouts=0
    )
    return BrokerTraffic(is_of_group=is_of_group, host="h", port=1, counts=counts)


def test_what_is_known_is_told() -> None:
    """Of either protocol, and over all coordinators that there were."""
    view = replace(view_of(MemberState.STABLE), owned={P0: 1, P1: 1})
    figures = MemberFigures(
        traffic=(
            traffic(is_of_group=True, ConsumerGroupHeartbeat=3, OffsetCommit=2),
            traffic(is_of_group=True, Heartbeat=4),
            traffic(is_of_group=False, Metadata=9),
        )
    )
    known = PartitionHealth(position=5, end=12, lag=7, progressed_at=None)
    health = replace(NOTHING, partitions={P0: known, P1: replace(known, end=None, lag=None)})
    found = points_of(view, figures, health, 100)
    assert {(point.name.removeprefix(PREFIX), point.is_total, point.value, point.attributes) for point in found} == {
        ("coordinator.assigned.partitions", False, 2.0, ()),
        ("coordinator.heartbeat.total", True, 7.0, ()),
        ("coordinator.commit.total", True, 2.0, ()),
        ("fetch.manager.records.consumed.total", True, 100.0, ()),
        ("fetch.manager.records.lag.max", False, 7.0, ()),
        ("fetch.manager.records.lag", False, 7.0, (("topic", "orders"), ("partition", "0"))),
    }


def test_what_is_not_known_is_left_out() -> None:
    """A zero would be one."""
    found = points_of(view_of(MemberState.UNSUBSCRIBED), MemberFigures(), NOTHING, 0)
    assert not [point for point in found if "lag" in point.name]
