"""`CheckpointFolder`: move a stopped query between its checkpoint, a group, and Spark's own Kafka source.

The checkpoint says what a query has done, and Kafka which members are in a group. A move needs a query that is stopped:
a `kafka-group` query is a member of its group while it runs, and leaves it a moment after `stop()`. Spark's own Kafka
source joins no group, locks nothing and keeps no file open, so only recent writes show that its query may run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from consumer_membership.admin import GroupAdmin
from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError, GroupError, TransportError
from consumer_membership.spark.checkpoint import (
    Checkpoint,
    group_batches,
    read_checkpoint,
    refuse_existing,
    rewrite,
    write_checkpoint,
)
from consumer_membership.spark.folders import folder_of
from consumer_membership.spark.source.offsets import OffsetsByPartition
from consumer_membership.types import OffsetAndMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_S = 30.0
#: GROUP_ID_NOT_FOUND: it has neither members nor offsets.
_NO_SUCH_GROUP = 69
#: The member of a query that was just stopped leaves within this time, or it is not stopped.
_LEAVING_S, _LEAVING_POLL_S = 3.0, 0.1
#: After a write, a query of Spark's own source may still be running.
_QUIET_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """What `to_group` commits: the offsets of the last finished batch, and what the group had committed before."""

    batch_id: int | None
    before: OffsetsByPartition
    offsets: OffsetsByPartition


class CheckpointFolder:
    """The checkpoint of a streaming query at `path`.

    With a classic `spark` session every file system of the session works (`hdfs://`, `s3a://`, `abfss://`, ...);
    without one, local folders.

    Each move refuses a query that runs. With `execute=False` it makes all checks and returns the same, and writes
    nothing. `config` is that of a `Consumer`: `bootstrap.servers` and what connections need.

    Raises:
        ConfigurationError: the path needs a session, or the session has no such file system.
    """

    def __init__(self, path: str, spark: SparkSession | None = None) -> None:
        self._path = path
        self._spark = spark
        self._folder = folder_of(path, spark)

    def read(self) -> Checkpoint:
        """Read where the query is.

        Raises:
            ConfigurationError: it is no checkpoint, or a file in it cannot be read; the text names the file.
        """
        return read_checkpoint(self._folder)

    def to_group(
        self, config: Mapping[str, object], group: str, *, source: int | None = None, execute: bool = True
    ) -> GroupMove:
        """Commit the offsets of the last finished batch to a group without members.

        `source` is the number of the source, from 0, where the query has several.

        Raises:
            ConfigurationError: as `read`; the query runs; the group has members.
            GroupError, TransportError: the group refused the commit, or no broker answered.
        """
        found = self.read()
        chosen = found.kafka_source(source)
        offsets = chosen.offsets or {}
        admin = GroupAdmin(config)
        before = _committed(admin, group)
        _refuse_members(admin, group)
        if chosen.group is not None:
            self._refuse_running(admin, chosen.group)
        else:
            self._refuse_writing(found)
        if execute:
            _commit(config, group, offsets)
        return GroupMove(batch_id=found.batch_id, before=before, offsets=offsets)

    def from_group(self, config: Mapping[str, object], group: str, *, execute: bool = True) -> OffsetsByPartition:
        """Make a new checkpoint, from which a query with one source goes on where the group is.

        Raises:
            ConfigurationError: the place is not empty; the group has members, or has committed nothing.
            GroupError, TransportError: a right is missing, or no broker answered.
        """
        admin = GroupAdmin(config)
        offsets = _committed(admin, group)
        _refuse_members(admin, group)
        if not offsets:
            remedy = "it has committed nothing; check the spelling and bootstrap.servers"
            raise ConfigurationError("group", group, remedy)
        refuse_existing(self._folder)
        if execute:
            write_checkpoint(self._folder, offsets)
        return offsets

    def to_kafka(self, config: Mapping[str, object], *, execute: bool = True) -> tuple[int, ...]:
        """Rewrite the offset log in place, so that the query goes on with `format("kafka")`, with its state.

        The previous log stays in the folder `offsets-kafka-group`. A call that was interrupted can be repeated, and a
        repeated call changes nothing. `format("kafka-group")` also continues from the rewritten log.

        Returns:
            The batches whose offsets were rewritten; empty if the log has no offsets of `kafka-group`.

        Raises:
            ConfigurationError: as `read`; the query's group has members.
            GroupError, TransportError: a right is missing, or no broker answered.
        """
        self.read()
        batches = group_batches(self._folder)
        admin = GroupAdmin(config)
        for group in sorted({group for batch in batches for group in batch.groups}):
            self._refuse_running(admin, group)
        if execute:
            # The newest batch last: until then spark-sql-kafka refuses the log, and never reads half of it.
            for batch in batches:
                rewrite(self._folder, batch)
        return tuple(batch.batch_id for batch in batches)

    def _refuse_running(self, admin: GroupAdmin, group: str) -> None:
        """Refuse a group with members; the member of a query leaves a moment after `stop()` has returned."""
        leaving = Retrying(
            stop=stop_after_delay(_LEAVING_S),
            wait=wait_fixed(_LEAVING_POLL_S),
            retry=retry_if_result(bool),
            retry_error_callback=lambda last: last.outcome.result() if last.outcome is not None else "",
        )
        if members := leaving(_members, admin, group):
            remedy = (
                f"its query runs: its group {group!r} has {members}; stop it first (the member of a query that was "
                "killed leaves when its session ends)"
            )
            raise ConfigurationError("path", self._path, remedy)

    def _refuse_writing(self, found: Checkpoint) -> None:
        """Of a query of Spark's own source: refuse one that this session runs, and a folder with recent writes."""
        running = self._spark.streams.active if self._spark is not None else []
        if found.query_id is not None and found.query_id in {str(each.id) for each in running}:
            raise ConfigurationError("path", self._path, f"query {found.query_id} runs in this session; stop it first")
        if found.age_s < _QUIET_S:
            remedy = (
                f"it was written to {found.age_s:.1f} s ago, and the folder of a query of spark-sql-kafka does not "
                f"show whether the query runs; stop it, and try again in {ceil(_QUIET_S - found.age_s)} s"
            )
            raise ConfigurationError("path", self._path, remedy)


