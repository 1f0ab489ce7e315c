"""Spark clusters for the tests, and sessions in their own processes; pytest's process has the local session."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Concatenate, ParamSpec, Self, TypeVar, cast

import pyspark
from pyspark.sql import SparkSession

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import draw_ports
from consumer_membership.spark import DrainResult, RunHandle, RunResult, drain, member_task, run
from consumer_membership.spark.control import MemberProgress
from consumer_membership.types import OffsetAndMetadata
from tests.conftest import QUICK_JAVA
from tests.support.kafka import create_topic, produce, unique
from tests.support.network import Host
from tests.support.newest_pyspark import connect_libraries
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
#: The prefix for a Spark Connect session: before a master, pyspark starts a server; before `sc://`, it uses one.
CONNECT = "connect+"
#: The configuration of all sessions that start their own driver; a test may override its keys.
_OF_A_DRIVER: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
#: A session takes a minute to start on a busy machine.
SPARK_S = 150.0

AskedT = ParamSpec("AskedT")
AnswerT = TypeVar("AnswerT")


class Ground:
    """A topic with records, and a group."""

    def __init__(self, broker: Broker, partitions: int, records: int) -> None:
        self.config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        self.bootstrap = broker.bootstrap_servers
        self.topic = create_topic(broker.bootstrap_servers, unique("spark"), partitions)
        self.group = unique("group")
        produce(broker.bootstrap_servers, self.topic, records)

    def another_group(self) -> Self:
        """The same topic with another group."""
        other = copy(self)
        other.group = unique("group")
        return other

    def committed(self) -> list[int]:
        """The group's committed offsets, by partition."""
        committed = GroupAdmin(self.config).committed(self.group)
        return [at.offset for _, at in sorted(committed.items()) if isinstance(at, OffsetAndMetadata)]

    def members(self) -> list[str]:
        """The instance ids in the group."""
        return sorted(member.instance_id or "" for member in GroupAdmin(self.config).describe(self.group).group.members)


# ---- clusters --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Here:
    """An address of this machine as a place for a daemon; a `Host` of a network is another kind of place."""

    address: str = "127.0.0.1"

    def entered(self) -> AbstractContextManager[None]:
        """Do nothing: this process is already here."""
        return nullcontext()


@contextmanager
def a_standalone_cluster(
    folder: Path, workers: Sequence[Here | Host], cores: int = 1, *, master: Here | Host | None = None
) -> Iterator[str]:
    """Start a master, and a worker at each of these places, each in its own process; yield the master's address.

    The processes of a worker look up programs in `folder / "bin" / <its address>` first.
    """
    home = Path(pyspark.__file__).parent
    (port,) = draw_ports(1)
    first = master or Here()
    at = f"spark://{first.address}:{port}"
    words = ["master.Master", "--host", first.address, "--webui-port", "0", "--port", str(port)]
    daemons: list[tuple[Here | Host, list[str]]] = [(first, words)]
    sized = ["--webui-port", "0", "--cores", str(cores), "--memory", "1g"]
    daemons += [(place, ["worker.Worker", "--host", place.address, *sized, at]) for place in workers]
    with ExitStack() as stack:
        for number, (place, (name, *rest)) in enumerate(daemons):
            log = stack.enter_context((folder / f"daemon-{number}").open("w"))
            environment = {
                **os.environ,
                "PATH": os.pathsep.join([str(folder / "bin" / place.address), os.environ["PATH"]]),
                "SPARK_LOCAL_IP": place.address,
                "SPARK_WORKER_DIR": str(folder / "work"),
            }
            with place.entered():
                process = subprocess.Popen(
                    [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *rest],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            stack.callback(process.wait)
            stack.callback(_end, process)
        yield at


@contextmanager
def a_connect_server(folder: Path, master: str) -> Iterator[str]:
    """A Spark Connect server in its own process; yields its address for clients."""
    home = Path(pyspark.__file__).parent
    libraries = str(connect_libraries())
    (port,) = draw_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", master, *words]
    log = folder / "connect-server"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), *program, "spark-internal"],
            # The server keeps its clients' artifacts in its working folder.
            cwd=folder,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]), libraries]),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: "server started at" in log.read_text() or process.poll() is not None,
                "the server of Spark Connect",
                SPARK_S,
            )
            assert process.poll() is None, log.read_text()
            yield f"sc://127.0.0.1:{port}"
        finally:
            _end(process)
            process.wait()


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """End a process with its children; it may already be killed."""
    with suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGTERM)


# ---- a session in its own process ------------------------------------------------------------------------------------


