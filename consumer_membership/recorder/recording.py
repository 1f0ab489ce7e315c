"""A recording as a file of compressed JSON lines; `docs/project/recording-format.md` describes the format."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, assert_never

from consumer_membership.assignors.assignor import Assigned, Assignor, RebalanceProtocol
from consumer_membership.health.handlers import HandlersDisowned, RecordDeadLettered
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.recorder.chance import Draw
from consumer_membership.recorder.ring import Entry, HandlerEntry, RingContents
from consumer_membership.recorder.snapshot import line_of
from consumer_membership.recorder.values import Json, RecordingError, decoded, encoded
from consumer_membership.types import Instant, TopicPartition
from consumer_membership.version import __version__

FORMAT: Final = "consumer-membership recording"
#: The version of the format; it increases with each change that an older reader would misread.
VERSION: Final = 2
#: A ring keeps 2 MB, and the state of a member with 100,000 partitions has 30 MB. A file that unpacks to more is not a
#: recording and would only fill the memory: JSON values take up to 27 times the space of their text (a file of empty
#: lists was measured).
MOST_BYTES: Final = 64 * 2**20
#: The exceptions that values of a wrong kind, or nested too deeply, raise where they are used.
UNFIT: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The contents of a file: its cause and writer, the member's state at the beginning, and the events since.

    `written_at` is in seconds since 1970, and `clock` the value of the monotonic clock of `Entry.at` at that moment.
    `first` is the number of the member's entries before these. If `state` is None, the member had just been created,
    with `draws`. `view` is the member's view after the first `view_after` entries. `is_whole`: the file has its last
    line. `handlers` are facts about the handlers of the member's records.
    """

    cause: str
    package: str
    python: str
    process: int
    written_at: float
    clock: Instant
    settings: MemberSettings
    protocols: ProtocolSettings
    first: int
    state: Json
    draws: tuple[Draw, ...]
    entries: tuple[Entry, ...]
    view_after: int
    view: MembershipView | None
    is_whole: bool = True
    handlers: tuple[HandlerEntry, ...] = ()

    @property
    def known_until(self) -> Instant:
        """The end of the recorded time: the moment of writing, or the last event of a truncated file."""
        return self.clock if self.is_whole or not self.entries else self.entries[-1].at

    def moment(self, at: Instant) -> float:
        """Return an entry's time in seconds since 1970."""
        return self.written_at - (self.clock - at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAssignor:
    """An assignor in a replay: the events contain its assignments, and the effects its user data."""

    name: str
    protocols: frozenset[RebalanceProtocol]
    user_data_by_name: dict[str, bytes | None] = field(default_factory=dict, compare=False)

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Return its user data in the recorded join."""
        return self.user_data_by_name.get(self.name)

    def assign(self, topics: object, subscriptions: object) -> dict[str, frozenset[TopicPartition]]:
        """Never called: the core does not call assignors, and the recording has the result."""
        raise NotImplementedError


class RecordedObserver(RecordedAssignor):
    """An assignor that receives its member's assignments."""

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        """Never called: the core does not call assignors."""
        raise NotImplementedError


# ---- writing --------------------------------------------------------------------------------------------------------


def lines_of(held: RingContents, cause: str, clock: Instant) -> Iterator[bytes]:
    """Yield the lines of a file with a ring's contents; `clock` is the current value of the monotonic clock."""
    yield _line(
        {
            "format": FORMAT,
            "version": VERSION,
            "package": __version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "process": os.getpid(),
            "cause": cause,
            "written_at": time.time(),
            "clock": clock,
            "settings": encoded(held.settings, held.seal),
            "protocols": _coded_protocols(held.protocols, held.seal),
        }
    )
    base: dict[str, Json] = {"first": held.first, "draws": held.draws}
    yield _line(base | {"handlers": [_coded_handlers(one) for one in held.handlers]} if held.handlers else base)
    yield _line(None) if held.state is None else line_of(held.state)
    for entry in held.entries:
        yield _line(_coded_entry(entry, held.seal))
    after = held.view_after - held.first
    is_seen = 0 < after <= len(held.entries)
    yield _line(
        {
            "end": len(held.entries),
            "view_after": after if is_seen else 0,
            "view": encoded(held.view, held.seal) if is_seen else None,
        }
    )


def _line(coded: Json) -> bytes:
    return json.dumps(coded, separators=(",", ":")).encode()


def _coded_protocols(protocols: ProtocolSettings, seal: bytes) -> Json:
    """Return the settings of the protocols; the application's assignors are written as names and protocols."""
    classic = protocols.classic
    assignors = [
        {
            "name": one.name,
            "protocols": sorted(protocol.name for protocol in one.protocols),
            "observes": hasattr(one, "on_assignment"),
        }
        for one in classic.assignors
    ]
    bare = replace(protocols, classic=replace(classic, assignors=()))
    return {"assignors": assignors, "settings": encoded(bare, seal)}


def _coded_entry(entry: Entry, seal: bytes) -> Json:
    line = {"at": entry.at, "event": encoded(entry.event, seal)}
    if entry.draws:
        line["draws"] = entry.draws
    if entry.effects:
        line["effects"] = [encoded(effect, seal) for effect in entry.effects]
    if entry.error is not None:
        line["error"] = entry.error
    return line


def _coded_handlers(entry: HandlerEntry) -> Json:
    match entry.fact:
        case RecordDeadLettered() as fact:
            place = {"topic": fact.partition.topic, "partition": fact.partition.partition, "offset": fact.offset}
            return {"at": entry.at, "dead_lettered": place | {"attempts": fact.attempts, "error": fact.error}}
        case HandlersDisowned() as fact:
            offsets = [[topic, partition, offsets] for (topic, partition), offsets in fact.offsets.items()]
            return {"at": entry.at, "disowned": {"offsets": offsets, "is_loss": fact.is_loss}}
        case _:
            assert_never(entry.fact)


def write(path: Path, held: RingContents, cause: str, clock: Instant) -> None:
    """Write a ring's contents to this file, atomically, also with several writers at once.

    The file is created under a random name, and `O_EXCL` rejects an existing file or link: in a folder that other users
    may write to, neither they nor a second writer choose the file that is written. A symbolic link at `path` is
    replaced, not followed.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = path.with_name(f".{os.urandom(8).hex()}.recording.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(unfinished, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as raw, gzip.GzipFile("", "wb", 6, raw) as packed:
            for line in lines_of(held, cause, clock):
                packed.write(line + b"\n")
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


# ---- reading --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Recording:
    """Return the recording of a file.

    Raises:
        OSError: the file cannot be read.
        RecordingError: the file is not a recording, or one that this version of the package cannot read.
    """
    lines = _lines(path)
    head = next(lines, None)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise RecordingError(f"{path} is not a recording of consumer-membership")
    if head.get("version") != VERSION:
        raise RecordingError(
            f"{path} has version {head.get('version')} of the format, written by consumer-membership "
            f"{head.get('package')}; this is {__version__}, which reads version {VERSION}: use the writer's release"
        )
    try:
        return _recording(head, lines)
    except RecordingError as error:
        written_by = head.get("package")
        raise RecordingError(
            f"{path}, written by consumer-membership {written_by}, cannot be read by {__version__}: {error}"
        ) from None
    except StopIteration:
        raise RecordingError(f"{path} is truncated before the first event and has no data of the member") from None
    except UNFIT as error:
        raise RecordingError(f"{path}: {damage_of(error)}") from error


def damage_of(error: BaseException) -> str:
    """Return the message for one of `UNFIT`."""
    return f"damaged: its values do not fit ({type(error).__name__}: {error})"


def _lines(path: Path) -> Iterator[Json]:
    """Yield the lines of a file up to its damage: its writer may have been killed, or the disk full."""
    left = MOST_BYTES
    try:
        with gzip.open(path, "rb") as file:
            while line := file.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise RecordingError(
                        f"{path} unpacks to more than {MOST_BYTES >> 20} MiB, the limit of a recording"
                    )
                yield json.loads(line.decode())
    except RecursionError:
        raise RecordingError(f"{path}: damaged: its values are nested too deeply") from None
    except (EOFError, zlib.error, ValueError):
        return
    except gzip.BadGzipFile:
        raise RecordingError(f"{path} is not a recording of consumer-membership: it is not compressed") from None


def _recording(head: Json, lines: Iterator[Json]) -> Recording:
    base, state = next(lines), next(lines)
    entries: list[Entry] = []
    end: Json = None
    for line in lines:
        if "end" in line:
            end = line
            break
        entries.append(_entry(line))
    view = decoded(end["view"]) if end is not None else None
    return Recording(
        cause=head["cause"],
        package=head["package"],
        python=head["python"],
        process=head["process"],
        written_at=head["written_at"],
        clock=head["clock"],
        settings=decoded(head["settings"]),
        protocols=_protocols(head["protocols"]),
        first=base["first"],
        state=state,
        draws=tuple(base["draws"]),
        entries=tuple(entries),
        view_after=end["view_after"] if end is not None else 0,
        view=view,
        is_whole=end is not None and end["end"] == len(entries),
        handlers=tuple(map(_handlers, base.get("handlers", ()))),
    )


def _protocols(coded: Json) -> ProtocolSettings:
    settings: ProtocolSettings = decoded(coded["settings"])
    #: The user data of all assignors in one join; the replay sets it.
    user_data_by_name: dict[str, bytes | None] = {}
    assignors: list[Assignor] = [
        (RecordedObserver if one["observes"] else RecordedAssignor)(
            name=one["name"],
            protocols=frozenset(RebalanceProtocol[name] for name in one["protocols"]),
            user_data_by_name=user_data_by_name,
        )
        for one in coded["assignors"]
    ]
    classic: ClassicSettings = replace(settings.classic, assignors=tuple(assignors))
    return replace(settings, classic=classic)


def _entry(line: Json) -> Entry:
    return Entry(
        at=line["at"],
        event=decoded(line["event"]),
        draws=tuple(line.get("draws", ())),
        effects=tuple(map(decoded, line.get("effects", ()))),
        error=line.get("error"),
    )


def _handlers(coded: Json) -> HandlerEntry:
    if "dead_lettered" in coded:
        found = coded["dead_lettered"]
        partition = TopicPartition(found["topic"], found["partition"])
        dead = RecordDeadLettered(
            partition=partition, offset=found["offset"], attempts=found["attempts"], error=found["error"]
        )
        return HandlerEntry(coded["at"], dead)
    found = coded["disowned"]
    offsets = {TopicPartition(topic, number): tuple(offsets) for topic, number, offsets in found["offsets"]}
    return HandlerEntry(coded["at"], HandlersDisowned(offsets=offsets, is_loss=found["is_loss"]))
