"""Owned partitions in heartbeats, and assignments before the response: bugs that the simulation found."""

from __future__ import annotations

from uuid import UUID

from consumer_membership.membership.effects import FetchCommitted, Heartbeat, SendHeartbeat
from consumer_membership.membership.events import (
    CommitFailed,
    CommitRequested,
    CoordinatorFound,
    Event,
    HeartbeatAnswered,
    HeartbeatFailed,
    LeaveRequested,
    Polled,
    StartOffsetsFetched,
    Step,
    StepFinished,
    Subscribed,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import (
    BrokerAddress,
    OffsetAndMetadata,
    Subscription,
    TopicIdPartition,
    TopicPartition,
)
from tests.simulation import internals
from tests.support.protocols import CONSUMER_ONLY

IDS = {"a": UUID(int=1), "b": UUID(int=2)}
A, B = (TopicIdPartition(topic_id, 0) for topic_id in IDS.values())


class Scene:
    """A member and a clock; `sent` is its latest heartbeat."""

    def __init__(self) -> None:
        self.member = MemberCore(
            MemberSettings(group_id="g"), CONSUMER_ONLY, new_member_id=lambda: "m", jitter=lambda: 0.5
        )
        self.now = 100.0
        self.sent: SendHeartbeat | None = None

    def feed(self, *events: Event) -> list[GroupEffect]:
        """Pass events to the member; return its effects."""
        effects = [effect for event in events for effect in self.member.handle(event, self.now)]
        self.sent = next((one for one in reversed(effects) if isinstance(one, SendHeartbeat)), self.sent)
        return effects

    @property
    def heartbeat(self) -> Heartbeat:
        """The latest heartbeat."""
        assert self.sent is not None
        return self.sent.heartbeat

    def answer(self, *assignment: TopicIdPartition) -> list[GroupEffect]:
        """Answer the latest heartbeat with this assignment; without arguments, the assignment is unchanged."""
        assert self.sent is not None
        return self.feed(
            HeartbeatAnswered(
                request_id=self.sent.request_id,
                member_epoch=1,
                heartbeat_interval_s=5.0,
                assignment=frozenset(assignment) or None,
            )
        )

    def fail(self) -> None:
        """Let the latest heartbeat fail, find the coordinator again, and wait for the backoff."""
        assert self.sent is not None
        self.feed(HeartbeatFailed(request_id=self.sent.request_id, reason="no answer in time"), FOUND)
        self.now += 1.0
        self.feed(TimePassed())

    def finish(self, step: Step) -> list[GroupEffect]:
        """Report that the application has completed the ordered step; return the effects."""
        return self.feed(StepFinished(attempt=self.member.newest_attempt, step=step))

    def take(self, *names: str) -> list[GroupEffect]:
        """Report the start offset of partition 0 of these topics, and complete their assignment."""
        offsets = {TopicPartition(name, 0): 0 for name in names}
        self.feed(StartOffsetsFetched(attempt=self.member.newest_attempt, offsets=offsets))
        return self.finish(Step.ASSIGN)


FOUND = CoordinatorFound(coordinator=BrokerAddress(node_id=1, host="broker", port=9092))


def joined() -> Scene:
    """Return a member with the target a and b that owns a and acknowledges it; the name of b is unknown."""
    scene = Scene()
    scene.feed(Subscribed(subscription=Subscription(topics=frozenset(IDS))), Polled(), FOUND)
    scene.answer(A, B)
    scene.feed(TopicIdsResolved(names={IDS["a"]: "a"}))
    scene.take("a")
    return scene


def test_no_new_partition_is_assigned_before_the_last_heartbeat_is_answered() -> None:
    """After a heartbeat without a partition, a member does not assign the partition before the response.

    The coordinator may have treated the partition as revoked, and have assigned it to another member.
    """
    scene = joined()
    assert scene.heartbeat.owned == {A}
    resolved = scene.feed(TopicIdsResolved(names={IDS["b"]: "b"}))
    answered = scene.answer()
    kinds = [[type(effect) for effect in effects] for effects in (resolved, answered)]
    assert (FetchCommitted in kinds[0], FetchCommitted in kinds[1]) == (False, True)


def test_failed_heartbeat_is_repeated_and_answered_before_a_new_assignment() -> None:
    """After a failed heartbeat a member assigns no partition before the next response: its target may be outdated."""
    scene = joined()
    scene.feed(TopicIdsResolved(names={IDS["b"]: "b"}))
    scene.fail()
    assert (scene.heartbeat.is_full, scene.heartbeat.owned) == (True, {A})
    assert internals.reconciler(scene.member).is_idle
    scene.answer(A)
    assert (internals.reconciler(scene.member).is_idle, internals.ownership(scene.member).owned.keys()) == (True, {A})


def test_leaving_member_claims_revoked_partitions_until_it_has_left() -> None:
    """A leaving member claims a revoked partition while its commit is pending, so that no other owner commits first."""
    scene = joined()
    scene.answer()
    partition = TopicPartition("a", 0)
    scene.feed(CommitRequested(commit_id=1, offsets={partition: OffsetAndMetadata(offset=5)}, timeout_s=60.0))
    scene.feed(LeaveRequested())
    scene.finish(Step.PAUSE)
    scene.finish(Step.REVOKE)
    scene.now += 6.0
    scene.feed(TimePassed(), CommitFailed(commit_id=1, reason="no answer in time"), FOUND)
    scene.fail()
    assert (scene.heartbeat.is_full, scene.heartbeat.owned) == (True, {A})
