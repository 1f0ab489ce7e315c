"""A world of classic members: the real core and the real assignors, a simulated coordinator, a network, a clock.

Everything follows from the seed. Each process has an application that polls, performs what is ordered, and reads one
record of each partition at each poll; what it reads is counted, so that lost and doubled records show.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from consumer_membership.membership.classic.member import ClassicMember
from consumer_membership.membership.classic.settings import ClassicSettings

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.assignor import Assignor, Topics
from consumer_membership.membership.classic.assignors import BUILT_IN
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.types import (
    BrokerAddress,
    Instant,
    LeaveOption,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.simulation.classic.coordinator import ClassicCoordinator
from tests.simulation.classic.exchanges import Leave, MemberIdentity, Released
from tests.simulation.classic.journal import Replaced
from tests.simulation.classic.member_words import Order, event_of, failure_of, request_of
from tests.simulation.classic.rules import ClassicRules
from tests.simulation.coordinator import Removed
from tests.simulation.invariants import check_outsider
from tests.support.members import ClassicMember
from tests.support.subscriptions import to_a_member

GROUP = "g"
REQUEST_TIMEOUT_S = 4.0
_ORDERS = (
    *(ex.SendJoin, ex.SendSync, ex.SendClassicHeartbeat, ex.SendClassicLeave),
    *(ef.CommitOffsets, ef.FetchCommitted),
)


class Violation(AssertionError):  # noqa: N818 - what it is called
    """An invariant does not hold."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """How often each thing goes wrong, as a probability for each request."""

    request_lost: float = 0.0
    answer_lost: float = 0.0


@dataclass(slots=True, eq=False)
class ClassicProcess:
    """One process: its member, and the application's side of it."""

    world: ClassicWorld
    name: str
    member: ClassicMember
    alive: bool = True
    closes: bool = False
    #: Set where the coordinator has taken the member out without its knowledge.
    is_excused: bool = False
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    frozen: set[TopicPartition] = field(default_factory=set)
    steps: list[ef.StepEffect] = field(default_factory=list)
    calls: list[tuple[str, frozenset[TopicPartition]]] = field(default_factory=list)
    deadline: Instant | None = None
    _polls: bool = True

    @property
    def fetchable(self) -> set[TopicPartition]:
        """What it delivers."""
        return set(self.positions) - self.frozen

    def feed(self, event: GroupEvent) -> None:
        """Hand an event to the core and perform what it orders."""
        if not self.alive:
            return
        for effect in self.member.handle(event, self.world.now):
            self._perform(effect)
        check_outsider(self.member, self.name)
        if self.member.state in (ClassicState.FENCED, ClassicState.STALE, ClassicState.FATAL):
            self.is_excused = True
        self.deadline = self.member.next_deadline()

    def _perform(self, effect: GroupEffect) -> None:
        world = self.world
        match effect:
            case ef.FindCoordinator():
                found = ev.CoordinatorFound(coordinator=BrokerAddress(node_id=1, host="broker", port=9092))
                world.after(0.01, lambda: self.feed(found))
            case ex.DescribeTopics():
                asked = world.coordinator.topics.keys() if effect.topics is None else effect.topics
                described = Topics(partitions={t: n for t, n in world.coordinator.topics.items() if t in asked})
                answer = ex.TopicsDescribed(request_id=effect.request_id, topics=described)
                world.after(0.01, lambda: self.feed(answer))
            case ex.ComputeAssignment():
                self._compute(effect)
            case ef.PausePartitions() | ef.RevokePartitions() | ef.LosePartitions() | ef.AssignPartitions():
                self.steps = [one for one in self.steps if one.attempt >= effect.attempt] + [effect]
            case ef.CollectPositions():
                offsets = self._uncommitted(self.positions)
                world.after(0.01, lambda: self.feed(ev.PositionsReported(commit_id=effect.commit_id, offsets=offsets)))
            case ef.LeaveCompleted():
                self.alive = not self.closes
            case ef.CommitCompleted():
                self.committed |= {p: at.offset for p, at in effect.offsets.items() if effect.errors.get(p) is None}
            case _ if isinstance(effect, _ORDERS):
                world.send(self, effect)
            case _:
                pass

    def _compute(self, effect: ex.ComputeAssignment) -> None:
        assignor = next(one for one in self.member.classic.assignors if one.name == effect.assignor)
        shares = {m: frozenset(share) for m, share in assignor.assign(effect.topics, effect.members).items()}
        self.world.check_shares(effect, shares)
        computed = ex.AssignmentComputed(generation=effect.generation, assignments=shares)
        self.world.after(0.02, lambda: self.feed(computed))

    def _uncommitted(self, partitions: object) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = set(self.positions) if partitions is None else set(partitions) & set(self.positions)  # type: ignore[call-overload]
        return {p: OffsetAndMetadata(offset=at) for p, at in self.positions.items() if p in wanted}

    # ---- the application ----

    def poll(self) -> None:
        """Perform one step, read one record of each partition, and poll again soon."""
        if not self.alive:
            return
        if self.steps:
            self._step(self.steps.pop(0))
        for partition in self.fetchable:
            self.world.delivered[partition, self.positions[partition]] += 1
            self.positions[partition] += 1
        self.feed(ev.Polled(delivered=bool(self.fetchable)))
        self.world.after(0.02 + 0.2 * self.world.random.random(), self.poll)

    def _step(self, step: ef.StepEffect) -> None:
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        match step:
            case ef.PausePartitions():
                self.frozen = set(self.positions) if step.partitions is None else set(step.partitions)
                offsets, kind = self._uncommitted(step.partitions), ev.Step.PAUSE
            case ef.RevokePartitions():
                kind = self._give_up("revoke", step.partitions, ev.Step.REVOKE)
            case ef.LosePartitions():
                kind = self._give_up("lost", None, ev.Step.LOSE)
            case ef.AssignPartitions():
                kind = ev.Step.ASSIGN
                self.calls.append(("assign", frozenset(step.offsets)))
                self.positions |= step.offsets
                self.world.check_owners()
        self.feed(ev.StepFinished(attempt=step.attempt, step=kind, offsets=offsets))

    def _give_up(self, call: str, partitions: frozenset[TopicPartition] | None, step: ev.Step) -> ev.Step:
        gone = frozenset(self.positions) if partitions is None else partitions
        self.calls.append((call, gone))
        for partition in gone:
            self.positions.pop(partition, None)
        self.frozen -= gone
        return step

    def close(self, option: LeaveOption = LeaveOption.DEFAULT) -> None:
        """Leave the group and end."""
        self.closes = True
        self.feed(ev.LeaveRequested(option=option))

    def kill(self) -> None:
        """Kill -9."""
        self.alive = False
        self.deadline = None


