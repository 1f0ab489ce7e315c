"""How fast one consumer takes a million records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, tell
from tests.benchmarks.processes import WorkerFailedError, run_worker
from tests.benchmarks.samples import Check, Series, at_least, median_of, ratio
from tests.benchmarks.workers import drain

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

NAME = "throughput"

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


CONTESTS = (
    Contest(settings="same fetch settings", method=f"consume({_BATCH})", batch=_BATCH, factor=1.0),
    Contest(settings="same fetch settings", method="poll()", batch=0, factor=1.15),
    Contest(settings="own defaults", method=f"consume({_BATCH})", batch=_BATCH, factor=5.0),
    Contest(settings="own defaults", method="poll()", batch=0, factor=3.0),
)


def run(bench: Bench) -> Figure:
    """Drain one topic by both sides in turns."""
    began_load = os.getloadavg()[0]
    topic = bench.filled_topic("throughput", _RECORDS, _BYTES)
    rates, costs, turns = [], [], []
    for contest in CONTESTS:
        config = SAME_FETCHING if contest.settings == "same fetch settings" else {}
        for side in (bench.ours(**config), bench.raw(**config)):
            label = f"{contest.method}, {contest.settings}, {side.label}"
            rate = Series(label=label, unit="msg/s", is_ours=side.is_ours)
            cost = Series(label=f"CPU: {label}", unit="µs/msg", is_ours=side.is_ours)
            rates.append(rate)
            costs.append(cost)
            turns.append(partial(_drain, bench, side, contest, topic, rate, cost))
    bench.in_turns(bench.count(7, 1), *turns)
    return Figure(
        name=NAME,
        title=f"Throughput: {_RECORDS:,} x {_BYTES} B from 12 partitions",
        series=(*rates, *costs),
        checks=tuple(
            _check(contest, ours, raw) for contest, ours, raw in zip(CONTESTS, rates[::2], rates[1::2], strict=True)
        ),
        notes=(
            (
                "from the return of the first call that brought records to that of the last; CPU of the whole process"
                " (user + system) in the same span"
            ),
            "same fetch settings: fetch.queue.backoff.ms=5, fetch.wait.max.ms=100 on both sides",
            *(_paired(ours, raw) for ours, raw in zip(rates[::2], rates[1::2], strict=True)),
        ),
        began_load=began_load,
    )


def _check(contest: Contest, ours: Series, raw: Series) -> Check:
    return at_least(
        f"{contest.method}, {contest.settings}: median at least {contest.factor} x raw",
        ratio(median_of(ours), median_of(raw)),
        contest.factor,
        "x raw",
        [ours, raw],
    )


def _paired(ours: Series, raw: Series) -> str:
    ratios = [f"{left / right:.2f}" for left, right in zip(ours.values, raw.values, strict=False)]
    return f"ours / raw, round by round: {ours.label.removesuffix(', ours')}: {' '.join(ratios)}"


def _drain(bench: Bench, side: Side, contest: Contest, topic: str, rate: Series, cost: Series) -> None:
    with counted_in(rate, cost):
        job = drain.Job(
            module=side.module,
            config=bench.config(side),
            topic=topic,
            expected=_RECORDS,
            batch=contest.batch,
            partitions=PARTITIONS,
        )
        facts = run_worker("drain", job, _TIMEOUT_S).facts
        if not facts["is_complete"]:
            raise WorkerFailedError(f"{_RECORDS} came, but not each record once: {facts}")
        rate.add(facts["count"] / facts["wall_s"], **facts)
        cost.add(facts["cpu_s"] / facts["count"] * 1e6)
        tell(f"throughput: {rate.label} {rate.values[-1]:,.0f} msg/s, {cost.values[-1]:.2f} µs/msg")
