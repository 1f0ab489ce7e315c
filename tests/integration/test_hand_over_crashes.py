"""Processes that end, stall or lose their coordinator during a hand-over, on a real broker.

Each test shows: no record is lost, exactly the uncommitted records of killed processes are repeated, and the other
members keep their partitions unless a session ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.membership.consumer import hand_over, reservations
from consumer_membership.translation.announcements import helper_group
from tests.integration.group_under_test import DEPTH, GroupUnderTest, new_group
from tests.integration.offsets import shard
from tests.integration.victim import Victim
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import commit, create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.versions import NEWEST
from tests.support.victim import Point
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HAND_OVER: Mapping[str, Any] = {"group_instance_id_conflict_policy": "hand-over"}
GUARDED: Mapping[str, Any] = {**HAND_OVER, "crash_guardian_enable": True}
POOL: Mapping[str, Any] = {**HAND_OVER, "group_instance_id_pool": "p-{0..1}"}
NODES = 3
#: Longer than any test: a member that leaves an id to its successor for this time fails the test.
FOREVER_S = 1e6


@pytest.fixture
def group(kafka: Broker, tmp_path: Path) -> Iterator[GroupUnderTest]:
    """A new group on the shared broker: sessions last 45 s."""
    with new_group(kafka, tmp_path) as group:
        yield group


@dataclass(slots=True)
class Crash:
    """A predecessor with uncommitted records of six partitions, and another member, in their group."""

    group: GroupUnderTest
    old: Victim
    other: Worker
    owned: frozenset[int]
    calls: list[object]
    epoch: int | None

    @classmethod
    def of(cls, group: GroupUnderTest, old: Victim) -> Self:
        """Wait until both members have their partitions."""
        other = group.worker("other")
        owned = old.settled(6)
        other.settled(6)
        group.leave_uncommitted(old, held=6)
        calls = list[object](other.notes.calls)
        return cls(group=group, old=old, other=other, owned=owned, calls=calls, epoch=group.describe().epoch)

    def assert_continued_by(self, new: Victim) -> None:
        """Check that the successor has the id, all records were delivered, and the other member saw no change."""
        assert new.settled(6) == self.owned
        self.old.ended()
        self.group.produce()
        self.group.wait_for_all_records(new)
        self.group.check()
        assert (self.other.notes.calls, self.group.describe().epoch) == (self.calls, self.epoch)


# ---- the successor ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [Point.ANNOUNCEMENT_UNSENT, Point.ANNOUNCEMENT_WRITTEN, Point.RELEASE_SEEN], ids=str)
def test_predecessor_keeps_its_id_if_its_successor_is_killed(group: GroupUnderTest, point: Point) -> None:
    """Before the announcement nothing happens; later the predecessor joins with its id again.

    It hands the id over to the next successor.
    """
    old = group.victim(**HAND_OVER)
    crash = Crash.of(group, old)
    new = group.victim(point, is_armed=True, **HAND_OVER)
    new.died()
    expected = ["assign"] if point is Point.ANNOUNCEMENT_UNSENT else ["assign", "revoke", "assign"]
    old.wait(lambda a: [name for name, partitions in a.calls if partitions] == expected, "its return")
    assert (old.settled(6), new.account.records) == (crash.owned, [])
    crash.assert_continued_by(group.victim(**HAND_OVER))


# ---- the predecessor ends --------------------------------------------------------------------------------------------

#: How many of its records the predecessor had not committed when it ended.
UNCOMMITTED = {
    Point.ANNOUNCEMENT_READ: 6 * DEPTH,
    Point.LAST_COMMIT_UNSENT: 6 * DEPTH,
    Point.IN_LAST_ON_REVOKE: 0,
    Point.LEAVE_UNSENT: 0,
    Point.LEAVE_UNHEARD: 0,
}


@pytest.mark.parametrize("point", UNCOMMITTED, ids=str)
def test_successor_joins_if_its_predecessor_is_killed(group: GroupUnderTest, point: Point) -> None:
    """The predecessor's guardian reports its end before the release; after it, nothing is missing."""
    old = group.victim(point, **GUARDED)
    crash = Crash.of(group, old)
    old.arm()
    new = group.victim(**HAND_OVER)
    old.died()
    group.expect_redelivery(old)
    assert group.expected_repeats.total() == UNCOMMITTED[point]
    crash.assert_continued_by(new)


