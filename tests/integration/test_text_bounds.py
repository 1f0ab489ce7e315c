"""The longest texts on a real broker, the errors of longer ones, and confluent-kafka's behavior with both."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer, MemberState, UseError
from consumer_membership.assignors.assignor import MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.config import checks
from consumer_membership.text import LONGEST_ID_PREFIX, LONGEST_STRING
from tests.integration.environments import Environment, on
from tests.support.kafka import produce, unique
from tests.support.waiting import PROCESS_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


#: The broker's offset.metadata.max.bytes, which includes the terminating zero of a text.
OFFSET_METADATA_MAX = 4096


@pytest.fixture
def no_log() -> Iterator[None]:
    """Keep the log within the test: a run of several processes cannot transfer text that is not UTF-8."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def filled(name: str, size: int) -> str:
    """A unique text with this number of bytes."""
    return unique(name).ljust(size, "x")


@on("newest-consumer", "oldest-consumer", "newest-eager", "oldest-cooperative")
def test_member_with_the_longest_texts_joins_and_commits(environment: Environment) -> None:
    """A member with all texts at their bounds joins and commits: no usable text is refused."""
    topic = environment.topic(1)
    produce(environment.bootstrap_servers, topic, 3)
    longest: dict[str, Any] = {
        "group_instance_id": filled("instance", LONGEST_ID_PREFIX),
        "client_id": filled("client", LONGEST_ID_PREFIX),
        "client_rack": filled("rack", LONGEST_STRING),
    }
    with environment.member(filled("group", LONGEST_STRING), [topic], **longest) as worker:
        worker.settled(1)
        worker.wait(lambda w: len(w.notes.records) == 3, "the records")
        committed = worker.consumer.commit(
            offsets=[Partition(topic, 0, 2, "m" * (OFFSET_METADATA_MAX - 1))], asynchronous=False
        )
        assert committed is not None
        assert (committed[0].offset, committed[0].error) == (2, None)
    assert (worker.notes.errors, worker.notes.raised) == ([], [])


@on("newest-eager")
@pytest.mark.parametrize("key", ["client.id", "group.instance.id"])
def test_id_one_byte_above_the_bound_is_refused_by_the_coordinator(
    environment: Environment, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These two ids have lower bounds, because the coordinator cannot write the member id that it makes from them."""
    monkeypatch.setattr(checks, "LONGEST", {})
    config: dict[str, Any] = {key.replace(".", "_"): filled("id", LONGEST_ID_PREFIX + 1)}
    with environment.member(unique("group"), [environment.topic(1)], **config) as worker:
        worker.wait(lambda w: bool(w.notes.errors), "the refusal")
        assert worker.notes.errors[0].code() == KafkaError.UNKNOWN


@on("newest-consumer")
def test_commit_metadata_beyond_the_protocol_s_bound_is_refused_at_once(environment: Environment) -> None:
    """With confluent-kafka the broker closes the connection (`_TRANSPORT`).

    This package raises an error that names the field, and sends no request.
    """
    topic = environment.topic(1)
    settings = {"bootstrap.servers": environment.bootstrap_servers, "group.id": unique("group"), "log_level": 0}
    too_long = [Partition(topic, 0, 1, "m" * (LONGEST_STRING + 1))]
    theirs = confluent_kafka.Consumer(settings)
    with pytest.raises(KafkaException) as raw:
        theirs.commit(offsets=too_long, asynchronous=False)
    theirs.close()
    with Consumer(settings) as ours:
        with pytest.raises(KafkaException) as refused:
            ours.commit(offsets=too_long, asynchronous=False)
        with pytest.raises(KafkaException) as refused_commit:
            ours.commit(offsets=[Partition(topic, 0, 1, "m" * (LONGEST_STRING - 1))], asynchronous=False)
    assert raw.value.args[0].code() == KafkaError._TRANSPORT
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    assert isinstance(refused.value, UseError)
    # The package sends all metadata that the protocol can carry, and the broker decides.
    assert refused_commit.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


class Odd:
    """An assignor with an invalid result."""

    name = "odd"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self, result: object) -> None:
        self._result = result

    def user_data(self, topics: frozenset[str], owned: frozenset[object], generation: int) -> None:
        """Send no user data."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> object:
        """Return the invalid result, or raise an error with text that UTF-8 cannot encode."""
        del topics, subscriptions
        if self._result == "raise":
            raise ValueError("odd \ud800 \0 words")
        return self._result


@pytest.mark.usefixtures("no_log")
@on("newest-eager")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "the result of assign() is invalid: it returned None (of type NoneType); return a mapping"),
        ({"nobody\ud800": []}, "partitions are given to 'nobody\\ud800', which is not a member of the group"),
        ("raise", "ValueError: odd \\ud800 \\x00 words"),
    ],
)
def test_assignor_with_an_invalid_result_is_a_fatal_error_of_the_leader(
    environment: Environment, result: object, words: str
) -> None:
    """The leader's fatal error has the assignor's error, whatever its text contains."""
    with environment.member(
        unique("group"), [environment.topic(1)], partition_assignment_strategy=[Odd(result)]
    ) as worker:
        worker.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the fatal error")
        error = worker.notes.errors[0]
    assert error.fatal()
    assert f"the assignor 'odd' failed: {words}" in error.str()


_RAW = """
from confluent_kafka import Consumer, TopicPartition
nobody = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
"""


@pytest.mark.parametrize(
    "call",
    [
        "Consumer({**nobody, 'group.id': 'a\\ud800'})",
        "Consumer({**nobody, 'a\\ud800': 'x'})",
        "Consumer(nobody).subscribe(['a\\ud800'])",
        "Consumer(nobody).assign([TopicPartition('x' * 513, 0, 0)])",
    ],
    ids=["group.id", "key", "subscribe", "topic"],
)
def test_confluent_kafka_aborts_on_arguments_that_this_package_refuses(call: str) -> None:
    """The aborts are the reason for the checks.

    Tests/clients/test_arguments.py makes the same calls with this package.
    """
    ran = subprocess.run([sys.executable, "-c", _RAW + call], check=False, capture_output=True, timeout=PROCESS_S)
    assert ran.returncode < 0
