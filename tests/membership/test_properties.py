"""Property tests: every event in every state, and a member whose peers act in any order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import get_args

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.consumer.protocol import IGNORED
from consumer_membership.membership.states import CAUSES, TARGETS, MemberState
from consumer_membership.types import BrokerError, ConflictPolicy, Holder, LeaveOption, Subscription, TopicIdPartition
from tests.membership.builders import (
    A0,
    A1,
    B0,
    BAD_REGEX,
    COORDINATOR,
    FENCED_EPOCH,
    GROUP_FULL,
    LOADING,
    NAMES,
    NOT_ALLOWED,
    UNKNOWN_MEMBER,
    UNRELEASED,
    Scene,
    at,
)
from tests.membership.order_contract import OrderContract
from tests.membership.sample_events import PLAUSIBLE, hostile, scene_in
from tests.support.subscriptions import to_a_broker

S = MemberState
EVENTS: tuple[type[ev.Event], ...] = get_args(ev.Event)
PAIRS = [(state, kind) for state in MemberState for kind in EVENTS]

#: The states in which the core drops an event unread. The table repeats `IGNORED`, so that a change of it is noticed.
DROPPED: Mapping[type[ev.Event], frozenset[MemberState]] = {
    ev.HeartbeatAnswered: frozenset({S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL}),
    ev.HeartbeatRejected: frozenset({S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL}),
    ev.HeartbeatFailed: frozenset({S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL}),
    ev.StepFinished: frozenset({S.JOINING, S.ACK, S.STABLE}),
    ev.GroupDescribed: frozenset(MemberState) - {S.JOINING},
    ev.GroupDescribeFailed: frozenset(MemberState) - {S.JOINING},
    ev.HolderChecked: frozenset(MemberState) - {S.JOINING},
    ev.TopicIdsResolved: frozenset({S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL, S.UNSUBSCRIBING}),
    ev.StartOffsetsFetched: frozenset(MemberState) - {S.RECONCILE},
    ev.StartOffsetsFailed: frozenset(MemberState) - {S.RECONCILE},
}


def name_of(value: object) -> str:
    """Return the name of a state or an event in a test's id."""
    return value.__name__ if isinstance(value, type) else str(value)


def test_every_event_has_a_plausible_form() -> None:
    """The sample events cover every event."""
    assert set(PLAUSIBLE) == set(EVENTS)


def test_ignored_pairs_are_the_expected_ones() -> None:
    """Each pair of state and event is handled or listed in `DROPPED`."""
    assert dict(IGNORED) == DROPPED


@pytest.mark.parametrize(("state", "kind"), PAIRS, ids=name_of)
def test_event_fires_the_triggers_that_the_table_gives_it(
    state: MemberState, kind: type[ev.Event], fired: list[Enum]
) -> None:
    """No event fires a trigger whose causes do not include the event, in any state."""
    scene = scene_in(state)
    fired.clear()
    scene.feed(PLAUSIBLE[kind](scene))
    assert [one for one in fired if CAUSES[one] and kind not in CAUSES[one]] == []
    for trigger in fired:
        state = TARGETS[state, trigger]
    assert scene.state is state


@pytest.mark.parametrize(("state", "kind"), [(s, k) for s, k in PAIRS if s in DROPPED.get(k, ())], ids=name_of)
def test_ignored_event_changes_nothing(state: MemberState, kind: type[ev.Event]) -> None:
    """M108: An event that the state ignores has only the effects of the passing time, which every event has."""
    twin = scene_in(state).feed(ev.TimePassed())
    events = [event for event in (PLAUSIBLE[kind](twin), *hostile(twin)) if isinstance(event, kind)]
    for event in events:
        scene = scene_in(state).feed(event)
        assert (scene.last, scene.view) == (twin.last, twin.view), event


@pytest.mark.slow
@pytest.mark.parametrize("state", MemberState, ids=name_of)
def test_hostile_events_break_no_rule(state: MemberState) -> None:
    """No event in any state raises an exception, causes an illegal transition or sends a forbidden heartbeat."""
    for event in hostile(scene_in(state)):
        scene = scene_in(state)
        contract = OrderContract(scene)
        contract.feed(event)
        contract.feed(ev.Polled())
        scene.now += 1.0
        contract.feed(ev.TimePassed())


