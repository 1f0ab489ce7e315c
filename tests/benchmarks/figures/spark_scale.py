"""The scaling of Spark members by executors and partitions, and the cost of a member at the coordinator."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import psutil
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.figures.spark import START_TIMEOUT_S, run_turn
from tests.benchmarks.processes import Worker, cpu_s, listener_at
from tests.benchmarks.samples import Series, at_most
from tests.benchmarks.workers import idle_members, spark_turns

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench

NAME = "spark-scale"

EXECUTORS = (1, 2, 4, 8)
PARTITIONS = (200, 2_000)
_RECORDS, _QUICK_RECORDS = 2_000_000, 100_000
_MOST_RECORDS = 50_000_000
_BYTES = 20
#: The members of one group and their heartbeat interval, which is short, so that the cost exceeds that of the broker.
_MEMBERS, _HEARTBEAT_MS, _WATCH_S = 100, 200, 20.0
_COMMITS = 100
_TIMEOUT_S = 900.0
#: The kinds of processes whose processor time a drain uses.
_KINDS = ("broker", "driver's Python", "driver's JVM", "executors' JVMs", "tasks' Python")
_MIB = 2**20


def run(bench: Bench) -> Figure:
    """Measure drains on growing clusters, and then many idle members."""
    drains = {
        (executors, partitions): _series(f"drain, {executors} executors, {partitions:,} partitions", "s")
        for partitions in PARTITIONS
        for executors in EXECUTORS
    }
    python, jvm = _series("driver's Python, RSS", "MiB"), _series("driver's JVM, RSS", "MiB")
    whole = _series("drain of the most records", "s")
    spent = {kind: _series(f"CPU meanwhile, {kind}", "s") for kind in _KINDS}
    heartbeat, commit, grown = (
        {partitions: _series(f"{what}, {partitions:,} partitions", unit) for partitions in PARTITIONS}
        for what, unit in (
            ("broker CPU of a heartbeat", "us"),
            ("broker CPU of a commit of all partitions", "ms"),
            (f"until {_MEMBERS} members own all", "s"),
        )
    )
    broker = listener_at(bench.bootstrap)
    records = _QUICK_RECORDS if bench.is_quick else _RECORDS
    series = [
        *drains.values(),
        python,
        jvm,
        whole,
        *spent.values(),
        *heartbeat.values(),
        *commit.values(),
        *grown.values(),
    ]
    with counted_in(*series):
        topics = {number: bench.filled_topic(NAME, records, _BYTES, number) for number in PARTITIONS}
        for executors in EXECUTORS:
            job = spark_turns.Job(bootstrap=bench.bootstrap, master=f"local-cluster[{executors},1,512]", jars=[])
            with Worker("spark_turns", job) as worker:
                worker.expect("ready", START_TIMEOUT_S)
                # The executors start with the first tasks.
                run_turn(worker, _turn(bench, topics[PARTITIONS[0]], executors), records)
                for partitions in PARTITIONS:
                    for _ in range(bench.count(2, 1)):
                        wall_s = run_turn(worker, _turn(bench, topics[partitions], executors), records)
                        drains[executors, partitions].add(wall_s, records=records)
                        log(f"{NAME}: {drains[executors, partitions].label} {wall_s:.2f} s")
                if executors == max(EXECUTORS):
                    driver = psutil.Process(worker.pid)
                    python.add(driver.memory_info().rss / _MIB)
                    jvm.add(sum(child.memory_info().rss for child in driver.children()) / _MIB)
                if executors == 2:
                    most = records if bench.is_quick else _MOST_RECORDS
                    topic = bench.filled_topic(f"{NAME}-most", most, _BYTES, PARTITIONS[0])
                    before = _spent(worker.pid, broker)
                    whole.add(run_turn(worker, _turn(bench, topic, executors), most, _TIMEOUT_S), records=most)
                    for kind, used_s in _spent(worker.pid, broker).items():
                        spent[kind].add(used_s - before[kind])
                    parts = ", ".join(f"{kind} {one.values[-1]:.1f} s" for kind, one in spent.items())
                    log(f"{NAME}: {most:,} records {whole.values[-1]:.1f} s; CPU: {parts}; {_memory(worker.pid)}")
                worker.end()
        for partitions in PARTITIONS:
            _measure_members(bench, broker, partitions, heartbeat[partitions], commit[partitions], grown[partitions])
    return Figure(
        title=f"Spark: executors and partitions, {records:,} x {_BYTES} B; {_MEMBERS} idle members",
        series=tuple(series),
        checks=(
            at_most(
                "failed drains, which did not read each record once",
                sum(len(one.failures) for one in drains.values()),
                0,
                "drains",
                list(drains.values()),
            ),
        ),
        notes=(
            "drains in batches of Arrow; a first drain on each cluster is not counted: it starts the executors",
            f"{os.cpu_count()} cores for broker, driver, executors and tasks: more executors than cores share them",
            f"broker CPU: while {_MEMBERS} members heartbeat every {_HEARTBEAT_MS} ms, minus that without members",
            *(
                f"{one.label}: {statistics.median(s.detail['records'] / s.value for s in one.samples):,.0f} records/s"
                for one in (*drains.values(), whole)
                if one.samples
            ),
        ),
    )


def _series(label: str, unit: str) -> Series:
    return Series(label=label, unit=unit, is_ours=True)


def _turn(bench: Bench, topic: str, executors: int) -> spark_turns.Turn:
    group = bench.group(bench.ours())
    return spark_turns.Turn(way="our-arrow", topic=topic, group=group, instances=executors)


def _spent(driver_pid: int, broker: psutil.Process) -> dict[str, float]:
    """Return the processor time of each kind of process so far; time of ended children counts for their parent."""
    driver = psutil.Process(driver_pid)
    jvms = driver.children()
    executors = [each for jvm in jvms for each in jvm.children()]
    tasks = [each for executor in executors for each in executor.children(recursive=True)]
    kinds = ([broker], [driver], jvms, executors, tasks)
    return {kind: sum(map(cpu_s, processes)) for kind, processes in zip(_KINDS, kinds, strict=True)}


def _memory(driver_pid: int) -> str:
    """Return the memory of the driver and of its JVM as text."""
    driver = psutil.Process(driver_pid)
    jvm = sum(child.memory_info().rss for child in driver.children())
    return f"driver {driver.memory_info().rss / _MIB:.0f} MiB in Python, {jvm / _MIB:.0f} in its JVM"


def _used(broker: psutil.Process, seconds: float) -> float:
    before = cpu_s(broker)
    time.sleep(seconds)
    return cpu_s(broker) - before


def _measure_members(
    bench: Bench, broker: psutil.Process, partitions: int, heartbeat: Series, commit: Series, grown: Series
) -> None:
    """Measure many idle members on a topic with this number of partitions."""
    topic = bench.topic(f"{NAME}-idle-members", partitions)
    time.sleep(bench.settle_s)
    baseline = _used(broker, _WATCH_S)
    group = bench.group(bench.ours())
    job = idle_members.Job(
        bootstrap=bench.bootstrap, topic=topic, group=group, members=_MEMBERS, heartbeat_ms=_HEARTBEAT_MS
    )
    with Worker("idle_members", job) as worker:
        began = worker.expect("joined", _TIMEOUT_S).at
        _until_owned(worker, partitions)
        grown.add(time.monotonic() - began)
        time.sleep(bench.settle_s)
        used = _used(broker, _WATCH_S)
        sent = _MEMBERS * _WATCH_S * 1000 / _HEARTBEAT_MS
        heartbeat.add((used - baseline) / sent * 1e6, used_s=used, baseline_s=baseline)
        log(f"{NAME}: {heartbeat.label} {heartbeat.values[-1]:.0f} us; {grown.label} {grown.values[-1]:.1f} s")
        worker.end()
    job = idle_members.Job(bootstrap=bench.bootstrap, topic=topic, group=f"{group}-one", members=1, heartbeat_ms=5_000)
    with Worker("idle_members", job) as worker:
        _until_owned(worker, partitions)
        before, began = cpu_s(broker), time.monotonic()
        worker.order(str(_COMMITS))
        worker.expect("committed", _TIMEOUT_S)
        idle = baseline / _WATCH_S * (time.monotonic() - began)
        commit.add((cpu_s(broker) - before - idle) / _COMMITS * 1e3)
        log(f"{NAME}: {commit.label} {commit.values[-1]:.2f} ms")
        worker.end()


def _until_owned(worker: Worker, partitions: int) -> None:
    def owns() -> bool:
        worker.order("owned")
        return bool(worker.expect("owned", _TIMEOUT_S).facts["partitions"] == partitions)

    Retrying(stop=stop_after_delay(_TIMEOUT_S), wait=wait_fixed(0.1), retry=retry_if_not_result(bool))(owns)
