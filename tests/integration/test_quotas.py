"""Client quotas on a real broker: throttled members stay in their group, and count the throttle times (KIP-124)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition as Partition
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from consumer_membership.devbroker import Broker
from tests.integration.environments import Environment, on
from tests.support.kafka import unique
from tests.support.raw_requests import send

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: In percent of one broker thread: a heartbeat takes about 0.1 ms, so a few in a second exceed it.
QUOTA = 0.01


def alter(broker: Broker, client_id: str, *, remove: bool) -> None:
    """Set the request quota of this client id, or remove it."""
    entity = EntityData(entity_type="client-id", entity_name=client_id)
    op = OpData(key="request_percentage", value=f64(QUOTA), remove=remove)
    request = AlterClientQuotasRequest(entries=(EntryData(entity=(entity,), ops=(op,)),), validate_only=False)
    (entry,) = send(broker, request, AlterClientQuotasResponse).entries
    assert entry.error_code is ErrorCode.none, entry.error_message


@contextmanager
def throttled(broker: Broker, client_id: str) -> Iterator[None]:
    """Throttle the requests of this client id meanwhile."""
    alter(broker, client_id, remove=False)
    try:
        yield
    finally:
        alter(broker, client_id, remove=True)


@on("newest-consumer", "newest-cooperative")
def test_throttled_member_keeps_its_partitions_and_counts_the_throttle_times(environment: Environment) -> None:
    """KIP-219: Heartbeats and commits wait for the throttle time and then succeed; the metrics count the responses.

    The member stays in its group. librdkafka, whose fetches count for the quota also, is not part of this test.
    """
    client_id, topic, group = unique("client"), environment.topic(4), unique("group")
    with environment.member(group, [topic], client_id=client_id, enable_auto_commit=False) as member:
        member.settled(4)
        calls = len(member.notes.calls)  # a new topic may be assigned in two steps
        assert member.consumer.metrics().throttles == 0
        with throttled(environment.broker, client_id):
            member.wait(lambda w: w.consumer.metrics().throttles >= 3, "throttled responses")
            heard_at = member.consumer.membership().last_heartbeat_at or 0.0
            offsets = [Partition(topic, number, 7) for number in range(4)]
            committed = member.consumer.commit(offsets=offsets, asynchronous=False)
            assert [(one.offset, one.error) for one in committed] == [(7, None)] * 4
            member.wait(lambda w: (w.consumer.membership().last_heartbeat_at or 0.0) > heard_at, "a heartbeat")
            metrics = member.consumer.metrics()
            assert metrics.throttled_s > 0
            assert metrics.membership.heartbeat_failures == {}
        assert (member.notes.errors, len(member.notes.calls)) == ([], calls)
