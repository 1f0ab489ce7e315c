"""How fast one consumer takes a million records."""

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
"""In quick runs too: what fits into librdkafka's queue is not held up by its backoff."""

_BYTES = 100
_BATCH = 500
_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One way to consume under one kind of settings, and how much faster ours must be."""

    settings: str
    method: str
    batch: int
    factor: float

    def __str__(self) -> str:
        """Its name in tables."""
        return f"{self.method}, {self.settings}"


CONTESTS = (
    Contest(settings="same fetch settings", method=f"consume({_BATCH})", batch=_BATCH, factor=1.0),
    Contest(settings="same fetch settings", method="poll()", batch=0, factor=1.15),
    Contest(settings="own defaults", method=f"consume({_BATCH})", batch=_BATCH, factor=5.0),
    Contest(settings="own defaults", method="poll()", batch=0, factor=3.0),
)


def run(bench: Bench) -> Figure:
    """Drain one topic by both sides in turns."""
    topic = bench.filled_topic("throughput", _RECORDS, _BYTES)
    contests = [_measured_sides(bench, contest) for contest in CONTESTS]
    for number in range(bench.count(11, 1)):
        for measured_sides in contests:
            # The two of a contest follow each other directly, in turns: what else the machine does meets both.
            for one in measured_sides if number % 2 == 0 else reversed(measured_sides):
                _drain(bench, one, topic, number)
    pairs = [(ours.rate, raw.rate) for ours, raw in contests]
    return Figure(
        title=f"Throughput: {_RECORDS:,} x {_BYTES} B from 12 partitions",
        series=(
            *(one.rate for measured_sides in contests for one in measured_sides),
            *(one.cost for measured_sides in contests for one in measured_sides),
        ),
        checks=tuple(_check(contest, *pair) for contest, pair in zip(CONTESTS, pairs, strict=True)),
        notes=(
            "rates: from the return of the first call that brought records to that of the last",
            "CPU: user and system time of the whole process in the same span",
            "same fetch settings: fetch.queue.backoff.ms=5, fetch.wait.max.ms=100 on both sides",
            "ours / raw: within a round the two follow each other directly",
            "raw's defaults make it wait and not compute: a busy machine slows only ours in the comparison of defaults",
            *(_as_text(contest, *pair) for contest, pair in zip(CONTESTS, pairs, strict=True)),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One side of a contest and its measurements."""

    side: Side
    contest: Contest
    rate: Series
    cost: Series


def _measured_sides(bench: Bench, contest: Contest) -> tuple[MeasuredSide, MeasuredSide]:
    config = SAME_FETCHING if contest.settings == "same fetch settings" else {}
    ours, raw = (
        MeasuredSide(
            side=side,
            contest=contest,
            rate=side.series(str(contest), "msg/s"),
            cost=side.series(f"CPU: {contest}", "µs/msg"),
        )
        for side in (bench.ours(**config), bench.raw(**config))
    )
    return ours, raw


def paired_ratios(ours: Series, raw: Series) -> list[float]:
    """Ours by raw for each round that both have finished."""
    by_round = {sample.detail["round"]: sample.value for sample in raw.samples}
    return [
        sample.value / by_round[sample.detail["round"]] for sample in ours.samples if sample.detail["round"] in by_round
    ]


def _check(contest: Contest, ours: Series, raw: Series) -> Check:
    bound = f"{contest}: median of ours / raw at least {contest.factor}"
    return ratio_at_least(bound, paired_ratios(ours, raw), contest.factor, [ours, raw])


def _as_text(contest: Contest, ours: Series, raw: Series) -> str:
    return f"{contest}, ours / raw: {' '.join(format(one, '.2f') for one in paired_ratios(ours, raw))}"


def _drain(bench: Bench, one: MeasuredSide, topic: str, number: int) -> None:
    with counted_in(one.rate, one.cost):
        job = drain.Job(
            module=one.side.module,
            config=bench.config(one.side),
            topic=topic,
            expected=_RECORDS,
            batch=one.contest.batch,
            partitions=PARTITIONS,
        )
        facts = run_worker("drain", job, _TIMEOUT_S).facts
        if not facts["is_complete"]:
            raise WorkerFailedError(f"{_RECORDS} came, but not each record once: {facts}")
        rate, cost = facts["count"] / facts["wall_s"], facts["cpu_s"] / facts["count"] * 1e6
        one.rate.add(rate, round=number, **facts)
        one.cost.add(cost, round=number)
        log(f"throughput: {one.rate.label} {rate:,.0f} msg/s, {cost:.2f} µs/msg")
