"""The consumers of this process whose metrics can be asked, each by a small number of its own.

Weak, so that it keeps no consumer alive, and without a lock, which a fork could leave locked. In a child of a fork the
parent's consumers are not open.
"""

from __future__ import annotations

import itertools
from typing import Protocol
from weakref import ref

from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.snapshot import Metrics


class HasMetrics(Protocol):
    """A consumer: `Consumer`, `AIOConsumer`."""

    def metrics(self) -> Metrics:
        """What is counted of it."""


class MetricsSource(Protocol):
    """A consumer, to who asks for its metrics; each method may be called from any thread."""

    @property
    def is_open(self) -> bool:
        """Whether it is not closed, and of this process."""

    def metrics(self) -> Metrics:
        """What is counted, as it is now; never waits."""

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations:
        """What counts the durations of a metric of the catalogue, to listen to."""


class MetricsSources:
    """The sources of one process by their numbers."""

    def __init__(self) -> None:
        self._sources: dict[int, ref[MetricsSource]] = {}

    def add(self, source: MetricsSource) -> int:
        """Give it the lowest number that no other one has; it ends with `remove`, or with the object."""
        for number in itertools.count(1):
            made = ref(source, lambda gone, number=number: self._forget(number, gone))  # type: ignore[misc]
            if self._sources.setdefault(number, made) is made:
                return number
        raise AssertionError

    def remove(self, number: int) -> None:
        """It is closed: its number is another one's from now on."""
        self._sources.pop(number, None)

    def at(self, number: int) -> MetricsSource | None:
        """The source with this number; None: there is none (any more)."""
        found = self._sources.get(number)
        source = None if found is None else found()
        return source if source is not None and source.is_open else None

    def all(self) -> list[MetricsSource]:
        """Those that are open, by their numbers."""
        found = (self.at(number) for number in sorted(self._sources.copy()))
        return [source for source in found if source is not None]

    def _forget(self, number: int, gone: ref[MetricsSource]) -> None:
        if self._sources.get(number) is gone:
            self._sources.pop(number, None)


#: Those that applications make; of the process, because one page or exporter shows them all.
THIS_PROCESS_SOURCES = MetricsSources()
