"""The history of a round: what each process received, owned and committed, as lines of JSON with one clock.

Each process appends to a file of its own (`HistoryWriter`), one line for an event, with one write per line: a kill at
any moment leaves complete lines and at most one torn line at the end, which `read` ignores. `read_all` merges the files
of a round. Members of every client may write this format; `epoch`, `member_id` and leases are None for clients without
them.

All times are nanoseconds of `time.monotonic_ns()`, which all processes of a Linux machine share. Convert times of other
clocks before you write them: `until_ns = now_ns() + remaining`.

When a member writes, in the thread that calls the consumer:

- `Assigned` at the begin of `on_assign`, before the application may receive a record of the new partitions.
- `Received` after `poll` has returned the record, with the time before the call as `begun_ns`; a processor writes it
  when the handler begins, with the end of the thread's previous handler as `begun_ns`, and `Finished` when the handler
  has returned.
- `Revoked` at the end of `on_revoke`, and `Lost` at the begin of `on_lost`: the application does not use the partitions
  afterwards.
- `CommitBegun` before the request can be sent, and `CommitEnded` with the same `commit` after its response.
- `Statement` for samples of `membership()` and `health()`, in any thread.

The processes of Spark tasks are named `<driver>-<task>-<attempt>`: what happens to a driver, happens to its tasks.
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

#: The current time, of the clock that all processes share.
now_ns = time.monotonic_ns
SUFFIX = ".history"


class Partition(NamedTuple):
    """A partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Offset(NamedTuple):
    """An offset of a partition: the next record to read."""

    topic: str
    number: int
    offset: int

    @property
    def partition(self) -> Partition:
        """Its partition."""
        return Partition(self.topic, self.number)


class Epoch(NamedTuple):
    """The member epoch (classic: the generation) at which a partition was assigned."""

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
    """The broker has acknowledged a record. `number` grows within the partition, and identifies the record in it."""

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
    """The committed offsets of a group, as an admin client read them; a partition without an offset is left out."""

    group: str
    offsets: tuple[Offset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsReset:
    """A fault deletes or changes the committed offsets of these partitions: earlier commits do not count afterwards.

    Written before the request is sent and again after its response. A re-created topic is `Recreated` instead.
    """

    group: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreated:
    """A fault deletes the topic: its records need not arrive, and its offsets begin again.

    Written before the request is sent; no record is produced between this line and the creation of the topic.
    """

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """An administrator removes the member of this process while it runs: its lease does not hold, by design.

    Written before the request is sent.
    """

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """The harness ends this process, so another may replace it at once. Written before the signal is sent."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A `read_committed` reader found the result of this source record in the output of transactions."""

    group: str
    partition: Partition
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """All faults are over, the groups have consumed to the end, and each member must be in a steady state.

    The harness writes it some seconds after the last record was received, and before it closes the members.
    """


# ---- members ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process begins: the first line of its file.

    `client` is `consumer-membership`, `confluent-kafka` or `java`. `has_leases`: it withholds records after the end of
    its lease. `is_transactional`: it commits in transactions. `is_manual`: it assigns its partitions itself, outside of
    the group's assignment. `instance_id` is None for dynamic members. `has_callbacks`: it writes `Assigned`, `Revoked`
    and `Lost`. `is_processor`: it writes `Finished`, and keeps only the order of each key. `commits_automatically`:
    some of its commits are not written. `session_s` is the session of its group, where the harness has set it.
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
    """The group has assigned these partitions; `epochs` are the tokens of their leases, -1: none.

    `instance_id` is the id of a pool that the member has.
    """

    member_id: str | None
    epochs: tuple[Epoch, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """The member prepares for partitions that another process hands over to it (`on_warm`); it does not own them."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """The member has given up these partitions, after its last commit of them was answered."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The member has learned that it does not own these partitions."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The application has received a record. `begun_ns`: before the call that returned it.

    `lease_until_ns` is the end of the lease as it was read directly after the call; None: no lease.
    """

    partition: Partition
    offset: int
    number: int
    begun_ns: int
    lease_until_ns: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The handler of a record has returned; only processors write this, and then only these may be committed."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBegun:
    """The member commits. `commit` is a number that the process uses once."""

    commit: int
    offsets: tuple[Offset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEnded:
    """The response to a commit: `error` is the name of Kafka's error code, None: the offsets are committed.

    `is_unknown`: the request may have been processed, for example after a timeout.
    """

    commit: int
    error: str | None = None
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewed:
    """The lease of the member now ends at `until_ns`. Not written for an assumed session (`is_session_assumed`)."""

    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sample of `membership()` and `health()`; `begun_ns`: before the calls.

    `owned` are the partitions of `membership().owned` with their epochs, `lease_until_ns` its lease. `verdict` is the
    value of the verdict (`consuming`), `stalled` are the partitions that `health()` reports as stalled.
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
    """A call of the member has raised this; `is_fatal`: the process ends because of it."""

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
    """One line: an event, when it happened, and in which process. A restarted process has another name."""

    at_ns: int
    process: str
    event: Event

    def to_line(self) -> bytes:
        """Return the line, with its end."""
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
    """Appends the events of one process to its file. May be used in several threads.

    The times within a file never decrease.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self.path = folder / f"{process}{SUFFIX}"
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        # A signal handler that raises may interrupt a write: the lock can be taken again by its thread.
        self._lock = threading.RLock()
        self._commits = 0

    def write(self, event: Event) -> None:
        """Append an event that happens now."""
        with self._lock:
            line = Entry(at_ns=now_ns(), process=self.process, event=event).to_line()
            if os.write(self._file, line) != len(line):
                raise OSError(f"{self.path} does not take a whole line")

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
    """Whether a process is this member, or an attempt of a task of this Spark driver."""
    return process == member or process.startswith(f"{member}-")


def read(path: Path) -> Iterator[Entry]:
    """Read the history of one process; a torn last line is ignored.

    Raises:
        ValueError: another line is not a complete event.
    """
    for line in _lines(path, 0):
        yield Entry.from_line(line)


def _lines(path: Path, position: int) -> Iterator[bytes]:
    """Read the complete lines from this position of the file on."""
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
        """Read the events that were written since the last call; those of one process are in their order."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            for line in _lines(path, self._positions.get(path, 0)):
                self._positions[path] = self._positions.get(path, 0) + len(line)
                yield Entry.from_line(line)


def read_all(folder: Path) -> tuple[Entry, ...]:
    """Read the histories of all processes of a round, in the order of their times."""
    entries = [entry for path in sorted(folder.glob(f"*{SUFFIX}")) for entry in read(path)]
    # The sort is stable: events of one process keep the order of its file.
    return tuple(sorted(entries, key=lambda entry: entry.at_ns))
