"""What will break is said before a job with group members runs: each judgement by itself, then the real thing."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from consumer_membership.admin import MemberDescription
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.diagnosis import examination
from consumer_membership.spark.diagnosis.cluster import ClusterFacts, GroupFacts, TopicFacts, cluster_facts
from consumer_membership.spark.diagnosis.cluster_findings import cluster_findings
from consumer_membership.spark.diagnosis.findings import Diagnosis, Finding, Severity, diagnosis, error, ok, warning
from consumer_membership.spark.diagnosis.session import SessionFacts
from consumer_membership.spark.diagnosis.session_findings import session_findings
from consumer_membership.spark.diagnosis.worker_findings import worker_findings
from consumer_membership.spark.diagnosis.workers import Package, WorkerFacts, WorkerReport
from consumer_membership.spark.doctor import check
from consumer_membership.types import BrokerAddress, GroupProtocol
from tests.integration.conftest import CLASSIC_ONLY, NEWEST, OLDEST
from tests.integration.test_refusals import AUTHORIZER, allow, forbid
from tests.integration.worker import PATIENCE_S, Worker
from tests.support.kafka import create_topic, unique

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

broker_test = pytest.mark.integration
slow = pytest.mark.slow

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK
BOTH = (GroupProtocol.CONSUMER, GroupProtocol.CLASSIC)
#: The first job of a session takes a while on a machine that is busy.
LONG_S = 120.0
NOWHERE = "127.0.0.1:1"


def one(findings: Iterator[Finding] | tuple[Finding, ...], subject: str) -> Finding:
    """The only finding about this subject."""
    (found,) = (finding for finding in findings if finding.subject == subject)
    return found


def subjects(findings: Iterator[Finding] | tuple[Finding, ...], severity: Severity) -> list[str]:
    """What the findings of this severity are about."""
    return [finding.subject for finding in findings if finding.severity is severity]


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


def test_job_that_fails_otherwise_or_does_not_end_is_an_error() -> None:
    """So would every other job."""
    (found,) = of_workers(failure="No space left on device", reports=())
    assert (found.severity, found.subject, found.found) == (ERROR, "job over the slots", "No space left on device")
    (found,) = of_workers(is_too_late=True, reports=())
    assert (found.severity, found.found) == (ERROR, "no end after 10 s")
    assert "'python3' does not start" in found.why


# ---- the cluster -----------------------------------------------------------------------------------------------------

TOPIC = TopicFacts(name="orders", partitions=6, operations=frozenset({"READ", "DESCRIBE", "WRITE"}))
GROUP = GroupFacts(name="g", may_describe=True, may_read=True)
CLUSTER = ClusterFacts(
    bootstrap=(BROKER,),
    wanted=BOTH,
    brokers=(BrokerAddress(node_id=1, host="kafka", port=9092),),
    takes_consumer_protocol=True,
    topics=(TOPIC,),
    group=GROUP,
)


def of_cluster(instances: int | None = 4, pipeline: str = "g", **facts: object) -> tuple[Finding, ...]:
    """What is said of a cluster like this."""
    return tuple(cluster_findings(replace(CLUSTER, **facts), instances, pipeline))  # type: ignore[arg-type]


def member(instance_id: str | None, epoch: int | None = 3) -> MemberDescription:
    """A member of the group."""
    return MemberDescription(
        member_id=f"member of {instance_id}",
        instance_id=instance_id,
        rack_id=None,
        client_id=f"client of {instance_id}",
        host="10.0.0.7",
        epoch=epoch,
        protocol=GroupProtocol.CONSUMER,
        topics=frozenset({"orders"}),
        pattern=None,
        assignment=frozenset(),
        target=None,
    )


def test_healthy_cluster_has_nothing_but_ok() -> None:
    """With a group that does not exist yet, and with one that does."""
    assert {finding.severity for finding in of_cluster()} == {OK}
    assert "does not exist yet" in one(of_cluster(), "group g").found
    known = replace(GROUP, kind=GroupProtocol.CONSUMER, members=(member(None),))
    assert one(of_cluster(group=known), "group g").found == "consumer protocol, 1 members"


def test_brokers_that_do_not_answer_are_one_error() -> None:
    """And nothing is said of what could not be looked at."""
    (found,) = of_cluster(failure="connection refused")
    assert (found.severity, found.subject) == (ERROR, "brokers")
    assert "kafka:9092" in found.found
    assert "bootstrap.servers" in found.remedy


def test_brokers_without_the_consumer_protocol() -> None:
    """A warning where the classic one is taken instead, an error where nothing else is asked for."""
    found = one(of_cluster(takes_consumer_protocol=False), "group.protocol")
    assert (found.severity, "group.version=1" in found.remedy) == (WARNING, True)
    only = of_cluster(takes_consumer_protocol=False, wanted=(GroupProtocol.CONSUMER,))
    assert one(only, "group.protocol").severity is ERROR
    classic = of_cluster(takes_consumer_protocol=False, wanted=(GroupProtocol.CLASSIC,))
    assert one(classic, "group.protocol").severity is OK
    assert one(of_cluster(takes_consumer_protocol=None), "group.protocol").severity is WARNING


def test_topic_that_is_missing_or_forbidden_is_an_error_with_the_command() -> None:
    """What Kafka calls it, and what an administrator types."""
    found = one(of_cluster(topics=(TopicFacts(name="orders", error="UNKNOWN_TOPIC_OR_PART"),)), "topic orders")
    assert (found.severity, found.found) == (ERROR, "does not exist")
    assert "kafka-topics.sh --bootstrap-server kafka:9092 --create --topic orders" in found.remedy
    hidden = TopicFacts(name="orders", error="TOPIC_AUTHORIZATION_FAILED")
    assert one(of_cluster(topics=(hidden,)), "topic orders").found.startswith("DESCRIBE not allowed")
    found = one(of_cluster(topics=(replace(TOPIC, operations=frozenset({"DESCRIBE"})),)), "topic orders")
    assert (found.severity, found.found) == (ERROR, "READ not allowed")
    assert (
        "kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal User:ANONYMOUS "
        "--operation READ --operation DESCRIBE --topic orders;"
    ) in found.remedy
    assert one(of_cluster(topics=(TopicFacts(name="orders", error="_TIMED_OUT"),)), "topic orders").severity is ERROR
    # Brokers that do not tell what is allowed: nothing is made up.
    assert one(of_cluster(topics=(replace(TOPIC, operations=None),)), "topic orders").severity is OK


def test_more_instances_than_partitions_is_a_warning() -> None:
    """Those in excess hold a slot and idle; partitions of all topics count."""
    found = one(of_cluster(8), "instances")
    assert (found.severity, found.found) == (WARNING, "8 for 6 partitions")
    assert "2 of them idle" in found.why
    assert one(of_cluster(8, topics=(TOPIC, replace(TOPIC, name="more"))), "instances").severity is OK
    unknown = of_cluster(8, topics=(TOPIC, TopicFacts(name="hidden", error="TOPIC_AUTHORIZATION_FAILED")))
    assert [finding for finding in unknown if finding.subject == "instances"] == []


def test_missing_rights_on_the_group_are_errors_with_the_command() -> None:
    """Both are named where both are missing."""
    found = one(of_cluster(group=replace(GROUP, may_read=False)), "group g")
    assert (found.severity, found.found) == (ERROR, "READ not allowed")
    assert "--operation READ --operation DESCRIBE --group g;" in found.remedy
    neither = replace(GROUP, may_read=False, may_describe=False)
    assert one(of_cluster(group=neither), "group g").found == "READ and DESCRIBE not allowed"


def test_group_of_another_kind_is_an_error_and_one_that_is_not_described_a_warning() -> None:
    """A share group has members of another sort."""
    assert one(of_cluster(group=replace(GROUP, is_foreign=True)), "group g").severity is ERROR
    assert one(of_cluster(group=replace(GROUP, error="not ready")), "group g").severity is WARNING


def test_running_copy_of_the_pipeline_is_a_warning() -> None:
    """By its instance ids, where a living member holds them; with client and host, so that it can be found."""
    held = replace(
        GROUP,
        kind=GroupProtocol.CONSUMER,
        members=(
            member("g-0"),
            member("g-11"),
            member("g-1", epoch=-2),
            member("other-0"),
            member(None),
            member("g-x"),
        ),
    )
    found = one(of_cluster(12, group=held), "pipeline g")
    assert found.severity is WARNING
    assert found.found == (
        "2 of its instance ids are held: g-0 by client client of g-0 on 10.0.0.7, "
        "g-11 by client client of g-11 on 10.0.0.7"
    )
    assert one(of_cluster(2, group=held), "pipeline g").found.startswith("1 of its instance ids")
    assert one(of_cluster(2, "other", group=held), "pipeline other").found.startswith("1 of its instance ids")
    assert subjects(of_cluster(2, "third", group=held), WARNING) == []
    many = replace(held, members=tuple(member(f"g-{number}") for number in range(7)))
    assert one(of_cluster(None, group=many), "pipeline g").found.endswith("10.0.0.7, and 2 more")


# ---- what runs in the tasks ------------------------------------------------------------------------------------------


@slow
def test_examination_says_what_is_missing_where_nothing_of_the_package_is(tmp_path: Path) -> None:
    """It travels whole: a worker that cannot import this package can still say so."""
    cloudpickle.register_pickle_by_value(examination)  # type: ignore[no-untyped-call]
    asked = partial(examination.examine, ("127.0.0.1", 1), [("127.0.0.1", 1)], b"not a pickle", 1.0, 1.0, ())
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(asked))  # type: ignore[no-untyped-call]
    code = (
        "import sys, pickle; sys.modules['consumer_membership'] = None; sys.modules['pyarrow'] = None; "
        f"print(next(pickle.load(open({str(sent)!r}, 'rb'))()))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        check=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    ).stdout
    answer = importlib.import_module("json").loads(said)
    missing = [package["name"] for package in answer["packages"] if package["error"]]
    assert missing == ["consumer_membership", "pyarrow"]
    assert answer["driver"] == answer["brokers"][0] == "[Errno 111] Connection refused"
    assert answer["sink"].startswith("UnpicklingError")


# ---- a real session --------------------------------------------------------------------------------------------------


@contextmanager
def changed(context: SparkContext, name: str, value: str) -> Iterator[None]:
    """The context with another value for a while: what it tells executors about the interpreter."""
    before = getattr(context, name)
    setattr(context, name, value)
    try:
        yield
    finally:
        setattr(context, name, before)


def write(_batch: object, _context: object) -> None:
    """A sink."""


def test_session_of_two_slots_is_healthy_for_two_instances(spark: SparkSession) -> None:
    """The whole of Spark is looked at, and Kafka is not unless it is named."""
    found = check(spark, instances=2, sink=write, timeout_s=LONG_S)
    assert (found.errors, found.warnings) == ((), ())
    assert one(found.findings, "slots").found == "2 on local[2,3], for 2 instances"
    assert one(found.findings, "spark.task.maxFailures").found == "3"
    assert one(found.findings, "job over the slots").found.startswith("2 of 2 tasks ran at the same time")
    assert {"Python", "consumer_membership", "confluent_kafka", "pyarrow", "pyspark", "sink"} <= set(
        subjects(found.findings, OK)
    )
    assert not [finding for finding in found.findings if "broker" in finding.subject]


def test_session_of_two_slots_is_too_small_for_three_instances(spark: SparkSession) -> None:
    """As Spark counts slots itself."""
    found = check(spark, instances=3, timeout_s=LONG_S)
    assert [finding.subject for finding in found.warnings] == ["slots"]
    found.raise_for_errors()


def test_wrong_interpreter_is_an_error_in_words(spark: SparkSession) -> None:
    """It would end a job after minutes and a page of Java."""
    with changed(spark.sparkContext, "pythonExec", "/nonexistent/python3"):
        found = check(spark, timeout_s=LONG_S)
    (missing,) = found.errors
    assert missing.found == 'Cannot run program "/nonexistent/python3": error=2, No such file or directory'
    assert "do not have the interpreter" in missing.why
    with changed(spark.sparkContext, "pythonVer", "3.9"):
        found = check(spark, timeout_s=LONG_S)
    (mismatch,) = found.errors
    assert mismatch.subject == "Python"
    assert "3.9" in mismatch.found
    assert check(spark, timeout_s=LONG_S).errors == ()


def test_job_that_does_not_run_is_given_up_in_time(spark: SparkSession, tmp_path: Path) -> None:
    """An interpreter that hangs: the check ends, says so, and cancels its job."""
    # It ends by itself before long: Spark waits for it without listening to a cancellation.
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\nexec sleep 5\n")
    interpreter.chmod(0o755)
    with changed(spark.sparkContext, "pythonExec", str(interpreter)):
        found = check(spark, timeout_s=1)
    (late,) = found.errors
    assert late.subject == "job over the slots"
    assert late.found.startswith("no end after")
    assert check(spark, timeout_s=LONG_S).errors == ()


def test_sink_that_cannot_be_sent_is_an_error(spark: SparkSession) -> None:
    """With the name of what is in the way; and so is one that cannot be called."""
    guard = threading.Lock()

    def locked(batch: object, _context: object) -> None:
        with guard:
            print(batch)

    (refused,) = check(spark, sink=locked, timeout_s=LONG_S).errors
    assert refused.subject == "sink"
    assert "the variable 'guard' of sink is a _thread.lock" in refused.remedy
    (refused,) = check(spark, sink={"rows": 1}, timeout_s=LONG_S).errors
    assert refused.found == "is a dict"


def test_sink_of_a_module_that_tasks_do_not_have_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It travels by the name of its module."""
    (tmp_path / "sink_of_the_driver.py").write_text("def write(batch, context):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("sink_of_the_driver")
    (refused,) = check(spark, sink=module.write, timeout_s=LONG_S).errors
    assert refused.subject == "sink"
    assert "No module named 'sink_of_the_driver'" in refused.found
    assert "addPyFile" in refused.remedy


def test_configuration_that_a_job_refuses_is_named_at_once(spark: SparkSession) -> None:
    """All of its keys, and what is the matter with the brokers besides, from the driver and from the tasks."""
    config = {
        "bootstrap.servers": NOWHERE,
        "group.id": "another",
        "group.instance.id": "i",
        "group.instance.id.pool": "i-{0..3}",
        "group.instance.id.conflict.policy": "fail",
        "enable.auto.commit": False,
        "max.poll.interval.ms": 1000,
    }
    found = check(spark, config, ["orders"], "g", timeout_s=LONG_S)
    assert {finding.subject for finding in found.errors} == {
        *(set(config) - {"bootstrap.servers"}),
        "brokers",
        f"broker {NOWHERE}",
    }
    assert [finding.subject for finding in check(spark, {}, ["orders"], "g", timeout_s=LONG_S).errors] == [
        "bootstrap.servers"
    ]


def test_session_of_spark_connect_is_checked_as_far_as_it_goes() -> None:
    """No SparkContext, no job over the slots: a session that has nothing but a version and a configuration."""

    class Conf:
        def get(self, key: str, default: str | None) -> str | None:
            return "true" if key == "spark.speculation" else default

    class Session:
        version, conf = "4.0.0", Conf()

    found = check(cast("SparkSession", Session()), instances=2)
    assert [finding.subject for finding in found.errors] == ["spark.speculation"]
    assert [finding.subject for finding in found.warnings] == ["session"]


# ---- a real broker ---------------------------------------------------------------------------------------------------


def asked(broker: Broker, topics: list[str], group: str, instances: int | None = 2) -> tuple[Finding, ...]:
    """What is said of this broker."""
    facts = cluster_facts({"bootstrap.servers": broker.bootstrap_servers}, topics, group, 20.0)
    return tuple(cluster_findings(facts, instances, group))


@broker_test
def test_healthy_session_and_broker_have_no_errors(spark: SparkSession, kafka: Broker) -> None:
    """Within an asyncio loop too, as in a notebook; nothing is left behind at the broker."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 4), unique("group")
    config = {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}

    async def in_a_notebook() -> Diagnosis:
        return check(spark, config, [topic], group, instances=2, sink=write, timeout_s=LONG_S)

    found = asyncio.run(in_a_notebook())
    assert (found.errors, found.warnings) == ((), ())
    assert one(found.findings, "group.protocol").found == "consumer: the brokers offer KIP-848"
    assert one(found.findings, f"topic {topic}").found == "4 partitions"
    assert one(found.findings, "instances").found == "2 for 4 partitions"
    assert "does not exist yet" in one(found.findings, f"group {group}").found
    assert [finding.subject for finding in found.findings if finding.subject.startswith("broker ")]
    assert "does not exist yet" in one(asked(kafka, [topic], group), f"group {group}").found


@broker_test
@slow
def test_topics_are_counted_and_missing_ones_named(kafka: Broker) -> None:
    """Instances beyond the partitions idle."""
    topic, missing = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("missing")
    found = asked(kafka, [topic], unique("group"), 3)
    assert one(found, "instances").severity is WARNING
    found = asked(kafka, [topic, missing], unique("group"), 3)
    assert subjects(found, ERROR) == [f"topic {missing}"]


@broker_test
@slow
def test_running_copy_is_found_and_one_that_left_is_not(kafka: Broker) -> None:
    """Its members are alive as long as they run; a static member that closed keeps its place, and is no copy."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with Worker(kafka.bootstrap_servers, group, [topic], group_instance_id=f"{group}-0", client_id="copy") as static:
        static.settled(2)
        found = one(asked(kafka, [topic], group), f"pipeline {group}")
        assert found.found.startswith(f"1 of its instance ids are held: {group}-0 by client copy on ")
        # Asking whether members may be removed removed nobody.
        static.settled(2)
        assert static.notes.named("lost") == []
    found_later = asked(kafka, [topic], group)
    assert {finding.severity for finding in found_later} == {OK}
    assert one(found_later, f"group {group}").found == "consumer protocol, 1 members"


@broker_test
@slow
def test_missing_rights_are_named(kafka_broker: BrokerFactory) -> None:
    """Each on its resource: READ and DESCRIBE of the group, READ and DESCRIBE of a topic."""
    broker = kafka_broker(NEWEST, properties=AUTHORIZER)
    bootstrap = broker.bootstrap_servers
    unread, hidden = create_topic(bootstrap, unique("unread"), 2), create_topic(bootstrap, unique("hidden"), 2)
    closed, blind = unique("closed"), unique("blind")
    assert subjects(asked(broker, [unread, hidden], closed), ERROR) == []
    # A rule that allows one thing leaves nothing else of what everybody may do without rules.
    allow(bootstrap, ResourceType.TOPIC, unread, AclOperation.DESCRIBE)
    forbid(bootstrap, ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
    allow(bootstrap, ResourceType.GROUP, closed, AclOperation.DESCRIBE)
    forbid(bootstrap, ResourceType.GROUP, blind, AclOperation.DESCRIBE)
    topics = {f"topic {unread}": "READ not allowed", f"topic {hidden}": "DESCRIBE not allowed, and READ not known"}
    expected = [
        topics | {f"group {closed}": "READ not allowed"},
        topics | {f"group {blind}": "READ and DESCRIBE not allowed"},
    ]

    def refused(group: str) -> dict[str, str]:
        found = asked(broker, [unread, hidden], group)
        return {finding.subject: finding.found for finding in found if finding.severity is ERROR}

    # The broker goes by a new rule a moment after it took it.
    until_it_is_so = Retrying(
        retry=retry_if_not_result(lambda said: said == expected),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(PATIENCE_S),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    assert until_it_is_so(lambda: [refused(closed), refused(blind)]) == expected
    remedy = one(asked(broker, [unread], closed), f"group {closed}").remedy
    assert f"--operation READ --operation DESCRIBE --group {closed}" in remedy


@broker_test
@slow
def test_broker_with_the_consumer_protocol_switched_off_is_named(kafka_broker: BrokerFactory) -> None:
    """Members would speak the classic protocol there, and say why only in their log."""
    broker = kafka_broker(OLDEST, properties=CLASSIC_ONLY)
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    found = one(asked(broker, [topic], group), "group.protocol")
    assert (found.severity, found.found) == (WARNING, "classic: the brokers do not offer KIP-848")
    with Worker(broker.bootstrap_servers, group, [topic], group_instance_id=f"{group}-1") as static:
        static.settled(2)
        findings = asked(broker, [topic], group)
    assert one(findings, f"group {group}").found == "classic protocol, 1 members"
    assert f"{group}-1 by client" in one(findings, f"pipeline {group}").found
    assert pickle.dumps(findings)
