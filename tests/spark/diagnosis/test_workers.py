"""The findings about the workers, one rule per test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.spark.diagnosis.findings import Finding, Severity, diagnosis
from consumer_membership.spark.diagnosis.workers import Package, WorkerFacts, WorkerReport, worker_findings
from tests.spark.diagnosis.builders import one, subjects

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK

PACKAGES = (Package(name="confluent_kafka", version="2.16.1"), Package(name="pyarrow", version="20.0"))
BROKER = ("kafka", 9092)
REPORT = WorkerReport(
    host="w1", python="3.11.7", executable="/usr/bin/python3", packages=PACKAGES, clock=105.0, broker_errors=("",)
)
WORKERS = WorkerFacts(
    driver=replace(REPORT, host="driver", python="3.11.9", broker_errors=()),
    tasks=2,
    at_once=2,
    reports=(REPORT, replace(REPORT, host="w2")),
    began_at=100.0,
    ended_at=110.0,
    advertised=(BROKER,),
    driver_address=("driver", 7000),
)


def of_workers(instances: int | None = 2, **facts: object) -> tuple[Finding, ...]:
    """The findings about these workers."""
    return tuple(worker_findings(replace(WORKERS, **facts), "python3", instances))  # type: ignore[arg-type]


def with_second(**report: object) -> tuple[Finding, ...]:
    """The findings if the second task reports this."""
    return of_workers(reports=(REPORT, replace(REPORT, host="w2", **report)))  # type: ignore[arg-type]


def test_healthy_workers_have_only_ok_findings() -> None:
    """Healthy workers have only OK findings; their patch versions of Python may differ."""
    found = of_workers()
    assert {finding.severity for finding in found} == {OK}
    assert one(found, "Python").found == "3.11.9 on the driver, 3.11.7 in the tasks"
    assert one(found, "broker kafka:9092").found == "can be reached from w1, w2"
    assert one(found, "driver's address").found == "driver can be reached from w1, w2"


def test_other_minor_version_of_python_is_an_error() -> None:
    """Spark refuses tasks with another minor version of Python, even if the pickles can be read."""
    found = one(with_second(python="3.12.1"), "Python")
    assert (found.severity, found.found) == (ERROR, "3.11.9 on the driver, 3.12.1 (/usr/bin/python3 on w2)")
    assert "PYSPARK_PYTHON" in found.remedy


def test_missing_package_is_an_error_and_another_version_a_warning() -> None:
    """The finding names the interpreter that lacks the package, and the remedy."""
    missing = Package(name="pyarrow", version="", error="ModuleNotFoundError: No module named 'pyarrow'")
    found = one(with_second(packages=(PACKAGES[0], missing)), "pyarrow")
    assert (found.severity, found.found) == (
        ERROR,
        "cannot be imported on w2 (ModuleNotFoundError: No module named 'pyarrow')",
    )
    for word in ("/usr/bin/python3", "pip install", "spark.archives", "PYSPARK_PYTHON"):
        assert word in found.remedy
    found = one(with_second(packages=(replace(PACKAGES[0], version="2.15.0"), PACKAGES[1])), "confluent_kafka")
    assert (found.severity, found.found) == (WARNING, "2.16.1 on the driver, 2.15.0, 2.16.1 in the tasks")


def test_unreachable_driver_is_an_error() -> None:
    """Tasks that cannot reach the driver are one error; that no tasks ran at the same time is then not reported."""
    found = of_workers(at_once=0, reports=(replace(REPORT, driver_error="timed out"),))
    assert subjects(found, ERROR) == ["driver's address"]
    assert one(found, "driver's address").found == "driver:7000 cannot be reached from w1 (timed out)"
    assert "spark.driver.host" in one(found, "driver's address").remedy


def test_unreachable_broker_is_an_error_with_its_advertised_address() -> None:
    """Some of the bootstrap servers may be unreachable, but not all of them."""
    assert subjects(with_second(broker_errors=("refused",)), ERROR) == ["broker kafka:9092"]
    spare, other = ("spare", 9092), ("other", 9092)
    found = of_workers(reports=(replace(REPORT, broker_errors=("", "refused")),), bootstrap=(spare, BROKER))
    assert subjects(found, WARNING) == ["broker spare:9092"]
    both = (replace(REPORT, broker_errors=("", "refused", "refused")),)
    found = of_workers(reports=both, bootstrap=(spare, other))
    assert subjects(found, ERROR) == ["broker spare:9092", "broker other:9092"]


def test_file_that_tasks_cannot_read_is_an_error_with_its_key() -> None:
    """Each task makes its own connections and reads certificates on its own host."""
    files = {"ssl.ca.location": "/ca.pem", "ssl.crl.location": "/crl.pem"}
    there = replace(REPORT, file_errors=("", ""))
    found = of_workers(files=files, reports=(there, replace(there, host="w2")))
    assert one(found, "ssl.ca.location").found == "/ca.pem exists on w1, w2"
    lacking = replace(there, host="w2", file_errors=("No such file or directory", "Permission denied"))
    found = of_workers(files=files, reports=(there, lacking))
    assert subjects(found, ERROR) == ["ssl.ca.location", "ssl.crl.location"]
    assert one(found, "ssl.ca.location").found == "/ca.pem cannot be read on w2 (No such file or directory)"
    assert one(found, "ssl.ca.location").remedy.endswith("or set its content as ssl.ca.pem")
    assert one(found, "ssl.crl.location").remedy == "put it at that path on every executor"


def test_fewer_concurrent_tasks_than_instances_is_a_warning() -> None:
    """Other jobs hold slots, so fewer tasks than instances ran at the same time."""
    assert subjects(of_workers(at_once=1), WARNING) == ["job over the slots"]
    assert subjects(of_workers(1, at_once=1), WARNING) == []


def test_sink_that_tasks_cannot_unpickle_is_an_error() -> None:
    """The sink's module exists only on the driver."""
    found = one(with_second(sink_error="ModuleNotFoundError: No module named 'ours'"), "sink")
    assert (found.severity, "addPyFile" in found.remedy) == (ERROR, True)


