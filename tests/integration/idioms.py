"""Loops of real programs, written for confluent_kafka.Consumer; each returns what the program saw.

A program receives the class, its settings and a topic with `PARTITIONS` partitions and the same records each time. It
ends when it has handled the last record of each partition.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, Message, TopicPartition

from tests.support.waiting import PATIENCE_S

PARTITIONS = 2
RECORDS = 20
#: Each record with its key, value and headers; the last one of a partition has a value, which ends the loops.
VALUES = [None if number % 5 == 2 else b"" if number % 5 == 3 else b"value-%d" % number for number in range(RECORDS)]

#: Either class: the calls are the same.
AnyClass: TypeAlias = Any
Settings: TypeAlias = "dict[str, object]"
Seen: TypeAlias = "dict[str, object]"
Program: TypeAlias = Callable[[AnyClass, Settings, str], Seen]


class Handled:
    """The records that a program handled, by partition, because the order between partitions is not defined."""

    def __init__(self) -> None:
        self.records: dict[int, list[tuple[object, ...]]] = {number: [] for number in range(PARTITIONS)}

    def add(self, message: Message) -> None:
        """Add every field of a record that a program can read."""
        kind, at = message.timestamp()
        self.records[message.partition() or 0].append(
            (
                message.topic(),
                message.offset(),
                message.key(),
                message.value(),
                message.headers(),
                kind,
                at,
                message.leader_epoch(),
                len(message),
                bool(message),
                message.error(),
            )
        )

    @property
    def is_complete(self) -> bool:
        """Whether the last record of each partition was handled."""
        return all(records and records[-1][1] == RECORDS - 1 for records in self.records.values())


def positions(partitions: list[TopicPartition]) -> list[tuple[object, ...]]:
    """Return partitions in a comparable form."""
    fields = [(one.topic, one.partition, one.offset, one.metadata, one.leader_epoch, one.error) for one in partitions]
    return sorted(fields, key=lambda field: field[:2])


def all_of(topic: str, offset: int = -1001) -> list[TopicPartition]:
    """Return every partition of the topic, at this offset."""
    return [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]


def _committed(consumer: Any, topic: str) -> list[tuple[object, ...]]:
    return positions(consumer.committed(all_of(topic), timeout=PATIENCE_S))


# ---- loops around poll ----


def commit_each_record(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Poll one record, handle it, and commit it before the next."""
    consumer, handled, commits = kind(settings | {"enable.auto.commit": False}), Handled(), []
    consumer.subscribe([topic])
    try:
        while not handled.is_complete:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                raise SystemExit(message.error())
            handled.add(message)
            commits += positions(consumer.commit(message=message, asynchronous=False))
        return {"handled": handled.records, "commits": sorted(commits), "committed": _committed(consumer, topic)}
    finally:
        consumer.close()


