"""A stream's member and its batches on a real broker, called as Spark calls them, without Spark."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, DataLossError, FatalGroupError, FencedError
from consumer_membership.spark.source.offsets import JsonObject
from consumer_membership.spark.source.options import read_options
from consumer_membership.spark.source.stream import GroupStream
from consumer_membership.types import OffsetAndMetadata
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

pytestmark = pytest.mark.integration


@contextmanager
def streaming(kafka: Broker, topic: str, group: str, more: Mapping[str, str] | None = None) -> Iterator[GroupStream]:
    """A stream that leaves its group at the end of the block."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "startingOffsets": "earliest"}
    which = {} if any(key in (more or {}) for key in ("subscribePattern", "assign")) else {"subscribe": topic}
    stream = GroupStream(read_options({**given, **which, **(more or {})}, is_streaming=True))
    try:
        yield stream
    finally:
        stream.close()


def committed(kafka: Broker, group: str) -> dict[int, int]:
    """The group's committed offsets, by partition."""
    committed = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).committed(group)
    return {number: at.offset for (_, number), at in committed.items() if isinstance(at, OffsetAndMetadata)}


def read(stream: GroupStream, start: JsonObject, end: JsonObject) -> dict[tuple[str, int], tuple[int, int]]:
    """The range of each partition that the tasks of a batch read."""
    pieces = [piece for task in stream.plan(start, end) for piece in task]
    return {piece.topic_partition: (piece.first, piece.end) for piece in pieces}


def offsets(found: JsonObject) -> dict[str, dict[str, int]]:
    """The offsets of a checkpoint."""
    return found["offsets"]  # type: ignore[return-value]  # the source's own form


def test_stream_commits_a_batch_after_spark_has_logged_it(kafka: Broker) -> None:
    """The group shows a member with its host, and a batch is committed only when Spark has logged it."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    admin = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    with streaming(kafka, topic, group) as stream:
        first = stream.initial()
        end = stream.latest(first)
        assert offsets(end) == {topic: {"0": 10, "1": 10}}
        assert read(stream, first, end) == {(topic, 0): (0, 10), (topic, 1): (0, 10)}
        report = admin.describe(group)
        assert [(member.instance_id, bool(member.host)) for member in report.group.members] == [
            (f"{group}-source", True)
        ]
        assert committed(kafka, group) == {}
        # Without new records the end is equal, and this request shows that the batch before it is complete.
        assert stream.latest(end) == end
        wait_until(lambda: committed(kafka, group) == {0: 10, 1: 10}, "the committed offsets")
        assert (admin.describe(group).group.state, admin.describe(group).lag) == ("Stable", 0)
    assert admin.describe(group).group.state == "Empty"


def test_stream_of_an_older_pyspark_continues_from_its_last_planned_batch(kafka: Broker) -> None:
    """Before pyspark 4.2, Spark passes no start: the last planned batch is the start, and counts as done."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    with streaming(kafka, topic, group) as stream:
        end = stream.latest(None, 4)
        assert read(stream, stream.initial(), end) == {(topic, 0): (0, 4)}
        next_end = stream.latest(None, 4)
        assert read(stream, end, next_end) == {(topic, 0): (4, 8)}
        wait_until(lambda: committed(kafka, group) == {0: 4}, "the committed offsets")
    # A restarted query first plans an empty batch at the offset where it continues.
    with streaming(kafka, topic, group, {"startingOffsets": "latest"}) as stream:
        assert stream.plan(next_end, next_end) == []
        assert offsets(stream.latest()) == {topic: {"0": 10}}
        wait_until(lambda: committed(kafka, group) == {0: 8}, "the committed offsets")


