"""A member of a cluster inside the test process; it replaces the membership thread.

It has the real state machine. Its requests go to the simulated coordinator without a network. The coordinator responds
when the engine runs the request, or later if the response depends on other members.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol, assert_never

from consumer_membership.assignors.assignor import AssignmentObserver, Topics
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.config import ByDuration, OffsetReset, StartSettings
from consumer_membership.errors import AssignmentError
from consumer_membership.membership.classic.exchanges import (
    AssignmentComputed,
    AssignmentFailed,
    AssignorNotified,
    ComputeAssignment,
    DescribeTopics,
    NotifyAssignor,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    TopicsDescribed,
)
from consumer_membership.membership.effects import (
    ApplicationEffect,
    CheckHolder,
    CommitOffsets,
    DescribeGroup,
    FetchCommitted,
    FindCoordinator,
    LearnSessionTimeout,
    LookUpTopics,
    ObserverEffect,
    ProtocolChosen,
    ReadAnnouncements,
    ResolveTopicIds,
    SendHeartbeat,
    WriteAnnouncement,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    HolderChecked,
    Polled,
    SessionTimeoutLearned,
    StartOffsetsFetched,
    TimePassed,
    TopicIdsResolved,
    TopicsLookedUp,
)
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.view import MembershipView
from consumer_membership.recorder.dumps import Dumps
from consumer_membership.recorder.ring import Recorder
from consumer_membership.runtime.line import CommittedOffsetsQuestion, EndOffsets, EndOffsetsQuestion, Line
from consumer_membership.runtime.membership_thread import MemberFigures, ThreadSettings, Watcher
from consumer_membership.runtime.network.log_observer import LogObserver
from consumer_membership.runtime.network.member_requests import NetworkOrder
from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.exchanges import Answer, Fetched
from consumer_membership.testing.coordinators.member_requests import MemberOrder, event_of, failure_of
from consumer_membership.testing.engine import ClusterEngine
from consumer_membership.testing.log import Log
from consumer_membership.translation.announcements import helper_group
from consumer_membership.types import (
    FATAL_CODE,
    BrokerAddress,
    BrokerError,
    GroupProtocol,
    TopicPartition,
)

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from consumer_membership.health.handlers import HandlerFact

#: How long a member waits for a response that depends on other members, in seconds.
_PATIENCE_S = 10.0
#: librdkafka's OFFSET_INVALID: with auto.offset.reset=error the handle reports an error for the partition.
_NO_OFFSET = -1001
#: A member that received records within this time counts as active; in seconds.
_ACTIVE_S = 1.0


class MemberCluster(Protocol):
    """The cluster of a member."""

    engine: ClusterEngine
    log: Log
    session_timeout_s: float

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator of all groups."""

    def wall_s(self) -> float:
        """Return the time of day, in seconds since 1970."""

    def new_member_id(self) -> str:
        """Return the next member id."""

    def jitter(self) -> float:
        """Return the next random number below 1."""

    def send(self, exchange: FakeExchange, group_id: str, node_id: int) -> None:
        """Send the request to a node; `exchange.answer` is called with the response, immediately or later."""

    def look_up(self, topics: frozenset[str], *, may_create: bool) -> frozenset[str]:
        """Return the topics that exist."""


@dataclass(slots=True, eq=False)
class FakeExchange:
    """One request of a member, until its response or its timeout."""

    member: FakeMember
    order: MemberOrder
    protocol: GroupProtocol
    is_over: bool = False

    def answer(self, answer: Answer) -> None:
        """Pass the response to the member."""
        if not self.is_over:
            self.is_over = True
            self.member.answered(self.order, answer, self.protocol)

    def give_up(self) -> None:
        """Report to the member that no response arrived in time."""
        if not self.is_over:
            self.is_over = True
            self.member.feed(failure_of(self.order, "no response in time"))


