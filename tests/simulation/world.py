"""A world of processes, a coordinator, a network and a virtual clock, run from one seed."""

from __future__ import annotations

import heapq
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

from consumer_membership.membership.effects import Effect
from consumer_membership.membership.events import Event, TimePassed
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.types import Instant, Subscription, TopicIdPartition, TopicPartition
from tests.simulation.application import Habits
from tests.simulation.coordinator import GroupCoordinator
from tests.simulation.invariants import Invariants, Ledger, Violation
from tests.simulation.network import Faults
from tests.simulation.process import Process
from tests.simulation.rules import Rules
from tests.simulation.trace import words
from tests.support.members import Member

GROUP = "orders-group"
#: How many lines of the trace a failure shows.
TRACE_LINES = 60


class World:
    """One simulation. Everything that happens in it follows from its seed and from what the caller does."""

    def __init__(
        self,
        seed: int,
        *,
        rules: Rules | None = None,
        faults: Faults | None = None,
        member_class: type[Member] = Member,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self.now: Instant = 0.0
        self.faults = faults or Faults()
        self.coordinator = GroupCoordinator(rules or Rules())
        self.former_node = self.coordinator.node_id
        self.nodes_down: set[int] = set()
        self.inbox_delay_s = 0.0
        #: Whether there are no records to hand out.
        self.is_idle = False
        #: Whether members have the right to describe their group.
        self.may_describe = True
        self.member_class = member_class
        self.processes: list[Process] = []
        self.ledger = Ledger(self)
        self.invariants = Invariants(self)
        self._trace: deque[tuple[Instant, tuple[str, object], object, tuple[Effect, ...]]] = deque(maxlen=TRACE_LINES)
        self._queue: list[tuple[Instant, int, Callable[[], None]]] = []
        self._order = count()
        self._numbers: dict[str, Iterator[int]] = {}

    # ---- building ----

    def next_number(self, kind: str) -> int:
        """Counts up for each kind of thing."""
        return next(self._numbers.setdefault(kind, count()))

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        self.coordinator.create_topic(name, uuid.UUID(int=self.random.getrandbits(128), version=4), partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.coordinator.delete_topic(name)
        self.invariants.forget_topic(name)

    def start(
        self,
        seat: int = 0,
        *topics: str,
        settings: MemberSettings | None = None,
        habits: Habits | None = None,
        subscription: Subscription | None = None,
    ) -> Process:
        """Start a process that subscribes."""
        process = Process(self, seat, settings or MemberSettings(group_id=GROUP), habits or Habits(), self.member_class)
        self.processes.append(process)
        process.start(subscription or Subscription(topics=frozenset(topics)))
        return process

    def exists(self, partition: TopicPartition) -> bool:
        """Whether this partition's topic exists."""
        return partition.topic in self.coordinator.topics

    def by_id(self, partition: TopicPartition) -> TopicIdPartition:
        """The partition as the present topic of that name has it."""
        return TopicIdPartition(self.coordinator.topics[partition.topic].topic_id, partition.partition)

    @property
    def living(self) -> list[Process]:
        """The processes that live."""
        return [process for process in self.processes if process.alive]

    # ---- time ----

    def at(self, moment: Instant, action: Callable[[], None]) -> None:
        """Do something then."""
        heapq.heappush(self._queue, (max(moment, self.now), next(self._order), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something after so many seconds."""
        self.at(self.now + delay_s, action)

    def run(self, until: Instant, *, when: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to this moment, or until something is so; whether it is so."""
        while when is None or not when():
            if not self._step(until):
                self.now = until
                return when is not None and when()
        return True

    def run_for(self, seconds: float) -> None:
        """Let this much time pass."""
        self.run(self.now + seconds)

    def settle(self, within_s: float) -> float:
        """Let time pass until everything is in its place; how long it took."""
        since = self.now
        if not self.run(since + within_s, when=lambda: self.is_settled):
            raise Violation(f"not settled within {within_s} s")
        return self.now - since

    def _step(self, until: Instant) -> bool:
        """Let the next thing happen, unless it is later; whether something happened."""
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
            self.coordinator.pass_time(self.now)
            self.invariants.look_into_journal()
        elif moment > until:
            return False
        elif woken is not None:
            self.now = moment
            woken.feed(TimePassed())
        else:
            self.now = moment
            heapq.heappop(queue)[2]()
        return True

    # ---- what one may look at ----

    def note(self, process: Process, event: Event, effects: tuple[Effect, ...]) -> None:
        """Remember an event for the trace."""
        self._trace.append((self.now, (process.name, process.member.state), event, effects))

    def say(self, text: str) -> None:
        """Put words into the trace."""
        self._trace.append((self.now, ("world", ""), text, ()))

    def trace(self) -> str:
        """The latest events, oldest first."""
        lines = []
        for moment, (name, state), event, effects in self._trace:
            lines.append(f"{moment:9.4f} {name:6} {state!s:13} {words(event)}")
            lines += [f"{'':30} -> {words(effect)}" for effect in effects]
        return "\n".join(lines)

    @property
    def wanted(self) -> set[TopicPartition]:
        """All partitions that somebody who lives subscribes to."""
        topics = {topic for process in self.living for topic in process.subscription.topics}
        return {
            TopicPartition(topic.name, number)
            for topic in self.coordinator.topics.values()
            if topic.name in topics
            for number in range(topic.partitions)
        }

    @property
    def is_settled(self) -> bool:
        """Whether all members are STABLE and deliver all partitions among them, each in one place."""
        living = self.living
        if any(process.member.state is not MemberState.STABLE for process in living if process.subscription):
            return False
        fetchable = [p for process in living for p in process.application.fetchable]
        if len(fetchable) != len(set(fetchable)) or set(fetchable) != self.wanted:
            return False
        group = self.coordinator.groups.get(GROUP)
        members = len(group.members) if group is not None else 0
        return members == sum(bool(p.subscription) for p in living) and (not members or group.is_settled)