def test_repeated_first_batch_reads_the_same_offsets(kafka: Broker) -> None:
    """After a restart Spark requests the initial offset again; the current end of the log would be a different one."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    with streaming(kafka, topic, group, {"startingOffsets": "latest"}) as stream:
        first = stream.initial()
        produce(kafka.bootstrap_servers, topic, 3)
        end = stream.latest(first)
        assert read(stream, first, end) == {(topic, 0): (5, 8)}
    produce(kafka.bootstrap_servers, topic, 2)
    with streaming(kafka, topic, group, {"startingOffsets": "latest"}) as stream:
        assert read(stream, stream.initial(), end) == {(topic, 0): (5, 8)}
        empty = stream.latest(stream.initial())
    produce(kafka.bootstrap_servers, topic, 1)
    with streaming(kafka, topic, group, {"startingOffsets": "latest"}) as stream:
        assert read(stream, stream.initial(), empty) == {}


def test_starting_offsets_group_begins_at_the_committed_offsets(kafka: Broker) -> None:
    """Partitions without a committed offset begin as `kafka.auto.offset.reset` states, by default at the earliest."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    with streaming(kafka, topic, group, {"assign": f'{{"{topic}":[0]}}'}) as stream:
        end = stream.latest(stream.initial(), 7)
        stream.plan(stream.initial(), end)
        stream.commit(end)
        wait_until(lambda: committed(kafka, group) == {0: 7}, "the committed offsets")
    at_group = {"startingOffsets": "group"}
    for reset, second in (("earliest", 0), ("latest", 10)):
        with streaming(kafka, topic, group, {**at_group, "kafka.auto.offset.reset": reset}) as stream:
            assert offsets(stream.initial()) == {topic: {"0": 7, "1": second}}
    with (
        streaming(kafka, topic, group, {**at_group, "kafka.auto.offset.reset": "none"}) as stream,
        pytest.raises(ConfigurationError, match=r"has no committed offset of .*\[1\]"),
    ):
        stream.initial()


