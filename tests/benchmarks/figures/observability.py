"""What it costs to be observed: records a second, an idle member's processor time and memory, and each question."""

from __future__ import annotations

import itertools
import tempfile
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, tell
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
from tests.benchmarks.workers import drain, question

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
"""Some seconds of draining, so that scrapes meet it as often as they would for ever."""

_BYTES = 100
_TIMEOUT_S = 120.0
_SETTLE_S, _QUICK_SETTLE_S = 20.0, 8.0
_WINDOW_S, _QUICK_WINDOW_S = 15.0, 5.0
_WINDOWS, _QUICK_WINDOWS = 4, 6
"""Of each sitting: together at least as many as an interval of a median needs."""

_SITTINGS = 3
"""Two minutes each, however many rounds are asked for."""

_BALANCE_S = 30.0
_MIB = 2**20
_ASKED_PARTITIONS = 100
_ASKED = {"health": 20_000, "metrics": 2_000, "exposition": 200}
MOST_US = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same measured with everything on, and with all of it off."""

    on: Series
    off: Series

    @classmethod
    def of(cls, what: str, unit: str) -> Pair:
        """Two new series."""
        return cls(on=Series(label=f"{what}, on", unit=unit, is_ours=True), off=Series(label=f"{what}, off", unit=unit))

    @property
    def both(self) -> tuple[Series, Series]:
        """For tables, and for what rests on them."""
        return self.on, self.off


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """How a consumer is made on each side; no two that are on share a file of their health."""

    bench: Bench
    folder: str
    off: Side
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of(cls, bench: Bench, folder: str) -> Sides:
        """All off: the default but for the recorder and what is pushed to brokers, which are on by default."""
        off = bench.ours("off", recorder_enable="false", enable_metrics_push="false", **SAME_FETCHING)
        return cls(bench=bench, folder=folder, off=off)

    def on(self) -> Side:
        """A side for one consumer."""
        return self.bench.ours(
            "on",
            recorder_directory=self.folder,
            health_http_address="127.0.0.1:0",
            health_file=f"{self.folder}/health-{next(self.numbers)}.json",
            **SAME_FETCHING,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """What an idle member uses."""

    share: Pair = field(default_factory=lambda: Pair.of(SHARE, "%"))
    weights: dict[tuple[str, str], Pair] = field(
        default_factory=lambda: {
            (kind, moment): Pair.of(f"{kind}, {moment}", "MiB") for kind in KINDS for moment in MOMENTS
        }
    )

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All of them."""
        return self.share, *self.weights.values()


def run(bench: Bench) -> Figure:
    """Drain a topic, idle, and ask, with everything on and with all of it off."""
    rates = {method: Pair.of(method, "msg/s") for method in METHODS}
    costs = {method: Pair.of(f"CPU: {method}", "µs/msg") for method in METHODS}
    idle = Idleness()
    asked = {
        name: Series(label=f"{name}(), {_ASKED_PARTITIONS} partitions", unit="µs", is_ours=True) for name in _ASKED
    }
    with tempfile.TemporaryDirectory() as folder:
        sides = Sides.of(bench, folder)
        records = _QUICK_RECORDS if bench.is_quick else _RECORDS
        topic = bench.filled_topic(NAME, records, _BYTES)
        unheeded = Pair.of("a broker that nobody has fetched from yet", "")
        _drain(sides, topic, records, -1, _Turn.of("poll()", unheeded, unheeded)[1])
        for number in range(bench.count(15, 1)):
            for method in METHODS:
                turns = _Turn.of(method, rates[method], costs[method])
                for turn in turns if number % 2 == 0 else reversed(turns):
                    _drain(sides, topic, records, number, turn)
        for _ in range(min(bench.count(_SITTINGS, 1), _SITTINGS)):
            _idle(sides, idle)
            _ask(sides, asked)
    return Figure(
        title="Recorder, health, events, probes and metrics: everything on, and all of it off",
        series=(
            *(series for pair in (*rates.values(), *costs.values(), *idle.pairs) for series in pair.both),
            *asked.values(),
        ),
        checks=(
            *(_rate_check(method, pair) for method, pair in rates.items()),
            *_idle_checks(idle),
            at_most(
                f"health(): at most {MOST_US:.0f} µs", median_of(asked["health"]), MOST_US, "µs", [asked["health"]]
            ),
        ),
        notes=(
            (
                "on: recorder.directory, health.http.address, health.file and a callback of on_event; asked for"
                f" {' and '.join(PATHS)} every {EVERY_S:.0f} s, from a random moment on"
            ),
            "off: recorder.enable=false, enable.metrics.push=false; counting is part of both",
            "one drain before the first round is not counted: a new broker is slow",
            "within a round the two follow each other directly; idle members are watched at the same time",
            "CPU: user and system time of the whole process; a busy machine changes it less than the rates",
            *(
                f"{name}, on / off: {' '.join(format(one, '.3f') for one in paired_ratios(*pair.both))}"
                for name, pair in (*rates.items(), *((f"CPU: {method}", pair) for method, pair in costs.items()))
            ),
            f"share of a core, on - off: {' '.join(format(one, '.2f') for one in paired_differences(idle.share))}",
        ),
    )


