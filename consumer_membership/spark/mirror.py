"""`OffsetMirror`: commit the progress of a Structured Streaming query to a group, for the usual Kafka tools.

Spark's Kafka source commits no group offsets; its progress is only in the checkpoint. The mirror listens to the query's
progress and commits the end of each finished batch to a group. A member that reads nothing owns the group's partitions,
so the group is Stable, has a host, and no other consumer reads in it by mistake. The query still starts from its
checkpoint. Committed offsets are never ahead of the checkpoint, and follow it by a moment.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.clients.consumer import Consumer
from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError, MembershipError
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.spark.arguments import check_config, context_of
from consumer_membership.spark.query_listener import progress_listener, remove_listener
from consumer_membership.types import CONFLICT_CODE, GROUP_NOT_FOUND_CODE, UNSUPPORTED_VERSION_CODE, BrokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_LOG = logging.getLogger("consumer_membership.spark.mirror")

#: The interval at which a member polls and checks for offsets to commit.
_POLL_S = 0.2
#: After a change of the subscription, the assignment is complete within this many heartbeats.
_HEARTBEATS = 4
#: How long the last offsets are retried when a query ends, or the mirror is closed.
_LEAVE_S = 30.0

#: The characters that the Java client does not allow in an instance id.
_NO_NAME = re.compile(r"[^a-zA-Z0-9._-]")

#: By topic and partition, the offset up to which a query has read everything.
BatchEnds = Mapping[tuple[str, int], int]

_MINE = ("group.id", "group.instance.id", "group.instance.id.pool", "group.instance.id.conflict.policy")
_OWNED = dict.fromkeys(_MINE, "the mirror sets it; leave it out")

#: The remedies if the mirror cannot join its group; those for a consumer would change keys that the mirror sets itself.
_OTHER_GROUP = (
    "the mirror uses the consumer protocol: give the query its own group in group_ids, or stop the members of this "
    "group"
)
_REMEDIES: Mapping[int, str] = {
    UNSUPPORTED_VERSION_CODE: "the mirror uses that protocol: use Apache Kafka 4.0 or later, with the "
    "feature group.version at 1 (kafka-features upgrade --feature group.version=1) and 'consumer' among the broker's "
    "group.coordinator.rebalance.protocols; without it, `consumer-membership checkpoint show` prints the offsets of a "
    "query",
    GROUP_NOT_FOUND_CODE: _OTHER_GROUP,
    CONFLICT_CODE: _OTHER_GROUP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorState:
    """The progress of the mirror for one query.

    Attributes:
        group_id: The group.
        batch_id: The last batch whose end is committed; None if no batch is committed yet.
        committed: The committed offsets by (topic, partition).
        error: The error that stops the mirror; None if there is none.
        others: Whether another member owns partitions of the group.
    """

    group_id: str
    batch_id: int | None = None
    committed: BatchEnds = field(default_factory=dict)
    error: str | None = None
    others: bool = False


class OffsetMirror:
    """Commits the progress of queries of a session to groups; a context manager.

        mirror = OffsetMirror(spark, group_ids={"orders-to-lake": "orders-lake"}, config={"bootstrap.servers": "..."})

    Args:
        spark: The session. Running queries are mirrored from their next batch on.
        group_ids: The group of each query, by the query's name (`queryName`) or id.
        config: The configuration for connections to the brokers, as for `Consumer`; environment variables set missing
            keys.

    Raises:
        ConfigurationError: an argument is wrong; the text names the parameter, its value and the fix.
    """

    def __init__(
        self, spark: SparkSession, *, group_ids: Mapping[str, str], config: Mapping[str, object] | None = None
    ) -> None:
        context_of(spark)
        check_config(config or {}, owned=_OWNED)
        self._groups = {query: _MirroredGroup(query, group, config or {}) for query, group in _checked(group_ids)}
        self._spark = spark
        self._listener = progress_listener(self._progressed)
        spark.streams.addListener(self._listener)

    def state(self, query: str) -> MirrorState:
        """Return the progress for a query, by its name or id in `group_ids`; never waits.

        Raises:
            ConfigurationError: the query is not in `group_ids`.
        """
        if query not in self._groups:
            raise ConfigurationError("query", query, f"give a query of group_ids: {', '.join(sorted(self._groups))}")
        return self._groups[query].state

    def close(self) -> None:
        """Commit the last offsets, leave the groups, and stop listening. A second call has no effect."""
        remove_listener(self._spark.streams, self._listener)
        for group in self._groups.values():
            group.end()
        for group in self._groups.values():
            group.join()

    def __enter__(self) -> Self:
        """Return the mirror itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close; an exception is not suppressed."""
        self.close()

    def _progressed(self, progress: StreamingQueryProgress) -> None:
        group = self._groups.get(progress.name or "") or self._groups.get(str(progress.id))
        if group is not None:
            group.show(progress.batchId, ends_of(progress))


def _checked(group_ids: object) -> list[tuple[str, str]]:
    remedy = 'give a dict with the group of each query, {"query name": "group"}'
    if not isinstance(group_ids, Mapping) or not group_ids:
        raise ConfigurationError("group_ids", group_ids, remedy)
    for query, group in group_ids.items():
        for text in (query, group):
            if not isinstance(text, str) or not text:
                raise ConfigurationError("group_ids", text, remedy)
    groups = list(group_ids.values())
    doubled = next((group for group in groups if groups.count(group) > 1), None)
    if doubled is not None:
        raise ConfigurationError("group_ids", doubled, "each query needs its own group; give two groups")
    return list(group_ids.items())


def ends_of(progress: StreamingQueryProgress) -> dict[tuple[str, int], int]:
    """Return the end offsets of the Kafka sources of a query after this batch.

    If two sources read a partition, the smaller offset is used, because both have read everything before it.
    """
    ends: dict[tuple[str, int], int] = {}
    # From the JSON: with Spark Connect before pyspark 4.3, the attribute `endOffset` is the repr of a dict.
    for source in json.loads(progress.json)["sources"]:
        if not source["description"].startswith("KafkaV2["):
            continue
        # Before its first batch a source has no end.
        for topic, partitions in (source["endOffset"] or {}).items():
            for number, offset in partitions.items():
                partition = topic, int(number)
                ends[partition] = min(offset, ends.get(partition, offset))
    return ends


class _MirroredGroup:
    """One group, and the thread of its member; only the latest progress waits for the thread."""

    def __init__(self, query: str, group_id: str, config: Mapping[str, object]) -> None:
        self.state = MirrorState(group_id=group_id)
        self._config = {
            "auto.offset.reset": "earliest",
            **config,
            "group.id": group_id,
            "enable.auto.commit": False,
            # Only one mirror at a time: after a crash, the next mirror waits for the end of the stale member's session.
            "group.instance.id": f"mirror-{_NO_NAME.sub('-', query)}",
            "group.instance.id.conflict.policy": "wait",
            "rebalance.callbacks": "incremental",
        }
        ConsumerConfig.from_mapping(self._config)  # raises errors here, and not later in the thread
        self._lock = threading.Lock()
        self._comes = threading.Event()
        self._shown: tuple[int, BatchEnds] | None = None
        self._ends_at: float | None = None
        self._short_since: float | None = None
        self._thread: threading.Thread | None = None

    def show(self, batch_id: int, ends: BatchEnds) -> None:
        """Store the end of a finished batch for the thread; never waits."""
        with self._lock:
            if not ends or self._ends_at is not None:
                return
            self._shown = batch_id, ends
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="consumer-membership-mirror", daemon=True)
                self._thread.start()
        self._comes.set()

    def end(self) -> None:
        """Let the thread commit the last offsets and leave the group."""
        with self._lock:
            self._ends_at = monotonic() + _LEAVE_S
        self._comes.set()

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join(2 * _LEAVE_S)

    # ---- the thread ----

    def _run(self) -> None:
        try:
            with Consumer(self._config) as consumer:
                self._hold(consumer)
                consumer.close(membership="leave")
        except (KafkaException, MembershipError) as error:
            self._note(error=str(error))

    def _hold(self, consumer: Consumer) -> None:
        """Stay in the group, and commit the progress."""
        topics: set[str] = set()
        while not self._is_over:
            shown = self._shown
            if shown is not None and not topics >= (named := {topic for topic, _ in shown[1]}):
                topics |= named
                consumer.subscribe(sorted(topics), on_assign=_pause)
            event = consumer.poll(_POLL_S)
            view = consumer.membership()
            self._note_error(event, view)
            if view.state is MemberState.FATAL:
                return
            if view.state is MemberState.STABLE and shown is not None:
                self._check_other_members(view, len(shown[1]))
                self._commit(consumer, *shown)

    @property
    def _is_over(self) -> bool:
        with self._lock:
            if self._ends_at is None:
                return False
            return self._shown is None or self._is_committed(*self._shown) or monotonic() > self._ends_at

    def _is_committed(self, batch_id: int, ends: BatchEnds) -> bool:
        return (batch_id, ends) == (self.state.batch_id, self.state.committed)

    def _check_other_members(self, view: MembershipView, count: int) -> None:
        """Note another member in the group: this member owns too few partitions for several heartbeats."""
        if len(view.owned) >= count:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = monotonic()
        patience_s = _HEARTBEATS * (view.heartbeat_interval_s or 0.0)
        self._note(others=self._short_since is not None and monotonic() - self._short_since > patience_s)

    def _note_error(self, message: Message | None, view: MembershipView) -> None:
        error = None if message is None else message.error()
        if error is not None:
            self._note(error=_with_remedy(error, view.last_error))

    def _commit(self, consumer: Consumer, batch_id: int, ends: BatchEnds) -> None:
        if self._is_committed(batch_id, ends):
            return
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in sorted(ends.items())]
        try:
            answered = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            self._note(error=str(refused.args[0]))
            return
        failed = next((one.error for one in answered if one.error is not None), None)
        if failed is not None:
            self._note(error=failed.str())
            return
        self._note(batch_id=batch_id, committed=dict(ends), error=None)

    def _note(self, **changes: Any) -> None:  # noqa: ANN401 - the state's fields
        before = self.state
        known = {name: getattr(before, name) for name in MirrorState.__dataclass_fields__}
        self.state = MirrorState(**(known | changes))
        if self.state.error is not None and self.state.error != before.error:
            _LOG.warning(
                "Group %s: the progress of its query could not be committed: %s", before.group_id, self.state.error
            )
        if self.state.others and not before.others:
            _LOG.warning("Group %s: another member reads in this group of an offset mirror", before.group_id)


def _with_remedy(error: KafkaError, cause: BrokerError | None) -> str:
    """Return the text of an error that keeps the mirror from its group, with a remedy for the user of the mirror."""
    remedy = _REMEDIES.get(error.code())
    if remedy is None or cause is None or cause.code != error.code():
        return error.str()
    return str(replace(cause, remedy=remedy))


def _pause(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Pause all partitions, because the member reads nothing."""
    consumer.pause(partitions)
