"""The cluster, and the group of a round: its member processes, its producer, and its progress."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from consumer_membership import MembershipError
from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Backend, Broker, start
from consumer_membership.devbroker.listeners import MUTUAL, SASL
from consumer_membership.types import OffsetAndMetadata
from tests.chaos import history as h
from tests.chaos.java_member import java_command
from tests.chaos.links import Links, Mode
from tests.chaos.members.account import AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, Order
from tests.chaos.plan import PARTITIONS, PASSWORD, RECORDS_PER_S, USER, Loop, MemberPlan, output_of
from tests.support.acls import AUTHORIZER
from tests.support.kafka import create_topic, delete_topic, unique
from tests.support.kinds import BIDIRECTIONAL
from tests.support.secured import Materials, materials

ROOT = Path(__file__).resolve().parent.parent.parent
NODES = 3
HARNESS = "harness"
#: The interval in which the brokers abort transactions that are beyond their timeout, in milliseconds.
_ABORT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
#: The number of keys in each partition; processors keep the order of each key.
_KEYS = 8
_OBSERVE_S, _TICK_S = 1.0, 0.05
#: How long a member may need to close: longer than a commit to a broker that does not respond.
CLOSE_S = 60.0
#: How long nodes may need to start: on a busy machine, a JVM has needed more than 120 s.
READY_S = 300.0
#: How long the configuration of a node is tried while the node does not respond.
_CONFIGURE_S = 90.0
_NO_SUCH_TOPIC = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
_RESTART_S = 0.3
#: How long the deletion of a group may take: the sessions of killed members must expire before.
_DELETE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes, and the keys and certificates of the nodes and the members."""

    broker: Broker
    keys: Materials


@contextmanager
def cluster(version: str) -> Iterator[Cluster]:
    """Start three nodes of this Kafka version, with short sessions and with an authorizer for the members' rights."""
    properties = BIDIRECTIONAL | AUTHORIZER | {"min.insync.replicas": "2", _ABORT_INTERVAL: "1000"}
    # The nodes and the harness connect without authentication, and have all rights.
    properties |= {"super.users": "User:ANONYMOUS"}
    with tempfile.TemporaryDirectory(prefix="chaos-keys-") as folder:
        keys = materials(Path(folder), users={USER: PASSWORD})
        with start(version, NODES, properties, security=keys.security, backend=Backend.JVM) as broker:
            yield Cluster(broker=broker, keys=keys)


