"""The coordinator of a real broker under test: each request is sent without a client, on a separate connection.

The test writes requests and reads responses with `wire.codec`, field by field. It negotiates no versions and repeats no
request. With a connection for each request, several JoinGroup and SyncGroup requests can wait at the same time.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, assert_never

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.coordinator import Topic
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    Answer,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Describe,
    Described,
    Fetch,
    Fetched,
    Join,
    Joined,
    JoinedMember,
    Key,
    LeaveGroup,
    LeaveResults,
    MemberIdRequired,
    Request,
    Sync,
    Synced,
)
from consumer_membership.testing.coordinators.rules import Granted, Refused
from consumer_membership.translation.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from consumer_membership.types import Holder, OffsetAndMetadata, TopicIdPartition, TopicPartition
from consumer_membership.wire.codec import SIZE_BYTES, Call, Fields, Message, decode, encode
from consumer_membership.wire.versions import Api
from tests.simulation.under_test import PARTITIONS, TOPIC, CoordinatorUnderTest, RulesT
from tests.support.kafka import create_topic, delete_topic, unique
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from uuid import UUID

T = TypeVar("T")

#: From this version on, SyncGroup contains the protocol type and name, and a broker rejects a request without them.
_SYNC_WITH_PROTOCOL: Final = 5
_SYNC_WITHOUT: Final = 4


class _Sent(NamedTuple):
    request: Request
    call: Call
    connection: socket.socket


class RealCoordinator(CoordinatorUnderTest[RulesT]):
    """The coordinator of a broker with one node. `close` closes the connections."""

    def __init__(self, bootstrap_servers: str, rules: RulesT) -> None:
        super().__init__(unique("rules"), rules, _topic_of(bootstrap_servers))
        self.bootstrap_servers = bootstrap_servers
        self._sent: dict[Key, _Sent] = {}

    def close(self) -> None:
        """Close the connections of requests without a response."""
        for sent in self._sent.values():
            sent.connection.close()

    def send(self, key: Key, request: Request, *, group_id: str | None = None) -> None:
        """Write the request to a new connection."""
        call = _call_of(group_id or self.group_id, request)
        self._sent[key] = _Sent(request, call, _opened(self.bootstrap_servers, call))

    def has_answer(self, key: Key) -> bool:
        """Return whether bytes of the response have arrived."""
        return bool(select.select([self._sent[key].connection], [], [], 0)[0])

    def receive(self, key: Key) -> Answer:
        """Read the response."""
        sent = self._sent.pop(key)
        with sent.connection:
            return _answer_of(sent.request, _read(sent.connection, sent.call))

    def until(self, attempt: Callable[[], T]) -> T:
        """Call this repeatedly until it returns a true value."""
        return wait_until(attempt, f"what the test waits for in group {self.group_id}")

    def members(self) -> frozenset[str]:
        """Return the ids of the group's members, from ConsumerGroupDescribe or DescribeGroups."""
        group = self.described()
        if group.error_code:
            group = self._classic_group()
        return frozenset(member.member_id for member in group.members)

    def described(self) -> Message:
        """Return the group as ConsumerGroupDescribe describes it."""
        group: Message = _response_to(self.bootstrap_servers, _call_of(self.group_id, Describe())).groups[0]
        return group

    def state(self) -> str:
        """Return the state of the classic group."""
        return str(self._classic_group().group_state)

    def _classic_group(self) -> Message:
        fields = {"groups": (self.group_id,), "include_authorized_operations": False}
        group: Message = _response_to(self.bootstrap_servers, Call(Api.DESCRIBE_GROUPS, 5, fields)).groups[0]
        return group

    def create_topic(self, partitions: int) -> Topic:
        """Create another topic, and wait until the coordinator knows it."""
        return _created(self.bootstrap_servers, unique("rules"), partitions)

    def grow_topic(self, topic: Topic, partitions: int) -> Topic:
        """Add partitions to a topic, and wait until the coordinator knows them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic.name, partitions)])[topic.name].result()
        return _known(self.bootstrap_servers, topic.name, partitions)

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic."""
        delete_topic(self.bootstrap_servers, topic.name)


# ---- topics ---------------------------------------------------------------------------------------------------------


@cache
def _topic_of(bootstrap_servers: str) -> Topic:
    """Create the topic of the rule tests on this broker, once."""
    return _created(bootstrap_servers, TOPIC, PARTITIONS)


def _created(bootstrap_servers: str, name: str, partitions: int) -> Topic:
    create_topic(bootstrap_servers, name, partitions)
    return _known(bootstrap_servers, name, partitions)


