"""The same calls to confluent_kafka.Consumer and to this package's: same results, exceptions and texts.

This package's text may add a remedy, so it contains confluent-kafka's text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership import Consumer
from consumer_membership.types import BrokerError
from consumer_membership.types import TopicPartition as Partition
from tests.clients.conftest import ConsumerFactory
from tests.support.mock_cluster import MockCluster

#: Either consumer: the calls are the same, and nothing here is checked by types.
AnyConsumer = Any
Call = Callable[[AnyConsumer], object]
TP = TopicPartition


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call in a comparable form."""

    result: object = None
    error: BaseException | None = None

    @classmethod
    def of(cls, call: Callable[[], object]) -> Outcome:
        """Make the call."""
        try:
            return cls(result=_plain(call()))
        except Exception as error:  # noqa: BLE001 - the exception is what is compared
            return cls(error=error)

    @property
    def kafka_error(self) -> KafkaError | None:
        """Return the KafkaError in a KafkaException."""
        return self.error.args[0] if isinstance(self.error, KafkaException) else None

    def assert_like(self, theirs: Outcome) -> None:
        """Assert that this package's outcome equals confluent-kafka's."""
        assert self.result == theirs.result, f"{self} is not {theirs}"
        if theirs.error is None:
            assert self.error is None, f"{self.error!r} where confluent-kafka returns {theirs.result!r}"
            return
        assert isinstance(self.error, type(theirs.error)), f"{self.error!r} is no {type(theirs.error)}"
        if theirs.kafka_error is None:
            assert str(theirs.error) in str(self.error)
            return
        ours = self.kafka_error
        assert ours is not None
        assert (ours.code(), ours.fatal()) == (theirs.kafka_error.code(), theirs.kafka_error.fatal())
        assert theirs.kafka_error.str().strip() in ours.str()


def _plain(result: object) -> object:
    if isinstance(result, TopicPartition):
        error = None if result.error is None else result.error.code()
        return (result.topic, result.partition, result.offset, result.metadata, result.leader_epoch, error)
    if isinstance(result, list):
        return [_plain(element) for element in result]
    if isinstance(result, Message):
        return (result.topic(), result.partition(), result.offset(), result.value(), result.error())
    if hasattr(result, "topics") and hasattr(result, "brokers"):
        return sorted(result.topics)
    return result


BASE: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "parity", "log_level": 0}

