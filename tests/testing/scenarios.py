"""Scenarios of a consumer and a producer, with equal results on a `FakeCluster` and on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol, TypeAlias, Unpack
from uuid import uuid4
from zlib import crc32

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from consumer_membership import Consumer, MemberState
from consumer_membership.admin import GroupAdmin
from consumer_membership.processing import Processor
from consumer_membership.processing.settings import ProcessorOptions
from tests.support.waiting import PATIENCE_S, wait_until

#: How long a scenario waits for an event that must not happen.
QUIET_S = 0.5
_NO_OFFSET = -1001


class Cluster(Protocol):
    """A fake cluster, or a broker."""

    bootstrap_servers: str

    def consumer(self, config: dict[str, object]) -> Consumer:
        """Create a consumer."""

    def producer(self, config: dict[str, object]) -> Producer:
        """Create a producer."""

    def admin_client(self, config: dict[str, object]) -> AdminClient:
        """Create an admin client."""

    def group_admin(self, config: dict[str, object]) -> GroupAdmin:
        """Create a `GroupAdmin`."""

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""

    def start(self, call: Callable[[], None]) -> object:
        """Call this function in a thread."""

    def advance(self, seconds: float) -> None:
        """Let this much virtual time pass. On a real broker, do nothing: other threads run anyway."""


class Ground:
    """One scenario's topic, group and clients."""

    def __init__(self, cluster: Cluster, partitions: int = 1) -> None:
        self.cluster = cluster
        self.topic, self.group = f"topic-{uuid4()}", f"group-{uuid4()}"
        cluster.create_topic(self.topic, partitions)
        self.clients = ExitStack()
        self._admins: list[AdminClient] = []

    def consumer(self, **config: object) -> Consumer:
        """Create a consumer of the group; underscores of the keys become dots."""
        keys = {
            name if name in {"on_commit", "stats_cb"} else name.replace("_", "."): value
            for name, value in config.items()
        }
        defaults = {"group.id": self.group, "auto.offset.reset": "earliest", "group.protocol": "consumer"}
        return self.clients.enter_context(self.cluster.consumer(defaults | keys))

    def subscribed(self, **config: object) -> Consumer:
        """Create a consumer of the topic."""
        consumer = self.consumer(**config)
        consumer.subscribe([self.topic])
        return consumer

    def recorded(self, **config: object) -> tuple[Consumer, list[tuple[str, list[int]]]]:
        """Create a consumer of the topic, and a list of its callbacks with the numbers of their partitions."""
        consumer, calls = self.consumer(**config), list[tuple[str, list[int]]]()
        consumer.subscribe([self.topic], **recording(calls))
        return consumer, calls

    def produce(self, *values: str, topic: str | None = None, **fields: object) -> list[Message]:
        """Produce records to the topic, and return the messages of their delivery reports."""
        delivered: list[Message] = []

        def report(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            delivered.append(message)

        producer = self.cluster.producer({})
        for value in values:
            producer.produce(topic or self.topic, value, on_delivery=report, **fields)  # type: ignore[arg-type]  # tests
        assert producer.flush(PATIENCE_S) == 0
        return delivered

    def admin(self) -> AdminClient:
        """Create an admin client, and keep a reference: the futures of a deleted admin client never complete."""
        self._admins.append(self.cluster.admin_client({}))
        return self._admins[-1]

    def group_admin(self) -> GroupAdmin:
        """Create a `GroupAdmin`."""
        return self.cluster.group_admin({})

    def processor(self, handler: object, **options: Unpack[ProcessorOptions]) -> Processor:
        """Run a processor of the topic and the group."""
        config = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "group.protocol": "consumer",
            "auto.commit.interval.ms": 100,
        }
        made = Processor(config, [self.topic], handler, **options)
        self.clients.enter_context(made)
        self.cluster.start(lambda: made.run(handle_signals=False))
        return made

    def place(self, offset: int = _NO_OFFSET, partition: int = 0) -> TopicPartition:
        """Return a partition of the topic with this offset."""
        return TopicPartition(self.topic, partition, offset)

    def committed(self, partition: int = 0) -> int:
        """Return the group's committed offset of this partition."""
        return self.consumer().committed([self.place(partition=partition)], PATIENCE_S)[0].offset


