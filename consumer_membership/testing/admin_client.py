"""The admin client of a cluster inside the test process; it replaces confluent-kafka's.

confluent-kafka's `AdminClient` is a Python class that checks arguments and creates futures, and then calls a method of
its C base class. This module keeps the Python class and replaces its base class with `InProcessAdmin`, whose methods
read and change the cluster. Every future is done when the call returns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from warnings import warn

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Node,
    TopicPartitionInfo,
    Uuid,
)
from confluent_kafka import TopicPartition as PartitionOffset
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    BrokerMetadata,
    ClusterMetadata,
    ConfigResource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    DescribeClusterResult,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    MemberAssignment,
    MemberDescription,
    NewPartitions,
    NewTopic,
    TopicDescription,
)
from confluent_kafka.cimpl import (
    OFFSET_SPEC_EARLIEST,
    OFFSET_SPEC_LATEST,
    OFFSET_SPEC_MAX_TIMESTAMP,
    _AdminClientImpl,
)

from consumer_membership.clients.outcomes import FailedPartition
from consumer_membership.errors import UseError
from consumer_membership.runtime.application.partition_offsets import placed
from consumer_membership.testing.coordinators.classic.group import ClassicGroup, GroupState
from consumer_membership.testing.coordinators.consumer.group import ConsumerGroup
from consumer_membership.testing.coordinators.either import EitherCoordinator
from consumer_membership.testing.coordinators.exchanges import Commit, CommitResults
from consumer_membership.testing.engine import ClusterEngine
from consumer_membership.testing.log import Log
from consumer_membership.testing.topic_configs import altered, described, refusal_of
from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry

AdminT = TypeVar("AdminT", bound=AdminClient)
#: The value that confluent-kafka's future callbacks expect for one topic or group: an error or a result.
_Result = KafkaError | object

_NOT_CHECKED = frozenset({"bootstrap.servers", "logger", "plugin.library.paths"})
_NO_ENTRY = KafkaError._NOENT  # noqa: SLF001 - librdkafka's own code, which has no public name
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_MOST_PARTITIONS = 100_000
_CLASSIC_STATES = {
    GroupState.EMPTY: ConsumerGroupState.EMPTY,
    GroupState.PREPARING_REBALANCE: ConsumerGroupState.PREPARING_REBALANCING,
    GroupState.COMPLETING_REBALANCE: ConsumerGroupState.COMPLETING_REBALANCING,
    GroupState.STABLE: ConsumerGroupState.STABLE,
    GroupState.DEAD: ConsumerGroupState.DEAD,
}
_A = AclOperation
_GROUP_OPERATIONS = [_A.READ, _A.DELETE, _A.DESCRIBE, _A.DESCRIBE_CONFIGS, _A.ALTER_CONFIGS]
_TOPIC_OPERATIONS = [
    *(_A.READ, _A.WRITE, _A.CREATE, _A.DELETE, _A.ALTER, _A.DESCRIBE, _A.DESCRIBE_CONFIGS, _A.ALTER_CONFIGS),
]
_CLUSTER_OPERATIONS = [
    *(_A.CREATE, _A.ALTER, _A.DESCRIBE, _A.CLUSTER_ACTION, _A.DESCRIBE_CONFIGS, _A.ALTER_CONFIGS, _A.IDEMPOTENT_WRITE),
]


class AdminTarget(Protocol):
    """The cluster of an admin client."""

    engine: ClusterEngine
    log: Log
    coordinator: EitherCoordinator
    bootstrap_servers: str
    #: The values of each topic's configuration that are not defaults.
    topic_configs: dict[str, dict[str, str]]
    default_partitions: int

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or add partitions to it."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def describe(self, topic: str | None) -> ClusterMetadata:
        """Return the metadata of one topic; None: of all topics."""

    def client_id_of(self, member_id: str) -> str:
        """Return the client id of a member."""


class InProcessAdmin(_AdminClientImpl):
    """The base class of `AdminClient` for a `FakeCluster`; its C part is never initialized."""

    _cluster: AdminTarget

    def __init__(self, config: Mapping[str, object], **kwargs: object) -> None:
        both = {**config, **kwargs}
        _check(tuple(sorted((key, str(value)) for key, value in both.items() if not callable(value))))

    # ---- topics ----

    def create_topics(
        self,
        topics: list[NewTopic],
        future: Future[dict[str, KafkaError | None]],
        validate_only: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        operation_timeout: float = -1,  # noqa: ARG002
    ) -> None:
        """Create topics."""
        _refuse_empty(topics, "NewTopic objects")
        for topic in topics:
            if not (topic.num_partitions == -1 or 0 <= topic.num_partitions <= _MOST_PARTITIONS):
                reason = f"num_partitions out of expected range 1..{_MOST_PARTITIONS} or -1 for broker default"
                raise ValueError(f"Invalid NewTopic({topic.topic}): {reason}")
        counts = Counter(topic.topic for topic in topics)
        with self._cluster.engine.exclusive():
            results: dict[str, KafkaError | None] = {}
            for topic in topics:
                if counts[topic.topic] > 1:
                    results[topic.topic] = KafkaError(KafkaError.INVALID_REQUEST, "Duplicate topic name.")
                else:
                    results[topic.topic] = self._create(topic, is_dry=validate_only)
        future.set_result(results)

    def _create(self, topic: NewTopic, *, is_dry: bool) -> KafkaError | None:
        cluster, name, config = self._cluster, topic.topic, dict(topic.config or {})
        partitions = len(topic.replica_assignment or ()) or topic.num_partitions
        refusal = _name_refusal(name)
        if refusal is None and name in cluster.coordinator.topics:
            refusal = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if refusal is None and partitions == 0:
            text = "Number of partitions was set to an invalid non-positive value."
            refusal = KafkaError(KafkaError.INVALID_PARTITIONS, text)
        if refusal is None and topic.replication_factor == 0:
            text = "Replication factor must be larger than 0, or -1 to use the default value."
            refusal = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, text)
        if refusal is None and topic.replication_factor > 1:
            text = f"Unable to replicate the partition {topic.replication_factor} time(s): FakeCluster has one broker."
            refusal = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, text)
        refusal = refusal or refusal_of(config)
        if refusal is None and not is_dry:
            cluster.create_topic(name, partitions if partitions > 0 else cluster.default_partitions)
            cluster.topic_configs[name] = config
        return refusal

    def delete_topics(
        self,
        topics: list[str],
        future: Future[dict[str, KafkaError | None]],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        operation_timeout: float = -1,  # noqa: ARG002
    ) -> None:
        """Delete topics with their records and committed offsets."""
        _refuse_empty(topics, "topic strings")
        results: dict[str, KafkaError | None] = {}
        with self._cluster.engine.exclusive():
            for name in topics:
                results[name] = self._unknown_topic(name)
                if results[name] is None:
                    self._cluster.delete_topic(name)
        future.set_result(results)

    def create_partitions(
        self,
        topics: list[NewPartitions],
        future: Future[dict[str, KafkaError | None]],
        validate_only: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        operation_timeout: float = -1,  # noqa: ARG002
    ) -> None:
        """Add partitions to topics."""
        _refuse_empty(topics, "NewPartitions objects")
        results: dict[str, KafkaError | None] = {}
        with self._cluster.engine.exclusive():
            for topic in topics:
                results[topic.topic] = self._grow(topic.topic, topic.new_total_count, is_dry=validate_only)
        future.set_result(results)

    def _grow(self, name: str, count: int, *, is_dry: bool) -> KafkaError | None:
        refusal = self._unknown_topic(name)
        if refusal is not None:
            return refusal
        known = self._cluster.coordinator.topics[name].partitions
        if count == known:
            return KafkaError(KafkaError.INVALID_PARTITIONS, f"Topic already has {known} partition(s).")
        if count < known:
            text = f"The topic {name} currently has {known} partition(s); {count} would not be an increase."
            return KafkaError(KafkaError.INVALID_PARTITIONS, text)
        if not is_dry:
            self._cluster.create_topic(name, count)
        return None

    def _unknown_topic(self, name: str) -> KafkaError | None:
        is_known = name in self._cluster.coordinator.topics
        return None if is_known else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    def describe_topics(  # type: ignore[override]  # the stub swaps the first two parameters of AdminClient
        self,
        topic_names: list[str],
        future: Future[list[_Result]],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        include_authorized_operations: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
    ) -> None:
        """Describe topics with their partitions."""
        operations = _TOPIC_OPERATIONS if include_authorized_operations else None
        with self._cluster.engine.exclusive():
            future.set_result([self._describe_topic(name, operations) for name in topic_names])

    def _describe_topic(self, name: str, operations: list[Any] | None) -> _Result:
        topic, node = self._cluster.coordinator.topics.get(name), self._node()
        if topic is None:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        partitions = [TopicPartitionInfo(number, node, [node], [node]) for number in range(topic.partitions)]
        high, low = (_signed(topic.topic_id.int >> shift & (1 << 64) - 1) for shift in (64, 0))
        return TopicDescription(
            name, Uuid(high, low), is_internal=False, partitions=partitions, authorized_operations=operations
        )

    # ---- the cluster ----

    def describe_cluster(
        self,
        future: Future[DescribeClusterResult],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        include_authorized_operations: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
    ) -> None:
        """Describe the cluster of one broker."""
        operations: list[Any] | None = [*_CLUSTER_OPERATIONS] if include_authorized_operations else None
        future.set_result(DescribeClusterResult(self._node(), [self._node()], self.cluster_id(), operations))

    def _node(self) -> Node:
        return Node(1, "fake", 9092)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:  # noqa: ARG002
        """Return the metadata of one topic; None: of all topics."""
        with self._cluster.engine.exclusive():
            return self._cluster.describe(topic)

    def cluster_id(self, timeout: float = -1) -> str:  # noqa: ARG002 - librdkafka's signature
        """Return the cluster's id."""
        return "fake-cluster"

    # ---- groups ----

    def list_consumer_groups(
        self,
        future: Future[ListConsumerGroupsResult],
        states_int: list[int] | None = None,
        types_int: list[int] | None = None,
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
    ) -> None:
        """List the groups in these states and of these types."""
        found: list[ConsumerGroupListing] = []
        with self._cluster.engine.exclusive():
            for group_id, group in sorted(self._cluster.coordinator.groups.items()):
                state, kind = _state_of(group), _type_of(group)
                if (not states_int or state.value in states_int) and (not types_int or kind.value in types_int):
                    found.append(ConsumerGroupListing(group_id, _is_simple(group), state, kind))
        future.set_result(ListConsumerGroupsResult(valid=found, errors=[]))

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        future: Future[list[_Result]],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        include_authorized_operations: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
    ) -> None:
        """Describe groups with their members; a group that does not exist is DEAD."""
        if len(set(group_ids)) < len(group_ids):
            future.set_exception(KafkaException(KafkaError(KafkaError._INVALID_ARG, "Duplicate groups not allowed")))
            return
        operations: list[Any] | None = [*_GROUP_OPERATIONS] if include_authorized_operations else None
        with self._cluster.engine.exclusive():
            future.set_result([self._describe_group(group_id, operations) for group_id in group_ids])

    def _describe_group(self, group_id: str, operations: list[Any] | None) -> ConsumerGroupDescription:
        group = self._cluster.coordinator.groups.get(group_id)
        return ConsumerGroupDescription(
            group_id,
            is_simple_consumer_group=_is_simple(group),
            members=list(self._members_of(group)),
            partition_assignor=_assignor_of(group),
            state=_state_of(group),
            coordinator=Node(self._cluster.coordinator.node_id, "fake", 9092),
            authorized_operations=operations,
            type=_type_of(group),
        )

    def _members_of(self, group: ConsumerGroup | ClassicGroup | None) -> Iterator[MemberDescription]:
        cluster = self._cluster
        match group:
            case ConsumerGroup():
                for one in group.members.values():
                    assigned = self._named(one.assigned)
                    target = self._named(group.target.get(one.member_id, frozenset()))
                    client_id = cluster.client_id_of(one.member_id)
                    yield MemberDescription(one.member_id, client_id, "/127.0.0.1", assigned, one.instance_id, target)
            case ClassicGroup():
                for classic in group.roster.members.values():
                    assigned = _assignment(classic.assignment or ())
                    client_id = cluster.client_id_of(classic.member_id)
                    yield MemberDescription(classic.member_id, client_id, "/127.0.0.1", assigned, classic.instance_id)
            case None:
                return

    def _named(self, partitions: Collection[TopicIdPartition]) -> MemberAssignment:
        names = {topic.topic_id: topic.name for topic in self._cluster.coordinator.topics.values()}
        known = [one for one in partitions if one.topic_id in names]
        return _assignment([TopicPartition(names[one.topic_id], one.partition) for one in known])

    def delete_consumer_groups(
        self,
        group_ids: list[str],
        future: Future[list[_Result]],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
    ) -> None:
        """Delete groups without members."""
        coordinator, results = self._cluster.coordinator, list[_Result]()
        with self._cluster.engine.exclusive():
            for group_id in group_ids:
                if group_id not in coordinator.groups:
                    results.append(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))
                elif coordinator.members(group_id):
                    results.append(KafkaError(KafkaError.NON_EMPTY_GROUP))
                else:
                    coordinator.delete_group(group_id)
                    results.append(None)
        future.set_result(results)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:  # noqa: ARG002
        """Return groups as an old broker describes them: consumer protocol groups are Dead. Deprecated."""
        advice = "list_groups() is deprecated, use list_consumer_groups() and describe_consumer_groups() instead."
        warn(advice, DeprecationWarning, stacklevel=3)  # as confluent-kafka
        groups = self._cluster.coordinator.groups
        with self._cluster.engine.exclusive():
            names = [name for name in sorted(groups) if group in (None, name)]
            return [self._metadata_of(name, groups[name]) for name in names]

    def _metadata_of(self, group_id: str, group: ConsumerGroup | ClassicGroup) -> GroupMetadata:
        found, broker = GroupMetadata(), BrokerMetadata()
        vars(broker).update(id=1, host="fake", port=9092)
        vars(found).update(broker=broker, id=group_id, state="Dead", protocol_type="", protocol="")
        if isinstance(group, ClassicGroup):
            kind = group.roster.protocol_type or ""
            vars(found).update(state=group.state.value, protocol_type=kind, protocol=group.assignor or "")
            for described_member in self._members_of(group):
                found.members.append(member := GroupMember())
                vars(member).update(id=described_member.member_id, client_id=described_member.client_id)
                vars(member).update(client_host=described_member.host, metadata=b"", assignment=b"")
        return found

    # ---- offsets ----

    def list_consumer_group_offsets(
        self,
        request: list[ConsumerGroupTopicPartitions],
        future: Future[list[_Result]],
        require_stable: bool = False,  # noqa: ARG002, FBT001, FBT002 - every committed offset is stable
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
    ) -> None:
        """Return the committed offsets of these partitions of each group; None: of all its partitions."""
        with self._cluster.engine.exclusive():
            future.set_result([self._committed(one.group_id, one.topic_partitions) for one in request])

    def _committed(self, group_id: str, wanted: list[PartitionOffset] | None) -> ConsumerGroupTopicPartitions:
        group = self._cluster.coordinator.groups.get(group_id)
        known: Mapping[TopicPartition, OffsetAndMetadata] = group.committed if group is not None else {}
        keys = [_key(one) for one in wanted] if wanted is not None else list(known)
        found = [_with_offset(key, known.get(key)) for key in sorted(keys)]
        return ConsumerGroupTopicPartitions(group_id, found)

    def alter_consumer_group_offsets(
        self,
        requests: list[ConsumerGroupTopicPartitions],
        future: Future[list[_Result]],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
    ) -> None:
        """Commit offsets of a group without members; other groups refuse them with UNKNOWN_MEMBER_ID."""
        with self._cluster.engine.exclusive():
            future.set_result([self._alter(one.group_id, one.topic_partitions or []) for one in requests])

    def _alter(self, group_id: str, wanted: list[PartitionOffset]) -> ConsumerGroupTopicPartitions:
        cluster = self._cluster
        offsets = {_key(one): OffsetAndMetadata(offset=one.offset, metadata=one.metadata or "") for one in wanted}
        answer = cluster.coordinator.answer(group_id, Commit(offsets=offsets), cluster.engine.now())
        codes = answer.codes if isinstance(answer, CommitResults) else {}
        found: list[PartitionOffset] = []
        for key, at in sorted(offsets.items()):
            if codes.get(key, 0):
                failed = FailedPartition(*key, at.offset)
                failed.set_error(KafkaError(codes[key]))
                found.append(failed)
            else:
                found.append(_with_offset(key, at))
        return ConsumerGroupTopicPartitions(group_id, found)

    def list_offsets(
        self,
        topic_partitions: list[PartitionOffset],
        future: Future[dict[PartitionOffset, _Result]],
        isolation_level_value: int | None = None,  # noqa: ARG002 - the log has no uncommitted records
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
    ) -> None:
        """Return the first or next offset of each partition, or the first offset at or after a timestamp."""
        with self._cluster.engine.exclusive():
            future.set_result({one: self._offset(_key(one), one.offset) for one in topic_partitions})

    def _offset(self, partition: TopicPartition, wanted: int) -> _Result:
        log = self._cluster.log
        if partition not in log:
            return KafkaError(_NO_ENTRY, "Failed to query partition leaders: No leaders found")
        match wanted:
            case int() if wanted == OFFSET_SPEC_EARLIEST:
                return ListOffsetsResultInfo(0, -1, 0)
            case int() if wanted == OFFSET_SPEC_LATEST:
                return ListOffsetsResultInfo(log.end(partition), -1, 0)
            case int() if wanted == OFFSET_SPEC_MAX_TIMESTAMP:
                stamps = [(message.timestamp()[1], -(message.offset() or 0)) for message in log.messages([partition])]
                stamp, negative = max(stamps, default=(-1, 1))
                return ListOffsetsResultInfo(-negative, stamp, 0 if stamps else -1)
            case _:
                found = log.at_time(partition, wanted)
                if found is None:
                    return ListOffsetsResultInfo(-1, -1, -1)
                (message,), _ = log.read(partition, found, 1)
                return ListOffsetsResultInfo(found, message.timestamp()[1], 0)

    # ---- configurations ----

    def describe_configs(
        self,
        resources: list[ConfigResource],
        future: Future[dict[ConfigResource, dict[str, ConfigEntry] | None]],
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        broker: int = -1,  # noqa: ARG002 - the cluster has one broker
    ) -> None:
        """Return the configuration entries of topics."""
        _refuse_empty(resources, "ConfigResource objects")
        configs = self._cluster.topic_configs
        with self._cluster.engine.exclusive():
            future.set_result(
                {
                    one: None if one.error is not None else described(configs.get(one.name, {}))
                    for one in map(self._checked, resources)
                }
            )

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        future: Future[dict[ConfigResource, None]],
        validate_only: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        broker: int = -1,  # noqa: ARG002 - the cluster has one broker
    ) -> None:
        """Change some configuration values of topics and keep the other values."""
        if [one for one in resources if not one.incremental_configs]:
            what = "non-empty list of ConfigEntry to alter incrementally in incremental_configs field"
            raise ValueError(f"expected {what}")
        known = self._cluster.topic_configs
        self._change(
            resources,
            future,
            lambda one: altered(known.get(one.name, {}), one.incremental_configs),
            is_dry=validate_only,
        )

    def alter_configs(
        self,
        resources: list[ConfigResource],
        future: Future[dict[ConfigResource, None]],
        validate_only: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        request_timeout: float = -1,  # noqa: ARG002 - the result is available immediately
        broker: int = -1,  # noqa: ARG002 - the cluster has one broker
    ) -> None:
        """Replace all configuration values of topics."""
        self._change(resources, future, lambda one: dict(one.set_config_dict), is_dry=validate_only)

    def _change(
        self,
        resources: list[ConfigResource],
        future: Future[dict[ConfigResource, None]],
        values_of: Callable[[ConfigResource], dict[str, str]],
        *,
        is_dry: bool,
    ) -> None:
        _refuse_empty(resources, "ConfigResource objects")
        results: dict[ConfigResource, None] = {}
        with self._cluster.engine.exclusive():
            for given in resources:
                checked, values = self._checked(given), values_of(given)
                checked.error = checked.error or refusal_of(values)
                if checked.error is None and not is_dry:
                    self._cluster.topic_configs[given.name] = values
                results[checked] = None
        future.set_result(results)

    def _checked(self, resource: ConfigResource) -> ConfigResource:
        """Return a copy of the resource, with an error unless it is an existing topic."""
        error: KafkaError | None
        if resource.restype != ConfigResource.Type.TOPIC:
            error = KafkaError(KafkaError.INVALID_REQUEST, "FakeCluster has only configurations of topics")
        else:
            error = self._unknown_topic(resource.name)
        return ConfigResource(resource.restype, resource.name, error=error)

    # ---- the client ----

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002 - no call has to wait
        """Return 0, because no events are queued."""
        return 0

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Accept any credentials."""

    def __enter__(self) -> Any:  # noqa: ANN401 - a subclass, which type checkers do not see here
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    # ---- unsupported methods ----

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise UseError("FakeCluster has no ACLs, users, deleted records or elections; test this call on a real broker")

    create_acls = describe_acls = delete_acls = _refuse
    describe_user_scram_credentials = alter_user_scram_credentials = _refuse
    delete_records = elect_leaders = _refuse


# ---- installation ----

#: The installed clusters by `bootstrap.servers`: each `AdminClient` with these servers uses the cluster.
_INSTALLED: dict[str, AdminTarget] = {}


class FakeAdminClient(AdminClient, InProcessAdmin):  # type: ignore[misc]  # AdminClient and its base class conflict in the same way
    """An `AdminClient` of a `FakeCluster`, with confluent-kafka's methods, arguments and results."""