def _known(bootstrap_servers: str, name: str, partitions: int) -> Topic:
    """Wait until the coordinator assigns all partitions of this topic, which Metadata contains earlier."""
    by_name = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
    call = Call(Api.METADATA, 12, by_name | {"include_topic_authorized_operations": False})

    def is_assigned() -> bool:
        joins = Heartbeat(
            member_id="probe", member_epoch=0, rebalance_timeout_s=60.0, topics=(name,), owned=frozenset()
        )
        leaves = Heartbeat(member_id="probe", member_epoch=-1)
        group_id = unique("probe")
        joined, _ = (_response_to(bootstrap_servers, _call_of(group_id, one)) for one in (joins, leaves))
        return sum(len(topic.partitions) for topic in joined.assignment.topic_partitions) == partitions

    wait_until(is_assigned, f"the coordinator assigns {partitions} partitions of {name}")
    (found,) = _response_to(bootstrap_servers, call).topics
    return Topic(name=name, topic_id=found.topic_id, partitions=partitions)


# ---- connections ----------------------------------------------------------------------------------------------------


def _opened(bootstrap_servers: str, call: Call) -> socket.socket:
    """Open a connection, and send this request on it."""
    host, _, port = bootstrap_servers.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    connection.sendall(encode(call, 1, "rules"))
    return connection


def _read(connection: socket.socket, call: Call) -> Message:
    """Read the only response on this connection."""
    with connection.makefile("rb") as answers:
        size = int.from_bytes(answers.read(SIZE_BYTES), "big")
        return decode(call.api, call.version, answers.read(size))


def _response_to(bootstrap_servers: str, call: Call) -> Message:
    with _opened(bootstrap_servers, call) as connection:
        return _read(connection, call)


# ---- requests -------------------------------------------------------------------------------------------------------


def _call_of(group_id: str, request: Request) -> Call:
    match request:
        case Heartbeat():
            return Call(Api.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat(group_id, request))
        case Join():
            return Call(Api.JOIN_GROUP, request.version, _join(group_id, request))
        case Sync():
            names = (request.protocol_type, request.assignor)
            version = _SYNC_WITHOUT if names == (None, None) else _SYNC_WITH_PROTOCOL
            return Call(Api.SYNC_GROUP, version, _sync(group_id, request))
        case ClassicHeartbeat():
            member = _member(group_id, request.member_id, request.instance_id)
            return Call(Api.HEARTBEAT, 4, member | {"generation_id": request.generation})
        case LeaveGroup():
            members = [
                {"member_id": one.member_id, "group_instance_id": one.instance_id, "reason": None}
                for one in request.members
            ]
            return Call(Api.LEAVE_GROUP, 5, {"group_id": group_id, "members": members})
        case Commit():
            return Call(Api.OFFSET_COMMIT, 9, _commit(group_id, request))
        case Fetch():
            asker = {"member_id": request.member_id, "member_epoch": request.member_epoch}
            group = {"group_id": group_id, **asker, "topics": _by_name(request.partitions)}
            return Call(Api.OFFSET_FETCH, 9, {"groups": [group], "require_stable": False})
        case Describe():
            fields = {"group_ids": (group_id,), "include_authorized_operations": False}
            return Call(Api.CONSUMER_GROUP_DESCRIBE, 1, fields)
        case _:
            assert_never(request)


def _heartbeat(group_id: str, heartbeat: Heartbeat) -> Fields:
    timeout_s = heartbeat.rebalance_timeout_s
    return {
        "group_id": group_id,
        "member_id": heartbeat.member_id,
        "member_epoch": heartbeat.member_epoch,
        "instance_id": heartbeat.instance_id,
        "rack_id": heartbeat.rack_id,
        "rebalance_timeout_ms": -1 if timeout_s is None else _ms(timeout_s),
        "subscribed_topic_names": heartbeat.topics,
        "subscribed_topic_regex": heartbeat.pattern,
        "server_assignor": heartbeat.assignor,
        "topic_partitions": None if heartbeat.owned is None else _by_id(heartbeat.owned),
    }


def _member(group_id: str, member_id: str, instance_id: str | None) -> dict[str, object]:
    return {"group_id": group_id, "member_id": member_id, "group_instance_id": instance_id}


def _join(group_id: str, join: Join) -> Fields:
    offers = [{"name": one.assignor, "metadata": encode_subscription(one.subscription)} for one in join.offers]
    return _member(group_id, join.member_id, join.instance_id) | {
        "session_timeout_ms": _ms(join.session_timeout_s),
        "rebalance_timeout_ms": _ms(join.rebalance_timeout_s),
        "protocol_type": join.protocol_type,
        "protocols": offers,
        "reason": None,
    }


def _sync(group_id: str, sync: Sync) -> Fields:
    shares = [{"member_id": one.member_id, "assignment": encode_assignment(one.partitions)} for one in sync.shares]
    return _member(group_id, sync.member_id, sync.instance_id) | {
        "generation_id": sync.generation,
        "protocol_type": sync.protocol_type,
        "protocol_name": sync.assignor,
        "assignments": shares,
    }