def recording(calls: list[tuple[str, list[int]]]) -> dict[str, Callable[[Consumer, list[TopicPartition]], object]]:
    """Return callbacks that append their partitions to `calls`, unless they receive no partitions."""

    def noting(name: str) -> Callable[[Consumer, list[TopicPartition]], object]:
        return lambda _, partitions: partitions and calls.append((name, sorted(one.partition for one in partitions)))

    return {f"on_{name}": noting(name) for name in ("assign", "revoke", "lost")}


def take(consumer: Consumer, count: int) -> list[Message]:
    """Poll until this number of records has arrived."""
    taken: list[Message] = []
    while len(taken) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"{len(taken)} of {count} records came"
        assert message.error() is None, message.error()
        taken.append(message)
    return taken


def values(consumer: Consumer, count: int) -> list[bytes | str | None]:
    """Poll until this number of records has arrived, and return their values."""
    return [message.value() for message in take(consumer, count)]


def join(consumer: Consumer, partitions: int = 1) -> None:
    """Poll until the consumer has this number of partitions; no record may arrive."""
    rounds([consumer], lambda: len(consumer.assignment()) == partitions)


def rounds(consumers: list[Consumer], is_over: Callable[[], bool]) -> None:
    """Poll the consumers in turn until the condition holds; no record may arrive."""

    def poll() -> None:
        for consumer in consumers:
            assert consumer.poll(0.05) is None

    def seen() -> object:
        return [consumer.membership() for consumer in consumers]

    wait_until(is_over, "the members' state", between=poll, seen=seen)


def code_of(caught: pytest.ExceptionInfo[KafkaException]) -> int:
    """Return the error code of an exception."""
    return int(caught.value.args[0].code())


Scenario: TypeAlias = Callable[[Ground], None]
#: The scenarios by name, each with the number of partitions of its topic.
SCENARIOS: dict[str, tuple[Scenario, int]] = {}


def scenario(partitions: int = 1) -> Callable[[Scenario], Scenario]:
    """Return a decorator that adds a scenario whose topic has this number of partitions."""

    def add(function: Scenario) -> Scenario:
        SCENARIOS[function.__name__] = function, partitions
        return function

    return add


# ---- records ---------------------------------------------------------------------------------------------------------


@scenario()
def record_has_its_key_and_value(ground: Ground) -> None:
    ground.produce("v", key="k")
    (message,) = take(ground.subscribed(), 1)
    assert (message.key(), message.value(), message.offset(), message.partition()) == (b"k", b"v", 0, 0)


@scenario()
def record_without_key_and_value(ground: Ground) -> None:
    producer = ground.cluster.producer({})
    producer.produce(ground.topic)
    producer.flush(PATIENCE_S)
    (message,) = take(ground.subscribed(), 1)
    assert (message.key(), message.value()) == (None, None)


@scenario()
def empty_value_is_not_none(ground: Ground) -> None:
    ground.produce("", key="")
    (message,) = take(ground.subscribed(), 1)
    assert (message.key(), message.value()) == (b"", b"")


@scenario()
def text_is_utf_8(ground: Ground) -> None:
    ground.produce("größe")
    assert values(ground.subscribed(), 1) == ["größe".encode()]


@scenario()
def headers_keep_order_and_repetitions(ground: Ground) -> None:
    headers = [("b", b"1"), ("a", b"2"), ("b", b"3"), ("n", None)]
    ground.produce("v", headers=headers)
    assert take(ground.subscribed(), 1)[0].headers() == headers


