"""`MembershipLedger` counts the events of a member; the state machine is the real one, in virtual time."""

from __future__ import annotations

import pytest

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.metrics.membership_ledger import (
    NO_ANSWER,
    MembershipCounts,
    MembershipLedger,
    RebalanceCause,
    Standstill,
)
from consumer_membership.types import BrokerError, Holder, TopicPartition
from tests.membership.builders import A0, A1, A2, FENCED_EPOCH, Scene
from tests.membership.classic.scene import ClassicScene

C = RebalanceCause
S = Standstill
T0, T1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Counted(Scene):
    """A member whose ledger receives the events that the member's observers receive."""

    def __init__(self, **settings: object) -> None:
        self.ledger = MembershipLedger()
        super().__init__(**settings)

    def feed(self, event: ev.Event) -> Scene:
        super().feed(event)
        self.ledger.note(event, self.last, self.view, self.now)
        return self

    @property
    def counts(self) -> MembershipCounts:
        return self.ledger.counts(self.now)

    @property
    def causes(self) -> dict[RebalanceCause, int]:
        """The causes of rebalances so far, with their counts."""
        return {cause: count for cause, count in self.counts.rebalances.items() if count}

    def stood(self, side: Standstill) -> tuple[int, float]:
        """Return the number of partitions without records, and the total of their times in seconds."""
        found = self.counts.standstill[side]
        return found.count, found.sum_s

    def join(self) -> Counted:
        """Join with A0 and A1; on_assign takes two seconds."""
        self.subscribe("orders").poll().found().target(1, A0, A1).resolve(A0.topic_id).offsets()
        self.now += 2.0
        self.finish().answer()
        return self

    def give_up(self) -> Counted:
        """Release A1 and receive A2: the poll takes 1 s, on_revoke 2 s, on_assign 3 s, the coordinator 4 s."""
        self.target(2, A0, A2)
        self.now += 1.0
        self.finish()
        self.now += 2.0
        self.finish().offsets()
        self.now += 3.0
        self.finish()
        self.now += 4.0
        self.answer()
        return self


class CountedClassic(ClassicScene):
    """A classic member whose ledger receives the events that the member's observers receive."""

    def __init__(self) -> None:
        self.ledger = MembershipLedger()
        super().__init__()

    def feed(self, event: GroupEvent) -> CountedClassic:
        super().feed(event)
        self.ledger.note(event, self.last, self.member.view(), self.now)
        return self

    @property
    def counts(self) -> MembershipCounts:
        return self.ledger.counts(self.now)


def test_join_counts_as_a_rebalance_from_the_assignment_to_its_completion() -> None:
    """A join counts as one rebalance, from RECONCILING until the assignment is complete, as Java counts it."""
    scene = Counted().join()
    counts = scene.counts
    assert (scene.causes, counts.rebalance.count, counts.rebalance.sum_s) == ({C.JOINED: 1}, 1, 2.0)
    assert (counts.rebalanced_at, counts.rebalances_failed) == (scene.now, 0)
    assert scene.stood(S.TAKEN) == (2, 4.0)


def test_moved_partition_stands_still_until_the_coordinator_knows_it_is_free() -> None:
    """Moved partitions have a time without records, and kept partitions do not.

    The time of a received partition counts from the coordinator's assignment.
    """
    scene = Counted().join().give_up()
    assert scene.causes == {C.JOINED: 1, C.ASSIGNMENT: 1}
    assert (scene.stood(S.GIVEN_UP), scene.stood(S.TAKEN), scene.stood(S.KEPT)) == ((1, 10.0), (3, 10.0), (0, 0.0))


def test_rebalance_after_a_new_subscription_has_the_cause_subscription() -> None:
    """The next rebalance after a new subscription has this cause, because the member cannot detect another cause."""
    scene = Counted().join()
    scene.subscribe("orders", "payments").target(2, A0).finish().finish().answer()
    assert scene.causes == {C.JOINED: 1, C.SUBSCRIPTION: 1}


def test_fence_fails_the_rebalance_and_returned_partitions_count_as_kept() -> None:
    """A fence fails the rebalance; a partition that the member then fetches again had no records since its loss."""
    scene = Counted().join()
    scene.target(2, A0).fence()
    scene.finish()
    scene.now += 5.0
    scene.settle().target(3, A0, A1).offsets()
    scene.finish().answer()
    counts = scene.counts
    assert scene.causes == {C.JOINED: 1, C.ASSIGNMENT: 1, C.FENCED: 1, C.REJOINED: 1}
    assert (counts.rebalances_failed, counts.fences, counts.rebalance.count) == (1, 1, 2)
    assert counts.rebalances_failed_per_s == 1 / 30
    assert scene.ledger.counts(scene.now + 60.0).rebalances_failed_per_s == 0.0
    assert scene.stood(S.KEPT)[0] == 2
    assert scene.stood(S.GIVEN_UP) == (0, 0.0)


