"""Tenures: the time from an owner's first to its last hand-out of one assignment, and how two tenures overlap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """The hand-outs of one partition by one owner under one assignment.

    Attributes:
        owner: The name of its process.
        moments: The times of the hand-outs in ascending order, by the clock of all owners; at least one.
    """

    owner: str
    moments: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The overlap of two owners of one partition in one round.

    Attributes:
        ms: From the newer owner's first hand-out to the older owner's last one; 0.0 if the older owner stopped before.
        records: How many records the older owner handed out in this time.
        gap_ms: From the older owner's last hand-out to the newer owner's first one; None if they overlap.
        has_changed: Whether the partition had a second owner at all.
    """

    ms: float
    records: int
    gap_ms: float | None
    has_changed: bool


def tenures_of(owner: str, moments: Iterable[Sequence[float]]) -> list[Tenure]:
    """Return the tenures of an owner from its report; assignments without a record are left out."""
    return [Tenure(owner=owner, moments=one) for one in moments if one]


def overlap(tenures: Iterable[Tenure]) -> Overlap:
    """Return the longest overlap of any two tenures of different owners."""
    ordered = sorted(tenures, key=lambda one: one.moments[0])
    changes = [_between(older, newer) for older, newer in combinations(ordered, 2) if older.owner != newer.owner]
    if not changes:
        return Overlap(ms=0.0, records=0, gap_ms=None, has_changed=False)
    longest = max(changes, key=lambda one: one.ms)
    return longest if longest.ms else min(changes, key=lambda one: one.gap_ms or 0.0)


def _between(older: Tenure, newer: Tenure) -> Overlap:
    began, ended = newer.moments[0], older.moments[-1]
    late = sum(moment >= began for moment in older.moments)
    if not late:
        return Overlap(ms=0.0, records=0, gap_ms=(began - ended) * 1000, has_changed=True)
    return Overlap(ms=(ended - began) * 1000, records=late, gap_ms=None, has_changed=True)
