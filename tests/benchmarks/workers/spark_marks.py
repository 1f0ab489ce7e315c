"""The sinks of Spark tasks whose members are killed, in a module that tasks can import."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.workers.member import NUMBER_AND_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from consumer_membership.spark import OutRecord, SinkContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One attempt that received records; times are CLOCK_MONOTONIC.

    Attributes:
        instance: The number of the member.
        attempt: The number of the attempt; later attempts have larger numbers.
        pid: The process id of the Python worker.
        executor: The process id of the executor's JVM.
        began_at: When the task's function began, which first unpickles its sink.
        first_at: When the sink received its first records.
    """

    instance: int
    attempt: int
    pid: int
    executor: int
    began_at: float
    first_at: float


def marks(folder: Path) -> list[Mark]:
    """Return all marks in this folder, in the order of their first records."""
    return sorted(
        (Mark(**json.loads(path.read_text())) for path in folder.glob("*.json")), key=lambda mark: mark.first_at
    )


class Marked:
    """A sink that records when it arrived in its task, and when it received its first records."""

    def __init__(self, sink: Callable[[list[Message], SinkContext], None], folder: str) -> None:
        self._sink = sink
        self._folder = folder
        self._began_at = 0.0
        self._is_marked = False

    def __setstate__(self, state: dict[str, object]) -> None:
        """Record the arrival in the task."""
        began_at = time.monotonic()
        self.__dict__.update(state)
        self._began_at = began_at

    @property
    def commits_offsets(self) -> bool:
        """Whether the wrapped sink commits offsets."""
        return bool(getattr(self._sink, "commits_offsets", False))

    def prepare(self, instance: int, instance_id: str) -> None:
        """Prepare the wrapped sink."""
        prepare = getattr(self._sink, "prepare", None)
        if callable(prepare):
            prepare(instance, instance_id)

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Write a mark before the first batch, then write the batch."""
        if not self._is_marked:
            self._is_marked = True
            mark = Mark(
                instance=context.instance,
                attempt=context.attempt,
                pid=os.getpid(),
                executor=_parent(os.getppid()),
                began_at=self._began_at,
                first_at=time.monotonic(),
            )
            draft = Path(self._folder, f"{mark.instance}-{mark.attempt}.draft")
            draft.write_text(json.dumps(asdict(mark)))
            draft.rename(draft.with_suffix(".json"))
        self._sink(batch, context)

    def close(self) -> None:
        """Close the wrapped sink."""
        close = getattr(self._sink, "close", None)
        if callable(close):
            close()


def _parent(pid: int) -> int:
    """Return the parent of a process: the daemon of a Python worker, and the executor of that daemon."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Copies each record to another topic, into the same partition."""

    topic: str

    def __call__(self, message: Message) -> list[OutRecord]:
        """Return a record with the same value."""
        from consumer_membership.spark import OutRecord  # noqa: PLC0415 - runs in a task

        return [OutRecord(topic=self.topic, value=message.value(), partition=message.partition())]


def number_of(message: Message) -> tuple[int]:
    """Return the row of the table: the record's number."""
    return (NUMBER_AND_TIME.unpack_from(message.value() or b"")[0],)
