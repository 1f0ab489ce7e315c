"""The handler of Spark's tasks while members are killed; a module that tasks can import, unlike a worker's own."""

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
    """One attempt that got records; moments of CLOCK_MONOTONIC.

    Attributes:
        instance: Which member.
        attempt: Its number, larger for a later one.
        pid: The Python worker.
        executor: The JVM above it.
        began_at: When the task's function began: it unpickles its sink first.
        first_at: When the sink got its first records.
    """

    instance: int
    attempt: int
    pid: int
    executor: int
    began_at: float
    first_at: float


def marks(folder: Path) -> list[Mark]:
    """All of them, in the order of their first records."""
    return sorted(
        (Mark(**json.loads(path.read_text())) for path in folder.glob("*.json")), key=lambda mark: mark.first_at
    )


class Marked:
    """A sink that notes when it came into its task, and when its first records did."""

    def __init__(self, sink: Callable[[list[Message], SinkContext], None], folder: str) -> None:
        self._sink = sink
        self._folder = folder
        self._began_at = 0.0
        self._is_marked = False

    def __setstate__(self, state: dict[str, object]) -> None:
        """Arrive in the task."""
        began_at = time.monotonic()
        self.__dict__.update(state)
        self._began_at = began_at

    @property
    def commits_offsets(self) -> bool:
        """As what is inside."""
        return bool(getattr(self._sink, "commits_offsets", False))

    def prepare(self, instance: int, instance_id: str) -> None:
        """Prepare what is inside."""
        prepare = getattr(self._sink, "prepare", None)
        if callable(prepare):
            prepare(instance, instance_id)

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Leave a mark before the first batch is written."""
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
        """Close what is inside."""
        close = getattr(self._sink, "close", None)
        if callable(close):
            close()


def _parent(pid: int) -> int:
    """Above a worker is its daemon, and above that the executor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Makes of each record one for another topic, into the same partition."""

    topic: str

    def __call__(self, message: Message) -> list[OutRecord]:
        """The same value."""
        from consumer_membership.spark import OutRecord  # noqa: PLC0415 - in a task, once the package is there

        return [OutRecord(topic=self.topic, value=message.value(), partition=message.partition())]


def number_of(message: Message) -> tuple[int]:
    """A row of the table: the record's number."""
    return (NUMBER_AND_TIME.unpack_from(message.value() or b"")[0],)
