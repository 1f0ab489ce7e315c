"""The time for which partitions stall if a process replaces another one with the same instance id."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.groups import GroupMember, balanced_at, handovers
from tests.benchmarks.processes import Worker
from tests.benchmarks.samples import Series, at_most, median_of
from tests.benchmarks.workers import member

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.groups import Record

MEDIAN_S, WORST_S = 0.1, 0.3
POOL, WAIT, RESTART = "pool", "wait", "restart"
"""The ways of the successor: it waits for a free id of a pool, waits for this id, or joins after the leave."""

_MEMBERS = 3
_TICKS_PER_S = 50.0
_JOIN_S = 60.0
#: The successor waits this long before the predecessor leaves: longer than the quick requests at the start of a wait.
_WAITING_S = (3.0, 5.0)
_FLOWING_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One side, and how its processes replace each other."""

    side: Side
    kind: str

    def config(self, place: int) -> Mapping[str, str]:
        """Return the instance id of the member with this number, or the pool."""
        if self.kind == POOL:
            return {"group.instance.id.pool": f"member-{{0..{_MEMBERS - 1}}}"}
        policy = {"group.instance.id.conflict.policy": "wait"} if self.kind == WAIT else {}
        return {"group.instance.id": f"member-{place}", **policy}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The series of one way."""

    gap: Series
    repeated: Series
    lost: Series

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.gap, self.repeated, self.lost)


def run(bench: Bench) -> Figure:
    """Replace the members of a group of three one after the other, in each way."""
    ways = (
        Way(bench.ours("pool"), POOL),
        Way(bench.ours("same id, policy wait"), WAIT),
        Way(bench.ours("restarted"), RESTART),
        Way(bench.raw("raw, restarted"), RESTART),
    )
    rounds, topic = bench.count(12, 3), bench.topic("hand-over")
    measured = [
        Measured(
            gap=way.side.series("gap of a partition", "s"),
            repeated=way.side.series("repeated records of a partition", "records"),
            lost=way.side.series("lost records of a partition", "records"),
        )
        for way in ways
    ]
    with bench.streaming(topic, _TICKS_PER_S):
        for way, into in zip(ways, measured, strict=True):
            with counted_in(*into.series):
                _replace_members(bench, way, topic, rounds, into)
    checks = [
        check
        for way, one in zip(ways, measured, strict=True)
        if way.kind != RESTART
        for check in (
            at_most(f"{way.side.label}: median gap at most {MEDIAN_S} s", median_of(one.gap), MEDIAN_S, "s", [one.gap]),
            at_most(
                f"{way.side.label}: worst gap at most {WORST_S} s", max(one.gap.values, default=None), WORST_S, "s"
            ),
            *(
                at_most(f"{way.side.label}: 0 {word}", max(series.values, default=None), 0.0, "records", [series])
                for word, series in (("repeated", one.repeated), ("lost", one.lost))
            ),
        )
    ]
    return Figure(
        title="Replacement of a static member: last record at the old process to first record at the new one",
        series=tuple(one for each in zip(*(one.series for one in measured), strict=True) for one in each),
        checks=tuple(checks),
        notes=(
            f"{rounds} replacements each, {_MEMBERS} members, {PARTITIONS} partitions, default settings",
            (
                f"{_TICKS_PER_S:.0f} records a second for each partition: {1000 / _TICKS_PER_S:.0f} ms of a gap are"
                " due to the stream"
            ),
            "every successor's process is started, and has its imports, before the old one closes",
            f"pool and wait: the successor waits {_WAITING_S[0]:.0f} to {_WAITING_S[1]:.0f} s, then the old one closes",
            "restarted: the successor creates its consumer as soon as the old one has closed",
        ),
    )


def _replace_members(bench: Bench, way: Way, topic: str, rounds: int, into: Measured) -> None:
    """Replace one member after the other; each reports its handled records when it has left."""
    chance = bench.own_random(bench.chance.random())
    config = bench.config(way.side)
    replaced: list[tuple[GroupMember, GroupMember, frozenset[int]]] = []
    with ExitStack() as processes:

        def spare(place: int) -> GroupMember:
            job = member.Job(module=way.side.module, config={**config, **way.config(place)}, topic=topic)
            new = GroupMember(processes.enter_context(Worker("member", job)))
            new.prepare()
            return new

        members = [spare(place) for place in range(_MEMBERS)]
        for one in members:
            one.subscribe()
        balanced_at(members, _JOIN_S)
        for number in range(rounds):
            place = number % _MEMBERS
            old, new = members[place], spare(place)
            members[place] = new
            share = _replace(way, old, new, chance)
            replaced.append((old, new, share))
            balanced_at(members, _JOIN_S)
            time.sleep(_FLOWING_S)
        for one in members:
            one.leave()
    for old, new, share in replaced:
        judge(old.handled, new.handled, share, into)


def _replace(way: Way, old: GroupMember, new: GroupMember, chance: random.Random) -> frozenset[int]:
    """Replace one member; return its partitions."""
    if way.kind != RESTART:
        new.subscribe()
    time.sleep(chance.uniform(*_WAITING_S))
    share, _ = old.owned()
    old.close()
    if way.kind == RESTART:
        new.subscribe()
    old.end()
    new.worker.until(lambda: new.owned()[0] == share, _JOIN_S, "the same partitions")
    return share


def judge(old: Sequence[Record], new: Sequence[Record], share: frozenset[int], into: Measured) -> None:
    """Add the gaps of one replacement, and the records that both members or neither member handled."""
    with counted_in(*into.series):
        for change in handovers(old, new, share):
            last = max(record.offset for record in old if record.partition == change.partition)
            first = min(record.offset for record in new if record.partition == change.partition)
            into.gap.add(change.standstill_s, partition=change.partition)
            into.repeated.add(float(max(0, last + 1 - first)))
            into.lost.add(float(max(0, first - last - 1)))
        log(f"hand-over: {into.gap.label} {max(into.gap.values[-len(share) :]):.3f} s (the longest of {len(share)})")
