"""The demo's numbered records: their format, the stream that produces them, and the check of consumed records.

Record n goes to partition n modulo the number of partitions. The numbers of a partition therefore have a fixed
distance, and a member can report its records as a few runs instead of thousands of numbers. A key has one partition.

The check requires at-least-once delivery: every record is consumed, and a record is consumed twice only if a killed
member consumed it. A member that joins, leaves or loses partitions in a rebalance causes no duplicates.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

#: The number of keys per partition.
_KEYS = 25
#: The interval between batches of records.
_PORTION_S = 0.02
_FLUSH_S = 20.0
#: The number of records named in a finding.
_SAMPLE = 5


class Run(NamedTuple):
    """`length` numbers of one partition, from `first` at a distance of the number of partitions."""

    first: int
    length: int


def partition_of(number: int, partitions: int) -> int:
    """Return the partition of this record."""
    return number % partitions


def key_of(number: int, partitions: int) -> bytes:
    """Return the record's key."""
    return b"customer-%d" % (number % (partitions * _KEYS))


def value_of(number: int) -> bytes:
    """Return the record's value, which is its number."""
    return b"%d" % number


class GatheredRuns:
    """Collects numbers into runs for each partition."""

    def __init__(self, partitions: int) -> None:
        self._distance = partitions
        self._open: dict[int, list[int]] = {}
        self._closed: list[Run] = []

    def add(self, number: int) -> None:
        """Add a number."""
        partition = partition_of(number, self._distance)
        run = self._open.get(partition)
        if run is not None and number == run[0] + run[1] * self._distance:
            run[1] += 1
            return
        if run is not None:
            self._closed.append(Run(*run))
        self._open[partition] = [number, 1]

    def take(self) -> tuple[Run, ...]:
        """Return and remove all runs, in the order of the numbers for each partition."""
        taken = (*self._closed, *(Run(*run) for run in self._open.values()))
        self._open.clear()
        self._closed.clear()
        return taken


class Stream:
    """Produces numbered records at a constant rate from `start` to `stop`, in its own thread.

    The producer is idempotent, so that a duplicate cannot come from the producer.
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: int, rate: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-stream", daemon=True)
        self._acknowledged = 0
        #: The number of records passed to the producer, which are 0 to `produced` - 1.
        self.produced = 0
        #: The error that stopped the stream or rejected a record, or None.
        self.refusal: KafkaError | KafkaException | None = None

    @property
    def unacknowledged(self) -> int:
        """The number of records that the broker has not acknowledged."""
        return self.produced - self._acknowledged

    def start(self) -> None:
        """Start producing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop producing, and wait until the broker has acknowledged all records, for at most 20 s."""
        self._end()
        self._producer.flush(_FLUSH_S)

    def close(self) -> None:
        """Stop immediately and drop unacknowledged records. Idempotent."""
        self._end()
        self._producer.purge()

    def _end(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(_PORTION_S):
            due = int((time.monotonic() - began) * self._rate)
            try:
                while self.produced < due and not self._stopping.is_set():
                    self._produce(self.produced)
                self._producer.poll(0)
            except KafkaException as refused:
                self.refusal = refused
                return

    def _produce(self, number: int) -> None:
        key, partition = key_of(number, self._partitions), partition_of(number, self._partitions)
        try:
            self._producer.produce(self._topic, value_of(number), key, partition, on_delivery=self._delivered)
        except BufferError:
            # The queue is full: process acknowledgments; the record is produced in the next iteration.
            self._producer.poll(_PORTION_S)
        else:
            self.produced += 1

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.refusal = error
        else:
            self._acknowledged += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of the check.

    `twice` counts the records that were consumed more than once because a member was killed. `findings` has one
    sentence for each violation.
    """

    produced: int
    seen: int
    twice: int
    committed: int
    end: int
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether there is no violation."""
        return not self.findings


class SeenRecords:
    """Counts which member consumed which record; `partitions` is the distance between two numbers of a partition."""

    def __init__(self, partitions: int) -> None:
        self._distance = partitions
        #: By number: 0 if not consumed, else the index of the first member plus 1.
        self._first_seen_by = bytearray()
        self._later_seen_by: dict[int, list[int]] = {}
        self.seen = 0

    @property
    def twice(self) -> int:
        """The number of records that were consumed more than once."""
        return len(self._later_seen_by)

    def add(self, member: int, run: Run) -> None:
        """Count these records as consumed by the member with this index (below 255)."""
        end = run.first + run.length * self._distance
        self._make_room(end)
        for number in range(run.first, end, self._distance):
            if self._first_seen_by[number]:
                self._later_seen_by.setdefault(number, []).append(member)
            else:
                self._first_seen_by[number] = member + 1
                self.seen += 1

    def check(
        self,
        *,
        produced: int,
        killed: Collection[int],
        committed: Mapping[int, int],
        end: Mapping[int, int],
        foreign: int = 0,
        unacknowledged: int = 0,
    ) -> CheckResult:
        """Check the records 0 to `produced` - 1, and compare the committed offsets with the end offsets.

        `killed` has the indexes of killed members, `foreign` counts consumed records that are not the demo's, and
        `unacknowledged` counts records that the broker may or may not have stored.
        """
        self._make_room(produced)
        first_seen_by = self._first_seen_by
        unseen = [number for number in range(produced) if not first_seen_by[number]]
        beyond = [number for number in range(produced, len(first_seen_by)) if first_seen_by[number]]
        unexplained = [
            number
            for number, later in self._later_seen_by.items()
            if not {first_seen_by[number] - 1, *later} & set(killed)
        ]
        findings = (
            _finding("never consumed", unseen),
            _finding("consumed more than once, although no killed member consumed them", unexplained),
            _finding("consumed, but never produced", beyond),
            f"records that the demo did not produce: {foreign}" if foreign else "",
            f"records that the broker did not acknowledge: {unacknowledged}" if unacknowledged else "",
            *(
                f"partition {partition}: committed offset {committed.get(partition, 'none')}, end offset {offset}"
                for partition, offset in sorted(end.items())
                if committed.get(partition, 0) != offset
            ),
        )
        return CheckResult(
            produced=produced,
            seen=self.seen,
            twice=self.twice - len(unexplained),
            committed=sum(offset for offset in committed.values() if offset > 0),
            end=sum(end.values()),
            findings=tuple(filter(None, findings)),
        )

    def _make_room(self, count: int) -> None:
        self._first_seen_by.extend(bytes(max(0, count - len(self._first_seen_by))))


def _finding(what: str, numbers: Collection[int]) -> str:
    """Return one sentence, or an empty string without such records."""
    if not numbers:
        return ""
    named = ", ".join(map(str, sorted(numbers)[:_SAMPLE])) + (", ..." if len(numbers) > _SAMPLE else "")
    return f"records {what}: {len(numbers)} ({named})"