def test_batch_limits_by_records_bytes_and_minimum_are_kept(kafka: Broker) -> None:
    """`minOffsetsPerTrigger` waits for its minimum, except with `availableNow`."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 200)
    # The values are the numbers 0 to 199 as text: 2.45 bytes each on average.
    with streaming(kafka, topic, group, {"maxBytesPerTrigger": "49"}) as stream:
        assert offsets(stream.latest(stream.initial())) == {topic: {"0": 10, "1": 10}}
        assert offsets(stream.latest(stream.initial(), 4)) == {topic: {"0": 2, "1": 2}}
    with streaming(kafka, topic, group, {"minOffsetsPerTrigger": "201", "maxTriggerDelay": "1h"}) as stream:
        first = stream.initial()
        assert offsets(stream.latest(first)) == {topic: {"0": 0, "1": 0}}
        produce(kafka.bootstrap_servers, topic, 2)
        assert offsets(stream.latest(first)) == {topic: {"0": 101, "1": 101}}
    with streaming(kafka, topic, group, {"minOffsetsPerTrigger": "203"}) as stream:
        stream.prepare_for_available_now()
        produce(kafka.bootstrap_servers, topic, 2)
        assert offsets(stream.latest(stream.initial())) == {topic: {"0": 101, "1": 101}}


def test_new_topics_of_a_pattern_are_read_from_their_first_record(kafka: Broker) -> None:
    """A pattern is evaluated again, and its new topics are read from the first record."""
    name = unique("topic")
    first, group = create_topic(kafka.bootstrap_servers, f"{name}.a", 1), unique("group")
    create_topic(kafka.bootstrap_servers, f"x{name}.b", 1)
    produce(kafka.bootstrap_servers, first, 2)
    with streaming(kafka, "", group, {"subscribePattern": f"^{name}[.]"}) as stream:
        end = stream.latest(stream.initial())
        assert offsets(end) == {first: {"0": 2}}
        second = create_topic(kafka.bootstrap_servers, f"{name}.b", 1)
        produce(kafka.bootstrap_servers, second, 3)
        wait_until(
            lambda: offsets(stream.latest(end)) == {first: {"0": 2}, second: {"0": 3}}, "the ends of both topics"
        )
        assert read(stream, end, stream.latest(end)) == {(second, 0): (0, 3)}
        wait_until(
            lambda: stream._hold._member.view().owned.keys() == {(first, 0), (second, 0)},
            "both partitions with the member",
        )


def test_recreated_topic_is_data_loss(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A recreated topic raises `DataLossError`, or with `failOnDataLoss=false` is logged and read from its start."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    with (
        streaming(kafka, topic, group) as strict,
        streaming(kafka, topic, unique("group"), {"failOnDataLoss": "false"}) as lenient,
    ):
        end = strict.latest(strict.initial())
        lenient_end = lenient.latest(lenient.initial())
        delete_topic(kafka.bootstrap_servers, topic)
        create_topic(kafka.bootstrap_servers, topic, 1)
        produce(kafka.bootstrap_servers, topic, 3)
        with pytest.raises(DataLossError, match=r"\[0\] ends at offset \d and was read up to 5"):
            wait_until(lambda: strict.latest(end) != end, "a later end")
        with caplog.at_level(logging.WARNING, "consumer_membership.spark.source"):
            wait_until(
                lambda: offsets(lenient.latest(lenient_end)) == {topic: {"0": 3}}, "the end without the lost records"
            )
            # Offsets contain their group's name, so this stream gets the offsets of its own group.
            assert read(lenient, lenient_end, lenient.latest(lenient_end)) == {(topic, 0): (0, 3)}
        assert "the topic was deleted and created again" in caplog.text


@pytest.mark.parametrize("records", [5, 8])
@pytest.mark.parametrize("is_new_process", [False, True])
def test_longer_recreated_topic_is_data_loss(kafka: Broker, records: int, is_new_process: bool) -> None:  # noqa: FBT001 - a case
    """Its offsets do not show the loss, but the topic id in the checkpoint does."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    with ExitStack() as stack:
        strict = stack.enter_context(streaming(kafka, topic, group))
        end = strict.latest(strict.initial())
        if is_new_process:
            stack.close()
        delete_topic(kafka.bootstrap_servers, topic)
        create_topic(kafka.bootstrap_servers, topic, 1)
        produce(kafka.bootstrap_servers, topic, records)
        if is_new_process:
            strict = stack.enter_context(streaming(kafka, topic, group))
        with pytest.raises(DataLossError, match=r"read up to 5: the topic was deleted and created again;"):
            wait_until(lambda: strict.latest(end) != end, "a later end")
    with streaming(kafka, topic, group, {"failOnDataLoss": "false"}) as lenient:
        last = lenient.latest(end)
        assert read(lenient, end, last) == {(topic, 0): (0, records)}
        assert lenient.latest(last) == last


def test_deleted_topic_is_data_loss(kafka: Broker) -> None:
    """A topic counts as deleted only once it is gone permanently, not while its metadata is briefly unknown."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    with streaming(kafka, topic, group) as stream:
        end = stream.latest(stream.initial())
        delete_topic(kafka.bootstrap_servers, topic)
        with pytest.raises(DataLossError, match="its topic was deleted; the query had read up to offset 5"):
            wait_until(lambda: stream.latest(end) != end, "a later end")


def test_second_stream_of_a_group_fences_the_first(kafka: Broker) -> None:
    """The first stream raises `FatalGroupError` at its next call; the two never both continue."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    with streaming(kafka, topic, group) as first:
        start = first.initial()
        with streaming(kafka, topic, group) as second:
            assert offsets(second.latest(second.initial())) == {topic: {"0": 2, "1": 2}}
            with pytest.raises(FatalGroupError) as refused:
                wait_until(lambda: first.latest(start) != start and None, "a refusal")
    # Both streams run in this process, as two sources of one query run in one driver.
    assert f"two sources of this Spark application read in group {group!r}" in str(refused.value)
    assert "one source with several topics (subscribe=a,b), or give each source a group.id of its own" in str(
        refused.value
    )


