"""The view's transitions count and time rebalances (M130 to M133).

Java has separate metrics; here the view's dated transitions and the observer's effects carry the same facts.
"""

from __future__ import annotations

from consumer_membership.membership.events import Verdict
from consumer_membership.membership.states import MemberState
from tests.membership.builders import A0, A1, LOADING, Scene, adding, revoking, stable

S = MemberState


def rebalances(scene: Scene) -> list[tuple[MemberState, float]]:
    """Return how each RECONCILE ended, and how many seconds it took."""
    found, since = [], 0.0
    for change in scene.view.transitions:
        if change.new is S.RECONCILE:
            since = change.at
        if change.old is S.RECONCILE:
            found.append((change.new, round(change.at - since, 3)))
    return found


def test_failed_heartbeat_ends_a_rebalance_only_where_one_was_running() -> None:
    """M130: A fence of a RECONCILE member is a failed rebalance; a fence of a STABLE member is not."""
    assert rebalances(stable(A0).fence()) == [(S.ACK, 0.0)]
    assert [ended for ended, _ in rebalances(adding().fence())] == [S.ACK, S.FENCED]


def test_retriable_refusal_ends_no_rebalance() -> None:
    """M130: A loading coordinator does not fail a rebalance, although Java counts one."""
    assert rebalances(adding().with_heartbeat_in_flight().reject(Verdict.RETRY, LOADING)) == [(S.ACK, 0.0)]


def test_successful_rebalance_can_be_timed() -> None:
    """M131: A rebalance lasts from RECONCILE to ACK, callbacks included."""
    assert rebalances(revoking().after(2.0).finish().after(1.5).finish())[-1] == (S.ACK, 3.5)


def test_each_reconciliation_is_recorded() -> None:
    """M132: Each target is one rebalance, including the first target of a membership."""
    scene = stable(A0).target(2, A0, A1).settle().target(3, A0).settle()
    assert [ended for ended, _ in rebalances(scene)] == [S.ACK, S.ACK, S.ACK]


def test_failed_rebalance_is_recorded_with_its_cause() -> None:
    """M133: A rebalance that ends FENCED or FATAL records the coordinator's error."""
    last = adding().fail().view.transitions[-1]
    assert (last.old, last.new, last.reason) == (S.RECONCILE, S.FATAL, "GROUP_MAX_SIZE_REACHED: full")


def test_view_keeps_only_the_latest_transitions() -> None:
    """The view keeps a bounded number of transitions, however long a member lives."""
    scene = stable(A0)
    for epoch in range(2, 40):
        scene.target(epoch, *([A0] if epoch % 2 else [A0, A1])).settle()
    assert len(scene.view.transitions) == 32
