"""A simulation of processes, a coordinator, a network and a virtual clock, run from one seed.

The coordinator's rules decide which protocol the members use: the consumer protocol with `Rules`, the classic protocol
with `ClassicRules`. With both, the coordinator accepts either protocol, and each member uses that of its group.
"""

from __future__ import annotations

import heapq
import random
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TypeAlias

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.assignor import Assignor
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.effects import ReadAnnouncements, WriteAnnouncement
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.recorder.ring import Recorder
from consumer_membership.runtime.network.outbox import Outbox
from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.either import EitherCoordinator
from consumer_membership.testing.coordinators.exchanges import Answer, Released
from consumer_membership.testing.coordinators.member_requests import request_of
from consumer_membership.testing.coordinators.rules import ClassicRules, Rules
from consumer_membership.types import GroupProtocol, Instant, Subscription, TopicIdPartition, TopicPartition
from tests.simulation import internals
from tests.simulation.application import Application, Behavior
from tests.simulation.handler_invariants import HandlerInvariants
from tests.simulation.helper_group import HelperGroup
from tests.simulation.invariants import Invariants, Ledger
from tests.simulation.network import Exchange, Faults
from tests.simulation.process import Process
from tests.simulation.process_invariants import Violation
from tests.simulation.trace import as_text

GROUP = "orders-group"
#: The number of trace lines in a failure message.
TRACE_LINES = 60
AnyRules: TypeAlias = Rules | ClassicRules | tuple[Rules, ClassicRules]
_CONSUMER, _CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC


def protocols_of(
    *protocols: GroupProtocol, assignors: Iterable[str | Assignor] = ("cooperative-sticky",)
) -> ProtocolSettings:
    """Return the settings of a member that may use these protocols, with timeouts that suit a simulation."""
    known = tuple(BUILT_IN[one] if isinstance(one, str) else one for one in assignors)
    classic = ClassicSettings(assignors=known, session_timeout_s=6.0, heartbeat_interval_s=0.5)
    return ProtocolSettings(classic=classic, protocols=protocols)


def coordinator_of(rules: AnyRules) -> tuple[GroupCoordinator, ProtocolSettings]:
    """Return a coordinator with these rules, and the default protocol settings of its members."""
    match rules:
        case Rules():
            return ConsumerCoordinator(rules), protocols_of(_CONSUMER)
        case ClassicRules():
            return ClassicCoordinator(rules), protocols_of(_CLASSIC)
        case consumer, classic:
            return EitherCoordinator(consumer, classic), protocols_of(_CONSUMER, _CLASSIC)


