"""The demo's numbered records: what they look like, the stream that produces them, and the check of who saw which.

Number n goes to partition n modulo the count of partitions, so the numbers of one partition have a fixed distance, and
what a member handled can be told as a few runs instead of thousands of numbers. A key stays in its partition.

The check's promise is "at least once, and more than once only where a member died before it committed": nothing is
lost, and a record that was seen twice was seen by a member that was killed. A member that leaves, joins or gives
partitions away in good order causes no double.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

#: Keys per partition.
_KEYS = 25
#: How often a portion of records is produced.
_PORTION_S = 0.02
_FLUSH_S = 20.0
#: Numbers named in a finding.
_SAMPLE = 5


class Run(NamedTuple):
    """`length` numbers of one partition: `first`, and then each the count of partitions further."""

    first: int
    length: int


def partition_of(number: int, partitions: int) -> int:
    """The partition that this record belongs to."""
    return number % partitions


def key_of(number: int, partitions: int) -> bytes:
    """The record's key."""
    return b"customer-%d" % (number % (partitions * _KEYS))


def value_of(number: int) -> bytes:
    """The record's value: its number."""
    return b"%d" % number


class GatheredRuns:
    """Gathers numbers, partition by partition, into runs."""

    def __init__(self, partitions: int) -> None:
        self._distance = partitions
        self._open: dict[int, list[int]] = {}
        self._closed: list[Run] = []

    def add(self, number: int) -> None:
        """Take one number in."""
        partition = partition_of(number, self._distance)
        run = self._open.get(partition)
        if run is not None and number == run[0] + run[1] * self._distance:
            run[1] += 1
            return
        if run is not None:
            self._closed.append(Run(*run))
        self._open[partition] = [number, 1]

    def take(self) -> tuple[Run, ...]:
        """Give out all runs so far, in each partition in the order of the numbers, and begin anew."""
        taken = (*self._closed, *(Run(*run) for run in self._open.values()))
        self._open.clear()
        self._closed.clear()
        return taken


class Stream:
    """Produces numbered records at a steady rate from `start` to `stop`, in a thread of its own.

    Idempotent, so that the broker holds each record once and a record seen twice was seen twice.
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
        #: How many records were handed to the producer: the numbers 0 to `produced` - 1.
        self.produced = 0
        #: Why the stream broke off or a record was not taken; None if nothing of the kind happened.
        self.refusal: KafkaError | KafkaException | None = None

    @property
    def unacknowledged(self) -> int:
        """How many of them the broker has not acknowledged."""
        return self.produced - self._acknowledged

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Produce nothing more, and wait until the broker has acknowledged all or has had ample time for it."""
        self._end()
        self._producer.flush(_FLUSH_S)

    def close(self) -> None:
        """Stop at once; what the broker did not acknowledge yet is dropped. May be repeated."""
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
            # The queue is full: acknowledgements that are waiting make room, and the number's turn comes again.
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
    """What the check found.

    `twice` counts the records that were seen more than once and that a killed member accounts for; `findings` say what
    is wrong, one sentence each, and are empty if the promise was kept.
    """

    produced: int
    seen: int
    twice: int
    committed: int
    end: int
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return not self.findings


class SeenRecords:
    """Counts by number who saw which record; `partitions` is the distance between two numbers of one partition."""

    def __init__(self, partitions: int) -> None:
        self._distance = partitions
        #: By number: 0 if nobody saw it, else one more than the first member's index.
        self._first_seen_by = bytearray()
        self._later_seen_by: dict[int, list[int]] = {}
        self.seen = 0

    @property
    def twice(self) -> int:
        """How many records were seen more than once."""
        return len(self._later_seen_by)

    def add(self, member: int, run: Run) -> None:
        """Count these records as seen by the member with this index (below 255)."""
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
        strange: int = 0,
        unacknowledged: int = 0,
    ) -> CheckResult:
        """What is to be said of the numbers 0 to `produced` - 1, given the group's offsets and the ends by partition.

        `killed` are the members that had no chance to commit, `strange` counts the records that members saw and that
        are not the demo's, `unacknowledged` those that may be there or not.
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
            _finding("never seen", unseen),
            _finding("seen more than once although no killed member had them", unexplained),
            _finding("seen and never produced", beyond),
            f"{strange} records were not the demo's own" if strange else "",
            f"{unacknowledged} records were never acknowledged by the broker" if unacknowledged else "",
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
    """One sentence, empty where there is nothing to say."""
    if not numbers:
        return ""
    named = ", ".join(map(str, sorted(numbers)[:_SAMPLE])) + (", ..." if len(numbers) > _SAMPLE else "")
    return f"{len(numbers)} records were {what}: {named}"
