"""The history of a round: the records, partitions and commits of each process, as JSON lines with times of one clock.

Each process appends to its own file (`HistoryWriter`), one line for each event, with one write call for each line. If
the process is killed, its file has complete lines and at most one incomplete line at the end, which `read` ignores.
`read_all` merges the files of a round. Members with any client library can write this format. Clients without member
ids, epochs or leases write None (epochs: -1).

All times are nanoseconds of `time.monotonic_ns()`, a clock that all processes of a Linux machine share. Convert times
of other clocks before you write them: `until_ns = now_ns() + remaining`.

A member writes these events in the thread that calls the consumer:

- `Assigned` at the start of `on_assign`, before the application may receive a record of the new partitions.
- `Received` after `poll` has returned the record, with the time before the call as `begun_ns`. A processor writes it
  when the handler begins, with the end of the thread's previous handler as `begun_ns`.
- `Finished` when the handler of a processor has returned.
- `Revoked` at the end of `on_revoke`, and `Lost` at the start of `on_lost`: the application does not use the partitions
  afterwards.
- `CommitBegun` before the request can be sent, and `CommitEnded` with the same `commit` after its response.

It writes `Statement` for samples of `membership()` and `health()` in any thread.

The processes of Spark tasks are named `<driver>-<task>-<attempt>`. An event that names a driver holds for its tasks.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

#: The current time of the clock that all processes share.
now_ns = time.monotonic_ns
SUFFIX = ".history"


class Partition(NamedTuple):
    """A partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Offset(NamedTuple):
    """An offset of a partition: the position of the next record."""

    topic: str
    number: int
    offset: int

    @property
    def partition(self) -> Partition:
        """Its partition."""
        return Partition(self.topic, self.number)


class Epoch(NamedTuple):
    """A partition, with the member epoch (classic: the generation) at which it was assigned."""

    topic: str
    number: int
    epoch: int

    @property
    def partition(self) -> Partition:
        """Its partition."""
        return Partition(self.topic, self.number)


