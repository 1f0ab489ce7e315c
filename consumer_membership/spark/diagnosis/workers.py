"""A small job over the slots that asks each task with what and from where a member would work there; bounded in time.

The job is one of RDDs: it needs no pyarrow in the tasks, which may be what is missing there.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from consumer_membership.spark.diagnosis import examination
from consumer_membership.spark.diagnosis.examination import Endpoint, examine

if TYPE_CHECKING:
    from pyspark import SparkContext

_Examine: TypeAlias = "Callable[[Iterable[object]], Iterator[str]]"

#: With more tasks the same executors would be asked again and again.
_MOST_TASKS = 64
#: Of a large cluster some are enough.
_MOST_BROKERS = 24
#: A broker that does not answer by then is behind something that drops packets.
_CONNECT_S = 3.0
#: How long the first task waits for the last one to start, and the part of the whole time that it may take: a Python
#: worker needs a second or two, and several on a machine that is busy.
_MEETING_S, _MEETING_SHARE = 10.0, 0.3
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package as a process has it: its version, or why it cannot be imported."""

    name: str
    version: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What one task found where it ran.

    `clock`: seconds since 1970 by its own clock when it began. An empty error means that all went well:
    `driver_error` of connecting to the driver, `sink_error` of reading the sink, `broker_errors` of connecting to each
    address, and `file_errors` of opening each file, in the facts' order.
    """

    host: str
    python: str
    executable: str
    packages: tuple[Package, ...]
    clock: float
    driver_error: str = ""
    sink_error: str = ""
    broker_errors: tuple[str, ...] = ()
    file_errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What all tasks of the job found, beside the same of the driver.

    `tasks` were started, and `at_once` of them ran at the same time, as far as could be seen. `failure` is why there is
    no report, in Spark's words; empty otherwise. `began_at` and `ended_at` are by the driver's clock. `advertised` are
    the addresses of the brokers as they say themselves, `bootstrap` those of the configuration; `files` are its paths,
    by their keys.
    """

    driver: WorkerReport
    tasks: int
    at_once: int = 0
    reports: tuple[WorkerReport, ...] = ()
    failure: str = ""
    is_too_late: bool = False
    began_at: float = 0.0
    ended_at: float = 0.0
    advertised: tuple[Endpoint, ...] = ()
    bootstrap: tuple[Endpoint, ...] = ()
    driver_address: Endpoint = ("", 0)
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def brokers(self) -> tuple[Endpoint, ...]:
        """Every address that each task connected to, in the order of the reports."""
        return distinct(self.advertised, self.bootstrap)


