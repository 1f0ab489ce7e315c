"""Members of one group that one thread polls in turn, of this package or confluent-kafka's, and scenes for them."""

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

#: Who was called, what, with which partitions.
Calls = dict[str, list[tuple[str, tuple[int, ...]]]]
AnyConsumer = Consumer | RawConsumer


class Stage:
    """Members of one group that one thread polls in turn, and the events of each."""

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

    def enter(self, name: str, **config: object) -> None:
        """A new member; assignors sort by the member ids that the broker makes of client ids."""
        consumer = self._kind({**self._settings, "client.id": name, **config})
        calls = self.calls.setdefault(name, [])

        def told(call: str, _: object, partitions: list[Partition]) -> None:
            calls.append((call, tuple(sorted(p.partition for p in partitions))))

        consumer.subscribe(
            [self._topic], **{f"on_{call}": partial(told, call) for call in ("assign", "revoke", "lost")}
        )
        self.members[name] = consumer

    def leave(self, name: str) -> None:
        """Close it."""
        self.members.pop(name).close()

    def until(self, **owned: int) -> None:
        """Poll until each member has so many partitions, and half a second longer: for what comes behind."""
        calm_at = None

        def is_calm() -> bool:
            nonlocal calm_at
            for member in self.members.values():
                member.poll(0.02)
            is_so = {name: len(member.assignment()) for name, member in self.members.items()} == owned
            calm_at = (calm_at or monotonic() + 0.5) if is_so else None
            return calm_at is not None and monotonic() > calm_at

        wait_until(is_calm, f"half a second with {owned}", seen=lambda: self.calls)

    def close(self) -> None:
        """Close the members that are there."""
        for name in list(self.members):
            self.leave(name)


def scale_out_and_in(stage: Stage) -> None:
    """One member, two, one again, none."""
    stage.enter("a")
    stage.until(a=6)
    stage.enter("b")
    stage.until(a=3, b=3)
    stage.leave("b")
    stage.until(a=6)
    stage.leave("a")


def change_of_subscription(stage: Stage) -> None:
    """Unsubscribed, and subscribed again."""
    stage.enter("a")
    stage.until(a=6)
    stage.members["a"].unsubscribe()
    stage.until(a=0)
    stage.leave("a")
