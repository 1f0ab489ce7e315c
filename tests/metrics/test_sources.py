"""The consumers of a process: by small numbers, weakly held, and no more once they are closed."""

from __future__ import annotations

import gc

from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import MetricsSources
from tests.metrics.builders import snapshot


class Source:
    """A consumer that a test plays."""

    def __init__(self) -> None:
        self.is_open = True

    def metrics(self) -> Metrics:
        return snapshot()

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations:  # noqa: ARG002
        return Durations()


def test_number_is_the_lowest_that_is_free() -> None:
    """So that series of processes that make many consumers stay few."""
    sources = MetricsSources()
    first, second, third = Source(), Source(), Source()
    assert [sources.add(one) for one in (first, second)] == [1, 2]
    sources.remove(1)
    assert (sources.add(third), sources.all()) == (1, [third, second])
    assert sources.at(2) is second


def test_consumer_that_nobody_has_is_gone() -> None:
    """It is held weakly."""
    sources = MetricsSources()
    sources.add(Source())
    gc.collect()
    assert (sources.all(), sources.at(1), sources.add(Source())) == ([], None, 1)


def test_consumer_that_is_not_open_is_not_asked() -> None:
    """It is closing, or another process's."""
    sources, source = MetricsSources(), Source()
    number = sources.add(source)
    source.is_open = False
    assert (sources.all(), sources.at(number)) == ([], None)
