# This module uses `Any`, because entities of many versions share no type.
"""The simulated coordinator behind a real TCP port, so that real clients can send requests to it.

`CoordinatorScript` is a script for `ScriptedBroker`. A test may install faults, which are called before the
coordinator. The first result of a fault that is not None is sent instead of the coordinator's response.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from kio.schema.errors import ErrorCode

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.exchanges import Commit, Describe, Fetch
from consumer_membership.testing.coordinators.rules import Refused, Rules
from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition
from tests.support.scripted_broker import NEWEST, Answer, Received, ScriptedBroker, Topic

#: One version of each group API, so that the script need not support several versions.
VERSIONS: Mapping[int, tuple[int, int]] = {
    **NEWEST,
    2: (7, 7),
    8: (9, 9),
    9: (9, 9),
    32: (4, 4),
    68: (1, 1),
    69: (1, 1),
}
HEARTBEAT, OFFSET_COMMIT, OFFSET_FETCH, LIST_OFFSETS, DESCRIBE_CONFIGS, DESCRIBE = 68, 8, 9, 2, 32, 69
NOTHING = timedelta(0)

Fault = Callable[[Received], Answer]


class CoordinatorScript:
    """Responds to heartbeats, commits and offset requests as the simulated coordinator does, with the real clock."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.coordinator = ConsumerCoordinator(rules or Rules(session_timeout_s=45.0, heartbeat_interval_s=0.2))
        self.faults: list[Fault] = []
        self._lock = threading.Lock()

    def __call__(self, request: Received) -> Answer:
        """Return the response to one request."""
        handlers = {
            HEARTBEAT: self._heartbeat,
            OFFSET_COMMIT: self._commit,
            OFFSET_FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            DESCRIBE: self._describe,
            DESCRIBE_CONFIGS: self._describe_configs,
        }
        with self._lock:
            # A fault that only loses or changes the coordinator's response calls `answer`.
            for fault in tuple(self.faults):
                answer = fault(request)
                if answer is not None:
                    return answer
            return handlers[request.api_key](request) if request.api_key in handlers else None

    def answer(self, request: Received) -> Answer:
        """Return the coordinator's response to this heartbeat or commit, for faults that only change the response."""
        return self._heartbeat(request) if request.api_key == HEARTBEAT else self._commit(request)

    def once(self, api_key: int, outcome: Callable[[Received], Answer]) -> None:
        """Apply this fault to the next request of this API only."""

        def fault(request: Received) -> Answer:
            if request.api_key != api_key:
                return None
            self.faults.remove(fault)
            return outcome(request)

        self.faults.append(fault)

    def create_topic(self, broker: ScriptedBroker, name: str, partitions: int) -> None:
        """Create a topic in the coordinator and in the broker's metadata."""
        topic_id = uuid4()
        with self._lock:
            self.coordinator.create_topic(name, partitions, topic_id)
        broker.topics[name] = Topic(topic_id=topic_id, leaders=[1] * partitions)

    def forget_group(self, group_id: str) -> None:
        """Delete a group with its members."""
        with self._lock:
            del self.coordinator.groups[group_id]

    def remove_member(self, group_id: str, member_id: str) -> None:
        """Remove a member, as an administrator can."""
        with self._lock:
            self.coordinator.expel(group_id, member_id, time.monotonic())

    def move(self, broker: ScriptedBroker, node_id: int, loading_s: float) -> None:
        """Make another node the coordinator."""
        with self._lock:
            self.coordinator.move(node_id, time.monotonic(), loading_s)
        broker.coordinator = node_id

    def _heartbeat(self, request: Received) -> Answer:
        entity, now = request.entity, time.monotonic()
        self.coordinator.pass_time(now)
        heartbeat = Heartbeat(
            member_id=entity.member_id,
            member_epoch=entity.member_epoch,
            instance_id=entity.instance_id,
            rack_id=entity.rack_id,
            rebalance_timeout_s=_seconds(entity.rebalance_timeout),
            topics=entity.subscribed_topic_names,
            pattern=entity.subscribed_topic_regex,
            assignor=entity.server_assignor,
            owned=_partitions(entity.topic_partitions),
        )
        result: Any = self.coordinator.answer(entity.group_id, heartbeat, now, node_id=request.node_id)
        if isinstance(result, Refused):
            return request.response(
                throttle_time=NOTHING,
                error_code=ErrorCode(result.code),
                error_message=result.message or None,
                member_id=None,
                member_epoch=0,
                heartbeat_interval=NOTHING,
            )
        module: Any = sys.modules[request.response.__module__]
        assignment = None
        if result.assignment is not None:
            by_topic: dict[UUID, list[int]] = {}
            for partition in sorted(result.assignment):
                by_topic.setdefault(partition.topic_id, []).append(partition.partition)
            assignment = module.Assignment(
                topic_partitions=tuple(
                    module.TopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
                    for topic_id, numbers in by_topic.items()
                )
            )
        return request.response(
            throttle_time=NOTHING,
            error_code=ErrorCode.none,
            member_id=entity.member_id,
            member_epoch=result.member_epoch,
            heartbeat_interval=timedelta(seconds=result.heartbeat_interval_s),
            assignment=assignment,
        )

    def _describe(self, request: Received) -> Answer:
        module: Any = sys.modules[request.response.__module__]
        (group_id,) = request.entity.group_ids
        found: Any = self.coordinator.answer(group_id, Describe(), time.monotonic(), node_id=request.node_id)
        nothing = module.Assignment(topic_partitions=())
        members = () if isinstance(found, Refused) else found.holders.items()
        group = module.DescribedGroup(
            error_code=ErrorCode(found.code) if isinstance(found, Refused) else ErrorCode.none,
            group_id=group_id,
            group_state="Stable",
            group_epoch=1,
            assignment_epoch=1,
            assignor_name="uniform",
            members=tuple(
                module.Member(
                    member_id=holder.member_id,
                    instance_id=instance_id,
                    member_epoch=holder.member_epoch,
                    client_id=holder.client_id,
                    client_host=f"/{holder.host}",
                    assignment=nothing,
                    target_assignment=nothing,
                )
                for instance_id, holder in members
            ),
        )
        return request.response(throttle_time=NOTHING, groups=(group,))

    def _describe_configs(self, request: Received) -> Answer:
        module: Any = sys.modules[request.response.__module__]
        (resource,) = request.entity.resources
        setting = module.DescribeConfigsResourceResult(
            name="consumer.session.timeout.ms",
            value=str(round(self.coordinator.rules.session_timeout_s * 1000)),
            read_only=False,
            is_sensitive=False,
            synonyms=(),
            documentation=None,
        )
        result = module.DescribeConfigsResult(
            error_code=ErrorCode.none,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(setting,),
        )
        return request.response(throttle_time=NOTHING, results=(result,))

    def _commit(self, request: Received) -> Answer:
        entity = request.entity
        offsets = {
            TopicPartition(topic.name, p.partition_index): OffsetAndMetadata(offset=p.committed_offset)
            for topic in entity.topics
            for p in topic.partitions
        }
        epoch = entity.generation_id_or_member_epoch
        commit = Commit(member_id=entity.member_id, generation=epoch, offsets=offsets)
        result: Any = self.coordinator.answer(entity.group_id, commit, time.monotonic(), node_id=request.node_id)
        errors = result.codes
        module: Any = sys.modules[request.response.__module__]
        return request.response(
            throttle_time=NOTHING,
            topics=tuple(
                module.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        module.OffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=ErrorCode(errors[TopicPartition(topic.name, p.partition_index)]),
                        )
                        for p in topic.partitions
                    ),
                )
                for topic in entity.topics
            ),
        )

    def _fetch(self, request: Received) -> Answer:
        module: Any = sys.modules[request.response.__module__]
        (group,) = request.entity.groups
        partitions = frozenset(
            TopicPartition(topic.name, index) for topic in group.topics for index in topic.partition_indexes
        )
        fetch = Fetch(member_id=group.member_id, member_epoch=group.member_epoch, partitions=partitions)
        found: Any = self.coordinator.answer(group.group_id, fetch, time.monotonic(), node_id=request.node_id)
        if isinstance(found, Refused):
            refused = module.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=(), error_code=ErrorCode(found.code)
            )
            return request.response(throttle_time=NOTHING, groups=(refused,))
        topics = tuple(
            module.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=tuple(
                    module.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=at.offset if (at := found.offsets[TopicPartition(topic.name, index)]) else -1,
                        metadata="",
                        error_code=ErrorCode.none,
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in group.topics
        )
        answer = module.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
        return request.response(throttle_time=NOTHING, groups=(answer,))

    def _list_offsets(self, request: Received) -> Answer:
        module: Any = sys.modules[request.response.__module__]
        return request.response(
            throttle_time=NOTHING,
            topics=tuple(
                module.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        module.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, error_code=ErrorCode.none, offset=0
                        )
                        for p in topic.partitions
                    ),
                )
                for topic in request.entity.topics
            ),
        )


def _seconds(timeout: timedelta) -> float | None:
    seconds = timeout.total_seconds()
    return seconds if seconds >= 0 else None


def _partitions(topics: Any) -> frozenset[TopicIdPartition] | None:
    if topics is None:
        return None
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)
