"""A partner with aiokafka."""

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
from tests.support.partners.speech import say, say_committed, say_partitions, say_records

_POLL_MS = 50
_ASSIGNORS: Mapping[Strategy, type[Any]] = {
    Strategy.RANGE: RangePartitionAssignor,
    Strategy.ROUNDROBIN: RoundRobinPartitionAssignor,
    Strategy.STICKY: StickyPartitionAssignor,
}


class _Application(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Subscribes, reads, reports, commits. A rebalance waits until the batch in progress is committed."""

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
            partition_assignment_strategy=[self._telling(_ASSIGNORS[name]) for name in life.strategies],
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
        # It leaves without a word to its listener.
        self._give_up()
        await self._consumer.stop()
        say("closed")

    async def _take(self, batch: Mapping[TopicPartition, list[Any]]) -> None:
        if not batch:
            return
        for partition, records in batch.items():
            say_records(partition.partition, records[0].offset, records[-1].offset)
        offsets = {p: records[-1].offset + 1 for p, records in batch.items()}
        try:
            await self._consumer.commit(offsets)
        except KafkaError as refused:
            say("refused", text=repr(refused))
        else:
            say_committed({p.partition: at for p, at in offsets.items()})

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Receive all assigned partitions."""
        self._held = frozenset(assigned)
        say_partitions("assigned", [p.partition for p in assigned], self._generation())

    async def on_partitions_revoked(self, _: Collection[TopicPartition]) -> None:
        """Receive all revoked or lost partitions; aiokafka does not distinguish them."""
        async with self._batch:
            self._give_up()

    def _give_up(self) -> None:
        held, self._held = self._held, frozenset()
        say_partitions("revoked", [p.partition for p in held], self._generation())

    def _generation(self) -> int:
        generation: int = self._consumer._coordinator.generation
        return generation

    def _telling(self, assignor: type[Any]) -> type[Any]:
        """The assignor, which reports each call: only a leader calls it."""
        application = self

        class Telling(assignor):  # type: ignore[misc]  # any of them
            @classmethod
            def assign(cls, cluster: object, members: object) -> object:
                say("leads", generation=application._generation())
                return super().assign(cluster, members)

        return Telling


async def _live(life: Lifetime) -> None:
    await _Application(life).run()


def live(life: Lifetime) -> None:
    """Run one member until SIGTERM."""
    asyncio.run(_live(life))
