"""The view of a classic member has the same form as under the consumer protocol, with the generation as the epoch."""

from __future__ import annotations

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership.classic.exchanges import (
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicVerdict,
    ExchangeFailed,
    SendClassicHeartbeat,
)
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.events import Suspended
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, GroupProtocol
from tests.membership.classic.scene import A0, A1, EAGER, MAX_POLL_S, ClassicScene, joining, stable

S = ClassicState
V = ClassicVerdict
ILLEGAL = BrokerError(code=22, name="ILLEGAL_GENERATION")


def lease(scene: ClassicScene) -> float | None:
    """Return the time until which the member certainly owns its partitions."""
    return scene.member.view().lease_until


def test_suspension_of_the_machine_shortens_the_lease() -> None:
    """The coordinator's clock continues during a suspension, also for a JoinGroup that was in flight."""
    scene = stable(A0)
    until = lease(scene)
    assert until is not None
    scene.rebalance().feed(Suspended(seconds=3600.0))
    asked_at, shortened = scene.now, lease(scene)
    assert shortened is not None
    assert shortened <= asked_at + 45.0 - 3600.0
    assert lease(scene.after(1.0).gather(2).share(A0).settle()) == asked_at + 1.0 + 45.0


def waits(scene: ClassicScene) -> str | None:
    """Return the value and the detail of `waits_for`."""
    return scene.member.view().waits_for_text


def test_view_shows_the_generation_and_since_when_partitions_are_owned() -> None:
    """`member_epoch` and `owned` have the same form as for the consumer protocol."""
    view = stable(A0, instance_id="i").rebalance().gather(2).share(A0, A1).settle().member.view()
    assert (view.protocol, view.state, view.member_epoch, view.instance_id) == (
        GroupProtocol.CLASSIC,
        MemberState.STABLE,
        2,
        "i",
    )
    assert (view.owned, view.target, view.session_timeout_s) == ({A0: 1, A1: 2}, {A0, A1}, 45.0)


def test_view_shows_what_the_member_waits_for() -> None:
    """The view describes the wait in each state that waits."""
    assert waits(ClassicScene().subscribe("a")) == "poll to join"
    assert waits(ClassicScene().subscribe("a").poll()) == "group coordinator"
    assert waits(joining()) == "other members to join"
    assert waits(joining().gather(1)) == "assignment by the leader"
    leads = joining().gather(1, leads=True, members={"m": MemberSubscription(topics=frozenset({"a"}))})
    assert waits(leads) == "assignor assign"
    assert waits(stable(A0)) is None
    assert waits(stable()) == "partitions: the leader has assigned none"
    assert waits(stable(A0, assignors=(EAGER,)).rebalance()) == "poll to revoke"
    assert waits(stable(A0).after(MAX_POLL_S)) == "on_lost"


def test_view_shows_pending_revocation() -> None:
    """A partition is pending revocation while the step is outstanding."""
    view = stable(A0, A1).rebalance().gather(2).share(A0).member.view()
    assert (view.pending_revocation, view.state) == ({A1}, MemberState.RECONCILE)


def test_member_without_a_generation_shows_no_epoch() -> None:
    """The epoch is zero, as before a join of the consumer protocol."""
    assert joining().member.view().member_epoch == 0


def test_view_shows_the_protocol_of_the_group() -> None:
    """B20: A consumer group accepts classic members and makes none of them the leader (KIP-848)."""
    scene = joining()
    assert scene.member.view().group_protocol is None
    assert scene.gather(1, leader="other").member.view().group_protocol is GroupProtocol.CLASSIC
    assert joining().gather(1, leader="").member.view().group_protocol is GroupProtocol.CONSUMER


