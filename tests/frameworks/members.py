"""Two members with the same program, each in its own process: one joins and one leaves while records are written."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.frameworks.environments import variables
from tests.support.waiting import wait_until

PARTITIONS = 4
#: The time limit of a framework's program, which may have to start its own processes first.
PROGRAMS_S = 90.0
#: The number of records that a member processes in each part of the walkthrough.
SOME = 100
#: The time between two records, in seconds.
PAUSE_S = 0.005


class Feeder:
    """Writes numbered records to all partitions in turn, each with its partition's key, until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self.written = 0
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop writing; return when all records are acknowledged."""
        self._stopping.set()
        self._thread.join(PROGRAMS_S)
        assert self._producer.flush(PROGRAMS_S) == 0

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            partition = self.written % PARTITIONS
            self._producer.produce(self._topic, str(self.written), str(partition), partition)
            self._producer.poll(0)
            self.written += 1


class Member:
    """A process that prints `record NUMBER` for each record that it has processed."""

    def __init__(self, words: Sequence[str], cwd: Path | None = None, more: dict[str, str] | None = None) -> None:
        self.records: list[int] = []
        self.other: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**variables(), **(more or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output: IO[str] = self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        self._output.close()

    def wait(self, condition: Callable[[list[int]], bool], what: str) -> None:
        """Wait until the condition holds for the member's records."""

        def is_so() -> bool:
            met = condition(self.records)
            assert met or not self._is_over, f"{what}: not before its end; {self._seen()}"
            return met

        wait_until(is_so, what, PROGRAMS_S, changed=self._changed, seen=self._seen)

    def _seen(self) -> str:
        return f"{len(self.records)} records; " + "\n".join(self.other[-40:])

    def end(self) -> int:
        """Wait for the process to end without a signal; return its exit code."""
        code = self._process.wait(PROGRAMS_S)
        self._reader.join(PROGRAMS_S)
        return code

    def stop(self) -> int:
        """Stop the process by SIGTERM, as an operator does; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.end()

    @property
    def _is_over(self) -> bool:
        return not self._reader.is_alive()

    def _read(self) -> None:
        for line in self._output:
            word, _, number = line.strip().partition(" ")
            with self._changed:
                if word == "record":
                    self.records.append(int(number))
                else:
                    self.other.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one walkthrough: lost and repeated records and exit codes."""

    lost: list[int]
    twice: list[int]
    #: The exit codes of both members.
    codes: list[int]

    @classmethod
    def of(cls, written: int, processed: Iterable[int], codes: list[int]) -> Outcome:
        """Compare the written records with the processed ones."""
        counts = Counter(processed)
        return cls(
            lost=[number for number in range(written) if number not in counts],
            twice=sorted(number for number, count in counts.items() if count > 1),
            codes=codes,
        )


@dataclass(slots=True)
class Journey:
    """A walkthrough of a group: one member works, another joins, the first leaves, and the second continues."""

    servers: str
    topic: str
    group: str
    start: Callable[[int], Member]
    #: The protocol of the group while it has both members.
    protocol: str = ""
    written: int = 0
    records: list[list[int]] = field(default_factory=list)

    def run(self) -> Outcome:
        """Run the walkthrough while records are written; return the outcome for the records that both processed."""
        with Feeder(self.servers, self.topic) as feeder, self.start(0) as first:
            first.wait(lambda records: len(records) >= SOME, "the first works")
            with self.start(1) as second:
                second.wait(lambda records: len(records) >= SOME, "the second works")
                before = len(first.records)
                first.wait(lambda records: len(records) >= before + SOME, "both work")
                admin = AdminClient({"bootstrap.servers": self.servers})
                self.protocol = admin.describe_consumer_groups([self.group])[self.group].result().type.name
                codes = [first.stop()]
                left_at = feeder.written
                second.wait(lambda records: _partitions(records, left_at) == PARTITIONS, "the second has all")
                feeder.stop()
                self.written = feeder.written
                # Records of a partition arrive in order: a record that is missing after the last one is lost.
                last = set(range(self.written - PARTITIONS, self.written))
                second.wait(lambda records: last <= set(records), "the second has the last ones")
                codes.append(second.stop())
                self.records = [first.records, second.records]
        return Outcome.of(self.written, [*first.records, *second.records], codes)


def _partitions(records: Iterable[int], since: int) -> int:
    """Return from how many partitions there are records with at least this number."""
    return len({number % PARTITIONS for number in records if number >= since})
