"""What the findings say of the workers, each judgement by itself."""

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
    """What is said of workers like these."""
    return tuple(worker_findings(replace(WORKERS, **facts), "python3", instances))  # type: ignore[arg-type]


def with_second(**report: object) -> tuple[Finding, ...]:
    """What is said where the second task reports this."""
    return of_workers(reports=(REPORT, replace(REPORT, host="w2", **report)))  # type: ignore[arg-type]


def test_healthy_workers_have_nothing_but_ok() -> None:
    """Patch versions of Python may differ."""
    found = of_workers()
    assert {finding.severity for finding in found} == {OK}
    assert one(found, "Python").found == "3.11.9 on the driver, 3.11.7 in the tasks"
    assert one(found, "broker kafka:9092").found == "is reached from w1, w2"
    assert one(found, "driver's address").found == "driver is reached from w1, w2"


def test_other_minor_version_of_python_is_an_error() -> None:
    """Whatever reads it anyway, it is refused by Spark sooner or later."""
    found = one(with_second(python="3.12.1"), "Python")
    assert (found.severity, found.found) == (ERROR, "3.11.9 on the driver, 3.12.1 (/usr/bin/python3 on w2)")
    assert "PYSPARK_PYTHON" in found.remedy


def test_missing_package_is_an_error_and_another_version_a_warning() -> None:
    """The interpreter that lacks it is named, and what may be done."""
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


def test_driver_that_is_not_reached_is_an_error() -> None:
    """Tasks report to it; who cannot reach it could not meet the others there, which is no finding of its own."""
    found = of_workers(at_once=0, reports=(replace(REPORT, driver_error="timed out"),))
    assert subjects(found, ERROR) == ["driver's address"]
    assert one(found, "driver's address").found == "driver:7000 cannot be reached from w1 (timed out)"
    assert "spark.driver.host" in one(found, "driver's address").remedy


def test_broker_that_is_not_reached_is_an_error_by_its_advertised_address() -> None:
    """One of several bootstrap servers may be away, all of them may not."""
    assert subjects(with_second(broker_errors=("refused",)), ERROR) == ["broker kafka:9092"]
    spare, other = ("spare", 9092), ("other", 9092)
    found = of_workers(reports=(replace(REPORT, broker_errors=("", "refused")),), bootstrap=(spare, BROKER))
    assert subjects(found, WARNING) == ["broker spare:9092"]
    both = (replace(REPORT, broker_errors=("", "refused", "refused")),)
    found = of_workers(reports=both, bootstrap=(spare, other))
    assert subjects(found, ERROR) == ["broker spare:9092", "broker other:9092"]


def test_file_that_tasks_cannot_read_is_an_error_by_its_key() -> None:
    """Each task makes connections of its own, and reads certificates where it runs."""
    files = {"ssl.ca.location": "/ca.pem", "ssl.crl.location": "/crl.pem"}
    there = replace(REPORT, file_errors=("", ""))
    found = of_workers(files=files, reports=(there, replace(there, host="w2")))
    assert one(found, "ssl.ca.location").found == "/ca.pem is there on w1, w2"
    lacking = replace(there, host="w2", file_errors=("No such file or directory", "Permission denied"))
    found = of_workers(files=files, reports=(there, lacking))
    assert subjects(found, ERROR) == ["ssl.ca.location", "ssl.crl.location"]
    assert one(found, "ssl.ca.location").found == "/ca.pem cannot be read on w2 (No such file or directory)"
    assert one(found, "ssl.ca.location").remedy.endswith("or give its text as ssl.ca.pem")
    assert one(found, "ssl.crl.location").remedy == "put it at that path on every executor"


def test_slots_that_others_hold_are_a_warning() -> None:
    """Fewer tasks than instances ran at the same time."""
    assert subjects(of_workers(at_once=1), WARNING) == ["job over the slots"]
    assert subjects(of_workers(1, at_once=1), WARNING) == []


def test_sink_that_tasks_cannot_read_is_an_error() -> None:
    """Its module is on the driver only."""
    found = one(with_second(sink_error="ModuleNotFoundError: No module named 'ours'"), "sink")
    assert (found.severity, "addPyFile" in found.remedy) == (ERROR, True)


@pytest.mark.parametrize(("clock", "said"), [(113.5, "3.5 s ahead of the driver's"), (90.0, "10.0 s behind")])
def test_skewed_clock_is_fine_and_said(clock: float, said: str) -> None:
    """Attempts are ordered by the driver's clock alone."""
    found = one(with_second(clock=clock), "clock of w2")
    assert (found.severity, said in found.found) == (OK, True)
    assert not [finding for finding in with_second(clock=110.5) if finding.subject.startswith("clock")]


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ('java.io.IOException: Cannot run program "python9": error=2', "do not have the interpreter"),
        ("SparkException: Python worker failed to connect back.", "did not find its way back"),
        ("reading the port number from pyspark.daemon's stdout", "did not start pyspark's daemon"),
        ("/bin/python: Error while finding ... No module named 'pyspark'", "pyspark cannot be imported"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "another minor version of Python"),
    ],
)
def test_sparks_words_about_a_wrong_interpreter_are_translated(said: str, meaning: str) -> None:
    """What was said stays in the finding, without where in Spark."""
    (found,) = of_workers(failure=f"Job aborted due to stage failure: Task 0 failed\n{said}\nand so on", reports=())
    assert (found.severity, found.subject) == (ERROR, "Python")
    assert meaning in found.why
    assert "the command is 'python3'" in found.why


def test_job_that_fails_otherwise_is_an_error() -> None:
    """So would every other job."""
    (found,) = of_workers(failure="No space left on device", reports=())
    assert (found.severity, found.subject, found.found) == (ERROR, "job over the slots", "No space left on device")


def test_job_that_does_not_end_in_time_is_a_warning() -> None:
    """A machine that is busy has no fault: the job that was checked for runs there, and `raise_for_errors` lets it."""
    (found,) = of_workers(is_too_late=True, reports=(), at_once=1)
    assert found.severity is WARNING
    assert found.found == "no end after 10 s, when 1 of 2 small tasks had begun"
    assert "'python3' does not start" in found.why
    assert "longer timeout_s" in found.remedy
    diagnosis([found]).raise_for_errors()


def test_client_of_spark_connect_is_met_by_nobody() -> None:
    """Its clock and its packages are compared all the same, and called the client's."""
    found = of_workers(at_once=None, reports=(replace(REPORT, clock=1000.0),))
    assert subjects(found, ERROR) == []
    assert not {"job over the slots", "driver's address"} & {finding.subject for finding in found}
    assert one(found, "Python").found == "3.11.9 on the client, 3.11.7 in the tasks"
    assert one(found, "clock of w1").found == "890.0 s ahead of the client's"