def test_successor_of_a_killed_predecessor_without_a_guardian_joins_after_the_session(
    broker_pool: RunBrokers, tmp_path: Path
) -> None:
    """The coordinator gives the partitions to the other member when the session ends, and some to the successor."""
    with new_group(broker_pool.shared(NEWEST, properties=SHORT_SESSIONS), tmp_path) as group:
        old = group.victim(Point.IN_LAST_ON_REVOKE, **HAND_OVER)
        crash = Crash.of(group, old)
        old.arm()
        new = group.victim(**HAND_OVER)
        old.died()
        group.expect_redelivery(old)
        new.settled(6)
        crash.other.settled(6)
        group.produce()
        group.wait_for_all_records(new)
        group.check()


def test_third_process_joins_if_predecessor_and_successor_are_killed(group: GroupUnderTest) -> None:
    """The successor is killed after its announcement, the predecessor in the release."""
    old = group.victim(Point.IN_LAST_ON_REVOKE, **GUARDED)
    crash = Crash.of(group, old)
    old.arm()
    new = group.victim(Point.ANNOUNCEMENT_WRITTEN, is_armed=True, **HAND_OVER)
    new.died()
    old.died()
    group.expect_redelivery(old)
    crash.assert_continued_by(group.victim(**HAND_OVER))


# ---- a member ends that the successor did not choose -----------------------------------------------------------------


class Pods:
    """Two members that hold the ids of a pool, and their successor."""

    def __init__(self, broker: Broker, stack: ExitStack) -> None:
        self._servers, self._group, self._stack = broker.bootstrap_servers, unique("group"), stack
        self._topic = create_topic(self._servers, unique("topic"), 4)
        self.old, self.other = sorted((self.start(), self.start()), key=id)
        self.old.settled(2)
        self.other.settled(2)

    def start(self, on_call: Any = None) -> Worker:
        """Start a member."""
        return self._stack.enter_context(Worker(self._servers, self._group, [self._topic], on_call, **POOL))

    def order(self, partitions: list[Partition]) -> None:
        """Make the owner of these partitions the predecessor."""
        if {(p.topic, p.partition) for p in partitions} != self.old.owned:
            self.old, self.other = self.other, self.old

    def check(self, *holders: Worker) -> None:
        """Check that these members own all partitions, and that each record is delivered once."""
        produce(self._servers, self._topic, 100)
        for one in holders:
            one.settled(2)
        holders[0].wait(lambda _: sum(len(one.notes.records) for one in holders) >= 100, "100 records")
        places = [record[:3] for one in holders for record in one.notes.records]
        assert (len(places), len(set(places))) == (100, 100)


