"""A Spark job whose tasks are members; each task attempt is a separate process in the history.

The driver process starts the job and receives orders. In the process of a task, the sink writes `Received` events, and
the task's consumer writes assignments, revocations and commits. `begin_attempt` replaces the class of this consumer
before the task creates it. The processes of tasks are named `<driver>-<task>-<attempt>`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Message, TopicPartition
from pyspark import TaskContext
from pyspark.sql import SparkSession

from consumer_membership import Consumer
from consumer_membership.spark import SinkContext, member, run
from tests.chaos import history as h
from tests.chaos.members.account import Account, named, offset_of, partition_of, write_commit_end
from tests.chaos.members.statements import Statements, epochs_of, ns
from tests.chaos.plan import POLL_INTERVAL_S, SESSION_S, TASKS, MemberPlan

if TYPE_CHECKING:
    from consumer_membership.clients.outcomes import PendingCommit

_ROOT = Path(__file__).resolve().parents[3]
#: How many times a task may fail: more times than the faults of a round kill it.
_ATTEMPTS = 100
_WAIT_S = 0.2


@dataclass(slots=True)
class HistorySink:
    """The sink: writes each record to the history. When a task unpickles it, it opens the history of the attempt."""

    plan: MemberPlan
    driver: str
    group: str
    folder: Path
    writer: h.HistoryWriter | None = None
    #: The end of the previous call. The next batch's lease was checked after that.
    _ended_ns: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        return begin_attempt, (self.plan, self.driver, self.group, self.folder)

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Write the records of a batch to the history."""
        writer = self.opened
        until_ns = {part.topic_partition: self._until_ns(context, part.topic_partition) for part in context.ranges}
        for message in batch:
            partition, key = partition_of(message), message.key()
            writer.write(
                h.Received(
                    partition=partition,
                    offset=offset_of(message),
                    number=int(message.value() or b"-1"),
                    begun_ns=self._ended_ns,
                    lease_until_ns=until_ns[partition],
                    key=key.decode() if isinstance(key, bytes) else key,
                )
            )
        self._ended_ns = h.now_ns()

    @property
    def opened(self) -> h.HistoryWriter:
        """The history of this attempt."""
        assert self.writer is not None, "the sink must be used in a task"
        return self.writer

    def _until_ns(self, context: SinkContext, place: tuple[str, int]) -> int | None:
        if not self.plan.has_leases:
            return None
        try:
            return ns(context.lease(place).until)
        except KafkaException:
            return None


#: The sink of the attempt that runs in this process.
_sinks: list[HistorySink] = []


def begin_attempt(plan: MemberPlan, driver: str, group: str, folder: Path) -> HistorySink:
    """Return the sink; in the process of a task, also make the task's consumer write the history from now on."""
    sink = HistorySink(plan, driver, group, folder)
    task = TaskContext.get()
    if task is not None:
        sink.writer = h.HistoryWriter(folder, f"{driver}-{task.partitionId()}-{task.taskAttemptId()}")
        sink.writer.write(
            h.Started(
                group=group,
                kind=f"{plan.loop} {plan.identity} {plan.protocol}",
                pid=os.getpid(),
                instance_id=f"{plan.name}-{task.partitionId()}",
                has_leases=plan.has_leases,
                session_s=SESSION_S,
            )
        )
        _sinks[:] = [sink]
        setattr(member, "Consumer", TaskConsumer)  # noqa: B010 - affects this process only
    return sink


class TaskConsumer(Consumer):
    """The consumer of a task, which also writes its assignments, revocations and commits to the history."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self._sink = _sinks[-1]
        self._writer = self._sink.opened
        self._statements = Statements(self._writer, self.membership, self.health, has_leases=self._sink.plan.has_leases)

    def subscribe(self, topics, on_assign=None, on_revoke=None, on_lost=None, **others) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN003
        """Subscribe with callbacks that call the task's callbacks, and that write to the history."""

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            view = self.membership()
            epochs = epochs_of(self._sink.plan.has_leases, self, partitions)
            self._writer.write(h.Assigned(member_id=view.member_id, epochs=epochs, instance_id=view.instance_id))
            on_assign(consumer, partitions)

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                on_revoke(consumer, partitions)
            finally:
                self._writer.write(h.Revoked(partitions=named(partitions)))

        def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                on_lost(consumer, partitions)
            finally:
                self._writer.write(h.Lost(partitions=named(partitions)))

        super().subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost, **others)

    def begin_commit(self, offsets: list[TopicPartition] | None = None) -> PendingCommit:
        """Begin a commit, and write its start and its end to the history."""
        given = [h.Offset(one.topic, one.partition, one.offset) for one in offsets or ()]
        number = self._writer.begin_commit(given)
        pending = super().begin_commit(offsets)
        result = pending.result
        is_written = False

        def write_and_return() -> list[TopicPartition]:
            nonlocal is_written
            try:
                answer: list[TopicPartition] | KafkaException = result()
            except KafkaException as error:
                answer = error
            if not is_written:
                is_written = True
                write_commit_end(self._writer, number, answer)
            if isinstance(answer, KafkaException):
                raise answer
            return answer

        pending.result = write_and_return  # type: ignore[method-assign]
        return pending

    def close(self, *arguments, **keywords) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003
        """Close the consumer, and write that it is closed."""
        self._statements.stop()
        super().close(*arguments, **keywords)
        self._writer.write(h.Closed())
        self.dump(self._sink.folder / f"{self._writer.process}.recording")


def run_spark(account: Account) -> int:
    """Run the job until the member is closed, or the job fails."""
    folder = account.folder.resolve()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{TASKS},{_ATTEMPTS}]").appName(account.process)
    for key, value in settings.items():
        builder = builder.config(key, value)
    own = folder / f"{account.process}.spark"
    own.mkdir()
    has_begun = False

    def end_before_the_begin() -> None:
        if not has_begun:
            # The start of the JVM cannot be interrupted. The JVM ends with this process.
            os._exit(0)

    account.on_close(end_before_the_begin)
    # Spark writes files to the current folder of its JVM, so each job has its own folder.
    with chdir(own):
        spark = builder.getOrCreate()
    has_begun = True
    try:
        config = account.config()
        # `run` has its own parameters for these settings, and gives each task its own group.instance.id.
        for key in ("max.poll.interval.ms", "group.instance.id", "group.id", "enable.auto.commit"):
            config.pop(key, None)
        sink = HistorySink(account.plan, account.process, account.group, folder)
        handle = run(
            spark,
            config,
            [account.topic],
            account.group,
            sink,
            TASKS,
            pipeline=account.plan.name,
            sink_timeout_s=POLL_INTERVAL_S,
            show_progress=False,
        )
        while handle.is_running and not account.is_closing:
            handle.wait(_WAIT_S)
        handle.stop()
        handle.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        spark.stop()
    account.writer.write(h.Closed())
    return 0
