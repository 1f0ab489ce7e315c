"""`FakeCluster`: a Kafka cluster inside the test process, for unit tests of applications.

`Consumer`, `AIOConsumer` and `Processor` are the real classes. Below them are a log in memory (`log`), the handle that
fetches from it (`handle`), the real state machine of each member without a network (`member`), and the coordinators
that this project's tests compare with real brokers (`coordinators`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from time import time as wall_time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership.admin.access import IN_PROCESS_ADMIN
from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import InternalError, UseError
from consumer_membership.membership.effects import CommitOffsets, SendHeartbeat
from consumer_membership.runtime.cluster_access import IN_PROCESS, ClusterAccess
from consumer_membership.runtime.line import Line
from consumer_membership.testing.coordinators.classic.group import ClassicGroup
from consumer_membership.testing.coordinators.consumer.group import ConsumerGroup
from consumer_membership.testing.coordinators.either import EitherCoordinator
from consumer_membership.testing.coordinators.exchanges import (
    Commit,
    CommitResults,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    Released,
)
from consumer_membership.testing.coordinators.member_requests import request_of
from consumer_membership.testing.coordinators.rules import FENCED_MEMBER_EPOCH, ClassicRules, Refused, Rules
from consumer_membership.testing.engine import ClusterEngine
from consumer_membership.testing.group_requests import group_requests
from consumer_membership.testing.handle import FakeHandle
from consumer_membership.testing.log import FakeRecord, Headers, Log
from consumer_membership.testing.member import FakeExchange, FakeMember
from consumer_membership.testing.producer import FakeProducer, Routing
from consumer_membership.testing.running_call import RunningCall
from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition
from consumer_membership.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

    from consumer_membership.admin import GroupAdmin
    from consumer_membership.aio import AIOConsumer
    from consumer_membership.testing.admin_client import FakeAdminClient

#: The time of day at the start of virtual time: 2026-01-01, in seconds since 1970.
_VIRTUAL_DAY_S = 1_767_225_600.0
#: The rules of a broker: with its default configuration for virtual time, and with short intervals for real time.
_BROKER_RULES = Rules(session_timeout_s=45.0, heartbeat_interval_s=5.0)
_QUICK_RULES = Rules(session_timeout_s=45.0, heartbeat_interval_s=0.02)
_NUMBERS = itertools.count(1)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMember:
    """A member as its coordinator stores it; in a classic group, `epoch` is the generation."""

    member_id: str
    instance_id: str | None
    epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class _Failure:
    """An error code with which the next `times` commits of this group fail; None: of any group."""

    group_id: str | None
    code: int
    times: int


class FakeCluster:
    """A Kafka cluster inside this process; close it, or use it as a context manager.

    Every consumer in this process with the cluster's `bootstrap.servers` uses the cluster. `installed()` also routes
    producers and admin clients to it.

    Args:
        time: "virtual": a call that waits takes no real time and moves the cluster's time instead, and nothing happens
            between calls. This is deterministic, also with the threads of `start` and of a `Processor`, and with the
            coroutines of `run`. "real": the time of this machine, with heartbeats every 20 ms; for tests with their own
            threads or event loops.
        partitions: The number of partitions of topics that the cluster creates at the first write.
        seed: The seed of all random numbers.
        offers_consumer_protocol: Whether the cluster offers the consumer protocol (KIP-848); if not, all groups are
            classic groups.
    """

    def __init__(
        self,
        *,
        time: Literal["virtual", "real"] = "virtual",
        partitions: int = 1,
        seed: int = 0,
        offers_consumer_protocol: bool = True,
    ) -> None:
        is_virtual = time == "virtual"
        self.engine = ClusterEngine(is_virtual=is_virtual)
        self.log = Log()
        rules = _BROKER_RULES if is_virtual else _QUICK_RULES
        classic = ClassicRules(initial_rebalance_delay_s=3.0 if is_virtual else 0.0)
        self.coordinator = EitherCoordinator(rules, classic, offers_consumer=offers_consumer_protocol)
        self.session_timeout_s = rules.session_timeout_s
        #: The value of `bootstrap.servers` with which consumers and producers use this cluster.
        self.bootstrap_servers = f"fake-{next(_NUMBERS)}.invalid:9092"
        #: The number of partitions of a topic that is created without a partition count.
        self.default_partitions = partitions
        #: The values of each topic's configuration that are not defaults.
        self.topic_configs: dict[str, dict[str, str]] = {}
        self._began_at = self.engine.now()
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._member_numbers = itertools.count(1)
        self._failures: list[_Failure] = []
        self._fenced: set[str] = set()
        self._moving: set[str] = set()
        self._consumers: list[Consumer] = []
        self._producers: dict[str, FakeProducer] = {}
        self.engine.add(self)
        IN_PROCESS[self.bootstrap_servers] = self
        IN_PROCESS_ADMIN[self.bootstrap_servers] = partial(group_requests, self)

    # ---- clients ----

    def consumer(self, config: Mapping[str, object] | None = None, **keys: object) -> Consumer:
        """Return a consumer of this cluster, by default in the group "test"; the cluster's `close` closes it."""
        consumer = Consumer(self._config(config) | keys)
        self._consumers.append(consumer)
        return consumer

    def aio_consumer(self, config: Mapping[str, object] | None = None) -> AIOConsumer:
        """Return an `AIOConsumer` of this cluster; call this inside the event loop of `run`, and await its `close`.

        On real time, any running event loop works.
        """
        from consumer_membership.aio import AIOConsumer  # noqa: PLC0415 - few tests use asyncio

        return AIOConsumer(self._config(config))

    def _config(self, config: Mapping[str, object] | None) -> dict[str, object]:
        return {"group.id": "test", **(config or {}), "bootstrap.servers": self.bootstrap_servers}

    def producer(self, config: Mapping[str, object] | None = None) -> FakeProducer:
        """Return a producer of this cluster."""
        return FakeProducer(self, {**(config or {}), "bootstrap.servers": self.bootstrap_servers})

    def admin_client(self, config: Mapping[str, object] | None = None) -> FakeAdminClient:
        """Return an admin client of this cluster, with the methods of `confluent_kafka.admin.AdminClient`."""
        from consumer_membership.testing.admin_client import admin_client  # noqa: PLC0415 - it takes time to import

        return admin_client(self, {**(config or {}), "bootstrap.servers": self.bootstrap_servers})

    def group_admin(self, config: Mapping[str, object] | None = None, *, timeout_s: float = 30.0) -> GroupAdmin:
        """Return a `GroupAdmin` of this cluster."""
        from consumer_membership.admin import GroupAdmin  # noqa: PLC0415 - few tests use it

        return GroupAdmin({**(config or {}), "bootstrap.servers": self.bootstrap_servers}, timeout_s=timeout_s)

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Route each `Producer` and `AdminClient` with its `bootstrap.servers` to this cluster, in the `with` block.

        It replaces the name `Producer` in all modules. Consumers need no installation.
        """
        from consumer_membership.testing.admin_client import installed_admin  # noqa: PLC0415 - it takes time to import

        with Routing(self), installed_admin(self):
            yield self

    @property
    def access(self) -> ClusterAccess:
        """The thread, handle and clock with which a consumer uses this cluster."""
        return ClusterAccess(make_thread=partial(FakeMember, self), make_handle=self._handle, clock=self.engine)

    def _handle(self, line: Line, config: dict[str, object]) -> FakeHandle:
        return FakeHandle(self, config, lambda: line.wake_up.is_set)

    # ---- topics and records ----

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic, or add partitions to it."""
        with self.engine.exclusive():
            known = self.coordinator.topics.get(name)
            if known is not None and known.partitions > partitions:
                raise UseError(f"topic {name} has {known.partitions} partitions already")
            self.coordinator.create_topic(name, partitions, known.topic_id if known is not None else None)
            self.log.create(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and committed offsets.

        Raises:
            UseError: there is no such topic.
        """
        with self.engine.exclusive():
            if name not in self.coordinator.topics:
                raise UseError(f"there is no topic {name!r}")
            self.coordinator.delete_topic(name)
            self.log.delete(name)
            self.topic_configs.pop(name, None)

    def deliver(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record and return its offset; an unknown topic is created.

        Args:
            topic: The topic.
            value: The value; text is encoded as UTF-8.
            key: The key; it determines the partition as in librdkafka.
            partition: The partition, which overrides the key; without both, partitions are used in turn.
            headers: The headers.
            timestamp_ms: The timestamp in milliseconds since 1970; None: now.
        """
        with self.engine.exclusive():
            self.ensure_topic(topic)
            raw_key = _encoded(key)
            place = self.log.choose(topic, raw_key) if partition is None else TopicPartition(topic, partition)
            stamp = int(self.wall_s() * 1000) if timestamp_ms is None else timestamp_ms
            return self.log.append(
                place, FakeRecord(value=_encoded(value), key=raw_key, headers=headers, timestamp_ms=stamp)
            )

    def ensure_topic(self, name: str) -> None:
        """Create this topic if it does not exist, as a broker does when a producer writes."""
        if name not in self.coordinator.topics:
            self.create_topic(name, self.default_partitions)

    def records(self, topic: str) -> list[Message]:
        """Return all records of a topic, one partition after the other."""
        with self.engine.exclusive():
            return self.log.messages(self.log.partitions_of(topic))

    # ---- state for assertions ----

    def committed(self, group: str = "test") -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        with self.engine.exclusive():
            return {partition: at.offset for partition, at in self._committed(group).items()}

    def _committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        known = self.coordinator.groups.get(group_id)
        return dict(known.committed) if known is not None else {}

    def committed_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a group; None: no offset is committed."""
        found = self._committed(group_id).get(partition)
        return None if found is None else found.offset

    def members(self, group: str = "test") -> tuple[ClusterMember, ...]:
        """Return the members of a group as its coordinator stores them, in the order in which they joined."""
        with self.engine.exclusive():
            match self.coordinator.groups.get(group):
                case ConsumerGroup() as consumer_group:
                    names = {topic.topic_id: topic.name for topic in self.coordinator.topics.values()}
                    return tuple(
                        ClusterMember(
                            member_id=one.member_id,
                            instance_id=one.instance_id,
                            epoch=one.epoch,
                            partitions=frozenset(
                                TopicPartition(names[p.topic_id], p.partition)
                                for p in one.assigned
                                if p.topic_id in names
                            ),
                        )
                        for one in consumer_group.members.values()
                    )
                case ClassicGroup() as classic_group:
                    return tuple(
                        ClusterMember(
                            member_id=classic.member_id,
                            instance_id=classic.instance_id,
                            epoch=classic_group.generation,
                            partitions=classic.assignment or frozenset(),
                        )
                        for classic in classic_group.roster.members.values()
                    )
                case _:
                    return ()

    # ---- actions of a test ----

    def rebalance(self, group: str = "test") -> None:
        """Make every member revoke all of its partitions and receive partitions again, at its next heartbeats.

        A classic group rebalances as after a join: members with cooperative assignors keep their partitions.
        """
        with self.engine.exclusive():
            match self._group(group):
                case ConsumerGroup() as consumer_group:
                    consumer_group.withhold(frozenset(p for topic in self.coordinator.topics.values() for p in topic))
                    self._moving.add(group)
                case ClassicGroup() as classic_group:
                    classic_group.prepare("requested by the test", self.engine.now())

    def revoke(self, partitions: Collection[tuple[str, int]], group: str = "test") -> None:
        """Take these partitions from their members; no member gets them before `give_back`.

        Raises:
            UseError: the group is a classic group, whose leader assigns the partitions.
        """
        self._withhold(group, lambda withheld: withheld | self._by_id(partitions))

    def give_back(self, partitions: Collection[tuple[str, int]] | None = None, group: str = "test") -> None:
        """Assign these revoked partitions again; None: all revoked partitions."""
        self._withhold(group, lambda withheld: withheld - (withheld if partitions is None else self._by_id(partitions)))

    def _withhold(
        self, group_id: str, change: Callable[[frozenset[TopicIdPartition]], frozenset[TopicIdPartition]]
    ) -> None:
        with self.engine.exclusive():
            group = self._group(group_id)
            if isinstance(group, ClassicGroup):
                raise UseError(f"group {group_id} is a classic group; use rebalance() or group.protocol=consumer")
            group.withhold(change(group.withheld))

    def fence(self, member: Consumer | str, group: str = "test") -> None:
        """Remove a member and fence it at its next heartbeat (FENCED_MEMBER_EPOCH), so that it loses its partitions.

        A member of a classic group receives UNKNOWN_MEMBER_ID instead.
        """
        with self.engine.exclusive():
            group_id, member_id = self._named(member, group)
            if isinstance(self._group(group_id), ConsumerGroup):
                self._fenced.add(member_id)
            self._release(self.coordinator.expel(group_id, member_id, self.engine.now()))

    def expire_session(self, member: Consumer | str, group: str = "test") -> None:
        """Expire a member's session as if no heartbeat had arrived; other members receive its partitions."""
        with self.engine.exclusive():
            group_id, member_id = self._named(member, group)
            self._release(self.coordinator.expel(group_id, member_id, self.engine.now()))

    def move_coordinator(self, *, loading_s: float = 0.0) -> None:
        """Move the coordinator of all groups to another broker, which loads the groups before it responds."""
        with self.engine.exclusive():
            node_id = self.coordinator.node_id + 1
            self._release(self.coordinator.move(node_id, self.engine.now(), loading_s))

    def fail_commits(self, error: int | str, *, times: int = 1, group: str | None = None) -> None:
        """Respond to the next commits of a group (None: of any group) with this Kafka error code or error name.

        Raises:
            UseError: no error code has this name.
        """
        if isinstance(error, str) and error.lower() not in ErrorCode.__members__:
            close = get_close_matches(error.upper(), [name.upper() for name in ErrorCode.__members__], n=3)
            hint = f"; did you mean {' or '.join(close)}?" if close else "; use a name such as NOT_COORDINATOR"
            raise UseError(f"{error!r} is not the name of a Kafka error code{hint}")
        code = error if isinstance(error, int) else ErrorCode[error.lower()].value
        with self.engine.exclusive():
            self._failures.append(_Failure(group, code, times))

    def start(self, call: Callable[[], AnswerT]) -> RunningCall[AnswerT]:
        """Run a function, for example `processor.run`, in its own thread.

        On virtual time the thread takes turns with the calling thread and the other threads: it runs while all other
        threads wait in a call of the cluster, such as `advance`.
        """
        return RunningCall(self.engine, call)

    def run(self, main: Coroutine[object, object, AnswerT]) -> AnswerT:
        """Run a coroutine on an event loop with the cluster's time; on virtual time, `asyncio.sleep` does not wait."""
        import asyncio  # noqa: PLC0415 - few tests use asyncio

        with asyncio.Runner(loop_factory=self.engine.new_event_loop) as runner:
            return runner.run(main)

    def now(self) -> float:
        """Return the time since the cluster was created, in seconds of the cluster's time."""
        return self.engine.now() - self._began_at

    def advance(self, seconds: float) -> None:
        """Move the virtual time forward: members send heartbeats, and sessions and poll intervals expire.

        Threads of `start` and of processors run until they have done everything that is due by then. In a handler, the
        call takes this many seconds of virtual time.

        Raises:
            UseError: the cluster is on real time.
        """
        if not self.engine.is_virtual:
            raise UseError('only a cluster with time="virtual" can be advanced')
        self.engine.advance(seconds)

    def close(self) -> None:
        """End the threads, close the consumers that `consumer` returned, and unregister the cluster. Idempotent."""
        self.engine.end_threads()
        consumers, self._consumers = self._consumers, []
        for consumer in consumers:
            consumer.close()
        IN_PROCESS.pop(self.bootstrap_servers, None)
        IN_PROCESS_ADMIN.pop(self.bootstrap_servers, None)
        self.engine.close()

    def __enter__(self) -> Self:
        """Return the cluster itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the cluster."""
        self.close()

    def _group(self, group_id: str) -> ConsumerGroup | ClassicGroup:
        group = self.coordinator.groups.get(group_id)
        if not isinstance(group, ConsumerGroup | ClassicGroup):
            known = ", ".join(map(repr, sorted(self.coordinator.groups))) or "none"
            raise UseError(
                f"there is no group {group_id!r}; existing groups: {known}. A group exists from the first poll of its "
                "first member on"
            )
        return group

    def _by_id(self, partitions: Collection[tuple[str, int]]) -> frozenset[TopicIdPartition]:
        for topic, number in partitions:
            if TopicPartition(topic, number) not in self.log:
                raise UseError(f"there is no partition {number} of a topic {topic!r}; call create_topic first")
        topics = self.coordinator.topics
        return frozenset(TopicIdPartition(topics[topic].topic_id, number) for topic, number in partitions)

    def _named(self, member: Consumer | str, group_id: str) -> tuple[str, str]:
        member_id = member
        if not isinstance(member, str):
            view = member.membership()
            group_id, member_id = view.group_id, view.member_id
        self._group(group_id)
        members = self.coordinator.members(group_id)
        if member_id not in members:
            known = ", ".join(map(repr, sorted(members))) or "none"
            raise UseError(f"group {group_id!r} has no member {member_id!r}; its members: {known}")
        return group_id, str(member_id)

    # ---- for members and handles ----

    def wall_s(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return _VIRTUAL_DAY_S + self.engine.now() - self._began_at if self.engine.is_virtual else wall_time()

    def client_id_of(self, member_id: str) -> str:
        """Return the client id of a member; empty if the member has ended."""
        members = (actor for actor in self.engine.actors if isinstance(actor, FakeMember))
        return next((one.client_id for one in members if one.view.member_id == member_id), "")

    def remove_members(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResults | Refused:
        """Remove members as an administrator does, and respond to members that wait for the removed members."""
        request = LeaveGroup(members=tuple(members))
        *released, removed = self.coordinator.process("administrator", group_id, request, self.engine.now())
        self._release(released)
        if not isinstance(removed.answer, LeaveResults | Refused):
            raise InternalError(f"the coordinator answered a removal with {removed.answer}")
        return removed.answer

    def new_member_id(self) -> str:
        """Return the next member id."""
        return f"member-{next(self._member_numbers)}"

    def jitter(self) -> float:
        """Return the next random number below 1."""
        return self._random.random()

    def send(self, exchange: FakeExchange, group_id: str, node_id: int) -> None:
        """Send the request of a member to a node."""
        order = exchange.order
        refusal = self._injected(exchange, group_id)
        if refusal is not None:
            self.engine.soon(partial(exchange.answer, refusal))
            return
        request = request_of(order, exchange.protocol)
        self._release(self.coordinator.process(exchange, group_id, request, self.engine.now(), node_id=node_id))
        self._end_moves(group_id)

    def _injected(self, exchange: FakeExchange, group_id: str) -> Refused | CommitResults | None:
        """Return the response that the test requires for this request; None: a regular response."""
        order = exchange.order
        if isinstance(order, SendHeartbeat) and order.heartbeat.member_id in self._fenced:
            self._fenced.discard(order.heartbeat.member_id)
            if order.heartbeat.member_epoch > 0:
                return Refused(FENCED_MEMBER_EPOCH, "fenced by the test")
        if isinstance(order, CommitOffsets):
            for failure in self._failures:
                if failure.group_id in (None, group_id):
                    failure.times -= 1
                    if failure.times <= 0:
                        self._failures.remove(failure)
                    return CommitResults(codes=dict.fromkeys(order.offsets, failure.code))
        return None

    def _end_moves(self, group_id: str) -> None:
        """After `rebalance`, assign the partitions again as soon as no member has a partition."""
        if group_id in self._moving:
            group = self._group(group_id)
            if isinstance(group, ConsumerGroup) and not group.holder:
                self._moving.discard(group_id)
                group.withhold(frozenset())

    def _release(self, released: list[Released]) -> None:
        for key, answer in released:
            if isinstance(key, FakeExchange):
                self.engine.soon(partial(key.answer, answer))

    def look_up(self, topics: frozenset[str], *, may_create: bool) -> frozenset[str]:
        """Return the topics that exist; `may_create`: create the missing topics first."""
        if may_create:
            for name in topics:
                self.ensure_topic(name)
        return topics & self.coordinator.topics.keys()

    def next_deadline(self) -> float | None:
        """Return the time of the coordinator's next timer."""
        return self.coordinator.next_deadline()

    def pass_time(self, now: float) -> None:
        """Apply the ends of sessions and rebalances of the groups that are due."""
        self._release(self.coordinator.pass_time(now))

    def describe(self, topic: str | None) -> ClusterMetadata:
        """Return the metadata of one topic; None: of all topics."""
        from confluent_kafka.admin._metadata import (  # noqa: PLC0415 - it takes time to import
            BrokerMetadata,
            ClusterMetadata,
            PartitionMetadata,
            TopicMetadata,
        )

        found, broker = ClusterMetadata(), BrokerMetadata()
        values = {"cluster_id": "fake-cluster", "controller_id": 1, "orig_broker_id": 1, "orig_broker_name": "fake"}
        vars(found).update(values, brokers={1: broker})
        vars(broker).update(id=1, host="fake", port=9092)
        names = [topic] if topic is not None else list(self.coordinator.topics)
        for name in names:
            found.topics[name] = one = TopicMetadata()
            vars(one).update(topic=name)
            if name not in self.coordinator.topics:
                one.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            for place in self.log.partitions_of(name):
                one.partitions[place.partition] = part = PartitionMetadata()
                vars(part).update(id=place.partition, leader=1, replicas=[1], isrs=[1])
        return found

    def new_producer(self, transactional_id: str, producer: FakeProducer) -> None:
        """Register a producer, which fences the earlier producer with this transactional id."""
        self._producers[transactional_id] = producer

    def is_fenced(self, transactional_id: str, producer: FakeProducer) -> bool:
        """Return whether a newer producer has this transactional id."""
        return self._producers.get(transactional_id) is not producer

    def commit_for_transaction(self, group_id: str, member_id: str, epoch: int, offsets: Collection[Partition]) -> None:
        """Commit the offsets of a transaction; the coordinator checks the member id and the epoch.

        Raises:
            KafkaException: the member was fenced, or its epoch is outdated.
        """
        wanted = {TopicPartition(p.topic, p.partition): OffsetAndMetadata(offset=p.offset) for p in offsets}
        request = Commit(offsets=wanted, member_id=member_id, generation=epoch)
        answer = self.coordinator.answer(group_id, request, self.engine.now())
        codes = set(answer.codes.values()) if isinstance(answer, CommitResults) else {-1}
        failed = next((code for code in codes if code), None)
        if failed is not None:
            raise KafkaException(KafkaError(failed))


def _encoded(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