@pytest.fixture
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member reserves an id for a successor without a time limit."""
    monkeypatch.setattr(hand_over, "RESERVED_S", FOREVER_S)
    monkeypatch.setattr(reservations, "RESERVED_S", FOREVER_S)
    monkeypatch.setattr(reservations, "RESERVED_FOR_OTHERS_S", FOREVER_S)


@pytest.mark.usefixtures("without_patience")
def test_successor_takes_the_id_of_another_member_that_ends(kafka: Broker) -> None:
    """The predecessor stays: its successor has joined elsewhere, and has withdrawn the announcement."""
    with ExitStack() as stack:
        pods = Pods(kafka, stack)

        def on_call(call: str, _: Consumer, partitions: list[Partition]) -> None:
            if call == "warm":
                pods.order(partitions)
                pods.other.stop()

        new = pods.start(on_call)
        new.settled(2)
        pods.check(new, pods.old)


@pytest.mark.usefixtures("without_patience")
def test_predecessor_takes_its_id_again_if_its_successor_joined_elsewhere(kafka: Broker) -> None:
    """The other member ends while the predecessor releases its partitions."""
    with ExitStack() as stack:
        pods = Pods(kafka, stack)
        new: list[Worker] = []

        def on_call(call: str, _: Consumer, partitions: list[Partition]) -> None:
            if call == "warm":
                pods.order(partitions)
                pods.old._on_call = on_revoke

        def on_revoke(call: str, _: Consumer, __: list[Partition]) -> None:
            if call == "revoke":
                pods.old._on_call = None
                pods.other.stop()
                new[0].settled(2)

        new.append(pods.start(on_call))
        new[0].settled(2)
        pods.old.wait(lambda w: [n for n, _ in w.notes.calls][-2:] == ["revoke", "assign"], "its return")
        pods.check(new[0], pods.old)


@pytest.mark.usefixtures("without_patience")
def test_predecessor_takes_the_id_of_a_member_that_ends(kafka: Broker) -> None:
    """The predecessor has handed over its own id, and no other successor requested the id that becomes free."""
    with ExitStack() as stack:
        pods = Pods(kafka, stack)
        new = pods.start(lambda call, _, partitions: pods.order(partitions) if call == "warm" else None)
        new.settled(2)
        pods.old.wait(lambda w: w.consumer.membership().waits_for == "group.instance.id.pool", "its wait")
        pods.other.stop()
        pods.old.settled(2)
        pods.check(new, pods.old)


# ---- deadlines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stalls", ["callback", "poll loop"])
def test_successor_joins_if_its_predecessor_exceeds_the_drain_timeout(kafka: Broker, stalls: str) -> None:
    """The predecessor leaves without its application, which then receives an error, and on_lost without on_revoke."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 2)
    goes_on = threading.Event()

    def on_call(call: str, _: Consumer, __: list[Partition]) -> None:
        if call == "revoke" and stalls == "callback":
            assert goes_on.wait(PATIENCE_S)

    config: Mapping[str, Any] = {
        **HAND_OVER,
        "group_instance_id": "a",
        "drain_timeout_ms": 0,
        "auto_commit_interval_ms": 600_000,
    }
    with ExitStack() as stack:
        old = stack.enter_context(Worker(servers, group, [topic], on_call, **config))
        stack.callback(goes_on.set)
        old.settled(2)
        produce(servers, topic, 10)
        old.wait(lambda w: len(w.notes.records) == 10, "10 records")
        if stalls == "poll loop":
            old.freeze()
        new = stack.enter_context(Worker(servers, group, [topic], **config))
        new.settled(2)
        goes_on.set()
        old.thaw()
        # After on_revoke no partition is left for on_lost.
        last = "lost" if stalls == "poll loop" else "revoke"
        old.wait(lambda w: len(w.notes.errors) == 2 and w.notes.calls[-1][0] == last, f"its errors and on_{last}")
        assert [one.code() for one in old.notes.errors] == [
            KafkaError._MAX_POLL_EXCEEDED,
            KafkaError.FENCED_INSTANCE_ID,
        ]
        assert "drain.timeout.ms=0 exceeded" in old.notes.errors[0].str()
        new.wait(lambda w: len(w.notes.records) >= (10 if stalls == "poll loop" else 0), "the uncommitted records")


# ---- coordinators ----------------------------------------------------------------------------------------------------


def leader(servers: str, group: str) -> int:
    """The node that coordinates a group."""
    topic = AdminClient({"bootstrap.servers": servers}).list_topics("__consumer_offsets", PATIENCE_S)
    return int(topic.topics["__consumer_offsets"].partitions[shard(group)].leader)


@pytest.mark.parametrize("stops", ["group", "helper group"])
def test_hand_over_continues_after_the_move_of_a_coordinator(broker_pool: RunBrokers, stops: str) -> None:
    """The group and its helper group have coordinators on different nodes.

    The group's stops in the release of the partitions, or the helper group's before the announcement.
    """
    with broker_pool.own(NEWEST, nodes=NODES) as broker, ExitStack() as stack:
        servers = broker.bootstrap_servers
        topic = create_topic(servers, unique("topic"), 6, replication_factor=NODES)
        commit(servers, unique("first"), Partition(topic, 0, 0))
        group = unique("group")
        while leader(servers, group) == leader(servers, helper_group(group)):
            group = unique("group")
        stopped: list[int] = []

        def on_call(call: str, _: Consumer, __: list[Partition]) -> None:
            if call == ("revoke" if stops == "group" else "warm") and not stopped:
                stopped.append(leader(servers, group if stops == "group" else helper_group(group)))
                broker.stop_node(stopped[0])

        def member() -> Worker:
            config: Mapping[str, Any] = {**HAND_OVER, "group_instance_id": "a"}
            return stack.enter_context(Worker(servers, group, [topic], on_call, **config))

        old = member()
        old.settled(6)
        produce(servers, topic, 60)
        old.wait(lambda w: len(w.notes.records) == 60, "60 records")
        new = member()
        new.settled(6)
        assert len(stopped) == 1
        produce(servers, topic, 60)
        new.wait(lambda w: len(old.notes.records) + len(w.notes.records) >= 120, "120 records")
        places = [record[:3] for record in (*old.notes.records, *new.notes.records)]
        assert (len(places), len(set(places))) == (120, 120)
        old.wait(lambda w: bool(w.notes.errors), "its end")
        assert "was handed over to member" in old.notes.errors[-1].str()
