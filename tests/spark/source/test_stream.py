"""A stream's member and its batches, on a real broker: asked as Spark asks, without Spark."""

from __future__ import annotations

import logging
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
    """A stream that leaves at the block's end."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "startingOffsets": "earliest"}
    which = {} if any(key in (more or {}) for key in ("subscribePattern", "assign")) else {"subscribe": topic}
    stream = GroupStream(read_options({**given, **which, **(more or {})}, is_streaming=True))
    try:
        yield stream
    finally:
        stream.close()


def committed(kafka: Broker, group: str) -> dict[int, int]:
    """By partition."""
    said = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).committed(group)
    return {number: at.offset for (_, number), at in said.items() if isinstance(at, OffsetAndMetadata)}


def read(stream: GroupStream, start: JsonObject, end: JsonObject) -> dict[tuple[str, int], tuple[int, int]]:
    """What the tasks of a batch read, from where to where."""
    pieces = [piece for task in stream.plan(start, end) for piece in task]
    return {piece.place: (piece.first, piece.end) for piece in pieces}


def offsets(found: JsonObject) -> dict[str, dict[str, int]]:
    """Of a checkpoint."""
    return found["offsets"]  # type: ignore[return-value]  # the source's own form


def test_group_is_seen_and_shows_what_is_done(kafka: Broker) -> None:
    """A member holds it with its host; a batch is committed when Spark has it in its log, and not before."""
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
        # Nothing is new: the very same words, and now the batch is known to be done.
        assert stream.latest(end) == end
        wait_until(lambda: committed(kafka, group) == {0: 10, 1: 10}, "the committed offsets")
        assert (admin.describe(group).group.state, admin.describe(group).lag) == ("Stable", 0)
    assert admin.describe(group).group.state == "Empty"


def test_spark_that_says_nothing_of_a_start(kafka: Broker) -> None:
    """Before pyspark 4.2: the last planned batch is where the next one begins, and what is done."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    with streaming(kafka, topic, group) as stream:
        end = stream.latest(None, 4)
        assert read(stream, stream.initial(), end) == {(topic, 0): (0, 4)}
        next_end = stream.latest(None, 4)
        assert read(stream, end, next_end) == {(topic, 0): (4, 8)}
        wait_until(lambda: committed(kafka, group) == {0: 4}, "the committed offsets")
    # A query that goes on says so by an empty batch.
    with streaming(kafka, topic, group, {"startingOffsets": "latest"}) as stream:
        assert stream.plan(next_end, next_end) == []
        assert offsets(stream.latest()) == {topic: {"0": 10}}
        wait_until(lambda: committed(kafka, group) == {0: 8}, "the committed offsets")


def test_first_batch_is_the_same_when_it_is_repeated(kafka: Broker) -> None:
    """Spark asks a new process where the query began; what was the end then would be another place now."""
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


def test_start_where_the_group_is(kafka: Broker) -> None:
    """And at the first offset of what it has not committed, or where the option says."""
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
        pytest.raises(ConfigurationError, match=r"has committed nothing of .*\[1\]"),
    ):
        stream.initial()


def test_limits_of_a_batch(kafka: Broker) -> None:
    """By records, by bytes, and a least number that is waited for, unless the query ends with what is there."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 200)
    # 0 to 199, as texts: 2.45 bytes each.
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


def test_topics_and_partitions_that_come(kafka: Broker) -> None:
    """Are read from their first record; a pattern is asked again."""
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


def test_topic_made_anew_is_data_loss(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """An error that names partition and offsets; or a report, and everything of the new topic is read."""
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
            # The group's name is in offsets: of each its own.
            assert read(lenient, lenient_end, lenient.latest(lenient_end)) == {(topic, 0): (0, 3)}
        assert "the topic was deleted and made anew" in caplog.text


@pytest.mark.parametrize("records", [5, 8])
@pytest.mark.parametrize("is_new_process", [False, True])
def test_topic_made_anew_that_has_outgrown_the_old_one(kafka: Broker, records: int, is_new_process: bool) -> None:  # noqa: FBT001 - a case
    """Its offsets tell nothing; its id does, which is in the checkpoint."""
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
        with pytest.raises(DataLossError, match=r"read up to 5: the topic was deleted and made anew;"):
            wait_until(lambda: strict.latest(end) != end, "a later end")
    with streaming(kafka, topic, group, {"failOnDataLoss": "false"}) as lenient:
        last = lenient.latest(end)
        assert read(lenient, end, last) == {(topic, 0): (0, records)}
        assert lenient.latest(last) == last


def test_deleted_topic_is_data_loss(kafka: Broker) -> None:
    """Once it is gone for good, and not only unknown for a moment."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    with streaming(kafka, topic, group) as stream:
        end = stream.latest(stream.initial())
        delete_topic(kafka.bootstrap_servers, topic)
        with pytest.raises(DataLossError, match="its topic was deleted, and read up to offset 5"):
            wait_until(lambda: stream.latest(end) != end, "a later end")


