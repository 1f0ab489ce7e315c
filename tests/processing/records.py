"""Builders for the tests of processing: records, and schedulers that own partitions."""

from __future__ import annotations

from confluent_kafka import Message

from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.scheduler import ProcessingOrder, Scheduler, Task
from consumer_membership.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
#: The default of the broker's offset.metadata.max.bytes.
METADATA_BYTES = 4096


def record(offset: int, key: str | None = None, partition: TopicPartition = A) -> Message:
    """Return a record with this key."""
    return Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        key=None if key is None else key.encode(),
        value=b"",
        leader_epoch=0,
    )


def records(*keys: str | None, partition: TopicPartition = A, start: int = 0) -> list[Message]:
    """Return records with these keys, at successive offsets."""
    return [record(start + index, key, partition) for index, key in enumerate(keys)]


def scheduler_of(
    order: ProcessingOrder = ProcessingOrder.KEY,
    *,
    max_queued: int = 1000,
    max_batch: int = 1,
    max_wait_s: float = 0.0,
    capacity: int = METADATA_BYTES,
) -> Scheduler:
    """Return a scheduler that owns both partitions, which start at offset 0."""
    scheduler = Scheduler(order=order, max_queued=max_queued, max_batch=max_batch, max_wait_s=max_wait_s)
    for partition in (A, B):
        scheduler.assign(partition, 7, UnfinishedOffsets(0, None, capacity))
    return scheduler


def taken(scheduler: Scheduler, now: float = 0.0) -> Task:
    """Take a task; fail if no task is ready."""
    task = scheduler.take(now)
    assert task is not None
    return task


def take_all(scheduler: Scheduler, now: float = 0.0) -> list[Task]:
    """Take all tasks that may run now."""
    found: list[Task] = []
    while (task := scheduler.take(now)) is not None:
        found.append(task)
    return found


def offsets_of(task: Task) -> list[int]:
    """Return the offsets of a task's records, in the order in which the handler receives them."""
    return [offset for _, offset, _ in task.records]