@pytest.mark.parametrize(("clock", "expected"), [(113.5, "3.5 s ahead of the driver's"), (90.0, "10.0 s behind")])
def test_skewed_clock_is_reported_as_ok(clock: float, expected: str) -> None:
    """Clock skew is harmless, because only the driver's clock orders the attempts."""
    found = one(with_second(clock=clock), "clock of w2")
    assert (found.severity, expected in found.found) == (OK, True)
    assert not [finding for finding in with_second(clock=110.5) if finding.subject.startswith("clock")]


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ('java.io.IOException: Cannot run program "python9": error=2', "do not have this interpreter"),
        ("SparkException: Python worker failed to connect back.", "did not connect to them"),
        ("reading the port number from pyspark.daemon's stdout", "did not start pyspark's daemon"),
        ("/bin/python: Error while finding ... No module named 'pyspark'", "cannot import pyspark"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "another minor version of Python"),
    ],
)
def test_spark_error_about_a_wrong_interpreter_becomes_a_finding(message: str, meaning: str) -> None:
    """The finding quotes Spark's message without its stack trace."""
    (found,) = of_workers(failure=f"Job aborted due to stage failure: Task 0 failed\n{message}\nand so on", reports=())
    assert (found.severity, found.subject) == (ERROR, "Python")
    assert meaning in found.why
    assert "the command is 'python3'" in found.why


def test_failed_examination_job_is_an_error() -> None:
    """If the examination job fails, every other job would also fail."""
    (found,) = of_workers(failure="No space left on device", reports=())
    assert (found.severity, found.subject, found.found) == (ERROR, "job over the slots", "No space left on device")


def test_examination_job_beyond_its_timeout_is_a_warning() -> None:
    """A busy cluster is not at fault: the real job will run later, so `raise_for_errors` ignores the warning."""
    (found,) = of_workers(is_too_late=True, reports=(), at_once=1)
    assert found.severity is WARNING
    assert found.found == "no end after 10 s, when 1 of 2 small tasks had begun"
    assert "'python3' does not start" in found.why
    assert "longer timeout_s" in found.remedy
    diagnosis([found]).raise_for_errors()


def test_connect_client_is_compared_but_not_called_by_tasks() -> None:
    """The clock and packages of a Spark Connect client are compared, and its findings name it the client."""
    found = of_workers(at_once=None, reports=(replace(REPORT, clock=1000.0),))
    assert subjects(found, ERROR) == []
    assert not {"job over the slots", "driver's address"} & {finding.subject for finding in found}
    assert one(found, "Python").found == "3.11.9 on the client, 3.11.7 in the tasks"
    assert one(found, "clock of w1").found == "890.0 s ahead of the client's"
