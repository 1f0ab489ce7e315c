"""The findings about a session, one rule per test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from consumer_membership.spark.diagnosis.findings import Finding, Severity
from consumer_membership.spark.diagnosis.session import SessionFacts, session_findings
from tests.spark.diagnosis.builders import one, subjects

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK

SESSION = SessionFacts(master="spark://host:7077", slots=4, max_failures=4, python="python3")


def of_session(
    instances: int | None = 4, conf: Mapping[str, str] | None = None, **facts: object
) -> tuple[Finding, ...]:
    """The findings about this session."""
    return tuple(session_findings(replace(SESSION, conf=conf or {}, **facts), instances))  # type: ignore[arg-type]


def test_healthy_session_has_only_ok_findings() -> None:
    """A session with Spark's default configuration and a slot for each instance has only OK findings."""
    assert {finding.severity for finding in of_session()} == {OK}
    assert "other jobs of this application wait" in one(of_session(4), "slots").why
    assert one(of_session(3), "slots").why == ""
    assert one(of_session(None), "slots").found == "4 on spark://host:7077"


def test_fewer_slots_than_instances_is_a_warning() -> None:
    """The running members own all partitions; the other tasks wait for a slot."""
    found = one(of_session(6), "slots")
    assert (found.severity, found.found) == (WARNING, "4 on spark://host:7077, for 6 instances")
    assert "2 instances wait" in found.why
    assert "give the application 6 slots (cores of all executors" in found.remedy
    assert "local[6]" in one(of_session(6, master="local[4,3]"), "slots").remedy
    assert one(of_session(6, slots=None), "slots").severity is WARNING


def test_speculation_is_an_error() -> None:
    """A speculative copy takes the member over from the live attempt."""
    found = one(of_session(conf={"spark.speculation": "true"}), "spark.speculation")
    assert found.severity is ERROR
    assert found.remedy.startswith("set it to false for this application")
    assert one(of_session(conf={"spark.speculation": "false"}), "spark.speculation").severity is OK


def test_single_attempt_is_a_warning_with_the_remedy_for_the_master() -> None:
    """If tasks have a single attempt, a lost task ends the run."""
    found = one(of_session(max_failures=1, master="local[2]"), "spark.task.maxFailures")
    assert (found.severity, "local[N,F]" in found.remedy) == (WARNING, True)
    assert one(of_session(max_failures=1), "spark.task.maxFailures").remedy == "set it to 4 or more"


@pytest.mark.parametrize("prefix", ["spark.python.worker", "spark.sql.execution.pyspark.udf"])
def test_killing_idle_workers_is_an_error(prefix: str) -> None:
    """Members seem idle to Spark, because they exchange data only with Kafka; both families of keys are errors."""
    kill, after = f"{prefix}.killOnIdleTimeout", f"{prefix}.idleTimeoutSeconds"
    found = one(of_session(conf={kill: "true", after: "60"}), kill)
    assert (found.severity, found.found) == (ERROR, "true, after 60 s")
    assert after in found.remedy
    assert subjects(of_session(conf={kill: "true"}), ERROR) == []
    assert subjects(of_session(conf={kill: "true", after: "0s"}), ERROR) == []
    assert subjects(of_session(conf={after: "60"}), ERROR) == []


def test_dynamic_allocation_is_a_warning_unless_enough_executors_stay() -> None:
    """Four executors with two cores are enough for eight instances, but not for nine."""
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


def test_exclusion_and_a_custom_daemon_are_warnings() -> None:
    """Exclusion keeps a task from its executor, and a custom daemon may fork state that does not survive a fork."""
    for key, value in (
        ("spark.excludeOnFailure.enabled", "true"),
        ("spark.excludeOnFailure.taskAndStage.enabled", "true"),
        ("spark.python.daemon.module", "ours.daemon"),
    ):
        assert subjects(of_session(conf={key: value}), WARNING) == [key]


def test_unreused_workers_and_decommissioning_are_ok() -> None:
    """Unreused workers and decommissioning are mentioned as OK findings."""
    conf = {
        "spark.python.worker.reuse": "false",
        "spark.decommission.enabled": "true",
        "spark.python.task.killTimeout": "15s",
    }
    found = of_session(conf=conf)
    assert {finding.severity for finding in found} == {OK}
    assert "a new process" in one(found, "spark.python.worker.reuse").why
    assert one(found, "spark.decommission.enabled").why
    assert one(found, "spark.python.task.killTimeout").found == "15s"


def test_another_interpreter_for_dataframes_is_a_warning() -> None:
    """Members run in the DataFrame interpreter, which the job that examines the tasks does not use."""
    key = "spark.sql.execution.pyspark.python"
    found = one(of_session(conf={key: "/opt/python"}), key)
    assert (found.severity, "'python3'" in found.why) == (WARNING, True)
    assert subjects(of_session(conf={key: "python3"}), WARNING) == []


def test_connect_session_names_the_skipped_examinations() -> None:
    """For a Spark Connect session, the skipped examinations are named, and its configuration is examined."""
    found = tuple(session_findings(SessionFacts(is_connect=True, conf={"spark.speculation": "true"}), 4))
    assert subjects(found, WARNING) == ["session"]
    assert "no SparkContext" in one(found, "session").why
    assert subjects(found, ERROR) == ["spark.speculation"]
