"""The view of a classic member: the same form as for the consumer protocol, its generation as the epoch."""

from __future__ import annotations

from consumer_membership.membership.classic.assignor import MemberSubscription
from consumer_membership.membership.classic.exchanges import ClassicHeartbeatAnswered
from consumer_membership.membership.states import MemberState
from consumer_membership.types import GroupProtocol
from tests.membership.classic.scene import A0, A1, EAGER, MAX_POLL_S, ClassicScene, joining, stable


def waits(scene: ClassicScene) -> str | None:
    """What the view says that the member waits for."""
    return scene.member.view().waits_for


def test_view_shows_the_generation_and_what_is_owned_since_which() -> None:
    """`member_epoch` and `owned` as for the consumer protocol."""
    view = stable(A0, instance_id="i").rebalance().gather(2).share(A0, A1).settle().member.view()
    assert (view.protocol, view.state, view.member_epoch, view.instance_id) == (
        GroupProtocol.CLASSIC,
        MemberState.STABLE,
        2,
        "i",
    )
    assert (view.owned, view.target, view.session_timeout_s) == ({A0: 1, A1: 2}, {A0, A1}, 45.0)


def test_view_says_what_is_waited_for() -> None:
    """In words, in each state that waits."""
    assert waits(ClassicScene().subscribe("a")) == "the application's next poll, to join"
    assert waits(ClassicScene().subscribe("a").poll()) == "the group's coordinator to be found"
    assert waits(joining()) == "the group's other members to join, or the rebalance timeout"
    assert waits(joining().gather(1)) == "the leader's assignment"
    leads = joining().gather(1, leads=True, members={"m": MemberSubscription(topics=frozenset({"a"}))})
    assert waits(leads) == "this member's assignor, which computes for the whole group"
    assert waits(stable(A0)) is None
    assert waits(stable()) == "partitions: the leader has assigned none"
    assert waits(stable(A0, assignors=(EAGER,)).rebalance()) == "the application's next poll, to pause what is revoked"
    assert waits(stable(A0).after(MAX_POLL_S)) == "the application's on_lost"


def test_view_shows_what_is_about_to_be_revoked() -> None:
    """While the step is under way."""
    view = stable(A0, A1).rebalance().gather(2).share(A0).member.view()
    assert (view.pending_revocation, view.state) == ({A1}, MemberState.RECONCILE)


def test_member_without_a_generation_shows_no_epoch() -> None:
    """Zero, as before a join of the consumer protocol."""
    assert joining().member.view().member_epoch == 0


def test_view_says_what_the_group_is() -> None:
    """B20: a group of the consumer protocol lets classic members in, and makes none of them the leader (KIP-848)."""
    scene = joining()
    assert scene.member.view().group_protocol is None
    assert scene.gather(1, leader="other").member.view().group_protocol is GroupProtocol.CLASSIC
    assert joining().gather(1, leader="").member.view().group_protocol is GroupProtocol.CONSUMER


def test_lease_counts_from_what_was_sent_and_answered() -> None:
    """The session timeout is the member's own; while the group gathers the coordinator keeps everybody's place."""
    scene = stable(A0, classic={"session_timeout_s": 6.0})
    assert scene.member.view().lease_until == 106.0
    beat = scene.beat()
    sent_at = scene.now
    scene.after(1.0).feed(ClassicHeartbeatAnswered(request_id=beat.request_id))
    assert scene.member.view().lease_until == sent_at + 6.0
    assert stable().member.view().lease_until is None
    assert joining().member.view().lease_until is None
