"""One process of an application: a member of the real core, an application's thread, and two connections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from consumer_membership.membership.effects import (
    CommitOffsets,
    DescribeGroup,
    Effect,
    FetchCommitted,
    FindCoordinator,
    InstanceReleased,
    LearnSessionTimeout,
    ResolveTopicIds,
    SendHeartbeat,
    StateChanged,
    Warned,
)
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    GroupDescribed,
    GroupDescribeFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    LeaveRequested,
    SessionTimeoutLearned,
    StartOffsetsFailed,
    StartOffsetsFetched,
    TopicIdsResolved,
)
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import TRANSPORT_CODE, BrokerAddress, BrokerError, Instant, Subscription
from consumer_membership.wire.verdicts import (
    FetchVerdict,
    broker_error,
    commit_verdict,
    fetch_verdict,
    heartbeat_verdict,
)
from tests.simulation.application import Application, Habits
from tests.simulation.network import Connection
from tests.simulation.rules import GROUP_ID_NOT_FOUND, UNRELEASED_INSTANCE_ID, Refused
from tests.support.members import Member

if TYPE_CHECKING:
    from tests.simulation.world import World

_HOLDER = re.compile(r"is owned by (\S+) member")


class Process:
    """One process, from its start to its end or death. `seat` is the place that a later process may take."""

    def __init__(
        self, world: World, seat: int, settings: MemberSettings, habits: Habits, member_class: type[Member]
    ) -> None:
        self.world = world
        self.seat = seat
        self.name = f"p{seat}.{world.next_number('process')}"
        self.settings = settings
        self.member_ids: list[str] = []
        self.member = member_class(settings, new_member_id=self._new_member_id, jitter=world.random.random)
        self.application = Application(self, habits, settings.auto_commit)
        self.heartbeats = Connection(world, self.feed)
        self.requests = Connection(world, self.feed)
        self.alive = True
        #: Whether the application was told of a fatal error.
        self.failed = False
        self.left_at: Instant | None = None
        self.deadline: Instant | None = None
        self.subscription = Subscription()
        self._inbox_at = 0.0
        world.invariants.started(self)

    def _new_member_id(self) -> str:
        self.member_ids.append(f"{self.name}-{len(self.member_ids)}")
        return self.member_ids[-1]

    def start(self, subscription: Subscription) -> None:
        """Subscribe and begin to poll."""
        self.subscription = subscription
        self.application.subscribe(subscription)
        self.application.poll_after(0.01, is_in_poll=False)

    def kill(self) -> None:
        """Kill -9: nothing is said, what was sent is still on its way."""
        self.alive = False
        self.deadline = None
        self.world.invariants.ended_process(self, cleanly=False)

    def has_left(self) -> None:
        """The member has left: a closing process ends, another one goes on polling."""
        self.left_at = self.world.now
        if self.application.closes:
            self.alive = False
            self.deadline = None
            self.world.invariants.ended_process(self, cleanly=True)
        else:
            self.application.poll_after(self.application.habits.think_s, is_in_poll=True)

    # ---- the membership thread ----

    def post(self, event: Event) -> None:
        """Put an event of the application's thread into the member's mailbox."""
        world = self.world
        delay = world.random.random() * world.inbox_delay_s if world.inbox_delay_s else 0.0
        self._inbox_at = max(self._inbox_at, world.now + delay)
        world.at(self._inbox_at, lambda: self.feed(event))

    def feed(self, event: Event) -> None:
        """Hand an event to the core and perform what it orders."""
        if not self.alive:
            return
        world, member = self.world, self.member
        old = member.state
        if isinstance(event, LeaveRequested):
            self.subscription = Subscription()
        effects = member.handle(event, world.now)
        world.note(self, event, effects)
        world.invariants.handled(self, event, old, effects)
        for effect in effects:
            self._perform(effect)
        self.deadline = member.next_deadline()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StateChanged() | InstanceReleased() | Warned():
                pass
            case DescribeGroup():
                self._describe(effect)
            case LearnSessionTimeout():
                learned = SessionTimeoutLearned(session_timeout_s=self.world.coordinator.rules.session_timeout_s)
                self.world.after(2 * self.world.faults.latency_s, lambda: self.feed(learned))
            case SendHeartbeat():
                self._heartbeat(effect)
            case FindCoordinator():
                self._find_coordinator()
            case ResolveTopicIds():
                self._resolve(effect)
            case FetchCommitted():
                self._fetch(effect)
            case CommitOffsets():
                self._commit(effect)
            case _:
                self.application.mail(effect)

    # ---- requests ----

    @property
    def _node(self) -> int | None:
        address = self.member.coordinator.address
        return None if address is None else address.node_id

    def _heartbeat(self, effect: SendHeartbeat) -> None:
        node = self._node
        group_id, beat, request_id = self.settings.group_id, effect.heartbeat, effect.request_id

        def execute() -> Event:
            world = self.world
            answer = world.coordinator.heartbeat(group_id, beat, world.now, node_id=node)
            world.invariants.coordinator_acted(self, beat, answer)
            if isinstance(answer, Refused):
                return rejected(request_id, answer)
            return HeartbeatAnswered(
                request_id=request_id,
                member_epoch=answer.member_epoch,
                heartbeat_interval_s=answer.heartbeat_interval_s,
                assignment=answer.assignment,
            )

        def failed(reason: str) -> Event:
            return HeartbeatFailed(request_id=request_id, reason=reason)

        if node is None:
            self.world.after(0.0, lambda: self.feed(failed("the coordinator is not known")))
        else:
            self.heartbeats.ask(node, execute, failed)

    def _find_coordinator(self) -> None:
        world = self.world
        delay = 2 * world.faults.latency_s

        def look() -> None:
            if not self.alive:
                return
            nodes = [world.coordinator.node_id]
            if world.random.random() < world.faults.metadata_behind:
                nodes = [world.former_node]
            if nodes[0] in world.nodes_down:
                world.after(0.1 + 0.4 * world.random.random(), look)
            else:
                self.feed(CoordinatorFound(coordinator=BrokerAddress(node_id=nodes[0], host="broker", port=9092)))

        world.after(delay, look)

    def _describe(self, effect: DescribeGroup) -> None:
        world, node, request_id = self.world, self._node, effect.request_id

        def execute() -> Event:
            found = world.coordinator.describe(self.settings.group_id, world.now, node_id=node)
            if not isinstance(found, Refused):
                return GroupDescribed(request_id=request_id, holders=found)
            if found.code == GROUP_ID_NOT_FOUND:
                return GroupDescribed(request_id=request_id, holders={})
            return GroupDescribeFailed(request_id=request_id, error=broker_error(found.code, found.message))

        def failed(reason: str) -> Event:
            error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=reason)
            return GroupDescribeFailed(request_id=request_id, error=error)

        if node is None or not world.may_describe:
            world.after(0.0, lambda: self.feed(failed("not authorised, or no coordinator")))
        else:
            self.requests.ask(node, execute, failed)

    def _resolve(self, effect: ResolveTopicIds) -> None:
        world = self.world

        def answer() -> None:
            if not self.alive:
                return
            names = world.coordinator.names_of(effect.topic_ids)
            known = {i: name for i, name in names.items() if world.random.random() >= world.faults.metadata_behind}
            self.feed(TopicIdsResolved(names=known))

        world.after(2 * world.faults.latency_s, answer)

    def _fetch(self, effect: FetchCommitted) -> None:
        world, node, attempt = self.world, self._node, effect.attempt

        def execute() -> Event:
            found = world.coordinator.fetch_committed(
                self.settings.group_id,
                effect.member_id,
                effect.member_epoch,
                effect.partitions,
                world.now,
                node_id=node,
            )
            if isinstance(found, Refused):
                verdict = fetch_verdict(found.code)
                return StartOffsetsFailed(
                    attempt=attempt,
                    error=broker_error(found.code, found.message),
                    retriable=verdict is not FetchVerdict.FINAL,
                    rediscover=verdict is FetchVerdict.REDISCOVER,
                )
            if not all(world.exists(partition) for partition in effect.partitions):
                # ListOffsets of a deleted topic.
                return StartOffsetsFailed(attempt=attempt, error=broker_error(3), retriable=True)
            return StartOffsetsFetched(
                attempt=attempt, offsets={p: at.offset if at is not None else 0 for p, at in found.items()}
            )

        def failed(reason: str) -> Event:
            error = BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=reason)
            return StartOffsetsFailed(attempt=attempt, error=error, retriable=True, rediscover=True)

        if node is None:
            world.after(0.0, lambda: self.feed(failed("the coordinator is not known")))
        else:
            self.requests.ask(node, execute, failed)

    def _commit(self, effect: CommitOffsets) -> None:
        world, node = self.world, self._node

        def execute() -> Event:
            codes = world.coordinator.commit(
                self.settings.group_id, effect.member_id, effect.member_epoch, effect.offsets, world.now, node_id=node
            )
            world.invariants.look_into_journal()
            errors = {p: None if error == 0 else broker_error(error) for p, error in codes.items()}
            verdict = commit_verdict(frozenset(codes.values()))
            return CommitAnswered(commit_id=effect.commit_id, verdict=verdict, errors=errors)

        def failed(reason: str) -> Event:
            return CommitFailed(commit_id=effect.commit_id, reason=reason)

        if node is None:
            world.after(0.0, lambda: self.feed(failed("the coordinator is not known")))
        else:
            self.requests.ask(node, execute, failed)

    def break_connections(self, reason: str) -> None:
        """Break both connections."""
        for connection in (self.heartbeats, self.requests):
            if not connection.break_off(reason) and connection is self.heartbeats and self.alive:
                self.feed(CoordinatorLost(reason=reason))


def rejected(request_id: int, answer: Refused) -> HeartbeatRejected:
    """A refused heartbeat as the wire reports it."""
    holder = _HOLDER.search(answer.message) if answer.code == UNRELEASED_INSTANCE_ID else None
    return HeartbeatRejected(
        request_id=request_id,
        verdict=heartbeat_verdict(answer.code),
        error=broker_error(answer.code, answer.message),
        holder=holder[1] if holder else None,
    )
