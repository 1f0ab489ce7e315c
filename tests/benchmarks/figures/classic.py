"""Classic groups: the duration of joins, scale-outs and leaves, and the partitions that cooperative scale-outs stop."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.figures.guardian import waits_after
from tests.benchmarks.figures.scale_out import BALANCE_S, STREAM_TICKS_PER_S
from tests.benchmarks.groups import (
    Group,
    GroupMember,
    assigned_at,
    balanced_at,
    first_record_at,
    longest_gaps,
    subscribe_together,
)
from tests.benchmarks.samples import Check, Series, at_most, medians_at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.groups import Record

STRATEGIES = ("range", "cooperative-sticky")
IDLE, FLOWING = "idle", "records flowing"
JOIN, FIRST_RECORDS, SCALE_OUT, LEAVE = "join of 3", "join of 3 to first records", "scale-out", "leave"
STEPS = (JOIN, FIRST_RECORDS, SCALE_OUT, LEAVE)
FACTOR = 1.1
MEMBERS = 3
STOPPED_S = 0.2
"""A partition is stopped if its longest gap is longer than before by this time: ten ticks of the stream."""

HEARTBEAT_S = 3.0
"""heartbeat.interval.ms of a classic member, by default. Random phases lie within it."""

_SETTLE_S = {IDLE: 7.0, FLOWING: 4.0}
"""The time without changes before a measured change. Our members heartbeat quickly for 6 s after a change, and as long
as records flow."""

_QUICK_SETTLE_S = 2.0
_FLOWING_S = 1.0
_RECORDS = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The times of the changes in one round, equal for both sides.

    Attributes:
        out_phase: The part of a heartbeat interval after which the new member joins, from 0 to 1.
        leave_phase: The part of a heartbeat interval after which a member leaves.
        leaver: The number of the first member that leaves.
    """

    out_phase: float
    leave_phase: float
    leaver: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedPartitions:
    """The series of the partitions that did not move in cooperative scale-outs of one side."""

    moved: Series
    revoked: Series
    stopped: Series
    before: Series
    during: Series

    @classmethod
    def of(cls, side: Side) -> RetainedPartitions:
        """Return the series without a measurement."""

        def series(what: str, unit: str) -> Series:
            label = f"cooperative {SCALE_OUT}: {what}, {side.label}"
            return Series(label=label, unit=unit, is_ours=side.is_ours)

        return cls(
            moved=series("partitions that moved", "partitions"),
            revoked=series("partitions revoked that did not move", "partitions"),
            stopped=series("partitions stopped that did not move", "partitions"),
            before=series("longest gap of one that did not move, before", "s"),
            during=series("longest gap of one that did not move, during", "s"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.moved, self.revoked, self.stopped, self.before, self.during)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One side with one strategy in one circumstance, and its measurements."""

    side: Side
    strategy: str
    circumstance: str
    steps: dict[str, Series]
    retained: RetainedPartitions | None

    @classmethod
    def of(cls, side: Side, strategy: str, circumstance: str, joins: Mapping[str, Series]) -> MeasuredSide:
        """Return the series without a measurement; both circumstances share the series of the join."""
        has_retained = strategy == "cooperative-sticky" and circumstance == FLOWING
        later = {step: side.series(f"{step}, {strategy}, {circumstance}", "s") for step in (SCALE_OUT, LEAVE)}
        return cls(
            side=side,
            strategy=strategy,
            circumstance=circumstance,
            steps={**joins, **later},
            retained=RetainedPartitions.of(side) if has_retained else None,
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (*self.steps.values(), *(self.retained.series if self.retained else ()))


def run(bench: Bench) -> Figure:
    """Let groups of both sides and strategies grow to three members, then to four, and shrink to three, in turns."""
    backlog = bench.filled_topic("classic-idle", _RECORDS)
    pairs = [pair for strategy in STRATEGIES for pair in _pairs(bench, strategy)]
    rounds = bench.count(10, 2)
    turns = []
    for pair in pairs:
        plan = schedules(bench, rounds)
        turns += [partial(_turn, bench, one, backlog, iter(plan)) for one in pair]
    bench.in_turns(rounds, *turns)
    measured_sides = [one for pair in pairs for one in pair]
    compared = _compared(pairs)
    series = [one for _, *both in compared for one in both]
    all_retained = [pair[0].retained for pair in pairs if pair[0].retained]
    return Figure(
        title="Classic groups: join of 3 members, scale-out 3 -> 4, leave 4 -> 3; 12 partitions",
        series=(
            *series,
            *(one for each in measured_sides if each.retained for one in each.retained.series),
        ),
        checks=(
            *(
                medians_at_most(f"{what}: median at most {FACTOR} x raw", ours, raw, FACTOR)
                for what, ours, raw in compared
            ),
            *(check for retained in all_retained for check in _nothing_stopped(retained)),
        ),
        notes=(
            "group.initial.rebalance.delay.ms=0, both sides with the same strategy and otherwise default settings",
            f"{JOIN}: the first subscribe of three at the same time, until each owns four partitions",
            f"{FIRST_RECORDS}: as {JOIN}, until each member has received a record of its share",
            f"{SCALE_OUT}: the fourth member's subscribe to its first record",
            f"{LEAVE}: one member's close() to the others' first records of all of its partitions",
            (
                f"{IDLE}: {_RECORDS:,} records before the join and none later; members do not commit, so that each new"
                " owner receives a record at once"
            ),
            f"{FLOWING}: {STREAM_TICKS_PER_S:.0f} records a second for each partition, automatic commits",
            (
                f"members join and leave {settle_s(bench, IDLE):.0f} s after the group was balanced"
                f" ({FLOWING}: {settle_s(bench, FLOWING):.0f} s) and up to {HEARTBEAT_S:.0f} s more, evenly spread,"
                " equal on both sides"
            ),
            f"stopped: the longest gap is longer by {STOPPED_S} s than the longest gap before the new member joined",
            *(_parts(one) for one in series),
        ),
    )


def _pairs(bench: Bench, strategy: str) -> list[tuple[MeasuredSide, MeasuredSide]]:
    """Return our side and raw in each circumstance."""
    sides = [_sides(bench, strategy, circumstance) for circumstance in (IDLE, FLOWING)]
    joins = [{step: side.series(f"{step}, {strategy}", "s") for step in (JOIN, FIRST_RECORDS)} for side in sides[0]]
    pairs = []
    for circumstance, both in zip((IDLE, FLOWING), sides, strict=True):
        ours, raw = (
            MeasuredSide.of(side, strategy, circumstance, join) for side, join in zip(both, joins, strict=True)
        )
        pairs.append((ours, raw))
    return pairs


def _compared(pairs: Sequence[tuple[MeasuredSide, MeasuredSide]]) -> list[tuple[str, Series, Series]]:
    """Return the compared series of ours and raw, in the order of the table; both circumstances share one join."""
    series = [(ours.steps[step], raw.steps[step]) for step in STEPS for ours, raw in pairs]
    return list({ours.label: (ours.label.rpartition(", ")[0], ours, raw) for ours, raw in series}.values())


def _parts(series: Series) -> str:
    """Return as text the mean of a series, and the medians of the details of its samples."""
    parts = [f"mean {statistics.fmean(series.values):.3f}"] if series.samples else []
    for detail in sorted({name for sample in series.samples for name in sample.detail}):
        middle = statistics.median(sample.detail[detail] for sample in series.samples)
        parts.append(f"{detail.removesuffix('_s').replace('_', ' ')} {middle:.3f}")
    return f"{series.label}, in seconds: {', '.join(parts)}"


def _sides(bench: Bench, strategy: str, circumstance: str) -> tuple[Side, Side]:
    config = {"group_protocol": "classic", "partition_assignment_strategy": strategy}
    if circumstance == IDLE:
        config["enable_auto_commit"] = "false"
    return bench.ours(**config), bench.raw(**config)


def settle_s(bench: Bench, circumstance: str) -> float:
    """Return the time without changes before a measured change."""
    return _QUICK_SETTLE_S if bench.is_quick else _SETTLE_S[circumstance]


def schedules(bench: Bench, rounds: int) -> list[Schedule]:
    """Return a schedule for each round; phases are spread evenly, so that even few rounds have early and late ones."""
    phases = [[(number + bench.chance.random()) / rounds for number in range(rounds)] for _ in range(2)]
    for each in phases:
        bench.chance.shuffle(each)
    return [
        Schedule(out_phase=out, leave_phase=leave, leaver=number % MEMBERS)
        for number, (out, leave) in enumerate(zip(*phases, strict=True))
    ]


def _nothing_stopped(retained: RetainedPartitions) -> Iterator[Check]:
    for what, series in (("revoked", retained.revoked), ("stopped", retained.stopped)):
        bound = f"cooperative {SCALE_OUT}: partitions {what} that did not move: 0"
        yield at_most(bound, max(series.values, default=None), 0, "partitions", [series])


def _turn(bench: Bench, one: MeasuredSide, backlog: str, plan: Iterator[Schedule]) -> None:
    """Measure one group from its first member to its last one; members report their handled records at their end."""
    schedule = next(plan)
    with counted_in(*one.series), ExitStack() as stack:
        topic = backlog
        if one.circumstance == FLOWING:
            # Each group reads a new topic from the beginning, so that all measurements read equally many records.
            topic = bench.topic("classic")
            stack.enter_context(bench.streaming(topic, STREAM_TICKS_PER_S))
        group = stack.enter_context(Group(bench, one.side, topic))
        members = [group.spare() for _ in range(MEMBERS + 1)]
        for member in members:
            member.prepare()
        _measure(bench, one, members, schedule)


def _measure(bench: Bench, one: MeasuredSide, members: list[GroupMember], schedule: Schedule) -> None:
    *first, newcomer = members
    subscribe_together(first)
    joined_at = balanced_at(first, BALANCE_S)
    shares = [assigned_at(member.callbacks()) for member in first]

    _sleep_until(joined_at + settle_s(bench, one.circumstance) + schedule.out_phase * HEARTBEAT_S)
    known_calls = [len(member.callbacks()) for member in first]
    newcomer.subscribe()
    out_at = balanced_at(members, BALANCE_S)
    moved, _ = newcomer.owned()
    calls = [call for member, known in zip(first, known_calls, strict=True) for call in member.callbacks()[known:]]
    revoked = {
        partition
        for call in calls
        if call.event != "assigned" and call.at <= out_at
        for partition in call.facts["partitions"]
    }

    _sleep_until(out_at + settle_s(bench, one.circumstance) + schedule.leave_phase * HEARTBEAT_S)
    leaver = first[schedule.leaver]
    orphans, _ = leaver.owned()
    leaver.leave()
    rest = [member for member in members if member is not leaver]
    left_at = balanced_at(rest, BALANCE_S)
    time.sleep(_FLOWING_S)
    for member in rest:
        member.leave()

    handled = [record for member in rest for record in member.handled]
    waits = waits_after(leaver.leaving_at, orphans, handled)
    received_at = min(record.handled_at for record in newcomer.handled)
    began_at = min(member.subscribed_at for member in first)
    constructor_s = max(member.subscribed_at - member.constructing_at for member in first)
    one.steps[JOIN].add(joined_at - began_at, constructor_s=constructor_s)
    recorded_at = max(first_record_at(member.handled, share) for member, share in zip(first, shares, strict=True))
    one.steps[FIRST_RECORDS].add(max(recorded_at, joined_at) - began_at)
    one.steps[SCALE_OUT].add(
        received_at - newcomer.subscribed_at,
        constructor_s=newcomer.subscribed_at - newcomer.constructing_at,
        all_balanced_s=out_at - newcomer.subscribed_at,
    )
    one.steps[LEAVE].add(
        max(waits.values()), all_balanced_s=left_at - leaver.leaving_at, close_s=leaver.left_at - leaver.leaving_at
    )
    if one.retained:
        everything = [record for member in members for record in member.handled]
        _add_retained(
            one.retained, everything, moved, revoked, (joined_at + _FLOWING_S, newcomer.subscribed_at, out_at)
        )
    took = ", ".join(f"{step} {series.values[-1]:.3f} s" for step, series in one.steps.items())
    log(f"classic: {one.strategy}, {one.circumstance}, {one.side.label}: {took}")


def _add_retained(
    retained: RetainedPartitions,
    records: Sequence[Record],
    moved: frozenset[int],
    revoked: set[int],
    moments: tuple[float, float, float],
) -> None:
    began_at, received_at, ended_at = moments
    before = longest_gaps(records, began_at, received_at)
    during = longest_gaps(records, received_at, ended_at + _FLOWING_S)
    staying = sorted(during.keys() - moved)
    stopped = [partition for partition in staying if during[partition] > before[partition] + STOPPED_S]
    retained.moved.add(len(moved))
    retained.revoked.add(len(revoked - moved), partitions=sorted(revoked - moved))
    retained.stopped.add(len(stopped), partitions=stopped)
    retained.before.add(max(before[partition] for partition in staying))
    retained.during.add(max(during[partition] for partition in staying))
    log(f"classic: {retained.stopped.label} {len(stopped)}, revoked {len(revoked - moved)}, moved {len(moved)}")


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
