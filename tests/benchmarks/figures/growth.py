"""The time that one large group needs for its join, for the leave of a quarter of its members, and for new members."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.groups import GroupMember, balanced_at
from tests.benchmarks.processes import Worker, cpu_s, listener_at, share_of_core
from tests.benchmarks.samples import at_most, median_of
from tests.benchmarks.workers import portion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.processes import Report
    from tests.benchmarks.samples import Check, Series

NAME = "growth"
JOIN, LEAVE, RETURN = "all join", "a quarter leaves", "as many new members join"
BOUNDS = {JOIN: 6.0, LEAVE: 1.5, RETURN: 3.0}

_READY_S, _BALANCE_S = 60.0, 300.0
#: The interval in which the driver computes the owners, which takes about ten milliseconds with hundreds of members.
_CHECK_EVERY_S = 0.25
_WATCH_S, _QUICK_WATCH_S = 30.0, 10.0
#: Both sides have equal fetch settings, and no group reads the records of earlier groups.
_FETCHING = {"fetch_wait_max_ms": "500", "auto_offset_reset": "latest"}
#: The rate of all partitions together.
_RECORDS_PER_S = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a group.

    Attributes:
        members: The number of members.
        partitions: The number of partitions of its topic.
        rounds: How often each side is measured.
        is_bounded: Whether the bounds apply to this size.
        per_process: How many members share a process, each polled by its own thread; ours share the membership thread.
    """

    members: int
    partitions: int
    rounds: int
    is_bounded: bool = False
    per_process: int = 1

    def __str__(self) -> str:
        """The name of the cell in tables."""
        return f"{self.members} members, {self.partitions:,} partitions"


CELLS = {
    "12-120": Size(members=12, partitions=120, rounds=2),
    "48-480": Size(members=48, partitions=480, rounds=2, is_bounded=True),
    "100-2000": Size(members=100, partitions=2_000, rounds=1),
    "200-10000": Size(members=200, partitions=10_000, rounds=1, per_process=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The series of one side in a group of one size."""

    join: Series
    leave: Series
    back: Series
    join_cpu: Series
    idle_cpu: Series

    @classmethod
    def of(cls, side: Side, size: Size) -> Measured:
        """Return the series without a measurement."""
        return cls(
            join=side.series(f"{size}: {JOIN}", "s"),
            leave=side.series(f"{size}: {LEAVE}", "s"),
            back=side.series(f"{size}: {RETURN}", "s"),
            join_cpu=side.series(f"{size}: broker CPU of the join, per member", "ms"),
            idle_cpu=side.series(f"{size}: broker CPU of the balanced group, per member", "% of a core"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.join, self.leave, self.back, self.join_cpu, self.idle_cpu)


def run(bench: Bench) -> Figure:
    """Let a group of each side grow, shrink and grow again, in turns."""
    series: list[Series] = []
    checks: list[Check] = []
    for name in bench.cells or tuple(CELLS):
        size = CELLS[name]
        threads = "shared" if size.per_process > 1 else "own"
        sides = (bench.ours(membership_threads=threads, **_FETCHING), bench.raw(**_FETCHING))
        topic = bench.topic(NAME, partitions=size.partitions)
        measured = {side: Measured.of(side, size) for side in sides}
        with bench.streaming(topic, _RECORDS_PER_S / size.partitions, partitions=size.partitions, spread=True):
            turns = [partial(_turn, bench, side, topic, size, measured[side]) for side in sides]
            bench.in_turns(bench.count(size.rounds, 1), *turns)
        series += [one for of_side in measured.values() for one in of_side.series]
        if size.is_bounded:
            checks += _checks(size, measured[sides[0]])
    return Figure(
        title="Growth of one group: from the first order until all shares are even",
        series=tuple(series),
        checks=tuple(checks),
        notes=(
            f"{_RECORDS_PER_S} records/s in all; fetch.wait.max.ms=500 on both sides",
            "the processes run, with all imports done, before they receive the order to subscribe",
        ),
    )


def _checks(size: Size, ours: Measured) -> list[Check]:
    return [
        at_most(f"{size}, {what}: median at most {limit_s:g} s", median_of(series), limit_s, "s", [series])
        for (what, limit_s), series in zip(BOUNDS.items(), (ours.join, ours.leave, ours.back), strict=True)
    ]


def _turn(bench: Bench, side: Side, topic: str, size: Size, measured: Measured) -> None:
    with counted_in(*measured.series):
        _measure(bench, side, topic, size, measured)


def _measure(bench: Bench, side: Side, topic: str, size: Size, measured: Measured) -> None:
    broker, count = listener_at(bench.bootstrap), size.members // size.per_process
    job = portion.Job(module=side.module, config=bench.config(side), topic=topic, members=size.per_process)
    with ExitStack() as held:
        processes = _started(held, job, count)
        used = cpu_s(broker)
        _join(processes, processes, size, measured.join)
        measured.join_cpu.add((cpu_s(broker) - used) / size.members * 1000)
        time.sleep(bench.settle_s)
        measured.idle_cpu.add(share_of_core(broker, _QUICK_WATCH_S if bench.is_quick else _WATCH_S) / size.members)
        leaving, staying = processes[: count // 4], processes[count // 4 :]
        began = time.monotonic()
        for worker in leaving:
            worker.order("end")
        measured.leave.add(_balanced_at(staying, size) - began)
        newcomers = _started(held, job, len(leaving))
        time.sleep(bench.settle_s)
        _join(newcomers, [*staying, *newcomers], size, measured.back)
        _close([*staying, *newcomers])
    log(", ".join(f"{one.label} {one.values[-1]:.2f} {one.unit}" for one in measured.series))


class Member(GroupMember):
    """One of the members of a process."""

    def __init__(self, worker: Worker, number: int) -> None:
        super().__init__(worker)
        self._number = number

    def callbacks(self) -> list[Report]:
        """Return its rebalance callbacks so far."""
        return [one for one in super().callbacks() if one.facts["member"] == self._number]


def _started(held: ExitStack, job: portion.Job, count: int) -> list[Worker]:
    """Return new processes that run and have imported their modules."""
    workers = [held.enter_context(Worker("portion", job)) for _ in range(count)]
    for worker in workers:
        worker.expect("ready", _READY_S)
    return workers


def _join(newcomers: Sequence[Worker], workers: Sequence[Worker], size: Size, took: Series) -> None:
    """Subscribe the newcomers together, and add the time until all members own even shares."""
    began = time.monotonic()
    for worker in newcomers:
        worker.order("subscribe")
    took.add(_balanced_at(workers, size) - began)


def _close(workers: Sequence[Worker]) -> None:
    """Close all consumers, so that no session ends at the broker while the next group is measured."""
    for worker in workers:
        worker.order("end")
    for worker in workers:
        worker.expect("left", _BALANCE_S)


def _balanced_at(workers: Sequence[Worker], size: Size) -> float:
    members = [Member(worker, number) for worker in workers for number in range(size.per_process)]
    return balanced_at(members, _BALANCE_S, partitions=size.partitions, check_every_s=_CHECK_EVERY_S)
