"""Topic ids without a name: partial reconciliation and Metadata requests (M50 to M60)."""

from __future__ import annotations

from consumer_membership.membership.effects import (
    AssignPartitions,
    FetchCommitted,
    PausePartitions,
    ResolveTopicIds,
    RevokePartitions,
)
from consumer_membership.membership.states import MemberState
from tests.membership.builders import A0, A1, B0, B1, ORDERS, PAYMENTS, Scene, joining, named, stable

S = MemberState


def partly_resolved(**settings: object) -> Scene:
    """RECONCILE at epoch 1: A0 is assigned and acknowledged, but the topic of B0 has no name yet."""
    return joining(**settings).answer(1, [A0, B0]).resolve(ORDERS).offsets().finish().answer()


def acknowledgements(scene: Scene) -> int:
    """Return how often the member reported its partitions."""
    return sum(heartbeat.owned is not None for heartbeat in scene.heartbeats)


def test_resolved_partitions_are_assigned_first_and_the_rest_when_the_name_arrives() -> None:
    """M50: The member assigns and acknowledges A while B has no name; B's name completes the same target."""
    scene = partly_resolved()
    assert (scene.state, scene.heartbeats[-1].owned, scene.view.unresolved) == (S.RECONCILE, {A0}, 1)
    scene.resolve(PAYMENTS).offsets().finish()
    assert (scene.state, scene.heartbeats[-1].owned, scene.view.unresolved) == (S.STABLE, {A0, B0}, 0)


def test_late_metadata_completes_the_assignment() -> None:
    """M51: Names that arrive late call on_assign for the missing partitions only."""
    scene = partly_resolved().resolve(PAYMENTS).offsets()
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(B0), 0)


def test_newer_target_replaces_one_that_waits_for_metadata() -> None:
    """M52: A newer target replaces a target that has not started."""
    scene = joining().answer(1, [B0]).target(2, A0).resolve(ORDERS).offsets()
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A0), 0)
    assert scene.finish().state is S.STABLE


def test_newer_empty_target_replaces_one_that_waits_for_metadata() -> None:
    """M53: A newer empty target replaces a target that waits for metadata, and ends the wait."""
    scene = joining().answer(1, [B0]).target(2).finish()
    assert (scene.state, scene.owned, scene.view.unresolved) == (S.STABLE, frozenset(), 0)


def test_newer_unresolved_target_replaces_one_that_waits_for_metadata() -> None:
    """M54: A newer target whose ids have no names replaces one that waits for metadata."""
    scene = joining().answer(1, [A0]).target(2, B0, B1)
    assert (scene.state, scene.view.unresolved, scene.all(FetchCommitted)) == (S.RECONCILE, 2, [])


def test_unresolved_target_is_reconciled_when_its_names_arrive() -> None:
    """M55: A target without any name waits for the first Metadata response and is then reconciled."""
    scene = joining().answer(1, [A0, A1])
    assert (scene.kinds, scene.new_steps) == (["StateChanged", "ResolveTopicIds"], [])
    assert scene.resolve(ORDERS).new(FetchCommitted)[0].partitions == named(A0, A1)


def test_unresolved_part_is_kept_until_resolved() -> None:
    """M56: Heartbeats without changes and Metadata responses without names keep the unresolved rest."""
    scene = partly_resolved()
    for _ in range(5):
        scene.resolve().with_heartbeat_in_flight().answer(1, [A0, B0])
    assert (scene.state, scene.view.unresolved, scene.owned) == (S.RECONCILE, 1, named(A0))


def test_names_alone_start_the_reconciliation() -> None:
    """M57: The Metadata response itself continues the reconciliation, without a heartbeat or a poll."""
    assert partly_resolved().resolve(PAYMENTS).kinds == ["FetchCommitted"]


def test_metadata_is_requested_again_while_ids_are_unresolved() -> None:
    """M58: The member requests unresolved ids again after a growing backoff."""
    scene = joining().answer(1, [B0])
    asked_at, waited = scene.now, []
    for _ in range(4):
        scene.resolve().until(lambda s: bool(s.new(ResolveTopicIds)))
        waited.append(round(scene.now - asked_at, 3))
        asked_at = scene.now
    assert waited == [0.1, 0.2, 0.4, 0.8]
    assert {order.topic_ids for order in scene.all(ResolveTopicIds)} == {frozenset({PAYMENTS})}


def test_metadata_has_one_request_in_flight() -> None:
    """While a Metadata request is in flight the member sends no other."""
    scene = joining().answer(1, [B0]).after(60.0)
    assert len(scene.all(ResolveTopicIds)) == 1


def test_metadata_is_requested_again_after_a_rejoin() -> None:
    """A Metadata response that arrives outside the group is dropped, so the next membership requests it again."""
    scene = stable(A0).target(2, A0, B0).fence().resolve(PAYMENTS).finish().answer(3, [B0])
    assert [order.topic_ids for order in scene.new(ResolveTopicIds)] == [frozenset({PAYMENTS})]


def test_revocation_uses_the_topic_name_of_the_assignment() -> None:
    """M59: A partition is revoked under the name with which it was assigned, whatever Metadata reports now."""
    scene = stable(A0, B0).target(2, A0)
    assert scene.new(PausePartitions)[0].partitions == named(B0)
    assert scene.finish().new(RevokePartitions)[0].partitions == named(B0)


def test_partial_acknowledgement_is_made_once_for_a_target() -> None:
    """M60: While names are missing the member acknowledges each partial assignment once (KAFKA-20145)."""
    scene = partly_resolved()
    before = acknowledgements(scene)
    for _ in range(10):
        scene.resolve().after(0.5).poll()
        if scene.new_heartbeats:
            scene.answer()
    assert acknowledgements(scene) == before


def test_unresolved_id_does_not_mean_revoke() -> None:
    """A partition with an unresolved topic id is part of the target, so the member revokes nothing for it."""
    scene = stable(A0).target(2, A0, B0).resolve()
    assert (scene.owned, scene.all(PausePartitions)) == (named(A0), [])


def test_first_acknowledgement_waits_for_the_first_metadata_response() -> None:
    """The member does not acknowledge an assignment without a name before it has requested Metadata once."""
    scene = joining().answer(1, [A0, B0])
    before = acknowledgements(scene)
    assert acknowledgements(scene.after(3.0)) == before


def test_target_without_the_unresolved_topic_ends_stable_without_callbacks() -> None:
    """If the broker assigns the unnamed topic to another member, this member acknowledges without a step."""
    scene = partly_resolved()
    steps = len([effect for effect in scene.effects if isinstance(effect, AssignPartitions | PausePartitions)])
    scene.target(2, A0)
    assert scene.state is S.STABLE
    assert len([e for e in scene.effects if isinstance(e, AssignPartitions | PausePartitions)]) == steps
    assert scene.heartbeats[-1].owned == {A0}


def test_topic_recreated_under_its_old_name_is_another_topic() -> None:
    """A new id under an old name is revoked and assigned, because positions of the old topic do not apply."""
    scene = stable(B0)
    scene.target(2, A0)
    scene.feed_names({ORDERS: "payments"})
    assert scene.step.partitions == named(B0)  # type: ignore[union-attr]  # the pause
    scene.finish().finish().answer()
    assert scene.new(FetchCommitted)[0].partitions == named(B0)
