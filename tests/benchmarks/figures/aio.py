"""The throughput, the latency and the idle processor time of an asyncio consumer."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.figures.throughput import SAME_FETCHING, paired_ratios
from tests.benchmarks.processes import Worker
from tests.benchmarks.samples import Check, Series, ratio_at_least
from tests.benchmarks.workers import aio_reader

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

_RECORDS, _FEW_RECORDS = 1_000_000, 50_000
_BATCH = 500
_TRICKLE = 100
_TRICKLE_EVERY_S = 0.05
_TIMEOUT_S = 120.0
_ONE_BY_ONE, _BATCHES, _TRICKLES, _IDLE = "one by one", "batches", "trickle", "idle"
#: For each task: the side that ours is compared with, and the required ratio of the rates.
FACTORS = {_ONE_BY_ONE: ("confluent-kafka", 3.0), _BATCHES: (aio_reader.AIOKAFKA, 1.3)}


def run(bench: Bench) -> Figure:
    """Run each task with each client in turns."""
    sides = (bench.ours(**SAME_FETCHING), bench.raw("confluent-kafka", **SAME_FETCHING))
    sides = (*sides, replace(sides[1], label=aio_reader.AIOKAFKA, module=aio_reader.AIOKAFKA, config={}))
    topic, small = bench.filled_topic("aio", _RECORDS), bench.filled_topic("aio-few", _FEW_RECORDS)
    rates = {(task, side.label): side.series(task, "msg/s") for task in (_ONE_BY_ONE, _BATCHES) for side in sides}
    late = {side.label: side.series("trickle", "s") for side in sides}
    shares = {side.label: side.series("idle", "%") for side in sides}
    for number in range(bench.count(5, 1)):
        for task in (_ONE_BY_ONE, _BATCHES):
            for side in sides if number % 2 == 0 else sides[::-1]:
                is_slow = task == _ONE_BY_ONE and not side.is_ours
                where = (small, _FEW_RECORDS) if is_slow else (topic, _RECORDS)
                _drain(bench, side, task, *where, rates[task, side.label], number)
        for side in sides:
            _trickle(bench, side, late[side.label])
            _idle(bench, side, shares[side.label])
    checks = tuple(_check(rates, task, *bound) for task, bound in FACTORS.items())
    return Figure(
        title=f"asyncio: {_RECORDS:,} x 100 B from {PARTITIONS} partitions",
        series=(*rates.values(), *late.values(), *shares.values()),
        checks=checks,
        notes=(
            f"one by one: `await poll()`, or `getone()` of aiokafka; {_FEW_RECORDS:,} records for the other clients",
            f"batches: `await consume({_BATCH})`, or `getmany(max_records={_BATCH})` of aiokafka",
            f"trickle: from `produce` to the record, a record every {_TRICKLE_EVERY_S * 1000:.0f} ms",
            "idle: share of a core of a process that awaits a record",
            "equal fetch settings for both librdkafka clients; aiokafka is a classic member with its own settings",
        ),
    )


def _check(rates: dict[tuple[str, str], Series], task: str, than: str, factor: float) -> Check:
    ours, theirs = next(one for (name, _), one in rates.items() if name == task and one.is_ours), rates[task, than]
    bound = f"{task}: median of ours / {than} at least {factor}"
    return ratio_at_least(bound, paired_ratios(ours, theirs), factor, [ours, theirs])


def _job(bench: Bench, side: Side, topic: str, task: str, expected: int = 0) -> aio_reader.Job:
    return aio_reader.Job(
        module=side.module, config=bench.config(side), topic=topic, task=task, expected=expected, batch=_BATCH
    )


def _drain(bench: Bench, side: Side, task: str, topic: str, expected: int, series: Series, number: int) -> None:
    with counted_in(series), Worker("aio_reader", _job(bench, side, topic, task, expected)) as worker:
        facts = worker.expect("measured", _TIMEOUT_S).facts
        worker.wait()
        rate = facts["count"] / facts["wall_s"]
        series.add(rate, round=number, **facts)
        log(f"aio: {series.label} {rate:,.0f} msg/s, {facts['cpu_s'] / facts['count'] * 1e6:.2f} µs/msg")


def _trickle(bench: Bench, side: Side, series: Series) -> None:
    topic = bench.topic("aio-trickle")
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    with counted_in(series), Worker("aio_reader", _job(bench, side, topic, _TRICKLES, _TRICKLE)) as worker:
        while not worker.reports("ready"):
            _produce(producer, topic, 0)
        for number in range(10 * _TRICKLE):
            if worker.reports("measured"):
                break
            _produce(producer, topic, number)
        for took in worker.expect("measured", _TIMEOUT_S).facts["took_s"]:
            series.add(took)
        worker.wait()
    if series.values:
        log(f"aio: {series.label} median {statistics.median(series.values) * 1000:.1f} ms")


def _produce(producer: Producer, topic: str, number: int) -> None:
    producer.produce(topic, value=str(time.monotonic()).encode(), partition=number % PARTITIONS)
    producer.flush(10)
    time.sleep(_TRICKLE_EVERY_S)


def _idle(bench: Bench, side: Side, series: Series) -> None:
    topic = bench.topic("aio-idle")
    with counted_in(series), Worker("aio_reader", _job(bench, side, topic, _IDLE)) as worker:
        facts = worker.expect("measured", _TIMEOUT_S).facts
        worker.wait()
        series.add(facts["cpu_s"] / facts["wall_s"] * 100)
        log(f"aio: {series.label} {series.values[-1]:.2f} % of a core")