# ---- the producer and the harness ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The broker has acknowledged a record. `number` increases within the partition, and identifies a record in it."""

    partition: Partition
    offset: int
    number: int
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultBegan:
    """A fault begins; `target` is the process, broker or topic that it affects."""

    fault: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEnded:
    """A fault is over."""

    fault: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsObserved:
    """An admin client has read the committed offsets of a group; partitions without an offset are omitted."""

    group: str
    offsets: tuple[Offset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsReset:
    """A fault deletes or changes the committed offsets of these partitions, which makes earlier commits void.

    The harness writes it before the request is sent and again after its response. For a re-created topic it writes
    `Recreated` instead.
    """

    group: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreated:
    """A fault deletes the topic and creates it again: earlier records need not be received, and offsets restart at 0.

    The harness writes it before the request is sent, and produces no record until the topic is created.
    """

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """An administrator removes the member of this running process; by design, its lease is void then.

    The harness writes it before the request is sent.
    """

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """The harness kills this process, so that another process may replace it immediately.

    The harness writes it before the signal is sent.
    """

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A `read_committed` consumer has read the result of this source record in the output of transactions."""

    group: str
    partition: Partition
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """All faults are over, the groups have consumed all records, and each member must be in a steady state.

    The harness writes it some seconds after a member received the last record, and before it closes the members.
    """


# ---- members ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process begins; this is the first line of its file.

    Attributes:
        client: `consumer-membership`, `confluent-kafka` or `java`.
        instance_id: None for dynamic members.
        has_leases: The member withholds records after the end of its lease.
        is_transactional: It commits in transactions.
        is_manual: It calls `assign`; the group does not assign its partitions.
        has_callbacks: It writes `Assigned`, `Revoked` and `Lost`.
        is_processor: It writes `Finished`, and keeps only the order of the records of each key.
        commits_automatically: The consumer commits automatically, and the history does not have all of its commits.
        session_s: The session timeout of its group, if the harness has set it.
    """

    group: str
    kind: str
    pid: int
    client: str = "consumer-membership"
    instance_id: str | None = None
    has_leases: bool = False
    is_transactional: bool = False
    is_manual: bool = False
    has_callbacks: bool = True
    is_processor: bool = False
    commits_automatically: bool = False
    session_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The group has assigned these partitions. `epochs` are the tokens of their leases; -1: the member has no tokens.

    `instance_id` is the id that the member has taken from its pool.
    """

    member_id: str | None
    epochs: tuple[Epoch, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """The member prepares for partitions that another process will hand over to it (`on_warm`)."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """The member has released these partitions, after it received the response to its last commit of them."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The member has learned that it does not own these partitions."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The application has received a record. `begun_ns` is the time before the call that returned it.

    `lease_until_ns` is the end of the lease, read directly after the call; None: no lease.
    """

    partition: Partition
    offset: int
    number: int
    begun_ns: int
    lease_until_ns: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The handler of a record has returned. Only processors write this; they may commit only finished records."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBegun:
    """The member begins a commit. `commit` is a number that the process uses for this commit only."""

    commit: int
    offsets: tuple[Offset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEnded:
    """The response to a commit. `error` is the name of Kafka's error code; None: the offsets are committed.

    `is_unknown`: the broker may have processed the request, for example after a timeout.
    """

    commit: int
    error: str | None = None
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewed:
    """The lease of the member now ends at `until_ns`. Not written if the session is assumed (`is_session_assumed`)."""

    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sample of `membership()` and `health()`. `begun_ns` is the time before the calls.

    `owned` has the partitions of `membership().owned` with their epochs, and `lease_until_ns` the end of its lease.
    `verdict` is the verdict of `health()` (for example `consuming`), and `stalled` has the partitions that it reports
    as stalled.
    """

    begun_ns: int
    state: str
    member_id: str
    member_epoch: int
    owned: tuple[Epoch, ...]
    lease_until_ns: int | None = None
    verdict: str | None = None
    would_restart_help: bool = False
    stalled: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A call of the member has raised this error; `is_fatal`: the process ends because of it."""

    error: str
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The member has closed its consumer."""


Event: TypeAlias = (
    Produced
    | FaultBegan
    | FaultEnded
    | OffsetsObserved
    | OffsetsReset
    | Recreated
    | Evicted
    | Killed
    | Output
    | Settled
    | Started
    | Assigned
    | Warmed
    | Revoked
    | Lost
    | Received
    | Finished
    | CommitBegun
    | CommitEnded
    | LeaseRenewed
    | Statement
    | Raised
    | Closed
)
_KINDS: Mapping[str, Callable[..., Event]] = {kind.__name__: kind for kind in Event.__args__}
#: The fields that contain lists of partitions, with the type of an item.
_TUPLES: Mapping[str, type[Partition | Offset | Epoch]] = {
    "partitions": Partition,
    "stalled": Partition,
    "offsets": Offset,
    "epochs": Epoch,
    "owned": Epoch,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line: an event, its time, and the name of its process. A restarted process has another name."""

    at_ns: int
    process: str
    event: Event

    def to_line(self) -> bytes:
        """Return the line, including the newline."""
        event = self.event
        values = {field.name: getattr(event, field.name) for field in fields(event)}
        named = {"at": self.at_ns, "process": self.process, "event": type(event).__name__, **values}
        return json.dumps(named, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read a line. Raises ValueError if the line is not complete."""
        try:
            named = json.loads(line)
            at, process, kind = named.pop("at"), named.pop("process"), _KINDS[named.pop("event")]
            return cls(at_ns=at, process=process, event=kind(**{name: _value(name, v) for name, v in named.items()}))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an event: {line!r}") from error


def _value(name: str, value: object) -> object:
    if name == "partition":
        return Partition(*value)  # type: ignore[misc]  # a list of JSON
    if name in _TUPLES:
        return tuple(_TUPLES[name](*item) for item in value)  # type: ignore[attr-defined]  # a list of JSON
    return value


class HistoryWriter:
    """Appends the events of one process to its file. Several threads may use it.

    The times within a file never decrease.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self.path = folder / f"{process}{SUFFIX}"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        # Reentrant: a signal handler may interrupt a write of its thread and write itself.
        self._lock = threading.RLock()
        self._commits = 0

    def write(self, event: Event) -> None:
        """Append an event with the current time."""
        with self._lock:
            line = Entry(at_ns=now_ns(), process=self.process, event=event).to_line()
            if os.write(self._file, line) != len(line):
                raise OSError(f"could not write a complete line to {self.path}")

    def begin_commit(self, offsets: Iterable[Offset]) -> int:
        """Append `CommitBegun` with a new number, and return the number for `CommitEnded`."""
        with self._lock:
            self._commits += 1
            self.write(CommitBegun(commit=self._commits, offsets=tuple(offsets)))
            return self._commits

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def is_of(process: str, member: str) -> bool:
    """Whether a process is this member, or a task attempt of this Spark driver."""
    return process == member or process.startswith(f"{member}-")


def read(path: Path) -> Iterator[Entry]:
    """Read the history of one process; an incomplete last line is ignored.

    Raises:
        ValueError: another line is not a complete event.
    """
    for line in _lines(path, 0):
        yield Entry.from_line(line)


def _lines(path: Path, position: int) -> Iterator[bytes]:
    """Yield the complete lines that begin at or after this position of the file."""
    with path.open("rb") as file:
        file.seek(position)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line


class HistoryReader:
    """Reads the histories of all processes of a round while they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._positions: dict[Path, int] = {}

    def new_entries(self) -> Iterator[Entry]:
        """Yield the events that were written since the last call; the events of one process are in order."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            for line in _lines(path, self._positions.get(path, 0)):
                self._positions[path] = self._positions.get(path, 0) + len(line)
                yield Entry.from_line(line)


def read_all(folder: Path) -> tuple[Entry, ...]:
    """Read the histories of all processes of a round, in the order of their times."""
    entries = [entry for path in sorted(folder.glob(f"*{SUFFIX}")) for entry in read(path)]
    # The sort is stable: events of one process keep the order of its file.
    return tuple(sorted(entries, key=lambda entry: entry.at_ns))
