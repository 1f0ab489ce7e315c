"""Members of one group that one thread polls in turn, of this package or confluent-kafka, and sequences of changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic
from types import MappingProxyType

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import unique
from tests.support.waiting import wait_until

#: The callbacks of each member, by its name, with their partitions.
Calls = dict[str, list[tuple[str, tuple[int, ...]]]]
AnyConsumer = Consumer | RawConsumer


class PolledGroup:
    """Members of one group that one thread polls in turn, and the callbacks of each."""

    def __init__(
        self, kind: type[AnyConsumer], broker: Broker, topic: str, settings: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        self._kind = kind
        self._topic = topic
        self._settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("group"),
            "heartbeat.interval.ms": 200,
            "auto.offset.reset": "earliest",
            **settings,
        }
        self.members: dict[str, AnyConsumer] = {}
        self.calls: Calls = {}

    def join(self, name: str, **config: object) -> None:
        """Add a member. Assignors sort by member ids, and the broker derives these from client ids."""
        consumer = self._kind({**self._settings, "client.id": name, **config})
        calls = self.calls.setdefault(name, [])

        def record(call: str, _: object, partitions: list[Partition]) -> None:
            calls.append((call, tuple(sorted(p.partition for p in partitions))))

        consumer.subscribe(
            [self._topic], **{f"on_{call}": partial(record, call) for call in ("assign", "revoke", "lost")}
        )
        self.members[name] = consumer

    def leave(self, name: str) -> None:
        """Close the member with this name."""
        self.members.pop(name).close()

    def until(self, **owned: int) -> None:
        """Poll until each member has this number of partitions for half a second, so that late callbacks are seen."""
        stable_at = None

        def is_stable() -> bool:
            nonlocal stable_at
            for member in self.members.values():
                member.poll(0.02)
            is_owned = {name: len(member.assignment()) for name, member in self.members.items()} == owned
            stable_at = (stable_at or monotonic() + 0.5) if is_owned else None
            return stable_at is not None and monotonic() > stable_at

        wait_until(is_stable, f"half a second with {owned}", seen=lambda: self.calls)

    def close(self) -> None:
        """Close all members."""
        for name in list(self.members):
            self.leave(name)


def scale_out_and_in(group: PolledGroup) -> None:
    """Change the number of members: one, two, one, none."""
    group.join("a")
    group.until(a=6)
    group.join("b")
    group.until(a=3, b=3)
    group.leave("b")
    group.until(a=6)
    group.leave("a")


def change_of_subscription(group: PolledGroup) -> None:
    """Unsubscribe one member, and close it."""
    group.join("a")
    group.until(a=6)
    group.members["a"].unsubscribe()
    group.until(a=0)
    group.leave("a")
