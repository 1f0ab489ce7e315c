"""Static members, each an instance id and its successive processes, and the partitions that moved."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.groups import is_balanced, owned_by
from tests.benchmarks.processes import Said, Worker, WorkerFailedError
from tests.benchmarks.workers.instance import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from tests.benchmarks.bench import Bench, Side

NOT_WITH_USERS = ["hypothesis"]
"""kio imports it where it is installed, as it is for the tests and is not for users (see the figure `start`)."""

_BALANCE_S = 90.0
_LEAVE_S = 60.0
_GLANCE_S = 0.01
_CALLBACKS = ("assigned", "revoked", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The times of a process's first steps, in seconds since its start.

    `cpu_s` is what its process had computed by its first record, which another one's load does not stretch.
    """

    running: float
    constructing: float
    constructed: float
    assigned: float
    first_record: float
    cpu_s: float

    @property
    def from_constructor(self) -> float:
        """Constructor to first record."""
        return self.first_record - self.constructing


class Lifetime:
    """One process of an instance."""

    def __init__(self, kind: str, job: Job) -> None:
        self.job = job
        self._process = ExitStack()
        self.started_at = time.monotonic()
        self.killed_at: float | None = None
        self.worker = self._process.enter_context(Worker(kind, job))

    def kill(self) -> float:
        """Kill it as `kill -9` does, and return as soon as it is gone; the moment of the signal."""
        self.killed_at = time.monotonic()
        self._process.close()
        return self.killed_at

    def leave(self) -> float:
        """Close its consumer and wait for its end; the moment at which it began to close."""
        self.worker.end(_LEAVE_S)
        self._process.close()
        return self.worker.said("leaving")[-1].at

    def owned(self) -> frozenset[int]:
        """What its callbacks say that it owns."""
        return owned_by(self.callbacks())[0]

    def callbacks(self) -> list[Said]:
        """Its rebalance callbacks so far."""
        return self.worker.said(*_CALLBACKS)

    @property
    def constructing_at(self) -> float:
        """The moment at which its consumer began to be made."""
        return self._first("constructing")

    def steps(self, timeout_s: float) -> Steps:
        """Its way to the first record, as soon as it is there.

        Raises:
            WorkerFailedError: None came in time, or the consumer failed permanently before.
        """
        self.worker.until(lambda: bool(self.firsts() or self.fatal()), timeout_s, "'first'")
        if not self.firsts():
            raise WorkerFailedError(f"no record: {self.fatal()[0].facts['words']}")
        moments = {word: self._first(word) for word in ("running", "constructing", "constructed", "assigned")}
        since = {word: at - self.started_at for word, at in moments.items()}
        first = self.worker.said("first")[0]
        return Steps(**since, first_record=first.at - self.started_at, cpu_s=first.facts["cpu_s"])

    def firsts(self) -> dict[int, float]:
        """When the first record of each partition came."""
        return {said.facts["partition"]: said.at for said in self.worker.said("first")}

    def fatal(self) -> list[Said]:
        """The errors after which its consumer does nothing any more."""
        return [said for said in self.worker.said("error") if said.facts["is_fatal"]]

    def _first(self, word: str) -> float:
        """The first moment of a word; an assignment of nothing is none."""
        said = [one for one in self.worker.said(word) if word != "assigned" or one.facts["partitions"]]
        return said[0].at


class Instance:
    """One instance id; `life` is its current process."""

    def __init__(self, kind: str, job: Job) -> None:
        self._kind = kind
        self._job = job
        self.lives: list[Lifetime] = []

    @property
    def name(self) -> str:
        """The instance id."""
        return self._job.config["group.instance.id"]

    @property
    def life(self) -> Lifetime:
        """The latest one."""
        return self.lives[-1]

    def start(self) -> Lifetime:
        """A new life, which begins now."""
        number = len(self.lives)
        ledger = f"{self._job.ledger}-{number}" if self._job.ledger else ""
        self.lives.append(Lifetime(self._kind, replace(self._job, ledger=ledger)))
        return self.life


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """The changes in the group after a crash or a bounce of one instance.

    Attributes:
        partitions: Those that the instance had and has no more, or the other way round, and those that the others'
            callbacks name.
        callbacks: How often a rebalance callback was called at the others.
    """

    partitions: frozenset[int]
    callbacks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The state of the group before a change to one of its instances."""

    instance: Instance
    owned: frozenset[int]
    heard: dict[str, int]


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
        for life in self.lives():
            life.kill()
        self._folder.cleanup()

    def lives(self) -> list[Lifetime]:
        """All of them, in the order of their start."""
        return sorted((life for one in self.instances for life in one.lives), key=lambda life: life.started_at)

    def begin(self) -> None:
        """Start every member and return when they own everything evenly and each has had a record.

        Raises:
            WorkerFailedError: They do not.
        """
        for instance in self.instances:
            instance.start()
        give_up_at = time.monotonic() + _BALANCE_S
        for instance in self.instances:
            instance.life.steps(_BALANCE_S)
        while not is_balanced([one.life.owned() for one in self.instances], self._partitions):
            if time.monotonic() > give_up_at:
                shares = [sorted(one.life.owned()) for one in self.instances]
                raise WorkerFailedError(f"no balance within {_BALANCE_S} s: {shares}")
            time.sleep(_GLANCE_S)

    def picture(self, instance: Instance) -> Picture:
        """How things are now, to be compared with what comes."""
        heard = {one.name: len(one.life.callbacks()) for one in self.instances if one is not instance}
        return Picture(instance=instance, owned=instance.life.owned(), heard=heard)

    def movement(self, before: Picture) -> Movement:
        """Return the changes since a snapshot; only its instance may have started again."""
        calls = [call for one in self.instances for call in self._heard_since(one, before)]
        return moved(before.owned, before.instance.life.owned(), calls)

    @staticmethod
    def _heard_since(one: Instance, before: Picture) -> Sequence[Said]:
        return one.life.callbacks()[before.heard[one.name] :] if one.name in before.heard else ()

    def errors(self) -> list[str]:
        """What the consumers complained of, and how many of them did."""
        said = [one.facts["words"] for life in self.lives() for one in life.worker.said("error")]
        return [f"{said.count(words)} x {words}" for words in sorted(set(said))]


def moved(had: frozenset[int], has: frozenset[int], calls: Iterable[Said]) -> Movement:
    """Return the moved partitions from an instance's shares before and after, and from the others' callbacks."""
    heard = list(calls)
    named = frozenset(partition for call in heard for partition in call.facts["partitions"])
    return Movement(partitions=(had ^ has) | named, callbacks=len(heard))
