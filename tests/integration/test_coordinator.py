"""The coordinator stops, restarts and moves on a real broker: no rebalance and no lost record, for both protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from tests.integration.environments import CONSUMER, COOPERATIVE, EAGER, Environment
from tests.integration.offsets import shard
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.versions import NEWEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MODES = (CONSUMER, EAGER, COOPERATIVE)


def test_broker_restart_causes_no_rebalance_and_loses_no_record(own_broker: Broker) -> None:
    """S01, S08: Members keep their partitions and continue to read when the broker is stopped and started."""
    bootstrap = own_broker.bootstrap_servers
    pairs: list[tuple[str, Worker, Worker]] = []
    with ExitStack() as stack:
        for mode in MODES:
            environment, group = Environment(broker=own_broker, mode=mode), unique("group")
            topic = environment.topic(6)
            one, two = (stack.enter_context(environment.member(group, [topic])) for _ in range(2))
            pairs.append((topic, one, two))
        for topic, one, two in pairs:
            one.settled(3)
            two.settled(3)
            produce(bootstrap, topic, 600)
        calls = [[list(one.notes.calls), list(two.notes.calls)] for _, one, two in pairs]
        own_broker.stop_node(1)
        own_broker.start_node(1)
        own_broker.wait_ready()
        for topic, one, two in pairs:
            produce(bootstrap, topic, 600)
            everything_read(one, two)
        assert [[one.notes.calls, two.notes.calls] for _, one, two in pairs] == calls
    for _, one, two in pairs:
        seen = Counter((partition, offset) for w in (one, two) for _, partition, offset, _ in w.notes.records)
        assert (len(seen), max(seen.values())) == (1200, 1)


def everything_read(one: Worker, two: Worker) -> None:
    """Wait for 1200 records in all."""
    one.wait(lambda w: len(w.notes.records) + len(two.notes.records) >= 1200, "1200 records")


def heartbeat_answered(worker: Worker) -> None:
    """Wait for the response to one more heartbeat."""
    heartbeat = worker.consumer.membership().last_heartbeat_at or 0
    worker.wait(lambda w: (w.consumer.membership().last_heartbeat_at or 0) > heartbeat, "a heartbeat answered")


def group_in(number: int) -> str:
    """A new group in this partition of the offsets topic."""
    while shard(name := unique("group")) != number:
        pass
    return name


def test_coordinator_move_to_another_node_causes_no_rebalance(broker_pool: RunBrokers) -> None:
    """S01: Another of three nodes takes over from the stopped coordinator; the groups do not rebalance."""
    with broker_pool.own(NEWEST, nodes=3) as broker, ExitStack() as stack:
        bootstrap = broker.bootstrap_servers
        topic = create_topic(bootstrap, unique("topic"), 6, replication_factor=3)
        grounds = [Environment(broker=broker, mode=mode) for mode in MODES]
        workers = [stack.enter_context(environment.member(group_in(3), [topic])) for environment in grounds]
        for worker in workers:
            worker.settled(6)
        produce(bootstrap, topic, 300)
        for worker in workers:
            worker.wait(lambda w: len(w.notes.records) >= 300, "300 records")
        (coordinator,) = {worker.consumer.membership().coordinator for worker in workers}
        assert coordinator is not None
        calls = [list(worker.notes.calls) for worker in workers]
        broker.stop_node(coordinator.node_id)
        produce(bootstrap, topic, 300)
        for worker in workers:
            worker.wait(lambda w: len(w.notes.records) >= 600, "600 records")
            worker.wait(lambda w: w.consumer.membership().coordinator not in (None, coordinator), "a new coordinator")
            heartbeat_answered(worker)
        assert [worker.notes.calls for worker in workers] == calls


@pytest.mark.timeout(600)
def test_coordinator_move_keeps_static_members_and_their_instance_ids(broker_pool: RunBrokers) -> None:
    """S01, S04: A static member that has returned keeps its member id and partitions when the coordinator moves.

    The new coordinator knows its instance id: the process can be replaced again, and the other member is not affected.
    """
    with broker_pool.own(NEWEST, nodes=3) as broker, ExitStack() as stack:
        bootstrap = broker.bootstrap_servers
        admin = GroupAdmin({"bootstrap.servers": bootstrap})
        topic = create_topic(bootstrap, unique("topic"), 6, replication_factor=3)
        grounds = [Environment(broker=broker, mode=mode) for mode in MODES]
        groups = [group_in(3) for _ in grounds]

        def begin(instance_id: str) -> list[Worker]:
            pairs = zip(grounds, groups, strict=True)
            return [
                stack.enter_context(environment.member(group, [topic], group_instance_id=instance_id))
                for environment, group in pairs
            ]

        stay, former = begin("stays"), begin("returns")
        for worker in (*stay, *former):
            worker.settled(3)
        had = [worker.owned for worker in former]
        returned = replaced(former, lambda: begin("returns"))
        assert [worker.owned for worker in returned] == had
        members = (*stay, *returned)
        before = [(worker.consumer.memberid(), worker.owned, list(worker.notes.calls)) for worker in members]
        (coordinator,) = {worker.consumer.membership().coordinator for worker in members}
        assert coordinator is not None
        broker.stop_node(coordinator.node_id)
        produce(bootstrap, topic, 300)
        for one, other in zip(stay, returned, strict=True):
            one.wait(lambda _: len(one.notes.records) + len(other.notes.records) >= 300, "300 records")  # noqa: B023
            for worker in (one, other):
                worker.wait(lambda w: w.consumer.membership().coordinator not in (None, coordinator), "a coordinator")
                heartbeat_answered(worker)
        assert [(worker.consumer.memberid(), worker.owned, worker.notes.calls) for worker in members] == before
        for group, one, other in zip(groups, stay, returned, strict=True):
            described = admin.describe(group, with_offsets=False).group.members
            assert {(member.instance_id, member.member_id) for member in described} == {
                ("stays", one.consumer.memberid()),
                ("returns", other.consumer.memberid()),
            }
        again = replaced(returned, lambda: begin("returns"))
        assert [worker.owned for worker in again] == had
        assert [worker.notes.calls for worker in stay] == [calls for _, _, calls in before[: len(stay)]]
        assert [worker.notes.errors for worker in (*stay, *again)] == [[]] * 6


def replaced(former: list[Worker], begin: Callable[[], list[Worker]]) -> list[Worker]:
    """Close these static members, which stay in their groups, and begin their successors."""
    for worker in former:
        worker.stop()
    members = begin()
    for worker in members:
        worker.settled(3)
    return members