@scenario()
def record_without_headers(ground: Ground) -> None:
    ground.produce("v")
    assert take(ground.subscribed(), 1)[0].headers() is None


@scenario()
def timestamp_of_the_producer(ground: Ground) -> None:
    ground.produce("v", timestamp=1_700_000_000_000)
    assert take(ground.subscribed(), 1)[0].timestamp() == (1, 1_700_000_000_000)


@scenario()
def records_of_a_partition_keep_their_order(ground: Ground) -> None:
    ground.produce(*map(str, range(50)))
    assert values(ground.subscribed(), 50) == [str(value).encode() for value in range(50)]


@scenario(4)
def key_chooses_the_partition(ground: Ground) -> None:
    keys = [f"key-{number}" for number in range(10)]
    found = [ground.produce("v", key=key)[0].partition() for key in keys]
    assert found == [crc32(key.encode()) % 4 for key in keys]


@scenario(3)
def partition_is_named_by_the_producer(ground: Ground) -> None:
    ground.produce("v", partition=2, key="k")
    assert take(ground.subscribed(), 1)[0].partition() == 2


@scenario()
def delivery_report_has_offset_and_topic(ground: Ground) -> None:
    messages = ground.produce("a", "b")
    assert [(m.topic(), m.offset()) for m in messages] == [(ground.topic, 0), (ground.topic, 1)]


@scenario()
def unknown_partition_of_the_producer_is_refused(ground: Ground) -> None:
    ground.produce("v")  # a real broker's producer receives the number of partitions later
    producer = ground.cluster.producer({})
    producer.list_topics(ground.topic, PATIENCE_S)
    errors: list[object] = []
    try:
        producer.produce(ground.topic, "v", partition=7, on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE_S)
    except KafkaException as refused:
        errors.append(refused.args[0])
    assert [error.code() for error in errors if isinstance(error, KafkaError)] == [KafkaError._UNKNOWN_PARTITION]


# ---- where a consumer starts -----------------------------------------------------------------------------------------


@scenario()
def earliest_reads_from_the_beginning(ground: Ground) -> None:
    ground.produce("a", "b")
    assert values(ground.subscribed(), 2) == [b"a", b"b"]