def test_second_query_takes_the_group_over(kafka: Broker) -> None:
    """The first one is told so at its next question; never both go on."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    with streaming(kafka, topic, group) as first:
        start = first.initial()
        with streaming(kafka, topic, group) as second:
            assert offsets(second.latest(second.initial())) == {topic: {"0": 2, "1": 2}}
            with pytest.raises(FatalGroupError) as refused:
                wait_until(lambda: first.latest(start) != start and None, "a refusal")
    # Both streams are of this process, as two sources of one query have one driver.
    assert f"two sources of this Spark application read in group {group!r}" in str(refused.value)
    assert "one source with several topics (subscribe=a,b), or give each source a group.id of its own" in str(
        refused.value
    )


def test_query_that_another_application_replaces_names_its_host(kafka: Broker) -> None:
    """A second copy elsewhere is not taken for a second source of the query."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with streaming(kafka, topic, group) as first:
        start = first.initial()
        elsewhere = {"kafka.client.id": "spark-of-elsewhere"}
        with streaming(kafka, topic, group, elsewhere), pytest.raises(FatalGroupError) as refused:
            wait_until(lambda: first.latest(start) != start and None, "a refusal")
    assert "two sources" not in str(refused.value)
    assert f"{group}-source is held by client 'spark-of-elsewhere' on 127.0.0.1" in str(refused.value)


def test_second_query_may_be_refused(kafka: Broker) -> None:
    """With the policy that says so; the first one goes on."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    with streaming(kafka, topic, group) as first:
        with (
            pytest.raises(FatalGroupError, match="refused the reader of group"),
            streaming(kafka, topic, group, {"group.instance.id.conflict.policy": "fail"}),
        ):
            pass
        assert offsets(first.latest(first.initial())) == {topic: {"0": 2, "1": 2}}


def test_stranger_in_the_group_ends_the_query(kafka: Broker) -> None:
    """Both would read the same records; the text names who it is."""
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
            with pytest.raises(FencedError, match="a query holds its group alone"), streaming(kafka, topic, group):
                pass


def test_unknown_topic_and_partition_are_named(kafka: Broker) -> None:
    """Before anything is joined."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with pytest.raises(ConfigurationError, match="there-is-none"), streaming(kafka, "there-is-none", group):
        pass
    with (
        pytest.raises(ConfigurationError, match=r"\[5\]'?: .* has 2 partitions"),
        streaming(kafka, topic, group, {"assign": f'{{"{topic}":[0,5]}}'}),
    ):
        pass
    for given, words in (
        ('{"%s":{"0":1}}', r"\[1\]'?: is not in it"),
        ('{"%s":{"0":1,"1":1,"2":1}}', r"\[2\]'?: is not read by"),
    ):
        with (
            streaming(kafka, topic, group, {"startingOffsets": given % topic}) as stream,
            pytest.raises(ConfigurationError, match=words),
        ):
            stream.initial()


def test_broker_without_the_consumer_protocol(kafka_broker: BrokerFactory, caplog: pytest.LogCaptureFixture) -> None:
    """The member is a classic one, and says so; the rest is the same."""
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


def test_topic_that_was_deleted_is_logged_once_and_counted(kafka: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the latest offset as fast as it is answered; until the topic counts as deleted there is none."""
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
    said = [record for record in caplog.records if "no new batch" in record.getMessage()]
    failures = [record for record in said if "failed" in record.getMessage() or "still fails" in record.getMessage()]
    written = [record for record in failures if record.levelno >= logging.WARNING]
    assert len(failures) > 20
    assert len(written) <= 1 + len(str(len(failures)))
