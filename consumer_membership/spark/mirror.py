"""Shows where a Structured Streaming query stands as the committed offsets of a group that every tool can see.

Spark's Kafka source has no group that means anything: its offsets are in the query's checkpoint. The mirror listens to
the query's progress and commits the end of each finished batch to a group that is named for it. A member of this
package, which reads nothing, holds that group, so that it is Stable, shows a host, and nobody reads in it by mistake.
The checkpoint stays what the query starts from; what is committed is never ahead of it, and lags it by a moment.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
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
from consumer_membership.types import CONFLICT_CODE, GROUP_NOT_FOUND_CODE, UNSUPPORTED_VERSION_CODE, BrokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

_LOG = logging.getLogger("consumer_membership.spark.mirror")

#: How soon a member notices that there is something to commit, and looks after its group.
_POLL_S = 0.2
#: So many heartbeats a change of the subscription takes at most until the group has followed.
_BEATS = 4
#: How long what is left to commit is tried when a query ends, or the mirror is closed.
_FAREWELL_S = 30.0

#: What Java's clients take in no instance id.
_NO_NAME = re.compile(r"[^a-zA-Z0-9._-]")

#: By topic and partition, the offset before which a query has read everything.
BatchEnds = Mapping[tuple[str, int], int]

_MINE = ("group.id", "group.instance.id", "group.instance.id.pool", "group.instance.id.conflict.policy")
_OWNED = dict.fromkeys(_MINE, "the mirror sets it; leave it out")

#: What helps where the mirror cannot have its group: what helps a consumer is to change keys that are the mirror's own.
_OTHER_GROUP = (
    "the mirror holds its group by the consumer protocol: name a group of its own for the query in group_ids, or end "
    "the members that this one has"
)
_REMEDIES: Mapping[int, str] = {
    UNSUPPORTED_VERSION_CODE: "the mirror holds its group by that protocol: use Apache Kafka 4.0 or later, with the "
    "feature group.version at 1 (kafka-features upgrade --feature group.version=1) and 'consumer' among the broker's "
    "group.coordinator.rebalance.protocols; `consumer-membership checkpoint show` tells where a query is without it",
    GROUP_NOT_FOUND_CODE: _OTHER_GROUP,
    CONFLICT_CODE: _OTHER_GROUP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorState:
    """How far one query is mirrored.

    Attributes:
        group_id: The group.
        batch_id: The last batch whose end is committed; None: none is yet.
        committed: What is committed, by topic and partition.
        error: What keeps it from going on; None: nothing.
        others: Whether somebody else is in the group and was given partitions.
    """

    group_id: str
    batch_id: int | None = None
    committed: BatchEnds = field(default_factory=dict)
    error: str | None = None
    others: bool = False


class OffsetMirror:
    """Commits what queries of this session have read; a context manager.

        mirror = OffsetMirror(spark, group_ids={"orders-to-lake": "orders-lake"}, config={"bootstrap.servers": "..."})

    Args:
        spark: The session; queries that run already are mirrored from their next batch on.
        group_ids: By the query's name (`queryName`) or id, the group that shows where it stands.
        config: As for `Consumer`, to reach the brokers; environment variables fill in what it leaves out.

    Raises:
        ConfigurationError: something cannot work; the text names parameter, value and remedy.
    """

    def __init__(
        self, spark: SparkSession, *, group_ids: Mapping[str, str], config: Mapping[str, object] | None = None
    ) -> None:
        context_of(spark)
        check_config(config or {}, owned=_OWNED)
        self._groups = {query: _MirroredGroup(query, group, config or {}) for query, group in _checked(group_ids)}
        self._spark = spark
        self._listener = _listener(self._progressed)
        spark.streams.addListener(self._listener)

    def state(self, query: str) -> MirrorState:
        """How far this query is mirrored, by the name or id that it has in `group_ids`. Never waits.

        Raises:
            ConfigurationError: it is not mirrored.
        """
        if query not in self._groups:
            raise ConfigurationError("query", query, f"one of {', '.join(sorted(self._groups))} is mirrored here")
        return self._groups[query].state

    def close(self) -> None:
        """Commit what is left, leave the groups, and listen no more; a second one is nothing."""
        self._spark.streams.removeListener(self._listener)
        for group in self._groups.values():
            group.end()
        for group in self._groups.values():
            group.join()

    def __enter__(self) -> Self:
        """Return the mirror itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close; an exception goes on."""
        self.close()

    def _progressed(self, progress: StreamingQueryProgress) -> None:
        group = self._groups.get(progress.name or "") or self._groups.get(str(progress.id))
        if group is not None:
            group.show(progress.batchId, ends_of(progress))


def _checked(group_ids: object) -> list[tuple[str, str]]:
    remedy = 'give a dict of queries and groups, {"query name": "group"}'
    if not isinstance(group_ids, Mapping) or not group_ids:
        raise ConfigurationError("group_ids", group_ids, remedy)
    for query, group in group_ids.items():
        for text in (query, group):
            if not isinstance(text, str) or not text:
                raise ConfigurationError("group_ids", text, remedy)
    groups = list(group_ids.values())
    doubled = next((group for group in groups if groups.count(group) > 1), None)
    if doubled is not None:
        raise ConfigurationError("group_ids", doubled, "two queries cannot be told apart in one group; name two groups")
    return list(group_ids.items())


def ends_of(progress: StreamingQueryProgress) -> dict[tuple[str, int], int]:
    """Where the Kafka sources of a query stand after this batch.

    Of a partition that two sources read, the smaller offset: before it both have read everything.
    """
    ends: dict[tuple[str, int], int] = {}
    # As text: of a session of Spark Connect `endOffset` is how Python shows a dict, before pyspark 4.3.
    for source in json.loads(progress.json)["sources"]:
        if not source["description"].startswith("KafkaV2["):
            continue
        # Before its first batch a source has no end.
        for topic, partitions in (source["endOffset"] or {}).items():
            for number, offset in partitions.items():
                place = topic, int(number)
                ends[place] = min(offset, ends.get(place, offset))
    return ends


class _MirroredGroup:
    """One group, and the thread that holds it; what it is shown waits for the thread, the latest only."""

    def __init__(self, query: str, group_id: str, config: Mapping[str, object]) -> None:
        self.state = MirrorState(group_id=group_id)
        self._config = {
            "auto.offset.reset": "earliest",
            **config,
            "group.id": group_id,
            "enable.auto.commit": False,
            # Held by one at a time: after a crash the next one waits for the stale member's session to end.
            "group.instance.id": f"mirror-{_NO_NAME.sub('-', query)}",
            "group.instance.id.conflict.policy": "wait",
            "rebalance.callbacks": "incremental",
        }
        ConsumerConfig.from_mapping(self._config)  # here, and not in the thread: what cannot work is refused at once
        self._lock = threading.Lock()
        self._comes = threading.Event()
        self._shown: tuple[int, BatchEnds] | None = None
        self._ends_at: float | None = None
        self._short_since: float | None = None
        self._thread: threading.Thread | None = None

    def show(self, batch_id: int, ends: BatchEnds) -> None:
        """The query has finished this batch; waits for nothing."""
        with self._lock:
            if not ends or self._ends_at is not None:
                return
            self._shown = batch_id, ends
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="consumer-membership-mirror", daemon=True)
                self._thread.start()
        self._comes.set()

    def end(self) -> None:
        """Commit what is left and leave."""
        with self._lock:
            self._ends_at = monotonic() + _FAREWELL_S
        self._comes.set()

    def join(self) -> None:
        """Wait for that."""
        if self._thread is not None:
            self._thread.join(2 * _FAREWELL_S)

    # ---- the thread ----

    def _run(self) -> None:
        try:
            with Consumer(self._config) as consumer:
                self._hold(consumer)
                consumer.close(membership="leave")
        except (KafkaException, MembershipError) as error:
            self._note(error=str(error))

    def _hold(self, consumer: Consumer) -> None:
        """Be in the group, and commit what is shown."""
        topics: set[str] = set()
        while not self._is_over:
            shown = self._shown
            if shown is not None and not topics >= (named := {topic for topic, _ in shown[1]}):
                topics |= named
                consumer.subscribe(sorted(topics), on_assign=_pause)
            told = consumer.poll(_POLL_S)
            view = consumer.membership()
            self._heed(told, view)
            if view.state is MemberState.FATAL:
                return
            if view.state is MemberState.STABLE and shown is not None:
                self._look_for_others(view, len(shown[1]))
                self._commit(consumer, *shown)

    @property
    def _is_over(self) -> bool:
        with self._lock:
            if self._ends_at is None:
                return False
            return self._shown is None or self._is_committed(*self._shown) or monotonic() > self._ends_at

    def _is_committed(self, batch_id: int, ends: BatchEnds) -> bool:
        return (batch_id, ends) == (self.state.batch_id, self.state.committed)

    def _look_for_others(self, view: MembershipView, count: int) -> None:
        """Who has fewer partitions than there are for some heartbeats shares them with another member."""
        if len(view.owned) >= count:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = monotonic()
        patience_s = _BEATS * (view.heartbeat_interval_s or 0.0)
        self._note(others=self._short_since is not None and monotonic() - self._short_since > patience_s)

    def _heed(self, message: Message | None, view: MembershipView) -> None:
        error = None if message is None else message.error()
        if error is not None:
            self._note(error=_told(error, view.last_error))

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
            _LOG.warning("The group %s does not show where its query stands: %s", before.group_id, self.state.error)
        if self.state.others and not before.others:
            _LOG.warning("Somebody else reads in the group %s, which shows where a query stands", before.group_id)


def _told(error: KafkaError, cause: BrokerError | None) -> str:
    """What keeps the mirror from its group, in words for who uses it."""
    remedy = _REMEDIES.get(error.code())
    if remedy is None or cause is None or cause.code != error.code():
        return error.str()
    return str(replace(cause, remedy=remedy))


def _pause(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """It reads nothing."""
    consumer.pause(partitions)


def _listener(progressed: Callable[[Any], None]) -> Any:  # noqa: ANN401
    """A listener of the installed pyspark; it hands on, for Spark waits for it."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Hands on what it hears."""

        def onQueryStarted(self, event: object) -> None:
            """A query begins: its first batch will say where it stands."""

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            """A batch is finished, and its end is in the checkpoint."""
            progressed(event.progress)

        def onQueryIdle(self, event: object) -> None:
            """Nothing came."""

        def onQueryTerminated(self, event: object) -> None:
            """One that is started again goes on in its group, which is held until the mirror is closed."""

    return Listener()
