"""The time from a constructor to the first record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.processes import run_worker
from tests.benchmarks.samples import Series, median_above_at_most, median_of
from tests.benchmarks.workers import first_record

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

_RECORDS = 1_200
_STEPS = ("constructed_s", "subscribed_s", "assigned_s", "first_record_s", "close_s")
#: The bound also applies to secured connections.
SLOWER_BY_S = 0.05
MORE = "s more than raw"
_TIMEOUT_S = 60.0
NO_CONFIG: Mapping[str, str] = MappingProxyType({})


def run(bench: Bench) -> Figure:
    """Measure one member of a new group with 12 partitions, from the earliest record."""
    topic = bench.filled_topic("start", _RECORDS)
    sides = (bench.ours(), bench.raw(), bench.raw("raw classic", group_protocol="classic"))
    first = {side: side.series("first record", "s") for side in sides}
    bench.in_turns(bench.count(15, 4), *(partial(measure_start, bench, side, topic, first[side]) for side in sides))

    ours, raw, _ = (first[side] for side in sides)
    checks = (
        median_above_at_most(
            f"constructor to first record: median at most raw + {SLOWER_BY_S} s", ours, raw, SLOWER_BY_S, MORE
        ),
    )
    return Figure(
        title="Start: constructor to first record, one member of a new group, 12 partitions",
        series=tuple(first.values()),
        checks=checks,
        notes=tuple(_timeline(series) for series in first.values()),
    )


def measure_start(bench: Bench, side: Side, topic: str, series: Series, config: Mapping[str, str] = NO_CONFIG) -> None:
    """Measure one start, with this configuration in addition to that of the side."""
    with counted_in(series):
        job = first_record.Job(module=side.module, config={**bench.config(side), **config}, topic=topic)
        facts = run_worker("first_record", job, _TIMEOUT_S).facts
        series.add(facts["first_record_s"], **facts)
        log(f"start: {series.label} {facts['first_record_s']:.3f} s")


def _timeline(series: Series) -> str:
    """Return as text the medians of the steps until the first record."""
    steps = []
    for step in _STEPS:
        one = Series(label=step, unit="s")
        for sample in series.samples:
            one.add(sample.detail[step])
        median = median_of(one)
        steps.append(f"{step.removesuffix('_s')} {'?' if median is None else format(median, '.3f')}")
    return f"{series.label}, medians in seconds since the constructor (close: its own duration): {', '.join(steps)}"
