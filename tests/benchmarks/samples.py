"""Samples, their statistics, and whether a bound holds. Calculations only: tested by test_harness."""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_DOUBT = 0.05
_RESAMPLES = 2_000
_FEWEST_TO_RESAMPLE = 6
"""The fewest values for `median_interval`: the resampled median of fewer values misses the rare ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured value, with the machine's load average (1 minute) and CLOCK_MONOTONIC at that time."""

    value: float
    load: float
    at: float
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The statistics of a series in a table."""

    n: int
    least: float
    median: float
    p90: float
    most: float


@dataclass(slots=True, kw_only=True)
class Series:
    """All measurements of one quantity on one side, including the failed ones.

    Attributes:
        label: The measured quantity and the side.
        unit: The unit of every value.
        is_ours: Whether a failed measurement fails the bounds that depend on this series.
    """

    label: str
    unit: str
    is_ours: bool = False
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, value: float, **detail: Any) -> None:
        """Add one measured value."""
        self.samples.append(Sample(value=value, load=os.getloadavg()[0], at=time.monotonic(), detail=detail))

    def fail(self, reason: str) -> None:
        """Add one failed measurement."""
        self.failures.append(reason)

    @property
    def values(self) -> list[float]:
        """The measured values in the order of measurement."""
        return [sample.value for sample in self.samples]

    @property
    def summary(self) -> Summary | None:
        """The statistics; None without a value."""
        values = self.values
        if not values:
            return None
        return Summary(
            n=len(values),
            least=min(values),
            median=statistics.median(values),
            p90=percentile(values, 90),
            most=max(values),
        )


class Verdict(Enum):
    """The verdict on a bound."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    #: The limit lies within the range of chance: more rounds, or a quieter machine, would decide it.
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A bound with its measured value; the limit is a value in this unit."""

    bound: str
    measured: str
    verdict: Verdict
    limit: float
    unit: str


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def at_most(bound: str, measured: float | None, limit: float, unit: str, depends_on: Sequence[Series] = ()) -> Check:
    """Check that a value does not exceed its limit."""
    return _check(bound, measured, limit, unit, depends_on, lambda value: value <= limit)


def at_least(bound: str, measured: float | None, limit: float, unit: str, depends_on: Sequence[Series] = ()) -> Check:
    """Check that a value is not below its limit."""
    return _check(bound, measured, limit, unit, depends_on, lambda value: value >= limit)


def _check(
    bound: str,
    measured: float | None,
    limit: float,
    unit: str,
    depends_on: Sequence[Series],
    holds: Callable[[float], bool],
) -> Check:
    failed = [f"{len(series.failures)} failed in '{series.label}'" for series in depends_on if series.failures]
    ours_failed = any(series.failures for series in depends_on if series.is_ours)
    parts = ["not measured" if measured is None else amount(measured, unit), f"limit {amount(limit, unit)}", *failed]
    passes = measured is not None and not ours_failed and holds(measured)
    verdict = Verdict.PASS if passes else Verdict.FAIL
    return Check(bound=bound, measured="; ".join(parts), verdict=verdict, limit=limit, unit=unit)


def ratio_at_least(
    bound: str, ratios: Sequence[float], limit: float, depends_on: Sequence[Series], unit: str = "x raw"
) -> Check:
    """Check that the median of paired ratios is not below its limit; it may be undecided."""
    strict = at_least(bound, statistics.median(ratios) if ratios else None, limit, unit, depends_on)
    return _judged_by(median_interval(ratios), strict, depends_on, lambda _, most: most >= limit)


def differences_at_most(
    bound: str, differences: Sequence[float], limit: float, unit: str, depends_on: Sequence[Series]
) -> Check:
    """Check that the median of paired differences does not exceed its limit; it may be undecided."""
    strict = at_most(bound, statistics.median(differences) if differences else None, limit, unit, depends_on)
    return _judged_by(median_interval(differences), strict, depends_on, lambda least, _: least <= limit)


def median_above_at_most(bound: str, ours: Series, raw: Series, limit: float, unit: str) -> Check:
    """Check that our median does not exceed raw's by more than the limit."""
    return at_most(bound, difference(median_of(ours), median_of(raw)), limit, unit, [ours, raw])


def medians_at_most(bound: str, ours: Series, raw: Series, limit: float) -> Check:
    """Check that our median does not exceed a multiple of raw's; it may be undecided.

    The values are not paired: their random parts, such as the phase of a heartbeat, are independent on each side.
    """
    measured = quotient(median_of(ours), median_of(raw))
    strict = at_most(bound, measured, limit, "x raw", [ours, raw])
    interval = quotient_interval(ours.values, raw.values)
    return _judged_by(interval, strict, [ours, raw], lambda least, _: least <= limit)


def _judged_by(
    interval: tuple[float, float] | None,
    strict: Check,
    depends_on: Sequence[Series],
    may_hold: Callable[[float, float], bool],
) -> Check:
    """Return the verdict undecided if chance can explain a missed bound; failed measurements of ours still fail it."""
    if interval is None:
        return strict
    text = f"{strict.measured}; 95 % interval {interval[0]:.3f} to {interval[1]:.3f}"
    ours_failed = any(series.failures for series in depends_on if series.is_ours)
    is_undecided = strict.verdict is Verdict.FAIL and may_hold(*interval) and not ours_failed
    return replace(strict, measured=text, verdict=Verdict.UNDECIDED if is_undecided else strict.verdict)


def quotient(left: float | None, right: float | None) -> float | None:
    """Return left / right, or None if one is unknown or right is zero."""
    return None if left is None or not right else left / right


def quotient_interval(left: Sequence[float], right: Sequence[float]) -> tuple[float, float] | None:
    """Return an interval with about 95 % confidence for the quotient of the medians; None for too few values.

    The method resamples each side independently (a percentile bootstrap). Equal values always give equal intervals.
    """
    if min(len(left), len(right)) < _FEWEST_TO_RESAMPLE or min(right) <= 0:
        return None
    chance = random.Random(0)  # noqa: S311 - resampling, not secrets
    quotients = sorted(
        statistics.median(chance.choices(left, k=len(left))) / statistics.median(chance.choices(right, k=len(right)))
        for _ in range(_RESAMPLES)
    )
    tail = round(_RESAMPLES * _DOUBT / 2)
    return quotients[tail], quotients[-1 - tail]


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return an interval that contains the true median with at least 95 % confidence; None for too few values.

    The method uses order statistics: each value is below the true median with probability one half, in any
    distribution.
    """
    ordered = sorted(values)
    n = len(ordered)
    outside, rank = 0.0, 0
    while rank < n / 2 and outside + 2 * math.comb(n, rank) / 2**n <= _DOUBT:
        outside += 2 * math.comb(n, rank) / 2**n
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def median_of(series: Series) -> float | None:
    """Return the median of a series, if it has one."""
    return series.summary.median if series.summary else None


def p90_of(series: Series) -> float | None:
    """Return the 90th percentile of a series, if it has one."""
    return series.summary.p90 if series.summary else None


def difference(left: float | None, right: float | None) -> float | None:
    """Return left - right, or None if one is unknown."""
    return None if left is None or right is None else left - right


def amount(value: float, unit: str) -> str:
    """Return a value as a table shows it: three significant digits, with thousands separators."""
    magnitude = abs(value)
    digits = 0 if magnitude >= 100 or value == int(value) else max(0, 2 - math.floor(math.log10(magnitude)))
    return f"{value:,.{digits}f} {unit}".strip()
