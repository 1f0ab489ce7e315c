"""A process that waits for an instance id takes it over when another process releases it (KIP-345 on KIP-848)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import ExitStack

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.integration.polls import poll_until
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import CONSUMER_GROUP_DESCRIBE, HEARTBEAT, Proxy
from tests.support.versions import NEWEST

NODES = 3


def test_waiting_member_describes_its_group_and_joins_when_the_id_is_released(broker: Broker) -> None:
    """Brokers log refused joins, so the first one is the only one; no record is lost or handed out twice."""
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


def test_waiting_member_is_connected_to_every_leader(broker_pool: RunBrokers) -> None:
    """Librdkafka alone would connect to a leader only after the assignment; nothing is fetched before."""
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
