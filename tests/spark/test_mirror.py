"""The mirror shows a streaming query's position as a group: its reading of the progress, and its group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from pyspark.sql.streaming.listener import StreamingQueryProgress

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.mirror import OffsetMirror, _checked, _MirroredGroup, ends_of
from tests.benchmarks.spark_jars import connector_jars
from tests.spark.batch_progress import progress_fields
from tests.spark.clusters import CONNECT, port_of_own_servers
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import CLASSIC_ONLY
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]


def progress(*sources: tuple[str, object]) -> StreamingQueryProgress:
    """Spark's progress of one batch, by its sources: description and end."""
    return StreamingQueryProgress.fromJson(progress_fields(*sources))


# ---- reading a query's progress --------------------------------------------------------------------------------------


def test_ends_of_takes_the_ends_of_kafka_sources_only() -> None:
    """`ends_of` reads the ends of all Kafka sources and ignores other sources."""
    ends = {"orders": {"0": 5, "11": 7}, "payments": {"0": 1}}
    event = progress(("KafkaV2[Subscribe[orders, payments]]", ends), ("RateStreamV2[...]", 17))
    assert ends_of(event) == {("orders", 0): 5, ("orders", 11): 7, ("payments", 0): 1}


def test_ends_of_takes_the_smaller_end_of_a_partition_read_twice() -> None:
    """All sources have read up to the smallest end, so the committed offset is never ahead of the query."""
    sources = [("KafkaV2[Subscribe[t]]", {"t": {"0": end}}) for end in (9, 4, 6)]
    assert ends_of(progress(*sources)) == {("t", 0): 4}


def test_ends_of_ignores_a_source_without_an_end() -> None:
    """A source has no end before its first batch."""
    assert ends_of(progress(("KafkaV2[Subscribe[t]]", None))) == {}


@pytest.mark.parametrize("given", [None, {}, [], {"q": ""}, {"": "g"}, {1: "g"}, {"q": None}])
def test_group_ids_must_map_names_to_names(given: object) -> None:
    """`group_ids` that do not map query names to group names raise an error that names the parameter."""
    with pytest.raises(ConfigurationError, match="group_ids"):
        _checked(given)


def test_one_group_for_two_queries_is_refused() -> None:
    """Two queries with the same group are refused, because each would overwrite the other's offsets."""
    with pytest.raises(ConfigurationError, match="each query needs its own group"):
        _checked({"a": "g", "b": "g"})


@pytest.mark.parametrize("key", ["group.id", "group.instance.id", "group.instance.id.pool"])
def test_mirror_refuses_keys_of_group_and_member(spark: Any, key: str) -> None:
    """The mirror sets group and member ids itself and refuses keys that set them."""
    with pytest.raises(ConfigurationError, match=key):
        OffsetMirror(spark, group_ids={"q": "g"}, config={key: "x"})


def test_mirror_refuses_an_invalid_configuration_and_an_unknown_query(spark: Any) -> None:
    """Both raise `ConfigurationError` on the driver, instead of a line in a thread's log."""
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        OffsetMirror(spark, group_ids={"q": "g"}, config={"bootstrap.servers": "host:port"})
    with (
        OffsetMirror(spark, group_ids={"q": "g"}, config={"bootstrap.servers": "127.0.0.1:1"}) as mirror,
        pytest.raises(ConfigurationError, match="give a query of group_ids: q"),
    ):
        mirror.state("other")
    mirror.close()


# ---- the group -------------------------------------------------------------------------------------------------------


@contextmanager
def mirrored(kafka: Broker, group: str, query: str = "a query") -> Iterator[_MirroredGroup]:
    """A mirrored group that is held until the block ends."""
    made = _MirroredGroup(query, group, {"bootstrap.servers": kafka.bootstrap_servers, "heartbeat.interval.ms": 200})
    try:
        yield made
    finally:
        made.end()
        made.join()


@pytest.mark.integration
@pytest.mark.slow
def test_mirrored_group_shows_the_position_of_the_query(kafka: Broker) -> None:
    """The group is stable, with an owner and the query's lag.

    It follows later batches, other topics and a rewound query.
    """
    servers = kafka.bootstrap_servers
    first, second, group = create_topic(servers, unique("a"), 2), create_topic(servers, unique("b"), 1), unique("group")
    produce(servers, first, 20)
    admin = GroupAdmin({"bootstrap.servers": servers})
    with mirrored(kafka, group) as shown:
        shown.show(0, {(first, 0): 4, (first, 1): 10})
        wait_until(lambda: shown.state.batch_id == 0, "the mirror's batch")
        report = admin.describe(group)
        assert (report.group.state, report.lag) == ("Stable", 6)
        assert [member.instance_id for member in report.group.members] == ["mirror-a-query"]
        assert {row.owner for row in report.partitions} == {report.group.members[0].member_id}
        shown.show(1, {(first, 0): 10, (first, 1): 10, (second, 0): 0})
        wait_until(lambda: shown.state.batch_id == 1, "the mirror's batch")
        assert admin.describe(group).lag == 0
        shown.show(0, {(first, 0): 1, (first, 1): 1, (second, 0): 0})
        wait_until(lambda: shown.state.batch_id == 0, "the mirror's batch")
        assert (admin.describe(group).lag, shown.state.error, shown.state.others) == (18, None, False)
        # The same batch number with other offsets: the query was restarted with another checkpoint.
        shown.show(0, {(first, 0): 2, (first, 1): 2, (second, 0): 0})
    # At its end, the mirror has committed the last shown offsets, and no member is left.
    report = admin.describe(group)
    assert (report.group.state, report.lag, shown.state.batch_id) == ("Empty", 16, 0)