def admin_client(cluster: AdminTarget, config: Mapping[str, object]) -> FakeAdminClient:
    """Return an admin client of this cluster.

    Raises:
        KafkaException: librdkafka refuses the configuration.
    """
    made = _new(FakeAdminClient, cluster)
    made.__init__(dict(config))  # type: ignore[misc]  # `_new` does not call it
    return made


@contextmanager
def installed_admin(cluster: AdminTarget) -> Iterator[None]:
    """Route each `AdminClient` with this cluster's `bootstrap.servers` to the cluster, inside the `with` block.

    `AdminClient.__new__` chooses the cluster, so it does not matter how a module has imported the class.
    """
    if not _INSTALLED:
        AdminClient.__new__ = _routed_new  # type: ignore[assignment, method-assign]
    _INSTALLED[cluster.bootstrap_servers] = cluster
    try:
        yield
    finally:
        del _INSTALLED[cluster.bootstrap_servers]
        if not _INSTALLED:
            del AdminClient.__new__


def _routed_new(cls: type[AdminT], conf: Mapping[str, object] | None = None, **kwargs: object) -> AdminT:
    """Create the object for its cluster or for a real broker; Python calls `__init__` next."""
    servers = {**(conf or {}), **kwargs}.get("bootstrap.servers")
    cluster = _INSTALLED.get(str(servers))
    return _AdminClientImpl.__new__(cls) if cluster is None else _new(_fake_of(cls), cluster)


