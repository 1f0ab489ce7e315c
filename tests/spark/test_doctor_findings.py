"""What the findings say of a session and of its workers, each judgement by itself; and how all of them are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.diagnosis.findings import Diagnosis, Finding, Severity, diagnosis, error, ok, warning
from consumer_membership.spark.diagnosis.session import SessionFacts
from consumer_membership.spark.diagnosis.session_findings import session_findings
from consumer_membership.spark.diagnosis.worker_findings import worker_findings
from consumer_membership.spark.diagnosis.workers import Package, WorkerFacts, WorkerReport
from tests.spark.findings import one, subjects

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK


# ---- the diagnosis ---------------------------------------------------------------------------------------------------


def test_diagnosis_is_readable_with_the_worst_first() -> None:
    """As `print` shows it: aligned, what was found, why that matters, what to do."""
    found = diagnosis(
        [
            ok("slots", "2"),
            error("spark.speculation", "true", "a copy takes over", "set it to false"),
            warning("instances", "3 for 2 partitions", "one idles", "ask for 2"),
        ]
    )
    assert str(found).splitlines() == [
        "1 error, 1 warning, 1 ok",
        "ERROR    spark.speculation  true",
        "         a copy takes over",
        "         -> set it to false",
        "warning  instances          3 for 2 partitions",
        "         one idles",
        "         -> ask for 2",
        "ok       slots              2",
    ]
    assert [len(found.errors), len(found.warnings), len(found.findings)] == [1, 1, 3]


def test_long_texts_are_wrapped_and_aligned() -> None:
    """No line is wider than 120 columns unless a single word is."""
    lines = str(diagnosis([error("key", "found " * 40, "why " * 60, "do " * 80)])).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[2].startswith(" " * len("ERROR    key  ") + "found")
    assert [line[9:14] for line in lines if "do do" in line] == ["-> do", "   do", "   do"]


def test_errors_are_raised_together() -> None:
    """One as itself, several as a list; warnings raise nothing."""
    diagnosis([warning("a", "1", "why", "how"), ok("b", "2")]).raise_for_errors()
    with pytest.raises(ConfigurationError, match=r"^a='1': why; how$"):
        diagnosis([error("a", "1", "why", "how")]).raise_for_errors()
    with pytest.raises(ConfigurationError) as refusal:
        diagnosis([error("a", "1", "why", "how"), error("b", "2", "", "do")]).raise_for_errors()
    assert str(refusal.value) == "check='2 errors': \n- a: 1: why; how\n- b: 2: do"


def test_diagnosis_without_findings_is_no_error() -> None:
    """Nothing was looked at."""
    assert str(Diagnosis(findings=())) == "0 errors, 0 warnings, 0 ok"


# ---- the session -----------------------------------------------------------------------------------------------------

SESSION = SessionFacts(version="4.0.0", master="spark://host:7077", slots=4, max_failures=4, python="python3")


def of_session(
    instances: int | None = 4, conf: Mapping[str, str] | None = None, **facts: object
) -> tuple[Finding, ...]:
    """What is said of a session like this."""
    return tuple(session_findings(replace(SESSION, conf=conf or {}, **facts), instances))  # type: ignore[arg-type]


def test_healthy_session_has_nothing_but_ok() -> None:
    """Spark's own settings, and a slot for each instance."""
    assert {finding.severity for finding in of_session()} == {OK}
    assert "other jobs of this application wait" in one(of_session(4), "slots").why
    assert one(of_session(3), "slots").why == ""
    assert one(of_session(None), "slots").found == "4 on spark://host:7077"


def test_fewer_slots_than_instances_is_a_warning() -> None:
    """The protocol starves nobody: those that run have all partitions, and the others wait."""
    found = one(of_session(6), "slots")
    assert (found.severity, found.found) == (WARNING, "4 on spark://host:7077, for 6 instances")
    assert "2 of them have to wait" in found.why
    assert "give the application 6 slots (cores of all executors" in found.remedy
    assert "local[6]" in one(of_session(6, master="local[4,3]"), "slots").remedy
    assert one(of_session(6, slots=None), "slots").severity is WARNING


def test_speculation_is_an_error() -> None:
    """A copy takes the member over from the live attempt."""
    found = one(of_session(conf={"spark.speculation": "true"}), "spark.speculation")
    assert found.severity is ERROR
    assert found.remedy.startswith("set it to false for this application")
    assert one(of_session(conf={"spark.speculation": "false"}), "spark.speculation").severity is OK


