"""The ledgers of killed members, and the lost and repeated records that follow from them. Calculations only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.committer import COMMITTED, ENTRY, HANDLED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger of one process.

    Attributes:
        handled: The moment and the number of each record, in the order of handling.
        committed: How many of them, counted from the first one, are committed at the broker.
        killed_at: When the process was killed; None if it closed its consumer.
    """

    handled: tuple[tuple[float, int], ...]
    committed: int
    killed_at: float | None

    @property
    def in_flight(self) -> int:
        """The number of records that its replacement may handle again."""
        return len(self.handled) - self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The outcome of the records 0 to total - 1 in all ledgers together.

    Attributes:
        lost: The number of records that no member handled.
        twice: For each process, how many of its records in flight at its kill were handled again.
        unexplained: How many times a record was handled again that no killed process had in flight.
    """

    lost: int
    twice: tuple[int, ...]
    unexplained: int


def read(path: Path, killed_at: float | None) -> Ledger:
    """Return a process's ledger without an incomplete last entry; a process without a ledger handled nothing."""
    content = path.read_bytes() if path.exists() else b""
    handled: list[tuple[float, int]] = []
    committed = 0
    for kind, _, _, number, at in ENTRY.iter_unpack(content[: len(content) // ENTRY.size * ENTRY.size]):
        if kind == HANDLED:
            handled.append((at, number))
        elif kind == COMMITTED:
            committed = len(handled)
        else:
            raise ValueError(f"{path} contains an entry of the unknown kind {kind!r}")
    return Ledger(handled=tuple(handled), committed=committed, killed_at=killed_at)


def account(ledgers: Sequence[Ledger], total: int) -> Account:
    """Return the outcome of each record.

    A repetition is explained if the process that handled the record before was killed in the meantime and had not
    committed the record.
    """
    twice = [0] * len(ledgers)
    unexplained = 0
    last: dict[int, tuple[int, int]] = {}
    entries = itertools.chain.from_iterable(
        ((at, number, place, position) for position, (at, number) in enumerate(ledger.handled))
        for place, ledger in enumerate(ledgers)
    )
    for at, number, place, position in sorted(entries, key=lambda entry: (entry[0], entry[2], entry[3])):
        if number in last:
            before, where = last[number]
            killed_at = ledgers[before].killed_at
            if killed_at is not None and killed_at <= at and where >= ledgers[before].committed:
                twice[before] += 1
            else:
                unexplained += 1
        last[number] = (place, position)
    return Account(lost=total - len(last), twice=tuple(twice), unexplained=unexplained)
