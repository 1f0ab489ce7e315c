"""An autoscaler drives a group with the metrics that its members serve: one member, eight, and two again.

The members have the settings of `examples/keda`, and the numbers of replicas come from its two ScaledObjects by the
formulas of KEDA and Kubernetes (`tests.support.autoscaler`). One round is one sync period of the autoscaler, in virtual
time: records arrive, the lag is read from /metrics and from the committed offsets, pods start or stop, and each pod
handles as many records as it can in that time. Each step waits for its event, so no round depends on the machine.
"""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from consumer_membership import Consumer, TopicPartition
from consumer_membership.config.environment import PREFIX
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from consumer_membership.runtime.application import health_monitor
from tests.support.autoscaler import SYNC_S, Autoscaler, kafka_metric
from tests.support.kafka import create_topic, produce, unique
from tests.support.keda import SCALED_OBJECTS, environment, scaled_object
from tests.support.prometheus import prometheus
from tests.support.waiting import PATIENCE_S, SOONER_THAN_A_SESSION_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = 8
#: How many records one pod handles in a round: the threshold of the example's triggers.
CAPACITY = 100
_LAG = re.compile(
    r'^kafka_consumer_partition_lag\{group="(?P<group>[^"]*)",.*,partition="(?P<partition>\d+)"\} (?P<lag>.+)$',
    re.MULTILINE,
)


class Group:
    """The pods of the Deployment, and the records that they have to handle."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.servers, self.port = broker.bootstrap_servers, port
        self.group, self.topic = unique("orders"), create_topic(broker.bootstrap_servers, unique("orders"), PARTITIONS)
        self.pods: list[Consumer] = []
        self.produced: Counter[int] = Counter()
        self.handled: Counter[int] = Counter()
        self.offsets: set[tuple[int, int]] = set()

    def settings(self) -> dict[str, Any]:
        """The configuration of a pod: the example's variables, with this broker and group, and without a guardian."""
        prefixed = {name.removeprefix(PREFIX): value for name, value in environment().items() if PREFIX in name}
        return {name.lower().replace("_", "."): value for name, value in prefixed.items()} | {
            "bootstrap.servers": self.servers,
            "group.id": self.group,
            "health.http.address": f"{LOOPBACK}:{self.port}",
            "crash.guardian.enable": False,
            "enable.auto.commit": False,
        }

    # ---- pods ----

    def scale(self, replicas: int) -> None:
        """Start pods, or stop the newest ones as SIGTERM and `MEMBERSHIP_AT_STOP=leave` do; return when all own."""
        while len(self.pods) > replicas:
            self.pods.pop().close(membership="leave")
        while len(self.pods) < replicas:
            pod = Consumer(self.settings())
            pod.subscribe([self.topic])
            self.pods.append(pod)
        wait_until(self.is_balanced, f"{replicas} pods that own {PARTITIONS} partitions", SOONER_THAN_A_SESSION_S)

    def is_balanced(self) -> bool:
        """Whether each partition has one owner, and each pod its share; every pod polls meanwhile."""
        for pod in self.pods:
            pod.consume(0, 0.01)
        owned = [len(pod.assignment()) for pod in self.pods]
        least, most = PARTITIONS // len(self.pods), -(-PARTITIONS // len(self.pods))
        return sum(owned) == PARTITIONS and least <= min(owned) and max(owned) <= most

    def work(self) -> None:
        """Let each pod handle its capacity, or all records of its partitions, and commit."""
        left = dict.fromkeys(self.pods, CAPACITY)
        wait_until(lambda: self._handle(left), "handled records")
        for pod in self.pods:
            if left[pod] < CAPACITY:
                pod.commit(asynchronous=False)

    def _handle(self, left: dict[Consumer, int]) -> bool:
        for pod, most in left.items():
            for message in pod.consume(most, 0.02) if most else ():
                assert message.error() is None, message.error()
                place = (message.partition() or 0, message.offset() or 0)
                assert place not in self.offsets, f"record {place} came twice"
                self.offsets.add(place)
                self.handled[place[0]] += 1
                left[pod] -= 1
        return all(not most or not self._waiting(pod.assignment()) for pod, most in left.items())

    def _waiting(self, partitions: list[TopicPartition]) -> int:
        return sum(self.produced[one.partition] - self.handled[one.partition] for one in partitions)

    # ---- metrics ----

    @property
    def lag(self) -> int:
        """The number of records that are not handled."""
        return self.produced.total() - self.handled.total()

    def arrive(self, records: int) -> None:
        """Write records to all partitions."""
        self.produced.update(produce(self.servers, self.topic, records))

    def served_lag(self) -> float:
        """The result of the ScaledObject's query on the served metrics: `sum(max by (topic, partition) (...))`."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/metrics", timeout=PATIENCE_S) as page:
            found: dict[str, float] = {}
            for one in _LAG.finditer(page.read().decode()):
                if one["group"] == self.group:
                    found[one["partition"]] = max(found.get(one["partition"], 0.0), float(one["lag"]))
        return sum(found.values())

    def committed_lag(self) -> int:
        """The group's lag by its committed offsets, as KEDA's scaler for Kafka reads it."""
        partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        # Without a committed offset a partition begins at its first record (`offsetResetPolicy: earliest`).
        committed = self.pods[0].committed(partitions, PATIENCE_S)
        return sum(self.produced[one.partition] - max(one.offset, 0) for one in committed)


@pytest.fixture
def group(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """A group without pods. Members sample their partitions more often, so that a round need not wait for it."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.1)
    (port,) = draw_ports(1)
    group = Group(broker, port)
    with ExitStack() as stack:
        yield group
        for pod in group.pods:
            stack.callback(pod.close, membership="leave")


