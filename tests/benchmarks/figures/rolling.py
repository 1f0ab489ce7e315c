"""The stalls and the moves of partitions if a deployment replaces all processes of a group one after the other."""

from __future__ import annotations

import itertools
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from tests.benchmarks.bench import Figure, Side, counted_in, log
from tests.benchmarks.groups import is_balanced, owned_by
from tests.benchmarks.java_owner import JAVA, OWNERSHIP, compile_worker, ownership_command
from tests.benchmarks.processes import Worker, WorkerFailedError
from tests.benchmarks.samples import Check, Series, at_most, median_of
from tests.benchmarks.workers import ownership
from tests.benchmarks.workers.ownership import Period

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from tests.benchmarks.bench import Bench
    from tests.benchmarks.processes import Report

NAME = "rolling"
MEDIAN_S, WORST_S = 0.02, 0.1

_READY_S = _LEAVE_S = 60.0
_BALANCE_S = 90.0
_CHECK_EVERY_S = 0.01
_FLOWING_S = 1.0
#: A successor waits this long before the predecessor leaves, longer than the quick requests at the start of a wait.
_WAITING_S = (3.0, 5.0)


class Kind(Enum):
    """The order in which the processes of a pair start and end."""

    WAIT = "the new process waits for an id of the pool, then the old one closes"
    RESTART = "the old process closes, then the new one creates its consumer with the same id"
    HAND_OVER = "the new process prepares, a holder hands its place over, then that process closes"
    SURGE = "the new process joins, and the old one closes when the new one has its partitions"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Way:
    """One side, and how its processes replace each other.

    Attributes:
        side: The consumer and its settings.
        kind: The order of start and end.
    """

    side: Side
    kind: Kind

    def config(self, place: int, members: int) -> Mapping[str, str]:
        """Return the settings of the member with this number."""
        match self.kind:
            case Kind.WAIT:
                return {"group.instance.id.pool": f"member-{{0..{members - 1}}}"}
            case Kind.HAND_OVER:
                pool = f"member-{{0..{members - 1}}}"
                return {"group.instance.id.pool": pool, "group.instance.id.conflict.policy": "hand-over"}
            case Kind.RESTART:
                return {"group.instance.id": f"member-{place}"}
            case Kind.SURGE:
                return {}
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a group, and the rate of its records.

    Attributes:
        members: The number of processes.
        partitions: The number of partitions.
        records_per_s: The rate of all partitions together.
        burst: The number of records that are written together to one partition.
        rounds: The number of replaced processes.
        quick: The number of replaced processes in a quick run.
    """

    members: int
    partitions: int
    records_per_s: int
    burst: int
    rounds: int
    quick: int

    @property
    def ticks_per_s(self) -> float:
        """The rate of writes to each partition, each with `burst` records."""
        return self.records_per_s / self.partitions / self.burst

    def __str__(self) -> str:
        """The name of the cell in tables."""
        return f"{self.members} processes, {self.records_per_s:,} records/s"


CELLS = {
    f"{members}-{records_per_s}": Size(
        members=members, partitions=partitions, records_per_s=records_per_s, burst=burst, rounds=rounds, quick=quick
    )
    for members, partitions, rounds, quick in ((3, 12, 12, 3), (20, 60, 20, 4))
    for records_per_s, burst in ((600, 1), (20_000, 10))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one partition from a period of ownership to the next one.

    Attributes:
        partition: The partition's number.
        gap_s: From the last record of the earlier period to the first record of the later period.
        stall_s: As `gap_s`, but it begins when the later period's first record is sent, if that is later. A pause of
            the stream lengthens the gap, but not the stall.
        repeated: The number of records in both periods.
        lost: The number of records between the periods.
    """

    partition: int
    gap_s: float
    stall_s: float
    repeated: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The series of one way in a group of one size."""

    stall: Series
    gap: Series
    repeated: Series
    lost: Series
    moved: Series

    @classmethod
    def of(cls, side: Side, size: Size) -> Measured:
        """Return the series without a measurement."""
        return cls(
            stall=side.series(f"stall of a partition, {size}", "s"),
            gap=side.series(f"gap of a partition, {size}", "s"),
            repeated=side.series(f"repeated records in a deployment, {size}", "records"),
            lost=side.series(f"lost records in a deployment, {size}", "records"),
            moved=side.series(f"partitions moved at other processes by one replacement, {size}", "partitions"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.stall, self.gap, self.repeated, self.lost, self.moved)


class Process:
    """One process of a deployment."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        worker.expect("ready", _READY_S)

    def subscribe(self) -> None:
        """Create the consumer and subscribe it."""
        self._worker.order("subscribe")
        self._worker.expect("subscribed", _READY_S)

    def calls(self) -> list[Report]:
        """Return its rebalance callbacks so far."""
        return self._worker.reports("assigned", "revoked", "lost")

    def owned(self) -> frozenset[int]:
        """Return the partitions that its callbacks report as owned."""
        return owned_by(self.calls())[0]

    def await_share(self, share: frozenset[int]) -> None:
        """Wait until it owns exactly these partitions."""
        self._worker.until(lambda: self.owned() == share, _BALANCE_S, f"that it owns {sorted(share)}")

    def await_any_share(self) -> None:
        """Wait until it owns partitions."""
        self._worker.until(lambda: bool(self.owned()), _BALANCE_S, "that it owns partitions")

    def close(self) -> None:
        """Close the consumer."""
        self._worker.order("end")
        self._worker.expect("left", _LEAVE_S)

    def periods(self) -> list[Period]:
        """Return the periods of the closed consumer, and wait for the end of the process."""
        rows = self._worker.expect("periods", _LEAVE_S).facts["rows"]
        self._worker.wait()
        return periods_of(rows)


