"""`check`: find problems before a job with group members runs.

    from consumer_membership.spark.doctor import check

    print(check(spark, config, ["orders"], "billing", instances=4, sink=write))
    check(spark, config, ["orders"], "billing", instances=4, sink=write).raise_for_errors()

It changes nothing: it reads the session's configuration, runs one small job over the slots, and sends read-only
requests to the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from consumer_membership.errors import ConfigurationError, SinkError
from consumer_membership.spark.arguments import (
    check_config,
    check_sink,
    check_time,
    check_use,
    context_of,
    with_suggestions,
)
from consumer_membership.spark.context import BatchFormat, SinkUse
from consumer_membership.spark.diagnosis.catalogue import finding
from consumer_membership.spark.diagnosis.cluster import ClusterFacts, cluster_facts, cluster_findings
from consumer_membership.spark.diagnosis.examination import Endpoint
from consumer_membership.spark.diagnosis.findings import Diagnosis, Finding, Severity, diagnosis
from consumer_membership.spark.diagnosis.session import session_facts, session_findings
from consumer_membership.spark.diagnosis.workers import connect_facts, worker_facts, worker_findings
from consumer_membership.spark.pickling import pickled
from consumer_membership.spark.plan import check_format, cluster_config, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Diagnosis", "Finding", "Severity", "check"]

#: A placeholder for topic and group if the caller names none, to check the rest of the configuration.
_ANY = "-"
#: The largest timeout for brokers, which usually respond in milliseconds; the job over the slots needs the other time.
_LONGEST_BROKER_S = 10.0


class _Wanted(TypedDict):
    """The checks of each task."""

    advertised: Sequence[Endpoint]
    bootstrap: Sequence[Endpoint]
    sink: bytes
    files: Mapping[str, str]
    timeout_s: float


@with_suggestions()
def check(
    spark: SparkSession,
    config: Mapping[str, object] | None = None,
    topics: Sequence[str] = (),
    group: str | None = None,
    *,
    instances: int | None = None,
    pipeline: str | None = None,
    sink: object | None = None,
    batch_format: BatchFormat | str = BatchFormat.MESSAGES,
    timeout_s: float = 30.0,
) -> Diagnosis:
    """Find the problems that a job with these members would have in the session, in its tasks, and with the brokers.

    Only the arguments that you give are checked: without `config`, `topics` and `group`, nothing in Kafka is checked;
    without `sink`, its transfer to the tasks is not checked.

    Args:
        spark: The session that is to run the job.
        config: The consumer configuration of the job.
        topics: The names of the topics.
        group: The group; default: `group.id` of the configuration.
        instances: The number of members, each in its own task.
        pipeline: The first part of the members' instance ids; default: the group.
        sink: The sink of the job. The sinks of this package also check their output (topics, tables, a folder).
        batch_format: The batch format of the job.
        timeout_s: The total timeout in seconds; then the small job is cancelled.

    Returns:
        All findings; `raise_for_errors()` raises an exception for problems that make the job fail.

    Raises:
        ConfigurationError: an argument has the wrong type, or the session was stopped.
    """
    context = context_of(spark)
    check_time("timeout_s", timeout_s)
    if config is not None:
        check_config(config)
    deadline = time.monotonic() + timeout_s
    sent, findings = _sink(sink)
    if group is None and config is not None and config.get("group.id") is not None:
        group = str(config["group.id"])
    cluster: ClusterFacts | None = None
    brokers: Mapping[str, object] = {}
    if config is not None or topics or group is not None:
        usable, refusals = _checked(config or {}, topics, group, instances, pipeline)
        findings += refusals
        if usable is not None:
            cluster = cluster_facts(usable, topics, group, min(_LONGEST_BROKER_S, timeout_s / 2))
            brokers = cluster_config(planned(usable, topics or (_ANY,), group or _ANY))
            findings += cluster_findings(cluster, instances, pipeline or group or _ANY)
    if sent:
        topics_found = () if cluster is None else cluster.topics
        use = SinkUse(
            group=group or _ANY,
            batch_format=check_format(batch_format),
            partitions=tuple((topic.name, number) for topic in topics_found for number in range(topic.partitions)),
            is_on_driver=context is not None,
            cluster_config=brokers,
        )
        findings += _output(sink, use)
    wanted: _Wanted = {
        "advertised": () if cluster is None else [(one.host, one.port) for one in cluster.brokers],
        "bootstrap": () if cluster is None else cluster.bootstrap,
        "sink": sent,
        "files": {} if cluster is None else cluster.files,
        "timeout_s": max(1.0, deadline - time.monotonic()),
    }
    if context is not None:
        workers = worker_facts(context, session_facts(spark).slots_to_come(instances), **wanted)
        findings += worker_findings(workers, context.pythonExec, instances)
    else:
        python = spark.conf.get("spark.sql.execution.pyspark.python", None) or "the server's interpreter"
        findings += worker_findings(connect_facts(spark, instances or 1, **wanted), python, instances)
    # Last, because executors register when there is a job.
    findings += session_findings(session_facts(spark), instances)
    return diagnosis(findings)


def _sink(sink: object | None) -> tuple[bytes, list[Finding]]:
    """Return the pickled sink, and the findings about it."""
    if sink is None:
        return b"", []
    if not callable(sink):
        return b"", [finding("no sink", kind=type(sink).__qualname__)]
    try:
        check_sink(sink)
        sent = pickled(sink)
    except ConfigurationError as refusal:
        return b"", [finding("refused", refusal=refusal)]
    return sent, [finding("sink", size=len(sent))]


def _output(sink: object | None, use: SinkUse) -> list[Finding]:
    """Return the findings of the sink's `check_use`."""
    try:
        found = check_use(sink, use)
    except ConfigurationError as refusal:
        return [finding("refused", refusal=refusal)]
    except SinkError as unknown:
        return [finding("output not known", error=unknown)]
    return [finding("output", found=found)] if found else []


def _checked(
    config: Mapping[str, object],
    topics: Sequence[str],
    group: str | None,
    instances: int | None,
    pipeline: str | None,
) -> tuple[Mapping[str, object] | None, list[Finding]]:
    """Return a configuration that can connect to the brokers (None: there is none), and a finding for each bad key."""
    usable, findings = dict(config), []
    count = 1 if instances is None else instances
    while True:
        try:
            planned(usable, topics or (_ANY,), _ANY if group is None else group, count, pipeline=pipeline)
        except ConfigurationError as refused:
            findings.append(finding("refused", refusal=refused))
            if refused.key not in usable:
                return None, findings
            # Remove one key at a time, to report all of them.
            del usable[refused.key]
        else:
            return usable, findings