def _committed(admin: GroupAdmin, group: str) -> OffsetsByPartition:
    try:
        found = admin.committed(group)
    except GroupError as refused:
        if refused.code == _NO_SUCH_GROUP:
            return {}
        raise
    committed: dict[tuple[str, int], int] = {}
    for (topic, number), at in found.items():
        if not isinstance(at, OffsetAndMetadata):
            raise TransportError(f"{topic}[{number}]: no committed offset: {at}")
        if at.offset >= 0:
            committed[topic, number] = at.offset
    return committed


def _refuse_members(admin: GroupAdmin, group: str) -> None:
    """A group with members goes on from where they are, whatever is committed from outside."""
    if members := _members(admin, group):
        raise ConfigurationError("group", group, f"it has {members}; stop them")


def _members(admin: GroupAdmin, group: str) -> str:
    """The number of members and the name of one; empty if there are none."""
    try:
        members = admin.describe(group, with_offsets=False).group.members
    except GroupError as refused:
        if refused.code == _NO_SUCH_GROUP:
            return ""
        raise
    if not members:
        return ""
    return f"{len(members)} members, such as {members[0].instance_id or members[0].member_id} on {members[0].host}"


def _commit(config: Mapping[str, object], group: str, offsets: OffsetsByPartition) -> None:
    from confluent_kafka.admin import AdminClient  # slow to import

    cluster = ConsumerConfig.from_mapping({**config, "group.id": group}).with_servers().cluster_config()
    client = AdminClient(cast("dict[str, str | int | float | bool]", cluster))
    wanted = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
    asked = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=_TIMEOUT_S
    )
    try:
        done = asked[group].result()
    except KafkaException as failed:
        raise GroupError(f"group {group!r}: {failed.args[0].str()}", failed.args[0].code()) from failed
    for each in done.topic_partitions:
        if each.error is not None:
            raise GroupError(f"{each.topic}[{each.partition}]: {each.error.str()}", each.error.code())