def _commit(group_id: str, commit: Commit) -> Fields:
    rows = {
        partition: {
            "partition_index": partition.partition,
            "committed_offset": one.offset,
            "committed_leader_epoch": -1 if one.leader_epoch is None else one.leader_epoch,
            "committed_metadata": one.metadata,
        }
        for partition, one in commit.offsets.items()
    }
    names = {partition.topic for partition in rows}
    return _member(group_id, commit.member_id, commit.instance_id) | {
        "generation_id_or_member_epoch": commit.generation,
        "topics": [{"name": name, "partitions": [rows[p] for p in rows if p.topic == name]} for name in names],
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _by_name(partitions: Iterable[TopicPartition]) -> list[Fields]:
    names: dict[str, list[int]] = {}
    for name, number in sorted(partitions):
        names.setdefault(name, []).append(number)
    return [{"name": name, "partition_indexes": numbers} for name, numbers in names.items()]


def _by_id(partitions: Iterable[TopicIdPartition]) -> list[Fields]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in topics.items()]


# ---- responses ------------------------------------------------------------------------------------------------------


def _answer_of(request: Request, message: Message) -> Answer:
    match request:
        case Heartbeat():
            answer: Answer = _granted(message)
        case Join():
            answer = _joined(message)
        case Sync():
            answer = _synced(message)
        case ClassicHeartbeat():
            answer = Refused(message.error_code) if message.error_code else Alive()
        case LeaveGroup():
            codes = tuple(one.error_code for one in message.members)
            answer = Refused(message.error_code) if message.error_code else LeaveResults(codes=codes)
        case Commit():
            answer = CommitResults(codes={partition: one.error_code for partition, one in _rows(message.topics)})
        case Fetch():
            answer = _fetched(message.groups[0])
        case Describe():
            answer = _described(message.groups[0])
        case _:
            assert_never(request)
    return answer


def _granted(message: Message) -> Granted | Refused:
    if message.error_code:
        return Refused(message.error_code, message.error_message or "")
    assignment = None
    if message.assignment is not None:
        topics = message.assignment.topic_partitions
        assignment = frozenset(TopicIdPartition(topic.topic_id, n) for topic in topics for n in topic.partitions)
    return Granted(
        member_epoch=message.member_epoch,
        heartbeat_interval_s=message.heartbeat_interval_ms / 1000,
        assignment=assignment,
    )


def _joined(message: Message) -> Joined | MemberIdRequired | Refused:
    if message.error_code == code.MEMBER_ID_REQUIRED:
        return MemberIdRequired(member_id=message.member_id)
    if message.error_code:
        return Refused(message.error_code)
    members = (
        JoinedMember(one.member_id, decode_subscription(one.metadata, getattr(one, "group_instance_id", None)))
        for one in message.members
    )
    return Joined(
        member_id=message.member_id,
        generation=message.generation_id,
        assignor=message.protocol_name,
        leader_id=message.leader,
        members=tuple(members),
        # Below version 9 no assignment is skipped.
        skip_assignment=getattr(message, "skip_assignment", False),
    )


def _synced(message: Message) -> Synced | Refused:
    if message.error_code:
        return Refused(message.error_code)
    return Synced(
        assignor=getattr(message, "protocol_name", None),
        assignment=decode_assignment(message.assignment).partitions if message.assignment else None,
    )


def _fetched(group: Message) -> Fetched | Refused:
    if group.error_code:
        return Refused(group.error_code)
    rows = list(_rows(group.topics))
    assert [one.error_code for _, one in rows if one.error_code] == []
    return Fetched(offsets={p: None if one.committed_offset < 0 else _committed(one) for p, one in rows})


def _rows(topics: Iterable[Message]) -> Iterator[tuple[TopicPartition, Message]]:
    """Yield each partition of a response with its fields."""
    for topic in topics:
        for one in topic.partitions:
            yield TopicPartition(topic.name, one.partition_index), one


def _committed(found: Message) -> OffsetAndMetadata:
    epoch = found.committed_leader_epoch
    return OffsetAndMetadata(
        offset=found.committed_offset, leader_epoch=None if epoch < 0 else epoch, metadata=found.metadata or ""
    )


def _described(group: Message) -> Described | Refused:
    if group.error_code:
        return Refused(group.error_code, group.error_message or "")
    holders = {
        one.instance_id: Holder(
            member_id=one.member_id,
            member_epoch=one.member_epoch,
            client_id=one.client_id,
            host=one.client_host,
            partitions=frozenset(
                TopicPartition(topic.topic_name, n)
                for topic in one.assignment.topic_partitions
                for n in topic.partitions
            ),
        )
        for one in group.members
        if one.instance_id is not None
    }
    return Described(holders=holders)