@pytest.mark.parametrize("state", MemberState, ids=name_of)
def test_hostile_events_in_a_row_break_no_rule(state: MemberState) -> None:
    """A sequence of hostile events, with polls and time between them, breaks no rule."""
    scene = scene_in(state)
    contract = OrderContract(scene)
    for number, event in enumerate(hostile(scene)):
        contract.feed(event)
        if number % 7 == 0:
            contract.feed(ev.Polled())
            scene.now += 0.3


# ---- a member whose peers act in any order --------------------------------------------------------------------------

#: The default run is deterministic, so that a failing build keeps failing. `MEMBERSHIP_EXAMPLES` widens a manual
#: search.
EXAMPLES = int(os.environ.get("MEMBERSHIP_EXAMPLES", "60"))
IS_WIDE = "MEMBERSHIP_EXAMPLES" in os.environ
PROFILE = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    derandomize=not IS_WIDE,
    database=None,
    deadline=None,
    print_blob=True,
)

PARTITIONS = (A0, A1, B0)
assignments = strategies.none() | strategies.frozensets(strategies.sampled_from(PARTITIONS))
offsets_of = strategies.sets(strategies.sampled_from(PARTITIONS)).map(lambda partitions: at(4, *sorted(partitions)))
subscriptions = strategies.sampled_from(
    [
        Subscription(topics=frozenset({"orders"})),
        Subscription(topics=frozenset({"orders", "payments"})),
        to_a_broker(pattern="o.*"),
    ]
)
errors = strategies.sampled_from([FENCED_EPOCH, LOADING, GROUP_FULL, BAD_REGEX, NOT_ALLOWED, UNRELEASED])


