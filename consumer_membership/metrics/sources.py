"""The consumers of this process that export metrics, each with a small number.

References are weak, so that consumers are not kept alive, and there is no lock that a fork could leave locked. In a
forked child, the parent's consumers are not open.
"""

from __future__ import annotations

import itertools
from typing import Protocol
from weakref import ref

from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.snapshot import Metrics


class HasMetrics(Protocol):
    """An object with metrics: a `Consumer` or an `AIOConsumer`."""

    def metrics(self) -> Metrics:
        """Return a snapshot of its metrics."""


class MetricsSource(Protocol):
    """A consumer as an exporter sees it; any thread may call each method."""

    @property
    def is_open(self) -> bool:
        """Return whether it is not closed and belongs to this process."""

    def metrics(self) -> Metrics:
        """Return a snapshot of its metrics; never blocks."""

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations | None:
        """Return the durations of a metric of the catalog, for a listener; None: this consumer has none."""


class MetricsSources:
    """The sources of one process by their numbers."""

    def __init__(self) -> None:
        self._sources: dict[int, ref[MetricsSource]] = {}

    def add(self, source: MetricsSource) -> int:
        """Add the source under the lowest free number; `remove` or the end of the object frees it."""
        for number in itertools.count(1):
            made = ref(source, lambda gone, number=number: self._forget(number, gone))  # type: ignore[misc]
            if self._sources.setdefault(number, made) is made:
                return number
        raise AssertionError

    def remove(self, number: int) -> None:
        """Remove a closed source and free its number."""
        self._sources.pop(number, None)

    def at(self, number: int) -> MetricsSource | None:
        """Return the source with this number, or None."""
        found = self._sources.get(number)
        source = None if found is None else found()
        return source if source is not None and source.is_open else None

    def all(self) -> list[MetricsSource]:
        """Return the open sources in the order of their numbers."""
        found = (self.at(number) for number in sorted(self._sources.copy()))
        return [source for source in found if source is not None]

    def _forget(self, number: int, gone: ref[MetricsSource]) -> None:
        if self._sources.get(number) is gone:
            self._sources.pop(number, None)


#: The consumers of applications; one per process, because one page or exporter shows all of them.
THIS_PROCESS_SOURCES = MetricsSources()
