"""What the demo's records look like, so that each can be told from all others.

The records are numbered from 0 in the order in which they are produced. Number n goes to partition n modulo the count
of partitions, so the numbers of one partition have a fixed distance, and what a member handled can be told as a few
runs instead of thousands of numbers. A key always goes to the same partition.
"""

from __future__ import annotations

from typing import NamedTuple

#: Keys per partition.
_KEYS = 25


class Run(NamedTuple):
    """`length` numbers of one partition: `first`, and then each the count of partitions further."""

    first: int
    length: int


def partition_of(number: int, partitions: int) -> int:
    """The partition that this record belongs to."""
    return number % partitions


def key_of(number: int, partitions: int) -> bytes:
    """The record's key."""
    return b"customer-%d" % (number % (partitions * _KEYS))


def value_of(number: int) -> bytes:
    """The record's value: its number."""
    return b"%d" % number


class Runs:
    """Gathers numbers, partition by partition, into runs."""

    def __init__(self, partitions: int) -> None:
        self._distance = partitions
        self._open: dict[int, list[int]] = {}
        self._closed: list[Run] = []

    def add(self, number: int) -> None:
        """Take one number in."""
        partition = partition_of(number, self._distance)
        run = self._open.get(partition)
        if run is not None and number == run[0] + run[1] * self._distance:
            run[1] += 1
            return
        if run is not None:
            self._closed.append(Run(*run))
        self._open[partition] = [number, 1]

    def take(self) -> tuple[Run, ...]:
        """All runs so far, in each partition in the order of the numbers; begins anew."""
        taken = (*self._closed, *(Run(*run) for run in self._open.values()))
        self._open.clear()
        self._closed.clear()
        return taken
