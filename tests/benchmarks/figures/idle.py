"""What a member costs that has nothing to do: heartbeats sent, processor time used."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import HEARTBEAT_S, PARTITIONS, Figure, counted_in, tell
from tests.benchmarks.groups import Group, GroupMember, balanced_at
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.proxy import ALL_KINDS, HEARTBEATS, CountingProxy
from tests.benchmarks.samples import Series, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Side

_SETTLE_S, _QUICK_SETTLE_S = 30.0, 16.0
_WATCH_S, _QUICK_WATCH_S = 40.0, 21.0
_BALANCE_S = 30.0
MOST_PER_INTERVAL = 1.01
"""One, and what timers are off by."""

MOST_CPU_PERCENT = 1.0
_FEWEST_BEATS = 2


def run(bench: Bench) -> Figure:
    """Count the requests of members that own 12 empty partitions, on the wire, and read their processor time."""
    sides = (bench.ours(), bench.raw())
    beats = {side: side.series("heartbeats per interval", "") for side in sides}
    shares = {side: side.series("share of a core", "%") for side in sides}
    totals = {side: side.series("requests a second", "/s") for side in sides}
    topic = bench.topic("idle")
    for _ in range(bench.count(2, 1)):
        with ExitStack() as held:
            idlers = []
            for side in sides:
                with counted_in(beats[side], shares[side], totals[side]):
                    idlers.append((side, held.enter_context(_idler(bench, side, topic))))
            time.sleep(_QUICK_SETTLE_S if bench.is_quick else _SETTLE_S)
            watches = [(side, idler, idler.look()) for side, idler in idlers]
            time.sleep(_QUICK_WATCH_S if bench.is_quick else _WATCH_S)
            for side, idler, before in watches:
                with counted_in(beats[side], shares[side], totals[side]):
                    _compare(idler, before, beats[side], shares[side], totals[side])
    ours_beats, ours_share = beats[sides[0]], shares[sides[0]]
    checks = (
        at_most(
            "idle member: no more than one heartbeat an interval",
            max(ours_beats.values, default=None),
            MOST_PER_INTERVAL,
            "an interval",
            [ours_beats],
        ),
        at_most(
            f"idle member: under {MOST_CPU_PERCENT:.0f} % of a core",
            max(ours_share.values, default=None),
            MOST_CPU_PERCENT,
            "%",
            [ours_share],
        ),
    )
    return Figure(
        title="Idle member: 12 empty partitions, poll(1.0) in a loop",
        series=(*beats.values(), *shares.values(), *totals.values()),
        checks=checks,
        notes=(
            (
                f"heartbeats are counted on the wire, over {_QUICK_WATCH_S if bench.is_quick else _WATCH_S:.0f} s; per"
                f" interval = {HEARTBEAT_S:.0f} s / mean distance of two"
            ),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Idler:
    """One member behind a proxy of its own."""

    member: GroupMember
    proxy: CountingProxy

    def look(self) -> tuple[float, float]:
        """Now, and the processor seconds that the member has used."""
        times = psutil.Process(self.member.worker.pid).cpu_times()
        return time.monotonic(), times.user + times.system


@contextmanager
def _idler(bench: Bench, side: Side, topic: str) -> Iterator[Idler]:
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
        yield Idler(member=member, proxy=proxy)


def _compare(idler: Idler, before: tuple[float, float], beats: Series, share: Series, total: Series) -> None:
    began, cpu = before
    now, cpu_now = idler.look()
    sent = idler.proxy.requests(HEARTBEATS, began, now)
    if len(sent) < _FEWEST_BEATS:
        raise WorkerFailedError(f"{len(sent)} heartbeats in {now - began:.1f} s")
    distances = [later - earlier for earlier, later in itertools.pairwise(sent)]
    if idler.member.owned()[0] != frozenset(range(PARTITIONS)):
        raise WorkerFailedError(f"it lost its assignment: {idler.member.owned()}")
    beats.add(HEARTBEAT_S * len(distances) / sum(distances), distances=distances)
    share.add((cpu_now - cpu) / (now - began) * 100)
    total.add(len(idler.proxy.requests(ALL_KINDS, began, now)) / (now - began))
    tell(
        f"idle: {beats.label} {beats.values[-1]:.3f}, {share.values[-1]:.2f} % of a core,"
        f" {total.values[-1]:.1f} requests/s"
    )
