"""What a member costs that has nothing, or almost nothing, to do: heartbeats sent, processor time used."""

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
"""One, and what timers are off by."""

MOST_CPU_PERCENT = 1.0
_FEWEST_BEATS = 2

RECORDS_PER_S = 12
FLOWING_FACTOR = 2.0


def run(bench: Bench) -> Figure:
    """Count the requests of members that own 12 partitions, on the wire, and read their processor time."""
    sides = (bench.ours(), bench.raw())
    beats = {side: side.series("heartbeats per interval", "") for side in sides}
    shares = {side: side.series("share of a core", "%") for side in sides}
    totals = {side: side.series("requests a second", "/s") for side in sides}
    flowing = {side: side.series(f"share of a core, {RECORDS_PER_S} records/s", "%") for side in sides}
    empty, fed = bench.topic("idle"), bench.topic("fed")
    for _ in range(bench.count(2, 1)):
        for side, idler, before in _watched(bench, empty, (beats, shares, totals)):
            with counted_in(beats[side], shares[side], totals[side]):
                _compare(idler, before, beats[side], shares[side], totals[side])
        with bench.streaming(fed, RECORDS_PER_S / PARTITIONS, spread=True):
            for side, idler, before in _watched(bench, fed, (flowing,)):
                with counted_in(flowing[side]):
                    flowing[side].add(_share(before, idler.look()))
                    log(f"idle: {flowing[side].label} {flowing[side].values[-1]:.2f} % of a core")
    ours, raw = sides
    checks = (
        at_most(
            "idle member: no more than one heartbeat an interval",
            max(beats[ours].values, default=None),
            MOST_PER_INTERVAL,
            "an interval",
            [beats[ours]],
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
        series=(*beats.values(), *shares.values(), *totals.values(), *flowing.values()),
        checks=checks,
        notes=(
            (
                f"heartbeats are counted on the wire, over {_QUICK_WATCH_S if bench.is_quick else _WATCH_S:.0f} s; per"
                f" interval = {HEARTBEAT_S:.0f} s / mean distance of two"
            ),
        ),
    )


def _watched(
    bench: Bench, topic: str, measured: Sequence[Mapping[Side, Series]]
) -> Iterator[tuple[Side, IdleMember, tuple[float, float]]]:
    """Watch a member of each side at the same time; return it with its time and processor time at the beginning."""
    with ExitStack() as held:
        idlers: list[tuple[Side, IdleMember]] = []
        for side in measured[0]:
            with counted_in(*(series[side] for series in measured)):
                idlers.append((side, held.enter_context(_idler(bench, side, topic))))
        time.sleep(_QUICK_SETTLE_S if bench.is_quick else _SETTLE_S)
        watches = [(side, idler, idler.look()) for side, idler in idlers]
        time.sleep(_QUICK_WATCH_S if bench.is_quick else _WATCH_S)
        yield from watches


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleMember:
    """One member behind a proxy of its own."""

    member: GroupMember
    proxy: CountingProxy

    def look(self) -> tuple[float, float]:
        """Now, and the processor seconds that the member has used."""
        times = psutil.Process(self.member.worker.pid).cpu_times()
        return time.monotonic(), times.user + times.system


@contextmanager
def _idler(bench: Bench, side: Side, topic: str) -> Iterator[IdleMember]:
    """A member that owns everything; it must have come through the proxy, with all of its connections."""
    with (
        CountingProxy(bench.bootstrap) as proxy,
        Group(replace(bench, bootstrap=proxy.address), side, topic, poll_s=1.0) as group,
    ):
        member = group.member()
        member.subscribe()
        balanced_at([member], _BALANCE_S)
        past = [
            connection
            for connection in psutil.Process(member.worker.pid).net_connections("tcp")
            if connection.raddr and connection.raddr.port != proxy.port
        ]
        if past:
            raise WorkerFailedError(f"connections go past the proxy: {past}")
        yield IdleMember(member=member, proxy=proxy)


def _compare(idler: IdleMember, before: tuple[float, float], beats: Series, share: Series, total: Series) -> None:
    began, _ = before
    now, cpu_now = idler.look()
    sent = idler.proxy.requests(HEARTBEATS, began, now)
    if len(sent) < _FEWEST_BEATS:
        raise WorkerFailedError(f"{len(sent)} heartbeats in {now - began:.1f} s")
    distances = [later - earlier for earlier, later in itertools.pairwise(sent)]
    if idler.member.owned()[0] != frozenset(range(PARTITIONS)):
        raise WorkerFailedError(f"it lost its assignment: {idler.member.owned()}")
    beats.add(HEARTBEAT_S * len(distances) / sum(distances), distances=distances)
    share.add(_share(before, (now, cpu_now)))
    total.add(len(idler.proxy.requests(ALL_KINDS, began, now)) / (now - began))
    log(
        f"idle: {beats.label} {beats.values[-1]:.3f}, {share.values[-1]:.2f} % of a core,"
        f" {total.values[-1]:.1f} requests/s"
    )


def _share(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the share of a core that was used between two measurements, in percent."""
    return (after[1] - before[1]) / (after[0] - before[0]) * 100