def distinct(*endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """All of them in their order, each once, and not too many."""
    return tuple(dict.fromkeys(chain(*endpoints)))[:_MOST_BROKERS]


def worker_facts(
    context: SparkContext,
    slots: int | None,
    *,
    advertised: Sequence[Endpoint],
    bootstrap: Sequence[Endpoint],
    sink: bytes,
    files: Mapping[str, str],
    timeout_s: float,
) -> WorkerFacts:
    """What one task for each slot says; without an answer after `timeout_s` the job is cancelled."""
    tasks = min(_MOST_TASKS, max(1, slots or 1))
    host = str(context.getConf().get("spark.driver.host", "localhost"))
    meeting_s = min(_MEETING_S, timeout_s * _MEETING_SHARE)
    with _Meeting(str(context.getConf().get("spark.driver.bindAddress", host)), tasks, meeting_s) as meeting:
        address = (host, meeting.port)
        brokers, paths = distinct(advertised, bootstrap), tuple(files.values())
        asked = partial(examine, address, brokers, sink, paths, _CONNECT_S, meeting_s + _CONNECT_S)
        began_at = time.time()
        outcome = _outcome(context, asked, tasks, timeout_s)
        ended_at, at_once = time.time(), meeting.at_once
    return WorkerFacts(
        driver=_own_report(),
        tasks=tasks,
        at_once=at_once,
        reports=outcome if isinstance(outcome, tuple) else (),
        failure=outcome if isinstance(outcome, str) else "",
        is_too_late=outcome is None,
        began_at=began_at,
        ended_at=ended_at,
        advertised=tuple(advertised),
        bootstrap=tuple(bootstrap),
        driver_address=address,
        files=files,
    )


def _outcome(
    context: SparkContext, asked: _Examine, tasks: int, timeout_s: float
) -> tuple[WorkerReport, ...] | str | None:
    """The reports, or Spark's words, or None after that time."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with pyspark
    from pyspark import InheritableThread, cloudpickle  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(examination)  # type: ignore[no-untyped-call]  # it has no types
    group = f"consumer-membership-check-{uuid.uuid4().hex[:12]}"
    outcomes: queue.SimpleQueue[tuple[WorkerReport, ...] | str] = queue.SimpleQueue()

    def ask() -> None:
        # A job's group belongs to the thread, and is not left behind in the caller's.
        context.setJobGroup(group, "consumer_membership: check of the workers", interruptOnCancel=True)
        try:
            told = context.parallelize(range(tasks), tasks).mapPartitions(asked).collect()
        except (Py4JError, PySparkException) as error:
            outcomes.put(_words(error))
        else:
            outcomes.put(tuple(_report(json.loads(one)) for one in told))

    InheritableThread(target=ask, name="consumer-membership-check", daemon=True).start()
    try:
        return outcomes.get(timeout=timeout_s)
    except (queue.Empty, KeyboardInterrupt) as end:
        context.cancelJobGroup(group)
        if isinstance(end, KeyboardInterrupt):
            raise
        return None


def _words(error: Exception) -> str:
    """Spark's message without the stack of the JVM, which says where in Spark it happened."""
    java = getattr(error, "java_exception", None)
    said = str(error if java is None else java.getMessage())
    return "\n".join(line for line in said.splitlines() if not line.startswith(("\tat ", "Driver stacktrace:"))).strip()


def _own_report() -> WorkerReport:
    """The driver, examined as a task is."""
    return _report(json.loads(next(examine(("127.0.0.1", 0), (), b"", (), 1.0, 0.0, ()))))


def _report(words: Mapping[str, Any]) -> WorkerReport:
    return WorkerReport(
        host=str(words["host"]),
        python=str(words["python"]),
        executable=str(words["executable"]),
        packages=tuple(Package(**package) for package in words["packages"]),
        clock=float(words["clock"]),
        driver_error=str(words["driver"]),
        sink_error=str(words["sink"]),
        broker_errors=tuple(map(str, words["brokers"])),
        file_errors=tuple(map(str, words["files"])),
    )


class _Meeting:
    """Where the tasks of the job connect to; it lets them go when all are there, or after a while.

    Tasks that run one after another in the same slot never meet: so it sees how many run at once.
    """

    def __init__(self, bind: str, expected: int, patience_s: float) -> None:
        self._listener = _listener(bind, expected)
        self._expected = expected
        self._patience_s = patience_s
        self._thread = threading.Thread(target=self._meet, name="consumer-membership-meeting", daemon=True)
        self.port = int(self._listener.getsockname()[1])
        self.at_once = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            # Wakes the accepting thread, which closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _meet(self) -> None:
        with contextlib.suppress(OSError):
            self._gather()
            # Whoever comes later is not kept.
            self._listener.settimeout(None)
            while True:
                self._listener.accept()[0].close()

    def _gather(self) -> None:
        with contextlib.ExitStack() as present:
            while self.at_once < self._expected:
                try:
                    connection, _ = self._listener.accept()
                except TimeoutError:
                    return
                present.enter_context(connection)
                self.at_once += 1
                if self.at_once == 1:
                    deadline = time.monotonic() + self._patience_s
                self._listener.settimeout(max(_SHORTEST_S, deadline - time.monotonic()))


def _listener(bind: str, backlog: int) -> socket.socket:
    """Where the driver listens by its configuration, else on every interface."""
    try:
        return socket.create_server((bind, 0), backlog=backlog)
    except OSError:
        return socket.create_server(("", 0), backlog=backlog)
