"""Logs of handler calls in processes that are killed, and an analysis of lost, repeated and unordered records.

Each call writes one entry when it begins and one entry when it ends. An entry is one `write` to a file that is open for
appending, so a killed process loses no entry. All times are CLOCK_MONOTONIC, which processes of one machine share.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from struct import Struct

#: The kind, the attempt, the partition, the key's number, the offset, and the time in ns.
ENTRY = Struct("<BBHIQQ")

#: A record: partition and offset.
Place = tuple[int, int]


class Kind(Enum):
    """The kind of an entry: a call began, succeeded or failed."""

    BEGAN = 0
    SUCCEEDED = 1
    FAILED = 2


class CallLog:
    """Appends entries to a file; any thread may use it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: Kind, attempt: int, partition: int, key: int, offset: int) -> None:
        """Append one entry with the current time."""
        os.write(self._file, ENTRY.pack(kind.value, attempt, partition, key, offset, time.monotonic_ns()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a handler.

    Attributes:
        process: The number of the process.
        place: The record.
        key: The number of the record's key.
        attempt: The number of the attempt, from 1.
        began_at: The time when the call began, in ns.
        ended_at: The time when the call ended, in ns; None: its process was killed before.
        has_succeeded: Whether the handler returned without an error.
    """

    process: int
    place: Place
    key: int
    attempt: int
    began_at: int
    ended_at: int | None
    has_succeeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A process that was killed, and the offsets that the coordinator had stored for its partitions.

    Attributes:
        at: The time by which the process had ended, in ns.
        committed: The committed offset of each partition.
        finished: By partition, the finished offsets beyond the committed offset that the next owner reads from the
            metadata of the commit.
    """

    at: int
    committed: Mapping[int, int]
    finished: Mapping[int, Collection[int]]

    def is_in_hand(self, place: Place) -> bool:
        """Whether the record was not committed as finished, so that the next owner has to handle it."""
        partition, offset = place
        return offset >= self.committed.get(partition, 0) and offset not in self.finished.get(partition, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The results for all records.

    Attributes:
        lost: The records that were neither handled nor dead-lettered.
        disordered: The calls that began before an earlier record of their key was done, or during another call for
            their key.
        repeated: How many times a later owner began a record again.
        running: How many of the previous calls of these records had not ended when their process was killed.
        unexplained: The repeated calls of records that were committed as finished when their last owner was killed.
        in_hand: How many records the killed processes had begun that were not committed as finished.
    """

    lost: Collection[Place]
    disordered: Sequence[Call]
    repeated: int
    running: int
    unexplained: Sequence[Call]
    in_hand: int


def calls_of(process: int, log: Path) -> list[Call]:
    """Return the calls in a log, in the order in which they began."""
    content = log.read_bytes() if log.exists() else b""
    begun: dict[tuple[Place, int], tuple[int, int]] = {}
    calls: list[Call] = []
    for kind, attempt, partition, key, offset, at in ENTRY.iter_unpack(
        content[: len(content) // ENTRY.size * ENTRY.size]
    ):
        which = ((partition, offset), attempt)
        if Kind(kind) is Kind.BEGAN:
            begun[which] = (key, at)
            continue
        _, began_at = begun.pop(which)
        calls.append(_call(process, which, key, began_at, at, has_succeeded=Kind(kind) is Kind.SUCCEEDED))
    calls += [_call(process, which, key, at, None, has_succeeded=False) for which, (key, at) in begun.items()]
    return sorted(calls, key=_by_time)


def _call(
    process: int, which: tuple[Place, int], key: int, began_at: int, ended_at: int | None, *, has_succeeded: bool
) -> Call:
    place, attempt = which
    return Call(
        process=process,
        place=place,
        key=key,
        attempt=attempt,
        began_at=began_at,
        ended_at=ended_at,
        has_succeeded=has_succeeded,
    )


def _by_time(call: Call) -> int:
    return call.began_at


def account(
    records: Mapping[int, Sequence[Place]],
    calls: Iterable[Call],
    kills: Mapping[int, Kill],
    *,
    dead_letters: Collection[Place] = (),
    attempts: int = 1,
) -> Account:
    """Return the results for all records.

    Args:
        records: The records of each key, in order.
        calls: The calls of all processes.
        kills: The killed processes.
        dead_letters: The records that were dead-lettered.
        attempts: After this many failed attempts, a record is dead-lettered.
    """
    ordered = sorted(calls, key=_by_time)
    dead = frozenset(dead_letters)
    handled = {call.place for call in ordered if call.has_succeeded} | dead
    repeated, unexplained = _repetitions(ordered, kills)
    return Account(
        lost=[place for places in records.values() for place in places if place not in handled],
        disordered=_disordered(records, ordered, kills, attempts),
        repeated=len(repeated),
        running=sum(before.ended_at is None for before, _ in repeated),
        unexplained=unexplained,
        in_hand=len({(call.process, call.place) for call in ordered if _was_in_hand(call, kills)}),
    )


def _was_in_hand(call: Call, kills: Mapping[int, Kill]) -> bool:
    return call.process in kills and kills[call.process].is_in_hand(call.place)


def _repetitions(ordered: Iterable[Call], kills: Mapping[int, Kill]) -> tuple[list[tuple[Call, Call]], list[Call]]:
    """Return the calls that began a record again, each after the previous call, and the calls without explanation."""
    last: dict[Place, Call] = {}
    repeated: list[tuple[Call, Call]] = []
    unexplained: list[Call] = []
    for call in ordered:
        before = last.get(call.place)
        last[call.place] = call
        if before is None or (call.process == before.process and call.attempt == before.attempt + 1):
            continue
        repeated.append((before, call))
        if not _was_in_hand(before, kills) or call.began_at < kills[before.process].at:
            unexplained.append(call)
    return repeated, unexplained


def _disordered(
    records: Mapping[int, Sequence[Place]], ordered: Iterable[Call], kills: Mapping[int, Kill], attempts: int
) -> list[Call]:
    by_key: defaultdict[int, list[Call]] = defaultdict(list)
    for call in ordered:
        by_key[call.key].append(call)
    return [
        call for key, of_key in by_key.items() for call in _disordered_of_key(records[key], of_key, kills, attempts)
    ]


def _disordered_of_key(
    places: Sequence[Place], ordered: Iterable[Call], kills: Mapping[int, Kill], attempts: int
) -> list[Call]:
    """Return the calls of one key that break its order: too early, overlapping, or backwards within a process."""
    found: list[Call] = []
    #: How many of the key's records are done, the time when the last call ended, and the last record of each process.
    done, free_at = 0, 0
    last: dict[int, Place] = {}
    for call in ordered:
        number = bisect_left(places, call.place)
        if number > done or call.began_at < free_at or call.place < last.get(call.process, call.place):
            found.append(call)
        last[call.process] = call.place
        if call.ended_at is None:
            # The process of a call without an end was killed, so the call ended at that time.
            free_at = max(free_at, kills[call.process].at)
            continue
        free_at = max(free_at, call.ended_at)
        if number == done and (call.has_succeeded or call.attempt == attempts):
            done += 1
    return found
