"""The requests of `GroupAdmin` to a cluster inside the test process; they replace requests to brokers.

`GroupAdmin` itself chooses the protocol, computes the lag and returns the results of removals with its real code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from consumer_membership.admin.access import AdminAccess, GroupsOfBroker, OffsetOrFailure
from consumer_membership.runtime.network.cluster import BrokerRefusal
from consumer_membership.testing.coordinators.classic.group import ClassicGroup, GroupState
from consumer_membership.testing.coordinators.classic.roster import ClassicMember
from consumer_membership.testing.coordinators.consumer.group import ConsumerGroup
from consumer_membership.testing.coordinators.consumer.group_member import ConsumerMember
from consumer_membership.testing.coordinators.either import EitherCoordinator
from consumer_membership.testing.coordinators.exchanges import LeaveResults, LeavingMember
from consumer_membership.testing.coordinators.rules import Refused
from consumer_membership.testing.engine import ClusterEngine
from consumer_membership.testing.log import Log
from consumer_membership.translation.descriptions import CONSUMER_PROTOCOL_TYPE, GroupDescription, MemberDescription
from consumer_membership.translation.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from consumer_membership.translation.requests import MemberIdentity
from consumer_membership.translation.surveys import ListedGroup, OpenTransaction
from consumer_membership.translation.verdicts import broker_error, group_error
from consumer_membership.types import (
    BrokerAddress,
    BrokerError,
    GroupProtocol,
    OffsetAndMetadata,
    TopicIdPartition,
    TopicPartition,
)
from consumer_membership.wire.error_codes import ErrorCode

AnswerT = TypeVar("AnswerT")

_HOST = "127.0.0.1"


class GroupCluster(Protocol):
    """The cluster of a `GroupAdmin`."""

    engine: ClusterEngine
    log: Log
    coordinator: EitherCoordinator

    def client_id_of(self, member_id: str) -> str:
        """Return the client id of a member."""

    def remove_members(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResults | Refused:
        """Remove members as an administrator does."""


def group_requests(cluster: GroupCluster) -> AdminAccess:
    """Return the requests with which `GroupAdmin` uses this cluster."""
    requests = _GroupRequests(cluster)
    return AdminAccess(cluster=requests, groups=requests, surveys=requests)


class _GroupRequests:
    """The requests of one call (`admin.access`). The only broker leads all partitions."""

    def __init__(self, cluster: GroupCluster) -> None:
        self._cluster = cluster
        self._coordinator = cluster.coordinator

    # ---- the cluster ----

    @property
    def _broker(self) -> BrokerAddress:
        return BrokerAddress(node_id=self._coordinator.node_id, host="fake", port=9092)

    async def brokers(self, timeout_s: float | None = None) -> tuple[BrokerAddress, ...]:  # noqa: ARG002 - there is no wait
        """Return the only broker."""
        return (self._broker,)

    async def metadata(self, names: Iterable[str] | None, timeout_s: float | None = None) -> ClusterMetadata:  # noqa: ARG002 - there is no wait
        """Return the metadata of the topics with these names; None: of all topics."""
        with self._cluster.engine.exclusive():
            wanted = self._coordinator.topics if names is None else names
            return ClusterMetadata(
                cluster_id="fake-cluster",
                controller_id=self._broker.node_id,
                brokers={self._broker.node_id: self._broker},
                racks={},
                topics={name: self._topic(name) for name in wanted},
            )

    def _topic(self, name: str) -> TopicMetadata:
        known, node = self._coordinator.topics.get(name), self._broker.node_id
        return TopicMetadata(
            name=name,
            topic_id=None if known is None else known.topic_id,
            is_internal=False,
            partitions={
                number: PartitionMetadata(
                    partition=number,
                    leader=node,
                    leader_epoch=0,
                    replicas=(node,),
                    in_sync_replicas=(node,),
                    error=None,
                )
                for number in range(0 if known is None else known.partitions)
            },
            error=broker_error(ErrorCode.unknown_topic_or_partition) if known is None else None,
        )

    async def start_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetOrFailure]:
        """Return 0 for each partition that exists, because no record is ever deleted."""
        return {one: end if isinstance(end, BrokerRefusal) else 0 for one, end in self._ends(partitions).items()}

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetOrFailure]:
        """Return the next offset of each partition (the high watermark)."""
        return self._ends(partitions)

    async def stable_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetOrFailure]:
        """Return the next offset of each partition, because the log has no records of open transactions."""
        return self._ends(partitions)

    def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | BrokerRefusal]:
        with self._cluster.engine.exclusive():
            log = self._cluster.log
            unknown = broker_error(ErrorCode.unknown_topic_or_partition)
            return {one: log.end(one) if one in log else BrokerRefusal(unknown, retriable=False) for one in partitions}

    async def with_coordinator(
        self,
        group_id: str,  # noqa: ARG002 - one broker coordinates all groups
        what: str,  # noqa: ARG002 - for messages of connections
        timeout_s: float,
        request: Callable[[BrokerAddress, float], Awaitable[AnswerT]],
    ) -> AnswerT:
        """Return the result of `request`, after the coordinator has loaded its groups."""
        engine = self._cluster.engine
        began_at = engine.now()
        if not engine.await_change(lambda: not self._coordinator.is_loading(engine.now()), timeout_s):
            raise BrokerRefusal(broker_error(ErrorCode.coordinator_load_in_progress), retriable=True)
        return await request(self._broker, timeout_s - (engine.now() - began_at))

    # ---- groups ----

    async def describe_consumer_group(self, _: BrokerAddress, group_id: str, __: float) -> GroupDescription:
        """Describe the group of the consumer protocol."""
        with self._cluster.engine.exclusive():
            match self._coordinator.groups.get(group_id):
                case ConsumerGroup() as group:
                    return GroupDescription(
                        group_id=group_id,
                        protocol=GroupProtocol.CONSUMER,
                        protocol_type=CONSUMER_PROTOCOL_TYPE,
                        state=group.state,
                        epoch=group.epoch,
                        assignment_epoch=group.target_epoch,
                        assignor=group.assignor,
                        members=_by_id(self._consumer_member(group, one) for one in group.members.values()),
                    )
                case _:
                    raise _not_found(group_id)

    def _consumer_member(self, group: ConsumerGroup, member: ConsumerMember) -> MemberDescription:
        return MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=None,
            client_id=self._cluster.client_id_of(member.member_id),
            host=_HOST,
            epoch=member.epoch,
            protocol=GroupProtocol.CONSUMER,
            topics=member.topics,
            pattern=member.pattern,
            assignment=self._named(member.assigned),
            target=self._named(group.target.get(member.member_id, frozenset())),
        )

    def _named(self, partitions: Collection[TopicIdPartition]) -> frozenset[TopicPartition]:
        names = self._coordinator.names_of({one.topic_id for one in partitions})
        return frozenset(TopicPartition(names[p.topic_id], p.partition) for p in partitions if p.topic_id in names)

    async def describe_classic_group(self, _: BrokerAddress, group_id: str, __: float) -> GroupDescription:
        """Describe the group of the classic protocol."""
        with self._cluster.engine.exclusive():
            match self._coordinator.groups.get(group_id):
                case ClassicGroup() as group:
                    members = group.roster.members.values()
                    return GroupDescription(
                        group_id=group_id,
                        protocol=GroupProtocol.CLASSIC,
                        protocol_type=group.roster.protocol_type or "",
                        state=group.state.value,
                        epoch=None,
                        assignment_epoch=None,
                        assignor=(group.assignor or "") if group.state is GroupState.STABLE else "",
                        members=_by_id(self._classic_member(group, one) for one in members),
                    )
                case _:
                    raise _not_found(group_id)

    def _classic_member(self, group: ClassicGroup, member: ClassicMember) -> MemberDescription:
        # A broker describes subscriptions and assignments of a stable group only.
        offer = next((one for one in member.offers if one.assignor == group.assignor), None)
        is_known = group.state is GroupState.STABLE and offer is not None
        return MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=None,
            client_id=self._cluster.client_id_of(member.member_id),
            host=_HOST,
            epoch=None,
            protocol=GroupProtocol.CLASSIC,
            topics=offer.subscription.topics if is_known and offer is not None else frozenset(),
            pattern=None,
            assignment=(member.assignment or frozenset()) if is_known else frozenset(),
            target=None,
        )

    async def remove_members(
        self,
        _: BrokerAddress,
        group_id: str,
        members: Sequence[MemberIdentity],
        reason: str | None,  # noqa: ARG002 - the coordinator writes no log
        timeout_s: float,  # noqa: ARG002 - there is no wait
    ) -> tuple[BrokerError | None, ...]:
        """Remove these members; return the error of each member, in their order (None: removed)."""
        leaving = [LeavingMember(one.member_id, one.instance_id) for one in members]
        with self._cluster.engine.exclusive():
            found = self._cluster.remove_members(group_id, leaving)
        if isinstance(found, Refused):
            raise BrokerRefusal(group_error(found.code, found.message, group_id), retriable=False)
        return tuple(group_error(code, None, group_id) if code else None for code in found.codes)

    async def all_committed(
        self, _: BrokerAddress, group_id: str, __: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """Return all committed offsets of the group."""
        with self._cluster.engine.exclusive():
            group = self._coordinator.groups.get(group_id)
            return {} if group is None else dict(group.committed)

    # ---- surveys ----

    async def groups(self, _: float) -> tuple[GroupsOfBroker, ...]:
        """Return all groups."""
        with self._cluster.engine.exclusive():
            found = tuple(_listed(group_id, group) for group_id, group in self._coordinator.groups.items())
        return (GroupsOfBroker(broker=self._broker, groups=found),)

    async def open_transactions(
        self, _: ClusterMetadata, __: Iterable[TopicPartition], ___: float
    ) -> tuple[OpenTransaction, ...]:
        """Return no transactions, because the log receives the records of a transaction at its commit."""
        return ()

    async def broker_settings(self, _: BrokerAddress, __: float) -> Mapping[str, str]:
        """Return the broker settings that the cluster supports."""
        rules = self._coordinator.rules
        return {
            "group.consumer.session.timeout.ms": _milliseconds(rules.session_timeout_s),
            "group.consumer.heartbeat.interval.ms": _milliseconds(rules.heartbeat_interval_s),
            "offset.metadata.max.bytes": str(self._coordinator.offset_metadata_max_bytes),
        }

    async def group_settings(self, _: BrokerAddress, __: str, ___: float) -> Mapping[str, str]:
        """Return the group settings, which are the settings of the cluster for every group."""
        rules = self._coordinator.rules
        return {
            "consumer.session.timeout.ms": _milliseconds(rules.session_timeout_s),
            "consumer.heartbeat.interval.ms": _milliseconds(rules.heartbeat_interval_s),
        }


def _by_id(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda member: member.member_id))


def _not_found(group_id: str) -> BrokerRefusal:
    return BrokerRefusal(broker_error(ErrorCode.group_id_not_found, f"Group {group_id} not found."), retriable=False)


def _listed(group_id: str, group: ConsumerGroup | ClassicGroup) -> ListedGroup:
    match group:
        case ConsumerGroup():
            return ListedGroup(
                group_id=group_id, protocol_type=CONSUMER_PROTOCOL_TYPE, state=group.state, kind="consumer"
            )
        case ClassicGroup():
            kind = group.roster.protocol_type or ""
            return ListedGroup(group_id=group_id, protocol_type=kind, state=group.state.value, kind="classic")


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