CONSTRUCTIONS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "nothing": ((), {}),
    "no dict": ((1,), {}),
    "two dicts": ((BASE, BASE), {}),
    "no group": (({"bootstrap.servers": "127.0.0.1:1"},), {}),
    "group by underscore": (({"bootstrap.servers": "127.0.0.1:1"},), {"group_id": "parity"}),
    "no servers": (({"group.id": "parity", "log_level": 0},), {}),
    "empty servers": ((BASE,), {"bootstrap.servers": ""}),
    "commas for servers": ((BASE,), {"bootstrap.servers": " , "}),
    "servers as a URL": ((BASE,), {"bootstrap.servers": "PLAINTEXT://127.0.0.1:1/"}),
    "short poll interval, consumer": ((BASE,), {"group.protocol": "consumer", "max.poll.interval.ms": 1}),
    "short poll interval, shorter session": (
        (BASE,),
        {"group.protocol": "classic", "max.poll.interval.ms": 1, "session.timeout.ms": 1},
    ),
    "poll interval below the session": ((BASE,), {"max.poll.interval.ms": 5999, "session.timeout.ms": 6000}),
    "dict": ((BASE,), {}),
    "keywords": ((), BASE),
    "dict and keywords": (({**BASE, "group.id": None},), {"group.id": "parity"}),
    "logger None": ((BASE,), {"logger": None}),
    "unknown key": ((BASE,), {"bogus": 1}),
    "unknown number as key": (({**BASE, 1: 1},), {}),  # type: ignore[misc]  # the mistake in question
    "no bool": ((BASE,), {"enable.auto.commit": "yes"}),
    "bool by number": ((BASE,), {"enable.auto.commit": 1}),
    "bool by letter": ((BASE,), {"enable.auto.offset.store": "t"}),
    "interval 0": ((BASE,), {"max.poll.interval.ms": 0}),
    "interval too long": ((BASE,), {"max.poll.interval.ms": 86400001}),
    "interval as float": ((BASE,), {"max.poll.interval.ms": 46000.0}),
    "negative interval": ((BASE,), {"auto.commit.interval.ms": -1}),
    "error_cb None": ((BASE,), {"error_cb": None}),
    "error_cb number": ((BASE,), {"error_cb": 3}),
    "oauth_cb None": ((BASE,), {"oauth_cb": None}),
    "oauth_cb number": ((BASE,), {"oauth_cb": 3}),
    "no password": ((BASE,), {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "a"}),
    "stats_cb number": ((BASE,), {"stats_cb": 3}),
    "throttle_cb number": ((BASE,), {"throttle_cb": 3}),
    "on_commit number": ((BASE,), {"on_commit": 3}),
    "on_commit None": ((BASE,), {"on_commit": None}),
    "unknown protocol": ((BASE,), {"group.protocol": "nope"}),
    "protocol in capitals": ((BASE,), {"group.protocol": "CONSUMER"}),
    "session timeout": ((BASE,), {"group.protocol": "consumer", "session.timeout.ms": 6000}),
    "strategy": ((BASE,), {"group.protocol": "consumer", "partition.assignment.strategy": "range"}),
    "protocol type": ((BASE,), {"group.protocol": "consumer", "group.protocol.type": "consumer"}),
    "unknown reset": ((BASE,), {"auto.offset.reset": "nope"}),
    "reset in capitals": ((BASE,), {"auto.offset.reset": "EARLIEST"}),
    "unknown isolation": ((BASE,), {"isolation.level": "x"}),
    "unknown family": ((BASE,), {"broker.address.family": "x"}),
    "empty rack": ((BASE,), {"client.rack": ""}),
    "socket timeout": ((BASE,), {"socket.timeout.ms": 1}),
    "topic config": ((BASE,), {"default.topic.config": {"auto.offset.reset": "earliest"}}),
    "topic config with unknown reset": ((BASE,), {"default.topic.config": {"auto.offset.reset": "nope"}}),
    "fetch size": ((BASE,), {"receive.message.max.bytes": 1}),
    "librdkafka's own key": ((BASE,), {"fetch.min.bytes": 0}),
    "group id as number": (({**BASE, "group.id": 5},), {}),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_constructor_accepts_and_refuses_what_confluent_kafka_does(name: str) -> None:
    """Exception types, codes and texts of the constructor are confluent-kafka's."""
    args, kwargs = CONSTRUCTIONS[name]

    def construct(kind: Callable[..., AnyConsumer]) -> None:
        kind(*args, **kwargs).close()

    Outcome.of(lambda: construct(Consumer)).assert_like(Outcome.of(lambda: construct(confluent_kafka.Consumer)))


