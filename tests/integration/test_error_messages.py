"""The errors of both clients, field by field, on the same broker: messages, callbacks, exceptions.

Each row of the tables has confluent-kafka's values and, where they differ on purpose, this package's. `pytest -s`
prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership import Consumer, FatalGroupError
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from tests.integration.polls import AnyConsumer, next_error_of_consume, next_error_of_poll
from tests.support.acls import forbid
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import STRICT
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RAW, OURS = confluent_kafka.Consumer, Consumer
KINDS = {"confluent-kafka": RAW, "ours": OURS}

PARTITIONS = 2


@dataclass(kw_only=True)
class Scene:
    """A topic, its own group, and the client that gets an error."""

    broker: Broker
    kind: Callable[..., AnyConsumer]
    protocol: str
    others: ExitStack
    topic: str = ""
    group: str = ""
    commits: list[tuple[KafkaError | None, list[TopicPartition]]]

    def subject(self, **config: object) -> AnyConsumer:
        """The subscribed client, whose callbacks are recorded."""
        settings: dict[str, object] = {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "group.id": self.group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "on_commit": lambda error, partitions: self.commits.append((error, partitions)),
        }
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        consumer = self.kind(settings)
        self.others.callback(consumer.close)
        consumer.subscribe([self.topic])
        return consumer

    def other(self, **config: Any) -> Worker:
        """Another member of the group: this package's consumer in a thread."""
        worker = Worker(self.broker.bootstrap_servers, self.group, [self.topic], group_protocol=self.protocol, **config)
        return self.others.enter_context(worker)


Provocation = Callable[[Scene], AnyConsumer]


def settled(consumer: AnyConsumer) -> AnyConsumer:
    """Return the client as soon as it has its partitions."""
    wait_until(lambda: consumer.poll(0.05) is not None or len(consumer.assignment()) == PARTITIONS, "its partitions")
    return consumer


def ends(scene: Scene) -> AnyConsumer:
    """Each partition has an end that the client reaches at once."""
    return scene.subject(enable_partition_eof=True)


def too_slow(scene: Scene) -> AnyConsumer:
    """The client does not poll until it has left its group."""
    interval = {"session_timeout_ms": 1000, "heartbeat_interval_ms": 200} if scene.protocol == "classic" else {}
    consumer = settled(scene.subject(max_poll_interval_ms=1000, **interval))
    admin = GroupAdmin({"bootstrap.servers": scene.broker.bootstrap_servers})
    wait_until(lambda: not admin.describe(scene.group, with_offsets=False).group.members, "a group without members")
    return consumer


def full(scene: Scene) -> AnyConsumer:
    """The group has as many members as the broker allows."""
    members = [scene.other() for _ in range(2)]
    for member in members:
        member.settled(1)
    return scene.subject()


def fenced(scene: Scene) -> AnyConsumer:
    """Another member takes its instance id."""
    consumer = settled(scene.subject(group_instance_id="i"))
    scene.other(group_instance_id="i")
    return consumer


def held(scene: Scene) -> AnyConsumer:
    """Another member has its instance id."""
    scene.other(group_instance_id="i").settled(PARTITIONS)
    policy = {"group_instance_id_conflict_policy": "fail"} if scene.kind is OURS else {}
    return scene.subject(group_instance_id="i", **policy)


def without_offset(scene: Scene) -> AnyConsumer:
    """No offset is committed, and the configuration makes that an error."""
    return scene.subject(auto_offset_reset="error")


def forbidden_group(scene: Scene) -> AnyConsumer:
    """The client may not read the group."""
    forbid(scene.broker.bootstrap_servers, ResourceType.GROUP, scene.group, AclOperation.READ)
    return scene.subject()


def forbidden_topic(scene: Scene) -> AnyConsumer:
    """The client may not see the topic."""
    forbid(scene.broker.bootstrap_servers, ResourceType.TOPIC, scene.topic, AclOperation.DESCRIBE)
    return scene.subject()


def missing_topic(scene: Scene) -> AnyConsumer:
    """The topic does not exist."""
    scene.topic = unique("missing")
    return scene.subject()