def test_request_without_an_answer_is_the_current_error_until_a_heartbeat_is_answered() -> None:
    """From the start of a coordinator lookup, the view names its cause, for heartbeats and joins."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="silent")
    scene = stable(A0)
    scene.feed(ExchangeFailed(request_id=scene.heartbeat().request_id, reason="silent"))
    lasting = scene.member.view()
    scene.found()
    heartbeat = scene.heartbeat()
    found, over = (
        scene.member.view(),
        scene.feed(ClassicHeartbeatAnswered(request_id=heartbeat.request_id)).member.view(),
    )
    assert (lasting.present_error, found.present_error, over.present_error) == (error, error, None)
    assert (over.last_error, over.last_error_over_at) == (error, scene.now)
    joins = joining()
    joins.feed(ExchangeFailed(request_id=joins.join.request_id, reason="silent"))
    assert joins.member.view().present_error == error


def test_lease_counts_from_the_sending_of_the_last_answered_heartbeat() -> None:
    """The lease lasts the member's own session timeout; a member without partitions has no lease."""
    scene = stable(A0, classic={"session_timeout_s": 6.0})
    assert lease(scene) == 106.0
    heartbeat = scene.heartbeat()
    sent_at = scene.now
    scene.after(1.0).feed(ClassicHeartbeatAnswered(request_id=heartbeat.request_id))
    assert lease(scene) == sent_at + 6.0
    assert lease(stable()) is None
    assert lease(joining()) is None
    assert lease(stable(A0, assignors=(EAGER,)).rebalance().settle()) is None


def keeping(session_s: float = 6.0) -> ClassicScene:
    """JOINING for a rebalance, with the partition that a cooperative member keeps."""
    scene = stable(A0, classic={"session_timeout_s": session_s}).rebalance()
    assert (scene.state, scene.owned) == (S.JOINING, {A0})
    return scene


def test_lease_is_not_extended_by_the_answer_to_a_join() -> None:
    """Only the response to a heartbeat or SyncGroup extends the lease, because a JoinGroup may have waited for long.

    A member that is disconnected delivers records of the partitions that it kept for one session at most.
    """
    scene = keeping()
    told_at = scene.now
    assert lease(scene) == told_at + 6.0
    scene.poll().after(30.0)
    assert (scene.state, lease(scene)) == (S.JOINING, told_at + 6.0)
    scene.gather(2)
    asked_at = scene.now
    assert (scene.state, lease(scene)) == (S.SYNCING, told_at + 6.0)
    scene.after(1.0).share(A0)
    assert lease(scene) == asked_at + 6.0


def test_heartbeats_during_a_pending_join_extend_the_lease() -> None:
    """While a group waits for a slow member, the other members keep delivering."""
    scene = keeping()
    for _ in range(30):
        scene.poll().rebalance()
        assert (scene.state, lease(scene)) == (S.JOINING, scene.now + 6.0)
    confirmed_at = scene.now
    scene.after(1.0).gather(2)
    assert (scene.state, lease(scene)) == (S.SYNCING, confirmed_at + 6.0)


def test_lease_ends_with_the_rebalance_timeout() -> None:
    """The JoinGroup may be lost, and a member that has not joined by the rebalance timeout is removed."""
    scene = keeping()
    undisturbed_at = 100.0
    while (lease(scene) or 0.0) < undisturbed_at + MAX_POLL_S:
        scene.poll().rebalance()
    assert lease(scene) == undisturbed_at + MAX_POLL_S
    assert lease(scene.poll().rebalance()) == undisturbed_at + MAX_POLL_S


def test_refused_heartbeat_during_a_pending_join_ends_the_lease_until_the_join_is_answered() -> None:
    """The JoinGroup was answered for other members; only its response shows whether this member is in the group."""
    scene = keeping().poll().rebalance()
    confirmed_at = scene.now
    heartbeat = scene.heartbeat()
    scene.feed(ClassicHeartbeatRejected(request_id=heartbeat.request_id, verdict=V.REJOIN_KEEP_ID, error=ILLEGAL))
    assert (scene.state, scene.owned, lease(scene)) == (S.JOINING, {A0}, scene.now)
    sent = len(scene.all(SendClassicHeartbeat))
    assert len(scene.after(5.0).all(SendClassicHeartbeat)) == sent
    assert lease(scene.gather(2)) == confirmed_at + 6.0


def test_classic_lease_ends_before_the_session_and_lasts_until_the_release() -> None:
    """A classic member chooses its session timeout itself, so no timeout is assumed."""
    scene = stable(A0, has_leases=True).heartbeat_answered()
    sent_at = scene.now
    assert lease(scene) == sent_at + 0.95 * 45.0
    assert not scene.member.view().is_session_assumed
    assert lease(scene.leave()) is not None
    assert lease(scene.settle()) is None
