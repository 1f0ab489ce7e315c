"""For a classic scene in any state: each event in a plausible form, and in forms that no correct peer sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.types import BrokerError, LeaveOption, OffsetAndMetadata, Subscription, TopicPartition
from tests.membership.classic.scene import (
    _STEPS,
    A0,
    A1,
    COORDINATOR,
    EAGER,
    MAX_POLL_S,
    UNKNOWN,
    ClassicScene,
    at,
    joining,
    stable,
)
from tests.membership.order_contract import check_view_outside_group
from tests.support.subscriptions import to_a_member

S = ClassicState
V = ex.ClassicVerdict
NOWHERE = TopicPartition("nowhere", 7)
FENCED = BrokerError(code=82, name="FENCED_INSTANCE_ID")
#: The events that a classic member handles; those of the other protocol come after them.
EVENTS: tuple[type, ...] = (*get_args(ev.Event), *get_args(ex.ClassicEvent)[:-1], *get_args(ex.LeaderEvent))
ME = {"m": MemberSubscription(topics=frozenset({"a"}))}

#: A scene for each state; if the state belongs to a leader, the member leads.
IN_STATE: Mapping[ClassicState, Callable[[], ClassicScene]] = {
    S.UNSUBSCRIBED: lambda: ClassicScene().subscribe("a"),
    S.PREPARING: lambda: stable(A0, assignors=(EAGER,)).rebalance(),
    S.JOINING: joining,
    S.SYNCING: lambda: joining().gather(1, leads=True, members=ME).described(a=1).computed(m=[A0]),
    S.RECONCILE: lambda: joining().gather(1).share(A0),
    S.STABLE: lambda: stable(A0),
    S.FENCED: lambda: stable(A0).heartbeat_rejected(V.REJOIN, UNKNOWN),
    S.STALE: lambda: stable(A0).after(MAX_POLL_S),
    S.UNSUBSCRIBING: lambda: stable(A0).leave(),
    S.FATAL: lambda: stable(A0).heartbeat_rejected(V.FATAL, FENCED),
}


def scene_in(state: ClassicState) -> ClassicScene:
    """Return a scene in this state; if the state has heartbeats, one is in flight."""
    scene = IN_STATE[state]()
    if state in (S.PREPARING, S.RECONCILE, S.STABLE, S.UNSUBSCRIBING):
        scene.heartbeat()
    return scene


def _numbers(scene: ClassicScene) -> dict[str, int]:
    """Return the numbers of the latest requests, or 1 for a request that was not sent."""
    kinds: dict[str, type[Any]] = {
        "join": ex.SendJoin,
        "sync": ex.SendSync,
        "heartbeat": ex.SendClassicHeartbeat,
        "topics": ex.DescribeTopics,
    }
    kinds |= {"notified": ex.NotifyAssignor}
    sent = {name: [one.request_id for one in scene.all(kind)] for name, kind in kinds.items()}
    return {name: ids[-1] if ids else 1 for name, ids in sent.items()}


def _step_done(scene: ClassicScene) -> ev.StepFinished:
    steps = [effect for effect in scene.effects if type(effect) in _STEPS]
    kind = _STEPS[type(steps[-1])] if steps else ev.Step.PAUSE
    return ev.StepFinished(attempt=scene.context.reconciler.attempt, step=kind)


def plausible(scene: ClassicScene) -> dict[type, object]:
    """Return, for each event, a form that a correct application, network or clock could send in this scene."""
    number, attempt, member_id = _numbers(scene), scene.context.reconciler.attempt, scene.protocol.member_id or "m"
    generation = scene.protocol.generation
    committed = ev.CommitAnswered(commit_id=1, verdict=ev.CommitVerdict.FINAL, errors={A0: None})
    events = [
        ev.Subscribed(subscription=Subscription(topics=frozenset({"a", "b"}))),
        ev.Polled(delivered=True),
        _step_done(scene),
        ev.PositionsReported(commit_id=-1, offsets=at(3, A0)),
        ev.CommitRequested(commit_id=1, offsets=at(3, A0), timeout_s=10.0),
        ev.AssignedByHand(holds=True),
        ev.AssignedIncrementally(),
        ev.LeaveRequested(),
        ev.CoordinatorFound(coordinator=COORDINATOR),
        ev.CoordinatorLookupFailed(error=UNKNOWN),
        ev.CoordinatorLost(reason="closed"),
        ev.HeartbeatAnswered(request_id=1, member_epoch=1, heartbeat_interval_s=5.0, assignment=None),
        ev.HeartbeatRejected(request_id=1, verdict=ev.Verdict.REJOIN, error=UNKNOWN),
        ev.HeartbeatFailed(request_id=1, reason="disconnected"),
        ev.GroupDescribed(request_id=1, holders={}),
        ev.GroupDescribeFailed(request_id=1, error=UNKNOWN),
        ev.SessionTimeoutLearned(session_timeout_s=45.0),
        ev.Warmed(attempt=1),
        ev.HolderChecked(request_id=1, is_dead=True),
        ev.AnnouncementsRead(request_id=1, announcements={}),
        ev.AnnouncementsNotRead(request_id=1, error=UNKNOWN),
        ev.AnnouncementWritten(request_id=1),
        ev.AnnouncementNotWritten(request_id=1, error=UNKNOWN),
        ev.TopicIdsResolved(names={}),
        ev.TopicsLookedUp(request_id=1, names=frozenset({"a"})),
        ev.TopicsNotLookedUp(request_id=1, error=UNKNOWN),
        ev.StartOffsetsFetched(attempt=attempt, offsets={A0: 0}),
        ev.StartOffsetsFailed(attempt=attempt, error=UNKNOWN, retriable=True),
        committed,
        ev.CommitFailed(commit_id=1, reason="disconnected"),
        ev.TimePassed(),
        ev.Suspended(seconds=3600.0),
        ex.JoinAnswered(
            request_id=number["join"], generation=5, member_id=member_id, leader_id="leader", protocol_name="plan"
        ),
        ex.JoinRejected(request_id=number["join"], verdict=V.REJOIN, error=UNKNOWN),
        ex.SyncAnswered(request_id=number["sync"], assignment=frozenset({A0})),
        ex.SyncRejected(request_id=number["sync"], verdict=V.REJOIN_KEEP_ID, error=UNKNOWN),
        ex.ClassicHeartbeatAnswered(request_id=number["heartbeat"]),
        ex.ClassicHeartbeatRejected(request_id=number["heartbeat"], verdict=V.REJOIN_NOW, error=UNKNOWN),
        ex.ExchangeFailed(request_id=number["heartbeat"], reason="disconnected"),
        ex.ClassicLeft(request_id=1),
        ex.ClassicCommitAnswered(answer=committed),
        ex.TopicsDescribed(request_id=number["topics"], topics=Topics(partitions={"a": 2})),
        ex.TopicsNotDescribed(request_id=number["topics"], error=UNKNOWN),
        ex.AssignmentComputed(generation=generation, assignments={member_id: frozenset({A0})}),
        ex.AssignmentFailed(generation=generation, error=UNKNOWN),
        ex.AssignorNotified(request_id=number["notified"]),
    ]
    return {type(event): event for event in events}


def hostile(scene: ClassicScene) -> list[object]:
    """Return events that no correct broker and no correct application would send in this scene."""
    number, attempt, generation = _numbers(scene), scene.context.reconciler.attempt, scene.protocol.generation
    events: list[object] = [
        ev.Subscribed(subscription=Subscription()),
        ev.Subscribed(subscription=to_a_member(pattern="")),
        ev.Subscribed(subscription=to_a_member(pattern="^(")),
        ev.PositionsReported(commit_id=0, offsets={}),
        ev.CommitRequested(commit_id=-7, offsets=at(-1, A0), timeout_s=-1.0),
        ev.CommitRequested(commit_id=0, offsets={}, timeout_s=0.0),
        ev.CommitRequested(commit_id=2, offsets={NOWHERE: OffsetAndMetadata(offset=0)}, timeout_s=1e9),
        ev.CommitFailed(commit_id=10**6, reason="", retriable=False),
        ex.ExchangeFailed(request_id=-1, reason=""),
        *(ex.ExchangeFailed(request_id=number[name], reason="") for name in ("join", "sync", "heartbeat")),
        *(ev.LeaveRequested(option=option) for option in LeaveOption),
        *(
            ev.StepFinished(attempt=one, step=step, offsets=at(-5, A0), failed=failed)
            for one in (-1, attempt - 1, attempt, attempt + 1)
            for step in ev.Step
            for failed in (False, True)
        ),
        *(
            ex.JoinAnswered(
                request_id=one,
                generation=g,
                member_id=member_id,
                leader_id="m",
                protocol_name=protocol,
                skip_assignment=skip,
            )
            for one in (0, number["join"])
            for g in (-1, 0, 2**31 - 1)
            for member_id in ("", "m")
            for protocol in ("plan", "")
            for skip in (False, True)
        ),
        *(
            ex.SyncAnswered(request_id=one, assignment=share)
            for one in (0, number["sync"])
            for share in (frozenset[TopicPartition](), frozenset({NOWHERE}), frozenset({A0, A1}))
        ),
        *(
            kind(request_id=number[name], verdict=verdict, error=UNKNOWN)
            for kind, name in (
                (ex.JoinRejected, "join"),
                (ex.SyncRejected, "sync"),
                (ex.ClassicHeartbeatRejected, "heartbeat"),
            )
            for verdict in V
        ),
        *(
            ex.ClassicCommitAnswered(
                answer=ev.CommitAnswered(commit_id=one, verdict=verdict, errors=errors), membership=membership
            )
            for one in (-1, 1, 2, 10**6)
            for verdict in ev.CommitVerdict
            for errors in ({}, {A0: UNKNOWN})
            for membership in (None, *V)
        ),
        *(ev.StartOffsetsFetched(attempt=attempt, offsets=offsets) for offsets in ({}, {NOWHERE: 1}, {A0: -1})),
        *(ev.StartOffsetsFailed(attempt=attempt, error=UNKNOWN, retriable=r, rediscover=True) for r in (True, False)),
        ex.TopicsDescribed(request_id=-1, topics=Topics(partitions={})),
        ex.TopicsDescribed(request_id=number["topics"], topics=Topics(partitions={})),
        *(
            ex.AssignmentComputed(generation=g, assignments={"stranger": frozenset({NOWHERE})})
            for g in (-1, generation)
        ),
        *(ex.AssignmentFailed(generation=g, error=UNKNOWN) for g in (-1, 10**6, generation)),
    ]
    return events


def check_rules(scene: ClassicScene) -> None:
    """Check the rules after any event: silence outside the group, one request at a time, future deadlines."""
    silent = scene.state in (S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL)
    if silent:
        sent = scene.new(ex.SendClassicHeartbeat) + scene.new(ex.SendJoin) + scene.new(ex.SendSync)
        assert sent == [], scene.last
    check_view_outside_group(scene.member.view())
    assert len(scene.new(ex.SendJoin)) + len(scene.new(ex.SendSync)) <= 1, scene.last
    assert all(heartbeat.generation >= 0 for heartbeat in scene.new(ex.SendClassicHeartbeat))
    for join in scene.new(ex.SendJoin):
        assert all(subscription.owned == scene.owned for _, subscription in join.protocols)
        assert not scene.owned or join.protocols[0][1].generation >= 0
    if scene.state is S.FATAL:
        assert scene.member.last_error is not None
    assert len(scene.new(ef.LeaveCompleted)) <= 1, scene.last
    deadline = scene.member.next_deadline()
    if deadline is not None and deadline <= scene.now:
        # `TimePassed` must take each action that is due now; otherwise the runtime would spin.
        scene.feed(ev.TimePassed())
        later = scene.member.next_deadline()
        assert later is None or later > scene.now, (scene.state, later, scene.now)
