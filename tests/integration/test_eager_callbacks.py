"""Programs written for the eager protocol, in a group of the consumer protocol, get confluent-kafka's callbacks.

No test here configures the protocol or the callbacks: confluent-kafka joins a classic group with its eager assignors,
and this package's consumer joins a group of the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.types import GroupProtocol
from tests.integration.polled_group import AnyConsumer, Calls, PolledGroup, change_of_subscription, scale_out_and_in
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = 6


def scale_to_three_and_back(polled_group: PolledGroup) -> None:
    """Three members join one after the other, and leave again."""
    polled_group.join("a")
    polled_group.until(a=6)
    polled_group.join("b")
    polled_group.until(a=3, b=3)
    polled_group.join("c")
    polled_group.until(a=2, b=2, c=2)
    polled_group.leave("c")
    polled_group.until(a=3, b=3)
    polled_group.leave("b")
    polled_group.until(a=6)


def calls_in(
    kind: type[AnyConsumer], broker: Broker, topic: str, scene: Callable[[PolledGroup], None], **settings: str
) -> Calls:
    """Return the calls of each member's callbacks in a scene, without calls that have no partition.

    A member of the consumer protocol is in its group before other members have released partitions for it, so its first
    assignment can be empty.
    """
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    with closing(PolledGroup(kind, broker, topic, dotted)) as polled_group:
        scene(polled_group)
    return {name: [(call, parts) for call, parts in calls if parts] for name, calls in polled_group.calls.items()}


def numbers(calls: Calls) -> dict[str, list[tuple[str, int]]]:
    """The numbers of partitions.

    The broker's assignor and librdkafka's give out the same numbers, but not the same partitions.
    """
    return {name: [(call, len(partitions)) for call, partitions in made] for name, made in calls.items()}


@pytest.mark.parametrize("scene", [scale_out_and_in, change_of_subscription, scale_to_three_and_back])
def test_default_callbacks_match_confluent_kafka_s_eager_callbacks(
    broker: Broker, scene: Callable[[PolledGroup], None]
) -> None:
    """Callback by callback, the default revokes all partitions and assigns the whole list, as confluent-kafka does.

    The third member's partitions come from two others; the faster of them need not wait for the slower.
    """
    topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
    raw, ours = (numbers(calls_in(kind, broker, topic, scene)) for kind in (RawConsumer, Consumer))
    if ours.get("c") == [("assign", 1), ("revoke", 1), *raw.get("c", ())]:
        ours["c"] = raw["c"]
    assert ours == raw


def test_cooperative_assignor_alone_gets_incremental_callbacks(broker: Broker) -> None:
    """Callbacks are incremental, as confluent-kafka's, because this configuration shows that the program expects it."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
    cooperative = {"partition_assignment_strategy": "cooperative-sticky"}
    raw, ours = (
        numbers(calls_in(kind, broker, topic, scale_out_and_in, **cooperative)) for kind in (RawConsumer, Consumer)
    )
    assert ours == raw
    assert ("revoke", 6) not in ours["a"][:-1]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_rebalance_callbacks_eager_gives_eager_callbacks_with_each_protocol(broker: Broker, protocol: str) -> None:
    """rebalance.callbacks=eager applies under the consumer protocol and with cooperative assignors."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
    keys = {"group_protocol": protocol, "rebalance_callbacks": "eager"}
    if protocol == "classic":
        keys["partition_assignment_strategy"] = "cooperative-sticky"
    calls = numbers(calls_in(Consumer, broker, topic, scale_out_and_in, **keys))
    assert calls["a"][:2] == [("assign", 6), ("revoke", 6)]
    # A cooperative group rebalances twice: first b's share is revoked, then the retained partitions are assigned.
    assert set(calls["a"][2:]) == {("assign", 3), ("revoke", 3), ("assign", 6), ("revoke", 6)}


# ---- programs --------------------------------------------------------------------------------------------------------


class Program:
    """A consumer as written for the eager protocol: it replaces its list and clears its buffers.

    It processes a partition's records in fives and commits each five. It drops buffered records when partitions are
    revoked, because the group redelivers them.
    """

    def __init__(self, kind: type[AnyConsumer], broker: Broker, group: str, topic: str) -> None:
        self.consumer = kind(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        self.mine: list[int] = []
        self.buffers: dict[int, list[int]] = {}
        self.handled: list[tuple[int, int]] = []
        self.seen: list[tuple[int, int]] = []
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: AnyConsumer, partitions: list[Partition]) -> None:
        self.mine = [one.partition for one in partitions]
        self.buffers = {number: [] for number in self.mine}

    def _revoked(self, _: AnyConsumer, __: list[Partition]) -> None:
        self.mine = []
        self.buffers = {}

    def turn(self) -> None:
        """Poll once."""
        message = self.consumer.poll(0.02)
        assert sorted(self.mine) == sorted(one.partition for one in self.consumer.assignment())
        if not message:
            return
        assert message.error() is None, message.error()
        number, offset = message.partition(), message.offset()
        assert number is not None
        assert offset is not None
        self.seen.append((number, offset))
        buffer = self.buffers[number]
        buffer.append(offset)
        if len(buffer) == 5:
            self.handled += [(number, one) for one in buffer]
            buffer.clear()
            self.consumer.commit(message, asynchronous=False)  # type: ignore[call-overload]  # of both consumers


class Crew:
    """Programs of one group; `enter` adds one, and closes them all at the end of the test."""

    def __init__(self, kind: type[AnyConsumer], broker: Broker, topic: str) -> None:
        self._arguments = kind, broker, unique("group"), topic
        self.members: list[Program] = []

    def enter(self) -> Program:
        """Add one program."""
        self.members.append(Program(*self._arguments))
        return self.members[-1]

    def close(self) -> None:
        """Close all programs."""
        for member in self.members:
            member.consumer.close()


def until(members: Sequence[Program], is_so: Callable[[], bool], what: str) -> None:
    """Poll all programs in turn until the condition holds."""

    def turn() -> None:
        for member in members:
            member.turn()

    wait_until(is_so, what, between=turn, seen=lambda: [(one.mine, one.seen, one.handled) for one in members])


def settled(members: Sequence[Program], *counts: int) -> None:
    """Wait until the programs have these numbers of partitions."""
    until(members, lambda: [len(one.mine) for one in members] == list(counts), f"{counts} partitions")


def read_by_two(kind: type[AnyConsumer], broker: Broker, topic: str) -> tuple[set[int], int, int]:
    """Run two programs; the second joins when the first one's buffers hold four records of each partition.

    Returns the offsets of a retained partition that were returned twice, the number of processed records, and how many
    of them were processed twice.
    """
    produce(broker.bootstrap_servers, topic, 4 * PARTITIONS)
    with closing(Crew(kind, broker, topic)) as crew:
        members, first = crew.members, crew.enter()
        until(members, lambda: len(first.seen) == 4 * PARTITIONS, "four records of each partition")
        crew.enter()
        settled(members, 3, 3)
        kept = first.mine[0]
        until(members, lambda: first.seen.count((kept, 3)) > 1, "the last record of a kept partition once more")
        produce(broker.bootstrap_servers, topic, 6 * PARTITIONS)
        whole = 10 * PARTITIONS
        until(members, lambda: sum(len(one.handled) for one in members) >= whole, "all records handled")
        again = {offset for number, offset in first.seen if number == kept and first.seen.count((number, offset)) > 1}
        handled = [one for member in members for one in member.handled]
        return again, len(set(handled)), len(handled) - len(set(handled))


def test_cleared_buffers_of_retained_partitions_are_redelivered(broker: Broker) -> None:
    """Records of a retained partition that on_revoke dropped are redelivered from the committed offset."""
    topics = [create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS) for _ in range(2)]
    raw, ours = (read_by_two(kind, broker, topic) for kind, topic in zip((RawConsumer, Consumer), topics, strict=True))
    assert raw == ours == ({0, 1, 2, 3}, 10 * PARTITIONS, 0)


def paused_and_rebalanced(kind: type[AnyConsumer], broker: Broker, topic: str) -> set[int]:
    """Return the partitions that return records after all were paused and a member joined and left."""
    with closing(Crew(kind, broker, topic)) as crew:
        first = crew.enter()
        settled(crew.members, PARTITIONS)
        first.consumer.pause(first.consumer.assignment())
        crew.enter()
        settled(crew.members, 3, 3)
        crew.members.pop().consumer.close()
        settled(crew.members, PARTITIONS)
        produce(broker.bootstrap_servers, topic, 5 * PARTITIONS)
        until(crew.members, lambda: len(first.handled) == 5 * PARTITIONS, "five records of each partition")
        return {number for number, _ in first.handled}


def test_eager_callbacks_clear_pauses(broker: Broker) -> None:
    """A program that pauses again in on_assign, or never, finds each partition resumed."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
    assert paused_and_rebalanced(Consumer, broker, topic) == set(range(PARTITIONS))


