"""A cluster, and on it the group of a round: its members in processes, its producer, and what it has received."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from consumer_membership import MembershipError
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Backend, Broker, start
from consumer_membership.types import OffsetAndMetadata
from tests.chaos import history as h
from tests.chaos.links import Links, Mode
from tests.chaos.members.account import Order
from tests.chaos.plan import PARTITIONS, RECORDS_PER_S, MemberPlan
from tests.support.kafka import create_topic, delete_topic, unique
from tests.support.kinds import BIDIRECTIONAL

ROOT = Path(__file__).resolve().parent.parent.parent
NODES = 3
HARNESS = "harness"
#: Keys per partition, for the order within keys.
_KEYS = 8
_OBSERVE_S, _TICK_S = 1.0, 0.05
#: How long a member may take to close: longer than a commit to a broker that is away.
CLOSE_S = 60.0
_RESTART_S = 0.3


@contextmanager
def cluster(version: str | None = None) -> Iterator[Broker]:
    """Three nodes whose sessions are short."""
    properties = BIDIRECTIONAL | {"min.insync.replicas": "2"}
    with start(version, NODES, properties, backend=Backend.JVM) as broker:
        yield broker


class Progress:
    """What the members of a round have written so far; it reads each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.received: set[tuple[h.Partition, int]] = set()
        self.acknowledged: set[tuple[h.Partition, int]] = set()
        self.states: dict[str, h.Statement] = {}
        self.raised: dict[str, str] = {}

    def read(self) -> Self:
        """Read the new lines."""
        for path in self._folder.glob(f"*{h.SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    self._take(path.stem, line)
        return self

    def _take(self, process: str, line: bytes) -> None:
        entry = h.Entry.from_line(line)
        match entry.event:
            case h.Received(partition=partition, number=number):
                self.received.add((partition, number))
            case h.Produced(partition=partition, number=number):
                self.acknowledged.add((partition, number))
            case h.Recreated(topic=topic):
                self.acknowledged = {one for one in self.acknowledged if one[0].topic != topic}
            case h.Statement() as statement:
                self.states[process] = statement
            case h.Raised(error=error):
                self.raised[process] = error
            case _:
                pass

    @property
    def missing(self) -> int:
        """How many acknowledged records no member has received."""
        return len(self.acknowledged - self.received)


class RecordWriter:
    """The producer of a round: numbered records to each partition, at a steady rate, until it is stopped."""

    def __init__(self, servers: str, topic: str, history: h.HistoryWriter) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 300_000,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self.topic, self._history = topic, history
        self._numbers = [0] * PARTITIONS
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.failures: list[str] = []

    def begin(self) -> None:
        """Begin to produce."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until all records are acknowledged."""
        if not self._thread.is_alive():
            # A round without records would pass.
            self.failures.append("the producer failed, and ended before the round did")
        self._is_over.set()
        self._thread.join()
        left = self._producer.flush(120.0)
        if left:
            self.failures.append(f"{left} records were not acknowledged")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Produce nothing within the context, at whose begin all records are acknowledged."""
        with self._lock:
            self._producer.flush(60.0)
            yield

    def add_partitions(self, count: int) -> None:
        """Produce also to new partitions."""
        with self._lock:
            self._numbers += [0] * (count - len(self._numbers))

    def _run(self) -> None:
        position = 0
        while not self._is_over.wait(1 / RECORDS_PER_S):
            with self._lock:
                number_of = position % len(self._numbers)
                position += 1
                self._produce(h.Partition(self.topic, number_of))
                self._producer.poll(0)

    def _produce(self, partition: h.Partition) -> None:
        number = self._numbers[partition.number]
        key = f"k{number % _KEYS}"

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{partition} {number}: {error.str()}")
                return
            # A repeated request of an idempotent producer is acknowledged without an offset.
            if (offset := message.offset()) is not None:
                self._history.write(h.Produced(partition=partition, offset=offset, number=number, key=key))

        try:
            self._producer.produce(partition.topic, str(number), key, partition=partition.number, on_delivery=delivered)
        except BufferError:
            return
        except KafkaException as error:
            # The producer does not know a new partition, or a re-created topic, until it reads the metadata again.
            if error.args[0].code() not in {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}:
                self.failures.append(f"{partition} {number}: {error}")
            return
        self._numbers[partition.number] += 1


@dataclass(slots=True)
class Member:
    """A member of the round: its processes one after the other, and its network."""

    plan: MemberPlan
    links: Links
    folder: Path
    group: str
    topic: str
    harness: h.HistoryWriter
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0
    #: Whether a fault keeps the process away; otherwise it is restarted when it has ended, as a supervisor does.
    is_kept_away: bool = False
    ended_at: float | None = None
    exit_codes: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the present process in the history."""
        return f"{self.plan.name}.{self.lives}"

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def begin(self) -> None:
        """Start a process."""
        self.lives += 1
        self.ended_at = None
        log = (self.folder / f"{self.name}.log").open("wb")
        arguments = [self.plan.to_json(), self.name, self.group, self.topic, self.links.servers, str(self.folder)]
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.members", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    def order(self, order: Order, seconds: float) -> None:
        """Send an order; a process that has ended receives none."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(f"{order} {seconds}\n".encode())
                self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        if self.is_running and self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        if self.is_running and self.process is not None:
            self.harness.write(h.Killed(member=self.name))
            self.process.kill()
            self.process.wait()

    def close(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Close the member with a signal; kill it if it does not end."""
        self.send(number)
        if self.process is not None:
            try:
                self.process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                self.harness.write(h.Raised(error=f"{self.name} did not close within {CLOSE_S:.0f} s"))
                self.send(signal.SIGABRT)
                self.kill()

    def supervise(self, now: float) -> None:
        """Restart the process if it has ended."""
        if self.is_running or self.is_kept_away or self.process is None:
            return
        if self.ended_at is None:
            self.ended_at = now
            self.exit_codes.append(self.process.returncode)
        if now >= self.ended_at + _RESTART_S:
            self.begin()


class World:
    """The group of one round on a cluster; a context manager that ends all processes of the round."""

    def __init__(self, broker: Broker, plans: tuple[MemberPlan, ...], folder: Path) -> None:
        self.broker, self.folder = broker, folder
        servers = broker.bootstrap_servers
        self.topic = create_topic(servers, unique("chaos"), PARTITIONS, replication_factor=NODES)
        self.group = unique("chaos")
        self.history = h.HistoryWriter(folder, HARNESS)
        self.progress = Progress(folder)
        self.producer = RecordWriter(servers, self.topic, self.history)
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.groups = GroupAdmin({"bootstrap.servers": servers}, timeout_s=10.0)
        #: Controls nodes: `Broker` is for one thread at a time.
        self.nodes_lock = threading.Lock()
        self._stack = ExitStack()
        self.members: dict[str, Member] = {}
        for plan in plans:
            self.add_member(plan)
        self._is_over = threading.Event()
        self._watchers = [
            threading.Thread(target=self._observe, name="observer", daemon=True),
            threading.Thread(target=self._supervise, name="supervisor", daemon=True),
        ]

    def __enter__(self) -> Self:
        for member in self.members.values():
            member.begin()
        self.producer.begin()
        for thread in self._watchers:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._watchers:
            thread.join()
        for member in self.members.values():
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        for member in self.members.values():
            member.close()
        self._stack.close()
        self.history.close()

    def add_member(self, plan: MemberPlan) -> Member:
        """Add a member, whose process is not started yet."""
        links = self._stack.enter_context(Links(self.broker.bootstrap_servers.split(",")))
        member = Member(
            plan=plan, links=links, folder=self.folder, group=self.group, topic=self.topic, harness=self.history
        )
        self.members[plan.name] = member
        return member

    @contextmanager
    def another_member(self, like: str, **changes: object) -> Iterator[Member]:
        """Add a member like another one within the context; it leaves at the end."""
        plan = replace(self.members[like].plan, name=f"{like}x", **changes)  # type: ignore[arg-type]
        member = self.add_member(plan)
        member.is_kept_away = True
        member.begin()
        yield member
        member.close()

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds; return whether it does."""
        give_up_at = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(_TICK_S)
        return True

    def coordinator(self) -> str | None:
        """Return the address of the group's coordinator."""
        with suppress(MembershipError, KafkaException):
            found = self.groups.describe(self.group, with_offsets=False).coordinator
            return f"{found.host}:{found.port}"
        return None

    def coordinator_node(self) -> int | None:
        """Return the node id of the group's coordinator."""
        address = self.coordinator()
        addresses = self.broker.bootstrap_servers.split(",")
        return self.broker.node_ids[addresses.index(address)] if address in addresses else None

    def recreate_topic(self) -> None:
        """Delete the topic, and create it again."""
        with self.producer.paused():
            self.history.write(h.Recreated(topic=self.topic))
            delete_topic(self.broker.bootstrap_servers, self.topic)
            create_topic(self.broker.bootstrap_servers, self.topic, PARTITIONS, replication_factor=NODES)

    def heal(self) -> None:
        """End what may be left of faults: all nodes and members run, and the network passes everything."""
        with self.nodes_lock:
            for node_id in self.broker.node_ids:
                if (pid := self.broker.node_pid(node_id)) is not None:
                    os.kill(pid, signal.SIGCONT)
                self.broker.start_node(node_id)
            self.broker.wait_ready(120.0)
        for member in list(self.members.values()):
            member.links.change(Mode.PASS)
            member.send(signal.SIGCONT)

    def _observe(self) -> None:
        while not self._is_over.wait(_OBSERVE_S):
            with suppress(MembershipError, KafkaException):
                committed = self.groups.committed(self.group)
                offsets = tuple(
                    h.Offset(partition.topic, partition.partition, found.offset)
                    for partition, found in committed.items()
                    if isinstance(found, OffsetAndMetadata)
                )
                self.history.write(h.OffsetsObserved(group=self.group, offsets=offsets))

    def _supervise(self) -> None:
        while not self._is_over.wait(_TICK_S):
            for member in list(self.members.values()):
                member.supervise(time.monotonic())
