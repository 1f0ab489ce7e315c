"""For a scene in any state: each event in a plausible form, and in forms that no correct peer sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.types import (
    Assignment,
    HandOverAnnouncement,
    Holder,
    LeaveOption,
    OffsetAndMetadata,
    Subscription,
    TopicPartition,
)
from tests.membership.builders import (
    A0,
    A1,
    B0,
    COORDINATOR,
    FENCED_EPOCH,
    GROUP_FULL,
    IN_STATE,
    LOADING,
    NAMES,
    NOT_ALLOWED,
    STEP_OF,
    Scene,
    at,
    named,
)
from tests.support.subscriptions import to_a_broker

STRANGE = UUID(int=99)
NOWHERE = TopicPartition("nowhere", 7)


def scene_in(state: MemberState) -> Scene:
    """Return a scene in this state; if the state has heartbeats, one is in flight."""
    scene = IN_STATE[state]()
    return scene.with_heartbeat_in_flight() if state in IN_GROUP or state is MemberState.UNSUBSCRIBING else scene


def request_of(scene: Scene) -> int:
    """Return the request number of the latest heartbeat, or 1 if there was none."""
    return scene.all(ef.SendHeartbeat)[-1].request_id if scene.heartbeats else 1


def attempt_of(scene: Scene) -> int:
    """Return the number of the latest attempt."""
    return scene.context.reconciler.attempt


def _step_done(scene: Scene, *, failed: bool = False) -> ev.StepFinished:
    steps = [effect for effect in scene.effects if type(effect) in STEP_OF]
    kind = STEP_OF[type(steps[-1])] if steps else ev.Step.PAUSE  # type: ignore[index]  # filtered above
    return ev.StepFinished(attempt=attempt_of(scene), step=kind, failed=failed)


def _announcement_to(scene: Scene) -> HandOverAnnouncement:
    return HandOverAnnouncement(predecessor=scene.protocol.member_id, successor="newer", instance_id="i")


#: For each event, a form that a correct application, network or clock could send in this scene.
PLAUSIBLE: Mapping[type[ev.Event], Callable[[Scene], ev.Event]] = {
    ev.Subscribed: lambda _: ev.Subscribed(subscription=Subscription(topics=frozenset({"orders", "more"}))),
    ev.Polled: lambda _: ev.Polled(delivered=True),
    ev.StepFinished: _step_done,
    ev.PositionsReported: lambda _: ev.PositionsReported(commit_id=-1, offsets=at(3, A0)),
    ev.CommitRequested: lambda _: ev.CommitRequested(commit_id=1, offsets=at(3, A0), timeout_s=10.0),
    ev.AssignedByHand: lambda _: ev.AssignedByHand(holds=True),
    ev.AssignedIncrementally: lambda _: ev.AssignedIncrementally(),
    ev.LeaveRequested: lambda _: ev.LeaveRequested(),
    ev.CoordinatorFound: lambda _: ev.CoordinatorFound(coordinator=COORDINATOR),
    ev.CoordinatorLookupFailed: lambda _: ev.CoordinatorLookupFailed(error=NOT_ALLOWED),
    ev.CoordinatorLost: lambda _: ev.CoordinatorLost(reason="closed"),
    ev.HeartbeatAnswered: lambda scene: ev.HeartbeatAnswered(
        request_id=request_of(scene),
        member_epoch=scene.protocol.member_epoch + 1,
        heartbeat_interval_s=5.0,
        assignment=frozenset({A0, A1}),
    ),
    ev.HeartbeatRejected: lambda scene: ev.HeartbeatRejected(
        request_id=request_of(scene), verdict=ev.Verdict.REJOIN, error=FENCED_EPOCH
    ),
    ev.HeartbeatFailed: lambda scene: ev.HeartbeatFailed(request_id=request_of(scene), reason="disconnected"),
    ev.GroupDescribed: lambda _: ev.GroupDescribed(request_id=1, holders={"i": Holder(member_id="other")}),
    ev.GroupDescribeFailed: lambda _: ev.GroupDescribeFailed(request_id=1, error=NOT_ALLOWED),
    ev.HolderChecked: lambda _: ev.HolderChecked(request_id=1, is_dead=True),
    ev.SessionTimeoutLearned: lambda _: ev.SessionTimeoutLearned(session_timeout_s=45.0),
    ev.Warmed: lambda _: ev.Warmed(attempt=1),
    ev.AnnouncementsRead: lambda scene: ev.AnnouncementsRead(
        request_id=1, announcements={NOWHERE: _announcement_to(scene)}
    ),
    ev.AnnouncementsNotRead: lambda _: ev.AnnouncementsNotRead(request_id=1, error=LOADING),
    ev.AnnouncementWritten: lambda _: ev.AnnouncementWritten(request_id=1),
    ev.AnnouncementNotWritten: lambda _: ev.AnnouncementNotWritten(request_id=1, error=NOT_ALLOWED, is_refused=True),
    ev.TopicIdsResolved: lambda _: ev.TopicIdsResolved(names=NAMES),
    ev.TopicsLookedUp: lambda _: ev.TopicsLookedUp(request_id=1, names=frozenset({"orders"})),
    ev.TopicsNotLookedUp: lambda _: ev.TopicsNotLookedUp(request_id=1, error=LOADING),
    ev.StartOffsetsFetched: lambda scene: ev.StartOffsetsFetched(
        attempt=attempt_of(scene), offsets=dict.fromkeys(named(A0, A1), 0)
    ),
    ev.StartOffsetsFailed: lambda scene: ev.StartOffsetsFailed(
        attempt=attempt_of(scene), error=LOADING, retriable=True
    ),
    ev.CommitAnswered: lambda _: ev.CommitAnswered(
        commit_id=1, verdict=ev.CommitVerdict.FINAL, errors=dict.fromkeys(named(A0))
    ),
    ev.CommitFailed: lambda _: ev.CommitFailed(commit_id=1, reason="disconnected"),
    ev.TimePassed: lambda _: ev.TimePassed(),
    ev.Suspended: lambda _: ev.Suspended(seconds=3600.0),
}

_NUMBERS = (-1, 0, 1, 10**6)
_ASSIGNMENTS: tuple[Assignment | None, ...] = (None, frozenset({B0}), frozenset())


def hostile(scene: Scene) -> list[ev.Event]:
    """Return events that no correct broker and no correct application would send in this scene."""
    request, attempt = request_of(scene), attempt_of(scene)
    events: list[ev.Event] = [
        ev.Subscribed(subscription=Subscription()),
        ev.Subscribed(subscription=to_a_broker(pattern="")),
        ev.PositionsReported(commit_id=0, offsets={}),
        ev.PositionsReported(commit_id=10**6, offsets={NOWHERE: OffsetAndMetadata(offset=-1)}),
        ev.CommitRequested(commit_id=-7, offsets=at(-1, A0), timeout_s=-1.0),
        ev.CommitRequested(commit_id=0, offsets={}, timeout_s=0.0),
        ev.CommitRequested(commit_id=2, offsets={NOWHERE: OffsetAndMetadata(offset=0)}, timeout_s=1e9),
        ev.AssignedByHand(holds=False),
        ev.TopicIdsResolved(names={}),
        ev.TopicsLookedUp(request_id=0, names=frozenset({"", "strange"})),
        ev.TopicsLookedUp(request_id=1, names=frozenset(), refused={"": NOT_ALLOWED, "strange": LOADING}),
        ev.TopicsNotLookedUp(request_id=-1, error=LOADING),
        ev.TopicIdsResolved(names={STRANGE: "strange", A0.topic_id: "", B0.topic_id: "orders"}),
        ev.CommitFailed(commit_id=10**6, reason="", retriable=False),
        ev.GroupDescribed(request_id=0, holders={"": Holder(member_id="")}),
        ev.GroupDescribed(request_id=10**6, holders={}),
        ev.GroupDescribeFailed(request_id=-1, error=LOADING),
        ev.Warmed(attempt=-1, failed=True),
        ev.AnnouncementsRead(request_id=1, announcements={}),
        ev.AnnouncementsNotRead(request_id=-1, error=NOT_ALLOWED, is_refused=True),
        ev.AnnouncementWritten(request_id=10**6),
        ev.AnnouncementNotWritten(request_id=0, error=LOADING),
        ev.HolderChecked(request_id=0, is_dead=True),
        ev.SessionTimeoutLearned(session_timeout_s=None),
        ev.SessionTimeoutLearned(session_timeout_s=-1.0),
    ]
    events += [ev.LeaveRequested(option=option) for option in LeaveOption]
    events += [
        ev.StepFinished(attempt=number, step=step, offsets=offsets, failed=failed)
        for number in (-1, attempt - 1, attempt, attempt + 1)
        for step in ev.Step
        for offsets in (at(-5, A0), {NOWHERE: OffsetAndMetadata(offset=1)})
        for failed in (False, True)
    ]
    events += [
        ev.HeartbeatAnswered(
            request_id=number,
            member_epoch=epoch,
            heartbeat_interval_s=interval_s,
            assignment=assignment,
        )
        for number in (0, request)
        for epoch in (-2, -1, 0, 1, 2**31 - 1)
        for interval_s in (-1.0, 1e-9)
        for assignment in _ASSIGNMENTS
    ]
    events += [
        ev.HeartbeatRejected(request_id=number, verdict=verdict, error=error, holder=holder)
        for number in (0, request)
        for verdict in ev.Verdict
        for error, holder in ((GROUP_FULL, None), (LOADING, scene.protocol.member_id), (FENCED_EPOCH, ""))
    ]
    events += [
        ev.HeartbeatFailed(request_id=number, reason="", retriable=retriable)
        for number in (0, request)
        for retriable in (False, True)
    ]
    for number in (*_NUMBERS, attempt):
        events += [
            ev.StartOffsetsFetched(attempt=number, offsets=o) for o in ({}, {NOWHERE: 1}, dict.fromkeys(named(A1), -1))
        ]
        events += [
            ev.StartOffsetsFailed(attempt=number, error=LOADING, retriable=retriable, rediscover=rediscover)
            for retriable in (False, True)
            for rediscover in (False, True)
        ]
    events += [
        ev.CommitAnswered(commit_id=number, verdict=verdict, errors=errors)
        for number in (*_NUMBERS, 5)
        for verdict in ev.CommitVerdict
        for errors in ({}, {NOWHERE: LOADING}, dict.fromkeys(named(A0), LOADING))
    ]
    return events