def autoscaler(trigger: str) -> Autoscaler:
    """The autoscaler of the ScaledObject with this trigger."""
    (spec,) = (scaled_object(path)["spec"] for path in SCALED_OBJECTS if trigger in path.stem)
    (metadata,) = (one["metadata"] for one in spec["triggers"])
    return Autoscaler(spec=spec, threshold=int(metadata.get("threshold", metadata.get("lagThreshold"))))


def test_autoscaled_group_grows_to_eight_and_shrinks_to_two_without_a_stall_or_thrashing(group: Group) -> None:
    """Replicas only rise during a burst and only fall after it, and each round each record is handled once.

    Both ScaledObjects want the same number of replicas in each round. Removed pods release their partitions at once,
    not when their session ends.
    """
    by_prometheus, by_kafka = autoscaler("prometheus"), autoscaler("kafka")
    history = [1]
    group.scale(1)
    arrivals = [50] * 2 + [800] * 4 + [160] * 16
    for number, records in enumerate(arrivals):
        group.arrive(records)
        wait_until(lambda: group.served_lag() == group.lag, f"the lag of round {number}")
        now, replicas = number * SYNC_S, history[-1]
        decided = by_prometheus.decide(now, replicas, group.lag)
        total = kafka_metric(group.committed_lag(), PARTITIONS, by_kafka.threshold)
        assert by_kafka.decide(now, replicas, total) == decided
        history.append(decided)
        if decided != replicas:
            group.scale(decided)
        group.work()
    grown = history.index(8)
    assert history[: grown + 1] == [1, 1, 1, 5, 8]
    assert history[grown:] == sorted(history[grown:], reverse=True), "replicas rose again after the burst"
    assert history[-1] == 2
    assert (group.lag, len(group.offsets)) == (0, sum(arrivals))
    with prometheus(f"{LOOPBACK}:{group.port}") as server:
        (query,) = (one["metadata"]["query"] for one in by_prometheus.spec["triggers"])
        query = query.replace('group="orders"', f'group="{group.group}"')
        group.arrive(40)
        wait_until(lambda: server.numbers(query) == ["40"], "the lag in Prometheus")
