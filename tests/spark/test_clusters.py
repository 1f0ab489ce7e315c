"""Executors and drivers in processes of a cluster, some of which are lost, interrupted or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Message

from consumer_membership.devbroker import Broker
from consumer_membership.spark import SinkContext
from tests.spark.clusters import (
    ROOT,
    SPARK_S,
    Ground,
    Here,
    SessionProcess,
    a_run,
    a_session,
    a_standalone_cluster,
    drained,
    given_by_partition,
    reported,
    stopped,
)
from tests.spark.recorders import Killer, Recorder, executor_above
from tests.support.kafka import produce
from tests.support.waiting import SOONER_THAN_A_SESSION_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS, RECORDS = 4, 4000


@pytest.fixture
def ground(kafka: Broker) -> Ground:
    """4,000 records in 4 partitions."""
    return Ground(kafka, PARTITIONS, RECORDS)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """The path of the recorder, which notes what the sinks received."""
    return Recorder(tmp_path)


# ---- clusters --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["local-cluster", "standalone"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    """A session with two executors of one core each, in JVMs of their own."""
    with ExitStack() as stack:
        master = "local-cluster[2,1,1024]"
        if request.param == "standalone":
            folder = tmp_path_factory.mktemp("cluster")
            master = stack.enter_context(a_standalone_cluster(folder, [Here()] * 2))
        yield stack.enter_context(a_session(master))


def test_foreach_partition_delivers_each_record_once_and_leaves(
    cluster: SessionProcess, ground: Ground, recorder: Recorder
) -> None:
    """`foreachPartition` delivers each record once, ends when all is committed, and leaves no member."""
    cluster.ask(given_by_partition, ground.config, ground.topic, ground.group, recorder, 2)
    counts = recorder.counts()
    assert (len(counts), set(counts.values()), ground.committed()) == (RECORDS, {1}, [1000] * PARTITIONS)
    assert ground.members() == []


def test_run_consumes_new_records_until_it_is_stopped(
    cluster: SessionProcess, ground: Ground, recorder: Recorder
) -> None:
    """A run uses both executors, consumes new records, and on stop leaves neither members nor uncommitted records."""

    def given() -> int:
        return sum(member.records for member in cluster.ask(reported, ground.group))

    with a_run(cluster, ground, recorder):
        wait_until(lambda: given() == RECORDS, "all records", SPARK_S)
        wait_until(
            lambda: [len(member.owned) for member in cluster.ask(reported, ground.group)] == [2, 2],
            "two partitions with each member",
            SPARK_S,
        )
        produce(ground.bootstrap, ground.topic, 400)
        wait_until(lambda: given() == RECORDS + 400, "400 more records", SPARK_S)
        result = cluster.ask(stopped, ground.group)
    assert result is not None
    assert (result.records, len({call.pid for call in recorder.given()})) == (RECORDS + 400, 2)
    counts = recorder.counts()
    assert (len(counts), set(counts.values()), ground.committed()) == (RECORDS + 400, {1}, [1100] * PARTITIONS)
    assert ground.members() == []


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_killed_worker_or_executor_is_replaced_without_loss(
    cluster: SessionProcess, ground: Ground, recorder: Recorder, victim: str
) -> None:
    """After SIGKILL of a Python worker or an executor, only batches in progress are redelivered and none is lost."""
    sink = Killer(recorder, victim=victim)
    result = cluster.ask(drained, ground.config, ground.topic, ground.group, sink, batch_size=200)
    counts = recorder.counts()
    assert (recorder.folder / "killed").exists()
    assert (result.records, len(counts), ground.committed()) == (RECORDS, RECORDS, [1000] * PARTITIONS)
    assert sum(counts.values()) - RECORDS <= 2 * 200
    assert ground.members() == []


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_terminated_process_leaves_the_group_and_is_replaced(
    cluster: SessionProcess, ground: Ground, recorder: Recorder, victim: str
) -> None:
    """On SIGTERM, the member of a task leaves the group, and a replacement joins."""
    with a_run(cluster, ground, recorder):
        wait_until(lambda: len(recorder.counts()) == RECORDS, "all records", SPARK_S)
        # An uncommitted batch would be redelivered.
        wait_until(lambda: ground.committed() == [1000] * PARTITIONS, "everything committed", SPARK_S)
        wait_until(
            lambda: [len(member.owned) for member in cluster.ask(reported, ground.group)] == [2, 2],
            "two partitions with each member",
            SPARK_S,
        )
        ended = cluster.ask(reported, ground.group)[0]
        os.kill(ended.pid if victim == "worker" else executor_above(ended.pid), signal.SIGTERM)

        def is_replaced() -> bool:
            now = cluster.ask(reported, ground.group)
            return now[0].attempt > ended.attempt and [len(member.owned) for member in now] == [2, 2]

        wait_until(is_replaced, "another process", SPARK_S)
        produce(ground.bootstrap, ground.topic, 400)
        wait_until(lambda: len(recorder.counts()) == RECORDS + 400, "400 more records", SPARK_S)
        assert cluster.ask(stopped, ground.group) is not None
    assert set(recorder.counts().values()) == {1}
    assert ground.members() == []


@dataclass(frozen=True, slots=True)
class DiesLate:
    """A sink whose first process waits until the run is being stopped, and then dies."""

    folder: Path

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """Wait and die, or do nothing."""
        try:
            (self.folder / "waits").touch(exist_ok=False)
        except FileExistsError:
            return
        wait_until((self.folder / "stopping").exists, "the stop", SPARK_S)
        os.kill(os.getpid(), signal.SIGKILL)


def test_task_killed_during_stop_leaves_no_member(cluster: SessionProcess, ground: Ground, tmp_path: Path) -> None:
    """The replacement of a task killed during stop does not join, and the killed task's member is removed."""
    with a_run(cluster, ground, DiesLate(tmp_path)):
        wait_until((tmp_path / "waits").exists, "a sink that waits", SPARK_S)
        assert cluster.ask(stopped, ground.group, 0.1) is None
        (tmp_path / "stopping").touch()
        assert cluster.ask(stopped, ground.group) is not None
    assert ground.members() == []