class SessionProcess:
    """A driver in its own process, which calls the requested functions and ends with this process."""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        context = get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, master, dict(settings)), daemon=True)
        self._process.start()
        there.close()

    def ask(
        self,
        function: Callable[Concatenate[SparkSession, AskedT], AnswerT],
        *asked: AskedT.args,
        **named: AskedT.kwargs,
    ) -> AnswerT:
        """Call a module-level function in the process with its session and these arguments; return the result."""
        self._here.send((function, asked, named))
        assert self._here.poll(SPARK_S), f"no answer to {function.__name__}"
        is_good, answer = self._here.recv()
        assert is_good, answer
        return cast("AnswerT", answer)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End the process and its children."""
        self._here.close()
        self._process.join(SPARK_S)
        self._process.kill()
        self._process.join()
        self._process.close()


@contextmanager
def port_of_own_servers() -> Iterator[None]:
    """Hold a lock while pyspark runs its own server, because all these servers use the same port of the machine."""
    with (Path(gettempdir()) / "consumer-membership-tests-connect.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _starts_a_server(master: str) -> bool:
    return master.startswith(CONNECT) and not master.startswith(f"{CONNECT}sc://")


@contextmanager
def a_session(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SessionProcess]:
    """A session on a cluster, with the configuration of all tests and these keys."""
    with ExitStack() as stack:
        if _starts_a_server(master):
            stack.enter_context(port_of_own_servers())
        yield stack.enter_context(closing(SessionProcess(master, settings or {})))


def session_of(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Return this process's session; its workers run this interpreter and can import the package and the tests."""
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    if master.startswith(CONNECT):
        # pyspark imports these libraries when it creates a Spark Connect session.
        libraries = str(connect_libraries())
        sys.path.append(libraries)
        os.environ["PYTHONPATH"] = os.pathsep.join([*path, libraries])
        builder = SparkSession.builder.remote(master.removeprefix(CONNECT))
        # A running server ignores driver configuration; a server that this session starts uses it.
        own = {**_OF_A_DRIVER, "spark.connect.grpc.binding.address": "127.0.0.1"}
        shared: Mapping[str, str] = own if _starts_a_server(master) else {}
    else:
        builder = SparkSession.builder.master(master)
        shared = _OF_A_DRIVER
    for key, value in {**shared, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _serve(asked: Connection, master: str, settings: Mapping[str, str]) -> None:
    # pyspark keeps the artifacts of a session in the working folder.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        _answer(asked, session_of(master, settings))
        os.chdir(ROOT)


def _answer(asked: Connection, spark: SparkSession) -> None:
    while True:
        try:
            function, words, named = asked.recv()
        except EOFError:
            break
        try:
            asked.send((True, function(spark, *words, **named)))
        except Exception as failed:  # noqa: BLE001 - `ask` shows any error to the test
            asked.send((False, f"{type(failed).__name__}: {failed}"))
    spark.stop()


# ---- functions that tests call in a SessionProcess -------------------------------------------------------------------

_runs: dict[str, RunHandle] = {}


def drained(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, sink: object, **options: object
) -> DrainResult:
    """Drain with two tasks."""
    return drain(spark, config, [topic], group, sink, 2, **options)  # type: ignore[arg-type]  # untyped options


def given_by_partition(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, sink: object, members: int
) -> None:
    """Consume with `foreachPartition`."""
    task = member_task(config, [topic], sink, group=group)
    spark.range(members).repartition(members).foreachPartition(task)


def started(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, sink: object, **options: object
) -> None:
    """Start a run with two tasks; the other functions find it by its group."""
    _runs[group] = run(spark, config, [topic], group, sink, 2, **options)  # type: ignore[arg-type]  # untyped options


def cancelled(_: SparkSession, /, group: str) -> None:
    """Cancel a run unless it has ended."""
    handle = _runs.pop(group)
    if handle.is_running:
        handle.cancel()


def reported(_: SparkSession, /, group: str) -> tuple[MemberProgress, ...]:
    """The last reports of a run's members."""
    return _runs[group].progress()


def stopped(_: SparkSession, /, group: str, timeout_s: float = SPARK_S) -> RunResult | None:
    """Stop a run; return its result, or None if that takes too long."""
    return _runs[group].stop(timeout_s)


@contextmanager
def a_run(session: SessionProcess, ground: Ground, sink: object, **options: object) -> Iterator[None]:
    """A run that is ended with the block, whatever its outcome."""
    session.ask(started, ground.config, ground.topic, ground.group, sink, **options)
    try:
        yield
    finally:
        session.ask(cancelled, ground.group)
