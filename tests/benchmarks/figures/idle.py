"""The heartbeats and the processor time of a member without records, and of a member with few records."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import HEARTBEAT_S, PARTITIONS, Figure, counted_in, log
from tests.benchmarks.groups import Group, GroupMember, balanced_at
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.proxy import ALL_KINDS, HEARTBEATS, CountingProxy
from tests.benchmarks.samples import Series, at_most, median_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.benchmarks.bench import Bench, Side

_SETTLE_S, _QUICK_SETTLE_S = 30.0, 16.0
_WATCH_S, _QUICK_WATCH_S = 40.0, 21.0
_BALANCE_S = 30.0
MOST_PER_INTERVAL = 1.01
"""One heartbeat, and the inaccuracy of timers."""

MOST_CPU_PERCENT = 1.0
_FEWEST_HEARTBEATS = 2

RECORDS_PER_S = 12
FLOWING_FACTOR = 2.0


def run(bench: Bench) -> Figure:
    """Count the requests of members that own 12 partitions, on the wire, and read their processor time."""
    sides = (bench.ours(), bench.raw())
    heartbeats = {side: side.series("heartbeats per interval", "") for side in sides}
    shares = {side: side.series("share of a core", "%") for side in sides}
    totals = {side: side.series("requests a second", "/s") for side in sides}
    flowing = {side: side.series(f"share of a core, {RECORDS_PER_S} records/s", "%") for side in sides}
    empty, fed = bench.topic("idle"), bench.topic("fed")
    for _ in range(bench.count(2, 1)):
        for side, member, before in _measured_members(bench, empty, (heartbeats, shares, totals)):
            with counted_in(heartbeats[side], shares[side], totals[side]):
                _compare(member, before, heartbeats[side], shares[side], totals[side])
        with bench.streaming(fed, RECORDS_PER_S / PARTITIONS, spread=True):
            for side, member, before in _measured_members(bench, fed, (flowing,)):
                with counted_in(flowing[side]):
                    flowing[side].add(_share(before, member.measure()))
                    log(f"idle: {flowing[side].label} {flowing[side].values[-1]:.2f} % of a core")
    ours, raw = sides
    checks = (
        at_most(
            "idle member: no more than one heartbeat an interval",
            max(heartbeats[ours].values, default=None),
            MOST_PER_INTERVAL,
            "an interval",
            [heartbeats[ours]],
        ),
        at_most(
            f"idle member: under {MOST_CPU_PERCENT:.0f} % of a core",
            max(shares[ours].values, default=None),
            MOST_CPU_PERCENT,
            "%",
            [shares[ours]],
        ),
        at_most(
            f"{RECORDS_PER_S} records/s: median at most {FLOWING_FACTOR:g} x raw",
            median_of(flowing[ours]),
            FLOWING_FACTOR * (median_of(flowing[raw]) or 0.0),
            "%",
            [flowing[ours]],
        ),
    )
    return Figure(
        title="Idle member: 12 empty partitions, poll(1.0) in a loop; and 12 partitions with a record a second each",
        series=(*heartbeats.values(), *shares.values(), *totals.values(), *flowing.values()),
        checks=checks,
        notes=(
            (
                f"heartbeats are counted on the wire, over {_QUICK_WATCH_S if bench.is_quick else _WATCH_S:.0f} s; per"
                f" interval = {HEARTBEAT_S:.0f} s / mean distance of two"
            ),
        ),
    )


def _measured_members(
    bench: Bench, topic: str, series: Sequence[Mapping[Side, Series]]
) -> Iterator[tuple[Side, IdleMember, tuple[float, float]]]:
    """Run a member of each side at the same time; yield each with its first measurement at the end of the time."""
    with ExitStack() as held:
        members: list[tuple[Side, IdleMember]] = []
        for side in series[0]:
            with counted_in(*(one[side] for one in series)):
                members.append((side, held.enter_context(_idle_member(bench, side, topic))))
        time.sleep(_QUICK_SETTLE_S if bench.is_quick else _SETTLE_S)
        measured = [(side, member, member.measure()) for side, member in members]
        time.sleep(_QUICK_WATCH_S if bench.is_quick else _WATCH_S)
        yield from measured


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleMember:
    """One member behind its own proxy."""

    member: GroupMember
    proxy: CountingProxy

    def measure(self) -> tuple[float, float]:
        """Return the time, and the processor time that the member has used, in seconds."""
        times = psutil.Process(self.member.worker.pid).cpu_times()
        return time.monotonic(), times.user + times.system


@contextmanager
def _idle_member(bench: Bench, side: Side, topic: str) -> Iterator[IdleMember]:
    """Yield a member that owns all partitions, after a check that all of its connections use the proxy."""
    with (
        CountingProxy(bench.bootstrap) as proxy,
        Group(replace(bench, bootstrap=proxy.address), side, topic, poll_s=1.0) as group,
    ):
        member = group.member()
        member.subscribe()
        balanced_at([member], _BALANCE_S)
        direct = [
            connection
            for connection in psutil.Process(member.worker.pid).net_connections("tcp")
            if connection.raddr and connection.raddr.port != proxy.port
        ]
        if direct:
            raise WorkerFailedError(f"connections do not use the proxy: {direct}")
        yield IdleMember(member=member, proxy=proxy)


def _compare(idle: IdleMember, before: tuple[float, float], heartbeats: Series, share: Series, total: Series) -> None:
    began, _ = before
    now, cpu_now = idle.measure()
    sent = idle.proxy.requests(HEARTBEATS, began, now)
    if len(sent) < _FEWEST_HEARTBEATS:
        raise WorkerFailedError(f"{len(sent)} heartbeats in {now - began:.1f} s")
    distances = [later - earlier for earlier, later in itertools.pairwise(sent)]
    if idle.member.owned()[0] != frozenset(range(PARTITIONS)):
        raise WorkerFailedError(f"the member lost its assignment: {idle.member.owned()}")
    heartbeats.add(HEARTBEAT_S * len(distances) / sum(distances), distances=distances)
    share.add(_share(before, (now, cpu_now)))
    total.add(len(idle.proxy.requests(ALL_KINDS, began, now)) / (now - began))
    log(
        f"idle: {heartbeats.label} {heartbeats.values[-1]:.3f}, {share.values[-1]:.2f} % of a core,"
        f" {total.values[-1]:.1f} requests/s"
    )


def _share(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the share of a core that was used between two measurements, in percent."""
    return (after[1] - before[1]) / (after[0] - before[0]) * 100
