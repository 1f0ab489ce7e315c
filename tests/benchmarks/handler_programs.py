"""The programs that the figures about handlers compare: their command lines and their measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.parallel_consumer import parallel_consumer_command
from tests.benchmarks.processes import Worker, WorkerFailedError, worker_command
from tests.benchmarks.workers import handlers
from tests.benchmarks.workers.handlers import Program
from tests.frameworks import environments

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.bench import Bench, Side

PARALLEL_CONSUMER, FASTSTREAM = "Parallel Consumer (Java)", "FastStream max_workers"
"""The labels of the programs that are not in `workers.handlers`."""

_OURS = (Program.THREADS, Program.COROUTINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of a program in one process: it processes a topic once for each run.

    Attributes:
        topic: The topic to read.
        records: The number of records in the topic.
        wait_s: How long each handler waits.
        concurrency: How many handlers may run at the same time.
        order: The order of a `Processor`; Parallel Consumer always orders by key.
        is_checked: Whether handlers that wait check the order within each key.
        runs: How often it processes the topic, each time in a new group.
        config: Further settings of the consumer.
    """

    topic: str
    records: int
    wait_s: float = 0.0
    concurrency: int = 16
    order: str = "key"
    is_checked: bool = True
    runs: int = 1
    config: tuple[tuple[str, str], ...] = ()


def side_of(bench: Bench, label: str) -> Side:
    """Return the side of a program; only those of this package are ours."""
    return bench.ours(label) if label in _OURS else bench.raw(label, group_protocol="classic")


def command_of(bench: Bench, side: Side, task: Task, folder: Path, groups: list[str], ledger: str = "") -> list[str]:
    """Return the command line of a program; compiled classes are written to `folder`.

    Raises:
        WorkerFailedError: The program's interpreter, compiler or libraries are missing.
    """
    if side.label == PARALLEL_CONSUMER:
        arguments = (task.topic, str(task.records), str(round(task.wait_s * 1000)), str(task.concurrency))
        return parallel_consumer_command(folder, bench.bootstrap, *arguments, *groups)
    config = {name: value for name, value in bench.config(side, "").items() if name != "group.id"}
    job = handlers.Job(
        program=side.label,
        config={**config, **dict(task.config)},
        topic=task.topic,
        expected=task.records,
        groups=groups,
        wait_s=task.wait_s,
        concurrency=task.concurrency,
        order=task.order,
        is_checked=task.is_checked,
        ledger=ledger,
    )
    if side.label != FASTSTREAM:
        return worker_command("handlers", job)
    try:
        python = environments.environment("faststream", environments.FASTSTREAM)
    except AssertionError as error:
        raise WorkerFailedError(str(error)) from error
    return worker_command("faststream_handlers", job, str(python))


def measured_runs(bench: Bench, side: Side, task: Task, folder: Path, timeout_s: float) -> list[dict[str, Any]]:
    """Run a program once and return the facts of each of its runs; each committed all records.

    Raises:
        WorkerFailedError: The program failed, took too long, or did not commit the end of each partition.
    """
    groups = [bench.group(side) for _ in range(task.runs)]
    with Worker(side.label, command=command_of(bench, side, task, folder, groups)) as worker:
        worker.until(lambda: len(worker.reports("measured")) == task.runs, timeout_s, f"'measured' {task.runs} times")
        worker.wait()
        facts = [report.facts for report in worker.reports("measured")]
    if side.label != Program.ASYNCIO:
        for group in groups:
            if (missing := uncommitted(bench, group, task.topic)) != 0:
                raise WorkerFailedError(f"{side.label} did not commit {missing} records")
    return facts


def uncommitted(bench: Bench, group: str, topic: str) -> int:
    """Return how many records of a topic are beyond the committed offsets of a group."""
    admin = AdminClient({"bootstrap.servers": bench.bootstrap})
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    total = sum(found.result().offset for found in ends.values())
    (offsets,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
    return total - sum(max(one.offset, 0) for one in offsets.result().topic_partitions)
