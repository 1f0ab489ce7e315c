"""A task with a static member that gives its records to a `KafkaSink`; run as a program, it stops itself once.

    python -m tests.spark.sinks.kafka_task POINT SERVERS GROUP TOPIC OUT RECORDS

It consumes that many records, gives them to the sink, and stops itself (SIGSTOP) at the point. When it is continued,
the last line of stdout is its outcome: the error's class and text, or `done`.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeAlias

from confluent_kafka import Message, Producer, TopicPartition

from consumer_membership import Consumer
from consumer_membership.clients.lease import Lease
from consumer_membership.errors import FencedError, MembershipError
from consumer_membership.processing import transactional_producer as producer
from consumer_membership.spark import BatchFormat, Fence, OffsetRange, SinkContext
from consumer_membership.spark.batches import ranges_of, runs_of
from consumer_membership.spark.bounds import Bounds
from consumer_membership.spark.context import Partition
from consumer_membership.spark.sinks import KafkaSink, OutRecord
from tests.spark.sinks.zombie import stop
from tests.support.waiting import PATIENCE_S, wait_until

INSTANCE_ID = "pipe-0"
_PR_SET_PDEATHSIG = 1


class Task:
    """A member and the coordinator's answers about it; it never leaves, like a lost task."""

    def __init__(
        self, servers: str, group: str, topic: str, *, attempt: int = 1, account: Bounds | None = None
    ) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.instance.id": INSTANCE_ID,
                "group.instance.id.conflict.policy": "takeover",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
            }
        )
        self._group, self._topic, self._attempt = group, topic, attempt
        self._account = account
        self._context: SinkContext | None = None

    def __enter__(self) -> Self:
        self.consumer.subscribe([self._topic])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.consumer.close()

    def take(self, records: int) -> tuple[list[Message], SinkContext]:
        """A batch of the next records, and its context."""
        batch: list[Message] = []

        def is_full() -> bool:
            batch.extend(self.consumer.consume(records - len(batch), 0.1))
            assert [message.error() for message in batch if message.error()] == []
            return len(batch) == records

        wait_until(is_full, f"{records} records", PATIENCE_S)
        batch.sort(key=lambda message: (message.partition(), message.offset()))
        ranges = ranges_of(runs_of(batch, [self._topic]))
        epoch = self.consumer.generation()
        fences = tuple(
            Fence(
                group=self._group,
                topic=part.topic,
                partition=part.partition,
                next_offset=part.next_offset,
                epoch=epoch,
                attempt=self._attempt,
            )
            for part in ranges
        )
        self._context = SinkContext(
            group=self._group,
            pipeline="pipe",
            instance=0,
            instances=1,
            instance_id=INSTANCE_ID,
            attempt=self._attempt,
            batch_format=BatchFormat.MESSAGES,
            ranges=ranges,
            fences=fences,
            ownership=self,
        )
        return batch, self._context

    def committed(self, partitions: int) -> list[int]:
        """The group's committed offsets."""
        wanted = [TopicPartition(self._topic, partition) for partition in range(partitions)]
        return [partition.offset for partition in self.consumer.committed(wanted, PATIENCE_S)]

    def verify(self) -> None:
        """As `SinkContext.verify`: the coordinator rejects the commit of a replaced member."""
        assert self._context is not None
        before = [TopicPartition(part.topic, part.partition, part.first) for part in self._context.ranges]
        try:
            self.consumer.commit(offsets=before, asynchronous=False)
        except MembershipError as refused:
            raise FencedError(f"the coordinator does not confirm the member: {refused}") from refused

    def group_metadata(self) -> bytes:
        """As `SinkContext.group_metadata`."""
        return self.consumer.consumer_group_metadata()

    def commit_metadata(self, part: OffsetRange) -> str:
        """As `TaskOwnership.commit_metadata`."""
        return self._account.metadata(part, 1.0, 2.0) if self._account else ""

    @property
    def has_leases(self) -> bool:
        """As `TaskOwnership.has_leases`."""
        return False

    def lease(self, partition: Partition) -> Lease:
        """As `TaskOwnership.lease`."""
        return self.consumer.lease(TopicPartition(*partition))


Transform: TypeAlias = Callable[[Message], Iterator[OutRecord]]


def copied(message: Message, *, out: str) -> Iterator[OutRecord]:
    """The same record for another topic, with its origin in a header."""
    yield OutRecord(
        topic=out,
        key=message.key(),
        value=message.value(),
        headers=(("from", f"{message.partition()}:{message.offset()}"),),
    )


class _StopsBeforeCommit(Producer):
    """A producer that stops when records and offsets are sent and only the end of the transaction is missing."""

    def commit_transaction(self, *args: float) -> None:
        """Stop first."""
        stop()
        super().commit_transaction(*args)


def _stops_inside(
    transform: Callable[[Message], Iterator[OutRecord]], last: int
) -> Callable[[Message], Iterator[OutRecord]]:
    seen = 0

    def stopping(message: Message) -> Iterator[OutRecord]:
        nonlocal seen
        seen += 1
        if seen == last:
            stop()
        yield from transform(message)

    return stopping


def main(words: Sequence[str]) -> None:
    """Run as described above."""
    point, servers, group, topic, out, number = words
    records = int(number)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def transform(message: Message) -> Iterator[OutRecord]:
        return copied(message, out=out)

    if point == "commit":
        producer.Producer = _StopsBeforeCommit  # type: ignore[attr-defined]  # replaced on purpose
    sink = KafkaSink(
        {"bootstrap.servers": servers}, _stops_inside(transform, records) if point == "inside" else transform
    )
    with Task(servers, group, topic) as task:
        batch, context = task.take(records)
        if point == "before":
            stop()
        try:
            sink(batch, context)
        except MembershipError as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("done", flush=True)
        sink.close()


if __name__ == "__main__":
    main(sys.argv[1:])