class Peers(RuleBasedStateMachine):
    """The application, coordinator and network of one member; each acts in any order, if it has a reason to act."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.contract = OrderContract(self.scene)
        self.heartbeats: list[ef.SendHeartbeat] = []
        self.commits: list[ef.CommitOffsets] = []
        self.fetches: list[ef.FetchCommitted] = []
        self.lookups: list[ef.ResolveTopicIds] = []
        self.descriptions: list[ef.DescribeGroup] = []
        self.checks: list[ef.CheckHolder] = []
        self.collections: list[ef.CollectPositions] = []
        self.past: list[ev.Event] = []
        self.commit_id = 0
        self.seen = 0

    @initialize(
        instance=strategies.sampled_from(
            [{}, {"instance_id": "i"}, {"instance_pool": ("i", "j")}]  # no instance id, one instance id, a pool of two
        ),
        policy=strategies.sampled_from(ConflictPolicy),
        auto_commit=strategies.booleans(),
    )
    def begin(self, instance: dict, policy: ConflictPolicy, auto_commit: bool) -> None:  # type: ignore[type-arg]  # noqa: FBT001 - Hypothesis draws it
        self.scene = Scene(**instance, conflict_policy=policy, auto_commit=auto_commit)
        self.contract = OrderContract(self.scene)
        self.subscribes(Subscription(topics=frozenset({"orders", "payments"})))

    def feed(self, event: ev.Event) -> None:
        self.contract.feed(event)
        self.past.append(event)
        self.sort()

    def sort(self) -> None:
        """Sort the new effects into the lists from which the peers take their orders."""
        for effect in self.scene.effects[self.seen :]:
            match effect:
                case ef.SendHeartbeat():
                    self.heartbeats.append(effect)
                case ef.CommitOffsets():
                    self.commits.append(effect)
                case ef.FetchCommitted():
                    self.fetches.append(effect)
                case ef.ResolveTopicIds():
                    self.lookups.append(effect)
                case ef.DescribeGroup():
                    self.descriptions.append(effect)
                case ef.CheckHolder():
                    self.checks.append(effect)
                case ef.CollectPositions():
                    self.collections.append(effect)
                case _:
                    pass
        self.seen = len(self.scene.effects)

    # ---- the application ----

    @rule(subscription=subscriptions)
    def subscribes(self, subscription: Subscription) -> None:
        self.feed(ev.Subscribed(subscription=subscription))

    @rule(delivered=strategies.booleans())
    def polls(self, delivered: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        self.feed(ev.Polled(delivered=delivered))

    @precondition(lambda self: self.contract.steps)
    @rule(offsets=offsets_of, failed=strategies.sampled_from([False, False, False, True]))
    def performs_a_step(self, offsets: dict, failed: bool) -> None:  # type: ignore[type-arg]  # noqa: FBT001 - Hypothesis draws it
        self.contract.perform(offsets, failed=failed)
        self.sort()

    @rule(offsets=offsets_of, timeout_s=strategies.sampled_from([0.0, 1.0, 60.0]))
    def commits_offsets(self, offsets: dict, timeout_s: float) -> None:  # type: ignore[type-arg]  # Hypothesis draws it
        self.commit_id += 1
        self.feed(ev.CommitRequested(commit_id=self.commit_id, offsets=offsets, timeout_s=timeout_s))

    @precondition(lambda self: self.collections)
    @rule(offsets=offsets_of)
    def reports_positions(self, offsets: dict) -> None:  # type: ignore[type-arg]  # Hypothesis draws it
        self.feed(ev.PositionsReported(commit_id=self.collections.pop().commit_id, offsets=offsets))

    @rule(holds=strategies.booleans())
    def assigns_by_hand(self, holds: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        self.feed(ev.AssignedByHand(holds=holds))

    @precondition(lambda self: self.scene.state is not S.UNSUBSCRIBED)
    @rule(option=strategies.sampled_from(LeaveOption), is_meant=strategies.integers(0, 4))
    def leaves(self, option: LeaveOption, is_meant: int) -> None:
        if is_meant == 0:
            self.feed(ev.LeaveRequested(option=option))

    # ---- the network ----

    @precondition(lambda self: not self.scene.context.coordinator.is_known)
    @rule()
    def finds_the_coordinator(self) -> None:
        if self.scene.context.coordinator.searching_since is not None:
            self.feed(ev.CoordinatorFound(coordinator=COORDINATOR))

    @precondition(lambda self: not self.scene.context.coordinator.is_known)
    @rule(often=strategies.integers(0, 3))
    def may_not_look_up(self, often: int) -> None:
        if often == 0:
            self.feed(ev.CoordinatorLookupFailed(error=NOT_ALLOWED))

    @precondition(lambda self: self.scene.context.coordinator.is_known)
    @rule()
    def loses_the_coordinator(self) -> None:
        self.feed(ev.CoordinatorLost(reason="closed"))

    @precondition(lambda self: self.heartbeats)
    @rule(assignment=assignments, bump=strategies.integers(0, 2))
    def grants_a_heartbeat(self, assignment: frozenset[TopicIdPartition] | None, bump: int) -> None:
        order = self.heartbeats.pop()
        heartbeat = order.heartbeat
        if heartbeat.is_leave:
            epoch = heartbeat.member_epoch
        else:
            epoch = heartbeat.member_epoch + max(bump, int(heartbeat.member_epoch == 0))
            assignment = assignment or frozenset() if heartbeat.is_full else assignment
        self.feed(
            ev.HeartbeatAnswered(
                request_id=order.request_id,
                member_epoch=epoch,
                heartbeat_interval_s=5.0,
                assignment=None if heartbeat.is_leave else assignment,
            )
        )

    @precondition(lambda self: self.heartbeats)
    @rule(
        verdict=strategies.sampled_from(ev.Verdict),
        error=errors,
        is_own=strategies.booleans(),
        often=strategies.integers(0, 3),
    )
    def refuses_a_heartbeat(self, verdict: ev.Verdict, error: object, is_own: bool, often: int) -> None:  # noqa: FBT001 - Hypothesis draws it
        is_final = verdict in (ev.Verdict.FATAL, ev.Verdict.GROUP_GONE, ev.Verdict.UNRELEASED)
        if is_final and often:
            return
        order = self.heartbeats.pop()
        holder = self.scene.protocol.member_id if is_own else "another"
        self.feed(
            ev.HeartbeatRejected(request_id=order.request_id, verdict=verdict, error=error, holder=holder)  # type: ignore[arg-type]  # one of `errors`
        )

    @precondition(lambda self: self.heartbeats)
    @rule(place=strategies.integers(0, 3))
    def drops_a_heartbeat(self, place: int) -> None:
        order = self.heartbeats.pop(place % len(self.heartbeats))
        self.feed(ev.HeartbeatFailed(request_id=order.request_id, reason="disconnected"))

    @precondition(lambda self: self.lookups)
    @rule(topics=strategies.sets(strategies.sampled_from(sorted(NAMES))))
    def resolves_names(self, topics: set) -> None:  # type: ignore[type-arg]  # Hypothesis draws it
        asked = self.lookups.pop().topic_ids
        self.feed(ev.TopicIdsResolved(names={topic: NAMES[topic] for topic in asked & topics}))

    @precondition(lambda self: self.descriptions)
    @rule(
        holders=strategies.one_of(
            strategies.none(),
            strategies.dictionaries(
                strategies.sampled_from(["i", "j", "k"]),
                strategies.builds(
                    Holder,
                    member_id=strategies.sampled_from(["member-1", "another"]),
                    member_epoch=strategies.sampled_from([-2, 0, 5]),
                ),
            ),
        )
    )
    def answers_a_description(self, holders: dict | None) -> None:  # type: ignore[type-arg]  # Hypothesis draws it
        request_id = self.descriptions.pop().request_id
        if holders is None:
            self.feed(ev.GroupDescribeFailed(request_id=request_id, error=NOT_ALLOWED))
        else:
            self.feed(ev.GroupDescribed(request_id=request_id, holders=holders))

    @precondition(lambda self: self.checks)
    @rule(is_dead=strategies.booleans())
    def answers_a_check(self, is_dead: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        self.feed(ev.HolderChecked(request_id=self.checks.pop().request_id, is_dead=is_dead))

    @rule(seconds=strategies.sampled_from([None, 45.0]))
    def tells_the_session_timeout(self, seconds: float | None) -> None:
        self.feed(ev.SessionTimeoutLearned(session_timeout_s=seconds))

    @precondition(lambda self: self.fetches)
    @rule(fate=strategies.sampled_from(["found", "found", "retry", "moved"]))
    def answers_start_offsets(self, fate: str) -> None:
        order = self.fetches.pop()
        if fate == "found":
            self.feed(ev.StartOffsetsFetched(attempt=order.attempt, offsets=dict.fromkeys(order.partitions, 0)))
        else:
            self.feed(
                ev.StartOffsetsFailed(attempt=order.attempt, error=LOADING, retriable=True, rediscover=fate == "moved")
            )

    @precondition(lambda self: self.commits)
    @rule(verdict=strategies.sampled_from(ev.CommitVerdict), is_good=strategies.booleans())
    def answers_a_commit(self, verdict: ev.CommitVerdict, is_good: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        order = self.commits.pop(0)
        error = None if is_good and verdict is ev.CommitVerdict.FINAL else LOADING
        self.feed(
            ev.CommitAnswered(commit_id=order.commit_id, verdict=verdict, errors=dict.fromkeys(order.offsets, error))
        )

    @precondition(lambda self: self.commits)
    @rule(retriable=strategies.booleans())
    def drops_a_commit(self, retriable: bool) -> None:  # noqa: FBT001 - Hypothesis draws it
        self.feed(ev.CommitFailed(commit_id=self.commits.pop().commit_id, reason="disconnected", retriable=retriable))

    @precondition(lambda self: self.past)
    @rule(place=strategies.integers(0, 10_000))
    def repeats_an_answer(self, place: int) -> None:
        """The network delivers an old event once more."""
        event = self.past[place % len(self.past)]
        if not isinstance(event, ev.CommitRequested | ev.CoordinatorFound):
            self.feed(event)

    # ---- the clock ----

    @precondition(lambda self: self.scene.member.next_deadline() is not None)
    @rule()
    def deadline_comes(self) -> None:
        self.scene.now = self.scene.member.next_deadline() or self.scene.now
        self.feed(ev.TimePassed())

    @rule(seconds=strategies.sampled_from([0.001, 0.05, 0.3, 0.3, 1.0, 7.0, 7.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.scene.now += seconds
        self.feed(ev.TimePassed())

    # ---- all peers together ----

    @rule(count=strategies.integers(1, 6))
    def all_behave(self, count: int) -> None:
        """All peers act correctly for a while, so that runs reach later states."""
        for _ in range(count):
            self.behave()

    @rule()
    def all_behave_for_long(self) -> None:
        """All peers act correctly until the member is at rest."""
        for _ in range(60):
            if not self.behave():
                break

    @precondition(lambda self: self.scene.state in (S.STABLE, S.RECONCILE, S.ACK))
    @rule(wanted=strategies.frozensets(strategies.sampled_from(PARTITIONS)))
    def target_changes(self, wanted: frozenset[TopicIdPartition]) -> None:
        """The coordinator's next response has another target and a higher epoch."""
        if self.has_heartbeat_in_flight():
            self.grants_a_heartbeat(wanted, 1)

    @rule(error=strategies.sampled_from([FENCED_EPOCH, UNKNOWN_MEMBER]))
    def is_fenced(self, error: BrokerError) -> None:
        """The coordinator does not know the member or its epoch."""
        if self.has_heartbeat_in_flight():
            request = self.heartbeats.pop().request_id
            self.feed(ev.HeartbeatRejected(request_id=request, verdict=ev.Verdict.REJOIN, error=error))

    @rule(error=strategies.sampled_from([GROUP_FULL, BAD_REGEX]), often=strategies.integers(0, 3))
    def is_refused(self, error: BrokerError, often: int) -> None:
        """The coordinator rejects the member permanently."""
        if often == 0 and self.has_heartbeat_in_flight():
            request = self.heartbeats.pop().request_id
            self.feed(ev.HeartbeatRejected(request_id=request, verdict=ev.Verdict.FATAL, error=error))

    def has_heartbeat_in_flight(self) -> bool:
        """Let time pass until the next heartbeat is sent, if one is due at all. Return whether one is in flight."""
        for _ in range(3):
            if self.scene.protocol.heartbeats.in_flight is not None:
                break
            if (deadline := self.scene.member.next_deadline()) is not None:
                self.scene.now = max(self.scene.now, deadline)
                self.feed(ev.TimePassed())
        return bool(self.heartbeats) and self.heartbeats[-1].request_id == self.scene.protocol.heartbeats.in_flight

    # ---- at the end ----

    def teardown(self) -> None:
        """Without further faults the member comes to rest: STABLE with its target, outside the group, or FATAL."""
        for _ in range(400):
            if not self.behave():
                break
        wanted = bool(self.scene.context.watch.subscription)
        at_rest = (S.STABLE, S.FATAL) if wanted else (S.UNSUBSCRIBED, S.FATAL)
        assert self.scene.state in at_rest, (self.scene.state, self.scene.view.waits_for)
        if self.scene.state is S.STABLE:
            assert self.scene.owned == self.scene.view.target == self.contract.held
            assert self.scene.view.pending_revocation == frozenset()

    def behave(self) -> bool:
        """Perform the next action of a correct peer. Return False when the member is at rest."""
        scene = self.scene
        if self.contract.steps:
            self.contract.perform({}, failed=False)
            self.sort()
        elif scene.context.coordinator.searching_since is not None:
            self.finds_the_coordinator()
        elif self.heartbeats:
            self.answer_heartbeat(self.heartbeats.pop())
        elif self.descriptions:
            self.feed(ev.GroupDescribed(request_id=self.descriptions.pop().request_id, holders={}))
        elif self.lookups:
            self.lookups.clear()
            self.feed(ev.TopicIdsResolved(names=NAMES))
        elif self.fetches:
            order = self.fetches.pop()
            self.feed(ev.StartOffsetsFetched(attempt=order.attempt, offsets=dict.fromkeys(order.partitions, 0)))
        elif self.commits:
            commit = self.commits.pop()
            errors = dict.fromkeys(commit.offsets)
            self.feed(ev.CommitAnswered(commit_id=commit.commit_id, verdict=ev.CommitVerdict.FINAL, errors=errors))
        elif self.collections:
            self.feed(ev.PositionsReported(commit_id=self.collections.pop().commit_id, offsets={}))
        else:
            return self.wait()
        return True

    def answer_heartbeat(self, order: ef.SendHeartbeat) -> None:
        """Answer a full heartbeat with two partitions, and any other heartbeat without a new assignment."""
        heartbeat = order.heartbeat
        self.feed(
            ev.HeartbeatAnswered(
                request_id=order.request_id,
                member_epoch=heartbeat.member_epoch if heartbeat.is_leave else max(1, heartbeat.member_epoch),
                heartbeat_interval_s=5.0,
                assignment=frozenset({A0, B0}) if heartbeat.is_full else None,
            )
        )

    def wait(self) -> bool:
        """Poll; if the poll orders nothing, advance to the next deadline. Return False when the member is at rest."""
        self.feed(ev.Polled())
        if self.contract.steps or self.heartbeats or self.fetches or self.commits or self.descriptions:
            return True
        wants = bool(self.scene.context.watch.subscription)
        is_calm = self.scene.state in ((S.STABLE, S.FATAL) if wants else (S.UNSUBSCRIBED, S.FATAL))
        if is_calm and self.scene.context.reconciler.is_idle:
            return False
        if (deadline := self.scene.member.next_deadline()) is not None:
            self.scene.now = deadline
            self.feed(ev.TimePassed())
        return True


Peers.TestCase.settings = PROFILE
TestPeers = pytest.mark.slow(Peers.TestCase)
