"""What a small job over the slots finds where a member would work, and what that means; bounded in time.

The job is one of RDDs: it needs no pyarrow in the tasks, which may be what is missing there.
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

#: The reports; or Spark's words of why there are none; or None where nothing was said in time.
_Outcome: TypeAlias = "tuple[WorkerReport, ...] | str | None"

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
#: More than clocks that are kept by NTP are apart.
_SKEW_S = 1.0
#: What may be given as a text instead, which travels with the configuration.
_HAS_TEXT = frozenset({"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"})
#: What Spark says of a job whose workers did not start, and what that means.
_NO_PYTHON = "it is no Python, or pyspark cannot be imported in it"
_TRANSLATIONS = {
    "PYTHON_VERSION_MISMATCH": "executors run another minor version of Python than the driver",
    "Cannot run program": "executors do not have the interpreter that they are to run",
    "failed to connect back": f"the interpreter of executors did not find its way back to them: {_NO_PYTHON}",
    "pyspark.daemon": f"the interpreter of executors did not start pyspark's daemon: {_NO_PYTHON}",
    "No module named 'pyspark": "pyspark cannot be imported in the interpreter of executors",
}
#: The exceptions around what went wrong, which say where it did.
_AROUND = re.compile(r"java\.io\.IOException: |\[PYTHON_VERSION_MISMATCH\] |org\.apache\.spark\.SparkException: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package as a process has it: its version, or why it cannot be imported."""

    name: str
    version: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What one task found where it ran, as `examination` says it.

    `clock`: seconds since 1970 by its own clock when it began. An empty error means that all went well:
    `driver_error` of connecting to the driver, `sink_error` of reading the sink, `broker_errors` of connecting to each
    address, and `file_errors` of opening each file, in the facts' order.
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
    """What all tasks of the job found, beside the same of the driver.

    `tasks` were started, and `at_once` of them ran at the same time, as far as could be seen; None where nobody looked.
    `failure` is why there is no report, in Spark's words; empty otherwise. `began_at` and `ended_at` are by the
    driver's clock. `advertised` are the addresses of the brokers as they say themselves, `bootstrap` those of the
    configuration; `files` are its paths, by their keys.
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
        """What the process is that asked: a client of Spark Connect is met by no task."""
        return "client" if self.at_once is None else "driver"

    @property
    def brokers(self) -> tuple[Endpoint, ...]:
        """Every address that each task connected to, in the order of the reports."""
        return _distinct(self.advertised, self.bootstrap)


def _distinct(*endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """All of them in their order, each once, and not too many."""
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
    """What one task for each slot says; without an answer after `timeout_s` the job is cancelled."""
    from pyspark import InheritableThread  # not to import this package

    tasks = min(_MOST_TASKS, slots)
    host = str(context.getConf().get("spark.driver.host", "localhost"))
    meeting_s = min(_MEETING_S, timeout_s * _MEETING_SHARE)
    bind = str(context.getConf().get("spark.driver.bindAddress", host))
    group = _name()

    with contextlib.closing(_Meeting(bind, tasks, meeting_s)) as meeting:
        address = (host, meeting.port)
        brokers, paths = _distinct(advertised, bootstrap), tuple(files.values())
        asked = partial(examine, address, brokers, sink, paths, _CONNECT_S, meeting_s + _CONNECT_S)

        def ask() -> Sequence[str]:
            # A job's group belongs to the thread, and is not left behind in the caller's.
            context.setJobGroup(group, "consumer_membership: check of the workers", interruptOnCancel=True)
            return context.parallelize(range(tasks), tasks).mapPartitions(asked).collect()

        began_at = time.time()
        outcome = _outcome(InheritableThread, ask, lambda: context.cancelJobGroup(group), timeout_s)
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
    """As `worker_facts`, of so many tasks through Spark Connect: whether they run at the same time is not seen."""
    tasks = min(_MOST_TASKS, tasks)
    tag = _name()
    asked = partial(examine_rows, _distinct(advertised, bootstrap), sink, tuple(files.values()), _CONNECT_S)

    def ask() -> Sequence[str]:
        # Of this thread's jobs alone.
        spark.addTag(tag)
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(asked, "answer string")
        return [row.answer for row in rows.collect()]

    began_at = time.time()
    outcome = _outcome(threading.Thread, ask, lambda: spark.interruptTag(tag), timeout_s)
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
    """This process, examined as a task is."""
    return _report(next(examine(None, (), b"", (), 1.0, 0.0, ())))


def _outcome(
    thread: type[threading.Thread], ask: Callable[[], Sequence[str]], cancel: Callable[[], object], timeout_s: float
) -> _Outcome:
    """What the job says that is asked in a thread of its own, and cancelled after that time."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    cloudpickle.register_pickle_by_value(examination)  # type: ignore[no-untyped-call]  # it has no types
    outcomes: queue.SimpleQueue[tuple[WorkerReport, ...] | str] = queue.SimpleQueue()

    def put() -> None:
        try:
            told = ask()
        except (Py4JError, PySparkException) as error:
            outcomes.put(_words(error))
        else:
            outcomes.put(tuple(map(_report, told)))

    thread(target=put, name="consumer-membership-check", daemon=True).start()
    try:
        return outcomes.get(timeout=timeout_s)
    except (queue.Empty, KeyboardInterrupt) as end:
        cancel()
        if isinstance(end, KeyboardInterrupt):
            raise
        return None