@dataclass(frozen=True, kw_only=True)
class ShownError:
    """The fields of a message with an error.

    Both clients: it is true, its value is the error's text, other fields are None.
    """

    code: int
    fatal: bool = False
    retriable: bool = False
    names_topic: bool = False
    partition: int = 0
    offset: int | None = None

    @classmethod
    def by(cls, message: Message, topic: str) -> ShownError:
        """Read the fields of this message."""
        error = message.error()
        assert error is not None
        assert message, "a message with an error is true"
        assert message.value() == error.str().encode()
        assert len(message) == len(error.str().encode())
        assert (message.key(), message.headers(), message.latency()) == (None, None, None)
        assert message.timestamp() == (confluent_kafka.TIMESTAMP_NOT_AVAILABLE, -1)
        assert message.topic() in (None, topic)
        assert isinstance(message.partition(), int)
        return cls(
            code=error.code(),
            fatal=error.fatal(),
            retriable=error.retriable(),
            names_topic=message.topic() == topic,
            partition=min(message.partition() or 0, 0),  # the partition differs between runs
            offset=message.offset(),
        )


E = KafkaError
_FATAL = ShownError(code=E._FATAL)
_EOF = ShownError(code=E._PARTITION_EOF, names_topic=True, offset=0)
_LATE = ShownError(code=E._MAX_POLL_EXCEEDED)
_NO_OFFSET = ShownError(code=E._AUTO_OFFSET_RESET, names_topic=True)
_FULL = ShownError(code=E.GROUP_MAX_SIZE_REACHED)
_FENCED = ShownError(code=E.FENCED_INSTANCE_ID, fatal=True)
_HELD = ShownError(code=E.UNRELEASED_INSTANCE_ID, fatal=True)
_NO_GROUP = ShownError(code=E.GROUP_AUTHORIZATION_FAILED)
_NO_TOPIC = ShownError(code=E.TOPIC_AUTHORIZATION_FAILED, names_topic=True)
#: Under the consumer protocol, librdkafka's message has the error's code as its offset, and no topic.
_NO_TOPIC_848 = ShownError(code=E.TOPIC_AUTHORIZATION_FAILED, offset=29)
_MISSING = ShownError(code=E.UNKNOWN_TOPIC_OR_PART, names_topic=True)

#: The broker settings that limit a group's members, in the classic protocol and in the consumer protocol.
_LIMITS = ("group.max.size", "group.consumer.max.size")

#: The cause, the protocol, confluent-kafka's first message with an error, and this package's.
MESSAGES: dict[str, tuple[Provocation, str, ShownError, ShownError]] = {
    "end of partition, classic": (ends, "classic", _EOF, _EOF),
    "end of partition, consumer": (ends, "consumer", _EOF, _EOF),
    "max.poll.interval.ms, classic": (too_slow, "classic", _LATE, _LATE),
    "max.poll.interval.ms, consumer": (too_slow, "consumer", _LATE, _LATE),
    "auto.offset.reset=error, classic": (without_offset, "classic", _NO_OFFSET, _NO_OFFSET),
    "auto.offset.reset=error, consumer": (without_offset, "consumer", _NO_OFFSET, _NO_OFFSET),
    "group forbidden, classic": (forbidden_group, "classic", _NO_GROUP, _NO_GROUP),
    "group forbidden, consumer": (forbidden_group, "consumer", _NO_GROUP, _NO_GROUP),
    "topic forbidden, classic": (forbidden_topic, "classic", _NO_TOPIC, _NO_TOPIC),
    "topic forbidden, consumer": (forbidden_topic, "consumer", _NO_TOPIC_848, _NO_TOPIC),
    # Under the consumer protocol confluent-kafka does not report it.
    "topic missing, classic": (missing_topic, "classic", _MISSING, _MISSING),
    "group full, classic": (full, "classic", _FULL, replace(_FULL, fatal=True)),
    "group full, consumer": (full, "consumer", _FATAL, replace(_FULL, fatal=True)),
    "instance fenced, classic": (fenced, "classic", _FATAL, _FENCED),
    "instance fenced, consumer": (fenced, "consumer", _FATAL, _FENCED),
    "instance held, consumer": (held, "consumer", _FATAL, _HELD),
}