def _new(cls: type[AdminT], cluster: AdminTarget) -> AdminT:
    made = _AdminClientImpl.__new__(cls)
    vars(made)["_cluster"] = cluster
    return made


def _fake_of(cls: type[AdminT]) -> type[AdminT]:
    """Return a subclass of an application's class whose calls go to the cluster."""
    if cls is AdminClient:
        return FakeAdminClient  # type: ignore[return-value]
    return type(cls.__name__, (cls, InProcessAdmin), {})


@lru_cache(maxsize=64)
def _check(config: tuple[tuple[str, str], ...]) -> None:
    """Check the keys and values with librdkafka, once for each configuration and without a connection."""
    checking = _AdminClientImpl.__new__(AdminClient)
    quiet = {"log_level": "0"}  # librdkafka warns of missing servers
    checking.__init__(quiet | {key: value for key, value in config if key not in _NOT_CHECKED})  # type: ignore[misc]


# ---- parts of results ----


def _refuse_empty(given: Collection[object], what: str) -> None:
    if not given:
        raise ValueError(f"Expected non-empty list of {what}")


def _name_refusal(name: str) -> KafkaError | None:
    if not name:
        problem = "the empty string is not allowed"
    elif name in {".", ".."}:
        problem = f"'{name}' is not allowed"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return KafkaError(KafkaError.TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def _state_of(group: ConsumerGroup | ClassicGroup | None) -> ConsumerGroupState:
    match group:
        case ConsumerGroup() if not group.members:
            return ConsumerGroupState.EMPTY
        case ConsumerGroup():
            # librdkafka has no names for ASSIGNING and RECONCILING.
            return ConsumerGroupState.STABLE if group.is_settled else ConsumerGroupState.UNKNOWN
        case ClassicGroup():
            return _CLASSIC_STATES[group.state]
        case None:
            return ConsumerGroupState.DEAD


def _type_of(group: ConsumerGroup | ClassicGroup | None) -> ConsumerGroupType:
    return ConsumerGroupType.CONSUMER if isinstance(group, ConsumerGroup) else ConsumerGroupType.CLASSIC


def _is_simple(group: ConsumerGroup | ClassicGroup | None) -> bool:
    """Whether no member has ever joined the group."""
    return not isinstance(group, ConsumerGroup) and (group is None or not group.roster.protocol_type)


def _assignor_of(group: ConsumerGroup | ClassicGroup | None) -> str:
    match group:
        case ConsumerGroup():
            return group.assignor
        case ClassicGroup():
            return group.assignor or ""
        case None:
            return ""


def _assignment(partitions: Collection[TopicPartition]) -> MemberAssignment:
    return MemberAssignment([PartitionOffset(*partition) for partition in sorted(partitions)])


def _with_offset(partition: TopicPartition, at: OffsetAndMetadata | None) -> PartitionOffset:
    return placed(PartitionOffset, partition, at)


def _key(partition: PartitionOffset) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _signed(number: int) -> int:
    """Return a 64-bit number as a signed number, like Java's `long`."""
    return number - (1 << 64) if number >> 63 else number
