"""A process that waits for an instance id takes it over when another process releases it (KIP-345 on KIP-848)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.aio import AIOConsumer
from consumer_membership.devbroker import Broker
from tests.aio.programs import run
from tests.integration.polls import poll_until
from tests.integration.processors import Handled, Run, running
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, HEARTBEAT, Proxy
from tests.support.versions import NEWEST
from tests.support.waiting import async_wait_until, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODES = 3
KEYS = 6


def test_waiting_member_describes_its_group_and_joins_when_the_id_is_released(broker: Broker) -> None:
    """A waiting member joins only once, because brokers log refused joins; no record is lost or returned twice."""
    servers, group = broker.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 4)
    with ExitStack() as stack:
        old = stack.enter_context(Worker(servers, group, [topic], group_instance_id="a"))
        old.settled(4)
        produce(servers, topic, 100)
        old.wait(lambda w: len(w.notes.records) == 100, "100 records")
        proxy = stack.enter_context(Proxy(servers))
        new = Worker(proxy.address, group, [topic], group_instance_id="a", group_instance_id_conflict_policy="wait")
        stack.enter_context(new)
        proxy.wait(lambda: proxy.passed[CONSUMER_GROUP_DESCRIBE] >= 10, "descriptions")
        assert (proxy.passed[HEARTBEAT], new.notes.calls, old.notes.errors) == (1, [], [])
        produce(servers, topic, 100)
        owned = old.owned
        old.stop()
        new.settled(4)
        new.wait(lambda w: len(old.notes.records) + len(w.notes.records) >= 200, "200 records")
        places = [record[:3] for record in (*old.notes.records, *new.notes.records)]
        assert (len(places), len(set(places)), new.owned) == (200, 200, owned)


HAND_OVER: Mapping[str, Any] = {"group_instance_id_conflict_policy": "hand-over"}


def test_holder_of_a_fixed_id_hands_over_to_a_new_process(broker: Broker) -> None:
    """The successor gets the same partitions at the same epoch; no other member notices, no record is lost or repeated.

    The predecessor ends with an error that names the successor. Only the refused join looked for a classic group.
    """
    servers, group = broker.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 8)
    with ExitStack() as stack:
        old, other = (
            stack.enter_context(Worker(servers, group, [topic], group_instance_id=name, **HAND_OVER)) for name in "ab"
        )
        old.settled(4)
        other.settled(4)
        produce(servers, topic, 200)
        old.wait(lambda w: len(w.notes.records) + len(other.notes.records) == 200, "200 records")
        before, owned, calls = old.consumer.membership(), old.owned, list(other.notes.calls)
        epoch_of_other = other.consumer.membership().member_epoch
        proxy = stack.enter_context(Proxy(servers))
        new = stack.enter_context(Worker(proxy.address, group, [topic], group_instance_id="a", **HAND_OVER))
        new.settled(4)
        assert proxy.passed[DESCRIBE_GROUPS] == 1
        after = new.consumer.membership()
        assert (new.owned, after.member_epoch) == (owned, before.member_epoch)
        old.wait(lambda w: bool(w.notes.errors), "its end")
        (error,) = old.notes.errors
        assert f"was handed over to member {after.member_id}" in str(error)
        produce(servers, topic, 200)
        workers = (old, new, other)
        new.wait(lambda _: sum(len(w.notes.records) for w in workers) >= 400, "400 records")
        places = [record[:3] for worker in workers for record in worker.notes.records]
        assert (len(places), len(set(places))) == (400, 400)
        assert (other.notes.calls, other.consumer.membership().member_epoch) == (calls, epoch_of_other)


def test_holders_of_a_pool_hand_over_to_two_new_processes(broker: Broker) -> None:
    """Each new process replaces an old one, not the other new one, and is warm for its partitions."""
    servers, group = broker.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 6)
    pool: Mapping[str, Any] = {"group_instance_id_pool": "p-{0..2}", **HAND_OVER}
    with ExitStack() as stack:
        old = [stack.enter_context(Worker(servers, group, [topic], **pool)) for _ in range(3)]
        for one in old:
            one.settled(2)
        new = [stack.enter_context(Worker(servers, group, [topic], **pool)) for _ in range(2)]
        for one in new:
            one.wait(lambda w: any(w.notes.named("assign")), "its partitions")
            (taken,) = filter(None, one.notes.named("assign"))
            assert len(taken) == 2
            assert taken in one.notes.named("warm")
        members = [*old, *new]
        new[0].wait(lambda _: len(frozenset().union(*(one.owned for one in members))) == 6, "owners of all partitions")
        assert sorted(len(one.owned) for one in old) == [0, 0, 2]
        for one in old:
            if not one.owned:
                # A successor can have the partitions before the application of the former holder polls again.
                one.wait(lambda w: w.consumer.membership().waits_for == "group.instance.id.pool", "its wait for an id")
        assert [one.notes.errors for one in members] == [[]] * 5


def test_processor_finishes_the_records_in_hand_and_its_successor_continues_behind_them(kafka: Broker) -> None:
    """No record is handled twice or lost, and the records of a key keep their order over both processors."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 2)
    config: dict[str, object] = {"group.instance.id": "a", "group.instance.id.conflict.policy": "hand-over"}
    handled, warm = Handled(), list[int]()
    handled.hold("10", "11")
    produce(servers, topic, [(str(number % KEYS), str(number)) for number in range(40)])
    with ExitStack() as stack:
        stack.callback(handled.release)
        old = Run(servers, topic, group, handled, config)
        handled.wait_for_begin("10", "11")
        handled.wait_for_end(*(str(number) for number in range(40) if number % KEYS not in {10 % KEYS, 11 % KEYS}))
        new = Run(servers, topic, group, handled, config, on_warm=lambda found: warm.extend(p.partition for p in found))
        stack.enter_context(running(new))
        wait_until(lambda: handled.contexts["10"].is_ending and handled.contexts["11"].is_ending, "the revocation")
        handled.release()
        handled.wait_for_end(*map(str, range(40)))
        produce(servers, topic, [(str(number % KEYS), str(number)) for number in range(40, 60)])
        handled.wait_for_end(*map(str, range(60)))
        assert "was handed over to member" in str(old.join())
    assert (sorted(warm), sorted(map(int, handled.began))) == ([0, 1], list(range(60)))
    for key in range(KEYS):
        of_key = [int(value) for value in handled.began if int(value) % KEYS == key]
        assert of_key == sorted(of_key)


