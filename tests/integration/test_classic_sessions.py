"""Classic members that are killed, stopped, cut off, closed with an option, or replaced (KIP-345, KIP-814)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.membership.states import MemberState
from tests.integration.assignors import Blocking
from tests.integration.environments import CLASSIC, COOPERATIVE, EAGER, Environment, on
from tests.integration.victim import Victim
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.proxy import Proxy
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: The api keys of the classic Heartbeat and of JoinGroup.
HEARTBEAT = 12
JOIN_GROUP = 11


@pytest.fixture(params=[(NEWEST, COOPERATIVE), (OLDEST, EAGER)], ids=[f"{NEWEST}-cooperative", f"{OLDEST}-eager"])
def quick(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Environment:
    """A broker that allows short sessions."""
    version, mode = request.param
    return Environment(broker=broker_pool.shared(version, properties=SHORT_SESSIONS), mode=mode)


def moves(worker: Worker) -> list[tuple[str, tuple[tuple[str, int], ...]]]:
    """Return the partition callbacks that moved something.

    A returning cooperative leader cannot see the others' last assignment. It triggers another rebalance if partitions
    may be without an owner; nothing moves then, and the other members get no callback.
    """
    return [(call, partitions) for call, partitions in worker.notes.calls if partitions]


def victim_of(environment: Environment, group: str, topic: str, folder: Path, **config: object) -> Victim:
    """A member of this kind in its own process."""
    given: dict[str, Any] = {**environment.mode, **config}
    return Victim(environment.bootstrap_servers, group, topic, folder, **given)


# ---- sessions -------------------------------------------------------------------------------------------------------


def test_killed_classic_member_loses_its_partitions_after_its_session(quick: Environment, tmp_path: Path) -> None:
    """Under the classic protocol, the member's own session.timeout.ms decides when its partitions move."""
    topic, group = quick.topic(4), unique("group")
    with quick.member(group, [topic]) as other:
        other.settled(4)
        with victim_of(quick, group, topic, tmp_path, session_timeout_ms=2000) as victim:
            victim.settled(2)
            other.settled(2)
            victim.kill()
            other.settled(4)
        assert other.notes.named("lost") == []


def test_stopped_classic_member_calls_on_lost_and_rejoins(quick: Environment, tmp_path: Path) -> None:
    """The session of a stopped member ends.

    When the process resumes, the member calls on_lost instead of on_revoke and rejoins.
    """
    topic, group = quick.topic(4), unique("group")
    with quick.member(group, [topic]) as other:
        other.settled(4)
        with victim_of(quick, group, topic, tmp_path, session_timeout_ms=2000) as victim:
            owned = victim.settled(2)
            other.settled(2)
            calls = len(victim.account.calls)
            victim.stop()
            other.settled(4)
            victim.resume()
            victim.wait(lambda a: ("lost", tuple(sorted(owned))) in a.calls[calls:], "on_lost")
            victim.settled(2)
            other.settled(2)
            assert victim.account.calls[calls][0] == "lost"
            assert len(victim.account.member_ids) >= 2
            assert victim.account.errors == []


