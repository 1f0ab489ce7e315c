"""The verifiable consumer: its command line, its events, and their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership.kafkatest.arguments import parse
from consumer_membership.kafkatest.events import (
    CommittedOffset,
    ConsumedRange,
    EventPartition,
    OffsetsCommitted,
    PartitionsAssigned,
    PartitionsRevoked,
    RecordData,
    RecordsConsumed,
    ShutdownComplete,
    StartupComplete,
    VerifiableEvent,
    encode,
)
from consumer_membership.kafkatest.verifiable_consumer import VerifiableConsumer

REQUIRED = ("--bootstrap-server", "host:9092", "--topic", "orders", "--group-id", "billing")
ZERO, ONE = EventPartition(topic="orders", partition=0), EventPartition(topic="orders", partition=1)


# ---- the command line -----------------------------------------------------------------------------------------------


def test_parse_returns_the_defaults_of_javas_tool() -> None:
    """Without options, a member is classic, has the range assignor, and commits each batch manually."""
    options = parse(REQUIRED)
    assert dict(options.config) == {
        "bootstrap.servers": "host:9092",
        "group.id": "billing",
        "group.protocol": "classic",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 30_000,
    }
    assert (options.topic, options.max_messages, options.is_verbose, options.is_auto_commit) == (
        "orders",
        None,
        False,
        False,
    )


def test_parse_translates_the_names_of_java_assignors() -> None:
    """Java's class names become values of partition.assignment.strategy, in their order."""
    package = "org.apache.kafka.clients.consumer"
    options = parse([*REQUIRED, "--assignment-strategy", f"{package}.RoundRobinAssignor,{package}.RangeAssignor"])
    assert options.config["partition.assignment.strategy"] == "roundrobin,range"


def test_parse_omits_classic_options_in_the_consumer_protocol() -> None:
    """A member of the consumer protocol has a remote assignor, and neither strategies nor a session timeout."""
    options = ["--group-protocol", "CONSUMER", "--group-remote-assignor", "uniform", "--session-timeout", "9000"]
    config = parse([*REQUIRED, *options, "--group-instance-id", "a", "--assignment-strategy", "range"]).config
    assert (config["group.protocol"], config["group.remote.assignor"]) == ("consumer", "uniform")
    assert config["group.instance.id"] == "a"
    assert not {"partition.assignment.strategy", "session.timeout.ms"} & config.keys()


def test_parse_lets_the_command_line_override_the_properties_file(tmp_path: Path) -> None:
    """As in Java's tool, options of the command line have precedence; other keys of the file are kept."""
    file = tmp_path / "consumer.properties"
    file.write_text("# comment\n\nsecurity.protocol = PLAINTEXT\ngroup.id=other\n")
    config = parse([*REQUIRED, "--consumer.config", str(file)]).config
    assert (config["security.protocol"], config["group.id"]) == ("PLAINTEXT", "billing")


def test_parse_rejects_an_invalid_line_of_the_properties_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line without `=` ends the process, with an error that has the line's number and text."""
    file = tmp_path / "consumer.properties"
    file.write_text("group.id\n")
    with pytest.raises(SystemExit):
        parse([*REQUIRED, "--command-config", str(file)])
    assert "line 1 of" in capsys.readouterr().err


# ---- the events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StartupComplete(), {"name": "startup_complete"}),
        (
            PartitionsAssigned(partitions=(ZERO,)),
            {"name": "partitions_assigned", "partitions": [{"topic": "orders", "partition": 0}]},
        ),
        (PartitionsRevoked(partitions=()), {"name": "partitions_revoked", "partitions": []}),
        (
            RecordsConsumed(ranges=(ConsumedRange(partition=ONE, count=2, min_offset=5, max_offset=6),)),
            {
                "name": "records_consumed",
                "count": 2,
                "partitions": [{"topic": "orders", "partition": 1, "count": 2, "minOffset": 5, "maxOffset": 6}],
            },
        ),
        (
            RecordData(partition=ONE, offset=5, key=None, value="v"),
            {"name": "record_data", "key": None, "value": "v", "topic": "orders", "partition": 1, "offset": 5},
        ),
        (
            OffsetsCommitted(offsets=(CommittedOffset(partition=ONE, offset=7),), error=None),
            {
                "name": "offsets_committed",
                "offsets": [{"topic": "orders", "partition": 1, "offset": 7}],
                "success": True,
            },
        ),
        (
            OffsetsCommitted(offsets=(), error="no"),
            {"name": "offsets_committed", "offsets": [], "error": "no", "success": False},
        ),
        (ShutdownComplete(), {"name": "shutdown_complete"}),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_encode_returns_the_json_of_javas_tool(event: VerifiableEvent, expected: dict[str, object]) -> None:
    """Each event is one line of JSON with a timestamp, its name, and the fields of Java's tool."""
    line = encode(event, 1_700_000_000_000)
    assert "\n" not in line
    assert json.loads(line) == {"timestamp": 1_700_000_000_000, **expected}


# ---- the order of the events ----------------------------------------------------------------------------------------


class ScriptedConsumer:
    """A fake consumer: each call of `poll` returns the next record or error, or runs the next function."""

    def __init__(self, *steps: Message | Callable[[ScriptedConsumer], object] | None) -> None:
        self.steps = list(steps)
        self.commits: list[dict[int, int]] = []
        self.commit_error: KafkaError | None = None
        self.is_closed = False

    def subscribe(
        self,
        topics: list[str],
        /,
        *,
        on_assign: Callable[[object, list[TopicPartition]], object],
        on_revoke: Callable[[object, list[TopicPartition]], object],
        on_lost: Callable[[object, list[TopicPartition]], object],
    ) -> None:
        assert topics == ["orders"]
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost

    def poll(self, timeout: float = -1) -> Message | None:
        del timeout
        step = self.steps.pop(0)
        if step is None or isinstance(step, Message):
            return step
        step(self)
        return None

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        if self.commit_error is not None:
            raise KafkaException(self.commit_error)
        self.commits.append({one.partition: one.offset for one in offsets})
        return offsets

    def close(self) -> None:
        self.is_closed = True


