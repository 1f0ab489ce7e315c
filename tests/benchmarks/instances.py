"""Static members, each an instance id with its successive processes, and the partitions that moved."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.groups import is_balanced, owned_by
from tests.benchmarks.processes import Report, Worker, WorkerFailedError
from tests.benchmarks.workers.instance import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from tests.benchmarks.bench import Bench, Side

NOT_WITH_USERS = ["hypothesis"]
"""kio imports it if it is installed; the tests install it and users do not (see the figure `start`)."""

_BALANCE_S = 90.0
_LEAVE_S = 60.0
_CHECK_EVERY_S = 0.01
_CALLBACKS = ("assigned", "revoked", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The times of a process's first steps, in seconds since its start.

    `cpu_s` is the processor time of its process until the first record, which is independent of other processes.
    """

    running: float
    constructing: float
    constructed: float
    assigned: float
    first_record: float
    cpu_s: float

    @property
    def from_constructor(self) -> float:
        """The time from the constructor to the first record."""
        return self.first_record - self.constructing


class InstanceProcess:
    """One process of an instance."""

    def __init__(self, kind: str, job: Job) -> None:
        self.job = job
        self._process = ExitStack()
        self.started_at = time.monotonic()
        self.killed_at: float | None = None
        self.worker = self._process.enter_context(Worker(kind, job))

    def kill(self) -> float:
        """Kill the process as `kill -9` does and wait for its end; return the time of the signal."""
        self.killed_at = time.monotonic()
        self._process.close()
        return self.killed_at

    def leave(self) -> float:
        """Close the consumer and wait for the end of the process; return when the consumer began to close."""
        self.worker.end(_LEAVE_S)
        self._process.close()
        return self.worker.reports("leaving")[-1].at

    def owned(self) -> frozenset[int]:
        """Return the partitions that its callbacks report as owned."""
        return owned_by(self.callbacks())[0]

    def callbacks(self) -> list[Report]:
        """Return its rebalance callbacks so far."""
        return self.worker.reports(*_CALLBACKS)

    @property
    def constructing_at(self) -> float:
        """The time at which the constructor of its consumer was called."""
        return self._first("constructing")

    def steps(self, timeout_s: float) -> Steps:
        """Wait for the first record; return the times of the steps until then.

        Raises:
            WorkerFailedError: The process received no record in time, or the consumer failed permanently before.
        """
        self.worker.until(lambda: bool(self.firsts() or self.fatal()), timeout_s, "'first'")
        if not self.firsts():
            raise WorkerFailedError(f"no record: {self.fatal()[0].facts['message']}")
        moments = {event: self._first(event) for event in ("running", "constructing", "constructed", "assigned")}
        since = {event: at - self.started_at for event, at in moments.items()}
        first = self.worker.reports("first")[0]
        return Steps(**since, first_record=first.at - self.started_at, cpu_s=first.facts["cpu_s"])

    def firsts(self) -> dict[int, float]:
        """Return the time of the first record of each partition."""
        return {report.facts["partition"]: report.at for report in self.worker.reports("first")}

    def fatal(self) -> list[Report]:
        """Return the fatal errors, after which its consumer does not work any more."""
        return [report for report in self.worker.reports("error") if report.facts["is_fatal"]]

    def _first(self, event: str) -> float:
        """Return the time of the first event of this kind; empty assignments do not count."""
        reports = [one for one in self.worker.reports(event) if event != "assigned" or one.facts["partitions"]]
        return reports[0].at