class Simulation:
    """One simulation. Its seed and the calls of the test determine everything that happens in it."""

    def __init__(
        self,
        seed: int,
        *,
        rules: AnyRules | None = None,
        faults: Faults | None = None,
        make_member: Callable[..., MemberCore | Recorder] = MemberCore,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)  # noqa: S311 - the random numbers must be repeatable
        self.now: Instant = 0.0
        self.faults = faults or Faults()
        self.coordinator, self.protocols = coordinator_of(rules or Rules())
        self.helper = HelperGroup(GROUP, self.coordinator.topics)
        self.former_node = self.coordinator.node_id
        self.nodes_down: set[int] = set()
        self.inbox_delay_s = 0.0
        #: Whether there are no records to deliver.
        self.is_idle = False
        #: Whether the faults have ended: no fault is injected, and no handler fails.
        self.are_faults_over = False
        #: Whether members are authorized to describe their group.
        self.may_describe = True
        self.make_member = make_member
        #: The class that orders the requests of each process.
        self.make_outbox: type[Outbox] = Outbox
        #: Creates the application that processes the records of each process.
        self.make_application: Callable[[Process, Behavior, bool], Application] = Application
        self.processes: list[Process] = []
        self.ledger = Ledger(self)
        self.invariants = Invariants(self)
        self.handler_invariants = HandlerInvariants(
            now=lambda: self.now, exists=self.exists, is_excused=self.invariants.is_excused
        )
        self._trace: deque[tuple[Instant, tuple[str, object], object, tuple[object, ...]]] = deque(maxlen=TRACE_LINES)
        self._queue: list[tuple[Instant, int, Callable[[], None]]] = []
        self._order = count()
        self._numbers: dict[str, Iterator[int]] = {}

    # ---- building ----

    def next_number(self, kind: str) -> int:
        """Return the next number for this kind of object, from 0."""
        return next(self._numbers.setdefault(kind, count()))

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        self.coordinator.create_topic(name, partitions, uuid.UUID(int=self.random.getrandbits(128), version=4))

    def grow_topic(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of a topic."""
        self.coordinator.create_topic(name, partitions, self.coordinator.topics[name].topic_id)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.coordinator.delete_topic(name)
        self.invariants.forget_topic(name)

    def start(
        self,
        slot: int = 0,
        *topics: str,
        settings: MemberSettings | None = None,
        protocols: ProtocolSettings | None = None,
        behavior: Behavior | None = None,
        subscription: Subscription | None = None,
    ) -> Process:
        """Start a process that subscribes."""
        settings = settings or MemberSettings(group_id=GROUP)
        process = Process(self, slot, settings, protocols or self.protocols, behavior or Behavior())
        self.processes.append(process)
        process.start(subscription or Subscription(topics=frozenset(topics)))
        return process

    def exists(self, partition: TopicPartition) -> bool:
        """Return whether this partition's topic exists."""
        return partition.topic in self.coordinator.topics

    def by_id(self, partition: TopicPartition) -> TopicIdPartition:
        """Return the partition with the id of the current topic of that name."""
        return TopicIdPartition(self.coordinator.topics[partition.topic].topic_id, partition.partition)

    @property
    def live_processes(self) -> list[Process]:
        """The processes that have not ended, including stopped processes (SIGSTOP)."""
        return [process for process in self.processes if process.alive]

    # ---- the coordinator ----

    def deliver(self, exchange: Exchange, node_id: int) -> Answer | None:
        """Handle a request that arrives at a node, and send the answers to other requests that it releases.

        Returns None if its own answer has to wait.
        """
        if isinstance(exchange.order, ReadAnnouncements | WriteAnnouncement):
            return self.helper.handle(request_of(exchange.order, exchange.protocol), self.now, node_id=node_id)
        self.invariants.arrived(exchange)
        request = request_of(exchange.order, exchange.protocol)
        released = self.coordinator.process(exchange, GROUP, request, self.now, node_id=node_id)
        self.release(released, asked=exchange)
        return next((one.answer for one in released if one.key is exchange), None)

    def release(self, released: list[Released], asked: Exchange | None = None) -> None:
        """Check the actions of the coordinator, and send its answers to the requests that waited."""
        self.invariants.read_journal([one.answer for one in released])
        for key, answer in released:
            assert isinstance(key, Exchange)
            self.invariants.coordinator_acted(key.order, answer)
            if key is not asked:
                key.connection.reply(key, answer)

    def move_coordinator(self, node_id: int, loading_s: float) -> None:
        """Make another node the coordinator."""
        self.former_node = self.coordinator.node_id
        self.release(self.coordinator.move(node_id, self.now, loading_s))

    def expel(self, member_id: str) -> None:
        """Remove a member, as an administrator does."""
        self.release(self.coordinator.expel(GROUP, member_id, self.now))

    # ---- time ----

    def at(self, moment: Instant, action: Callable[[], None]) -> None:
        """Schedule an action for this moment."""
        heapq.heappush(self._queue, (max(moment, self.now), next(self._order), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Schedule an action after this number of seconds."""
        self.at(self.now + delay_s, action)

    def run(self, until: Instant, *, when: Callable[[], bool] | None = None) -> bool:
        """Let time pass until this moment, or until the condition `when` is true; return whether it is true."""
        while when is None or not when():
            if not self._step(until):
                self.now = until
                return when is not None and when()
        return True

    def run_for(self, seconds: float) -> None:
        """Let this much time pass."""
        self.run(self.now + seconds)

    def settle(self, within_s: float) -> float:
        """Let time pass until the group is settled, and return how many seconds that took."""
        since = self.now
        if not self.run(since + within_s, when=lambda: self.is_settled):
            raise Violation(f"not settled within {within_s} s")
        return self.now - since

    def _step(self, until: Instant) -> bool:
        """Run the next action unless it is later than `until`; return whether an action ran."""
        queue, now = self._queue, self.now
        moment = queue[0][0] if queue else float("inf")
        woken: Process | None = None
        for process in self.processes:
            deadline = process.deadline
            if deadline is not None and deadline < moment:
                moment, woken = max(deadline, now), process
        ends_at = self.coordinator.next_deadline()
        if ends_at is not None and ends_at < moment:
            if ends_at > until:
                return False
            self.now = max(ends_at, now)
            self.release(self.coordinator.pass_time(self.now))
        elif moment > until:
            return False
        elif woken is not None:
            self.now = moment
            woken.wake()
        else:
            self.now = moment
            heapq.heappop(queue)[2]()
        return True

    # ---- trace and observation ----

    def log_event(self, process: Process, event: object, effects: tuple[object, ...]) -> None:
        """Add an event and its effects to the trace."""
        self._trace.append((self.now, (process.name, internals.state(process.member)), event, effects))

    def log(self, text: str) -> None:
        """Add a line to the trace."""
        self._trace.append((self.now, ("run", ""), text, ()))

    def trace(self) -> str:
        """Return the latest events as text, oldest first."""
        lines = []
        for moment, (name, state), event, effects in self._trace:
            lines.append(f"{moment:9.4f} {name:6} {state!s:13} {as_text(event)}")
            lines += [f"{'':30} -> {as_text(effect)}" for effect in effects]
        return "\n".join(lines)

    @property
    def wanted(self) -> set[TopicPartition]:
        """Return all partitions that a live member subscribes to."""
        subscriptions = [process.subscription for process in self.live_processes]
        names = frozenset[str]().union(*(one.topics for one in subscriptions))
        patterns = [pattern.member or "" for one in subscriptions for pattern in one.patterns]
        return {
            TopicPartition(topic.name, number)
            for topic in self.coordinator.topics.values()
            if topic.name in names or any(re.fullmatch(pattern, topic.name) for pattern in patterns)
            for number in range(topic.partitions)
        }

    @property
    def group_epoch(self) -> int:
        """The group epoch, which increases with each change that is visible to other members."""
        return int(self.coordinator.groups[GROUP].epoch)

    def has_proof_of_death(self, member_id: str) -> bool:
        """Return whether the process of this member was killed; all processes share a machine, which shows that."""
        return any(member_id in one.member_ids and one.is_killed for one in self.processes)

    @property
    def is_settled(self) -> bool:
        """Whether all members are STABLE, and exactly one member fetches each partition."""
        live = self.live_processes
        if any(process.state is not MemberState.STABLE for process in live if process.subscription):
            return False
        fetchable = [p for process in live for p in process.application.fetchable]
        if len(fetchable) != len(set(fetchable)) or set(fetchable) != self.wanted:
            return False
        members = len(self.coordinator.members(GROUP))
        return members == sum(bool(p.subscription) for p in live) and self.coordinator.is_settled(GROUP)