def run(bench: Bench) -> Figure:
    """Replace the processes of groups of both sizes, at both rates, in each way."""
    sizes = [CELLS[cell] for cell in bench.cells or CELLS]
    series: list[Series] = []
    checks: list[Check] = []
    rates: list[str] = []
    ways = (
        Way(side=bench.ours("pool, hand-over"), kind=Kind.HAND_OVER),
        Way(side=bench.ours("pool, wait"), kind=Kind.WAIT),
        Way(side=bench.ours("static, restarted"), kind=Kind.RESTART),
        Way(side=bench.raw("raw static, restarted"), kind=Kind.RESTART),
        Way(side=bench.ours("dynamic"), kind=Kind.SURGE),
        Way(side=bench.raw("raw dynamic"), kind=Kind.SURGE),
        Way(side=java("Java static, restarted"), kind=Kind.RESTART),
        Way(side=java("Java dynamic"), kind=Kind.SURGE),
    )
    for size in sizes:
        measured = [Measured.of(way.side, size) for way in ways]
        written: list[float] = []
        for way, into in zip(ways, measured, strict=True):
            # Each measurement has its own topic, because a group begins with the oldest record.
            topic = bench.topic("rolling", size.partitions)
            with (
                bench.streaming(
                    topic, size.ticks_per_s, partitions=size.partitions, burst=size.burst, spread=True
                ) as stream,
                counted_in(*into.series),
            ):
                _deploy(bench, way, size, topic, into)
            streamed = stream.reports("streamed")[-1].facts
            written.append(streamed["count"] / streamed["wall_s"])
        rates.append(f"{size}: {min(written):.0f} to {max(written):.0f} records/s were written")
        series += [one for each in zip(*(one.series for one in measured), strict=True) for one in each]
        checks += [one for way, into in zip(ways, measured, strict=True) for one in _checks(way, size, into)]
    return Figure(
        title="Rolling deployment: every process of a group is replaced by a new one, one after the other",
        series=tuple(series),
        checks=tuple(checks),
        notes=(
            *(
                f"{size}: {size.partitions} partitions; {size.ticks_per_s:.0f} ticks/s of {size.burst} records each"
                for size in sizes
            ),
            *rates,
            *dict.fromkeys(f"{way.side.label}: {way.kind.value}" for way in ways),
            "every new process is started, and has its imports, before the replacement begins",
            "Java: every new process has created and closed a consumer before, so that its classes are loaded",
            "gap: last record of a partition before it changed its process to the first record after it",
            "stall: as the gap, but counted from the moment at which the first record was sent if that was later",
            f"pool, wait: the new process waits {_WAITING_S[0]:.0f} to {_WAITING_S[1]:.0f} s",
        ),
    )


def java(label: str) -> Side:
    """Return Java's side, with the consumer protocol."""
    return Side(label=label, module=JAVA, config={"group.protocol": "consumer"})


def _checks(way: Way, size: Size, into: Measured) -> list[Check]:
    if way.kind not in (Kind.HAND_OVER, Kind.WAIT):
        return []
    name, stall = f"{way.side.label}, {size}", into.stall
    nothing = [
        at_most(f"{name}: 0 {word}", max(one.values, default=None), 0.0, one.unit, [one])
        for word, one in (("repeated", into.repeated), ("lost", into.lost), ("moved", into.moved))
    ]
    if way.kind is Kind.WAIT:
        return nothing
    return [
        at_most(f"{name}: median stall at most {MEDIAN_S} s", median_of(stall), MEDIAN_S, "s", [stall]),
        at_most(f"{name}: worst stall at most {WORST_S} s", max(stall.values, default=None), WORST_S, "s", [stall]),
        *nothing,
    ]


