"""The time in which two processes hand out records of one partition, if the older owner is disconnected or stopped.

A fault affects the older owner, and a second member takes over its partition. Many pairs run at the same time on one
broker, each in its own group. Both members always have records in their buffers, and hand them out one by one.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from consumer_membership.devbroker import start
from tests.benchmarks.bench import Figure, Side, counted_in, log
from tests.benchmarks.clock_offsets import ClockOffsets, compiled
from tests.benchmarks.java_owner import JAVA, OWNER, compile_worker, owner_command
from tests.benchmarks.processes import Worker, WorkerFailedError, worker_command
from tests.benchmarks.proxy import ALL_KINDS
from tests.benchmarks.samples import Series, at_most
from tests.benchmarks.tenures import Overlap, overlap, tenures_of
from tests.benchmarks.workers import owner
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from tests.benchmarks.bench import Bench
    from tests.benchmarks.samples import Check

SESSION_S = 6.0

_HEARTBEAT_S = 2.0
_BROKER = {
    "group.consumer.migration.policy": "disabled",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": f"{_HEARTBEAT_S * 1000:.0f}",
    "group.min.session.timeout.ms": "1000",
}
#: Joining, leaving, committing and heartbeats of both protocols: requests to which only the coordinator responds.
_COORDINATOR_KINDS = frozenset({8, 9, 11, 12, 13, 14, 68})
#: More records than an owner hands out in a round, at its rate.
_RECORDS, _PACE_S = 40_000, 0.004
_LANES, _QUICK_LANES = 24, 8
_READY_S, _JOIN_S = 120.0, 60.0
#: The older owner works this long before the fault: it fills its buffer, and faults occur in all heartbeat phases.
_CALM_S = (2.0, 4.5)
#: The second member subscribes this long after the beginning of the fault.
_LATER_S = (0.0, 2.0)
#: After the fault, each client notices within this time that its partition is gone.
_TAIL_S = 8.0
_SET_BACK_S = 3600.0
_POLICY = "group.instance.id.conflict.policy"
_ROUNDS, _FEWER_ROUNDS = 25, 6
"""The number of rounds of each fault: with leases, and on the other sides."""


class Fault(Enum):
    """The fault that affects the older owner."""

    STOPPED = "SIGSTOP for 1 to 3 sessions, then SIGCONT"
    COORDINATOR = "cut off from the coordinator only"
    BROKERS = "cut off from all brokers"
    GIL = "another thread holds the GIL for 10 s"
    CLOCK = "cut off from all brokers, wall clock set back by 1 h"
    SUSPENDED = "suspended for 1 to 3 sessions"
    TWO_CONNECTED = "a second process with its id, both connected"
    TWO_CUT = "a second process with its id, the older one cut off"


_TWO = frozenset({Fault.TWO_CONNECTED, Fault.TWO_CUT})
_CUTS = frozenset({Fault.COORDINATOR, Fault.BROKERS, Fault.CLOCK, Fault.TWO_CUT})
_CLOCKS = frozenset({Fault.CLOCK, Fault.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The protocol of the two members of a round, and whether they are static."""

    protocol: str
    is_static: bool

    def __str__(self) -> str:
        """The name of the kind in the details of a figure."""
        return f"{self.protocol}, {'static' if self.is_static else 'dynamic'}"

    def config(self, name: str) -> dict[str, str]:
        """Return the configuration of the member with this name."""
        config = {"group.protocol": self.protocol}
        if self.protocol == "classic":
            config["session.timeout.ms"] = f"{SESSION_S * 1000:.0f}"
            config["heartbeat.interval.ms"] = f"{_HEARTBEAT_S * 1000:.0f}"
        if self.is_static:
            config["group.instance.id"] = name
        return config


