"""The checks of the executors by a small job over the slots, bounded in time, and their findings.

It is an RDD job, because that needs no pyarrow in the tasks, where pyarrow may be missing.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from consumer_membership.installation import install_command
from consumer_membership.spark.diagnosis import examination
from consumer_membership.spark.diagnosis.catalogue import finding
from consumer_membership.spark.diagnosis.examination import Endpoint, examine, examine_rows
from consumer_membership.spark.diagnosis.findings import Finding

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: The reports; or Spark's error if there are no reports; or None after a timeout.
_Outcome: TypeAlias = "tuple[WorkerReport, ...] | str | None"

#: More tasks would only check the same executors again.
_MOST_TASKS = 64
#: For a large cluster, a part of the brokers is enough.
_MOST_BROKERS = 24
#: If a broker does not respond within this time, a firewall probably drops the packets.
_CONNECT_S = 3.0
#: How long the first task waits for the last task to start, and at most which part of the whole timeout: a Python
#: worker needs one or two seconds to start, and several seconds on a busy machine.
_MEETING_S, _MEETING_SHARE = 10.0, 0.3
_SHORTEST_S = 0.001
#: More than the difference between clocks that are synchronized by NTP.
_SKEW_S = 1.0
#: The files whose content can be set in the configuration instead.
_HAS_TEXT = frozenset({"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"})
#: Parts of Spark's error for a job whose workers did not start, and their meaning.
_NO_PYTHON = "it is not Python, or cannot import pyspark"
_TRANSLATIONS = {
    "PYTHON_VERSION_MISMATCH": "executors run another minor version of Python than the driver",
    "Cannot run program": "executors do not have this interpreter",
    "failed to connect back": f"the executors' interpreter did not connect to them: {_NO_PYTHON}",
    "pyspark.daemon": f"the executors' interpreter did not start pyspark's daemon: {_NO_PYTHON}",
    "No module named 'pyspark": "the executors' interpreter cannot import pyspark",
}
#: The exceptions around the cause, which only name the place.
_AROUND = re.compile(r"java\.io\.IOException: |\[PYTHON_VERSION_MISMATCH\] |org\.apache\.spark\.SparkException: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package in one process: its version, or the error of its import."""

    name: str
    version: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """The result of one task (`examination`).

    `clock` is the task's clock at its start, in seconds since 1970. An error is empty if the check succeeded:
    `driver_error` for connecting to the driver, `sink_error` for reading the sink, `broker_errors` for connecting to
    each address, `file_errors` for opening each file, in the order of `WorkerFacts`.
    """

    host: str
    python: str
    executable: str
    packages: Sequence[Package]
    clock: float
    driver_error: str = ""
    sink_error: str = ""
    broker_errors: Sequence[str] = ()
    file_errors: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """The results of all tasks of the job, and of the driver.

    `tasks` tasks were started, and at least `at_once` of them ran at the same time (None: not measured). `failure` is
    Spark's error if there are no reports, else empty. `began_at` and `ended_at` are by the driver's clock. `advertised`
    has the advertised addresses of the brokers, `bootstrap` those of the configuration, and `files` its paths, by key.
    """

    driver: WorkerReport
    tasks: int
    at_once: int | None = 0
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
    def here(self) -> str:
        """The name of this process in messages: tasks cannot connect to a Spark Connect client."""
        return "client" if self.at_once is None else "driver"

    @property
    def brokers(self) -> tuple[Endpoint, ...]:
        """Every address that each task connected to, in the order of the reports."""
        return _distinct(self.advertised, self.bootstrap)


