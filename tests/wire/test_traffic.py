"""The counters of a connection, for statistics."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.translation import requests
from consumer_membership.wire.connection import Connection
from consumer_membership.wire.traffic import Traffic
from tests.support.scripted_broker import frame
from tests.wire.frames import VERSIONS, heartbeat_answer, versions_answer

HEARTBEAT = requests.consumer_group_heartbeat(VERSIONS, "g", Heartbeat(member_id="m", member_epoch=5))


def test_traffic_counts_all_requests_and_bytes() -> None:
    """The handshake counts as well, and a later connection continues the same counters."""
    traffic = Traffic()
    connection = Connection(client_id="rdkafka", max_frame_bytes=1_000_000, traffic=traffic)
    sent = [connection.start()]
    received = [versions_answer()]
    connection.receive(received[0])
    number, data = connection.send(HEARTBEAT)
    sent.append(data)
    received.append(frame(heartbeat_answer(), number))
    for byte in received[1]:
        connection.receive(bytes([byte]))
    connection.receive_end()
    connection.receive_end()
    sent.append(Connection(client_id="rdkafka", max_frame_bytes=1_000_000, traffic=traffic).start())
    counts = traffic.snapshot()
    assert counts.requests == {"ApiVersions": 2, "ConsumerGroupHeartbeat": 1}
    assert (counts.answers, counts.connects, counts.disconnects, counts.timeouts) == (2, 2, 1, 0)
    assert (counts.bytes_sent, counts.bytes_received) == (sum(map(len, sent)), sum(map(len, received)))


def test_traffic_counts_the_throttle_times_of_responses() -> None:
    """KIP-124: Every response with a throttle time counts; the connection reports the longest time once."""
    traffic = Traffic()
    connection = Connection(client_id="rdkafka", max_frame_bytes=1_000_000, traffic=traffic)
    connection.start()
    connection.receive(versions_answer())
    numbers = [connection.send(HEARTBEAT)[0] for _ in range(3)]
    for number, throttle_s in zip(numbers, (0.5, 0.25, 0.0), strict=True):
        answer = replace(heartbeat_answer(), throttle_time=timedelta(seconds=throttle_s))
        connection.receive(frame(answer, number))
    counts = traffic.snapshot()
    assert (counts.throttles, counts.throttled_s) == (2, 0.75)
    assert (connection.take_throttle_s(), connection.take_throttle_s()) == (0.5, 0.0)


def test_traffic_snapshot_does_not_change() -> None:
    """Another thread reads the snapshot while the connection continues."""
    traffic = Traffic()
    before = traffic.snapshot()
    traffic.sent("Metadata", 5)
    assert (before.requests, before.bytes_sent) == ({}, 0)
    assert traffic.snapshot().requests == {"Metadata": 1}
