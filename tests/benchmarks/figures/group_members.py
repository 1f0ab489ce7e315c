"""The costs of many members in one process that fetch no records: lateness of heartbeats, processor time, memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.processes import Worker, WorkerFailedError, cpu_s
from tests.benchmarks.samples import at_most, median_of
from tests.benchmarks.workers import group_members

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench

NAME = "group-members"

GROUPS, QUICK_GROUPS = 50, 10
MEMBERS = 20
"""The number of members in each group."""

LATE_PERCENT, MOST_CPU_PERCENT, MOST_KB = 10.0, 30.0, 200.0
_EVERY_S = 1.0
_SETTLE_S, _QUICK_SETTLE_S = 30.0, 15.0
"""A member sends heartbeats more often for some seconds after a change."""

_WATCH_S, _QUICK_WATCH_S = 60.0, 25.0
_READY_S = 450.0


def run(bench: Bench) -> Figure:
    """Create all members in one process, wait until no group changes, and read its heartbeats and its costs."""
    groups = QUICK_GROUPS if bench.is_quick else GROUPS
    side = bench.ours(membership_threads="shared")
    late = side.series("p99 of sends: lateness, part of the interval", "%")
    latest = side.series("latest send", "%")
    answered = side.series("p99 of responses: lateness, part of the interval", "%")
    share = side.series("share of a core", "%")
    memory = side.series("memory of a member", "kB")
    ready = side.series("all have their partitions", "s")
    left = side.series("all are closed, one after the other", "s")
    for _ in range(bench.count(3, 1)):
        with counted_in(late, latest, answered, share, memory, ready, left):
            config = {key: value for key, value in bench.config(side).items() if key != "auto.offset.reset"}
            group, topic = config.pop("group.id"), bench.topic(NAME, partitions=2 * MEMBERS)
            job = group_members.Job(
                config=config, group=group, topic=topic, groups=groups, members=MEMBERS, every_s=_EVERY_S
            )
            with Worker("group_members", job) as worker:
                is_ready = worker.expect("ready", _READY_S)
                if is_ready.facts["missing"]:
                    raise WorkerFailedError(f"{is_ready.facts['missing']} members got no partition")
                time.sleep(_QUICK_SETTLE_S if bench.is_quick else _SETTLE_S)
                process = psutil.Process(worker.pid)
                worker.order("begin")
                began, used = time.monotonic(), cpu_s(process)
                time.sleep(_QUICK_WATCH_S if bench.is_quick else _WATCH_S)
                percent = (cpu_s(process) - used) / (time.monotonic() - began) * 100
                worker.order("count")
                counted = worker.expect("counted", _READY_S).facts
                log(f"group-members: {percent:.1f} % of a core, ready in {is_ready.facts['took_s']:.1f} s, {counted}")
                worker.order("end")
                closed = worker.expect("left", _READY_S)
                worker.wait()
            if counted["settled"] != groups * MEMBERS or counted["changes"]:
                raise WorkerFailedError(f"the groups changed during the measurement: {counted}")
            of_interval = 100 / counted["interval_s"]
            late.add(counted["sent_p99"] * of_interval, heartbeats=counted["heartbeats"])
            latest.add(counted["sent_p100"] * of_interval)
            answered.add(counted["answered_p99"] * of_interval)
            share.add(percent)
            memory.add(counted["bytes_each"] / 1000)
            ready.add(is_ready.facts["took_s"])
            left.add(closed.facts["took_s"])
    limits = (
        ("heartbeats sent: p99 of the lateness", late, LATE_PERCENT, "% of the interval"),
        ("share of a core", share, MOST_CPU_PERCENT, "%"),
        ("memory of a member", memory, MOST_KB, "kB"),
    )
    return Figure(
        title=f"{groups * MEMBERS} group members of {groups} groups in one process, polled by one thread",
        series=(late, latest, answered, share, memory, ready, left),
        checks=tuple(at_most(bound, median_of(one), limit, unit, [one]) for bound, one, limit, unit in limits),
        notes=(
            f"each is polled every {_EVERY_S:g} s with poll(0), and owns 2 partitions",
            "lateness: the time between two heartbeats of one member minus the broker's heartbeat interval",
        ),
    )
