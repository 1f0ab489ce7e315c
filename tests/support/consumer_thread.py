"""An application for the tests: a thread that subscribes, polls, notes everything, and closes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.clients.consumer import Membership
from consumer_membership.membership.states import MemberState
from tests.support.recordings import assert_consumer_replays
from tests.support.waiting import PATIENCE_S, wait_until


@dataclass(slots=True)
class Notes:
    """What one application saw; read it under the worker's condition or after its end."""

    records: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    calls: list[tuple[str, tuple[tuple[str, int], ...]]] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)

    def named(self, call: str) -> list[tuple[tuple[str, int], ...]]:
        """The partitions of each call of this callback."""
        return [partitions for name, partitions in self.calls if name == call]


class Worker:
    """One consumer in one thread. `on_call` runs inside each rebalance callback and may raise."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Iterable[str],
        on_call: Callable[[str, Consumer, list[Partition]], None] | None = None,
        handle: Callable[[Consumer, Message], None] | None = None,
        **config: object,
    ) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            # What the members do, and not what programs for eager groups are told (`test_eager_callbacks`).
            "rebalance.callbacks": "incremental",
        }
        settings |= {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in config.items()}
        self.notes = Notes()
        self.changed = threading.Condition()
        self.consumer = Consumer(settings)
        self._topics = list(topics)
        self._on_call = on_call
        self._handle = handle
        self._stopping = threading.Event()
        self._polls = threading.Event()
        self._polls.set()
        self._is_frozen = threading.Event()
        #: Whether what it recorded was run again, which must lead to the same.
        self._is_replayed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._membership: Membership = "default"
        self._orders: list[Callable[[Consumer], object]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, membership: Membership = "default") -> None:
        """Close the consumer and wait for the thread's end; a second time only wait."""
        if not self._stopping.is_set():
            self._membership = membership
        self._polls.set()
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the consumer did not close in time"
        if not self._is_replayed:
            self._is_replayed = True
            assert_consumer_replays(self.consumer)

    def order(self, action: Callable[[Consumer], object]) -> None:
        """Have this done on the application's thread, between two polls."""
        self._orders.append(action)

    def freeze(self) -> None:
        """Stop polling; at the return the last poll is over."""
        self._is_frozen.clear()
        self._polls.clear()
        assert self._is_frozen.wait(PATIENCE_S), "the application did not come back from its poll"

    def thaw(self) -> None:
        """Poll again."""
        self._polls.set()

    def wait(self, condition: Callable[[Worker], bool], what: str) -> None:
        """Wait until this holds; `what` goes into the failure."""
        wait_until(
            lambda: condition(self),
            what,
            changed=self.changed,
            seen=lambda: (len(self.notes.records), self.consumer.membership(), self.notes.calls[-5:]),
        )

    def settled(self, count: int) -> None:
        """Wait until it is STABLE and owns this many partitions."""
        self.wait(lambda w: w.state is MemberState.STABLE and len(w.owned) == count, f"STABLE with {count} partitions")

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self.consumer.membership().state

    @property
    def owned(self) -> frozenset[tuple[str, int]]:
        """The owned partitions."""
        return frozenset(self.consumer.membership().owned)

    def _note(self, call: str) -> Callable[[Consumer, list[Partition]], None]:
        def callback(consumer: Consumer, partitions: list[Partition]) -> None:
            with self.changed:
                self.notes.calls.append((call, tuple(sorted((p.topic, p.partition) for p in partitions))))
                self.changed.notify_all()
            if self._on_call is not None:
                self._on_call(call, consumer, partitions)

        return callback

    def _run(self) -> None:
        self.consumer.subscribe(
            self._topics, on_assign=self._note("assign"), on_revoke=self._note("revoke"), on_lost=self._note("lost")
        )
        while not self._stopping.is_set():
            if not self._polls.is_set():
                self._is_frozen.set()
                self._polls.wait(PATIENCE_S)
            while self._orders:
                self._orders.pop(0)(self.consumer)
            self._poll()
        try:
            self.consumer.close(membership=self._membership)
        except Exception as error:  # noqa: BLE001 - whatever an application sees is what the test looks at
            self.notes.raised.append(error)

    def _poll(self) -> None:
        try:
            message = self.consumer.poll(0.05)
        except Exception as error:  # noqa: BLE001 - whatever an application sees is what the test looks at
            with self.changed:
                self.notes.raised.append(error)
                self.changed.notify_all()
            return
        with self.changed:
            if message is not None and (problem := message.error()) is not None:
                self.notes.errors.append(problem)
            elif message is not None:
                place = str(message.topic()), message.partition() or 0, message.offset() or 0
                self.notes.records.append((*place, message.value() or b""))
            self.changed.notify_all()
        if message is not None and message.error() is None and self._handle is not None:
            self._handle(self.consumer, message)
