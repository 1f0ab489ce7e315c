"""The producer of a cluster inside the test process; it replaces confluent-kafka's producer."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Partition

from consumer_membership.clients.group_metadata import unpack_group_metadata
from consumer_membership.processing.outputs import DeliveryReport
from consumer_membership.testing.engine import ClusterEngine
from consumer_membership.testing.log import FakeRecord, Headers, Log, message_of
from consumer_membership.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata


class Target(Protocol):
    """The cluster to which a producer writes."""

    engine: ClusterEngine
    log: Log
    bootstrap_servers: str

    def wall_s(self) -> float:
        """Return the time of day, in seconds since 1970."""

    def ensure_topic(self, name: str) -> None:
        """Create this topic if it does not exist."""

    def describe(self, topic: str | None) -> ClusterMetadata:
        """Return the metadata of one topic; None: of all topics."""

    def commit_for_transaction(self, group_id: str, member_id: str, epoch: int, offsets: Collection[Partition]) -> None:
        """Commit the offsets of a transaction."""

    def new_producer(self, transactional_id: str, producer: FakeProducer) -> None:
        """Register a producer, which fences the earlier producer with this transactional id."""

    def is_fenced(self, transactional_id: str, producer: FakeProducer) -> bool:
        """Return whether a newer producer has this transactional id."""


@dataclass(slots=True)
class _Transaction:
    """The records and offsets of an open transaction, which are written at its commit."""

    records: list[tuple[TopicPartition, FakeRecord, DeliveryReport | None]] = field(default_factory=list)
    offsets: list[tuple[tuple[str, str, int], list[Partition]]] = field(default_factory=list)


class FakeProducer(Producer):
    """Writes to a `FakeCluster`; has the subset of `confluent_kafka.Producer` that applications use.

    Records are in the log when `produce` returns; `poll` and `flush` call their delivery reports. The records of a
    transaction are in the log when it is committed, so that no consumer reads uncommitted records.
    """

    def __init__(self, cluster: Target, config: Mapping[str, object]) -> None:
        self._cluster = cluster
        report = config.get("on_delivery", config.get("delivery_cb"))
        self._on_delivery: DeliveryReport | None = report if callable(report) else None
        self._only_errors = str(config.get("delivery.report.only.error", "false")).lower() == "true"
        self._transactional_id = config.get("transactional.id")
        self._is_initialized = False
        self._transaction: _Transaction | None = None
        self._reports: deque[tuple[DeliveryReport, KafkaError | None, Message]] = deque()

    # ---- records ----

    def produce(  # noqa: PLR0917 - confluent-kafka's own signature
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        callback: DeliveryReport | None = None,
        on_delivery: DeliveryReport | None = None,
        timestamp: int = 0,
        headers: Mapping[str, bytes | str | None] | Headers | None = None,
    ) -> None:
        """Append a record; `poll` or `flush` calls its delivery report."""
        raw_key = _encoded(key)
        cluster = self._cluster
        with cluster.engine.exclusive():
            if self._transactional_id is not None and self._transaction is None:
                raise KafkaException(KafkaError(KafkaError._STATE, "Local: Erroneous state"))
            cluster.ensure_topic(topic)
            place = TopicPartition(topic, partition) if partition >= 0 else cluster.log.choose(topic, raw_key)
            stamp = timestamp or int(cluster.wall_s() * 1000)
            record = FakeRecord(value=_encoded(value), key=raw_key, headers=_headers(headers), timestamp_ms=stamp)
            report = on_delivery or callback or self._on_delivery
            if place not in cluster.log:
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
            if self._transaction is not None:
                self._transaction.records.append((place, record, report))
            else:
                self._append(place, record, report)

    def _append(self, place: TopicPartition, record: FakeRecord, report: DeliveryReport | None) -> None:
        offset = self._cluster.log.append(place, record)
        if report is not None and not self._only_errors:
            self._reports.append((report, None, message_of(place, offset, record)))

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002 - no call has to wait
        """Call the pending delivery reports and return their number."""
        count = 0
        while self._reports:
            report, error, message = self._reports.popleft()
            count += 1
            report(error, message)
        return count

    def flush(self, timeout: float = -1) -> int:
        """Call the pending delivery reports; return 0, because no records are queued."""
        self.poll(timeout)
        return 0

    def __len__(self) -> int:
        """Return the number of pending delivery reports."""
        return len(self._reports)

    def __bool__(self) -> bool:
        """Return True, even if no reports are pending."""
        return True

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: FBT001, FBT002
        """Do nothing, because no records are queued."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:  # noqa: ARG002
        """Return the metadata of one topic; None: of all topics."""
        return self._cluster.describe(topic)

    def close(self) -> bool:
        """Call the pending delivery reports; return True."""
        self.flush()
        return True

    # ---- transactions ----

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002 - it completes immediately
        """Fence earlier producers with this transactional id."""
        if self._transactional_id is None:
            raise KafkaException(KafkaError(KafkaError._NOT_CONFIGURED, "transactional.id is not set"))
        self._cluster.new_producer(str(self._transactional_id), self)
        self._is_initialized = True

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        if not self._is_initialized or self._transaction is not None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Local: Erroneous state"))
        self._refuse_if_fenced()
        self._transaction = _Transaction()

    def send_offsets_to_transaction(
        self,
        positions: list[Partition],
        group_metadata: bytes,
        timeout: float = -1,  # noqa: ARG002 - it completes immediately
    ) -> None:
        """Add a group's offsets to the transaction."""
        self._open().offsets.append((unpack_group_metadata(group_metadata), positions))

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002 - it completes immediately
        """Append the records, and commit the offsets.

        Raises:
            KafkaException: a newer producer has the transactional id, or the coordinator rejects the offsets.
        """
        transaction = self._open()
        self._refuse_if_fenced()
        with self._cluster.engine.exclusive():
            for (group_id, member_id, epoch), offsets in transaction.offsets:
                self._cluster.commit_for_transaction(group_id, member_id, epoch, offsets)
            for place, record, report in transaction.records:
                self._append(place, record, report)
            for place in sorted({place for place, _, _ in transaction.records}):
                self._cluster.log.append(place, None)
        self._transaction = None
        self.poll(0)

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002 - it completes immediately
        """Drop the records and offsets of the transaction; each delivery report receives an error."""
        transaction = self._open()
        purged = KafkaError(KafkaError._PURGE_QUEUE)
        for place, record, report in transaction.records:
            if report is not None:
                self._reports.append((report, purged, message_of(place, -1001, record)))
        self._transaction = None
        self.poll(0)

    def _open(self) -> _Transaction:
        if self._transaction is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Local: Erroneous state"))
        return self._transaction

    def _refuse_if_fenced(self) -> None:
        if self._cluster.is_fenced(str(self._transactional_id), self):
            raise KafkaException(KafkaError(KafkaError._FENCED, "Local: This instance has been fenced", fatal=True))