class Progress:
    """The progress of a round, read from its growing history.

    Each group must receive each record; members with `assign` have groups of their own. `received` has the records that
    these `groups` have received: faults begin after a number of them.
    """

    def __init__(self, folder: Path, groups: frozenset[str]) -> None:
        self._reader, self._counted = h.HistoryReader(folder), groups
        #: Faults, the observer and the round read in their own threads.
        self._lock = threading.Lock()
        self.received: set[tuple[h.Partition, int]] = set()
        #: The received records and the results of transactions, by group.
        self._received: dict[str, set[tuple[h.Partition, int]]] = {}
        self._results: dict[str, set[tuple[h.Partition, int]]] = {}
        self._groups: dict[str, str] = {}
        self.acknowledged: set[tuple[h.Partition, int]] = set()
        #: The latest statement of each member process, or of each task of a Spark job (`<driver>-<task>`).
        self.states: dict[str, h.Statement] = {}
        #: The latest attempt of each task of a Spark job.
        self.tasks: dict[str, Task] = {}
        #: The processes whose configuration raised an error, with the error.
        self.refused: dict[str, str] = {}
        #: The processes that have prepared for a hand-over.
        self.warmed: set[str] = set()

    def read(self) -> Self:
        """Read the new events; any thread may call it."""
        with self._lock:
            for entry in self._reader.new_entries():
                self._take(entry.process, entry.event)
        return self

    def _take(self, process: str, event: h.Event) -> None:
        match event:
            case h.Started(group=group, is_transactional=is_transactional, pid=pid):
                self._groups[process] = group
                if _is_of_task(process):
                    self.tasks[_without_attempt(process)] = Task(process=process, pid=pid)
                self._received.setdefault(group, set())
                if is_transactional:
                    self._results.setdefault(group, set())
            case h.Received(partition=partition, number=number):
                group = self._groups[process]
                self._received[group].add((partition, number))
                if group in self._counted:
                    self.received.add((partition, number))
            case h.Output(group=group, partition=partition, number=number):
                self._results.setdefault(group, set()).add((partition, number))
            case h.Warmed():
                self.warmed.add(process)
            case h.Produced(partition=partition, number=number):
                self.acknowledged.add((partition, number))
            case h.Recreated(topic=topic):
                self.acknowledged = {one for one in self.acknowledged if one[0].topic != topic}
            case h.Statement() as statement:
                self.states[_without_attempt(process)] = statement
            case h.Raised(error=error, is_fatal=True) if error.startswith("Configuration"):
                self.refused[process] = error
            case _:
                pass

    @property
    def missing(self) -> int:
        """The number of acknowledged records that groups have not received, and of missing results of transactions."""
        found = [*self._received.values(), *self._results.values()]
        return sum(len(self.acknowledged - one) for one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task attempt of a Spark job: its name in the history, and its process id."""

    process: str
    pid: int

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _is_of_task(process: str) -> bool:
    return "-" in process


def _without_attempt(process: str) -> str:
    return process.rpartition("-")[0] if _is_of_task(process) else process


class RecordWriter:
    """The producer of a round: writes numbered records to all partitions, at a steady rate, until `stop` is called."""

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
            # Without this failure, a round without records would pass.
            self.failures.append("the producer failed, and ended before the round did")
        self._is_over.set()
        self._thread.join()
        left = self._producer.flush(120.0)
        if left:
            self.failures.append(f"{left} records were not acknowledged")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait until all records are acknowledged, and produce no record within the context."""
        with self._lock:
            self._producer.flush(60.0)
            yield

    @property
    def partitions(self) -> range:
        """The partition numbers of the topic."""
        return range(len(self._numbers))

    def add_partitions(self, count: int) -> None:
        """Also produce to new partitions, up to this total count."""
        with self._lock:
            self._numbers += [0] * (count - len(self._numbers))

    def _run(self) -> None:
        position = 0
        while not self._is_over.wait(1 / RECORDS_PER_S):
            with self._lock:
                partition = position % len(self._numbers)
                position += 1
                self._produce(h.Partition(self.topic, partition))
                self._producer.poll(0)

    def _produce(self, partition: h.Partition) -> None:
        number = self._numbers[partition.number]
        key = f"k{number % _KEYS}"

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                # A node may learn of a re-created topic later than the others: the record is not in the log.
                if error.code() not in _NO_SUCH_TOPIC:
                    self.failures.append(f"{partition} {number}: {error.str()}")
                return
            # If an idempotent producer repeats a request, the acknowledgement may have no offset.
            if (offset := message.offset()) is not None:
                self._history.write(h.Produced(partition=partition, offset=offset, number=number, key=key))

        try:
            self._producer.produce(partition.topic, str(number), key, partition=partition.number, on_delivery=delivered)
        except BufferError:
            return
        except KafkaException as error:
            # The producer does not know a new partition or a re-created topic until its next metadata response.
            if error.args[0].code() not in _NO_SUCH_TOPIC:
                self.failures.append(f"{partition} {number}: {error}")
            return
        self._numbers[partition.number] += 1


class ResultReader:
    """Consumes the results of transactions with `read_committed`, and writes them to the history until `stop`."""

    def __init__(self, servers: str, topic: str, output: str, group: str, history: h.HistoryWriter) -> None:
        config = {"bootstrap.servers": servers, "group.id": f"{group}.results", "isolation.level": "read_committed"}
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(output, 0, 0)])
        self._topic, self._group, self._history = topic, group, history
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="results", daemon=True)

    def begin(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read to the end, and stop."""
        self._is_over.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while True:
            is_last = self._is_over.is_set()
            message = self._consumer.poll(_OBSERVE_S)
            if message is None or message.error() is not None:
                if is_last:
                    return
                continue
            partition = h.Partition(self._topic, int(message.key() or b"-1"))
            self._history.write(h.Output(group=self._group, partition=partition, number=int(message.value() or b"-1")))


@dataclass(slots=True)
class Member:
    """A member of the round: its current process, which is restarted, and its network."""

    plan: MemberPlan
    links: Links
    folder: Path
    group: str
    topic: str
    harness: h.HistoryWriter
    problems: list[str]
    #: The bootstrap servers of the listener for members with a certificate.
    tls_servers: str
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    #: Whether a fault prevents restarts; otherwise `supervise` restarts an ended process.
    is_kept_down: bool = False
    ended_at: float | None = None
    exit_codes: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the current process in the history."""
        return f"{self.plan.name}.{self.starts}"

    @property
    def is_running(self) -> bool:
        """Whether its process is running."""
        return self.process is not None and self.process.poll() is None

    def begin(self) -> None:
        """Start a process."""
        self.starts += 1
        self.ended_at = None
        log = (self.folder / f"{self.name}.log").open("wb")
        with log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        plan = self.plan
        servers = self.tls_servers if plan.has_certificate else self.links.servers
        if plan.loop is Loop.JAVA:
            return java_command(plan, self.name, self.group, self.topic, servers, self.folder)
        arguments = [plan.to_json(), self.name, self.group, self.topic, servers, str(self.folder)]
        return [sys.executable, "-m", "tests.chaos.members", *arguments]

    def order(self, order: Order, seconds: float) -> None:
        """Send an order, unless the process has ended."""
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
                # A slow close of another client library is not a problem of this package.
                if not self.plan.loop.is_foreign:
                    self.problems.append(f"{self.name} did not close within {CLOSE_S:.0f} s")
                # SIGABRT makes faulthandler write the stacks of all threads to the log.
                self.send(signal.SIGABRT)
                self.process.wait()

    def supervise(self, now: float) -> None:
        """Restart the process if it has ended and no fault prevents it."""
        if self.is_running or self.is_kept_down or self.process is None:
            return
        if self.ended_at is None:
            self.ended_at = now
            self.exit_codes.append(self.process.returncode)
        if now >= self.ended_at + _RESTART_S:
            self.begin()


class Testbed:
    """The group of one round on a cluster; a context manager that ends all processes of the round."""

    def __init__(self, cluster: Cluster, plans: tuple[MemberPlan, ...], folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        broker, keys = cluster.broker, cluster.keys
        servers, self._addresses = broker.bootstrap_servers, broker.secured[SASL].split(",")
        for name, path in (
            (AUTHORITY_FILE, keys.ca_file),
            (CERTIFICATE_FILE, keys.client_cert_file),
            (KEY_FILE, keys.client_key_file),
        ):
            shutil.copy(path, folder / name)
        self.topic = create_topic(servers, unique("chaos"), PARTITIONS, replication_factor=NODES)
        self.group = unique("chaos")
        self.history = h.HistoryWriter(folder, HARNESS)
        groups = frozenset(plan.group_of(self.group) for plan in plans)
        self.progress = Progress(folder, groups & {self.group} or groups)
        #: Problems of the harness itself.
        self.problems: list[str] = []
        self.producer = RecordWriter(servers, self.topic, self.history)
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.groups = GroupAdmin({"bootstrap.servers": servers}, timeout_s=10.0)
        #: Protects `Broker` when it controls nodes, because it supports only one thread at a time.
        self.nodes_lock = threading.Lock()
        self._stack = ExitStack()
        self.members: dict[str, Member] = {}
        for plan in plans:
            self.add_member(plan)
        self._is_over = threading.Event()
        #: Prevents observations during a deletion: the history must not have an old observation after a deletion.
        self._observing = threading.Lock()
        self._results: ResultReader | None = None
        if any(plan.loop is Loop.TRANSACTIONS for plan in plans):
            out = create_topic(servers, output_of(self.topic), 1, replication_factor=NODES)
            self._results = ResultReader(servers, self.topic, out, self.group, self.history)
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
        if self._results is not None:
            self._results.begin()
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
        if self._results is not None:
            self._results.stop()
        self._stack.close()
        self.history.close()

    def add_member(self, plan: MemberPlan) -> Member:
        """Add a member without starting its process."""
        links = self._stack.enter_context(Links(self._addresses))
        member = Member(
            plan=plan,
            links=links,
            folder=self.folder,
            group=self.group,
            topic=self.topic,
            harness=self.history,
            problems=self.problems,
            tls_servers=self.cluster.broker.secured[MUTUAL],
        )
        self.members[plan.name] = member
        return member

    @contextmanager
    def another_member(self, like: str, **changes: object) -> Iterator[Member]:
        """Run a new member within the context, with the plan of the member `like` and these changes; then close it.

        Two faults of a round may add a member with the same `like`: each new member has its own name and history.
        """
        plan = self.members[like].plan
        if plan.loop in {Loop.MANUAL, Loop.SPARK}:
            plan = replace(plan, loop=Loop.POLL)
        name = next(name for letter in ascii_lowercase if (name := f"{like}{letter}") not in self.members)
        member = self.add_member(replace(plan, name=name, **changes))  # type: ignore[arg-type]
        member.is_kept_down = True
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

    def coordinator_node(self) -> int | None:
        """Return the node id of the group's coordinator; None if no broker returns it."""
        with suppress(MembershipError, KafkaException):
            found = self.groups.describe(self.group, with_offsets=False).coordinator
            addresses = self.cluster.broker.bootstrap_servers.split(",")
            return self.cluster.broker.node_ids[addresses.index(f"{found.host}:{found.port}")]
        return None

    def address_for_members(self, node_id: int) -> str:
        """Return the address of a node's listener for members with a password."""
        return self._addresses[self.cluster.broker.node_ids.index(node_id)]

    def controller_node(self) -> int | None:
        """Return the node id of the active controller, from the files of the nodes."""
        leaders = [self._stored_leader(node_id) for node_id in self.cluster.broker.node_ids]
        return max((found for found in leaders if found is not None), default=(0, None))[1]

    def _stored_leader(self, node_id: int) -> tuple[int, int] | None:
        """Return the epoch and the leader of the controller quorum, from the quorum-state file of a node."""
        pid = self.cluster.broker.node_pid(node_id)
        if pid is None:
            return None
        properties = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2].decode()
        state = Path(properties).parent / "data" / "__cluster_metadata-0" / "quorum-state"
        found = json.loads(state.read_text())
        return found["leaderEpoch"], found["leaderId"]

    @contextmanager
    def certificates(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Change `ssl.` settings of the listener for members with a certificate, within the context."""
        self._configure_nodes(settings)
        yield
        self._configure_nodes(dict.fromkeys(settings))

    def _configure_nodes(self, settings: Mapping[str, str | None]) -> None:
        """Change these settings on each node, as soon as it responds; None restores the value from the node's start."""
        entries = [
            ConfigEntry(
                f"listener.name.{MUTUAL.lower()}.ssl.{name}",
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        for node_id in self.cluster.broker.node_ids:
            resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=entries)
            give_up_at = time.monotonic() + _CONFIGURE_S
            while True:
                try:
                    self.admin.incremental_alter_configs([resource], request_timeout=5.0)[resource].result()
                    break
                except KafkaException:
                    if time.monotonic() > give_up_at:
                        raise
                    time.sleep(_TICK_S)

    def owned_by(self, member: Member) -> tuple[h.Epoch, ...]:
        """Return the owned partitions in the latest statement of a member's current process."""
        statement = self.progress.read().states.get(member.name)
        return () if statement is None else statement.owned

    def have_jobs_begun(self) -> bool:
        """Whether each Spark job has a task that owns partitions."""
        jobs = [member for member in self.members.values() if member.plan.loop is Loop.SPARK]
        return all(self.owning_tasks(job) for job in jobs)

    def owning_tasks(self, member: Member) -> list[Task]:
        """Return the current attempts of the tasks of a Spark job that own partitions."""
        progress = self.progress.read()
        return [
            task
            for name, task in sorted(progress.tasks.items())
            if h.is_of(name, member.name) and (found := progress.states.get(name)) is not None and found.owned
        ]

    def delete_group(self) -> None:
        """Delete the group with its committed offsets. All of its processes must have ended."""
        partitions = tuple(h.Partition(self.topic, number) for number in self.producer.partitions)
        reset = h.OffsetsReset(group=self.group, partitions=partitions)
        with self._observing:
            self.history.write(reset)
            # Static members stay in the group until their sessions expire, so they are removed.
            with suppress(MembershipError, KafkaException):
                self.groups.remove_members(self.group, all_members=True, reason="chaos")
            self.wait(self._is_group_deleted, _DELETE_S)
            self.history.write(reset)

    def _is_group_deleted(self) -> bool:
        try:
            self.admin.delete_consumer_groups([self.group], request_timeout=10.0)[self.group].result()
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        return True

    def recreate_topic(self) -> None:
        """Delete the topic, and create it again."""
        with self.producer.paused():
            self.history.write(h.Recreated(topic=self.topic))
            delete_topic(self.cluster.broker.bootstrap_servers, self.topic)
            create_topic(self.cluster.broker.bootstrap_servers, self.topic, PARTITIONS, replication_factor=NODES)

    def heal(self) -> None:
        """End remaining effects of faults: run all nodes, continue suspended processes, and let all frames pass."""
        with self.nodes_lock:
            for node_id in self.cluster.broker.node_ids:
                if (pid := self.cluster.broker.node_pid(node_id)) is not None:
                    os.kill(pid, signal.SIGCONT)
                self.cluster.broker.start_node(node_id)
            self.cluster.broker.wait_ready(READY_S)
        for member in list(self.members.values()):
            member.links.change(Mode.PASS)
            member.send(signal.SIGCONT)

    def _observe(self) -> None:
        while not self._is_over.wait(_OBSERVE_S):
            with self._observing, suppress(MembershipError, KafkaException):
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
