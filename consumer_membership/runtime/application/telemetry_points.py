"""A consumer's metrics as brokers want them (KIP-714): under Java's names, and only what is known of it.

What Java's client has and this one does not know is left out: a broker shows a zero as a zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from consumer_membership.health.verdict import Health
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.line import BrokerTraffic, MemberFigures
from consumer_membership.wire.otlp import Point

_COORDINATOR = "org.apache.kafka.consumer.coordinator"
_FETCH = "org.apache.kafka.consumer.fetch.manager"
#: What is counted of each request: one of either protocol.
_HEARTBEATS = ("ConsumerGroupHeartbeat", "Heartbeat")
_COMMITS = ("OffsetCommit",)


def points_of(view: MembershipView, figures: MemberFigures, health: Health, records: int) -> tuple[Point, ...]:
    """What is known of a consumer now; `records`: how many were handed to its application."""
    return (
        Point(name=f"{_COORDINATOR}.assigned.partitions", value=float(len(view.owned))),
        _total(f"{_COORDINATOR}.heartbeat.total", _count(figures.traffic, _HEARTBEATS)),
        _total(f"{_COORDINATOR}.commit.total", _count(figures.traffic, _COMMITS)),
        _total(f"{_FETCH}.records.consumed.total", records),
        *_lags(health),
    )


def _total(name: str, count: int) -> Point:
    return Point(name=name, value=float(count), is_total=True)


def _count(traffic: tuple[BrokerTraffic, ...], apis: tuple[str, ...]) -> int:
    """How many of these requests were sent, to whichever coordinator."""
    return sum(one.counts.requests.get(api, 0) for one in traffic if one.is_of_group for api in apis)


def _lags(health: Health) -> Iterator[Point]:
    lags = {partition: one.lag for partition, one in health.partitions.items() if one.lag is not None}
    if lags:
        yield Point(name=f"{_FETCH}.records.lag.max", value=float(max(lags.values())))
    for (topic, number), lag in lags.items():
        where = (("topic", topic), ("partition", str(number)))
        yield Point(name=f"{_FETCH}.records.lag", value=float(lag), attributes=where)