def test_missed_poll_and_leave_are_separate_rebalance_causes() -> None:
    """An exceeded poll interval and a leave both remove all partitions and have separate causes."""
    scene = Counted(max_poll_interval_s=60.0).join()
    scene.after(61.0).finish()
    assert (scene.causes[C.NOT_POLLED], scene.counts.poll_timeouts) == (1, 1)
    left = Counted().join()
    left.leave().settle()
    assert (left.causes[C.LEFT], left.counts.rebalances_failed) == (1, 0)
    assert left.stood(S.GIVEN_UP)[0] == 2


def test_heartbeat_duration_excludes_failed_heartbeats() -> None:
    """The round trip is measured from request to response. A heartbeat without a response counts as a failure only."""
    scene = Counted().join()
    before = scene.counts.heartbeat
    scene.with_heartbeat_in_flight()
    assert scene.counts.heartbeat_sent_at == scene.now
    scene.now += 0.25
    scene.answer()
    after = scene.counts.heartbeat
    assert (after.count - before.count, after.sum_s - before.sum_s) == (1, 0.25)
    scene.with_heartbeat_in_flight().drop().found()
    assert scene.counts.heartbeat.count == after.count
    scene.fence()
    assert scene.counts.heartbeat_failures == {NO_ANSWER: 1, FENCED_EPOCH.name: 1}


def test_commits_are_timed_and_each_error_is_counted_once_per_commit() -> None:
    """Each commit response is timed, and one commit counts each of its errors once."""
    scene = Counted().join()
    scene.commit(7, A0, A1)
    scene.now += 0.5
    scene.committed()
    assert (scene.counts.commit.count, scene.counts.commit.sum_s, scene.counts.commit_failures) == (1, 0.5, {})
    refused = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED")
    scene.commit(8, A0, A1, commit_id=2).committed(error=refused)
    assert (scene.counts.commit.count, scene.counts.commit_failures) == (2, {refused.name: 1})


def test_takeover_and_instance_id_fence_are_counted() -> None:
    """The member that takes over an instance id counts a takeover, the former holder counts a fence."""
    scene = Counted().join()
    released = ef.InstanceReleased(instance_id="i", holder=Holder(member_id="m"))
    scene.ledger.note(ev.TimePassed(), (released,), scene.view, scene.now)
    scene.with_heartbeat_in_flight().reject(ev.Verdict.FATAL, BrokerError(code=82, name="FENCED_INSTANCE_ID"))
    assert (scene.counts.takeovers, scene.counts.fences, scene.causes[C.FATAL]) == (1, 1, 1)


def test_classic_rebalance_counts_from_the_join_and_is_no_failed_heartbeat() -> None:
    """A classic rebalance counts from the join, as in Java.

    The heartbeat response that requests it is not a failure. A cooperative member that releases a partition joins
    twice, and each join is a rebalance.
    """
    scene = CountedClassic()
    scene.subscribe("a").poll().found()
    scene.now += 3.0
    scene.gather(1).share(T0, T1).settle()
    counts = scene.counts
    assert (counts.rebalances[C.JOINED], counts.rebalance.count, counts.rebalance.sum_s) == (1, 1, 3.0)
    scene.rebalance()
    began_at = scene.now
    scene.now += 2.0
    scene.gather(2).share(T0).settle()
    scene.gather(3).share(T0).settle()
    counts = scene.counts
    assert (counts.rebalances[C.ASSIGNMENT], counts.rebalance.count, counts.rebalanced_at) == (2, 3, began_at + 2.0)
    assert (counts.heartbeat.count, counts.heartbeat_failures, counts.rebalances_failed) == (1, {}, 0)
    given_up = counts.standstill[S.GIVEN_UP]
    assert (given_up.count, counts.standstill[S.TAKEN].count) == (1, 2)


def test_classic_joins_and_syncs_are_timed_from_request_to_success() -> None:
    """Joins and syncs are timed from the request to the successful response, as in Java.

    Rejected requests and requests without a response are not counted.
    """
    scene = CountedClassic()
    scene.subscribe("a").poll().found()
    scene.now += 1.0
    scene.join_rejected(ex.ClassicVerdict.MEMBER_ID_REQUIRED, BrokerError(code=79, name="MEMBER_ID_REQUIRED"), "m")
    scene.feed(ex.ExchangeFailed(request_id=scene.join.request_id, reason="disconnected")).found().after(60.0)
    assert (len(scene.all(ex.SendJoin)), scene.counts.join.count) == (3, 0)
    scene.now += 3.0
    scene.gather(1)
    scene.now += 0.5
    scene.share(T0).settle()
    counts = scene.counts
    assert (counts.join.count, counts.join.sum_s) == (1, 3.0)
    assert (counts.sync.count, counts.sync.sum_s) == (1, 0.5)


@pytest.mark.parametrize("now", [0.0, 1e6])
def test_new_ledger_has_zero_counts_at_any_time(now: float) -> None:
    """A new ledger has no counts and no time of a rebalance."""
    counts = MembershipLedger().counts(now)
    assert (set(counts.rebalances.values()), counts.rebalance.count, counts.rebalanced_at) == ({0}, 0, None)
