"""Records and contexts, as a member gives them to a sink."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, TopicPartition
from pyspark import cloudpickle

from consumer_membership.clients.lease import Lease
from consumer_membership.errors import FencedError
from consumer_membership.spark import BatchFormat, Fence, OffsetRange, SinkContext
from consumer_membership.spark.context import Partition, SinkUse, TaskOwnership
from tests.clients.scripted import ScriptedConsumer
from tests.support.waiting import PATIENCE_S

GROUP, TOPIC = "orders-group", "orders"
SinkT = TypeVar("SinkT")
_FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A coordinator whose answers about a member are set in advance."""

    is_owner: bool = True
    metadata: bytes = b""
    #: The member whose leases the sink checks; None if leases are not enabled.
    member: ScriptedConsumer | None = None

    def verify(self) -> None:
        """As `SinkContext.verify`."""
        if not self.is_owner:
            raise FencedError("the coordinator does not confirm the member")

    def group_metadata(self) -> bytes:
        """As `SinkContext.group_metadata`."""
        return self.metadata

    def commit_metadata(self, _: OffsetRange) -> str:
        """As `TaskOwnership.commit_metadata`, but without counts of records."""
        return ""

    @property
    def has_leases(self) -> bool:
        """As `TaskOwnership.has_leases`."""
        return self.member is not None

    def lease(self, partition: Partition) -> Lease:
        """As `TaskOwnership.lease`."""
        assert self.member is not None
        return self.member.lease(TopicPartition(*partition))


def records(offsets: Iterable[int], partition: int = 0, topic: str = TOPIC) -> list[Message]:
    """Records whose contents name their origin; odd offsets have headers, and every third has no key."""
    return [
        Message(
            topic=topic,
            partition=partition,
            offset=offset,
            key=f"k{offset}".encode() if offset % 3 else None,
            value=f"{partition}:{offset}".encode(),
            headers=[("h", b"1"), ("h", b"2")] if offset % 2 else [],
            timestamp=(TIMESTAMP_CREATE_TIME, _FIRST_MS + offset),
        )
        for offset in offsets
    ]


def use(batch_format: BatchFormat = BatchFormat.MESSAGES, group: str = GROUP, *, is_on_driver: bool = True) -> SinkUse:
    """The use of a sink by a job of the group over two partitions."""
    places = ((TOPIC, 0), (TOPIC, 1))
    return SinkUse(group=group, batch_format=batch_format, partitions=places, is_on_driver=is_on_driver)


def context(
    parts: Mapping[int, range],
    *,
    epoch: int = 5,
    attempt: int = 1,
    group: str = GROUP,
    topic: str = TOPIC,
    instance: int = 0,
    batch_format: BatchFormat = BatchFormat.MESSAGES,
    ownership: TaskOwnership | None = None,
) -> SinkContext:
    """The context of a call with these offsets of these partitions."""
    return SinkContext(
        group=group,
        pipeline="pipe",
        instance=instance,
        instances=2,
        instance_id=f"pipe-{instance}",
        attempt=attempt,
        batch_format=batch_format,
        ranges=tuple(
            OffsetRange(topic=topic, partition=p, first=r.start, next_offset=r.stop, records=len(r))
            for p, r in parts.items()
        ),
        fences=tuple(
            Fence(group=group, topic=topic, partition=p, next_offset=r.stop, epoch=epoch, attempt=attempt)
            for p, r in parts.items()
        ),
        ownership=ownership or Word(),
    )


def batch(parts: Mapping[int, range], topic: str = TOPIC) -> list[Message]:
    """The records of these offsets of these partitions."""
    return [message for partition, offsets in parts.items() for message in records(offsets, partition, topic)]


def sent(sink: SinkT) -> SinkT:
    """The sink as a task receives it."""
    arrived: SinkT = pickle.loads(cloudpickle.dumps(sink))  # noqa: S301 - pickled here
    return arrived


def rivals(attempt: Callable[[int, Iterable[range]], None]) -> list[tuple[int, str]]:
    """Let four attempts write records 0 to 59 at the same time, each with its own batch size; return each outcome."""
    gate = threading.Barrier(4)

    def run(number: int) -> tuple[int, str]:
        size = number + 2
        gate.wait(PATIENCE_S)
        try:
            attempt(number, (range(first, min(60, first + size)) for first in range(0, 60, size)))
        except FencedError:
            return number, "fenced"
        return number, "done"

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(run, range(4)))