MEMBERS = tuple(
    Member(protocol=protocol, is_static=is_static)
    for is_static in (False, True)
    for protocol in ("consumer", "classic")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One side under one fault: its rounds use the kinds of members in turns.

    Attributes:
        is_bounded: Whether no overlap is allowed.
    """

    side: Side
    fault: Fault
    is_bounded: bool
    overlaps: Series
    records: Series
    found: list[Overlap] = field(default_factory=list)

    @property
    def members(self) -> tuple[Member, ...]:
        """The kinds of members: only static members can share an id, and only the consumer protocol has policies."""
        if _POLICY in self.side.config:
            return tuple(one for one in MEMBERS if one.is_static and one.protocol == "consumer")
        return tuple(one for one in MEMBERS if one.is_static) if self.fault in _TWO else MEMBERS

    def note(self) -> str:
        """Return how often the owner changed, and how early the older owner stopped."""
        changed = sum(one.has_changed for one in self.found)
        gaps = sorted(one.gap_ms for one in self.found if one.gap_ms is not None)
        early = f"; the older owner stopped {gaps[0]:.0f} to {gaps[-1]:.0f} ms before" if gaps else ""
        return f"{self.overlaps.label}: a second owner in {changed} of {len(self.found)} rounds{early}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The objects that all rounds share."""

    bootstrap: str
    topic: str
    folder: Path
    library: Path

    def owner(self, side: Side, config: Mapping[str, str], clocks: ClockOffsets | None) -> Worker:
        """Start the process of one owner."""
        job = owner.Job(module=side.module, config={**config, **side.config}, topic=self.topic, pace_s=_PACE_S)
        is_java = side.module == JAVA
        command = owner_command(self.folder, job) if is_java else worker_command("owner", job)
        return Worker("owner", command=clocks.command(command) if clocks else command)


def run(bench: Bench) -> Figure:
    """Run the rounds of all sides and faults in a random order, many at the same time."""
    with start(properties=_BROKER) as broker, tempfile.TemporaryDirectory() as folder:
        own = replace(bench, bootstrap=broker.bootstrap_servers)
        topic = own.filled_topic("overlap", _RECORDS, partitions=1)
        path = Path(folder)
        compile_worker(path, OWNER)
        setting = Setting(bootstrap=broker.bootstrap_servers, topic=topic, folder=path, library=compiled(path))
        combinations = _combinations(own)
        rounds = [
            (one, one.members[number % len(one.members)], bench.chance.random(), f"{place}-{number}")
            for place, one in enumerate(combinations)
            for number in range(bench.count(_ROUNDS if one.is_bounded else _FEWER_ROUNDS, 2))
        ]
        bench.chance.shuffle(rounds)
        with ThreadPoolExecutor(_QUICK_LANES if bench.is_quick else _LANES) as lanes:
            for done in [
                lanes.submit(_round, own, setting, combination, member, seed, name)
                for combination, member, seed, name in rounds
            ]:
                done.result()
    return Figure(
        title="Overlap of two owners: the newer owner's first hand-out to the older owner's last one",
        series=tuple(series for one in combinations for series in (one.overlaps, one.records)),
        checks=_checks(combinations),
        notes=(
            f"session {SESSION_S:.0f} s, heartbeat interval {_HEARTBEAT_S:.0f} s; one partition and two members",
            f"each member hands out one record in {_PACE_S * 1000:.0f} ms, by CLOCK_BOOTTIME for both processes",
            f"the kinds of members take turns: {'; '.join(map(str, MEMBERS))}; with one id only the static ones",
            "cuts: for 1.5 to 3 sessions, packets of the older owner are dropped",
            "cut from the coordinator: connections with requests to it are silent; Fetch and Metadata pass",
            *(one.note() for one in combinations),
        ),
    )


def _combinations(bench: Bench) -> list[Combination]:
    waits = {_POLICY: "wait"}
    with_proof = {_POLICY: "takeover-when-dead"}
    leases = {"ownership.lease.enable": "true"}

    def ours(label: str, config: Mapping[str, str]) -> Side:
        return Side(label=label, module=bench.subject, config=config, is_ours=True)

    def combination(side: Side, fault: Fault, *, is_bounded: bool = False) -> Combination:
        what = f"{fault.value}, {side.label}"
        return Combination(
            side=side,
            fault=fault,
            is_bounded=is_bounded,
            overlaps=Series(label=what, unit="ms", is_ours=side.is_ours),
            records=Series(label=what, unit="records", is_ours=side.is_ours),
        )

    with_leases, without = ours("with leases", leases), ours("without leases", {})
    raw = Side(label="confluent-kafka", module="confluent_kafka", config={})
    java_config = {
        "enable.auto.commit": "false",
        "max.poll.records": "1",
    }
    java = Side(label="Java", module=JAVA, config=java_config)
    found = []
    for fault in Fault:
        if fault in _TWO:
            found.append(combination(ours("with leases, wait", leases | waits), fault, is_bounded=True))
            found.append(
                combination(ours("with leases, takeover-when-dead", leases | with_proof), fault, is_bounded=True)
            )
            found.append(combination(ours("without leases, wait", waits), fault))
        found.append(combination(with_leases, fault, is_bounded=fault not in _TWO))
        found.append(combination(without, fault))
        found.append(combination(raw, fault))
        if fault not in {Fault.GIL, Fault.SUSPENDED}:  # Java has no GIL; a suspension changes System.nanoTime
            found.append(combination(java, fault))
    return found


def _checks(combinations: Sequence[Combination]) -> tuple[Check, ...]:
    return tuple(
        at_most(f"{one.overlaps.label}: 0 ms", max(one.overlaps.values, default=None), 0.0, "ms", [one.overlaps])
        for one in combinations
        if one.is_bounded
    )


def _round(bench: Bench, setting: Setting, combination: Combination, member: Member, seed: float, name: str) -> None:
    chance = bench.own_random(seed)
    with counted_in(combination.overlaps, combination.records):
        found = _measured(bench, setting, combination, member, chance, name)
        combination.found.append(found)
        combination.overlaps.add(
            found.ms, member=str(member), gap_ms=found.gap_ms, has_changed=found.has_changed, seed=seed
        )
        combination.records.add(float(found.records), member=str(member))
        outcome = f"{found.ms:.0f} ms, {found.records} records" if found.has_changed else "no second owner"
        gap = "" if found.gap_ms is None else f", gap {found.gap_ms:.0f} ms"
        log(f"overlap: {combination.overlaps.label} ({member}): {outcome}{gap}")


def _measured(
    bench: Bench, setting: Setting, combination: Combination, member: Member, chance: random.Random, name: str
) -> Overlap:
    side, fault = combination.side, combination.fault
    config = {
        "bootstrap.servers": setting.bootstrap,
        "group.id": bench.group(side),
        "auto.offset.reset": "earliest",
    }
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(setting.bootstrap))
        clocks = ClockOffsets(setting.library, setting.folder / name) if fault in _CLOCKS else None
        older_config = {**config, **member.config("member-0"), "bootstrap.servers": proxy.address}
        newer_config = {**config, **member.config("member-0" if fault in _TWO else "member-1")}
        older = stack.enter_context(setting.owner(side, older_config, clocks))
        newer = stack.enter_context(setting.owner(side, newer_config, None))
        for one in (older, newer):
            one.expect("ready", _READY_S)
        older.order("subscribe")
        older.expect("began", _JOIN_S)
        time.sleep(chance.uniform(*_CALM_S))
        with _struck(fault, older, proxy, clocks):
            later_s = chance.uniform(*_LATER_S)
            time.sleep(later_s)
            newer.order("subscribe")
            time.sleep(_lasts_s(fault, chance) - later_s)
        time.sleep(_TAIL_S)
        reports = []
        for one in (older, newer):
            one.order("end")
            reports.append(one.expect("handed", _JOIN_S).facts)
        return overlap(
            tenure
            for owner, facts in zip(("older", "newer"), reports, strict=True)
            for tenure in tenures_of(owner, facts["tenures"])
        )