def skip_falsy_messages(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """`if not message` also skips records without a value; they count as consumed when the consumer commits."""
    # An automatic commit just before would leave nothing to commit, which is an error.
    consumer, handled = kind(settings | {"auto.commit.interval.ms": 600_000}), Handled()
    consumer.subscribe([topic])
    while not handled.is_complete:
        message = consumer.poll(0.5)
        if not message:
            continue
        handled.add(message)
    consumer.commit(asynchronous=False)
    committed = _committed(consumer, topic)
    consumer.close()
    return {"handled": handled.records, "committed": committed}


def end_at_the_last_record(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """A job with `enable.partition.eof` reads the existing records, and ends."""
    consumer, handled = kind(settings | {"enable.partition.eof": True}), Handled()
    ends: dict[int, object] = {}
    consumer.subscribe([topic])
    while len(ends) < PARTITIONS:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            handled.add(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[message.partition()] = (
                message.topic(),
                message.offset(),
                error.name(),
                error.retriable(),
                len(message),
            )
    consumer.close()
    return {"handled": handled.records, "ends": ends}


def worker_thread_commits(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """A worker handles records and commits each, while the main thread polls."""
    consumer, handled = kind(settings | {"enable.auto.commit": False}), Handled()
    work: queue.Queue[Message | None] = queue.Queue()
    commits: list[tuple[object, ...]] = []

    def work_off() -> None:
        while (message := work.get()) is not None:
            handled.add(message)
            commits.extend(positions(consumer.commit(message=message, asynchronous=False)))

    consumer.subscribe([topic])
    worker = threading.Thread(target=work_off)
    worker.start()
    try:
        while not handled.is_complete:
            message = consumer.poll(0)
            if message is None:
                worker.join(0.05)  # confluent-kafka's commit waits as long as another thread polls
            elif not message.error():
                work.put(message)
    finally:
        work.put(None)
        worker.join()
        committed = _committed(consumer, topic)
        consumer.close()
    return {"handled": handled.records, "commits": sorted(commits), "committed": committed}


def store_offsets_by_hand(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Store the offset of each handled record, and leave the commit to the close."""
    consumer, handled = kind(settings | {"enable.auto.offset.store": False}), Handled()
    consumer.subscribe([topic])
    while not handled.is_complete:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        handled.add(message)
        if message.offset() < RECORDS - 3:
            consumer.store_offsets(message=message)
    consumer.close()
    again = kind(settings)
    committed = _committed(again, topic)
    again.close()
    return {"handled": handled.records, "committed": committed}


# ---- batches ----


def commit_batches_in_the_background(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Consume batches, and receive the outcome of each commit in `on_commit`.

    confluent-kafka chooses the offsets when its own thread performs the commit. If a later batch is consumed by then,
    the commit has the offsets of that batch also, and the next commit has none. Only outcomes with an offset are
    compared.
    """
    outcomes: list[list[tuple[object, tuple[object, ...]]]] = []

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        outcomes.append([(error, position) for position in positions(partitions)])

    consumer, handled = kind(settings | {"enable.auto.commit": False, "on_commit": on_commit}), Handled()
    consumer.subscribe([topic])
    returned: list[object] = []
    while not handled.is_complete or len(outcomes) < len(returned):
        batch = consumer.consume(num_messages=100, timeout=0.5)
        for message in batch:
            handled.add(message)
        if batch:
            returned.append(consumer.commit(asynchronous=True))
    consumer.close()
    last = {
        position[1]: (error, position)
        for outcome in outcomes
        for error, position in outcome
        if position[2] != OFFSET_INVALID
    }
    return {"handled": handled.records, "last outcomes": last, "returned": set(returned)}


# ---- callbacks ----


def start_elsewhere_in_on_assign(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Replace the offsets of the list in `on_assign`, and assign it; confluent-kafka refuses `assign` with KIP-848."""
    consumer, handled, calls = kind(settings), Handled(), []
    is_incremental = settings["group.protocol"] == "consumer"

    def on_assign(given: Any, partitions: list[TopicPartition]) -> None:
        calls.append(("assign", positions(partitions)))
        for one in partitions:
            one.offset = 5 if one.partition == 0 else OFFSET_BEGINNING
        (given.incremental_assign if is_incremental else given.assign)(partitions)

    def on_revoke(_: Any, partitions: list[TopicPartition]) -> None:
        calls.append(("revoke", [field[:2] for field in positions(partitions)]))

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    while not handled.is_complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            handled.add(message)
    assigned = positions(consumer.assignment())
    consumer.close()
    return {"handled": handled.records, "calls": calls, "assigned": assigned}


def commit_in_on_revoke(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Commit the handled offsets explicitly when the partitions are revoked."""
    consumer, handled, calls = kind(settings | {"enable.auto.commit": False}), Handled(), []
    next_offsets: dict[int, int] = {}

    def on_revoke(given: Any, partitions: list[TopicPartition]) -> None:
        offsets = [TopicPartition(one.topic, one.partition, next_offsets[one.partition]) for one in partitions]
        calls.append(positions(given.commit(offsets=offsets, asynchronous=False)))

    consumer.subscribe([topic], on_revoke=on_revoke)
    while not handled.is_complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            handled.add(message)
            next_offsets[message.partition()] = message.offset() + 1
    consumer.close()
    return {"handled": handled.records, "calls": calls}


# ---- control of the flow ----


def pause_while_busy(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Pause every partition after some records, poll on, and resume."""
    consumer, handled = kind(settings), Handled()
    consumer.subscribe([topic])
    while sum(map(len, handled.records.values())) != 5:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            handled.add(message)
    consumer.pause(consumer.assignment())
    while_paused = [consumer.poll(0.1) for _ in range(5)]
    consumer.resume(consumer.assignment())
    while not handled.is_complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            handled.add(message)
    position = positions(consumer.position(all_of(topic)))
    consumer.close()
    return {"handled": handled.records, "while paused": while_paused, "position": position}


def seek_back(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Read all records, and seek back to an earlier one."""
    consumer, first, second = kind(settings | {"enable.auto.commit": False}), Handled(), Handled()
    consumer.subscribe([topic])
    while not first.is_complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            first.add(message)
    for number in range(PARTITIONS):
        consumer.seek(TopicPartition(topic, number, 15))
    while not second.is_complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            second.add(message)
    consumer.close()
    return {"first": first.records, "second": second.records}


def assign_without_subscription(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """Assign partitions explicitly from an offset, and commit to the group."""
    consumer, handled = kind(settings | {"enable.auto.commit": False}), Handled()
    consumer.assign(all_of(topic, 10))
    while not handled.is_complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            handled.add(message)
    seen: Seen = {
        "handled": handled.records,
        "assigned": positions(consumer.assignment()),
        "watermarks": [consumer.get_watermark_offsets(one, timeout=PATIENCE_S) for one in all_of(topic)],
        "by time": positions(consumer.offsets_for_times(all_of(topic, 0), timeout=PATIENCE_S)),
        "committed": positions(consumer.commit(asynchronous=False)),
    }
    consumer.unassign()
    seen["unassigned"] = consumer.assignment()
    consumer.close()
    return seen


def use_after_close(kind: AnyClass, settings: Settings, topic: str) -> Seen:
    """A shutdown path that calls a closed consumer again."""
    consumer = kind(settings)
    consumer.subscribe([topic])
    consumer.poll(0)
    consumer.close()
    errors: dict[str, str] = {}
    for name, call in {
        "poll": lambda: consumer.poll(0),
        "consume": lambda: consumer.consume(1, 0),
        "commit": consumer.commit,
        "assignment": consumer.assignment,
        "close": consumer.close,
    }.items():
        try:
            call()
        except RuntimeError as error:
            errors[name] = str(error)
    return {"errors": errors}


PROGRAMS: tuple[Program, ...] = (
    commit_each_record,
    skip_falsy_messages,
    end_at_the_last_record,
    worker_thread_commits,
    store_offsets_by_hand,
    commit_batches_in_the_background,
    start_elsewhere_in_on_assign,
    commit_in_on_revoke,
    pause_while_busy,
    seek_back,
    assign_without_subscription,
    use_after_close,
)
