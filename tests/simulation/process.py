"""One process of an application: a member with the real core, the application's thread, and its connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from consumer_membership.assignors.assignor import Topics
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic.exchanges import (
    AssignmentComputed,
    AssignorNotified,
    ComputeAssignment,
    DescribeTopics,
    NotifyAssignor,
    SendJoin,
    SendSync,
    TopicsDescribed,
)
from consumer_membership.membership.effects import (
    CheckHolder,
    DescribeGroup,
    FindCoordinator,
    InstanceReleased,
    LearnSessionTimeout,
    ProtocolChosen,
    ReadAnnouncements,
    ResolveTopicIds,
    SendHeartbeat,
    StateChanged,
    Warned,
    WriteAnnouncement,
)
from consumer_membership.membership.events import (
    AnnouncementNotWritten,
    AnnouncementsNotRead,
    CoordinatorFound,
    CoordinatorLost,
    HeartbeatFailed,
    HolderChecked,
    LeaveRequested,
    SessionTimeoutLearned,
    StartOffsetsFailed,
    StartOffsetsFetched,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.member_ids import new_member_id
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.recorder.ring import Recorder
from consumer_membership.runtime.network.outbox import Outbox, Turn, WithdrawnError
from consumer_membership.testing.coordinators.member_requests import ORDERS, MemberOrder, ResponseEvent, failure_of
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import JOIN_EPOCH, BrokerAddress, Instant, Subscription
from tests.simulation import internals
from tests.simulation.application import Behavior
from tests.simulation.network import Connection

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

#: The only errors in a simulation that a retry, a rejoin or another coordinator does not resolve.
MAY_END_WITH = frozenset(
    {"UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED", "UNKNOWN_MEMBER_ID"}
)


class Process:
    """One process, from its start to its end. `slot` is a number that later processes may use again."""

    may_end_with = MAY_END_WITH

    def __init__(
        self,
        simulation: Simulation,
        slot: int,
        settings: MemberSettings,
        protocols: ProtocolSettings,
        behavior: Behavior,
    ) -> None:
        self.simulation = simulation
        self.slot = slot
        self.name = f"p{slot}.{simulation.next_number('process')}"
        self.settings = settings
        self.member_ids: list[str] = []
        #: `asked_at` is when the application last subscribed outside the group. The member then keeps its member id.
        self.started_at = self.asked_at = simulation.now
        self.is_killed = False
        made = simulation.make_member(
            settings, protocols, new_member_id=self._new_member_id, jitter=simulation.random.random
        )
        #: The recorder of the member, if the simulation records its members.
        self.recorder = made if isinstance(made, Recorder) else None
        self.member: MemberCore = made.member if isinstance(made, Recorder) else made
        self._handle = made.handle
        self.application = simulation.make_application(self, behavior, settings.auto_commit)
        #: The connection for heartbeats of the consumer protocol, or for JoinGroup and SyncGroup.
        self.membership = Connection(simulation, self._on_response, self.name, self._on_end)
        self.requests = Connection(simulation, self._on_response, self.name, self._on_end)
        #: The connection to the coordinator of the helper group, which is looked up before the first request and after
        #: each failure.
        self.announcements = Connection(simulation, self._on_response, self.name, self._on_end)
        self._helper_node: int | None = None
        self._outbox: Outbox = simulation.make_outbox()
        self._turns: dict[int, Turn] = {}
        self.alive = True
        #: Whether the application received a fatal error.
        self.failed = False
        self.left_at: Instant | None = None
        self.deadline: Instant | None = None
        self.subscription = Subscription()
        #: The events and actions that wait while the process is stopped.
        self._held_back: list[GroupEvent] | None = None
        self._postponed: list[Callable[[], object]] = []
        self._inbox_at = 0.0
        simulation.invariants.started(self)

    def _new_member_id(self) -> str:
        """Return a member id that contains the start time, and a readable text instead of random characters."""
        created = new_member_id(int(self.started_at * 1000), bytes(10))[:12]
        self.member_ids.append(created + f"{self.name}-{len(self.member_ids)}".rjust(10, "-")[-10:])
        return self.member_ids[-1]

    @property
    def view(self) -> MembershipView:
        """The public view of the membership."""
        return self.member.view()

    @property
    def state(self) -> MemberState:
        """The public state of the member."""
        return internals.shown(self.member)

    def start(self, subscription: Subscription) -> None:
        """Subscribe and begin to poll."""
        self.subscription = subscription
        self.application.subscribe(subscription)
        self.application.poll_after(0.01, is_in_poll=False)

    def kill(self) -> None:
        """Kill the process (SIGKILL): it sends no leave, and earlier requests still arrive."""
        self.alive, self.is_killed = False, True
        self.deadline = None
        self.simulation.invariants.ended_process(self, cleanly=False)

    def stop(self) -> None:
        """Stop the process (SIGSTOP): it handles no event, and earlier requests still arrive."""
        self._held_back, self.deadline = [], None

    def resume(self) -> None:
        """Continue the process (SIGCONT): it immediately handles all events that arrived while it was stopped."""
        held_back, self._held_back = self._held_back or [], None
        postponed, self._postponed = self._postponed, []
        for event in (*held_back, TimePassed()):
            self.feed(event)
        for action in postponed:
            self.run(action)

    def run(self, action: Callable[[], object]) -> None:
        """Run the next action of a thread.

        If the process is stopped, the action runs in `resume`; if the process has ended, it does not run.
        """
        if self.alive and self._held_back is not None:
            self._postponed.append(action)
        elif self.alive:
            action()

    def has_left(self) -> None:
        """Continue after the leave: a closing process ends, and other processes poll again."""
        self.left_at = self.simulation.now
        if self.application.closes:
            self.alive = False
            self.deadline = None
            self.simulation.invariants.ended_process(self, cleanly=True)
        else:
            self.application.poll_after(self.application.behavior.think_s, is_in_poll=True)

    # ---- the membership thread ----

    def post(self, event: GroupEvent) -> None:
        """Put an event of the application's thread into the member's mailbox."""
        simulation = self.simulation
        delay = simulation.random.random() * simulation.inbox_delay_s if simulation.inbox_delay_s else 0.0
        self._inbox_at = max(self._inbox_at, simulation.now + delay)
        simulation.at(self._inbox_at, lambda: self.feed(event))

    def feed(self, event: GroupEvent) -> None:
        """Pass an event to the core and perform its effects."""
        if not self.alive:
            return
        if self._held_back is not None:
            self._held_back.append(event)
            return
        simulation, member = self.simulation, self.member
        old = self.state
        if isinstance(event, LeaveRequested):
            self.subscription = Subscription()
        simulation.invariants.about_to_handle(self, event)
        effects = self._handle(event, simulation.now)
        if self.recorder is not None:
            self.recorder.record_view(member.view())
        simulation.log_event(self, event, effects)
        simulation.invariants.handled(self, old, effects)
        for effect in effects:
            self._perform(effect)
        self.deadline = member.next_deadline()

    def wake(self) -> None:
        """Call the member at its deadline."""
        self.feed(TimePassed())

    def _perform(self, effect: GroupEffect) -> None:
        simulation = self.simulation
        match effect:
            case StateChanged() | InstanceReleased() | Warned() | ProtocolChosen():
                pass
            case FindCoordinator():
                simulation.after(2 * simulation.faults.latency_s, self._look_up)
            case CheckHolder():
                is_dead = simulation.has_proof_of_death(effect.member_id)
                self._answer(HolderChecked(request_id=effect.request_id, is_dead=is_dead))
            case LearnSessionTimeout():
                self._answer(SessionTimeoutLearned(session_timeout_s=simulation.coordinator.rules.session_timeout_s))  # type: ignore[attr-defined]  # only in the consumer protocol
            case ResolveTopicIds():
                simulation.after(2 * simulation.faults.latency_s, lambda: self._resolve(effect))
            case DescribeTopics():
                topics = Topics(partitions=simulation.coordinator.partitions_of(effect.topics))
                self._answer(TopicsDescribed(request_id=effect.request_id, topics=topics))
            case ComputeAssignment():
                assignor = next(one for one in self.member.classic.assignors if one.name == effect.assignor)
                # Without the checks of the shell, because an invariant checks the assignments.
                shares = {m: frozenset(share) for m, share in assignor.assign(effect.topics, effect.members).items()}  # type: ignore[arg-type]  # built-in assignors assign TopicPartitions
                self._answer(AssignmentComputed(generation=effect.generation, assignments=shares))  # type: ignore[arg-type]  # built-in assignors assign TopicPartitions
            case NotifyAssignor():
                self._answer(AssignorNotified(request_id=effect.request_id))
            case _ if isinstance(effect, ORDERS):
                self._send(effect)
            case _:
                self.application.mail(effect)  # type: ignore[arg-type]  # the earlier cases handle the other effects

    def _answer(self, event: GroupEvent) -> None:
        """Answer an order that needs no request to the coordinator."""
        self.simulation.after(2 * self.simulation.faults.latency_s, lambda: self.feed(event))

    def _look_up(self) -> None:
        simulation = self.simulation
        if not self.alive:
            return
        node = simulation.coordinator.node_id
        if simulation.random.random() < simulation.faults.metadata_behind:
            node = simulation.former_node
        if node in simulation.nodes_down:
            simulation.after(0.1 + 0.4 * simulation.random.random(), self._look_up)
        else:
            self.feed(CoordinatorFound(coordinator=BrokerAddress(node_id=node, host="broker", port=9092)))

    def _resolve(self, effect: ResolveTopicIds) -> None:
        simulation = self.simulation
        if not self.alive:
            return
        names = simulation.coordinator.names_of(effect.topic_ids)
        known = {
            i: name for i, name in names.items() if simulation.random.random() >= simulation.faults.metadata_behind
        }
        self.feed(TopicIdsResolved(names=known))

    # ---- requests ----

    def _send(self, order: MemberOrder) -> None:
        address, simulation = self.member.coordinator, self.simulation
        if isinstance(order, ReadAnnouncements | WriteAnnouncement):
            self._exchange_announcement(order)
        elif address is None:
            simulation.after(0.0, lambda: self.feed(failure_of(order, "the coordinator is not known")))
        elif isinstance(order, DescribeGroup) and not simulation.may_describe:
            simulation.after(0.0, lambda: self.feed(failure_of(order, "not authorised")))
        elif isinstance(order, SendHeartbeat):
            self._send_in_turn(order, address.node_id)
        else:
            connection = self.membership if isinstance(order, SendJoin | SendSync) else self.requests
            connection.send(address.node_id, order, self.member.protocol)

    def _send_in_turn(self, order: SendHeartbeat, node_id: int) -> None:
        """Send a heartbeat in its turn, as the runtime does.

        Before some joins the runtime describes the group, which delays the heartbeat.
        """
        simulation, protocol, heartbeat = self.simulation, self.member.protocol, order.heartbeat
        is_join = heartbeat.member_epoch == JOIN_EPOCH
        looks = not order.is_consumer_group and (
            order.refuse_conversion or (is_join and heartbeat.instance_id is not None)
        )

        def write() -> None:
            try:
                turn.write()
            except WithdrawnError as error:
                turn.end()
                self.feed(HeartbeatFailed(request_id=order.request_id, reason=str(error), is_sent=False))
                return
            self._turns[order.request_id] = turn
            self.membership.send(node_id, order, protocol)

        def begin() -> None:
            simulation.after(2 * simulation.faults.latency_s if looks else 0.0, lambda: self.run(write))

        turn = self._outbox.enter(node_id, begin, is_join=is_join, is_leave=heartbeat.is_leave)

    def _exchange_announcement(self, order: ReadAnnouncements | WriteAnnouncement) -> None:
        """Send a request to the coordinator of the helper group."""
        simulation = self.simulation

        def found() -> None:
            is_behind = simulation.random.random() < simulation.faults.metadata_behind
            self._helper_node = simulation.helper.former_node if is_behind else simulation.helper.node_id
            send()

        def send() -> None:
            assert self._helper_node is not None
            self.announcements.send(self._helper_node, order, self.member.protocol)

        if self._helper_node is None:
            simulation.after(2 * simulation.faults.latency_s, lambda: self.run(found))
        else:
            send()

    def _on_end(self, order: MemberOrder) -> None:
        """End the turn of a request that was answered or has failed."""
        if isinstance(order, SendHeartbeat):
            self._turns.pop(order.request_id).end()

    def _on_response(self, event: ResponseEvent) -> None:
        """Pass an answer or a timeout to the member."""
        if isinstance(event, AnnouncementsNotRead | AnnouncementNotWritten):
            self._helper_node = None
        if isinstance(event, StartOffsetsFetched) and not all(map(self.simulation.exists, event.offsets)):
            # ListOffsets fails for a deleted topic.
            self.feed(StartOffsetsFailed(attempt=event.attempt, error=broker_error(3), retriable=True))
        else:
            self.feed(event)

    def cut_off(self, *, is_cut: bool, with_helper: bool = True) -> None:
        """Cut the path between the process and the coordinator in both directions, or restore it.

        `with_helper` also cuts the path to the coordinator of the helper group, which may be another broker.
        """
        self.membership.is_cut = self.requests.is_cut = is_cut
        self.announcements.is_cut = is_cut and with_helper

    def break_connections(self, reason: str) -> None:
        """Break all connections."""
        self.announcements.break_off(reason)
        for connection in (self.membership, self.requests):
            if not connection.break_off(reason) and connection is self.membership and self.alive:
                self.feed(CoordinatorLost(reason=reason))