def _lasts_s(fault: Fault, chance: random.Random) -> float:
    match fault:
        case Fault.STOPPED | Fault.SUSPENDED:
            return chance.uniform(1.0, 3.0) * SESSION_S
        case Fault.COORDINATOR | Fault.BROKERS | Fault.CLOCK | Fault.TWO_CUT:
            return chance.uniform(1.5, 3.0) * SESSION_S
        case Fault.GIL:
            return float(owner.HOLD_S)
        case Fault.TWO_CONNECTED:
            return _LATER_S[1]
        case _:
            assert_never(fault)


@contextmanager
def _struck(fault: Fault, older: Worker, proxy: Proxy, clocks: ClockOffsets | None) -> Iterator[None]:
    """Apply the fault to the older owner until the end of the block."""
    began = time.monotonic()
    match fault:
        case Fault.STOPPED | Fault.SUSPENDED:
            os.kill(older.pid, signal.SIGSTOP)
        case Fault.COORDINATOR:
            proxy.silence(_COORDINATOR_KINDS)
        case Fault.BROKERS | Fault.TWO_CUT:
            proxy.silence(ALL_KINDS)
        case Fault.CLOCK:
            proxy.silence(ALL_KINDS)
            _given(clocks).set(realtime_s=-_SET_BACK_S)
        case Fault.GIL:
            older.order("hold")
        case Fault.TWO_CONNECTED:
            pass
        case _:
            assert_never(fault)
    yield
    if fault is Fault.SUSPENDED:
        _given(clocks).set(monotonic_s=began - time.monotonic())
    if fault in {Fault.STOPPED, Fault.SUSPENDED}:
        os.kill(older.pid, signal.SIGCONT)
    if fault in _CUTS:
        proxy.heal()


def _given(clocks: ClockOffsets | None) -> ClockOffsets:
    if clocks is None:
        raise WorkerFailedError("this fault needs a worker whose clocks can be set")
    return clocks
