"""Replays of dead letters on a real broker: once each, with filters, after kills, and up to the ends at the start."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership.admin import GroupAdmin
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, FencedError, GroupError, TransactionAbortedError
from consumer_membership.processing.dead_letter_headers import RawHeader, headers_of
from consumer_membership.processing.dead_letter_replay import DeadLetterReplay, ReplayReport
from consumer_membership.processing.dead_letter_topic import DeadLetterTopic, LetterSelection
from consumer_membership.processing.dead_letters import TopicDeadLetters
from consumer_membership.types import OffsetAndMetadata
from tests.support.acls import AUTHORIZER, allow, forbid
from tests.support.brokers import RunBrokers
from tests.support.kafka import appended, create_topic, produce, read_committed, unique, wait_for_end_of_transactions
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
#: An hour ago: topics delete much older records.
WHEN_MS = int(time.time() * 1000) - 3_600_000
PARTITIONS = 3

#: Replays with transactions of five records, and kills itself after the given call of the producer.
KILLED_REPLAY = """
import os, signal, sys
from consumer_membership.processing.dead_letter_replay import DeadLetterReplay
from consumer_membership.processing.dead_letter_topic import DeadLetterTopic, LetterSelection
from consumer_membership.processing.transactional_producer import TransactionalProducer

servers, topic, name, left = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
call = getattr(TransactionalProducer, name)

def killing(producer, *arguments):
    global left
    call(producer, *arguments)
    left -= 1
    if left == 0:
        producer._producer.flush()
        os.kill(os.getpid(), signal.SIGKILL)

setattr(TransactionalProducer, name, killing)
with DeadLetterTopic({"bootstrap.servers": servers}, topic, group=topic) as source:
    DeadLetterReplay(source, LetterSelection(), transaction_records=5).run()
"""


class Environment:
    """An original topic with its dead letters; the replay group has the name of the dead-letter topic."""

    def __init__(self, broker: Broker, partitions: int = 1) -> None:
        self.servers = broker.bootstrap_servers
        self.config = {"bootstrap.servers": self.servers}
        self.original = create_topic(self.servers, unique("orders"), PARTITIONS)
        self.topic = create_topic(self.servers, unique("dlq"), partitions)
        self._dead_letters = TopicDeadLetters(self.topic, self.config)
        self._failed = 0

    def fail(
        self, count: int, error: Exception | None = None, topic: str | None = None, *, first: int | None = None
    ) -> None:
        """Write the dead letters of this many records, which have the next numbers, or numbers from `first`."""
        start = self._failed if first is None else first
        self._failed = start + count
        for number in range(start, start + count):
            record = Message(
                topic=topic or self.original,
                partition=number % PARTITIONS,
                offset=number,
                key=b"%d" % (number % 7),
                value=b"%d" % number,
                headers=[("trace", b"%d" % number)],
                timestamp=(TIMESTAMP_CREATE_TIME, WHEN_MS + number),
            )
            self._dead_letters.send(record, error or ValueError("no"), 1, "billing")

    def replay(
        self, selection: LetterSelection | None = None, *, to: str | None = None, is_dry_run: bool = False
    ) -> ReplayReport:
        """Replay with the group of this environment."""
        with DeadLetterTopic(self.config, self.topic, group=self.topic) as source:
            replay = DeadLetterReplay(source, selection or LetterSelection(), to=to, transaction_records=5)
            return replay.run(is_dry_run=is_dry_run)

    def values(self, topic: str | None = None) -> Counter[bytes | str | None]:
        """Return how often readers of committed records see each value, when no transaction is open."""
        name = topic or self.original
        wait_for_end_of_transactions(self.servers, name)
        return Counter(message.value() for message in read_committed(self.servers, name))


@pytest.fixture
def environment(kafka: Broker) -> Environment:
    """Topics of this test only, on the shared broker."""
    return Environment(kafka)


def numbers(*values: int) -> Counter[bytes | str | None]:
    """Return each of these values once."""
    return Counter(b"%d" % value for value in values)


# ---- the records ----------------------------------------------------------------------------------------------------


def test_replayed_record_is_the_original_with_a_count(environment: Environment) -> None:
    """Topic, partition, key, value, timestamp and headers are the original's; the replay is counted in a header."""
    environment.fail(3)
    report = environment.replay()
    assert (report.replayed, report.left_out) == (Counter({environment.original: 3}), [])
    for message in read_committed(environment.servers, environment.original):
        number = int(message.value() or b"")
        assert message.partition() == number % PARTITIONS
        assert message.key() == b"%d" % number
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, WHEN_MS + number)
        assert message.headers() == [("trace", b"%d" % number), ("consumer-membership-replays", b"1")]


