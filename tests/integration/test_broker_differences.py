"""The broker differences of section 7.1 of docs/project/protocol.md, shown with raw requests instead of the package."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId
from kio.static.primitive import i16, i32, i32Timedelta

from consumer_membership.devbroker import SUPPORTED_VERSIONS, Broker
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, unique
from tests.support.offered import KAFKA_4
from tests.support.raw_requests import send

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Two members fill a group, and the assignor of 4.3 and 4.4 runs every 15 seconds.
LIMITS = {"group.consumer.max.size": "2", "group.consumer.assignment.interval.ms": "15000"}


@pytest.fixture(scope="module", params=list(reversed(SUPPORTED_VERSIONS)))
def broker(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """A broker of each version, with small groups that are rarely assigned."""
    return broker_pool.shared(request.param, properties=LIMITS)


class Member:
    """A member that sends the requests of the test."""

    def __init__(self, broker: Broker, group: str, topic: str, instance_id: str | None = None) -> None:
        self._broker = broker
        self._group, self._topic, self._instance_id = group, topic, instance_id
        self._member_id = str(uuid.uuid4())

    def heartbeat(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        """Send one complete heartbeat."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self._group),
            member_id=self._member_id,
            member_epoch=i32(epoch),
            instance_id=self._instance_id,
            rack_id=None,
            rebalance_timeout=i32Timedelta.parse(timedelta(minutes=5)),
            subscribed_topic_names=(self._topic,),
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=(),
        )
        return send(self._broker, request, ConsumerGroupHeartbeatResponse)


def partitions(answer: ConsumerGroupHeartbeatResponse) -> int:
    """The number of partitions that this response assigns."""
    assert answer.error_code is ErrorCode.none, answer.error_message
    return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions) if answer.assignment else 0


def first_member(broker: Broker, topic: str, instance_id: str | None = None) -> tuple[str, Member]:
    """Create a new group with its first member at a coordinator that already knows the new topic."""
    for _ in range(1000):
        member = Member(broker, group := unique("group"), topic, instance_id)
        if partitions(member.heartbeat(0)) == 2:
            return group, member
    raise AssertionError("no first member was assigned the topic")


def since(broker: Broker, release: str) -> bool:
    """Whether the broker is of this release or a later one."""
    return tuple(map(int, broker.version.split("."))) >= tuple(map(int, release.split(".")))


def test_broker_offers_the_listed_api_versions(broker: Broker) -> None:
    """6.5: The broker offers the versions of this package's APIs that tests/support/offered.py lists."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    offered = {
        key.api_key: (key.min_version, key.max_version) for key in send(broker, request, ApiVersionsResponse).api_keys
    }
    line = broker.version.rpartition(".")[0]
    expected = KAFKA_4[line]
    assert {key: offered[i16(key)] for key in expected} == expected


def test_returning_instance_joins_a_full_group_from_4_4_on(broker: Broker) -> None:
    """KAFKA-20601: Brokers admit it since 4.4; before, its new member id counts as an additional member."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    group, former = first_member(broker, topic, "a")
    assert Member(broker, group, topic, "b").heartbeat(0).error_code is ErrorCode.none
    assert Member(broker, group, topic, "c").heartbeat(0).error_code is ErrorCode.group_max_size_reached
    assert former.heartbeat(-2).error_code is ErrorCode.none
    code = Member(broker, group, topic, "a").heartbeat(0).error_code
    assert code is (ErrorCode.none if since(broker, "4.4") else ErrorCode.group_max_size_reached)


def test_emptied_group_is_assigned_at_once_except_on_4_3(broker: Broker) -> None:
    """If the assignor waits for its interval, 4.3 also delays the first member that joins an emptied group."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    group, last = first_member(broker, topic)
    assert last.heartbeat(-1).error_code is ErrorCode.none
    waits = since(broker, "4.3") and not since(broker, "4.4")
    assert partitions(Member(broker, group, topic).heartbeat(0)) == (0 if waits else 2)