class ClassicWorld:
    """One simulation."""

    def __init__(
        self,
        seed: int = 0,
        *,
        rules: ClassicRules | None = None,
        faults: Faults | None = None,
        member_class: type[ClassicMember] = ClassicMember,
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self.now: Instant = 0.0
        self.faults = faults or Faults()
        self.member_class = member_class
        self.coordinator = ClassicCoordinator(rules or ClassicRules(initial_rebalance_delay_s=0.2))
        self.processes: list[ClassicProcess] = []
        self.delivered: Counter[tuple[TopicPartition, int]] = Counter()
        self._orders: dict[int, tuple[ClassicProcess, Order]] = {}
        self._keys = count(1)
        self._queue: list[tuple[Instant, int, Callable[[], None]]] = []
        self._order = count()

    def start(
        self,
        *topics: str,
        pattern: str | None = None,
        assignor: str | Assignor = "cooperative-sticky",
        instance_id: str | None = None,
    ) -> ClassicProcess:
        """Start a process that subscribes and polls."""
        assignors = (BUILT_IN[assignor] if isinstance(assignor, str) else assignor,)
        member = self.member_class(
            MemberSettings(
                group_id=GROUP, instance_id=instance_id, max_poll_interval_s=10.0, auto_commit_interval_s=1.0
            ),
            ClassicSettings(assignors=assignors, session_timeout_s=6.0, heartbeat_interval_s=0.5),
            jitter=self.random.random,
        )
        process = ClassicProcess(self, f"p{len(self.processes)}", member)
        self.processes.append(process)
        process.feed(ev.Subscribed(subscription=to_a_member(*topics, pattern=pattern)))
        self.after(0.01, process.poll)
        return process

    def remove(self, process: ClassicProcess) -> None:
        """An administrator removes this process's member."""
        leave = Leave(members=(MemberIdentity(process.member.member_id),))
        self.release(self.coordinator.ask(next(self._keys), GROUP, leave, self.now))

    # ---- the network ----

    def send(self, process: ClassicProcess, order: Order) -> None:
        """A request on its way; it may be lost, and so may its answer."""
        key = next(self._keys)
        self._orders[key] = (process, order)
        patience_s = order.rebalance_timeout_s + 5 if isinstance(order, ex.SendJoin) else REQUEST_TIMEOUT_S
        self.after(patience_s, lambda: self._give_up(key))
        if self.random.random() >= self.faults.request_lost:
            self.after(0.002 + 0.006 * self.random.random(), lambda: self._arrive(key, order))

    def _arrive(self, key: int, order: Order) -> None:
        self.release(self.coordinator.ask(key, GROUP, request_of(order), self.now))

    def release(self, released: list[Released]) -> None:
        """Answers go on their way, and the journal is read."""
        for one in released:
            if self.random.random() >= self.faults.answer_lost:
                key, answer = int(str(one.key)), one.answer
                self.after(0.002 + 0.006 * self.random.random(), lambda k=key, a=answer: self._answered(k, a))  # type: ignore[misc]
        while self.coordinator.journal:
            match self.coordinator.journal.popleft()[1]:
                case Removed(member_id=gone) | Replaced(former_id=gone):
                    for process in self.processes:
                        process.is_excused |= process.member.member_id == gone
                case _:
                    pass

    def _answered(self, key: int, answer: object) -> None:
        process, order = self._orders.pop(key, (None, None))
        if process is not None and order is not None:
            if isinstance(order, ex.SendJoin | ex.SendSync):
                process.is_excused &= bool(process.positions)
            process.feed(event_of(order, answer))  # type: ignore[arg-type]  # one of the answers

    def _give_up(self, key: int) -> None:
        process, order = self._orders.pop(key, (None, None))
        if process is not None and order is not None:
            process.feed(failure_of(order, "no answer in time"))

    # ---- time ----

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something after so many seconds."""
        heapq.heappush(self._queue, (self.now + delay_s, next(self._order), action))

    def run(self, seconds: float, *, when: Callable[[], bool] | None = None) -> bool:
        """Let time pass, or until something is so; whether it is so."""
        until = self.now + seconds
        while when is None or not when():
            if not self._happen(until):
                self.now = until
                return when is not None and when()
        return True

    def _happen(self, until: Instant) -> bool:
        moment = self._queue[0][0] if self._queue else float("inf")
        woken = min((p for p in self.processes if p.alive and p.deadline is not None), key=_deadline, default=None)
        ends_at = self.coordinator.next_deadline()
        soonest = min(moment, _deadline(woken), float("inf") if ends_at is None else ends_at)
        if soonest > until:
            return False
        self.now = max(self.now, soonest)
        if ends_at is not None and ends_at <= soonest:
            self.release(self.coordinator.pass_time(self.now))
        elif woken is not None and _deadline(woken) <= soonest:
            woken.feed(ev.TimePassed())
        else:
            heapq.heappop(self._queue)[2]()
        return True

    # ---- what must hold ----

    def check_owners(self) -> None:
        """No partition is delivered by two, but where one does not know yet that it is out."""
        owners: dict[TopicPartition, str] = {}
        for process in self.processes:
            if process.alive and not process.is_excused:
                for partition in process.fetchable:
                    if partition in owners:
                        raise Violation(f"{partition} is delivered by {owners[partition]} and {process.name}")
                    owners[partition] = process.name

    def check_shares(self, order: ex.ComputeAssignment, shares: dict[str, frozenset[TopicPartition]]) -> None:
        """No partition is given to two."""
        given = Counter(partition for share in shares.values() for partition in share)
        doubled = [partition for partition, often in given.items() if often > 1]
        if doubled:
            raise Violation(f"generation {order.generation} gives {sorted(doubled)} to two")

    @property
    def is_settled(self) -> bool:
        """Whether all living members are STABLE and deliver every partition among them, each in one place."""
        living = [process for process in self.processes if process.alive and process.member.subscription]
        if any(process.member.state is not ClassicState.STABLE for process in living):
            return False
        held = Counter(partition for process in living for partition in process.fetchable)
        topics = {topic for process in living for topic in process.member.topics}
        wanted = {TopicPartition(t, n) for t in topics for n in range(self.coordinator.topics.get(t, 0))}
        return held == Counter(wanted) and not any(process.steps for process in living)

    def settle(self, within_s: float) -> float:
        """Let time pass until everything is in its place; how long it took."""
        since = self.now
        if not self.run(within_s, when=lambda: self.is_settled):
            states = {
                p.name: (p.member.state, sorted(p.fetchable), p.member.last_error) for p in self.processes if p.alive
            }
            raise Violation(f"not settled within {within_s} s: {states}")
        return self.now - since


def _deadline(process: ClassicProcess | None) -> float:
    return process.deadline if process is not None and process.deadline is not None else float("inf")