#: Calls that confluent-kafka rejects and this package accepts on purpose, with confluent-kafka's message.
TAKEN: dict[str, tuple[dict[str, object], str]] = {
    "eager and cooperative": (
        {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky,range"},
        "online migration between assignors with different protocol types is not supported",
    ),
    "poll interval below the default session": (
        {"group.protocol": "classic", "max.poll.interval.ms": 2000},
        "`max.poll.interval.ms`must be >= `session.timeout.ms`",
    ),
    "the same, with either protocol": (
        {"max.poll.interval.ms": 2000},
        "`max.poll.interval.ms`must be >= `session.timeout.ms`",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_constructor_accepts_documented_keys_that_confluent_kafka_refuses(name: str) -> None:
    """`docs/compare/differences.md` has the reasons, under "Different on purpose"."""
    config, message = TAKEN[name]
    theirs = Outcome.of(lambda: confluent_kafka.Consumer({**BASE, **config}))
    assert theirs.kafka_error is not None
    assert message in theirs.kafka_error.str()
    Consumer({**BASE, **config}).close()


BAD_SUBSCRIPTIONS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((("a",),), {}),
    (("a",), {}),
    (([],), {}),
    (([""],), {}),
    ((["a", "a"],), {}),
    ((["^("],), {}),
    ((["a"], None), {}),
    ((["a"], 3), {}),
    ((["a"],), {"on_revoke": 3}),
    ((["a"],), {"on_lost": "x"}),
    ((["a"], print, None), {}),
    (([3],), {}),
    (([None],), {}),
    ((["^a", "b", "^c.*|d"],), {}),
    ((["a b"],), {}),
    ((["a"],), {"on_assign": print, "on_revoke": print, "on_lost": print}),
]


@pytest.mark.parametrize("arguments", BAD_SUBSCRIPTIONS, ids=repr)
def test_subscribe_accepts_and_refuses_what_confluent_kafka_does(
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
) -> None:
    """`subscribe` takes a list of names and patterns, and callables; None is not a callable."""
    args, kwargs = arguments
    theirs, ours = confluent_kafka.Consumer(BASE), Consumer(BASE)
    Outcome.of(lambda: ours.subscribe(*args, **kwargs)).assert_like(
        Outcome.of(lambda: theirs.subscribe(*args, **kwargs))
    )
    theirs.close()
    ours.close()


ERROR_MESSAGE = Message(topic="records", partition=0, offset=3, error=KafkaError(3))
RECORD = Message(topic="records", partition=0, offset=6, value=b"6", leader_epoch=0)

#: Calls in this order on one pair of consumers, to which partitions 0 and 1 of `records` are assigned manually.
CALLS: dict[str, Call] = {
    "position before": lambda c: c.position([TP("records", 0), TP("records", 3), TP("nowhere", 7)]),
    # librdkafka chooses the offsets when its own thread performs the commit. The next call waits for that, so that no
    # record polled below is committed.
    "commit before, asynchronous": lambda c: c.commit(),
    "commit before": lambda c: c.commit(asynchronous=False),
    "poll": lambda c: c.poll(20),
    "poll again": lambda c: c.poll(20),
    "poll by keyword": lambda c: c.poll(timeout=20),
    "poll None": lambda c: c.poll(None) if len(c.consume(47, 20)) == 47 else None,
    "poll text": lambda c: c.poll("a"),
    "position": lambda c: c.position([TP("records", 0)]),
    "assignment": lambda c: c.assignment(),
    "seek": lambda c: c.seek(TP("records", 0, 10)),
    "position after seek": lambda c: c.position([TP("records", 0)]),
    "poll after seek": lambda c: c.poll(20),
    "commit": lambda c: c.commit(asynchronous=False),
    "commit again": lambda c: c.commit(asynchronous=False),
    "commit by alias": lambda c: c.commit(**{"offsets": [TP("records", 0, 3)], "async": False}),
    "commit message": lambda c: c.commit(RECORD, asynchronous=False),
    "commit message, third positional": lambda c: c.commit(RECORD, None, False),
    "commit message, asynchronous": lambda c: c.commit(RECORD),
    "commit offsets": lambda c: c.commit(
        offsets=[TP("records", 0, 7, "note"), TP("records", 3, 1)], asynchronous=False
    ),
    "commit offsets, one without": lambda c: c.commit(
        offsets=[TP("records", 0, 7), TP("records", 1)], asynchronous=False
    ),
    "commit one partition twice": lambda c: c.commit(
        offsets=[TP("records", 0, 7), TP("records", 0, 3, "note")], asynchronous=False
    ),
    "commit offsets, none with one": lambda c: c.commit(offsets=[TP("records", 1)], asynchronous=False),
    "commit no offsets": lambda c: c.commit(offsets=[], asynchronous=False),
    "commit no offsets, asynchronous": lambda c: c.commit(offsets=[]),
    "commit both": lambda c: c.commit(message=RECORD, offsets=[TP("records", 0, 7)]),
    "commit no message": lambda c: c.commit(message=3),
    "commit text": lambda c: c.commit(offsets="a"),
    "commit tuple": lambda c: c.commit(offsets=(TP("records", 0, 1),)),
    "commit numbers": lambda c: c.commit(offsets=[3]),
    "commit message with an error": lambda c: c.commit(ERROR_MESSAGE),
    "commit empty message": lambda c: c.commit(Message(), asynchronous=False),
    "commit message of a topic": lambda c: c.commit(Message(topic="records"), asynchronous=False),
    "commit message of a topic, asynchronous": lambda c: c.commit(Message(topic="records")),
    "commit message without offset": lambda c: c.commit(Message(topic="records", partition=0), asynchronous=False),
    "commit message without epoch": lambda c: c.commit(
        Message(topic="records", partition=0, offset=6), asynchronous=False
    ),
    "commit empty metadata": lambda c: c.commit(offsets=[TP("records", 0, 8, "")], asynchronous=False),
    "committed": lambda c: c.committed([TP("nowhere", 1, 5, "note", 3), TP("nowhere", 1)], 20),
    "committed of nothing": lambda c: c.committed([], 20),
    "committed text": lambda c: c.committed("x"),
    "store": lambda c: c.store_offsets(RECORD),
    "store offsets": lambda c: c.store_offsets(offsets=[TP("records", 0, 3)]),
    "store nothing": lambda c: c.store_offsets(),
    "store both": lambda c: c.store_offsets(message=RECORD, offsets=[TP("records", 0, 3)]),
    "store number": lambda c: c.store_offsets(3),
    "seek unassigned": lambda c: c.seek(TP("records", 3, 3)),
    "seek unknown": lambda c: c.seek(TP("nowhere", 3, 3)),
    "seek text": lambda c: c.seek("x"),
    "pause unknown": lambda c: c.pause([TP("nowhere", 9)]),
    "pause": lambda c: c.pause([TP("records", 0)]),
    "resume": lambda c: c.resume([TP("records", 0)]),
    "resume unknown": lambda c: c.resume([TP("nowhere", 9)]),
    "pause text": lambda c: c.pause("x"),
    "pause None": lambda c: c.pause([None]),
    "consume too few": lambda c: c.consume(-1, 0),
    "consume too many": lambda c: c.consume(1_000_001, 0),
    "consume none": lambda c: c.consume(0, 0),
    "consume None": lambda c: c.consume(None),
    "consume for None": lambda c: c.consume(1, None),
    "watermarks": lambda c: c.get_watermark_offsets(TP("records", 0), 20),
    "watermarks cached": lambda c: c.get_watermark_offsets(TP("records", 0), cached=True),
    "watermarks cached, unknown": lambda c: c.get_watermark_offsets(TP("nowhere", 0), cached=True),
    "watermarks text": lambda c: c.get_watermark_offsets("x"),
    "topics": lambda c: "records" in c.list_topics(timeout=20).topics,
    "one topic": lambda c: c.list_topics("records", 20),
    "cluster": lambda c: c.cluster_id(20),
    "incremental_assign twice": lambda c: c.incremental_assign([TP("records", 0, 1)]),
    "incremental_assign duplicate": lambda c: c.incremental_assign([TP("records", 2, 1), TP("records", 2, 1)]),
    "incremental_assign no offset": lambda c: c.incremental_assign([TP("records", 2, -5)]),
    "incremental_assign nothing": lambda c: c.incremental_assign([]),
    "incremental_assign": lambda c: c.incremental_assign([TP("records", 2, 1)]),
    "incremental_unassign unassigned": lambda c: c.incremental_unassign([TP("records", 3)]),
    "incremental_unassign nothing": lambda c: c.incremental_unassign([]),
    "incremental_unassign": lambda c: c.incremental_unassign([TP("records", 2)]),
    "assignment after": lambda c: c.assignment(),
    "assign no offset": lambda c: c.assign([TP("records", 0, -5)]),
    "assign duplicate": lambda c: c.assign([TP("records", 0, 1), TP("records", 0, 1)]),
    "assign text": lambda c: c.assign("x"),
    "assign None": lambda c: c.assign([None]),
    "assign stored": lambda c: c.assign([TP("records", 1, -1000)]),
    "assignment stored": lambda c: c.assignment(),
    "assign nothing": lambda c: c.assign([]),
    "unassign": lambda c: c.unassign(),
    "assignment of nothing": lambda c: c.assignment(),
    "commit after unassign": lambda c: c.commit(asynchronous=False),
    "poll unassigned": lambda c: c.poll(0),
    "consume unassigned": lambda c: c.consume(1, 0),
    "credentials": lambda c: c.set_sasl_credentials("a", "b"),
    "credentials number": lambda c: c.set_sasl_credentials("a", 2),
    "enter": lambda c: c.__enter__() is c,
    "exit": lambda c: c.__exit__(None, None, None),
    "close": lambda c: c.close(),
    "poll closed": lambda c: c.poll(0),
    "consume closed": lambda c: c.consume(1, 0),
    "subscribe closed": lambda c: c.subscribe(["a"]),
    "unsubscribe closed": lambda c: c.unsubscribe(),
    "assign closed": lambda c: c.assign([]),
    "unassign closed": lambda c: c.unassign(),
    "incremental_assign closed": lambda c: c.incremental_assign([]),
    "incremental_unassign closed": lambda c: c.incremental_unassign([]),
    "assignment closed": lambda c: c.assignment(),
    "commit closed": lambda c: c.commit(),
    "committed closed": lambda c: c.committed([]),
    "position closed": lambda c: c.position([]),
    "seek closed": lambda c: c.seek(TP("records", 0, 1)),
    "pause closed": lambda c: c.pause([]),
    "resume closed": lambda c: c.resume([]),
    "memberid closed": lambda c: c.memberid(),
    "metadata closed": lambda c: c.consumer_group_metadata(),
    "times closed": lambda c: c.offsets_for_times([]),
    "watermarks closed": lambda c: c.get_watermark_offsets(TP("records", 0)),
    "topics closed": lambda c: c.list_topics(),
    "cluster closed": lambda c: c.cluster_id(),
    "credentials closed": lambda c: c.set_sasl_credentials("a", "b"),
    "close again": lambda c: c.close(),
}


@pytest.mark.slow
def test_calls_have_the_results_and_exceptions_of_confluent_kafka(
    cluster: MockCluster, topic: str, consumers: ConsumerFactory
) -> None:
    """Each method is called correctly and incorrectly, before and after the first record and after the close."""
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "theirs",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    ours = consumers(group_id="ours", enable_auto_commit=False)
    # The mock cluster's response; a real broker's response is compared in `tests/integration/test_committed.py`.
    ours.member.committed[Partition("nowhere", 1)] = BrokerError(code=3, name="UNKNOWN_TOPIC_OR_PARTITION")
    for consumer in (theirs, ours):
        assert consumer.assign([TP(topic, 0, 0), TP(topic, 1, 50)]) is None
    problems = []
    for name, call in CALLS.items():
        expected = Outcome.of(lambda call=call: call(theirs))  # type: ignore[misc]
        actual = Outcome.of(lambda call=call: call(ours))  # type: ignore[misc]
        try:
            actual.assert_like(expected)
        except AssertionError as problem:
            problems.append(f"{name}: {problem}")
    assert not problems, "\n".join(problems)


def test_subclass_that_never_called_the_constructor_behaves_as_closed() -> None:
    """As in confluent-kafka, each method then raises, and `close` succeeds."""

    def make(base: Callable[..., AnyConsumer]) -> AnyConsumer:
        kind = type("Uninitialised", (base,), {"__init__": lambda _: None})  # type: ignore[arg-type]  # a class
        return kind()

    theirs, ours = make(confluent_kafka.Consumer), make(Consumer)
    for call in (
        lambda c: c.poll(0),
        lambda c: c.consume(1, 0),
        lambda c: c.assignment(),
        lambda c: c.subscribe(["a"]),
        lambda c: c.list_topics(),
        lambda c: c.close(),
    ):
        Outcome.of(lambda call=call: call(ours)).assert_like(Outcome.of(lambda call=call: call(theirs)))  # type: ignore[misc]


def test_second_init_call_is_refused() -> None:
    """A second `__init__` would abandon a handle and a member."""
    theirs, ours = confluent_kafka.Consumer(BASE), Consumer(BASE)
    Outcome.of(lambda: ours.__init__(BASE)).assert_like(Outcome.of(lambda: theirs.__init__(BASE)))  # type: ignore[misc]
    theirs.close()
    ours.close()


def test_consumer_has_all_methods_of_confluent_kafka_s() -> None:
    """Each method that a program calls on confluent-kafka's consumer exists."""
    public = {name for name in dir(confluent_kafka.Consumer) if not name.startswith("_")}
    assert public <= set(dir(Consumer))


def test_package_exports_the_names_that_programs_import_from_confluent_kafka() -> None:
    """To switch, a program changes only the import."""
    import consumer_membership  # noqa: PLC0415

    for name in [
        "Consumer",
        "Producer",
        "TopicPartition",
        "KafkaError",
        "KafkaException",
        "Message",
        "OFFSET_BEGINNING",
        "OFFSET_END",
        "OFFSET_STORED",
        "OFFSET_INVALID",
        "TIMESTAMP_NOT_AVAILABLE",
        "TIMESTAMP_CREATE_TIME",
        "TIMESTAMP_LOG_APPEND_TIME",
        "ThrottleEvent",
        "Uuid",
        "libversion",
        "version",
    ]:
        assert hasattr(consumer_membership, name), name
        if name != "Consumer":
            assert getattr(consumer_membership, name) is getattr(confluent_kafka, name)