@pytest.mark.parametrize("environment", ["newest-cooperative", "oldest-eager"], indirect=True)
def test_static_member_that_missed_a_generation_loses_partitions_but_keeps_its_id(
    environment: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """After ILLEGAL_GENERATION a static member loses its partitions but keeps its id, as the group kept its place."""
    caplog.set_level(logging.INFO, logger="consumer_membership.membership")
    topic, group = environment.topic(6), unique("group")
    # A rebalance waits for the joins of the members for max.poll.interval.ms at most.
    config: dict[str, Any] = {"max_poll_interval_ms": 6000}
    with Proxy(environment.bootstrap_servers) as proxy, environment.member(group, [topic], **config) as other:
        other.settled(6)
        settings: dict[str, Any] = {**environment.mode, **config, "group_instance_id": "a"}
        with Worker(proxy.address, group, [topic], **settings) as cut_off:
            cut_off.settled(3)
            other.settled(3)
            member_id, calls = cut_off.consumer.memberid(), len(cut_off.notes.calls)
            generation = other.consumer.membership().member_epoch
            proxy.hold_from(HEARTBEAT)
            proxy.wait(lambda: proxy.held[HEARTBEAT] > 0, "a heartbeat under way")
            with environment.member(group, [topic], **config) as third:
                third.wait(lambda w: w.consumer.membership().member_epoch > generation, "the next generation")
                other.wait(lambda w: w.consumer.membership().member_epoch > generation, "the next generation")
                proxy.heal()
                cut_off.wait(lambda w: len(w.notes.named("lost")) == 1, "on_lost")
                for worker in (cut_off, other, third):
                    worker.settled(2)
            assert cut_off.notes.calls[calls][0] == "lost"
            assert cut_off.consumer.memberid() == member_id
            assert cut_off.notes.errors == []
    assert any("ILLEGAL_GENERATION" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_member_cut_off_during_its_join_stops_reading_within_its_session(broker_pool: RunBrokers, version: str) -> None:
    """A member keeps its partitions during a cooperative rebalance, but returns no record once others may own them."""
    environment = Environment(broker=broker_pool.shared(version, properties=SHORT_SESSIONS), mode=COOPERATIVE)
    topic, group = environment.topic(4), unique("group")
    produce(environment.bootstrap_servers, topic, 400)
    lost: list[int] = []
    config = {**environment.mode, "group_id": group, "session_timeout_ms": 2000, "heartbeat_interval_ms": 500}
    settings = {key.replace("_", "."): value for key, value in config.items()} | {"auto.offset.reset": "earliest"}
    with (
        Proxy(environment.bootstrap_servers) as proxy,
        Consumer(settings | {"bootstrap.servers": proxy.address}) as cut_off,
    ):
        cut_off.subscribe([topic], on_lost=lambda _, partitions: lost.extend(p.partition for p in partitions))
        while not cut_off._ready:
            cut_off.poll(1.0)
        assert len(cut_off.assignment()) == 4
        proxy.hold_from(JOIN_GROUP)
        with environment.member(group, [topic]) as other:
            proxy.wait(lambda: proxy.held[JOIN_GROUP] > 0, "a join under way")
            other.settled(4)
            assert [cut_off.poll(0) for _ in range(10)] == [None] * 10
            assert cut_off._ready
            proxy.heal()
            while not lost:
                assert cut_off.poll(0.05) is None
            assert sorted(lost) == [0, 1, 2, 3]
            while len(cut_off.assignment()) != 2:
                cut_off.poll(0.05)
            other.settled(2)


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_member_with_a_blocking_assignor_returns_no_record_after_its_lease(
    broker_pool: RunBrokers, version: str
) -> None:
    """The lease ends in time although user_data() blocks the membership thread; records wait for the coordinator."""
    environment = Environment(broker=broker_pool.shared(version), mode=COOPERATIVE)
    topic, other_topic, group = environment.topic(4), environment.topic(1, "other"), unique("group")
    config: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    assignor = Blocking()
    lost: list[int] = []
    with (
        environment.member(group, [topic], partition_assignment_strategy=[assignor], **config) as blocked,
        environment.member(group, [topic], partition_assignment_strategy=[Blocking()], **config) as other,
    ):
        blocked.settled(2)
        other.settled(2)
        blocked.freeze()
        consumer = blocked.consumer
        produce(environment.bootstrap_servers, topic, 400)
        while not consumer._ready:
            consumer.poll(1.0)
        assignor.may_return.clear()
        try:
            consumer.subscribe(
                [topic, other_topic], on_lost=lambda _, partitions: lost.extend(p.partition for p in partitions)
            )
            assert assignor.is_blocked.wait(PATIENCE_S)
            lease_until = consumer.membership().lease_until
            assert lease_until is not None
            # Within the lease, records are returned; from here on only the end of the lease can stop the next records.
            while consumer.poll(0) is None and monotonic() < lease_until:
                pass
            # The coordinator ends the session of the member, which does not send heartbeats.
            other.settled(4)
            assert [consumer.poll(0) for _ in range(10)] == [None] * 10
            assert consumer._ready
        finally:
            assignor.may_return.set()
        while not lost:
            message = consumer.poll(0.05)
            assert message is None, (message.error(), message.offset())
        # Records that are produced before the assignment could all go to the other member.
        while len(consumer.assignment()) != 2:
            consumer.poll(0.05)
        produce(environment.bootstrap_servers, topic, 400)
        while (message := consumer.poll(1.0)) is None or message.error() is not None:
            pass
        confirmed_until = consumer.membership().lease_until
        assert confirmed_until is not None
        assert confirmed_until > lease_until


@on("newest-cooperative")
def test_close_without_a_coordinator_ends_within_its_bound(environment: Environment) -> None:
    """C17: `close` ends although the network was cut before the leave, and the place is free after the session."""
    topic, group = environment.topic(2), unique("group")
    with Proxy(environment.bootstrap_servers) as proxy:
        worker = Worker(proxy.address, group, [topic], **environment.mode, session_timeout_ms=6000)
        with worker:
            worker.settled(2)
            member_id = worker.consumer.memberid()
            proxy.cut()
            worker.stop()
            assert worker.notes.named("revoke") + worker.notes.named("lost") != []
        members = GroupAdmin({"bootstrap.servers": environment.bootstrap_servers}).describe(group).group.members
        assert [one.member_id for one in members] == [member_id]
        with environment.member(group, [topic]) as following:
            following.settled(2)


# ---- static members -------------------------------------------------------------------------------------------------


@on(*CLASSIC)
def test_newest_static_member_fences_the_former_holder(environment: Environment) -> None:
    """KIP-345: The former holder is FATAL with FENCED_INSTANCE_ID and cannot commit any more.

    No partition of other members moves.
    """
    topic, group = environment.topic(6), unique("group")
    produce(environment.bootstrap_servers, topic, 60)
    with (
        environment.member(group, [topic], group_instance_id="b") as other,
        environment.member(group, [topic], group_instance_id="a", enable_auto_commit=False) as former,
    ):
        former.settled(3)
        other.settled(3)
        owned, others = former.owned, other.owned
        with environment.member(group, [topic], group_instance_id="a") as newcomer:
            newcomer.settled(3)
            former.wait(lambda w: any(error.fatal() for error in w.notes.errors), "the fatal error")
            error, *_ = former.notes.errors
            assert error.code() == KafkaError.FENCED_INSTANCE_ID
            assert "group.instance.id 'a' is held by another member" in error.str()
            former.wait(lambda w: len(w.notes.named("lost")) == 1, "on_lost")
            assert (former.state, former.owned) == (MemberState.FATAL, frozenset())
            with pytest.raises(KafkaException):
                former.consumer.commit(asynchronous=False)
            former.stop()
            newcomer.settled(3)
            other.settled(3)
            assert (newcomer.owned, other.owned) == (owned, others)


@on(*CLASSIC)
def test_returning_static_leader_causes_no_rebalance(environment: Environment) -> None:
    """KIP-814: The first member to join leads.

    It closes and returns within its session, and the group does not rebalance.
    """
    topic, group = environment.topic(6), unique("group")
    leader = environment.member(group, [topic], group_instance_id="a")
    with leader:
        leader.settled(6)
        with environment.member(group, [topic], group_instance_id="b") as other:
            other.settled(3)
            leader.settled(3)
            owned, calls = leader.owned, moves(other)
            generation = other.consumer.membership().member_epoch
            leader.stop()
            with environment.member(group, [topic], group_instance_id="a") as again:
                again.settled(3)
                other.settled(3)
                assert (again.owned, moves(other)) == (owned, calls)
                assert again.consumer.membership().member_epoch == generation or not environment.is_eager


@on("newest-cooperative", "oldest-eager")
def test_restarted_static_member_gets_its_partitions_without_a_rebalance(
    environment: Environment, tmp_path: Path
) -> None:
    """A static leader or follower that is killed and restarted within its session gets its partitions.

    Other members see no change.
    """
    topic, group = environment.topic(6), unique("group")
    first = victim_of(environment, group, topic, tmp_path, group_instance_id="a")
    with first:
        first.settled(6)
        with environment.member(group, [topic], group_instance_id="b") as other:
            other.settled(3)
            owned = first.settled(3)
            calls = moves(other)
            first.kill()
            with victim_of(environment, group, topic, tmp_path, group_instance_id="a") as again:
                assert again.settled(3) == owned
                assert moves(other) == calls
                assert again.account.calls[0] == ("assign", tuple(sorted(owned)))


# ---- what becomes of the place --------------------------------------------------------------------------------------


def test_close_with_remain_keeps_a_dynamic_member_s_partitions_for_its_session(quick: Environment) -> None:
    """C15: After `close` with "remain" the partitions have no reader until the session ends.

    Then other members get them.
    """
    topic, group = quick.topic(4), unique("group")
    with quick.member(group, [topic]) as other:
        other.settled(4)
        with quick.member(group, [topic], session_timeout_ms=8000) as goes:
            goes.settled(2)
            other.settled(2)
            member_id, calls = goes.consumer.memberid(), list(other.notes.calls)
            goes.stop("remain")
        described = GroupAdmin({"bootstrap.servers": quick.bootstrap_servers}).describe(group, with_offsets=False)
        assert member_id in {member.member_id for member in described.group.members}
        assert other.notes.calls == calls
        other.settled(4)


@pytest.mark.parametrize(("mode", "version"), [(EAGER, NEWEST), (COOPERATIVE, OLDEST)], ids=["eager", "cooperative"])
def test_static_member_that_exceeds_max_poll_interval_keeps_its_place_for_its_session(
    broker_pool: RunBrokers, mode: Mapping[str, object], version: str
) -> None:
    """C01, rules 4.3: A static member sends no leave when max.poll.interval.ms passes; its session decides."""
    environment = Environment(broker=broker_pool.shared(version, properties=SHORT_SESSIONS), mode=mode)
    topic, group = environment.topic(4), unique("group")
    times: dict[str, Any] = {"session_timeout_ms": 5000, "max_poll_interval_ms": 5000}
    with (
        environment.member(group, [topic]) as other,
        environment.member(group, [topic], group_instance_id="a", **times) as slow,
    ):
        slow.settled(2)
        other.settled(2)
        slow.freeze()
        other.settled(4)
        assert slow.state is MemberState.STALE
        slow.thaw()
        slow.settled(2)
        assert [error.code() for error in slow.notes.errors] == [KafkaError._MAX_POLL_EXCEEDED]
        assert len(slow.notes.named("lost")) == 1
