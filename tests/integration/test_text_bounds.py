"""How long texts may be on a real broker, what becomes of longer ones, and what confluent-kafka makes of them."""

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
from tests.integration.grounds import Ground, on
from tests.support.kafka import produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]


#: The broker's offset.metadata.max.bytes; the zero that ends a text is one of them.
OFFSET_METADATA_MAX = 4096


@pytest.fixture
def no_log() -> Iterator[None]:
    """What is logged stays here: a run of several processes could not hand on text that is not UTF-8."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def filled(name: str, size: int) -> str:
    """A text of so many bytes that no other test has."""
    return unique(name).ljust(size, "x")


@on("newest-consumer", "oldest-consumer", "newest-eager", "oldest-cooperative")
def test_member_with_the_longest_texts_joins_and_commits(ground: Ground) -> None:
    """All of them at their bounds, in one member: nothing that can work is refused."""
    topic = ground.topic(1)
    produce(ground.bootstrap_servers, topic, 3)
    longest: dict[str, Any] = {
        "group_instance_id": filled("instance", LONGEST_ID_PREFIX),
        "client_id": filled("client", LONGEST_ID_PREFIX),
        "client_rack": filled("rack", LONGEST_STRING),
    }
    with ground.member(filled("group", LONGEST_STRING), [topic], **longest) as worker:
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
def test_one_byte_more_is_no_member_id(ground: Ground, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why these two have less room than the others: the coordinator cannot write the id that it makes of them."""
    monkeypatch.setattr(checks, "LONGEST", {})
    config: dict[str, Any] = {key.replace(".", "_"): filled("id", LONGEST_ID_PREFIX + 1)}
    with ground.member(unique("group"), [ground.topic(1)], **config) as worker:
        worker.wait(lambda w: bool(w.notes.errors), "the refusal")
        assert worker.notes.errors[0].code() == KafkaError.UNKNOWN


@on("newest-consumer")
def test_metadata_beyond_the_protocol_is_refused_at_once_in_both_clients(ground: Ground) -> None:
    """There the broker closes the connection (`_TRANSPORT`); here it is named, and nothing was sent."""
    topic = ground.topic(1)
    settings = {"bootstrap.servers": ground.bootstrap_servers, "group.id": unique("group"), "log_level": 0}
    too_long = [Partition(topic, 0, 1, "m" * (LONGEST_STRING + 1))]
    theirs = confluent_kafka.Consumer(settings)
    with pytest.raises(KafkaException) as raw:
        theirs.commit(offsets=too_long, asynchronous=False)
    theirs.close()
    with Consumer(settings) as ours:
        with pytest.raises(KafkaException) as refused:
            ours.commit(offsets=too_long, asynchronous=False)
        with pytest.raises(KafkaException) as told:
            ours.commit(offsets=[Partition(topic, 0, 1, "m" * (LONGEST_STRING - 1))], asynchronous=False)
    assert raw.value.args[0].code() == KafkaError._TRANSPORT
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    assert isinstance(refused.value, UseError)
    # What the protocol can carry is the broker's to judge.
    assert told.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


class Odd:
    """An assignor as it should not be."""

    name = "odd"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self, result: object) -> None:
        self._result = result

    def user_data(self, topics: frozenset[str], owned: frozenset[object], generation: int) -> None:
        """Nothing."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> object:
        """What it should not be, or an error with words that UTF-8 cannot express."""
        del topics, subscriptions
        if self._result == "raise":
            raise ValueError("odd \ud800 \0 words")
        return self._result


@pytest.mark.usefixtures("no_log")
@on("newest-eager")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "assign() has no result that can be sent: it returned None (of the type NoneType); return a mapping"),
        ({"nobody\ud800": []}, "partitions are given to 'nobody\\ud800', who is no member of the group"),
        ("raise", "ValueError: odd \\ud800 \\x00 words"),
    ],
)
def test_assignor_of_another_shape_is_told_to_its_application(ground: Ground, result: object, words: str) -> None:
    """As the fatal error of the member that leads; the text can be told whatever it was made of."""
    with ground.member(unique("group"), [ground.topic(1)], partition_assignment_strategy=[Odd(result)]) as worker:
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
def test_confluent_kafka_does_not_survive_what_is_refused_here(call: str) -> None:
    """Why the door asks first; tests/clients/test_arguments.py has the same calls of ours."""
    ran = subprocess.run([sys.executable, "-c", _RAW + call], check=False, capture_output=True, timeout=60)
    assert ran.returncode < 0
