"""The parts that all members share: they read orders, write the history, and collect the offsets to commit."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tests.chaos import history as h
from tests.chaos.plan import PASSWORD, POLL_INTERVAL_S, SESSION_S, USER, Identity, Loop, MemberPlan, Protocol, output_of

#: The intervals of commits, and of samples of `membership()` and `health()`.
COMMIT_S, SAMPLE_S = 0.5, 0.5
#: The ids of the pool: more than the members of a round, but with extra processes of faults perhaps too few.
POOL = [f"pool-{number}" for number in range(1, 6)]


#: The file names of keys and certificates in the folder of the round, for members with a certificate.
AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE = "authority.pem", "certificate.pem", "key.pem"


class Order(StrEnum):
    """An order to a member; on its line, a number of seconds follows after a space.

    Attributes:
        SLOW_CALLBACKS: From now on, each rebalance callback takes this many seconds; 0 ends this.
        RAISING_CALLBACKS: For this many seconds, callbacks raise.
        SLEEP: The application does not poll for this many seconds.
        HOLD_GIL: A native call holds the GIL for this many seconds.
    """

    SLOW_CALLBACKS = "slow-callbacks"
    RAISING_CALLBACKS = "raising-callbacks"
    SLEEP = "sleep"
    HOLD_GIL = "hold-gil"


class CallbackError(Exception):
    """The error that a callback raises after the order `RAISING_CALLBACKS`."""


class Account:
    """A member's plan, orders, history and offsets; a context manager."""

    def __init__(self, plan: MemberPlan, process: str, group: str, topic: str, servers: str, folder: Path) -> None:
        self.plan, self.topic, self.folder = plan, topic, folder
        self.group, self._servers = plan.group_of(group), servers
        self.output = output_of(topic)
        self.writer = h.HistoryWriter(folder, process)
        self.process = process
        #: The next offset of each partition that is not committed yet.
        self.positions: dict[h.Partition, int] = {}
        self._committed_at = time.monotonic()
        #: A bool, not an `Event`: if a second signal interrupts the first one's handler, the lock of an `Event` blocks.
        self.is_closing = False
        self._slow_s = 0.0
        self._raises_until = 0.0
        self._sleep_s = 0.0
        self._on_close: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self.writer.write(
            h.Started(
                group=self.group,
                kind=f"{self.plan.loop} {self.plan.identity} {self.plan.protocol}",
                pid=os.getpid(),
                client="confluent-kafka" if self.plan.loop is Loop.RAW else "consumer-membership",
                instance_id=self.plan.instance_id,
                has_leases=self.plan.has_leases,
                is_transactional=self.plan.loop is Loop.TRANSACTIONS,
                is_manual=self.plan.loop is Loop.MANUAL,
                is_processor=self.plan.loop.has_handlers,
                commits_automatically=self.plan.commits_automatically or self.plan.loop.has_handlers,
                session_s=SESSION_S,
            )
        )
        signal.signal(signal.SIGTERM, lambda *_: self.close())
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.writer.write(h.Raised(error=repr(error), is_fatal=True))
        self.writer.close()

    # ---- the configuration ----

    def config(self) -> dict[str, object]:
        """Return the configuration of the member."""
        plan = self.plan
        config: dict[str, object] = {
            "bootstrap.servers": self._servers,
            "group.id": self.group,
            "client.id": self.process,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": int(POLL_INTERVAL_S * 1000),
            "topic.metadata.refresh.interval.ms": 2000,
            **self._security(),
        }
        if not plan.loop.has_handlers:
            config["enable.auto.commit"] = plan.commits_automatically
        if plan.instance_id is not None:
            config["group.instance.id"] = plan.instance_id
        if plan.protocol is not Protocol.CONSUMER:
            config["session.timeout.ms"] = int(SESSION_S * 1000)
            config["heartbeat.interval.ms"] = 500
            config["partition.assignment.strategy"] = plan.strategy
        if plan.loop is Loop.RAW:
            return config
        if plan.identity is Identity.POOL and plan.loop is not Loop.MANUAL:
            config["group.instance.id.pool"] = POOL
        if plan.hands_over:
            config["group.instance.id.conflict.policy"] = "hand-over"
        config["group.protocol"] = str(plan.protocol)
        config["ownership.lease.enable"] = plan.has_leases
        return config

    def _security(self) -> dict[str, object]:
        if self.plan.has_certificate:
            return {
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.folder.resolve() / AUTHORITY_FILE),
                "ssl.certificate.location": str(self.folder.resolve() / CERTIFICATE_FILE),
                "ssl.key.location": str(self.folder.resolve() / KEY_FILE),
            }
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    # ---- orders ----

    def close(self) -> None:
        """Make the member close."""
        self.is_closing = True
        for call in self._on_close:
            call()

    def on_close(self, call: Callable[[], None]) -> None:
        """Register a function to call when the member has to close."""
        self._on_close.append(call)

    def _listen(self) -> None:
        for line in sys.stdin:
            name, _, seconds = line.strip().partition(" ")
            match Order(name):
                case Order.SLOW_CALLBACKS:
                    self._slow_s = float(seconds)
                case Order.RAISING_CALLBACKS:
                    self._raises_until = time.monotonic() + float(seconds)
                case Order.SLEEP:
                    self._sleep_s = float(seconds)
                case Order.HOLD_GIL:
                    # PyDLL does not release the GIL.
                    ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
        self.close()

    def take_sleep_s(self) -> float:
        """Return how long the application has to sleep now, and reset it."""
        sleep_s, self._sleep_s = self._sleep_s, 0.0
        return sleep_s

    def slow_s(self) -> float:
        """Return how long a callback has to sleep. Raises CallbackError if the callback has to raise."""
        if time.monotonic() < self._raises_until:
            raise CallbackError("ordered by the harness")
        return self._slow_s

    # ---- the history ----

    def received(self, message: Message, begun_ns: int, lease_until_ns: int | None) -> h.Partition:
        """Write that a record was received, and remember its offset for the next commit."""
        partition, offset = partition_of(message), offset_of(message)
        key = message.key()
        self.writer.write(
            h.Received(
                partition=partition,
                offset=offset,
                number=int(message.value() or b"-1"),
                begun_ns=begun_ns,
                lease_until_ns=lease_until_ns,
                key=key.decode() if isinstance(key, bytes) else key,
            )
        )
        self.positions[partition] = offset + 1
        return partition

    def finished(self, message: Message) -> None:
        """Write that the handler of a record has returned."""
        self.writer.write(h.Finished(partition=partition_of(message), offset=offset_of(message)))

    def warmed(self, partitions: Iterable[TopicPartition]) -> None:
        """Write that the member prepares for partitions that another process hands over to it."""
        self.writer.write(h.Warmed(partitions=named(partitions)))

    def error(self, error: KafkaError) -> bool:
        """Write an error that `poll` returned; return whether it ends the member."""
        self.writer.write(h.Raised(error=f"{error.name()}: {error.str()}", is_fatal=error.fatal()))
        return error.fatal()

    def is_commit_due(self) -> bool:
        """Return whether the member has to commit now."""
        if self.plan.commits_automatically or not self.positions:
            return False
        if time.monotonic() < self._committed_at + COMMIT_S:
            return False
        self._committed_at = time.monotonic()
        return True

    def begin_commit(self, partitions: Iterable[h.Partition] | None = None) -> tuple[int, list[TopicPartition]]:
        """Write that the commit of these partitions, or of all, begins; return its number and the offsets."""
        chosen = list(self.positions) if partitions is None else [p for p in partitions if p in self.positions]
        offsets = [h.Offset(p.topic, p.number, self.positions.pop(p)) for p in chosen]
        number = self.writer.begin_commit(offsets)
        return number, [TopicPartition(o.topic, o.number, o.offset) for o in offsets]

    def end_commit(self, number: int, result: Iterable[TopicPartition] | KafkaException) -> None:
        """Write the response to a commit."""
        write_commit_end(self.writer, number, result)

    def drop(self, partitions: Iterable[h.Partition]) -> None:
        """Forget the offsets of partitions that the member no longer owns."""
        for partition in partitions:
            self.positions.pop(partition, None)


def write_commit_end(writer: h.HistoryWriter, number: int, result: Iterable[TopicPartition] | KafkaException) -> None:
    """Write the response to a commit."""
    if isinstance(result, KafkaException):
        errors = [result.args[0]]
    else:
        errors = [partition.error for partition in result if partition.error is not None]
    # The client sets codes below zero itself: the broker may have received the request.
    is_unknown = any(error.code() < 0 or error.code() == KafkaError.REQUEST_TIMED_OUT for error in errors)
    writer.write(h.CommitEnded(commit=number, error=errors[0].name() if errors else None, is_unknown=is_unknown))


def partition_of(message: Message) -> h.Partition:
    """Return the partition of a record."""
    topic, number = message.topic(), message.partition()
    assert topic is not None
    assert number is not None
    return h.Partition(topic, number)


def offset_of(message: Message) -> int:
    """Return the offset of a record."""
    offset = message.offset()
    assert offset is not None
    return offset


def named(partitions: Iterable[TopicPartition]) -> tuple[h.Partition, ...]:
    """Return the partitions with the type of the history."""
    return tuple(h.Partition(one.topic, one.partition) for one in partitions)