@pytest.fixture(scope="module")
def table_broker(broker_pool: RunBrokers) -> Broker:
    """A broker on which all rows of the tables can happen."""
    return broker_pool.shared(NEWEST, properties=STRICT)


@contextmanager
def scene(broker: Broker, kind: str, protocol: str, records: int = 0) -> Iterator[Scene]:
    """A new topic and group; all members are closed at the end."""
    with ExitStack() as others:
        made = Scene(broker=broker, kind=KINDS[kind], protocol=protocol, others=others, commits=[])
        made.topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
        made.group = unique("group")
        if records:
            produce(broker.bootstrap_servers, made.topic, records)
        yield made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", MESSAGES)
def test_error_message_has_the_fields_of_the_table(table_broker: Broker, what: str, kind: str) -> None:
    """The first message with an error has the fields of the table. `code() == _FATAL` occurs in librdkafka only.

    C19: the error of a full group names its protocol's limit and its advice once.
    """
    provoke, protocol, theirs, ours = MESSAGES[what]
    with scene(table_broker, kind, protocol) as at:
        message = next_error_of_poll(provoke(at))
        print(f"{what} | {kind} | {ShownError.by(message, at.topic)} | {message.error()}")
        shown_error = ShownError.by(message, at.topic)
        if at.kind is OURS and what.startswith("group forbidden"):
            # librdkafka's handle and the member both report it, and the member ends; either can be first.
            shown_error = replace(shown_error, fatal=False)
        assert shown_error == (ours if at.kind is OURS else theirs)
        if at.kind is OURS and provoke is full:
            text = str(message.error())
            limit, other = _LIMITS if protocol == "classic" else _LIMITS[::-1]
            assert (text.count(limit), text.count("raise"), other in text) == (1, 1, False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_returns_the_error_message_of_poll(table_broker: Broker, protocol: str, kind: str) -> None:
    """`consume` returns the error as a message among the others."""
    with scene(table_broker, kind, protocol) as at:
        message = next_error_of_consume(fenced(at))
        assert ShownError.by(message, at.topic) == (_FENCED if at.kind is OURS else _FATAL)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a call: the code that it raises, or None; and the code that `on_commit` gets."""

    code: int | None = None
    fatal: bool = False
    #: Whether the `KafkaException` is also a `FatalGroupError`.
    ends: bool = False
    on_commit: tuple[int, ...] = ()


_RAISES, _FATALLY = Outcome(code=E._FATAL), Outcome(code=E._FATAL, fatal=True, ends=True)
_FINE, _STATE = Outcome(), Outcome(code=E._STATE)

#: Each call of a fenced member with its outcomes: confluent-kafka's, and this package's.
CALLS: dict[str, tuple[Callable[[AnyConsumer, list[TopicPartition]], object], Outcome, Outcome]] = {
    "commit, synchronous": (lambda c, at: c.commit(offsets=at, asynchronous=False), _RAISES, _FATALLY),
    "commit of what is consumed": (lambda c, _: c.commit(asynchronous=False), _RAISES, _FATALLY),
    # confluent-kafka reports the error in the next polls; this package raises it at once.
    "commit, asynchronous": (lambda c, at: c.commit(offsets=at), Outcome(on_commit=(E._FATAL,)), _FATALLY),
    "subscribe": (lambda c, at: c.subscribe([at[0].topic]), _RAISES, _FATALLY),
    "unsubscribe": (lambda c, _: c.unsubscribe(), _RAISES, _FINE),
    "committed": (lambda c, at: c.committed(at, PATIENCE_S), _FINE, _FINE),
    "position": (lambda c, at: c.position(at), _FINE, _FINE),
    "seek": (lambda c, at: c.seek(at[0]), _STATE, _STATE),
    "pause": (lambda c, at: c.pause(at), _FINE, _FINE),
    "close": (lambda c, _: c.close(), _FINE, _FINE),
}


def outcome(at: Scene, call: Callable[[], object], polls: Callable[[], object] | None) -> Outcome:
    """Return the outcome of the call; with `polls`, the later polls report it."""
    at.commits.clear()
    try:
        call()
    except KafkaException as raised:
        return Outcome(
            code=raised.args[0].code(), fatal=raised.args[0].fatal(), ends=isinstance(raised, FatalGroupError)
        )
    if polls is not None:
        wait_until(lambda: polls() is None and bool(at.commits), "the commit's outcome")
    return Outcome(on_commit=tuple(error.code() for error, _ in at.commits if error is not None))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_calls_of_a_fenced_member_have_the_outcomes_of_the_table(
    table_broker: Broker, protocol: str, kind: str
) -> None:
    """Calls after the fatal error raise the table's codes and classes; each `FatalGroupError` is a `KafkaException`."""
    with scene(table_broker, kind, protocol) as at:
        consumer = fenced(at)
        next_error_of_poll(consumer)
        wait_until(lambda: consumer.poll(0) is None and not consumer.assignment(), "the loss")
        partitions = [TopicPartition(at.topic, 0, 0)]
        for what, (call, theirs, ours) in CALLS.items():
            expected = ours if at.kind is OURS else theirs
            polls = partial(consumer.poll, 0.05) if expected.on_commit else None
            did = outcome(at, partial(call, consumer, partitions), polls)
            print(f"{what} | {kind} {protocol} | {did}")
            assert did == expected, what


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_fatal_error_is_returned_again_by_each_waiting_poll(table_broker: Broker, protocol: str) -> None:
    """With confluent-kafka, a program that misses the error idles forever.

    Here each poll that waits returns it again.
    """
    with scene(table_broker, "confluent-kafka", protocol) as there:
        consumer = fenced(there)
        next_error_of_poll(consumer)
        assert consumer.poll(1.5) is None
        assert consumer.consume(10, 1.5) == []
    with scene(table_broker, "ours", protocol) as here:
        consumer = fenced(here)
        first = next_error_of_poll(consumer)
        again = [consumer.poll(-1), *consumer.consume(10, -1)]
        assert [message.error().str() for message in again] == [first.error().str()] * 2  # type: ignore[union-attr]  # next_error_of_poll


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_refused_commit_has_the_broker_s_code_in_callback_exception_and_partitions(
    table_broker: Broker, protocol: str, kind: str
) -> None:
    """`on_commit`, the exception and each partition have the broker's code, with both clients."""
    with scene(table_broker, kind, protocol, records=2) as at:
        consumer = settled(at.subject(enable_auto_commit=False))
        too_long = [TopicPartition(at.topic, 0, 1, metadata="x" * 9000)]
        consumer.commit(offsets=too_long)
        wait_until(lambda: consumer.poll(0.05) is None and bool(at.commits), "the commit's outcome")
        error, (partition,) = at.commits[0]
        assert error is not None
        assert partition.error is not None
        for found in (error, partition.error):
            assert (found.code(), found.fatal(), found.retriable()) == (
                E.OFFSET_METADATA_TOO_LARGE,
                False,
                False,
            )
            assert found.str() == "Broker: Offset metadata string too large"
        with pytest.raises(KafkaException) as raised:
            consumer.commit(offsets=too_long, asynchronous=False)
        assert raised.value.args[0].code() == E.OFFSET_METADATA_TOO_LARGE
        assert raised.value.args[0].str() == "Commit failed: Broker: Offset metadata string too large"


@pytest.mark.parametrize("kind", KINDS)
def test_error_cb_gets_unreachable_brokers_as_informational_errors(kind: str) -> None:
    """`error_cb` gets an informational, non-fatal error for unreachable brokers, and `poll` returns no message."""
    errors: list[KafkaError] = []
    consumer = KINDS[kind](
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "any", "log_level": 0, "error_cb": errors.append}
    )
    consumer.subscribe(["any"])
    wait_until(
        lambda: (
            consumer.poll(0.1) is None and {error.code() for error in errors} == {E._TRANSPORT, E._ALL_BROKERS_DOWN}
        ),
        "both errors",
        seen=lambda: errors,
    )
    assert not any(error.fatal() or error.retriable() for error in errors)
    consumer.close()