def test_stream_replaced_by_another_application_names_its_host(kafka: Broker) -> None:
    """A copy in another application is not mistaken for a second source of the same query."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with streaming(kafka, topic, group) as first:
        start = first.initial()
        elsewhere = {"kafka.client.id": "spark-of-elsewhere"}
        with streaming(kafka, topic, group, elsewhere), pytest.raises(FatalGroupError) as refused:
            wait_until(lambda: first.latest(start) != start and None, "a refusal")
    assert "two sources" not in str(refused.value)
    # A broker in a container sees another address of this host.
    assert re.search(rf"{group}-source is held by client 'spark-of-elsewhere' on \d+\.", str(refused.value))


def test_second_stream_is_refused_with_the_fail_policy(kafka: Broker) -> None:
    """With `group.instance.id.conflict.policy=fail` the second stream raises, and the first one continues."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    with streaming(kafka, topic, group) as first:
        with (
            pytest.raises(FatalGroupError, match="refused the reader of group"),
            streaming(kafka, topic, group, {"group.instance.id.conflict.policy": "fail"}),
        ):
            pass
        assert offsets(first.latest(first.initial())) == {topic: {"0": 2, "1": 2}}


def test_foreign_member_in_the_group_ends_the_stream(kafka: Broker) -> None:
    """Both would read the same records, so the stream raises and names the foreign client."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    stranger = ConfluentConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "client.id": "stranger",
        }
    )
    with streaming(kafka, topic, group) as stream:
        start = stream.initial()
        with ConsumerThread(stranger, [topic]):
            with pytest.raises(FencedError, match="client 'stranger'"):
                wait_until(lambda: stream.latest(start) is None, "an end that waits")
            with (
                pytest.raises(FencedError, match="a query must be the only member of its group"),
                streaming(kafka, topic, group),
            ):
                pass


def test_unknown_topic_and_partition_are_named(kafka: Broker) -> None:
    """The stream raises before it joins a group."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with pytest.raises(ConfigurationError, match="there-is-none"), streaming(kafka, "there-is-none", group):
        pass
    with (
        pytest.raises(ConfigurationError, match=r"\[5\]'?: .* has 2 partitions"),
        streaming(kafka, topic, group, {"assign": f'{{"{topic}":[0,5]}}'}),
    ):
        pass
    for given, words in (
        ('{"%s":{"0":1}}', r"\[1\]'?: it is missing"),
        ('{"%s":{"0":1,"1":1,"2":1}}', r"\[2\]'?: this query does not read it"),
    ):
        with (
            streaming(kafka, topic, group, {"startingOffsets": given % topic}) as stream,
            pytest.raises(ConfigurationError, match=words),
        ):
            stream.initial()


def test_broker_without_the_consumer_protocol_gets_a_classic_member(
    kafka_broker: BrokerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream logs that its member is classic, and works as usual."""
    kafka = kafka_broker(version="3.9.1")
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    with caplog.at_level(logging.INFO, "consumer_membership"), streaming(kafka, topic, group) as stream:
        end = stream.latest(stream.initial())
        assert read(stream, stream.initial(), end) == {(topic, 0): (0, 2), (topic, 1): (0, 2)}
        assert stream.latest(end) == end
        wait_until(lambda: committed(kafka, group) == {0: 2, 1: 2}, "the committed offsets")
    assert "classic" in caplog.text
    assert GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).describe(group).group.state == "Empty"


def test_failures_of_a_deleted_topic_are_logged_once_and_counted(
    kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark calls `latest` in a tight loop until the topic counts as deleted, so repeated failures are only counted."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    with streaming(kafka, topic, group) as stream, caplog.at_level(logging.DEBUG):
        end = stream.latest(stream.initial())
        delete_topic(kafka.bootstrap_servers, topic)

        def ask_until_it_is_gone() -> None:
            while True:
                stream.latest(end)

        with pytest.raises(DataLossError, match="its topic was deleted"):
            ask_until_it_is_gone()
    lines = [record for record in caplog.records if "no new batch" in record.getMessage()]
    failures = [record for record in lines if "failed" in record.getMessage() or "in a row" in record.getMessage()]
    written = [record for record in failures if record.levelno >= logging.WARNING]
    assert len(failures) > 20
    assert len(written) <= 1 + len(str(len(failures)))