@scenario()
def latest_reads_new_records_only(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.subscribed(auto_offset_reset="latest")
    join(consumer)
    ground.produce("b")
    assert values(consumer, 1) == [b"b"]


@scenario()
def reset_error_is_returned_by_poll(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.subscribed(auto_offset_reset="error")
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


@scenario()
def committed_offset_wins_over_the_reset(ground: Ground) -> None:
    ground.produce("a", "b")
    ground.consumer().commit(offsets=[ground.place(1)], asynchronous=False)
    assert values(ground.subscribed(auto_offset_reset="latest"), 1) == [b"b"]


@scenario()
def assign_starts_at_an_offset(ground: Ground) -> None:
    ground.produce("a", "b", "c")
    consumer = ground.consumer()
    consumer.assign([ground.place(2)])
    assert values(consumer, 1) == [b"c"]


@scenario()
def assign_starts_at_the_beginning(ground: Ground) -> None:
    ground.produce("a", "b")
    consumer = ground.consumer(auto_offset_reset="latest")
    consumer.assign([ground.place(OFFSET_BEGINNING)])
    assert values(consumer, 2) == [b"a", b"b"]


@scenario()
def assign_starts_at_the_end(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.consumer(enable_partition_eof=True)
    consumer.assign([ground.place(OFFSET_END)])
    end = consumer.poll(PATIENCE_S)
    assert end is not None
    assert end.offset() == 1
    ground.produce("b")
    assert values(consumer, 1) == [b"b"]


@scenario()
def assign_starts_at_the_committed_offset(ground: Ground) -> None:
    ground.produce("a", "b")
    ground.consumer().commit(offsets=[ground.place(1)], asynchronous=False)
    consumer = ground.consumer()
    consumer.assign([ground.place(OFFSET_STORED)])
    assert values(consumer, 1) == [b"b"]


@scenario(2)
def incremental_assign_adds_and_removes(ground: Ground) -> None:
    ground.produce("a", partition=0)
    ground.produce("b", partition=1)
    consumer = ground.consumer()
    consumer.incremental_assign([ground.place(0, 0)])
    assert values(consumer, 1) == [b"a"]
    consumer.incremental_assign([ground.place(0, 1)])
    assert values(consumer, 1) == [b"b"]
    consumer.incremental_unassign([ground.place(partition=0)])
    assert [one.partition for one in consumer.assignment()] == [1]


@scenario()
def on_assign_may_choose_the_offset(ground: Ground) -> None:
    ground.produce("a", "b", "c")
    consumer = ground.consumer()

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(one.topic, one.partition, 1) for one in partitions])

    consumer.subscribe([ground.topic], on_assign=on_assign)
    assert values(consumer, 2) == [b"b", b"c"]


# ---- positions -------------------------------------------------------------------------------------------------------


@scenario()
def position_is_after_the_last_record(ground: Ground) -> None:
    ground.produce("a", "b", "c")
    consumer = ground.subscribed()
    take(consumer, 2)
    assert consumer.position([ground.place()])[0].offset == 2


@scenario()
def position_is_unknown_before_the_first_record(ground: Ground) -> None:
    consumer = ground.subscribed()
    join(consumer)
    assert consumer.position([ground.place()])[0].offset == _NO_OFFSET


@scenario()
def seek_goes_back(ground: Ground) -> None:
    ground.produce("a", "b", "c")
    consumer = ground.subscribed()
    take(consumer, 3)
    consumer.seek(ground.place(1))
    assert values(consumer, 2) == [b"b", b"c"]


@scenario()
def seek_goes_forward(ground: Ground) -> None:
    ground.produce(*map(str, range(10)))
    consumer = ground.subscribed()
    take(consumer, 1)
    consumer.seek(ground.place(8))
    assert values(consumer, 2) == [b"8", b"9"]


@scenario()
def seek_of_an_unassigned_partition_is_refused(ground: Ground) -> None:
    consumer = ground.consumer()
    with pytest.raises(KafkaException) as caught:
        consumer.seek(ground.place(1))
    assert code_of(caught) in {KafkaError._STATE, KafkaError._UNKNOWN_PARTITION}


@scenario()
def paused_partition_returns_nothing_until_it_is_resumed(ground: Ground) -> None:
    consumer = ground.subscribed()
    join(consumer)
    consumer.pause([ground.place()])
    ground.produce("a")
    assert consumer.poll(QUIET_S) is None
    consumer.resume([ground.place()])
    assert values(consumer, 1) == [b"a"]


@scenario(2)
def other_partitions_flow_during_a_pause(ground: Ground) -> None:
    consumer = ground.subscribed()
    join(consumer, 2)
    consumer.pause([ground.place(partition=0)])
    ground.produce("a", partition=0)
    ground.produce("b", partition=1)
    assert values(consumer, 1) == [b"b"]
    assert consumer.poll(QUIET_S) is None


@scenario()
def watermarks(ground: Ground) -> None:
    ground.produce("a", "b")
    assert ground.consumer().get_watermark_offsets(ground.place(), PATIENCE_S) == (0, 2)


@scenario()
def offset_of_a_time(ground: Ground) -> None:
    for number in range(3):
        ground.produce("v", timestamp=1_700_000_000_000 + 1000 * number)
    consumer = ground.consumer()
    for moment, expected in ((1_700_000_000_500, 1), (1_600_000_000_000, 0), (1_800_000_000_000, OFFSET_END)):
        assert consumer.offsets_for_times([ground.place(moment)], PATIENCE_S)[0].offset == expected


@scenario(3)
def metadata_of_a_topic(ground: Ground) -> None:
    found = ground.consumer().list_topics(ground.topic, PATIENCE_S).topics[ground.topic]
    assert (found.error, set(found.partitions)) == (None, {0, 1, 2})


@scenario()
def end_of_a_partition(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.subscribed(enable_partition_eof=True)
    take(consumer, 1)
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert (error.code(), message.offset()) == (KafkaError._PARTITION_EOF, 1)
    assert consumer.poll(QUIET_S) is None


@scenario()
def consume_returns_a_batch(ground: Ground) -> None:
    ground.produce(*map(str, range(10)))
    consumer = ground.subscribed()
    assert [message.value() for message in consumer.consume(10, PATIENCE_S)] == [b"%d" % value for value in range(10)]
    assert consumer.consume(10, QUIET_S) == []


# ---- commits ---------------------------------------------------------------------------------------------------------


@scenario()
def commit_of_a_record_is_the_next_offset(ground: Ground) -> None:
    ground.produce("a", "b")
    consumer = ground.subscribed(enable_auto_commit=False)
    (first,) = take(consumer, 1)
    (done,) = consumer.commit(first, asynchronous=False)
    assert (done.offset, done.error, ground.committed()) == (1, None, 1)


@scenario(2)
def commit_of_offsets(ground: Ground) -> None:
    ground.consumer().commit(offsets=[ground.place(5, 0), ground.place(7, 1)], asynchronous=False)
    assert (ground.committed(0), ground.committed(1)) == (5, 7)


@scenario()
def commit_without_records_is_refused(ground: Ground) -> None:
    consumer = ground.subscribed(enable_auto_commit=False)
    join(consumer)
    with pytest.raises(KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert code_of(caught) == KafkaError._NO_OFFSET


@scenario()
def asynchronous_commit_calls_on_commit(ground: Ground) -> None:
    calls: list[tuple[KafkaError | None, list[int]]] = []
    ground.produce("a")
    consumer = ground.subscribed(
        enable_auto_commit=False, on_commit=lambda error, done: calls.append((error, [one.offset for one in done]))
    )
    take(consumer, 1)
    assert consumer.commit() is None
    rounds([consumer], lambda: bool(calls))
    assert calls == [(None, [1])]


@scenario()
def close_commits_automatically(ground: Ground) -> None:
    ground.produce("a", "b")
    consumer = ground.subscribed()
    take(consumer, 2)
    consumer.close()
    assert ground.committed() == 2


@scenario()
def close_commits_nothing_without_automatic_commits(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.subscribed(enable_auto_commit=False)
    take(consumer, 1)
    consumer.close()
    assert ground.committed() == _NO_OFFSET


@scenario()
def automatic_commit_comes_with_its_interval(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.subscribed(auto_commit_interval_ms=100)
    take(consumer, 1)
    rounds([consumer], lambda: ground.committed() == 1)


@scenario()
def stored_offsets_are_committed(ground: Ground) -> None:
    ground.produce("a", "b")
    consumer = ground.subscribed(enable_auto_offset_store=False)
    first, _ = take(consumer, 2)
    consumer.store_offsets(first)
    consumer.close()
    assert ground.committed() == 1


@scenario()
def stored_offset_needs_an_assigned_partition(ground: Ground) -> None:
    consumer = ground.consumer(enable_auto_offset_store=False)
    with pytest.raises(KafkaException) as caught:
        consumer.store_offsets(offsets=[ground.place(1)])
    assert code_of(caught) == KafkaError._UNKNOWN_PARTITION


@scenario()
def commit_goes_back(ground: Ground) -> None:
    ground.produce("a", "b", "c")
    consumer = ground.subscribed(enable_auto_commit=False)
    consumer.commit(take(consumer, 3)[-1], asynchronous=False)
    consumer.commit(offsets=[ground.place(1)], asynchronous=False)
    assert ground.committed() == 1


@scenario()
def commit_keeps_its_metadata(ground: Ground) -> None:
    consumer = ground.consumer()
    consumer.commit(offsets=[TopicPartition(ground.topic, 0, 3, metadata="state")], asynchronous=False)
    (found,) = consumer.committed([ground.place()], PATIENCE_S)
    assert (found.offset, found.metadata) == (3, "state")


@scenario()
def uncommitted_records_come_again(ground: Ground) -> None:
    ground.produce("a", "b")
    first = ground.subscribed(enable_auto_commit=False)
    first.commit(take(first, 2)[0], asynchronous=False)
    first.close()
    assert values(ground.subscribed(), 1) == [b"b"]


@scenario()
def two_groups_are_independent(ground: Ground) -> None:
    ground.produce("a")
    first = ground.subscribed()
    take(first, 1)
    first.close()
    assert values(ground.subscribed(group_id=f"{ground.group}-other"), 1) == [b"a"]


# ---- groups ----------------------------------------------------------------------------------------------------------


@scenario(3)
def on_assign_and_on_revoke_have_the_partitions(ground: Ground) -> None:
    consumer, calls = ground.recorded()
    join(consumer, 3)
    consumer.close()
    assert calls == [("assign", [0, 1, 2]), ("revoke", [0, 1, 2])]


@scenario()
def settled_member_is_stable(ground: Ground) -> None:
    consumer = ground.subscribed()
    join(consumer)
    rounds([consumer], lambda: consumer.membership().state is MemberState.STABLE)
    assert consumer.generation() > 0
    assert consumer.memberid()
    assert consumer.membership().owned.keys() == {(ground.topic, 0)}


@scenario(4)
def second_member_gets_half_of_the_partitions(ground: Ground) -> None:
    first, calls = ground.recorded()
    join(first, 4)
    second, others = ground.recorded()
    rounds([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert [name for name, _ in calls] == ["assign", "revoke"]
    assert [name for name, _ in others] == ["assign"] * len(others)


@scenario(4)
def member_that_leaves_gives_its_partitions_to_the_other(ground: Ground) -> None:
    first, second = ground.subscribed(), ground.subscribed()
    rounds([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
    second.close()
    rounds([first], lambda: len(first.assignment()) == 4)


@scenario(2)
def idle_third_member_of_two_partitions(ground: Ground) -> None:
    members = [ground.subscribed() for _ in range(3)]
    rounds(members, lambda: sorted(len(one.assignment()) for one in members) == [0, 1, 1])


@scenario(2)
def static_member_returns_without_a_rebalance(ground: Ground) -> None:
    first, calls = ground.recorded(group_instance_id="a")
    second = ground.subscribed(group_instance_id="b")
    rounds([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)
    before, seen = [one.partition for one in second.assignment()], list(calls)
    second.close()
    again = ground.subscribed(group_instance_id="b")
    rounds([first, again], lambda: len(again.assignment()) == 1)
    assert ([one.partition for one in again.assignment()], calls) == (before, seen)


@scenario()
def unsubscribe_revokes_the_partitions(ground: Ground) -> None:
    consumer, calls = ground.recorded()
    join(consumer)
    consumer.unsubscribe()
    rounds([consumer], lambda: len(calls) == 2)
    assert (calls[-1], consumer.assignment()) == (("revoke", [0]), [])


@scenario()
def another_subscription_replaces_the_first(ground: Ground) -> None:
    other = f"{ground.topic}-other"
    ground.cluster.create_topic(other, 1)
    consumer = ground.subscribed()
    join(consumer)
    consumer.subscribe([other])
    ground.produce("a")
    ground.produce("b", topic=other)
    assert values(consumer, 1) == [b"b"]
    assert consumer.poll(QUIET_S) is None


@scenario()
def member_reads_two_topics(ground: Ground) -> None:
    other = f"{ground.topic}-other"
    ground.cluster.create_topic(other, 1)
    consumer = ground.consumer()
    consumer.subscribe([ground.topic, other])
    ground.produce("a")
    ground.produce("b", topic=other)
    assert sorted(map(str, values(consumer, 2))) == ["b'a'", "b'b'"]


@scenario()
def pattern_matches_topics(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.consumer()
    consumer.subscribe([f"^{ground.topic[:-3]}.*"])
    assert values(consumer, 1) == [b"a"]


@scenario(2)
def classic_group_of_two_members(ground: Ground) -> None:
    first, second = ground.subscribed(group_protocol="classic"), ground.subscribed(group_protocol="classic")
    rounds([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)


@scenario(2)
def classic_member_has_eager_callbacks(ground: Ground) -> None:
    first, calls = ground.recorded(group_protocol="classic")
    join(first, 2)
    second = ground.subscribed(group_protocol="classic")
    rounds([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)
    assert [(name, len(partitions)) for name, partitions in calls] == [("assign", 2), ("revoke", 2), ("assign", 1)]


@scenario(2)
def cooperative_members_keep_their_partitions(ground: Ground) -> None:
    strategy = {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"}
    first, calls = ground.recorded(**strategy)
    join(first, 2)
    second = ground.subscribed(**strategy)
    rounds([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)
    assert [(name, len(partitions)) for name, partitions in calls] == [("assign", 2), ("revoke", 1)]


@scenario()
def unknown_key_is_refused(ground: Ground) -> None:
    with pytest.raises(KafkaException, match=r"No such configuration property: \"fetch.wait\"") as caught:
        ground.consumer(fetch_wait=1)
    assert code_of(caught) == KafkaError._INVALID_ARG


@scenario()
def automatic_protocol_consumes(ground: Ground) -> None:
    ground.produce("a")
    assert values(ground.subscribed(group_protocol="auto"), 1) == [b"a"]


@scenario()
def commit_inside_on_revoke(ground: Ground) -> None:
    ground.produce("a")
    consumer = ground.consumer(enable_auto_commit=False)
    consumer.subscribe([ground.topic], on_revoke=lambda *_: consumer.commit(asynchronous=False))
    take(consumer, 1)
    consumer.close()
    assert ground.committed() == 1


@scenario()
def closed_consumer_refuses_calls(ground: Ground) -> None:
    consumer = ground.subscribed()
    join(consumer)
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


# ---- transactions ----------------------------------------------------------------------------------------------------


def transactional(ground: Ground) -> Producer:
    """Create a producer with a transactional id, which is the scenario's group id."""
    producer = ground.cluster.producer({"transactional.id": ground.group})
    producer.init_transactions(PATIENCE_S)
    return producer


@scenario()
def committed_transaction_is_read(ground: Ground) -> None:
    producer = transactional(ground)
    for value in "ab":
        producer.begin_transaction()
        producer.produce(ground.topic, value)
        producer.commit_transaction(PATIENCE_S)
    first, second = take(ground.subscribed(), 2)
    assert (first.value(), second.value(), first.offset(), second.offset()) == (b"a", b"b", 0, 2)


@scenario()
def aborted_transaction_is_not_read(ground: Ground) -> None:
    producer = transactional(ground)
    producer.begin_transaction()
    producer.produce(ground.topic, "a")
    producer.abort_transaction(PATIENCE_S)
    ground.produce("b")
    assert values(ground.subscribed(), 1) == [b"b"]


@scenario()
def transaction_commits_offsets(ground: Ground) -> None:
    ground.produce("a")
    consumer, producer = ground.subscribed(enable_auto_commit=False), transactional(ground)
    take(consumer, 1)
    producer.begin_transaction()
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    assert ground.committed() == 1


@scenario()
def later_producer_fences_the_earlier_one(ground: Ground) -> None:
    first = transactional(ground)
    first.begin_transaction()
    transactional(ground)
    first.produce(ground.topic, "a")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