def _distinct(*endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints in order, each once, up to the largest number."""
    return tuple(dict.fromkeys(chain(*endpoints)))[:_MOST_BROKERS]


def worker_facts(
    context: SparkContext,
    slots: int,
    *,
    advertised: Sequence[Endpoint],
    bootstrap: Sequence[Endpoint],
    sink: bytes,
    files: Mapping[str, str],
    timeout_s: float,
) -> WorkerFacts:
    """Run one task for each slot, and return the results; the job is cancelled after `timeout_s`."""
    from pyspark import InheritableThread  # imported here: this package does not import pyspark before it is used

    tasks = min(_MOST_TASKS, slots)
    host = str(context.getConf().get("spark.driver.host", "localhost"))
    meeting_s = min(_MEETING_S, timeout_s * _MEETING_SHARE)
    bind = str(context.getConf().get("spark.driver.bindAddress", host))
    group = _name()

    with contextlib.closing(_Meeting(bind, tasks, meeting_s)) as meeting:
        address = (host, meeting.port)
        brokers, paths = _distinct(advertised, bootstrap), tuple(files.values())
        task = partial(examine, address, brokers, sink, paths, _CONNECT_S, meeting_s + _CONNECT_S)

        def run() -> Sequence[str]:
            # In another thread, because a job group would stay set in the caller's thread.
            context.setJobGroup(group, "consumer_membership: check of the workers", interruptOnCancel=True)
            return context.parallelize(range(tasks), tasks).mapPartitions(task).collect()

        began_at = time.time()
        outcome = _outcome(InheritableThread, run, lambda: context.cancelJobGroup(group), timeout_s)
        ended_at, at_once = time.time(), meeting.at_once
    return WorkerFacts(
        driver=_own(),
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


def connect_facts(
    spark: SparkSession,
    tasks: int,
    *,
    advertised: Sequence[Endpoint],
    bootstrap: Sequence[Endpoint],
    sink: bytes,
    files: Mapping[str, str],
    timeout_s: float,
) -> WorkerFacts:
    """Do the same as `worker_facts` with Spark Connect, without counting the tasks that run at the same time."""
    tasks = min(_MOST_TASKS, tasks)
    tag = _name()
    task = partial(examine_rows, _distinct(advertised, bootstrap), sink, tuple(files.values()), _CONNECT_S)

    def run() -> Sequence[str]:
        # A tag applies only to the jobs of this thread.
        spark.addTag(tag)
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(task, "answer string")
        return [row.answer for row in rows.collect()]

    began_at = time.time()
    outcome = _outcome(threading.Thread, run, lambda: spark.interruptTag(tag), timeout_s)
    return WorkerFacts(
        driver=_own(),
        tasks=tasks,
        at_once=None,
        reports=outcome if isinstance(outcome, tuple) else (),
        failure=outcome if isinstance(outcome, str) else "",
        is_too_late=outcome is None,
        began_at=began_at,
        ended_at=time.time(),
        advertised=tuple(advertised),
        bootstrap=tuple(bootstrap),
        files=files,
    )


def _name() -> str:
    return f"consumer-membership-check-{uuid.uuid4().hex[:12]}"


def _own() -> WorkerReport:
    """Run the checks of a task in this process."""
    return _report(next(examine(None, (), b"", (), 1.0, 0.0, ())))


def _outcome(
    thread: type[threading.Thread], run: Callable[[], Sequence[str]], cancel: Callable[[], object], timeout_s: float
) -> _Outcome:
    """Run the job in another thread, and return its outcome; cancel it after `timeout_s`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    cloudpickle.register_pickle_by_value(examination)  # type: ignore[no-untyped-call]  # it has no types
    outcomes: queue.SimpleQueue[tuple[WorkerReport, ...] | str] = queue.SimpleQueue()

    def put() -> None:
        try:
            results = run()
        except (Py4JError, PySparkException) as error:
            outcomes.put(_message_of(error))
        else:
            outcomes.put(tuple(map(_report, results)))

    thread(target=put, name="consumer-membership-check", daemon=True).start()
    try:
        return outcomes.get(timeout=timeout_s)
    except (queue.Empty, KeyboardInterrupt) as end:
        cancel()
        if isinstance(end, KeyboardInterrupt):
            raise
        return None


def _message_of(error: Exception) -> str:
    """Return Spark's message without the stack trace of the JVM."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    return "\n".join(line for line in text.splitlines() if not line.startswith(("\tat ", "Driver stacktrace:"))).strip()


def _report(result: str) -> WorkerReport:
    fields: dict[str, Any] = json.loads(result)
    return WorkerReport(**{**fields, "packages": [Package(**package) for package in fields["packages"]]})


class _Meeting:
    """Counts the tasks that run at the same time: each connects, and is released when all have connected, or in time.

    Tasks that run one after another in the same slot are never connected at the same time.
    """

    def __init__(self, bind: str, expected: int, patience_s: float) -> None:
        try:
            self._listener = socket.create_server((bind, 0), backlog=expected)
        except OSError:  # not an address of this machine: listen on every interface
            self._listener = socket.create_server(("", 0), backlog=expected)
        self.port = int(self._listener.getsockname()[1])
        self.at_once = 0
        self._thread = threading.Thread(
            target=self._meet, args=(expected, patience_s), name="consumer-membership-meeting", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Wakes the accepting thread; `close` alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _meet(self, expected: int, patience_s: float) -> None:
        with contextlib.suppress(OSError):
            with contextlib.ExitStack() as present, contextlib.suppress(TimeoutError):
                while self.at_once < expected:
                    present.enter_context(self._listener.accept()[0])
                    self.at_once += 1
                    if self.at_once == 1:
                        deadline = time.monotonic() + patience_s
                    self._listener.settimeout(max(_SHORTEST_S, deadline - time.monotonic()))
            # Later tasks are released at once.
            self._listener.settimeout(None)
            while True:
                self._listener.accept()[0].close()


# ---- findings --------------------------------------------------------------------------------------------------------


def worker_findings(facts: WorkerFacts, python: str, instances: int | None) -> Iterator[Finding]:
    """Yield one finding for each check; `python` is the Python command of the executors."""
    found = partial(finding, w=facts, python=python, hosts=_hosts(facts.reports))
    if facts.is_too_late:
        # This does not prove a fault: on a busy machine, the same session may succeed later.
        begun = "an unknown number" if facts.at_once is None else facts.at_once
        yield found("job too late", seconds=facts.ended_at - facts.began_at, begun=begun)
    elif facts.failure:
        yield _failed(facts.failure, python)
    else:
        if facts.at_once is not None:
            # A task that cannot reach the driver was not counted.
            is_held = facts.at_once < min(facts.tasks, instances or facts.tasks)
            yield found("slots held" if is_held and not any(one.driver_error for one in facts.reports) else "at once")
        yield _pythons(facts)
        yield from (_package(facts, own) for own in facts.driver.packages)
        yield from _tried(facts)
        yield from _clocks(facts)


def _tried(facts: WorkerFacts) -> Iterator[Finding]:
    """Yield the findings for the connections and files that each task tried."""
    reports = facts.reports

    def tried(errors: Sequence[str], bad: str, good: str, **values: object) -> Iterator[Finding]:
        failed = [number for number, error in enumerate(errors) if error]
        if failed:
            yield finding(bad, failed=_hosts(reports[number] for number in failed), error=errors[failed[0]], **values)
        elif good:
            yield finding(good, hosts=_hosts(reports), **values)

    if facts.at_once is not None:
        errors = [one.driver_error for one in reports]
        yield from tried(errors, "driver not reached", "driver", address=facts.driver_address)
    reached = [{at for at, error in zip(facts.brokers, one.broker_errors, strict=True) if not error} for one in reports]
    for number, at in enumerate(facts.brokers):
        # A bootstrap server may be unreachable if each of these tasks reached another bootstrap server.
        is_spare = all(at in ats or ats.intersection(facts.bootstrap) for ats in reached) and at not in facts.advertised
        bad = "spare broker not reached" if is_spare else "broker not reached"
        yield from tried([one.broker_errors[number] for one in reports], bad, "broker", at=at)
    for number, (key, path) in enumerate(facts.files.items()):
        instead = f", or set its content as {key.removesuffix('location')}pem" if key in _HAS_TEXT else ""
        errors = [one.file_errors[number] for one in reports]
        yield from tried(errors, "file missing", "file", key=key, path=path, instead=instead)
    yield from tried([one.sink_error for one in reports], "sink not read", "")


def _failed(failure: str, python: str) -> Finding:
    lines = [line for line in failure.splitlines() if line.strip()] or ["it failed without a message"]
    for part, meaning in _TRANSLATIONS.items():
        for line in lines:
            if part in line:
                error = _AROUND.split(line)[-1].strip()
                return finding("wrong Python", error=error, meaning=f"{meaning}; the command is {python!r}")
    return finding("job failed", error=lines[0], python=python)


def _pythons(facts: WorkerFacts) -> Finding:
    own = facts.driver.python
    others = {
        f"{one.python} ({one.executable} on {one.host})"
        for one in facts.reports
        if one.python.split(".")[:2] != own.split(".")[:2]
    }
    if others:
        meaning = "objects that one minor version of Python has pickled cannot be read by another"
        return finding("wrong Python", error=f"{own} on the {facts.here}, {_listed(others)}", meaning=meaning)
    return finding("same Python", w=facts, own=own, others=_listed({one.python for one in facts.reports}))


def _package(facts: WorkerFacts, own: Package) -> Finding:
    found = [(one, package) for one in facts.reports for package in one.packages if package.name == own.name]
    missing = [(one, package) for one, package in found if package.error]
    if missing:
        first, package = missing[0]
        failed = _hosts(one for one, _ in missing)
        how = f"pip install {own.name.replace('_', '-')}=={own.version}"
        if own.name == "consumer_membership" or not own.version:
            how = f"{install_command('spark')} (a path must exist on that host)"
        return finding("package missing", own=own, first=first, error=package.error, failed=failed, how=how)
    others = {package.version for _, package in found}
    how = f"install {own.name} {own.version} on every executor" if own.version else f"install {own.name} here also"
    name = "package differs" if others - {own.version} else "package"
    return finding(name, w=facts, own=own, version=own.version or own.error, others=_listed(others), how=how)


def _clocks(facts: WorkerFacts) -> Iterator[Finding]:
    """Yield a finding for each host whose clock differs, by at least the time outside the begin and end of the job."""
    skews: dict[str, float] = {}
    for one in facts.reports:
        skew = max(0.0, one.clock - facts.ended_at) + min(0.0, one.clock - facts.began_at)
        skews[one.host] = max(skew, skews.get(one.host, 0.0), key=abs)
    for host, skew in sorted(skews.items()):
        if abs(skew) > _SKEW_S:
            yield finding(
                "clock", w=facts, host=host, seconds=abs(skew), direction="ahead of" if skew > 0 else "behind"
            )


def _hosts(reports: Iterable[WorkerReport]) -> str:
    return _listed({report.host for report in reports})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