def test_letters_of_spring_and_connect_are_replayed_to_their_partition(environment: Environment) -> None:
    """Letters of other producers have the same facts in their own headers; a missing partition is chosen by the key."""
    producer = Producer(environment.config)
    spring = [
        ("kafka_dlt-original-topic", environment.original.encode()),
        ("kafka_dlt-original-partition", bytes([0, 0, 0, 2])),
    ]
    connect = [
        ("__connect.errors.topic", environment.original.encode()),
        ("__connect.errors.partition", b"1"),
        ("own", b"1"),
    ]
    gone: list[RawHeader] = [
        ("__connect.errors.topic", environment.original.encode()),
        ("__connect.errors.partition", b"99"),
    ]
    for value, headers in ((b"spring", spring), (b"connect", connect), (b"gone", gone)):
        producer.produce(environment.topic, value, b"key", headers=dict(headers))
    producer.flush()
    environment.replay()
    found = {message.value(): message for message in read_committed(environment.servers, environment.original)}
    assert (found[b"spring"].partition(), found[b"connect"].partition()) == (2, 1)
    assert found[b"connect"].headers() == [("own", b"1"), ("consumer-membership-replays", b"1")]
    assert found.keys() == {b"spring", b"connect", b"gone"}


@pytest.mark.parametrize("limit", ["retention.ms", "message.timestamp.before.max.ms"])
def test_record_that_its_topic_would_not_keep_gets_the_present_time(kafka: Broker, limit: str) -> None:
    """A topic deletes, or rejects, a record with an old timestamp; the original time would lose the record."""
    environment = Environment(kafka)
    short = create_topic(environment.servers, unique("short"), config={limit: "600000"})
    environment.fail(1)
    environment.replay(to=short)
    (message,) = read_committed(environment.servers, short)
    assert message.timestamp()[1] > WHEN_MS + 600_000


def test_letters_without_a_target_are_reported_and_stay(environment: Environment) -> None:
    """A record without headers, or of a deleted topic, is left out with the reason; `to` replays it later."""
    produce(environment.servers, environment.topic, [(None, b"no headers")])
    environment.fail(1, topic="no-such-topic")
    environment.fail(2)
    report = environment.replay()
    assert report.replayed == Counter({environment.original: 2})
    assert [(one.offset, one.reason.partition(";")[0]) for one in report.left_out] == [
        (0, "its headers have no original topic"),
        (1, "topic 'no-such-topic' does not exist"),
    ]
    other = create_topic(environment.servers, unique("other"))
    report = environment.replay(to=other)
    assert (report.replayed, report.replayed_before) == (Counter({other: 2}), 2)
    assert environment.values(other) == Counter({b"no headers": 1, b"0": 1})


# ---- once each ------------------------------------------------------------------------------------------------------


def test_replay_puts_each_letter_back_once(environment: Environment) -> None:
    """A second replay has nothing to do, and a third one puts back only the new dead letters."""
    environment.fail(12)
    assert environment.replay().replayed.total() == 12
    assert environment.replay().replayed.total() == 0
    environment.fail(1)
    assert environment.replay().replayed.total() == 1
    assert environment.values() == numbers(*range(13))
    committed = GroupAdmin(environment.config).committed(environment.topic)
    assert [*committed.values()] == [OffsetAndMetadata(offset=13)]


def test_replay_with_filter_leaves_the_others_for_later(environment: Environment) -> None:
    """Replayed offsets beyond the first one that is left are in the metadata, so a later replay skips exactly those."""
    environment.fail(3, KeyError("first"))
    environment.fail(3, TimeoutError("slow"))
    environment.fail(3, KeyError("last"))
    timeouts = LetterSelection(exception="TimeoutError")
    assert environment.replay(timeouts).replayed.total() == 3
    assert environment.replay(timeouts).replayed_before == 3
    assert environment.replay(LetterSelection(first_offset=1, last_offset=4)).replayed.total() == 2
    report = environment.replay()
    assert (report.replayed.total(), report.replayed_before) == (4, 5)
    assert environment.values() == numbers(*range(9))


def test_dead_letters_of_one_record_put_it_back_once(environment: Environment) -> None:
    """After a kill a record can have several dead letters: one of them puts it back, the others are duplicates."""
    environment.fail(3)
    environment.fail(4, KeyError("again"), first=0)
    report = environment.replay()
    assert (report.replayed, report.duplicates) == (Counter({environment.original: 4}), 3)
    assert environment.values() == numbers(0, 1, 2, 3)
    assert environment.replay() == ReplayReport(started_at={0: 7})


