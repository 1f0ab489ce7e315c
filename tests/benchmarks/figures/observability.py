"""The costs of observability: throughput, processor time and memory of an idle member, and duration of each call."""

from __future__ import annotations

import itertools
import tempfile
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.figures.throughput import SAME_FETCHING, paired_ratios
from tests.benchmarks.groups import Group, GroupMember, balanced_at
from tests.benchmarks.processes import Worker, WorkerFailedError, run_worker
from tests.benchmarks.samples import (
    Check,
    Series,
    at_most,
    differences_at_most,
    median_above_at_most,
    median_of,
    ratio_at_least,
)
from tests.benchmarks.scraper import EVERY_S, PATHS, Scraper
from tests.benchmarks.workers import drain, repeated_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.benchmarks.bench import Bench, Side

NAME = "observability"

METHODS = {"consume(500)": 500, "poll()": 0}
LEAST_RATIO = 0.99
MOST_CPU_PERCENT = 0.1
MOST_MIB = 3.0
SHARE = "share of a core, idle"
KINDS = ("RSS", "USS")
MOMENTS = ("joined", "scraped once", "scraped for a while")

_RECORDS, _QUICK_RECORDS = 3_000_000, 1_000_000
"""A drain of these records takes some seconds, so that its share of scrapes is that of a long drain."""

_BYTES = 100
_TIMEOUT_S = 120.0
_SETTLE_S, _QUICK_SETTLE_S = 20.0, 8.0
_WINDOW_S, _QUICK_WINDOW_S = 15.0, 5.0
_WINDOWS, _QUICK_WINDOWS = 4, 6
"""The windows of each pair of members; all rounds have at least as many as the interval of a median needs."""

_SITTINGS = 3
"""The limit of these rounds, which take two minutes each, even if more rounds are requested."""