def _deploy(bench: Bench, way: Way, size: Size, topic: str, into: Measured) -> None:
    """Replace processes one after the other; add the results when all have ended."""
    chance = bench.own_random(bench.chance.random())
    config = bench.config(way.side)
    rounds = bench.count(size.rounds, size.quick)
    with ExitStack() as stack:
        is_java = way.side.module == JAVA
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if is_java:
            compile_worker(folder, OWNERSHIP)

        def process(place: int) -> Process:
            settings = {**config, **way.config(place, size.members)}
            job = ownership.Job(module=way.side.module, config=settings, topic=topic)
            command = ownership_command(folder, job) if is_java else None
            return Process(stack.enter_context(Worker("ownership", job, command=command)))

        members = [process(place) for place in range(size.members)]
        for one in members:
            one.subscribe()
        _await_balance(members, size)
        time.sleep(_FLOWING_S)
        began_at = time.monotonic()
        ended: list[Process] = []
        for number in range(rounds):
            place = number % size.members
            new, known = process(place), [len(one.calls()) for one in members]
            old = _replace(way, members, place, new, size, chance)
            time.sleep(_FLOWING_S)
            calls = [
                call
                for one, count in zip(members, known, strict=True)
                if one is not old
                for call in one.calls()[count:]
            ]
            members[members.index(old)] = new
            into.moved.add(float(len({each for call in calls for each in call.facts["partitions"]})))
            ended.append(old)
            log(f"rolling: {way.side.label}, {size}: replaced {number + 1} of {rounds}")
        for one in members:
            one.close()
        changes = changes_between([period for one in (*ended, *members) for period in one.periods()], began_at)
    if not changes:
        raise WorkerFailedError("no partition changed its process")
    for change in changes:
        into.stall.add(change.stall_s, partition=change.partition)
        into.gap.add(change.gap_s, partition=change.partition)
    into.repeated.add(float(sum(change.repeated for change in changes)))
    into.lost.add(float(sum(change.lost for change in changes)))
    log(f"rolling: {into.stall.label} median {median_of(into.stall):.3f} s, worst {max(into.stall.values):.3f} s")


def _replace(
    way: Way, members: Sequence[Process], place: int, new: Process, size: Size, chance: random.Random
) -> Process:
    """Replace a member and wait until the group is complete; return the replaced member.

    With `HAND_OVER`, the pool selects the member, so that `place` does not matter.

    Raises:
        WorkerFailedError: The member was not replaced in time.
    """
    old = members[place]
    others = [one for one in members if one is not old]
    share = old.owned()
    match way.kind:
        case Kind.WAIT:
            new.subscribe()
            time.sleep(chance.uniform(*_WAITING_S))
            old.close()
            new.await_share(share)
        case Kind.HAND_OVER:
            new.subscribe()
            new.await_any_share()
            (old,) = [one for one in members if not one.owned()]
            old.close()
        case Kind.RESTART:
            old.close()
            new.subscribe()
            new.await_share(share)
        case Kind.SURGE:
            new.subscribe()
            _await_balance([*members, new], size)
            time.sleep(_FLOWING_S)
            old.close()
            _await_balance([*others, new], size)
        case _:
            assert_never(way.kind)
    return old


def _await_balance(members: Sequence[Process], size: Size) -> None:
    give_up_at = time.monotonic() + _BALANCE_S
    while not is_balanced([one.owned() for one in members], size.partitions):
        if time.monotonic() > give_up_at:
            shares = [sorted(one.owned()) for one in members]
            raise WorkerFailedError(f"no balance within {_BALANCE_S} s: {shares}")
        time.sleep(_CHECK_EVERY_S)


def periods_of(rows: Iterable[Sequence[float]]) -> list[Period]:
    """Return periods from the rows that a worker reports."""
    return [
        Period(
            partition=int(row[0]),
            first=int(row[1]),
            sent_at=row[2],
            first_at=row[3],
            last=int(row[4]),
            last_at=row[5],
            repeated=int(row[6]),
            skipped=int(row[7]),
        )
        for row in rows
    ]


def changes_between(periods: Iterable[Period], began_at: float) -> list[Change]:
    """Return the changes to periods that began at `began_at` or later, from the partition's previous period.

    Records that one period repeated or skipped count for the change before it.
    """
    ordered = sorted(periods, key=lambda one: (one.partition, one.first_at))
    return [
        Change(
            partition=later.partition,
            gap_s=later.first_at - earlier.last_at,
            stall_s=later.first_at - max(earlier.last_at, later.sent_at),
            repeated=max(0, earlier.last + 1 - later.first) + later.repeated,
            lost=max(0, later.first - earlier.last - 1) + later.skipped,
        )
        for earlier, later in itertools.pairwise(ordered)
        if earlier.partition == later.partition and later.first_at >= began_at
    ]