def test_dry_run_writes_nothing(environment: Environment) -> None:
    """A dry run reports the same numbers, and writes neither records nor offsets."""
    environment.fail(4)
    report = environment.replay(LetterSelection(most=3), is_dry_run=True)
    assert report.replayed == Counter({environment.original: 3})
    assert appended(environment.servers, environment.original) == 0
    assert GroupAdmin(environment.config).committed(environment.topic) == {}
    assert environment.replay(LetterSelection(most=3)).replayed.total() == 3
    assert environment.replay().replayed.total() == 1


def test_replay_ends_at_the_ends_at_its_start(environment: Environment) -> None:
    """Dead letters that arrive during a replay are left for the next one: a record that fails again makes no loop."""
    environment.fail(6)
    with DeadLetterTopic(environment.config, environment.topic, group=environment.topic) as source:
        replay = DeadLetterReplay(source, LetterSelection(), transaction_records=1)
        bounds = source.bounds

        def failing_again(partition: int) -> tuple[int, int]:
            found = bounds(partition)
            environment.fail(2)
            return found

        source.bounds = failing_again  # type: ignore[method-assign]  # the letters arrive after the ends were read
        assert replay.run().replayed.total() == 6
    assert environment.replay().replayed.total() == 2


@pytest.mark.parametrize(
    ("call", "count"),
    [("begin", 2), ("produce", 8), ("send_offsets", 2), ("commit", 2)],
)
def test_killed_replay_that_is_started_again_replays_nothing_twice(kafka: Broker, call: str, count: int) -> None:
    """Wherever the process is killed, readers of committed records see each record once after the next replay."""
    environment = Environment(kafka, partitions=2)
    environment.fail(20)
    words = [sys.executable, "-c", KILLED_REPLAY, environment.servers, environment.topic, call, str(count)]
    killed = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    committed = 10 if call == "commit" else 5
    assert environment.replay().replayed.total() == 20 - committed
    assert environment.values() == numbers(*range(20))
    if call in ("produce", "send_offsets"):
        # The records of the killed transaction are in the log, but readers do not see them.
        markers = 2 * PARTITIONS
        assert appended(environment.servers, environment.original) > 20 + markers


def test_second_replay_fences_the_first(environment: Environment) -> None:
    """Two replays with one group cannot both write: the start of the second one ends the first one."""
    environment.fail(10)
    with DeadLetterTopic(environment.config, environment.topic, group=environment.topic) as source:
        replay = DeadLetterReplay(source, LetterSelection(), transaction_records=1)
        records = source.records

        def interrupted(partition: int, start: int, end: int) -> object:
            for number, record in enumerate(records(partition, start, end)):
                if number == 4:
                    assert environment.replay().replayed.total() == 6
                yield record

        source.records = interrupted  # type: ignore[method-assign, assignment]  # the other replay runs in between
        with pytest.raises(FencedError, match="another replay with group"):
            replay.run()
        assert replay.report.replayed.total() == 4
    assert environment.values() == numbers(*range(10))