# ---- drivers ---------------------------------------------------------------------------------------------------------


class Application:
    """A driver in its own process, with an unbounded run."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        words = [ground.bootstrap, ground.topic, ground.group, str(folder)]
        self._errors = (folder / "stderr").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.application", *words],
            # Spark 4.0 creates its folder `artifacts` in the current folder.
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            },
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            # A Ctrl-C at a terminal reaches the whole process group.
            start_new_session=True,
        )

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ended(self) -> int:
        """Wait for the end of the process; return its exit code."""
        return self.process.wait(SPARK_S)

    def close(self) -> None:
        """End whatever is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def until_nobody_is_left(ground: Ground) -> None:
    """Return when the group has no members; this takes far less than the session timeout of 45 s."""
    wait_until(lambda: not ground.members(), "a group without members", SOONER_THAN_A_SESSION_S)


def test_interrupted_driver_commits_its_batches_and_leaves(ground: Ground, recorder: Recorder) -> None:
    """On Ctrl-C, the records that the sinks accepted are committed, and all members leave the group."""
    with closing(Application(ground, recorder.folder)) as application:
        assert application.line() == "ready"
        os.killpg(application.process.pid, signal.SIGINT)
        assert json.loads(application.line()) == {"stopped": True}
        application.ended()
        until_nobody_is_left(ground)
        assert set(recorder.counts().values()) == {1}
        assert sum(ground.committed()) == len(recorder.counts())


def test_killed_driver_leaves_no_member_in_the_group(ground: Ground, recorder: Recorder) -> None:
    """After SIGKILL of the driver, its tasks finish and commit their batches and leave the group."""
    with closing(Application(ground, recorder.folder)) as application:
        assert application.line() == "ready"
        application.process.kill()
        application.ended()
        until_nobody_is_left(ground)
        assert sum(ground.committed()) == len(recorder.counts())