def record(partition: int, offset: int) -> Message:
    """Return a record of the topic."""
    return Message(topic="orders", partition=partition, offset=offset, key=b"k", value=b"v")


def failure(code: int) -> Message:
    """Return a message with an error."""
    return Message(topic="orders", error=KafkaError(code, "text"))


def run(consumer: ScriptedConsumer, *options: str) -> tuple[list[VerifiableEvent], bool]:
    """Run a verifiable consumer until its steps are done; return its events, and whether it ended without error."""
    events: list[VerifiableEvent] = []
    verifiable = VerifiableConsumer(consumer, parse([*REQUIRED, *options]), events.append)
    consumer.steps.append(lambda _: verifiable.stop())
    return events, verifiable.run()


def partitions(*numbers: int) -> list[TopicPartition]:
    """Return these partitions of the topic."""
    return [TopicPartition("orders", number) for number in numbers]


def names(events: Sequence[VerifiableEvent]) -> list[str]:
    """Return the names of the events."""
    return [type(event).__name__ for event in events]


def test_batch_is_reported_and_then_committed() -> None:
    """A batch is one event with a range for each partition, and is reported before its commit."""
    consumer = ScriptedConsumer(record(0, 5), record(1, 8), record(0, 6), None)
    events, is_clean = run(consumer)
    assert events == [
        StartupComplete(),
        RecordsConsumed(
            ranges=(
                ConsumedRange(partition=ZERO, count=2, min_offset=5, max_offset=6),
                ConsumedRange(partition=ONE, count=1, min_offset=8, max_offset=8),
            )
        ),
        OffsetsCommitted(
            offsets=(CommittedOffset(partition=ZERO, offset=7), CommittedOffset(partition=ONE, offset=9)), error=None
        ),
        ShutdownComplete(),
    ]
    assert (consumer.commits, consumer.is_closed, is_clean) == ([{0: 7, 1: 9}], True, True)


def test_batch_is_reported_before_its_partition_is_revoked() -> None:
    """Records that were received before on_revoke are reported and committed first."""
    consumer = ScriptedConsumer(
        lambda group: group.on_assign(group, partitions(0)),
        record(0, 5),
        lambda group: group.on_revoke(group, partitions(0)),
    )
    events, _ = run(consumer)
    assert names(events) == [
        "StartupComplete",
        "PartitionsAssigned",
        "RecordsConsumed",
        "OffsetsCommitted",
        "PartitionsRevoked",
        "ShutdownComplete",
    ]


def test_lost_partitions_are_reported_as_revoked_without_a_commit() -> None:
    """Records of lost partitions are reported but not committed, because another member may already own them."""
    consumer = ScriptedConsumer(record(0, 5), lambda group: group.on_lost(group, partitions(0)))
    events, _ = run(consumer)
    assert names(events) == ["StartupComplete", "RecordsConsumed", "PartitionsRevoked", "ShutdownComplete"]
    assert consumer.commits == []


def test_automatic_commits_are_not_reported() -> None:
    """With --enable-autocommit, the program requests and reports no commits."""
    consumer = ScriptedConsumer(record(0, 5), None)
    events, _ = run(consumer, "--enable-autocommit")
    assert names(events) == ["StartupComplete", "RecordsConsumed", "ShutdownComplete"]


def test_verbose_reports_each_record() -> None:
    """With --verbose each record is an event before its batch."""
    consumer = ScriptedConsumer(record(0, 5), None)
    events, _ = run(consumer, "--verbose", "--enable-autocommit")
    assert events[1] == RecordData(partition=ZERO, offset=5, key="k", value="v")


def test_max_messages_ends_the_consumer_after_this_number_of_records() -> None:
    """Records beyond --max-messages are neither reported nor committed."""
    consumer = ScriptedConsumer(record(0, 5), record(0, 6), record(0, 7))
    events, is_clean = run(consumer, "--max-messages", "2")
    assert events[1] == RecordsConsumed(ranges=(ConsumedRange(partition=ZERO, count=2, min_offset=5, max_offset=6),))
    assert (consumer.commits, is_clean) == ([{0: 7}], True)


@pytest.mark.parametrize("code", [KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID])
def test_fatal_error_ends_the_consumer(code: int) -> None:
    """After a fatal error or a fence, the member closes, reports its end, and returns False."""
    consumer = ScriptedConsumer(failure(code))
    events, is_clean = run(consumer)
    assert (names(events), consumer.is_closed, is_clean) == (["StartupComplete", "ShutdownComplete"], True, False)


def test_other_errors_do_not_end_the_consumer() -> None:
    """A transient error is logged, and the consumer continues."""
    consumer = ScriptedConsumer(failure(KafkaError._TRANSPORT), record(0, 5), None)
    events, is_clean = run(consumer)
    assert "RecordsConsumed" in names(events)
    assert is_clean


def test_failed_commit_is_reported_with_its_error() -> None:
    """The event of a failed commit has the text of the error, and the consumer continues."""
    consumer = ScriptedConsumer(record(0, 5), None, record(0, 6), None)
    consumer.commit_error = KafkaError(KafkaError.REBALANCE_IN_PROGRESS, "later")
    events, is_clean = run(consumer)
    failed = [event for event in events if isinstance(event, OffsetsCommitted)]
    assert [("later" in (event.error or "")) for event in failed] == [True, True]
    assert is_clean