class Instance:
    """One instance id; `process` is its current process."""

    def __init__(self, kind: str, job: Job) -> None:
        self._kind = kind
        self._job = job
        self.processes: list[InstanceProcess] = []

    @property
    def name(self) -> str:
        """The instance id."""
        return self._job.config["group.instance.id"]

    @property
    def process(self) -> InstanceProcess:
        """The latest process."""
        return self.processes[-1]

    def start(self) -> InstanceProcess:
        """Start a new process."""
        number = len(self.processes)
        ledger = f"{self._job.ledger}-{number}" if self._job.ledger else ""
        self.processes.append(InstanceProcess(self._kind, replace(self._job, ledger=ledger)))
        return self.process


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """The changes in the group after a crash or a bounce of one instance.

    Attributes:
        partitions: The partitions that the instance lost or got, and those in the callbacks of the other members.
        callbacks: The number of rebalance callbacks at the other members.
    """

    partitions: frozenset[int]
    callbacks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the group before a change to one of its instances."""

    instance: Instance
    owned: frozenset[int]
    callbacks: dict[str, int]


class StaticGroup:
    """A group of static members; all its processes end with its context.

    A `committer` writes its ledgers into the folder `ledgers`.
    """

    def __init__(
        self,
        bench: Bench,
        side: Side,
        topic: str,
        members: int,
        *,
        kind: str = "instance",
        batch: int = 0,
        partitions: int = PARTITIONS,
    ) -> None:
        self._folder = TemporaryDirectory()
        self._partitions = partitions
        self.ledgers = Path(self._folder.name)
        config = bench.config(side)
        self.instances = [
            Instance(
                kind,
                Job(
                    module=side.module,
                    config={**config, "group.instance.id": f"member-{number}"},
                    topic=topic,
                    hides=NOT_WITH_USERS,
                    batch=batch,
                    ledger=str(self.ledgers / f"{number}") if kind == "committer" else "",
                ),
            )
            for number in range(members)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            process.kill()
        self._folder.cleanup()

    def processes(self) -> list[InstanceProcess]:
        """Return the processes of all instances in the order of their start."""
        return sorted(
            (process for one in self.instances for process in one.processes), key=lambda process: process.started_at
        )

    def begin(self) -> None:
        """Start every member and wait until all own even shares and each has received a record.

        Raises:
            WorkerFailedError: The group is not balanced in time.
        """
        for instance in self.instances:
            instance.start()
        give_up_at = time.monotonic() + _BALANCE_S
        for instance in self.instances:
            instance.process.steps(_BALANCE_S)
        while not is_balanced([one.process.owned() for one in self.instances], self._partitions):
            if time.monotonic() > give_up_at:
                shares = [sorted(one.process.owned()) for one in self.instances]
                raise WorkerFailedError(f"no balance within {_BALANCE_S} s: {shares}")
            time.sleep(_CHECK_EVERY_S)

    def snapshot(self, instance: Instance) -> Snapshot:
        """Return the current state of the group, for a comparison with a later one."""
        callbacks = {one.name: len(one.process.callbacks()) for one in self.instances if one is not instance}
        return Snapshot(instance=instance, owned=instance.process.owned(), callbacks=callbacks)

    def movement(self, before: Snapshot) -> Movement:
        """Return the changes since a snapshot; only its instance may have started again."""
        calls = [call for one in self.instances for call in self._callbacks_since(one, before)]
        return moved(before.owned, before.instance.process.owned(), calls)

    @staticmethod
    def _callbacks_since(one: Instance, before: Snapshot) -> Sequence[Report]:
        return one.process.callbacks()[before.callbacks[one.name] :] if one.name in before.callbacks else ()

    def errors(self) -> list[str]:
        """Return the errors that the consumers reported, each with the number of processes."""
        found = [one.facts["message"] for process in self.processes() for one in process.worker.reports("error")]
        return [f"{found.count(message)} x {message}" for message in sorted(set(found))]


def moved(had: frozenset[int], has: frozenset[int], calls: Iterable[Report]) -> Movement:
    """Return the moved partitions from an instance's shares before and after, and from the others' callbacks."""
    callbacks = list(calls)
    named = frozenset(partition for call in callbacks for partition in call.facts["partitions"])
    return Movement(partitions=(had ^ has) | named, callbacks=len(callbacks))