class FakeMember:
    """The member of one consumer, with the interface of `runtime.membership_thread.MembershipThread`."""

    def __init__(self, cluster: MemberCluster, line: Line, settings: ThreadSettings) -> None:
        self._cluster = cluster
        self._engine = cluster.engine
        self._line = line
        self._settings = settings
        recorder = Recorder(
            settings.member,
            settings.protocols,
            new_member_id=cluster.new_member_id,
            jitter=cluster.jitter,
            is_on=settings.recorder.is_on,
        )
        self._recorder = recorder
        self._dumps = Dumps(recorder, settings.recorder)
        self._member = recorder.member
        self._log = LogObserver(settings.connection.client_id)
        self._latest = self._member.view()
        self._watcher: Watcher | None = None
        self._counts = (0, 0)
        self._delivered_at = float("-inf")
        self._has_started = self._has_stopped = False
        line.connect(self, self._latest)

    @property
    def group_id(self) -> str:
        """The group of this member."""
        return self._settings.member.group_id

    @property
    def client_id(self) -> str:
        """The value of `client.id`."""
        return self._settings.connection.client_id

    @property
    def view(self) -> MembershipView:
        """The latest snapshot of the member."""
        return self._latest

    # ---- the application's requests ----

    def start(self) -> None:
        """Start the member. Idempotent."""
        with self._engine.exclusive():
            if not self._has_started:
                self._has_started = True
                self._engine.add(self)

    def ring(self) -> None:
        """Process the requests that the application has posted."""
        if self._has_started:
            with self._engine.exclusive():
                self._engine.soon(self._take_posts)

    @property
    def is_calm(self) -> bool:
        """Whether the application's progress is sampled rarely: always False."""
        return False

    def sample_soon(self) -> None:
        """Do nothing: the application's progress is sampled before each deadline."""

    def watch(self, watcher: Watcher) -> MembershipView:
        """Call this with the outcome of each later event; return the view before the first of these events."""
        self._watcher = watcher
        return self._latest

    def set_credentials(self, username: str, password: str) -> None:
        """Accept any credentials."""

    def figures(self) -> MemberFigures:
        """Return no figures, because there are no connections."""
        return MemberFigures()

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write the recorded events to a file."""
        return self._dumps.write(cause, path)

    def dump_automatically(self, kind: str, cause: str) -> None:
        """Write a recording if the settings require one."""
        self._dumps.write_automatically(kind, cause)

    def note_handlers(self, fact: HandlerFact) -> None:
        """Keep a fact about handlers for recordings."""
        self._recorder.note_handlers(fact, self._engine.now())

    def stop(self, timeout_s: float) -> None:  # noqa: ARG002 - the member ends immediately
        """End the member without a request."""
        with self._engine.exclusive():
            self._has_stopped = True
            self._engine.remove(self)
            self._line.close()

    # ---- time ----

    def next_deadline(self) -> float | None:
        """Return the time of the state machine's next timer."""
        return self._member.next_deadline()

    def pass_time(self, now: float) -> None:
        """Sample the application's polls, and then process the timers that are due."""
        self._sample(now)
        self.feed(TimePassed())

    def _sample(self, now: float) -> None:
        polls, records = self._settings.progress()
        if records != self._counts[1]:
            self._delivered_at = now
        has_polled = polls != self._counts[0]
        self._counts = (polls, records)
        if has_polled:
            self.feed(Polled(delivered=now - self._delivered_at < _ACTIVE_S))

    # ---- the state machine ----

    def _take_posts(self) -> None:
        for post in self._line.take_posts():
            match post:
                case CommittedOffsetsQuestion():
                    group = self._cluster.coordinator.groups.get(self.group_id)
                    known = group.committed if group is not None else {}
                    if post.answer.set_running_or_notify_cancel():
                        post.answer.set_result({one: known.get(one) for one in post.partitions})
                case EndOffsetsQuestion():
                    ends = {one: self._cluster.log.end(one) for one in post.partitions if one in self._cluster.log}
                    if post.answer.set_running_or_notify_cancel():
                        post.answer.set_result(EndOffsets(high=ends, stable=ends))
                case _:
                    self.feed(post)

    def feed(self, event: GroupEvent) -> None:
        """Pass an event to the state machine, and perform the resulting effects."""
        if self._has_stopped:
            return
        deadline = self._member.next_deadline()
        now = self._engine.now()
        if deadline is not None and now >= deadline and not isinstance(event, Polled | TimePassed):
            self._sample(now)
        effects = self._recorder.handle(event, now)
        if not effects and isinstance(event, Polled | TimePassed):
            return
        self._latest = view = self._member.view()
        self._recorder.record_view(view)
        self._log.observed(event, effects, view)
        self._settings.ledger.note(event, effects, view, monotonic())
        if self._watcher is not None:
            self._watcher(effects, view)
        self._perform(effects, view)

    def _perform(self, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        self._line.show(view, *(effect for effect in effects if isinstance(effect, ApplicationEffect)))
        for effect in effects:
            if not isinstance(effect, ApplicationEffect | ObserverEffect | ProtocolChosen):
                self._begin(effect)

    def _begin(self, order: NetworkOrder) -> None:
        self._engine.soon(lambda: self._request(order))

    # ---- requests ----

    def _request(self, order: NetworkOrder) -> None:  # noqa: C901, PLR0912 - one case for each order
        cluster = self._cluster
        match order:
            case FindCoordinator():
                node = BrokerAddress(node_id=cluster.coordinator.node_id, host="fake", port=9092)
                self.feed(CoordinatorFound(coordinator=node))
            case CheckHolder():
                self.feed(HolderChecked(request_id=order.request_id, is_dead=False))
            case LearnSessionTimeout():
                self.feed(SessionTimeoutLearned(session_timeout_s=cluster.session_timeout_s))
            case ResolveTopicIds():
                self.feed(TopicIdsResolved(names=cluster.coordinator.names_of(order.topic_ids)))
            case LookUpTopics():
                may_create = self._settings.connection.allow_auto_create_topics
                wanted = order.topics if order.topics is not None else frozenset(cluster.coordinator.topics)
                names = cluster.look_up(wanted, may_create=may_create)
                self.feed(TopicsLookedUp(request_id=order.request_id, names=names))
            case DescribeTopics():
                topics = Topics(partitions=cluster.coordinator.partitions_of(order.topics))
                self.feed(TopicsDescribed(request_id=order.request_id, topics=topics))
            case ComputeAssignment():
                self.feed(self._assign(order))
            case NotifyAssignor():
                self.feed(self._notify(order))
            case ReadAnnouncements() | WriteAnnouncement():
                self._send(order, helper_group(self.group_id), cluster.coordinator.node_id)
            case (
                SendHeartbeat()
                | DescribeGroup()
                | SendJoin()
                | SendSync()
                | SendClassicHeartbeat()
                | SendClassicLeave()
                | CommitOffsets()
                | FetchCommitted()
            ):
                known = self._member.coordinator
                if known is None:
                    self.feed(failure_of(order, "the coordinator is unknown"))
                else:
                    self._send(order, self.group_id, known.node_id)
            case _:
                assert_never(order)

    def _send(self, order: MemberOrder, group_id: str, node_id: int) -> None:
        if self._has_stopped:
            return
        exchange = FakeExchange(self, order, self._member.protocol)
        self._cluster.send(exchange, group_id, node_id)
        if not exchange.is_over:
            patience_s = order.rebalance_timeout_s + _PATIENCE_S if isinstance(order, SendJoin) else _PATIENCE_S
            self._engine.later(patience_s, exchange.give_up)

    def answered(self, order: MemberOrder, answer: Answer, protocol: GroupProtocol) -> None:
        """Pass the response to the state machine."""
        if isinstance(order, FetchCommitted) and isinstance(answer, Fetched):
            self.feed(StartOffsetsFetched(attempt=order.attempt, offsets=self._starts(answer)))
        else:
            self.feed(event_of(order, answer, protocol))

    def _starts(self, answer: Fetched) -> dict[TopicPartition, int]:
        """Return the committed offsets; partitions without one start according to `auto.offset.reset`."""
        cluster, start = self._cluster, self._settings.start
        return {
            partition: _reset(cluster, start, partition) if found is None else found.offset
            for partition, found in answer.offsets.items()
        }

    # ---- a classic group's leader ----

    def _assign(self, order: ComputeAssignment) -> GroupEvent:
        assignor = next(one for one in self._member.classic.assignors if one.name == order.assignor)
        try:
            checked = assign_checked(assignor, order.topics, order.members)
        except AssignmentError as error:
            return AssignmentFailed(generation=order.generation, error=_failure(assignor.name, str(error)))
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            message = f"{type(error).__name__}: {error}"
            return AssignmentFailed(generation=order.generation, error=_failure(assignor.name, message))
        return AssignmentComputed(
            generation=order.generation, assignments=checked.assignments, user_data=checked.user_data
        )

    def _notify(self, order: NotifyAssignor) -> GroupEvent:
        assignor = next(one for one in self._member.classic.assignors if one.name == order.assignor)
        if isinstance(assignor, AssignmentObserver):
            assignor.on_assignment(order.assignment, order.generation)
        return AssignorNotified(request_id=order.request_id)


def _reset(cluster: MemberCluster, start: StartSettings, partition: TopicPartition) -> int:
    log = cluster.log
    match start.reset:
        case OffsetReset.EARLIEST:
            return 0
        case OffsetReset.LATEST:
            return max(log.end(partition), 0)
        case OffsetReset.ERROR:
            return _NO_OFFSET
        case ByDuration() as duration:
            found = log.at_time(partition, duration.moment_ms(cluster.wall_s()))
            return max(log.end(partition), 0) if found is None else found
        case _:
            assert_never(start.reset)


def _failure(name: str, message: str) -> BrokerError:
    return BrokerError(code=FATAL_CODE, name="_FATAL", message=f"the assignor {name!r} failed: {message}")