@pytest.mark.integration
@pytest.mark.slow
def test_second_mirror_of_a_query_waits_for_the_first(kafka: Broker) -> None:
    """A second mirror of the query joins after the first one has left."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    with mirrored(kafka, group) as second:
        with mirrored(kafka, group) as first:
            first.show(7, {(topic, 0): 0})
            wait_until(lambda: first.state.batch_id == 7, "the mirror's batch")
            second.show(8, {(topic, 0): 0})
            wait_until(lambda: second._thread is not None, "the second mirror's thread")
            first.show(9, {(topic, 0): 0})
            wait_until(lambda: first.state.batch_id == 9, "the mirror's batch")
            assert second.state.batch_id is None
        wait_until(lambda: second.state.batch_id == 8, "the mirror's batch")


@pytest.mark.integration
@pytest.mark.slow
def test_mirror_reports_another_member_in_its_group(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A foreign member sets `others` and is logged, and the query's position is committed regardless."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    stranger = RawConsumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "group.protocol": "consumer"}
    )
    with mirrored(kafka, group) as shown:
        shown.show(0, {(topic, 0): 0, (topic, 1): 0})
        wait_until(lambda: shown.state.batch_id == 0, "the mirror's batch")
        try:
            stranger.subscribe([topic])
            wait_until(lambda: stranger.poll(0.05) is None and shown.state.others, "the stranger in the mirror's state")
        finally:
            stranger.close()
        wait_until(lambda: not shown.state.others, "a group without strangers")
    assert "another member reads in this group" in caplog.text


@pytest.mark.integration
@pytest.mark.slow
def test_mirror_that_cannot_join_reports_a_remedy_for_its_user(
    kafka: Broker, broker_pool: RunBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    """The remedy, for a broker without the consumer protocol or a classic group, names no key of the mirror itself."""
    old = broker_pool.shared(NEWEST, properties=CLASSIC_ONLY)
    topic, group = create_topic(old.bootstrap_servers, unique("topic"), 1), unique("group")
    with mirrored(old, group) as shown:
        shown.show(0, {(topic, 0): 0})
        wait_until(lambda: shown.state.error is not None, "the error")
    refused = shown.state.error or ""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    classic = RawConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        classic.subscribe([topic])
        wait_until(lambda: classic.poll(0.05) is None and bool(classic.assignment()), "the classic member's partitions")
        with mirrored(kafka, group) as shown:
            shown.show(0, {(topic, 0): 0})
            wait_until(lambda: classic.poll(0.05) is None and shown.state.error is not None, "the error")
    finally:
        classic.close()
    taken = shown.state.error or ""
    assert (refused[:21], "Apache Kafka 4.0 or later" in refused) == ("UNSUPPORTED_VERSION: ", True)
    assert "`consumer-membership checkpoint show`" in refused
    assert (taken[:40], "in group_ids" in taken) == ("_CONFLICT: the group has 1 classic member"[:40], True)
    lines = [record.getMessage() for record in caplog.records if record.name == "consumer_membership.spark.mirror"]
    assert [text.partition("could not be committed: ")[2] for text in lines] == [refused, taken]
    assert "group.instance.id" not in refused + taken


@contextmanager
def killed_at_the_end(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill the process even after a failure, because its server would keep the port that later tests need."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.parametrize("count", [1, 2])
def test_listener_is_removed_while_an_event_arrives(count: int) -> None:
    """The removal of a session's last listener ends, and the listener receives the events that were in transit."""
    command = [sys.executable, "-m", "tests.spark.listener_removal", str(count)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    with (
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process,
        killed_at_the_end(process),
    ):
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (0, "1\n")


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2]", f"{CONNECT}local[2]"])
def test_query_of_spark_is_mirrored(kafka: Broker, tmp_path: Path, master: str) -> None:
    """The group follows the checkpoint of a query over Spark's own Kafka source, in a session with its jar."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 3), unique("group")
    produce(kafka.bootstrap_servers, topic, 300)
    command = [sys.executable, "-m", "tests.spark.mirrored_query", kafka.bootstrap_servers, topic, group]
    command += [",".join(connector_jars()), master]
    # PYTHONPATH may contain another pyspark, which has priority over the installed one.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    its = {**os.environ, "PYTHONPATH": path}
    with (
        port_of_own_servers() if master.startswith(CONNECT) else nullcontext(),
        subprocess.Popen(command, cwd=tmp_path, env=its, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as query,
        killed_at_the_end(query),
    ):
        assert query.stdin is not None
        assert query.stdout is not None
        assert json.loads(query.stdout.readline()) == {f"{topic}-{number}": 100 for number in range(3)}
        admin = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
        report = admin.describe(group)
        assert (report.group.state, report.lag) == ("Stable", 0)
        produce(kafka.bootstrap_servers, topic, 30)
        query.stdin.write(b"330\n")
        query.stdin.flush()
        assert json.loads(query.stdout.readline()) == {f"{topic}-{number}": 110 for number in range(3)}
        query.stdin.close()
        assert query.wait(PATIENCE_S) == 0
    report = admin.describe(group)
    assert (report.group.state, report.lag) == ("Empty", 0)
