"""The coordinator stops, comes back and moves, on a real broker: no rebalance, nothing lost."""

from __future__ import annotations

from collections import Counter

import pytest

from consumer_membership.devbroker import Broker, start
from tests.integration.worker import Worker
from tests.support.kafka import create_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]


def test_broker_restart_causes_no_rebalance_and_loses_nothing(own_broker: Broker) -> None:
    """S01, S08: the broker is stopped and started; members keep their partitions and read on."""
    bootstrap = own_broker.bootstrap_servers
    topic = create_topic(bootstrap, unique("topic"), 6)
    group = unique("group")
    with Worker(bootstrap, group, [topic]) as one, Worker(bootstrap, group, [topic]) as two:
        one.settled(3)
        two.settled(3)
        produce(bootstrap, topic, 600)
        calls = [list(one.notes.calls), list(two.notes.calls)]
        own_broker.stop_node(1)
        own_broker.start_node(1)
        own_broker.wait_ready()
        produce(bootstrap, topic, 600)
        one.wait(lambda w: len(w.notes.records) + len(two.notes.records) >= 1200, "1200 records")
        assert [one.notes.calls, two.notes.calls] == calls
    seen = Counter((partition, offset) for w in (one, two) for _, partition, offset, _ in w.notes.records)
    assert (len(seen), max(seen.values())) == (1200, 1)


def test_coordinator_moves_to_another_node() -> None:
    """S01: three nodes; the coordinator's node is stopped, another one takes over, the group does not notice."""
    with start("4.3.1", nodes=3) as broker:
        bootstrap = broker.bootstrap_servers
        topic = create_topic(bootstrap, unique("topic"), 6, replication_factor=3)
        with Worker(bootstrap, unique("group"), [topic]) as worker:
            worker.settled(6)
            produce(bootstrap, topic, 300)
            worker.wait(lambda w: len(w.notes.records) >= 300, "300 records")
            coordinator = worker.consumer.membership().coordinator
            assert coordinator is not None
            calls = list(worker.notes.calls)
            broker.stop_node(coordinator.node_id)
            produce(bootstrap, topic, 300)
            worker.wait(lambda w: len(w.notes.records) >= 600, "600 records")
            worker.wait(lambda w: w.consumer.membership().coordinator not in (None, coordinator), "a new coordinator")
            beat = worker.consumer.membership().last_heartbeat_at or 0
            worker.wait(lambda w: (w.consumer.membership().last_heartbeat_at or 0) > beat, "a heartbeat answered")
            assert worker.notes.calls == calls