def paired_differences(pair: Pair) -> list[float]:
    """On less off for each window that both were watched in."""
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
    for (kind, moment), pair in idle.weights.items():
        bound = f"idle member, {moment}, {kind}: at most {MOST_MIB:.0f} MiB more"
        yield median_above_at_most(bound, *pair.both, MOST_MIB, "MiB more")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One way to drain on one side, and where its measurements go."""

    method: str
    is_on: bool
    rate: Series
    cost: Series

    @classmethod
    def of(cls, method: str, rate: Pair, cost: Pair) -> tuple[_Turn, _Turn]:
        """On, and off."""
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
        tell(f"{NAME}: {turn.rate.label} {turn.rate.values[-1]:,.0f} msg/s, {turn.cost.values[-1]:.3f} µs/msg")


def _idle(sides: Sides, idle: Idleness) -> None:
    """Two members at the same time, each with a topic's empty partitions; one of them is asked."""
    topic = sides.bench.topic(f"{NAME}-idle")
    with counted_in(*(series for pair in idle.pairs for series in pair.both)), ExitStack() as held:
        members = [held.enter_context(_idler(sides, topic, is_on=is_on)) for is_on in (True, False)]
        time.sleep(_QUICK_SETTLE_S if sides.bench.is_quick else _SETTLE_S)
        _weigh(idle, members, MOMENTS[0])
        scraper = held.enter_context(Scraper(members[0].worker.pid))
        scraper.await_answer()
        _weigh(idle, members, MOMENTS[1])
        _watch(sides.bench, idle.share, members)
        _weigh(idle, members, MOMENTS[2])


@contextmanager
def _idler(sides: Sides, topic: str, *, is_on: bool) -> Iterator[GroupMember]:
    side = sides.on() if is_on else sides.off
    with Group(sides.bench, side, topic, poll_s=1.0, is_observed=is_on) as group:
        member = group.member()
        member.subscribe()
        balanced_at([member], _BALANCE_S)
        yield member


def _weigh(idle: Idleness, members: Sequence[GroupMember], moment: str) -> None:
    for number, member in enumerate(members):
        memory = psutil.Process(member.worker.pid).memory_full_info()
        for kind, size in zip(KINDS, (memory.rss, memory.uss), strict=True):
            idle.weights[kind, moment].both[number].add(size / _MIB)
    words = [f"{kind} {' and '.join(f'{s.values[-1]:.1f}' for s in idle.weights[kind, moment].both)}" for kind in KINDS]
    tell(f"{NAME}: {moment}, on and off: {', '.join(words)} MiB")


def _watch(bench: Bench, share: Pair, members: Sequence[GroupMember]) -> None:
    """Windows that follow one another; the members are read within a moment of each other."""
    pids = [member.worker.pid for member in members]
    for _ in range(_QUICK_WINDOWS if bench.is_quick else _WINDOWS):
        window = time.monotonic()
        before = [_used(pid) for pid in pids]
        time.sleep(_QUICK_WINDOW_S if bench.is_quick else _WINDOW_S)
        for series, pid, (began, used) in zip(share.both, pids, before, strict=True):
            now, used_now = _used(pid)
            series.add((used_now - used) / (now - began) * 100, window=window)
        tell(f"{NAME}: idle, on and off: {' and '.join(f'{one.values[-1]:.3f}' for one in share.both)} % of a core")


def _used(pid: int) -> tuple[float, float]:
    """Now, and the processor seconds that a process has used, all its threads included.

    By the process's own clock (clock_getcpuclockid of Linux): the ticks of /proc are 0.07 % of a window each.

    Raises:
        WorkerFailedError: it is gone.
    """
    try:
        return time.monotonic(), time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise WorkerFailedError(f"process {pid} has no clock") from error


def _ask(sides: Sides, asked: dict[str, Series]) -> None:
    with counted_in(*asked.values()):
        topic = sides.bench.topic(f"{NAME}-asked", partitions=_ASKED_PARTITIONS)
        config = sides.bench.config(sides.on())
        job = question.Job(config=config, topic=topic, partitions=_ASKED_PARTITIONS, times=_ASKED)
        facts = run_worker("question", job, _TIMEOUT_S).facts
        for name, series in asked.items():
            series.add(facts["us"][name])
            tell(f"{NAME}: {series.label} {series.values[-1]:.2f} µs")