_BALANCE_S = 30.0
_MIB = 2**20
_CALL_PARTITIONS = 100
_CALLS = {"health": 20_000, "metrics": 2_000, "exposition": 200}
MOST_US = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two series of one measurement: with all features on, and with all features off."""

    on: Series
    off: Series

    @classmethod
    def of(cls, what: str, unit: str) -> Pair:
        """Return two empty series."""
        return cls(on=Series(label=f"{what}, on", unit=unit, is_ours=True), off=Series(label=f"{what}, off", unit=unit))

    @property
    def both(self) -> tuple[Series, Series]:
        """Return both series."""
        return self.on, self.off


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The settings of both sides; each consumer with the features on has its own health file."""

    bench: Bench
    folder: str
    off: Side
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(cls, bench: Bench, folder: str) -> Sides:
        """Create the sides; the recorder and the metrics push are on by default and must be switched off."""
        off = bench.ours("off", recorder_enable="false", enable_metrics_push="false", **SAME_FETCHING)
        return cls(bench=bench, folder=folder, off=off)

    def on(self) -> Side:
        """Return the side with all features on, for one consumer."""
        return self.bench.ours(
            "on",
            recorder_directory=self.folder,
            health_http_address="127.0.0.1:0",
            health_file=f"{self.folder}/health-{next(self.numbers)}.json",
            **SAME_FETCHING,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """The processor time and the memory of an idle member."""

    share: Pair = field(default_factory=lambda: Pair.of(SHARE, "%"))
    memory: dict[tuple[str, str], Pair] = field(
        default_factory=lambda: {
            (kind, moment): Pair.of(f"{kind}, {moment}", "MiB") for kind in KINDS for moment in MOMENTS
        }
    )

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Return all pairs."""
        return self.share, *self.memory.values()


def run(bench: Bench) -> Figure:
    """Drain a topic, measure idle members, and time calls, with all features on and with all features off."""
    rates = {method: Pair.of(method, "msg/s") for method in METHODS}
    costs = {method: Pair.of(f"CPU: {method}", "µs/msg") for method in METHODS}
    idle = Idleness()
    calls = {name: Series(label=f"{name}(), {_CALL_PARTITIONS} partitions", unit="µs", is_ours=True) for name in _CALLS}
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides.of(bench, folder)
        records = _QUICK_RECORDS if bench.is_quick else _RECORDS
        topic = bench.filled_topic(NAME, records, _BYTES)
        unheeded = Pair.of("a broker without earlier fetches", "")
        _drain(sides, topic, records, -1, _Turn.of("poll()", unheeded, unheeded)[1])
        for number in range(bench.count(15, 1)):
            for method in METHODS:
                turns = _Turn.of(method, rates[method], costs[method])
                for turn in turns if number % 2 == 0 else reversed(turns):
                    _drain(sides, topic, records, number, turn)
        for _ in range(min(bench.count(_SITTINGS, 1), _SITTINGS)):
            _idle(sides, idle)
            _time_calls(sides, calls)
    return Figure(
        title="Recorder, health, events, probes and metrics: all on, and all off",
        series=(
            *(series for pair in (*rates.values(), *costs.values(), *idle.pairs) for series in pair.both),
            *calls.values(),
        ),
        checks=(
            *(_rate_check(method, pair) for method, pair in rates.items()),
            *_idle_checks(idle),
            at_most(
                f"health(): at most {MOST_US:.0f} µs", median_of(calls["health"]), MOST_US, "µs", [calls["health"]]
            ),
        ),
        notes=(
            (
                "on: recorder.directory, health.http.address, health.file and a callback of on_event; requests for"
                f" {' and '.join(PATHS)} every {EVERY_S:.0f} s, from a random moment on"
            ),
            "off: recorder.enable=false, enable.metrics.push=false; both sides count their metrics",
            "one drain before the first round is not counted: a new broker is slow",
            "within a round, one side follows the other directly; both idle members are measured at the same time",
            "CPU: user and system time of the whole process; a busy machine changes it less than the rates",
            *(
                f"{name}, on / off: {' '.join(format(one, '.3f') for one in paired_ratios(*pair.both))}"
                for name, pair in (*rates.items(), *((f"CPU: {method}", pair) for method, pair in costs.items()))
            ),
            f"share of a core, on - off: {' '.join(format(one, '.2f') for one in paired_differences(idle.share))}",
        ),
    )


def paired_differences(pair: Pair) -> list[float]:
    """Return the difference on - off for each window in which both were measured."""
    by_window = {sample.detail["window"]: sample.value for sample in pair.off.samples}
    return [
        sample.value - by_window[sample.detail["window"]]
        for sample in pair.on.samples
        if sample.detail["window"] in by_window
    ]


def _rate_check(method: str, pair: Pair) -> Check:
    bound = f"{method}: median of on / off at least {LEAST_RATIO}"
    return ratio_at_least(bound, paired_ratios(*pair.both), LEAST_RATIO, pair.both, "x off")


def _idle_checks(idle: Idleness) -> Iterator[Check]:
    bound = f"idle member: at most {MOST_CPU_PERCENT} % of a core more"
    yield differences_at_most(bound, paired_differences(idle.share), MOST_CPU_PERCENT, "% more", idle.share.both)
    for (kind, moment), pair in idle.memory.items():
        bound = f"idle member, {moment}, {kind}: at most {MOST_MIB:.0f} MiB more"
        yield median_above_at_most(bound, *pair.both, MOST_MIB, "MiB more")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One way to drain on one side, and its series."""

    method: str
    is_on: bool
    rate: Series
    cost: Series

    @classmethod
    def of(cls, method: str, rate: Pair, cost: Pair) -> tuple[_Turn, _Turn]:
        """Return the turns with the features on and off."""
        return (
            cls(method=method, is_on=True, rate=rate.on, cost=cost.on),
            cls(method=method, is_on=False, rate=rate.off, cost=cost.off),
        )


def _drain(sides: Sides, topic: str, records: int, number: int, turn: _Turn) -> None:
    with counted_in(turn.rate, turn.cost):
        side = sides.on() if turn.is_on else sides.off
        job = drain.Job(
            module=side.module,
            config=sides.bench.config(side),
            topic=topic,
            expected=records,
            batch=METHODS[turn.method],
            partitions=PARTITIONS,
            is_observed=turn.is_on,
        )
        phase_s = sides.bench.chance.uniform(0.0, EVERY_S)
        with Worker("drain", job) as worker, Scraper(worker.pid, phase_s) if turn.is_on else nullcontext():
            facts = worker.expect("measured", _TIMEOUT_S).facts
            worker.wait()
        if not facts["is_complete"]:
            raise WorkerFailedError(f"{records} came, but not each record once: {facts}")
        turn.rate.add(facts["count"] / facts["wall_s"], round=number, **facts)
        turn.cost.add(facts["cpu_s"] / facts["count"] * 1e6, round=number)
        log(f"{NAME}: {turn.rate.label} {turn.rate.values[-1]:,.0f} msg/s, {turn.cost.values[-1]:.3f} µs/msg")


def _idle(sides: Sides, idle: Idleness) -> None:
    """Measure two members with empty partitions at the same time; one of them has the features on and is scraped."""
    topic = sides.bench.topic(f"{NAME}-idle")
    with counted_in(*(series for pair in idle.pairs for series in pair.both)), ExitStack() as held:
        members = [held.enter_context(_idle_member(sides, topic, is_on=is_on)) for is_on in (True, False)]
        time.sleep(_QUICK_SETTLE_S if sides.bench.is_quick else _SETTLE_S)
        _measure_memory(idle, members, MOMENTS[0])
        scraper = held.enter_context(Scraper(members[0].worker.pid))
        scraper.await_response()
        _measure_memory(idle, members, MOMENTS[1])
        _measure_share(sides.bench, idle.share, members)
        _measure_memory(idle, members, MOMENTS[2])


@contextmanager
def _idle_member(sides: Sides, topic: str, *, is_on: bool) -> Iterator[GroupMember]:
    side = sides.on() if is_on else sides.off
    with Group(sides.bench, side, topic, poll_s=1.0, is_observed=is_on) as group:
        member = group.member()
        member.subscribe()
        balanced_at([member], _BALANCE_S)
        yield member


def _measure_memory(idle: Idleness, members: Sequence[GroupMember], moment: str) -> None:
    for number, member in enumerate(members):
        memory = psutil.Process(member.worker.pid).memory_full_info()
        for kind, size in zip(KINDS, (memory.rss, memory.uss), strict=True):
            idle.memory[kind, moment].both[number].add(size / _MIB)
    parts = [f"{kind} {' and '.join(f'{s.values[-1]:.1f}' for s in idle.memory[kind, moment].both)}" for kind in KINDS]
    log(f"{NAME}: {moment}, on and off: {', '.join(parts)} MiB")


def _measure_share(bench: Bench, share: Pair, members: Sequence[GroupMember]) -> None:
    """Measure both members in consecutive windows; the driver reads one member directly after the other."""
    pids = [member.worker.pid for member in members]
    for _ in range(_QUICK_WINDOWS if bench.is_quick else _WINDOWS):
        window = time.monotonic()
        before = [_used(pid) for pid in pids]
        time.sleep(_QUICK_WINDOW_S if bench.is_quick else _WINDOW_S)
        for series, pid, (began, used) in zip(share.both, pids, before, strict=True):
            now, used_now = _used(pid)
            series.add((used_now - used) / (now - began) * 100, window=window)
        log(f"{NAME}: idle, on and off: {' and '.join(f'{one.values[-1]:.3f}' for one in share.both)} % of a core")


def _used(pid: int) -> tuple[float, float]:
    """Return the time, and the processor time that a process has used with all its threads.

    It reads the process's own clock (clock_getcpuclockid of Linux), because a tick of /proc is 0.07 % of a window.

    Raises:
        WorkerFailedError: The process has ended.
    """
    try:
        return time.monotonic(), time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise WorkerFailedError(f"process {pid} has no clock") from error


def _time_calls(sides: Sides, calls: dict[str, Series]) -> None:
    with counted_in(*calls.values()):
        topic = sides.bench.topic(f"{NAME}-calls", partitions=_CALL_PARTITIONS)
        config = sides.bench.config(sides.on())
        job = repeated_calls.Job(config=config, topic=topic, partitions=_CALL_PARTITIONS, times=_CALLS)
        facts = run_worker("repeated_calls", job, _TIMEOUT_S).facts
        for name, series in calls.items():
            series.add(facts["us"][name])
            log(f"{NAME}: {series.label} {series.values[-1]:.2f} µs")