def test_replayed_offsets_that_do_not_fit_are_left_out(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the metadata is full, the dead letter stays, with a reason, and nothing is replayed twice."""
    monkeypatch.setattr("consumer_membership.processing.dead_letter_replay._METADATA_BYTES", 20)
    for number in range(40):
        environment.fail(1, KeyError("odd") if number % 2 else ValueError("even"))
    report = environment.replay(LetterSelection(exception="KeyError"))
    assert "no longer fit into the metadata" in report.left_out[0].reason
    assert report.replayed.total() + len(report.left_out) == 20
    rest = environment.replay()
    assert (rest.replayed.total(), rest.left_out) == (40 - report.replayed.total(), [])
    assert environment.values() == numbers(*range(40))


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_unknown_topic_and_partition_are_configuration_errors(environment: Environment) -> None:
    """The message names the topic or the partitions that exist."""
    with (
        DeadLetterTopic(environment.config, "missing") as source,
        pytest.raises(ConfigurationError, match="topic='missing'"),
    ):
        list(source.letters(LetterSelection()))
    with pytest.raises(ConfigurationError, match=r"partition=7: .* has the partitions 0 to 0"):
        environment.replay(LetterSelection(partitions=frozenset({7})))


def test_record_that_the_brokers_refuse_ends_the_replay(environment: Environment) -> None:
    """The error has the broker's reason; the transactions before are committed, and the next replay continues there."""
    small = create_topic(environment.servers, unique("small"), config={"max.message.bytes": "200"})
    producer = Producer(environment.config)
    record = Message(topic=small, partition=0, offset=0, value=bytes(300), timestamp=(TIMESTAMP_CREATE_TIME, WHEN_MS))
    environment.fail(5)
    incompressible = random.Random(3).randbytes(300)  # noqa: S311 - not for security
    producer.produce(environment.topic, incompressible, headers=list(headers_of(record, ValueError(), 1, "g")))
    producer.flush()
    with pytest.raises(TransactionAbortedError, match=f"topic '{small}' was not delivered: .*size too large"):
        environment.replay()
    assert environment.values() == numbers(*range(5))
    assert environment.replay(to=environment.original).replayed.total() == 1


def test_replay_needs_read_on_topic_and_group_and_write_on_the_transactional_id(broker_pool: RunBrokers) -> None:
    """Each missing operation is an error before any record is written."""
    environment = Environment(broker_pool.shared(NEWEST, properties=AUTHORIZER))
    servers = environment.servers
    environment.fail(2)
    allow(servers, ResourceType.TOPIC, environment.topic, AclOperation.READ)
    allow(servers, ResourceType.GROUP, environment.topic, AclOperation.READ)
    allow(servers, ResourceType.TRANSACTIONAL_ID, environment.topic, AclOperation.WRITE)
    allow(servers, ResourceType.TOPIC, environment.original, AclOperation.WRITE)
    assert environment.replay(LetterSelection(most=1)).replayed.total() == 1
    with DeadLetterTopic(environment.config, environment.topic) as source:
        assert source.greatest_age_ms(environment.original) == inf
    for kind, name, operation in (
        (ResourceType.TRANSACTIONAL_ID, environment.topic, AclOperation.WRITE),
        (ResourceType.GROUP, environment.topic, AclOperation.READ),
        (ResourceType.TOPIC, environment.original, AclOperation.WRITE),
        (ResourceType.TOPIC, environment.topic, AclOperation.READ),
    ):
        forbid(servers, kind, name, operation)
        with pytest.raises((TransactionAbortedError, GroupError), match=r"(?i)authorization failed|access denied"):
            environment.replay()
    with (
        DeadLetterTopic(environment.config, environment.topic) as source,
        pytest.raises(GroupError, match="cannot be read"),
    ):
        list(source.letters(LetterSelection()))


# ---- the command ----------------------------------------------------------------------------------------------------


def test_command_lists_shows_and_replays(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    """The three actions work on one topic, with filters and JSON; the lag of the group is what remains."""
    environment.fail(3, KeyError("amount"))
    environment.fail(1, TimeoutError("slow"))
    words = ["dead-letters", environment.topic]
    servers = ["-b", environment.servers]
    assert main([*words, "list", *servers, "--exception", "KeyError", "-n", "2", "--json"]) == 0
    letters = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(letter["offset"], letter["exception"], letter["original_topic"]) for letter in letters] == [
        (0, "KeyError", environment.original),
        (1, "KeyError", environment.original),
    ]
    assert main([*words, "show", *servers, "--partition", "0", "--offsets", "3"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{environment.topic}[0]@3"
    assert "  exception      TimeoutError" in shown
    assert "    trace: 3" in shown
    assert main([*words, "replay", *servers, "--exception", "TimeoutError"]) == 0
    assert capsys.readouterr().out.startswith(
        f"{environment.topic}: 1 dead letter replayed, group {environment.topic}.replay\n"
    )
    assert GroupAdmin(environment.config).describe(f"{environment.topic}.replay").lag == 4
    assert main([*words, "replay", *servers, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["replayed"] == [{"topic": environment.original, "records": 3}]


def test_command_exits_1_if_a_letter_cannot_be_replayed(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the dead letter and the reason."""
    produce(environment.servers, environment.topic, [(None, b"no headers")])
    assert main(["dead-letters", environment.topic, "replay", "-b", environment.servers]) == 1
    assert f"Not replayed: {environment.topic}[0]@0: its headers have no original topic" in capsys.readouterr().out


def test_command_with_unknown_topic_exits_2(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr names the topic and the fix."""
    assert main(["dead-letters", "missing", "list", "-b", kafka.bootstrap_servers]) == 2
    assert capsys.readouterr().err == (
        "consumer-membership dead-letters: topic='missing': the topic does not exist; correct the name\n"
    )
