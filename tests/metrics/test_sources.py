"""The consumers of a process: numbered from 1, weakly held, and removed when they are closed."""

from __future__ import annotations

import gc

from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import MetricsSources
from tests.metrics.builders import snapshot


class Source:
    """A consumer that a test controls."""

    def __init__(self) -> None:
        self.is_open = True

    def metrics(self) -> Metrics:
        return snapshot()

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations:  # noqa: ARG002
        return Durations()


def test_sources_assign_the_lowest_free_number() -> None:
    """A new consumer has the lowest free number, so that processes that create many consumers have few series."""
    sources = MetricsSources()
    first, second, third = Source(), Source(), Source()
    assert [sources.add(one) for one in (first, second)] == [1, 2]
    sources.remove(1)
    assert (sources.add(third), sources.all()) == (1, [third, second])
    assert sources.at(2) is second


def test_sources_hold_consumers_weakly() -> None:
    """A consumer without other references is removed."""
    sources = MetricsSources()
    sources.add(Source())
    gc.collect()
    assert (sources.all(), sources.at(1), sources.add(Source())) == ([], None, 1)


def test_sources_omit_consumers_that_are_not_open() -> None:
    """A consumer that is closing, or belongs to another process, is omitted."""
    sources, source = MetricsSources(), Source()
    number = sources.add(source)
    source.is_open = False
    assert (sources.all(), sources.at(number)) == ([], None)