def test_incremental_assign_in_on_assign_switches_to_incremental_callbacks(broker: Broker) -> None:
    """A callback that calls `incremental_assign` was written for cooperative groups.

    Later callbacks are incremental.
    """
    topic = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS)
    calls: list[tuple[str, int]] = []

    def on_assign(consumer: Consumer, partitions: list[Partition]) -> None:
        calls.append(("assign", len(partitions)))
        consumer.incremental_assign(partitions)

    def on_revoke(consumer: Consumer, partitions: list[Partition]) -> None:
        calls.append(("revoke", len(partitions)))
        consumer.incremental_unassign(partitions)

    def scene(polled_group: PolledGroup) -> None:
        polled_group.join("a")
        first = polled_group.members["a"]
        first.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)  # type: ignore[arg-type]  # it is ours
        scale = polled_group.until
        scale(a=6)
        polled_group.join("b")
        scale(a=3, b=3)
        polled_group.leave("b")
        scale(a=6)

    calls_in(Consumer, broker, topic, scene)
    assert [call for call in calls if call[1]] == [("assign", 6), ("revoke", 3), ("assign", 3), ("revoke", 6)]


def test_retained_partitions_continue_without_callbacks(broker: Broker) -> None:
    """Without callbacks, retained partitions are not revoked: no record is repeated and reading does not stop."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), PARTITIONS), unique("group")
    produce(broker.bootstrap_servers, topic, 4 * PARTITIONS)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    settings |= {"auto.offset.reset": "earliest", "heartbeat.interval.ms": 200}
    with closing(Consumer(settings)) as first, closing(Consumer(settings)) as second:
        seen: list[tuple[int | None, int | None]] = []

        def poll() -> None:
            if message := first.poll(0.02):
                seen.append((message.partition(), message.offset()))
            second.poll(0)

        def poll_until(is_so: Callable[[], bool], what: str) -> None:
            wait_until(is_so, what, between=poll, seen=lambda: seen)

        first.subscribe([topic])
        poll_until(lambda: len(seen) == 4 * PARTITIONS, "all records")
        assert first.membership().protocol is GroupProtocol.CONSUMER
        second.subscribe([topic])
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 3, "three partitions each")
        kept = {one.partition for one in first.assignment()}
        produce(broker.bootstrap_servers, topic, PARTITIONS)
        poll_until(lambda: {(number, 4) for number in kept} <= set(seen), "the newest records of what was kept")
        assert len(seen) == len(set(seen))
