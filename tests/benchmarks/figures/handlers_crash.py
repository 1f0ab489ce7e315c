"""The lost and repeated records of a program with many handlers that is killed during its work."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.handler_programs import FASTSTREAM, Task, command_of, side_of
from tests.benchmarks.processes import Worker, WorkerFailedError
from tests.benchmarks.samples import at_most
from tests.benchmarks.workers.handlers import NUMBER, Program
from tests.support.kafka import unique

if TYPE_CHECKING:
    import random

    from tests.benchmarks.bench import Bench, Side

_RECORDS, _KEYS = 20_000, 100
_WAIT_S, _CONCURRENCY = 0.01, 100
_COMMIT_MS = 100
_EARLIEST, _LATEST = 0.3, 0.7
"""The limits of the random part of the records that are processed before the kill."""

_QUIET_S, _COMPLETE_QUIET_S = 8.0, 2.0
"""After this time without a record the round ends. The second value applies if every record was processed."""

_TIMEOUT_S = 120.0
_CHECK_EVERY_S = 0.02
PROGRAMS = (Program.THREADS, Program.COROUTINES, Program.POOL, FASTSTREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The records of two processes of a program: how many were never finished, and how often one was finished again."""

    lost: int
    repeated: int


def outcome(ledgers: list[bytes], total: int) -> Outcome:
    """Return the outcome of the records 0 to total - 1 from all ledgers, without incomplete entries."""
    numbers: list[int] = []
    for ledger in ledgers:
        whole = ledger[: len(ledger) // NUMBER.size * NUMBER.size]
        numbers += (number for (number,) in NUMBER.iter_unpack(whole))
    distinct = len(set(numbers))
    return Outcome(lost=total - distinct, repeated=len(numbers) - distinct)


def run(bench: Bench) -> Figure:
    """Kill each program at the same random moments, restart it at once, and count its records by number."""
    sides = [side_of(bench, label) for label in PROGRAMS]
    lost = [side.series("records lost", "records") for side in sides]
    repeated = [side.series("records processed twice", "records") for side in sides]
    seed = bench.chance.random()
    chances = [bench.own_random(seed) for _ in sides]

    def turn(place: int) -> None:
        with counted_in(lost[place], repeated[place]):
            found = _killed_once(bench, sides[place], chances[place])
            lost[place].add(found.lost)
            repeated[place].add(found.repeated)
            log(f"handlers-crash: {sides[place].label} {found}")

    bench.in_turns(bench.count(5, 1), *[lambda place=place: turn(place) for place in range(len(sides))])
    return Figure(
        title=f"Handlers and kill -9: {_RECORDS:,} records that wait {_WAIT_S * 1000:.0f} ms",
        series=(*lost, *repeated),
        checks=tuple(
            at_most(f"{one.label}: none", max(one.values, default=None), 0, "records", [one]) for one in lost[:2]
        ),
        notes=(
            f"{_KEYS} keys, {PARTITIONS} partitions, {_CONCURRENCY} handlers at the same time",
            "killed once when 30 to 70 % of the records are done, and restarted with the same group.instance.id",
            f"auto.commit.interval.ms={_COMMIT_MS}; {Program.POOL} commits each batch as soon as all of it is done",
            "lost: finished by neither process; twice: finished by both",
        ),
    )


def _killed_once(bench: Bench, side: Side, chance: random.Random) -> Outcome:
    topic = bench.filled_topic("handlers-crash", _RECORDS, keys=_KEYS)
    group, instance = bench.group(side), unique("instance")
    config = (("group.instance.id", instance), ("auto.commit.interval.ms", str(_COMMIT_MS)))
    task = Task(topic=topic, records=0, wait_s=_WAIT_S, concurrency=_CONCURRENCY, config=config)
    kill_at = _RECORDS * chance.uniform(_EARLIEST, _LATEST)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledgers = [folder / "first", folder / "second"]
        commands = [command_of(bench, side, task, folder, [group], str(ledger)) for ledger in ledgers]
        with Worker(side.label, command=commands[0]):
            _wait_for_entries(ledgers[0], kill_at)
        with Worker(side.label, command=commands[1]):
            _wait_for_entries(ledgers[1], 1)
            return _settled(ledgers)


def _wait_for_entries(ledger: Path, number: float) -> None:
    give_up_at = time.monotonic() + _TIMEOUT_S
    while len(_content(ledger)) < number * NUMBER.size:
        if time.monotonic() > give_up_at:
            raise WorkerFailedError(f"fewer than {number:.0f} records within {_TIMEOUT_S:.0f} s")
        time.sleep(_CHECK_EVERY_S)


def _settled(ledgers: list[Path]) -> Outcome:
    """Return the outcome when no more records arrive."""
    size, changed_at = -1, time.monotonic()
    while True:
        contents = [_content(ledger) for ledger in ledgers]
        found, now_size = outcome(contents, _RECORDS), sum(map(len, contents))
        if now_size != size:
            size, changed_at = now_size, time.monotonic()
        quiet_s = time.monotonic() - changed_at
        if quiet_s > (_QUIET_S if found.lost else _COMPLETE_QUIET_S):
            return found
        time.sleep(_CHECK_EVERY_S * 10)


def _content(ledger: Path) -> bytes:
    return ledger.read_bytes() if ledger.exists() else b""