class AsyncMember:
    """An asyncio application."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        config = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        policy = {"group.instance.id": "a", "group.instance.id.conflict.policy": "hand-over"}
        self.consumer = AIOConsumer(config | policy)
        self._topic = topic
        self.records: list[tuple[int | None, int | None]] = []
        self.warm: list[int] = []

    async def work(self) -> str:
        """Poll until an error; return its text."""
        await self.consumer.subscribe([self._topic], on_warm=self._warm)
        while True:
            message = await self.consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                return error.str()
            if message is not None:
                self.records.append((message.partition(), message.offset()))

    async def _warm(self, _: object, partitions: list[Partition]) -> None:
        await asyncio.sleep(0)
        self.warm += [one.partition for one in partitions]


async def _hand_over(servers: str, group: str, topic: str) -> tuple[AsyncMember, AsyncMember, str]:
    old, new = AsyncMember(servers, group, topic), AsyncMember(servers, group, topic)
    first = asyncio.create_task(old.work())
    await async_wait_until(lambda: len(old.records) == 20, "20 records")
    second = asyncio.create_task(new.work())
    end = await first
    await async_wait_until(lambda: len(new.consumer.membership().owned) == 2, "the partitions")
    await asyncio.to_thread(produce, servers, topic, 20)
    await async_wait_until(lambda: len(old.records) + len(new.records) >= 40, "40 records")
    second.cancel()
    await old.consumer.close()
    await new.consumer.close()
    return old, new, end


def test_asyncio_consumer_hands_over_to_a_new_process(kafka: Broker) -> None:
    """on_warm may be a coroutine function; no record is lost or repeated."""
    servers, group = kafka.bootstrap_servers, unique("group")
    topic = create_topic(servers, unique("topic"), 2)
    produce(servers, topic, 20)
    old, new, end = run(_hand_over(servers, group, topic))
    records = [*old.records, *new.records]
    assert (len(records), len(set(records)), sorted(new.warm)) == (40, 40, [0, 1])
    assert "was handed over to member" in end


def test_waiting_member_is_connected_to_every_leader(broker_pool: RunBrokers) -> None:
    """Librdkafka alone would connect to a leader only after the assignment; a waiting member fetches nothing."""
    with broker_pool.own(NEWEST, nodes=NODES) as broker, ExitStack() as stack:
        servers, group = broker.bootstrap_servers, unique("group")
        topic = create_topic(servers, unique("topic"), 2 * NODES)
        old = stack.enter_context(Worker(servers, group, [topic], group_instance_id_pool="a"))
        old.settled(2 * NODES)
        requests: dict[int, Counter[str]] = defaultdict(Counter)

        def note(text: str) -> None:
            for one in json.loads(text)["brokers"].values():
                requests[one["nodeid"]].update({name: count for name, count in one["req"].items() if count})

        config = {
            "bootstrap.servers": servers.split(",")[0],
            "group.id": group,
            "group.instance.id.pool": "a",
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
        new = Consumer(config)
        stack.callback(new.close)
        new.subscribe([topic])
        poll_until(
            lambda: all(requests[node]["ListOffsets"] for node in broker.node_ids),
            "a request to each node",
            new,
            seen=lambda: requests,
        )
        assert [requests[node]["Fetch"] for node in broker.node_ids] == [0] * NODES
        assert (new.membership().waits_for, new.assignment()) == ("group.instance.id.pool", [])