def test_single_attempt_is_a_warning_with_the_remedy_for_the_master() -> None:
    """A lost task ends the run."""
    found = one(of_session(max_failures=1, master="local[2]"), "spark.task.maxFailures")
    assert (found.severity, "local[N,F]" in found.remedy) == (WARNING, True)
    assert one(of_session(max_failures=1), "spark.task.maxFailures").remedy == "set it to 4 or more"


@pytest.mark.parametrize("prefix", ["spark.python.worker", "spark.sql.execution.pyspark.udf"])
def test_killing_idle_workers_is_an_error(prefix: str) -> None:
    """A member exchanges its data with Kafka, not with Spark; both families of keys count."""
    kill, after = f"{prefix}.killOnIdleTimeout", f"{prefix}.idleTimeoutSeconds"
    found = one(of_session(conf={kill: "true", after: "60"}), kill)
    assert (found.severity, found.found) == (ERROR, "true, after 60 s")
    assert after in found.remedy
    assert subjects(of_session(conf={kill: "true"}), ERROR) == []
    assert subjects(of_session(conf={kill: "true", after: "0s"}), ERROR) == []
    assert subjects(of_session(conf={after: "60"}), ERROR) == []


def test_dynamic_allocation_is_a_warning_unless_enough_executors_stay() -> None:
    """Four executors of two cores are enough for eight instances, and not for nine."""
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "4",
        "spark.executor.cores": "2",
    }
    assert subjects(of_session(4, {"spark.dynamicAllocation.enabled": "true"}), WARNING) == [
        "spark.dynamicAllocation.enabled"
    ]
    assert subjects(of_session(8, conf, slots=8), WARNING) == []
    assert subjects(of_session(9, conf, slots=9), WARNING) == ["spark.dynamicAllocation.enabled"]
    assert subjects(of_session(8, {**conf, "spark.task.cpus": "2"}, slots=8), WARNING) != []
    assert subjects(of_session(8, {**conf, "spark.task.cpus": "0.5"}, slots=8), WARNING) == []


def test_exclusion_and_a_daemon_of_ones_own_are_warnings() -> None:
    """The one keeps a task from its executor, the other forks what does not survive a fork."""
    for key, value in (
        ("spark.excludeOnFailure.enabled", "true"),
        ("spark.excludeOnFailure.taskAndStage.enabled", "true"),
        ("spark.python.daemon.module", "ours.daemon"),
    ):
        assert subjects(of_session(conf={key: value}), WARNING) == [key]


def test_workers_that_are_not_reused_and_decommissioning_are_fine() -> None:
    """They are worth a word, and nothing else."""
    conf = {
        "spark.python.worker.reuse": "false",
        "spark.decommission.enabled": "true",
        "spark.python.task.killTimeout": "15s",
    }
    found = of_session(conf=conf)
    assert {finding.severity for finding in found} == {OK}
    assert "a process of its own" in one(found, "spark.python.worker.reuse").why
    assert one(found, "spark.decommission.enabled").why
    assert one(found, "spark.python.task.killTimeout").found == "15s"


def test_another_interpreter_for_dataframes_is_a_warning() -> None:
    """Members run in it, and the job that looks at the tasks does not."""
    key = "spark.sql.execution.pyspark.python"
    found = one(of_session(conf={key: "/opt/python"}), key)
    assert (found.severity, "'python3'" in found.why) == (WARNING, True)
    assert subjects(of_session(conf={key: "python3"}), WARNING) == []


def test_connect_session_says_what_is_not_looked_at() -> None:
    """Its configuration is, all the same."""
    found = tuple(session_findings(SessionFacts(is_connect=True, conf={"spark.speculation": "true"}), 4))
    assert subjects(found, WARNING) == ["session"]
    assert "no SparkContext" in one(found, "session").why
    assert subjects(found, ERROR) == ["spark.speculation"]


# ---- the workers -----------------------------------------------------------------------------------------------------

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
    assert found.found == "no end after 10 s, when 1 of 2 small tasks, one for each slot, had begun"
    assert "'python3' does not start" in found.why
    assert "longer timeout_s" in found.remedy
    diagnosis([found]).raise_for_errors()
