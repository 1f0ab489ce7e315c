"""Drivers of their own: executors that die, Ctrl-C, a driver that is killed; local-cluster and standalone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyspark
import pytest
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.types import OffsetAndMetadata
from tests.spark.recorders import Recorder
from tests.support.kafka import create_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 100.0
PARTITIONS, RECORDS = 4, 4000


class Application:
    """A driver in a process of its own."""

    def __init__(self, broker: Broker, folder: Path, master: str, mode: str, victim: str) -> None:
        self.config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        self.topic = create_topic(broker.bootstrap_servers, unique("spark"), PARTITIONS)
        self.group = unique("group")
        self.recorder = Recorder(folder)
        produce(broker.bootstrap_servers, self.topic, RECORDS)
        words = [master, broker.bootstrap_servers, self.topic, self.group, str(folder), mode, victim]
        self._errors = (folder / "stderr").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.application", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            # A Ctrl-C at a terminal reaches the whole process group.
            start_new_session=True,
        )

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ended(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE_S)

    def committed(self) -> list[int]:
        """What the group committed, by partition."""
        said = GroupAdmin(self.config).committed(self.group)
        return [at.offset for _, at in sorted(said.items()) if isinstance(at, OffsetAndMetadata)]

    def is_alone(self) -> bool:
        """Whether nobody is left in the group."""
        return not GroupAdmin(self.config).describe(self.group).group.members

    def close(self) -> None:
        """End whatever is left of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def until_alone(application: Application) -> None:
    """Return when nobody is left in the group: long before a session of 45 s ends."""
    Retrying(stop=stop_after_delay(20), wait=wait_fixed(0.1), retry=retry_if_not_result(bool))(application.is_alone)


def test_lost_executor_is_replaced(kafka: Broker, tmp_path: Path) -> None:
    """Kill -9 of an executor's JVM, with all its tasks: nothing is lost, and only batches in hand come twice."""
    with closing(Application(kafka, tmp_path, "local-cluster[2,1,512]", "drain", "executor")) as application:
        assert json.loads(application.line()) == {"records": RECORDS}
        assert application.ended() == 0
        counts = application.recorder.counts()
        assert (tmp_path / "killed").exists()
        assert (len(counts), application.committed()) == (RECORDS, [1000] * PARTITIONS)
        assert sum(counts.values()) - RECORDS <= 2 * 200
        assert application.is_alone()


def test_interrupt_finishes_the_batch_and_leaves(kafka: Broker, tmp_path: Path) -> None:
    """Ctrl-C at the driver's terminal: what the sinks have taken is committed, and nobody stays in the group."""
    with closing(Application(kafka, tmp_path, "local[2]", "run", "nobody")) as application:
        assert application.line() == "ready"
        os.killpg(application.process.pid, signal.SIGINT)
        assert json.loads(application.line()) == {"stopped": True}
        application.ended()
        until_alone(application)
        assert set(application.recorder.counts().values()) == {1}
        assert sum(application.committed()) == len(application.recorder.counts())


def test_killed_driver_leaves_nobody_behind(kafka: Broker, tmp_path: Path) -> None:
    """Kill -9 of the driver: its tasks hear of it, finish their batch, commit and leave."""
    with closing(Application(kafka, tmp_path, "local[2]", "run", "nobody")) as application:
        assert application.line() == "ready"
        application.process.kill()
        application.ended()
        until_alone(application)
        assert sum(application.committed()) == len(application.recorder.counts())


def free_port() -> int:
    """One that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def a_standalone_cluster(folder: Path) -> Iterator[str]:
    """A master and two workers, each a process; the master's address."""
    home = Path(pyspark.__file__).parent
    port = free_port()
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / "work")}
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    words = [
        ["org.apache.spark.deploy.master.Master", *common, "--port", str(port)],
        *[
            [
                "org.apache.spark.deploy.worker.Worker",
                *common,
                "--cores",
                "1",
                "--memory",
                "1g",
                f"spark://127.0.0.1:{port}",
            ]
        ]
        * 2,
    ]
    with ExitStack() as stack:
        for number, one in enumerate(words):
            log = stack.enter_context((folder / f"daemon-{number}").open("w"))
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *one],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGTERM)
        yield f"spark://127.0.0.1:{port}"


def test_standalone_cluster(kafka: Broker, tmp_path: Path) -> None:
    """Executors in processes of a cluster manager; a worker process is killed meanwhile."""
    with (
        a_standalone_cluster(tmp_path) as master,
        closing(Application(kafka, tmp_path, master, "drain", "worker")) as application,
    ):
        assert json.loads(application.line()) == {"records": RECORDS}
        assert application.ended() == 0
        assert (len(application.recorder.counts()), application.committed()) == (RECORDS, [1000] * PARTITIONS)
        assert application.is_alone()