def _words(error: Exception) -> str:
    """Spark's message without the stack of the JVM, which says where in Spark it happened."""
    java = getattr(error, "java_exception", None)
    said = str(error if java is None else java.getMessage())
    return "\n".join(line for line in said.splitlines() if not line.startswith(("\tat ", "Driver stacktrace:"))).strip()


def _report(words: str) -> WorkerReport:
    said: dict[str, Any] = json.loads(words)
    return WorkerReport(**{**said, "packages": [Package(**package) for package in said["packages"]]})


class _Meeting:
    """Where the tasks of the job connect to; it lets them go when all are there, or after a while.

    Tasks that run one after another in the same slot never meet: so it sees how many run at once.
    """

    def __init__(self, bind: str, expected: int, patience_s: float) -> None:
        try:
            self._listener = socket.create_server((bind, 0), backlog=expected)
        except OSError:  # no address of this machine: on every interface
            self._listener = socket.create_server(("", 0), backlog=expected)
        self.port = int(self._listener.getsockname()[1])
        self.at_once = 0
        self._thread = threading.Thread(
            target=self._meet, args=(expected, patience_s), name="consumer-membership-meeting", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Wakes the accepting thread, which closing alone does not.
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
            # Whoever comes later is not kept.
            self._listener.settimeout(None)
            while True:
                self._listener.accept()[0].close()


# ---- what it means ---------------------------------------------------------------------------------------------------


def worker_findings(facts: WorkerFacts, python: str, instances: int | None) -> Iterator[Finding]:
    """One finding for everything that was looked at; `python` is the command that executors run."""
    said = partial(finding, w=facts, python=python, hosts=_hosts(facts.reports))
    if facts.is_too_late:
        # No fault is proven: on a machine that is busy the same session does it a little later.
        begun = "an unknown number" if facts.at_once is None else facts.at_once
        yield said("job too late", seconds=facts.ended_at - facts.began_at, begun=begun)
    elif facts.failure:
        yield _failed(facts.failure, python)
    else:
        if facts.at_once is not None:
            # Who could not reach the driver could not meet the others there.
            is_held = facts.at_once < min(facts.tasks, instances or facts.tasks)
            yield said("slots held" if is_held and not any(one.driver_error for one in facts.reports) else "at once")
        yield _pythons(facts)
        yield from (_package(facts, own) for own in facts.driver.packages)
        yield from _tried(facts)
        yield from _clocks(facts)


def _tried(facts: WorkerFacts) -> Iterator[Finding]:
    """What each task tried where it ran."""
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
        # One of several bootstrap servers may be away, where each of these tasks reached another one.
        is_spare = all(at in ats or ats.intersection(facts.bootstrap) for ats in reached) and at not in facts.advertised
        bad = "spare broker not reached" if is_spare else "broker not reached"
        yield from tried([one.broker_errors[number] for one in reports], bad, "broker", at=at)
    for number, (key, path) in enumerate(facts.files.items()):
        instead = f", or give its text as {key.removesuffix('location')}pem" if key in _HAS_TEXT else ""
        errors = [one.file_errors[number] for one in reports]
        yield from tried(errors, "file missing", "file", key=key, path=path, instead=instead)
    yield from tried([one.sink_error for one in reports], "sink not read", "")


def _failed(said: str, python: str) -> Finding:
    lines = [line for line in said.splitlines() if line.strip()] or ["it failed without a word"]
    for words, meaning in _TRANSLATIONS.items():
        for line in lines:
            if words in line:
                said = _AROUND.split(line)[-1].strip()
                return finding("wrong Python", said=said, meaning=f"{meaning}; the command is {python!r}")
    return finding("job failed", said=lines[0], python=python)


def _pythons(facts: WorkerFacts) -> Finding:
    own = facts.driver.python
    others = {
        f"{one.python} ({one.executable} on {one.host})"
        for one in facts.reports
        if one.python.split(".")[:2] != own.split(".")[:2]
    }
    if others:
        meaning = "what is pickled by one minor version of Python cannot be read by another"
        return finding("wrong Python", said=f"{own} on the {facts.here}, {_listed(others)}", meaning=meaning)
    return finding("same Python", w=facts, own=own, others=_listed({one.python for one in facts.reports}))


def _package(facts: WorkerFacts, own: Package) -> Finding:
    found = [(one, package) for one in facts.reports for package in one.packages if package.name == own.name]
    missing = [(one, package) for one, package in found if package.error]
    if missing:
        first, package = missing[0]
        failed = _hosts(one for one, _ in missing)
        how = f"pip install {own.name.replace('_', '-')}=={own.version}"
        if own.name == "consumer_membership" or not own.version:
            how = f"{install_command('spark')}, where a path has to exist on that host"
        return finding("package missing", own=own, first=first, error=package.error, failed=failed, how=how)
    others = {package.version for _, package in found}
    how = f"install {own.name} {own.version} on every executor" if own.version else f"install {own.name} here too"
    name = "package differs" if others - {own.version} else "package"
    return finding(name, w=facts, own=own, version=own.version or own.error, others=_listed(others), how=how)


def _clocks(facts: WorkerFacts) -> Iterator[Finding]:
    """Clocks that were read outside of the time of the job: at least so much are they wrong."""
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
