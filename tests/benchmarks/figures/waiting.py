"""The cost at the broker of members that wait for an instance id."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.groups import GroupMember, balanced_at
from tests.benchmarks.processes import Worker, listener_at, share_of_core
from tests.benchmarks.samples import at_most
from tests.benchmarks.workers import member, waiting

if TYPE_CHECKING:
    import psutil

    from tests.benchmarks.bench import Bench
    from tests.benchmarks.samples import Series

WAITING = (1, 10, 100)
MOST_PERCENT = 3.0
"""The allowed share of one core for each of ten waiting members."""

_POOL = 3
_WATCH_S, _QUICK_WATCH_S = 20.0, 10.0
_JOIN_S = 120.0


def run(bench: Bench) -> Figure:
    """Read the broker's processor time while members wait, minus its use without them."""
    side = bench.ours()
    shares = {count: side.series(f"broker CPU, {count} waiting", "% of a core") for count in WAITING}
    topic, broker = bench.topic("waiting"), listener_at(bench.bootstrap)
    watch_s = _QUICK_WATCH_S if bench.is_quick else _WATCH_S
    config = bench.config(side) | {"group.instance.id.pool": f"member-{{0..{_POOL - 1}}}"}
    with ExitStack() as processes:
        job = member.Job(module=side.module, config=config, topic=topic)
        holders = [GroupMember(processes.enter_context(Worker("member", job))) for _ in range(_POOL)]
        for one in holders:
            one.prepare()
            one.subscribe()
        balanced_at(holders, _JOIN_S)
        for _ in range(bench.count(3, 1)):
            for count, share in shares.items():
                with counted_in(share):
                    time.sleep(bench.settle_s)
                    idle_percent = share_of_core(broker, watch_s)
                    _wait(waiting.Job(config=config, topic=topic, members=count), broker, watch_s, idle_percent, share)
    return Figure(
        title=f"Members that wait for an id of a pool: {_POOL} holders, {PARTITIONS} partitions",
        series=tuple(shares.values()),
        checks=(
            at_most(
                f"10 waiting: broker CPU at most {10 * MOST_PERCENT:.0f} %",
                max(shares[10].values, default=None),
                10 * MOST_PERCENT,
                "% of a core",
                [shares[10]],
            ),
        ),
        notes=(
            f"in the first minute of the wait, when each describes the group every 40 ms; over {watch_s:.0f} s each",
            "minus the processor time of the broker with only the three holders",
        ),
    )


def _wait(job: waiting.Job, broker: psutil.Process, watch_s: float, idle_percent: float, share: Series) -> None:
    with Worker("waiting", job) as worker:
        worker.expect("subscribed", _JOIN_S)

        def all_wait() -> bool:
            worker.order("count")
            return bool(worker.expect("waiting", _JOIN_S).facts["members"] == job.members)

        Retrying(stop=stop_after_delay(_JOIN_S), wait=wait_fixed(0.2), retry=retry_if_not_result(bool))(all_wait)
        share.add(share_of_core(broker, watch_s) - idle_percent, idle_percent=idle_percent)
        log(f"waiting: {share.label} {share.values[-1]:.2f} % of a core (without: {idle_percent:.2f})")
        worker.end()
