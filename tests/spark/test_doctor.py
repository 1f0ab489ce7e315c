"""`check` reports what will fail before a job with group members runs: on real sessions and real brokers."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from consumer_membership.devbroker import Broker
from consumer_membership.spark.diagnosis import examination
from consumer_membership.spark.diagnosis.cluster import cluster_facts, cluster_findings
from consumer_membership.spark.diagnosis.findings import Diagnosis, Finding, Severity, diagnosis
from consumer_membership.spark.diagnosis.session import session_facts, session_findings
from consumer_membership.spark.doctor import check
from consumer_membership.spark.sinks import KafkaSink, ParquetSink
from tests.spark.diagnosis.builders import one, subjects
from tests.support.acls import AUTHORIZER, allow, forbid
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, unique
from tests.support.kinds import CLASSIC_ONLY
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

broker_test = pytest.mark.integration
slow = pytest.mark.slow
classic = pytest.mark.classic

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK
#: The first job of a session takes a while on a machine that is busy.
LONG_S = 120.0
NOWHERE = "127.0.0.1:1"


# ---- what runs in the tasks ------------------------------------------------------------------------------------------


@slow
def test_examination_reports_missing_modules_without_the_package(tmp_path: Path) -> None:
    """The examination is pickled by value, so a worker without this package still reports missing modules."""
    cloudpickle.register_pickle_by_value(examination)
    nowhere, readable = ("127.0.0.1", 1), str(tmp_path)
    asked = partial(
        examination.examine, nowhere, [nowhere], b"not a pickle", [readable, f"{readable}/absent"], 1.0, 1.0, ()
    )
    sent = tmp_path / "sent"
    sent.write_bytes(cloudpickle.dumps(asked))
    code = (
        "import sys, pickle; sys.modules['consumer_membership'] = None; sys.modules['pyarrow'] = None; "
        f"print(next(pickle.load(open({str(sent)!r}, 'rb'))()))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        check=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    ).stdout
    answer = json.loads(output)
    missing = [package["name"] for package in answer["packages"] if package["error"]]
    assert missing == ["consumer_membership", "pyarrow"]
    assert answer["driver_error"] == answer["broker_errors"][0] == "[Errno 111] Connection refused"
    assert answer["sink_error"].startswith("UnpicklingError")
    assert answer["file_errors"] == ["", "No such file or directory"]


# ---- a real session --------------------------------------------------------------------------------------------------


@contextmanager
def changed(context: SparkContext, name: str, value: str) -> Iterator[None]:
    """Change for the block a value of the context, which sends it to the executors to select the interpreter."""
    before = getattr(context, name)
    setattr(context, name, value)
    try:
        yield
    finally:
        setattr(context, name, before)


def write(_batch: object, _context: object) -> None:
    """A sink."""


@classic
def test_check_finds_two_slots_healthy_for_two_instances(spark: SparkSession) -> None:
    """`check` examines all of Spark, and Kafka only if brokers are named."""
    found = check(spark, instances=2, sink=write, timeout_s=LONG_S)
    assert (found.errors, found.warnings) == ((), ())
    assert one(found.findings, "slots").found == "2 on local[2,3], for 2 instances"
    assert one(found.findings, "spark.task.maxFailures").found == "3"
    assert one(found.findings, "job over the slots").found.startswith("2 of 2 tasks ran at the same time")
    assert {"Python", "consumer_membership", "confluent_kafka", "pyarrow", "pyspark", "sink"} <= set(
        subjects(found.findings, OK)
    )
    assert not [finding for finding in found.findings if "broker" in finding.subject]


@classic
def test_check_warns_about_three_instances_on_two_slots(spark: SparkSession) -> None:
    """`check` counts slots as Spark does and warns about more instances than slots."""
    found = check(spark, instances=3, timeout_s=LONG_S)
    assert [finding.subject for finding in found.warnings] == ["slots"]
    found.raise_for_errors()


@classic
def test_check_reports_a_wrong_interpreter(spark: SparkSession) -> None:
    """`check` reports a wrong interpreter, with which a job fails only after minutes, in a Java stack trace."""
    with changed(spark.sparkContext, "pythonExec", "/nonexistent/python3"):
        found = check(spark, timeout_s=LONG_S)
    (missing,) = found.errors
    assert missing.found == 'Cannot run program "/nonexistent/python3": error=2, No such file or directory'
    assert "do not have this interpreter" in missing.why
    with changed(spark.sparkContext, "pythonVer", "3.9"):
        found = check(spark, timeout_s=LONG_S)
    (mismatch,) = found.errors
    assert mismatch.subject == "Python"
    assert "3.9" in mismatch.found
    assert check(spark, timeout_s=LONG_S).errors == ()


@classic
def test_check_cancels_a_job_that_hangs(spark: SparkSession, tmp_path: Path) -> None:
    """If the interpreter hangs, `check` ends in time, reports an unknown state, and cancels its job."""
    # The interpreter has to end on its own after a few seconds: Spark waits for it and ignores a cancellation.
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\nexec sleep 5\n")
    interpreter.chmod(0o755)
    with changed(spark.sparkContext, "pythonExec", str(interpreter)):
        found = check(spark, timeout_s=1)
    assert found.errors == ()
    late = one(found.warnings, "job over the slots")
    assert late.found.startswith("no end after")
    assert check(spark, timeout_s=LONG_S).errors == ()


def test_check_reports_a_sink_that_cannot_be_pickled_or_called(spark: SparkSession) -> None:
    """`check` names the value that cannot be pickled, and reports a sink that cannot be called."""
    guard = threading.Lock()

    def locked(batch: object, _context: object) -> None:
        with guard:
            print(batch)

    (refused,) = check(spark, sink=locked, timeout_s=LONG_S).errors
    assert refused.subject == "sink"
    assert "the variable 'guard' of sink is a _thread.lock" in refused.remedy
    (refused,) = check(spark, sink={"rows": 1}, timeout_s=LONG_S).errors
    assert refused.found == "is a dict"


def test_check_reports_a_sink_whose_module_tasks_lack(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` reports a sink whose module the tasks cannot import, because it is pickled by its module's name."""
    (tmp_path / "sink_of_the_driver.py").write_text("def write(batch, context):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("sink_of_the_driver")
    (refused,) = check(spark, sink=module.write, timeout_s=LONG_S).errors
    assert refused.subject == "sink"
    assert "No module named 'sink_of_the_driver'" in refused.found
    assert "addPyFile" in refused.remedy


def test_check_reports_all_invalid_keys_and_broker_problems(spark: SparkSession) -> None:
    """`check` reports all invalid keys together with the broker problems, as driver and tasks see them."""
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


def test_check_examines_a_connect_session_by_version_and_configuration() -> None:
    """`check` examines the version and the configuration of a Spark Connect session, which has no SparkContext."""

    class Conf:
        def get(self, key: str, default: str | None) -> str | None:
            return "true" if key == "spark.speculation" else default

    class Session:
        version, conf = "4.0.0", Conf()

    found = diagnosis(session_findings(session_facts(cast("SparkSession", Session())), 2))
    assert [finding.subject for finding in found.errors] == ["spark.speculation"]
    assert [finding.subject for finding in found.warnings] == ["session"]


# ---- a real broker ---------------------------------------------------------------------------------------------------


def asked(broker: Broker, topics: list[str], group: str, instances: int | None = 2) -> tuple[Finding, ...]:
    """The findings about this broker."""
    facts = cluster_facts({"bootstrap.servers": broker.bootstrap_servers}, topics, group, PATIENCE_S)
    return tuple(cluster_findings(facts, instances, group))


@slow
@classic
def test_check_reports_the_findings_of_a_sink_about_its_output(spark: SparkSession, tmp_path: Path) -> None:
    """`check` shows a sink's findings about its output, an unreadable output, and a use that cannot work."""
    file = tmp_path / "file"
    file.touch()
    servers = {"bootstrap.servers": NOWHERE, "log_level": 0}
    for sink, batch_format, severity, words in (
        (ParquetSink(tmp_path / "out"), "arrow", OK, "has records of 0 of the first 0 partitions"),
        (ParquetSink(file), "arrow", WARNING, "NotADirectoryError"),
        (KafkaSink(servers, lambda _: ()), "arrow", ERROR, "arrow"),  # type: ignore[arg-type]  # values of valid types
    ):
        found = check(spark, sink=sink, batch_format=batch_format, timeout_s=LONG_S).findings
        subject = "batch_format" if severity is ERROR else "sink's output"
        assert one(found, subject).severity is severity
        assert words in one(found, subject).found


@broker_test
def test_check_finds_no_errors_for_a_healthy_session_and_broker(spark: SparkSession, kafka: Broker) -> None:
    """`check` reports no error, also within an asyncio loop as in a notebook, and leaves nothing at the broker."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 4), unique("group")
    config = {"bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest"}

    async def in_a_notebook() -> Diagnosis:
        return check(spark, config, [topic], group, instances=2, sink=write, timeout_s=LONG_S)

    found = asyncio.run(in_a_notebook())
    # A Spark Connect session causes a warning, because its slots cannot be counted.
    assert (found.errors, {finding.subject for finding in found.warnings} - {"session"}) == ((), set())
    assert one(found.findings, "group.protocol").found == "consumer: the brokers support KIP-848"
    assert one(found.findings, f"topic {topic}").found == "4 partitions"
    assert one(found.findings, "instances").found == "2 for 4 partitions"
    assert "does not exist yet" in one(found.findings, f"group {group}").found
    assert [finding.subject for finding in found.findings if finding.subject.startswith("broker ")]
    assert "does not exist yet" in one(asked(kafka, [topic], group), f"group {group}").found


@broker_test
@slow
def test_check_counts_partitions_and_names_missing_topics(kafka: Broker) -> None:
    """`check` names missing topics and warns about instances beyond the partitions, which idle."""
    topic, missing = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("missing")
    found = asked(kafka, [topic], unique("group"), 3)
    assert one(found, "instances").severity is WARNING
    found = asked(kafka, [topic, missing], unique("group"), 3)
    assert subjects(found, ERROR) == [f"topic {missing}"]


@broker_test
@slow
def test_check_finds_a_running_copy_but_not_a_closed_one(kafka: Broker) -> None:
    """`check` reports a running copy of the pipeline; a static member that closed keeps its place but is not a copy."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with Worker(kafka.bootstrap_servers, group, [topic], group_instance_id=f"{group}-0", client_id="copy") as static:
        static.settled(2)
        found = one(asked(kafka, [topic], group), f"pipeline {group}")
        assert found.found.startswith(f"1 of its instance ids are held: {group}-0 by client copy on ")
        # The check of the right to remove members has not removed a member.
        static.settled(2)
        assert static.notes.named("lost") == []
    found_later = asked(kafka, [topic], group)
    assert {finding.severity for finding in found_later} == {OK}
    assert one(found_later, f"group {group}").found == "consumer protocol, 1 members"


@broker_test
@slow
def test_check_names_missing_rights_with_their_resources(kafka_broker: BrokerFactory) -> None:
    """`check` names each missing right with its resource: READ and DESCRIBE of the group and of a topic."""
    broker = kafka_broker(NEWEST, properties=AUTHORIZER)
    bootstrap = broker.bootstrap_servers
    unread, hidden = create_topic(bootstrap, unique("unread"), 2), create_topic(bootstrap, unique("hidden"), 2)
    closed, blind = unique("closed"), unique("blind")
    assert subjects(asked(broker, [unread, hidden], closed), ERROR) == []
    # Without rules, every user may do everything; a rule that allows one operation ends all other permissions.
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

    # The broker applies a new rule a moment after it has accepted it.
    wait_until(
        lambda: [refused(closed), refused(blind)] == expected,
        f"{expected}",
        seen=lambda: [refused(closed), refused(blind)],
    )
    remedy = one(asked(broker, [unread], closed), f"group {closed}").remedy
    assert f"--operation READ --operation DESCRIBE --group {closed}" in remedy


@broker_test
@slow
def test_check_reports_a_broker_with_the_consumer_protocol_switched_off(kafka_broker: BrokerFactory) -> None:
    """`check` reports a broker without the consumer protocol.

    Members would use the classic one and only log the reason.
    """
    broker = kafka_broker(OLDEST, properties=CLASSIC_ONLY)
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    found = one(asked(broker, [topic], group), "group.protocol")
    assert (found.severity, found.found) == (WARNING, "classic: the brokers do not support KIP-848")
    with Worker(broker.bootstrap_servers, group, [topic], group_instance_id=f"{group}-1") as static:
        static.settled(2)
        findings = asked(broker, [topic], group)
    assert one(findings, f"group {group}").found == "classic protocol, 1 members"
    assert f"{group}-1 by client" in one(findings, f"pipeline {group}").found
