"""A test application: a thread that subscribes a consumer, polls it, collects its events, and closes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.clients.consumer import Membership
from consumer_membership.membership.states import MemberState
from tests.support.recordings import assert_consumer_replays
from tests.support.waiting import PATIENCE_S, wait_until

ConsumerT = TypeVar("ConsumerT", bound="confluent_kafka.Consumer | Consumer")


@dataclass(slots=True)
class Notes:
    """The events of one application. Read them while you hold the condition `changed`, or after the thread's end."""

    records: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    calls: list[tuple[str, tuple[tuple[str, int], ...]]] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)
    raised: list[Exception] = field(default_factory=list)

    def named(self, call: str) -> list[tuple[tuple[str, int], ...]]:
        """Return the partitions of each call of this callback."""
        return [partitions for name, partitions in self.calls if name == call]

    @property
    def assigned(self) -> frozenset[tuple[str, int]]:
        """The partitions that callbacks have assigned and not revoked."""
        assigned: set[tuple[str, int]] = set()
        for call, partitions in self.calls:
            if call != "warm":
                assigned = assigned | set(partitions) if call == "assign" else assigned - set(partitions)
        return frozenset(assigned)


class ConsumerThread(Generic[ConsumerT]):
    """A thread that polls a consumer of this package or of confluent-kafka; a context manager that closes the consumer.

    `on_call` runs inside each rebalance callback and may raise; `handle` receives each record. Exceptions of callbacks,
    `poll` and `close` are collected. At the end of the context the first of them is raised again, unless `take_raised`
    has returned it.
    """

    def __init__(
        self,
        consumer: ConsumerT,
        topics: Iterable[str],
        on_call: Callable[[str, ConsumerT, list[Partition]], None] | None = None,
        handle: Callable[[ConsumerT, Message], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.notes = Notes()
        #: The rebalance callbacks that the application passes to `subscribe`.
        self._calls = ["assign", "revoke", "lost"]
        self.changed = threading.Condition()
        self._topics = list(topics)
        self._on_call = on_call
        self._handle = handle
        self._stopping = threading.Event()
        self._polls = threading.Event()
        self._polls.set()
        self._is_frozen = threading.Event()
        self._orders: list[Callable[[ConsumerT], object]] = []
        self._close: Callable[[ConsumerT], object] = lambda consumer: consumer.close()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and (raised := self.take_raised()):
            raise raised[0]

    def stop(self) -> None:
        """Close the consumer and wait for the end of the thread; a second call only waits."""
        self._polls.set()
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the consumer did not close in time"

    def take_raised(self) -> list[Exception]:
        """Return the exceptions that were raised so far; the end of the context does not raise them again."""
        with self.changed:
            raised, self.notes.raised = self.notes.raised, []
        return raised

    def order(self, action: Callable[[ConsumerT], object]) -> None:
        """Make the application's thread run this function between two polls."""
        self._orders.append(action)

    def do(self, action: Callable[[ConsumerT], object]) -> None:
        """Run this function on the application's thread between two polls, and return when it is done."""
        is_done = threading.Event()
        self.order(action)
        self.order(lambda _: is_done.set())
        assert is_done.wait(PATIENCE_S), "the application's poll did not return"

    def freeze(self) -> None:
        """Make the thread stop polling; return when the last poll is over."""
        self._is_frozen.clear()
        self._polls.clear()
        assert self._is_frozen.wait(PATIENCE_S), "the application's poll did not return"

    def thaw(self) -> None:
        """Continue polling."""
        self._polls.set()

    def wait(self, condition: Callable[[Self], object], what: str) -> None:
        """Wait until the condition holds; a failure names `what`."""
        wait_until(lambda: condition(self), what, changed=self.changed, seen=self._seen)

    def has(self, count: int) -> Self:
        """Wait until callbacks have assigned this number of partitions."""
        self.wait(lambda thread: len(thread.notes.assigned) == count, f"{count} partitions")
        return self

    def _seen(self) -> object:
        return len(self.notes.records), self.notes.calls[-5:], self.notes.errors[-5:], self.notes.raised

    def _note(self, call: str) -> Callable[[Any, list[Partition]], None]:
        def callback(_: object, partitions: list[Partition]) -> None:
            with self.changed:
                self.notes.calls.append((call, tuple(sorted((p.topic, p.partition) for p in partitions))))
                self.changed.notify_all()
            if self._on_call is not None:
                self._on_call(call, self.consumer, partitions)

        return callback

    def _run(self) -> None:
        consumer: Any = self.consumer
        calls = {f"on_{call}": self._note(call) for call in self._calls}
        consumer.subscribe(self._topics, **calls)
        while not self._stopping.is_set():
            if not self._polls.is_set():
                self._is_frozen.set()
                self._polls.wait(PATIENCE_S)
            while self._orders:
                self._orders.pop(0)(self.consumer)
            self._poll()
        try:
            self._close(self.consumer)
        except Exception as error:  # noqa: BLE001 - the test checks the errors of an application
            self.notes.raised.append(error)

    def _poll(self) -> None:
        try:
            message = self.consumer.poll(0.05)
        except Exception as error:  # noqa: BLE001 - the test checks the errors of an application
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


class Worker(ConsumerThread[Consumer]):
    """A member of this package, whose recording must replay."""

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
            # The default would call callbacks as in eager groups, which `test_eager_callbacks` tests.
            "rebalance.callbacks": "incremental",
        }
        settings |= {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in config.items()}
        super().__init__(Consumer(settings), topics, on_call, handle)
        if settings.get("group.instance.id.conflict.policy") == "hand-over":
            self._calls.append("warm")
        #: Whether the recording of the member was already replayed.
        self._is_replayed = False

    def stop(self, membership: Membership = "default") -> None:
        """Close the consumer and wait for the end of the thread; a second call only waits."""
        if not self._stopping.is_set():
            self._close = lambda consumer: consumer.close(membership=membership)
        super().stop()
        if not self._is_replayed:
            self._is_replayed = True
            assert_consumer_replays(self.consumer)

    def settled(self, count: int) -> None:
        """Wait until the member is STABLE and owns this number of partitions."""
        self.wait(lambda w: w.state is MemberState.STABLE and len(w.owned) == count, f"STABLE with {count} partitions")

    @property
    def state(self) -> MemberState:
        """The current state of the member."""
        return self.consumer.membership().state

    @property
    def owned(self) -> frozenset[tuple[str, int]]:
        """The partitions that the member owns."""
        return frozenset(self.consumer.membership().owned)

    def _seen(self) -> object:
        return super()._seen(), self.consumer.membership()
