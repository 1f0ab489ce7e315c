"""The rate at which one consumer reads a million records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.processes import WorkerFailedError, run_worker
from tests.benchmarks.samples import Check, Series, ratio_at_least
from tests.benchmarks.workers import drain

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

SAME_FETCHING = {"fetch_queue_backoff_ms": "5", "fetch_wait_max_ms": "100"}
_RECORDS = 1_000_000
"""Also in quick runs, because librdkafka's backoff does not delay records that fit into its queue."""

_BYTES = 100
_BATCH = 500
_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One way to consume with one kind of settings, and the required ratio of the rates."""

    settings: str
    method: str
    batch: int
    factor: float

    def __str__(self) -> str:
        """The name in tables."""
        return f"{self.method}, {self.settings}"


COMPARISONS = (
    Comparison(settings="same fetch settings", method=f"consume({_BATCH})", batch=_BATCH, factor=1.0),
    Comparison(settings="same fetch settings", method="poll()", batch=0, factor=1.15),
    Comparison(settings="own defaults", method=f"consume({_BATCH})", batch=_BATCH, factor=5.0),
    Comparison(settings="own defaults", method="poll()", batch=0, factor=3.0),
)


def run(bench: Bench) -> Figure:
    """Drain one topic with both sides in turns."""
    topic = bench.filled_topic("throughput", _RECORDS, _BYTES)
    comparisons = [_measured_sides(bench, comparison) for comparison in COMPARISONS]
    for number in range(bench.count(11, 1)):
        for measured_sides in comparisons:
            # One side follows the other directly and their order alternates, so that other load affects both.
            for one in measured_sides if number % 2 == 0 else reversed(measured_sides):
                _drain(bench, one, topic, number)
    pairs = [(ours.rate, raw.rate) for ours, raw in comparisons]
    return Figure(
        title=f"Throughput: {_RECORDS:,} x {_BYTES} B from 12 partitions",
        series=(
            *(one.rate for measured_sides in comparisons for one in measured_sides),
            *(one.cost for measured_sides in comparisons for one in measured_sides),
        ),
        checks=tuple(_check(comparison, *pair) for comparison, pair in zip(COMPARISONS, pairs, strict=True)),
        notes=(
            "rates: from the return of the first call that returned records to the return of the last call",
            "CPU: user and system time of the whole process in the same span",
            "same fetch settings: fetch.queue.backoff.ms=5, fetch.wait.max.ms=100 on both sides",
            "ours / raw: within a round, one side follows the other directly",
            "with its defaults, raw mostly waits, so a busy machine slows only ours in the comparison of defaults",
            *(_as_text(comparison, *pair) for comparison, pair in zip(COMPARISONS, pairs, strict=True)),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One side of a comparison and its series."""

    side: Side
    comparison: Comparison
    rate: Series
    cost: Series


def _measured_sides(bench: Bench, comparison: Comparison) -> tuple[MeasuredSide, MeasuredSide]:
    config = SAME_FETCHING if comparison.settings == "same fetch settings" else {}
    ours, raw = (
        MeasuredSide(
            side=side,
            comparison=comparison,
            rate=side.series(str(comparison), "msg/s"),
            cost=side.series(f"CPU: {comparison}", "µs/msg"),
        )
        for side in (bench.ours(**config), bench.raw(**config))
    )
    return ours, raw


def paired_ratios(ours: Series, raw: Series) -> list[float]:
    """Return the ratio ours / raw for each round that both sides have finished."""
    by_round = {sample.detail["round"]: sample.value for sample in raw.samples}
    return [
        sample.value / by_round[sample.detail["round"]] for sample in ours.samples if sample.detail["round"] in by_round
    ]


def _check(comparison: Comparison, ours: Series, raw: Series) -> Check:
    bound = f"{comparison}: median of ours / raw at least {comparison.factor}"
    return ratio_at_least(bound, paired_ratios(ours, raw), comparison.factor, [ours, raw])


def _as_text(comparison: Comparison, ours: Series, raw: Series) -> str:
    return f"{comparison}, ours / raw: {' '.join(format(one, '.2f') for one in paired_ratios(ours, raw))}"


def _drain(bench: Bench, one: MeasuredSide, topic: str, number: int) -> None:
    with counted_in(one.rate, one.cost):
        job = drain.Job(
            module=one.side.module,
            config=bench.config(one.side),
            topic=topic,
            expected=_RECORDS,
            batch=one.comparison.batch,
            partitions=PARTITIONS,
        )
        facts = run_worker("drain", job, _TIMEOUT_S).facts
        if not facts["is_complete"]:
            raise WorkerFailedError(f"{_RECORDS} records were read, but not each record once: {facts}")
        rate, cost = facts["count"] / facts["wall_s"], facts["cpu_s"] / facts["count"] * 1e6
        one.rate.add(rate, round=number, **facts)
        one.cost.add(cost, round=number)
        log(f"throughput: {one.rate.label} {rate:,.0f} msg/s, {cost:.2f} µs/msg")
