"""What the tasks' reports mean: interpreters, packages, clocks, and what can be reached from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from consumer_membership.spark.diagnosis.findings import Finding, error, ok, warning
from consumer_membership.spark.diagnosis.workers import Package, WorkerFacts, WorkerReport

_PYTHON, _JOB = "Python", "job over the slots"
#: More than clocks that are kept by NTP are apart.
_SKEW_S = 1.0
#: What may be given as a text instead, which travels with the configuration.
_HAS_TEXT = frozenset({"ssl.ca.location", "ssl.certificate.location", "ssl.key.location"})
#: Where Python comes from for executors.
_SAME_PYTHON = (
    "set PYSPARK_PYTHON (spark.pyspark.python) to an interpreter of the driver's version that every executor has, or "
    "ship the driver's environment: venv-pack, and spark.archives"
)
#: What Spark says of a job whose workers did not start, and what that means.
_NO_PYTHON = "it is no Python, or pyspark cannot be imported in it"
_TRANSLATIONS: Mapping[str, str] = MappingProxyType(
    {
        "PYTHON_VERSION_MISMATCH": "executors run another minor version of Python than the driver",
        "Cannot run program": "executors do not have the interpreter that they are to run",
        "failed to connect back": f"the interpreter of executors did not find its way back to them: {_NO_PYTHON}",
        "pyspark.daemon": f"the interpreter of executors did not start pyspark's daemon: {_NO_PYTHON}",
        "No module named 'pyspark": "pyspark cannot be imported in the interpreter of executors",
    }
)


def worker_findings(facts: WorkerFacts, python: str, instances: int | None) -> Iterator[Finding]:
    """One finding for everything that was looked at; `python` is the command that executors run."""
    if facts.is_too_late:
        yield _too_late(facts, python)
    elif facts.failure:
        yield _failure(facts.failure, python)
    else:
        yield _at_once(facts, instances)
        yield _pythons(facts)
        for package in facts.driver.packages:
            yield _package(facts, package)
        yield _driver(facts)
        yield from _brokers(facts)
        yield from _files(facts)
        yield from _sink(facts)
        yield from _clocks(facts)


def _too_late(facts: WorkerFacts, python: str) -> Finding:
    # No fault is proven: on a machine that is busy the same session does it a little later.
    return warning(
        _JOB,
        f"no end after {facts.ended_at - facts.began_at:.0f} s, when {facts.at_once} of {facts.tasks} small tasks, one "
        "for each slot, had begun",
        "nothing is known of the tasks: machines are busy, no slot is free, no executor has registered yet, or the "
        f"interpreter {python!r} does not start there",
        "check again with a longer timeout_s; free the slots that other jobs hold, and look at the executors' log "
        "(stderr)",
    )


def _failure(said: str, python: str) -> Finding:
    first = next((line for line in said.splitlines() if line.strip()), "it failed without a word")
    for words, meaning in _TRANSLATIONS.items():
        line = next((line for line in said.splitlines() if words in line), None)
        if line is not None:
            return error(_PYTHON, _last_cause(line), f"{meaning}; the command is {python!r}", _SAME_PYTHON)
    return error(
        _JOB, first, f"so would every job of Python tasks; the interpreter is {python!r}", "look at the executors' log"
    )


def _last_cause(line: str) -> str:
    """What went wrong, without the exceptions around it that say where."""
    for mark in ("java.io.IOException: ", "[PYTHON_VERSION_MISMATCH] ", "org.apache.spark.SparkException: "):
        line = line.rpartition(mark)[2]
    return line.strip()


def _at_once(facts: WorkerFacts, instances: int | None) -> Finding:
    wanted = min(facts.tasks, instances or facts.tasks)
    seen = f"{facts.at_once} of {facts.tasks} tasks ran at the same time, on {_listed(_hosts(facts.reports))}"
    # Who could not reach the driver could not meet the others there.
    if facts.at_once < wanted and not any(report.driver_error for report in facts.reports):
        return warning(
            _JOB,
            seen,
            "other jobs hold slots, or executors are still starting: as many instances wait",
            "see to it that the slots are free when the job starts",
        )
    return ok(_JOB, seen)


def _pythons(facts: WorkerFacts) -> Finding:
    own = facts.driver.python
    others = sorted({f"{one.python} ({one.executable} on {one.host})" for one in _of_other_minor(facts)})
    if others:
        return error(
            _PYTHON,
            f"{own} on the driver, {_listed(others)}",
            "what is pickled by one minor version of Python cannot be read by another",
            _SAME_PYTHON,
        )
    return ok(_PYTHON, f"{own} on the driver, {_listed({one.python for one in facts.reports})} in the tasks")


def _of_other_minor(facts: WorkerFacts) -> list[WorkerReport]:
    return [one for one in facts.reports if _minor(one.python) != _minor(facts.driver.python)]


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _package(facts: WorkerFacts, own: Package) -> Finding:
    found = [(one, package) for one in facts.reports for package in one.packages if package.name == own.name]
    missing = [(one, package) for one, package in found if package.error]
    if missing:
        report, package = missing[0]
        return error(
            own.name,
            f"cannot be imported on {_listed(_hosts(one for one, _ in missing))} ({package.error})",
            "a member in a task needs it",
            f"install it for {report.executable}: pip install 'consumer-membership[spark]'; or ship an environment "
            "that has it: venv-pack, and spark.archives; or set PYSPARK_PYTHON to an interpreter that has it",
        )
    versions = {package.version for _, package in found}
    seen = f"{own.version or own.error} on the driver, {_listed(versions)} in the tasks"
    if versions - {own.version}:
        return warning(
            own.name,
            seen,
            "what the driver sends is read by another version, which may not know it",
            f"install {own.name} {own.version} on every executor" if own.version else f"install {own.name} here too",
        )
    return ok(own.name, seen)


def _driver(facts: WorkerFacts) -> Finding:
    subject = "driver's address"
    host, port = facts.driver_address
    failed = [one for one in facts.reports if one.driver_error]
    if failed:
        return error(
            subject,
            f"{host}:{port} cannot be reached from {_listed(_hosts(failed))} ({failed[0].driver_error})",
            "tasks report to the driver and are told to stop over a connection that they make to it",
            "set spark.driver.host, or control_host of run and drain, to an address that executors reach (and "
            "spark.driver.bindAddress to one that the driver has), and "
            "let the firewall pass connections from executors to the driver",
        )
    return ok(subject, f"{host} is reached from {_listed(_hosts(facts.reports))}")


def _brokers(facts: WorkerFacts) -> Iterator[Finding]:
    for number, endpoint in enumerate(facts.brokers):
        subject = f"broker {endpoint[0]}:{endpoint[1]}"
        failed = [one for one in facts.reports if one.broker_errors[number]]
        if not failed:
            yield ok(subject, f"is reached from {_listed(_hosts(facts.reports))}")
            continue
        found = f"cannot be reached from {_listed(_hosts(failed))} ({failed[0].broker_errors[number]})"
        if endpoint in facts.advertised or not all(_reaches_any(facts, one) for one in failed):
            yield error(
                subject,
                found,
                "each task connects to every broker by the address that it advertises, found by way of "
                "bootstrap.servers",
                "give bootstrap.servers that executors reach, have the broker advertise such an address "
                "(advertised.listeners), and let the firewall pass connections from executors to it",
            )
        else:
            yield warning(
                subject,
                found,
                "tasks find the brokers by way of the other bootstrap.servers, unless those are away",
                "take it out of bootstrap.servers, or let executors reach it",
            )


def _files(facts: WorkerFacts) -> Iterator[Finding]:
    for number, (key, path) in enumerate(facts.files.items()):
        failed = [one for one in facts.reports if one.file_errors[number]]
        if not failed:
            yield ok(key, f"{path} is there on {_listed(_hosts(facts.reports))}")
            continue
        yield error(
            key,
            f"{path} cannot be read on {_listed(_hosts(failed))} ({failed[0].file_errors[number]})",
            "each task makes its own connections, and reads the file where it runs",
            f"put it at that path on every executor, or give its text as {key.removesuffix('location')}pem"
            if key in _HAS_TEXT
            else "put it at that path on every executor",
        )


def _reaches_any(facts: WorkerFacts, report: WorkerReport) -> bool:
    """Whether this task reached one of the bootstrap servers."""
    errors = dict(zip(facts.brokers, report.broker_errors, strict=True))
    return any(errors.get(endpoint) == "" for endpoint in facts.bootstrap)


def _sink(facts: WorkerFacts) -> Iterator[Finding]:
    failed = [one for one in facts.reports if one.sink_error]
    if failed:
        yield error(
            "sink",
            f"cannot be read on {_listed(_hosts(failed))} ({failed[0].sink_error})",
            "it is sent by the name of its module, which has to be importable in the tasks",
            "ship the module: spark.sparkContext.addPyFile(...), spark.submit.pyFiles, or an environment that has it "
            "(spark.archives)",
        )


def _clocks(facts: WorkerFacts) -> Iterator[Finding]:
    for host in _hosts(facts.reports):
        skew = max((_skew(facts, one.clock) for one in facts.reports if one.host == host), key=abs)
        if abs(skew) > _SKEW_S:
            yield ok(
                f"clock of {host}",
                f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the driver's",
                "attempts are ordered by the driver's clock alone; times in logs and results are the tasks' own",
            )


def _skew(facts: WorkerFacts, clock: float) -> float:
    """How far outside of the time of the job this clock was read: at least so much is it wrong."""
    return max(0.0, clock - facts.ended_at) + min(0.0, clock - facts.began_at)


def _hosts(reports: Iterable[WorkerReport]) -> list[str]:
    return sorted({report.host for report in reports})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
