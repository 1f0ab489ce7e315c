"""A partner that uses aiokafka."""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.support.partners.life import Lifetime, Strategy
from tests.support.partners.reporting import report, report_committed, report_partitions, report_records

_POLL_MS = 50
_ASSIGNORS: Mapping[Strategy, type[Any]] = {
    Strategy.RANGE: RangePartitionAssignor,
    Strategy.ROUNDROBIN: RoundRobinPartitionAssignor,
    Strategy.STICKY: StickyPartitionAssignor,
}


class _Application(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Subscribes, polls, reports and commits. A rebalance waits until the current batch is committed."""

    def __init__(self, life: Lifetime) -> None:
        self._held: frozenset[TopicPartition] = frozenset()
        self._batch = asyncio.Lock()
        self._topic = life.topic
        self._stopping = asyncio.Event()
        self._consumer = AIOKafkaConsumer(
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

    async def run(self) -> None:
        """Run until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        while not self._stopping.is_set():
            batch = await self._consumer.getmany(timeout_ms=_POLL_MS)
            async with self._batch:
                await self._take({p: records for p, records in batch.items() if p in self._held})
        # `stop` leaves the group without calling the listener.
        self._give_up()
        await self._consumer.stop()
        report("closed")

    async def _take(self, batch: Mapping[TopicPartition, list[Any]]) -> None:
        if not batch:
            return
        for partition, records in batch.items():
            report_records(partition.partition, records[0].offset, records[-1].offset)
        offsets = {p: records[-1].offset + 1 for p, records in batch.items()}
        try:
            await self._consumer.commit(offsets)
        except KafkaError as refused:
            report("refused", text=repr(refused))
        else:
            report_committed({p.partition: at for p, at in offsets.items()})

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Report all assigned partitions."""
        self._held = frozenset(assigned)
        report_partitions("assigned", [p.partition for p in assigned], self._generation())

    async def on_partitions_revoked(self, _: Collection[TopicPartition]) -> None:
        """Report all revoked or lost partitions; aiokafka does not distinguish them."""
        async with self._batch:
            self._give_up()

    def _give_up(self) -> None:
        held, self._held = self._held, frozenset()
        report_partitions("revoked", [p.partition for p in held], self._generation())

    def _generation(self) -> int:
        generation: int = self._consumer._coordinator.generation
        return generation

    def _reporting(self, assignor: type[Any]) -> type[Any]:
        """Return a subclass of the assignor that reports each call; only the group's leader calls it."""
        application = self

        class ReportingAssignor(assignor):  # type: ignore[misc]  # a dynamic base class
            @classmethod
            def assign(cls, cluster: object, members: object) -> object:
                report("leads", generation=application._generation())
                return super().assign(cluster, members)

        return ReportingAssignor


async def _live(life: Lifetime) -> None:
    await _Application(life).run()


def live(life: Lifetime) -> None:
    """Run one member until SIGTERM."""
    asyncio.run(_live(life))
