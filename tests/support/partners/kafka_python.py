"""A partner that uses kafka-python 3."""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from tests.support.partners.life import Lifetime, Strategy
from tests.support.partners.reporting import report, report_committed, report_partitions, report_records
from tests.support.partners.stop import on_sigterm, on_sigusr1

_POLL_MS = 50
_ASSIGNORS: Mapping[Strategy, type[Any]] = {
    Strategy.RANGE: RangePartitionAssignor,
    Strategy.ROUNDROBIN: RoundRobinPartitionAssignor,
    Strategy.STICKY: StickyPartitionAssignor,
    Strategy.COOPERATIVE_STICKY: CooperativeStickyAssignor,
}


class _Application(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Subscribes, polls, reports and commits. A rebalance happens only within a poll, between two batches."""

    def __init__(self, life: Lifetime) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=life.bootstrap_servers,
            group_id=life.group,
            client_id=life.client_id,
            group_instance_id=life.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=life.session_timeout_ms,
            heartbeat_interval_ms=life.heartbeat_interval_ms,
            partition_assignment_strategy=[self._reporting(_ASSIGNORS[name]) for name in life.strategies],
        )
        self._topic = life.topic
        self._withholding = on_sigusr1()
        self._withholds = False

    def run(self) -> None:
        """Run until SIGTERM."""
        stopping = on_sigterm()
        self._consumer.subscribe([self._topic], listener=self)
        while not stopping.is_set():
            self._keep_joining()
            batch = self._consumer.poll(timeout_ms=_POLL_MS)
            if self._withholding.is_set() and not self._withholds:
                self._withholds = True
                report("withholds")
            if batch:
                self._take(batch)
        self._consumer.close()
        report("closed")

    def _keep_joining(self) -> None:
        """Make kafka-python continue a join that its last poll began but did not finish.

        This avoids an error of kafka-python 3.0 that occurs if a leader rejoins because its metadata changed. The new
        assignment has the new metadata, so kafka-python has no more reason to join, and no poll reads the response to
        the join. The coordinator then removes the member from the group.
        """
        coordinator = self._consumer._coordinator
        if coordinator.rejoining:
            coordinator.request_rejoin()

    def _take(self, batch: Mapping[TopicPartition, list[Any]]) -> None:
        for partition, records in batch.items():
            report_records(partition.partition, records[0].offset, records[-1].offset)
        if self._withholds:
            return
        offsets = {p: OffsetAndMetadata(records[-1].offset + 1, "", -1) for p, records in batch.items()}
        try:
            self._consumer.commit(offsets)
        except KafkaError as refused:
            report("refused", text=repr(refused))
        else:
            report_committed({p.partition: at.offset for p, at in offsets.items()})

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Report the added partitions with a cooperative assignor, otherwise all assigned partitions."""
        report_partitions("assigned", [p.partition for p in assigned], self._generation())

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Report the revoked partitions with a cooperative assignor, otherwise all partitions."""
        report_partitions("revoked", [p.partition for p in revoked], self._generation())

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Report the lost partitions: the member id or the generation is no longer valid."""
        report_partitions("lost", [p.partition for p in lost], self._generation())

    def _generation(self) -> int:
        generation: int = self._consumer._coordinator._generation.generation_id
        return generation

    def _reporting(self, assignor: type[Any]) -> type[Any]:
        """Return a subclass of the assignor that reports each call; only the group's leader calls it."""
        application = self

        class ReportingAssignor(assignor):  # type: ignore[misc]  # a dynamic base class
            def assign(self, cluster: object, members: object) -> object:
                report("leads", generation=application._generation())
                return super().assign(cluster, members)

        return ReportingAssignor


def live(life: Lifetime) -> None:
    """Run one member until SIGTERM."""
    _Application(life).run()
