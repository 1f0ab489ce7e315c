"""Sinks for the tests: each process notes its batches in a file, which outlives the process."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message

from consumer_membership.admin import GroupAdmin
from consumer_membership.spark import SinkContext
from consumer_membership.spark.control import MemberProgress
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Given:
    """One call of a sink."""

    pid: int
    instance: int
    attempt: int
    epoch: int
    offsets: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Recorder:
    """A sink that writes each record to a file before it returns."""

    folder: Path

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Write one line for the batch."""
        words = {
            "pid": os.getpid(),
            "instance": context.instance,
            "attempt": context.attempt,
            "epoch": max(fence.epoch for fence in context.fences),
            "offsets": [(m.topic(), m.partition(), m.offset()) for m in batch],
        }
        with (self.folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(words) + "\n")

    def given(self) -> list[Given]:
        """The calls of all processes, except for a line that is still being written."""
        return [
            Given(
                pid=words["pid"],
                instance=words["instance"],
                attempt=words["attempt"],
                epoch=words["epoch"],
                offsets=tuple((str(t), int(p), int(o)) for t, p, o in words["offsets"]),
            )
            for file in sorted(self.folder.glob("*.jsonl"))
            for line in file.read_text().splitlines(keepends=True)
            if line.endswith("\n")
            for words in [json.loads(line)]
        ]

    def counts(self) -> Counter[tuple[str, int, int]]:
        """The number of times that each record arrived."""
        return Counter(offset for call in self.given() for offset in call.offsets)


@dataclass(frozen=True, slots=True)
class Killer:
    """A sink that records its batches, and once kills a process after this number of batches, before the commit."""

    recorder: Recorder
    after: int = 2
    #: The process to kill: `worker` for the sink's own, any other value for the executor above it.
    victim: str = "worker"

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Record the batch; kill the process once."""
        self.recorder(batch, context)
        mark = self.recorder.folder / "killed"
        if len(self.recorder.given()) >= self.after and _first_to(mark):
            os.kill(os.getpid() if self.victim == "worker" else executor_above(os.getpid()), signal.SIGKILL)
            signal.pause()


@dataclass(frozen=True, slots=True)
class Sleepwalker:
    """A sink that passes its batches on to another sink; the first process stops itself (SIGSTOP) once before that."""

    sink: Callable[[list[Message], SinkContext], None]
    folder: Path

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Stop once, like a frozen machine; then write."""
        if _first_to(self.folder / "stopped"):
            (self.folder / "pid.new").write_text(str(os.getpid()))
            (self.folder / "pid.new").rename(self.folder / "pid")
            os.kill(os.getpid(), signal.SIGSTOP)
        self.sink(batch, context)


def _first_to(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def executor_above(worker: int) -> int:
    """The process id of the JVM above the daemon above this worker."""
    return _parent(_parent(worker))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass(frozen=True, slots=True)
class Refuser:
    """A sink that raises on each call."""

    text: str = "not today"

    def __call__(self, batch: Sequence[Message], context: SinkContext) -> None:
        """Raise."""
        raise ValueError(f"{self.text}: {len(batch)} records for {context.instance_id}")


@dataclass(frozen=True, slots=True)
class Overdue:
    """A sink that returns after its member has left the group because `sink_timeout_s` was exceeded."""

    servers: str

    def __call__(self, _: Sequence[Message], context: SinkContext) -> None:
        """Wait until the broker shows the static member as away."""
        admin = GroupAdmin({"bootstrap.servers": self.servers})
        wait_until(
            lambda: any(
                (member.instance_id, member.epoch) == (context.instance_id, -2)
                for member in admin.describe(context.group).group.members
            ),
            "a member that is away",
        )


def progress(instance: int, attempt: int, records: int) -> MemberProgress:
    """The report of a task's member."""
    return MemberProgress(
        instance=instance,
        attempt=attempt,
        host="h",
        pid=1,
        state="STABLE",
        epoch=3,
        owned=(("t", 2 * instance), ("t", 2 * instance + 1)),
        records=records,
        batches=1,
        rate=2.0,
        lag=3,
        waits_for=None,
        at=4.0,
        session_s=45.0,
    )
