"""`CheckpointFolder`: move a stopped query between its checkpoint, a group, and Spark's own Kafka source.

The checkpoint has the progress of a query, and Kafka has the members of a group. A move needs a stopped query. A
`kafka-group` query is a member of its group while it runs, and leaves it a moment after `stop()`. Spark's own Kafka
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
#: GROUP_ID_NOT_FOUND: the group has neither members nor offsets.
_NO_SUCH_GROUP = 69
#: The member of a query that was just stopped leaves within this time; otherwise the query still runs.
_LEAVING_S, _LEAVING_POLL_S = 3.0, 0.1
#: For this long after a write, a query of Spark's own source may still run.
_QUIET_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """The result of `to_group`.

    Attributes:
        batch_id: The last finished batch of the query; None if no batch is finished.
        before: The committed offsets of the group before the move.
        offsets: The offsets that were committed; with `execute=False`, the offsets that would be committed.
    """

    batch_id: int | None
    before: OffsetsByPartition
    offsets: OffsetsByPartition


class CheckpointFolder:
    """The checkpoint of a streaming query at `path`.

    With a classic `spark` session, `path` can be on each file system of the session (`hdfs://`, `s3a://`, `abfss://`,
    ...). Without a session, it is a local folder.

    Each move raises ConfigurationError if the query runs. With `execute=False`, a move makes all checks and returns the
    result, but writes nothing. `config` is the configuration of a `Consumer`: `bootstrap.servers` and the keys that
    connections need.

    Raises:
        ConfigurationError: the path needs a session, or the session does not have its file system.
    """

    def __init__(self, path: str, spark: SparkSession | None = None) -> None:
        self._path = path
        self._spark = spark
        self._folder = folder_of(path, spark)

    def read(self) -> Checkpoint:
        """Read the position of the query.

        Raises:
            ConfigurationError: the folder is not a checkpoint, or one of its files is damaged; the text names the file.
        """
        return read_checkpoint(self._folder)

    def to_group(
        self, config: Mapping[str, object], group: str, *, source: int | None = None, execute: bool = True
    ) -> GroupMove:
        """Commit the offsets of the last finished batch to a group without members.

        `source` is the number of the source, from 0; it is required if the query has several Kafka sources.

        Raises:
            ConfigurationError: as `read`; or the query runs, or the group has members.
            GroupError, TransportError: the coordinator refused the commit, or no broker responded.
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
        """Create a checkpoint from which a query with one source continues at the group's committed offsets.

        Raises:
            ConfigurationError: the folder is not empty, or the group has members or no committed offsets.
            GroupError, TransportError: an ACL is missing, or no broker responded.
        """
        admin = GroupAdmin(config)
        offsets = _committed(admin, group)
        _refuse_members(admin, group)
        if not offsets:
            remedy = "the group has no committed offsets; check the spelling and bootstrap.servers"
            raise ConfigurationError("group", group, remedy)
        refuse_existing(self._folder)
        if execute:
            write_checkpoint(self._folder, offsets)
        return offsets

    def to_kafka(self, config: Mapping[str, object], *, execute: bool = True) -> tuple[int, ...]:
        """Rewrite the offset log in place, so that the query continues with `format("kafka")` and keeps its state.

        The previous log stays in the folder `offsets-kafka-group`. A call that was interrupted can be repeated, and a
        repeated call changes nothing. `format("kafka-group")` also continues from the rewritten log.

        Returns:
            The batches whose offsets were rewritten; empty if the log has no offsets of `kafka-group`.

        Raises:
            ConfigurationError: as `read`; or the query's group has members.
            GroupError, TransportError: an ACL is missing, or no broker responded.
        """
        self.read()
        batches = group_batches(self._folder)
        admin = GroupAdmin(config)
        for group in sorted({group for batch in batches for group in batch.groups}):
            self._refuse_running(admin, group)
        if execute:
            # The newest batch last: until then, spark-sql-kafka rejects the log, and never reads half of it.
            for batch in batches:
                rewrite(self._folder, batch)
        return tuple(batch.batch_id for batch in batches)

    def _refuse_running(self, admin: GroupAdmin, group: str) -> None:
        """Raise ConfigurationError if the group has members after the time that a stopped query needs to leave."""
        leaving = Retrying(
            stop=stop_after_delay(_LEAVING_S),
            wait=wait_fixed(_LEAVING_POLL_S),
            retry=retry_if_result(bool),
            retry_error_callback=lambda last: last.outcome.result() if last.outcome is not None else "",
        )
        if members := leaving(_members, admin, group):
            remedy = (
                f"its query runs: group {group!r} has {members}; stop the query first (the member of a killed query "
                "leaves when its session ends)"
            )
            raise ConfigurationError("path", self._path, remedy)

    def _refuse_writing(self, found: Checkpoint) -> None:
        """Raise ConfigurationError if a query of Spark's own source runs in this session, or has just written."""
        running = self._spark.streams.active if self._spark is not None else []
        if found.query_id is not None and found.query_id in {str(each.id) for each in running}:
            raise ConfigurationError("path", self._path, f"query {found.query_id} runs in this session; stop it first")
        if found.age_s < _QUIET_S:
            remedy = (
                f"it was written to {found.age_s:.1f} s ago, and a checkpoint of spark-sql-kafka does not show whether "
                f"its query runs; stop the query, and try again in {ceil(_QUIET_S - found.age_s)} s"
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
            raise TransportError(f"{topic}[{number}]: the committed offset could not be read: {at}")
        if at.offset >= 0:
            committed[topic, number] = at.offset
    return committed


def _refuse_members(admin: GroupAdmin, group: str) -> None:
    """Raise ConfigurationError for a group with members: they continue from their own positions, not from a commit."""
    if members := _members(admin, group):
        raise ConfigurationError("group", group, f"the group has {members}; stop them first")


def _members(admin: GroupAdmin, group: str) -> str:
    """Return the number of members and the name of one member; empty if there are no members."""
    try:
        members = admin.describe(group, with_offsets=False).group.members
    except GroupError as refused:
        if refused.code == _NO_SUCH_GROUP:
            return ""
        raise
    if not members:
        return ""
    count = f"{len(members)} member{'' if len(members) == 1 else 's'}"
    return f"{count}, such as {members[0].instance_id or members[0].member_id} on {members[0].host}"


def _commit(config: Mapping[str, object], group: str, offsets: OffsetsByPartition) -> None:
    from confluent_kafka.admin import AdminClient  # slow to import

    cluster = ConsumerConfig.from_mapping({**config, "group.id": group}).with_servers().cluster_config()
    client = AdminClient(cast("dict[str, str | int | float | bool]", cluster))
    wanted = [TopicPartition(*partition, offset) for partition, offset in sorted(offsets.items())]
    responses = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=_TIMEOUT_S
    )
    try:
        done = responses[group].result()
    except KafkaException as failed:
        raise GroupError(f"group {group!r}: {failed.args[0].str()}", failed.args[0].code()) from failed
    for each in done.topic_partitions:
        if each.error is not None:
            raise GroupError(f"{each.topic}[{each.partition}]: {each.error.str()}", each.error.code())