TargetT = TypeVar("TargetT", bound=Target)


class Routing(Generic[TargetT]):
    """Replaces `Producer` in all modules, so that producers with a cluster's `bootstrap.servers` use the cluster."""

    def __init__(self, cluster: TargetT) -> None:
        self._cluster = cluster
        self._replaced: list[tuple[ModuleType, str]] = []

    def __enter__(self) -> TargetT:
        """Replace the name, and return the cluster."""
        cluster = self._cluster

        class RoutedProducer(Producer):
            """Creates a producer of the cluster in this process, or of a real one, according to `bootstrap.servers`."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - confluent-kafka's arguments
                config = {**(args[0] if args else {}), **kwargs}
                if config.get("bootstrap.servers") == cluster.bootstrap_servers:
                    return FakeProducer(cluster, config)
                return super().__new__(cls)

        import consumer_membership.processing.dead_letter_topic  # noqa: PLC0415 - they must be imported before the replacement
        import consumer_membership.processing.outputs  # noqa: PLC0415
        import consumer_membership.processing.transactional_producer  # noqa: F401, PLC0415

        found: list[object] = list(sys.modules.values())  # some libraries add objects that are not modules
        for module in [one for one in found if isinstance(one, ModuleType) and one.__name__ != __name__]:
            for name in [name for name, value in list(vars(module).items()) if value is Producer]:
                setattr(module, name, RoutedProducer)
                self._replaced.append((module, name))
        return cluster

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the name."""
        for module, name in self._replaced:
            setattr(module, name, Producer)
        self._replaced.clear()


def _encoded(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _headers(given: Mapping[str, bytes | str | None] | Headers | None) -> Headers | None:
    if given is None:
        return None
    pairs = given.items() if isinstance(given, Mapping) else given
    return [(name, _encoded(value)) for name, value in pairs]
