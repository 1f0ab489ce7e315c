"""The policy takeover-when-dead: a member takes over an instance id only with proof that the holder's process ended."""

from __future__ import annotations

import pytest

from consumer_membership.membership.consumer.claim import MOST_TAKEOVERS
from consumer_membership.membership.consumer.claim_states import ClaimState
from consumer_membership.membership.effects import CheckHolder, DescribeGroup, InstanceReleased, Warned
from consumer_membership.membership.events import (
    GroupDescribed,
    GroupDescribeFailed,
    HolderChecked,
    SessionTimeoutLearned,
    Verdict,
)
from consumer_membership.membership.protocol import GRACE_S
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.types import BrokerError, ConflictPolicy, Holder
from tests.membership.builders import (
    A0,
    GROUP_FULL,
    NOT_ALLOWED,
    UNKNOWN_MEMBER,
    UNRELEASED,
    Scene,
    joining,
)

S = MemberState
FENCED_INSTANCE = BrokerError(code=82, name="FENCED_INSTANCE_ID", message="fenced by member newer")
SESSION_S = 6.0


def held(scene: Scene, holder: str | None = "first") -> Scene:
    """The coordinator refuses the join in flight, because this member holds the instance id."""
    return scene.with_heartbeat_in_flight().reject(Verdict.UNRELEASED, UNRELEASED, holder=holder)


def conflict(holder: str | None = "first") -> Scene:
    """A static member whose first join was refused, because another member holds its instance id."""
    scene = joining(instance_id="i", conflict_policy=ConflictPolicy.TAKEOVER_WHEN_DEAD)
    return held(scene.feed(SessionTimeoutLearned(session_timeout_s=SESSION_S)), holder)


def checked(scene: Scene, *, is_dead: bool) -> Scene:
    """The result of the latest check arrives."""
    return scene.feed(HolderChecked(request_id=scene.all(CheckHolder)[-1].request_id, is_dead=is_dead))


def described(scene: Scene, **holders: Holder) -> Scene:
    """The member requests the next description, and it arrives."""
    scene.until(lambda s: bool(s.new(DescribeGroup)))
    return scene.poll().feed(GroupDescribed(request_id=scene.all(DescribeGroup)[-1].request_id, holders=holders))


def first(epoch: int | None = 5) -> Holder:
    """Return the member of the first process, as the description shows it."""
    return Holder(member_id="first", member_epoch=epoch, client_id="c1", host="/10.0.0.1")


def sent(scene: Scene) -> list[tuple[str, str | None, int]]:
    """Return member id, instance id and epoch of the last event's heartbeats."""
    return [(heartbeat.member_id, heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats]


def texts(scene: Scene) -> list[str]:
    """Return all warnings so far."""
    return [effect.message for effect in scene.all(Warned)]


def wait_for(scene: Scene, seconds: float) -> Scene:
    """The first process lives for this time, and no check finds proof of its death."""
    until = scene.now + seconds
    while scene.now < until:
        checked(described(scene, i=first()), is_dead=False)
    return scene


def test_dead_holder_is_released_after_one_check() -> None:
    """The refusal names the holder, so no description is needed. The join follows the release immediately."""
    scene = conflict()
    assert scene.new(CheckHolder) == [
        CheckHolder(request_id=scene.all(CheckHolder)[-1].request_id, instance_id="i", member_id="first")
    ]
    assert (scene.new(DescribeGroup), scene.protocol.claim.state) == ([], ClaimState.CHECKING)
    assert sent(checked(scene, is_dead=True)) == [("first", "i", -2)]
    assert sent(scene.answer(-2)) == [("member-1", "i", 0)]
    assert scene.new(InstanceReleased) == [InstanceReleased(instance_id="i", holder=Holder(member_id="first"))]
    assert scene.answer(5, {A0}).settle().state is S.STABLE
    assert texts(scene) == []


def test_holder_without_proof_is_never_released() -> None:
    """The member waits for ten sessions without a release or a failure, and its view names the holder."""
    scene = wait_for(checked(conflict(), is_dead=False), 10 * SESSION_S)
    assert scene.state is S.JOINING
    assert [heartbeat.member_epoch for heartbeat in scene.heartbeats if heartbeat.member_id == "first"] == []
    view = scene.view
    assert (view.waits_for, view.waits_until) == (WaitsFor.INSTANCE_ID, None)
    assert "first (client c1 on /10.0.0.1)" in (view.waits_for_detail or "")


def test_living_holder_is_named_once_after_a_session() -> None:
    """The second warning has member id, client and host; it is logged once, however long the wait lasts."""
    scene = wait_for(checked(conflict(), is_dead=False), SESSION_S)
    assert len(texts(scene)) == 1
    wait_for(scene, GRACE_S + 2.0)
    assert len(texts(scene)) == 2
    assert "still held by member first (client c1 on /10.0.0.1)" in texts(scene)[-1]
    assert len(texts(wait_for(scene, 5 * SESSION_S))) == 2


def test_holder_that_dies_during_the_wait_is_released() -> None:
    """A check follows each description; its proof counts, however old the member's claim is."""
    scene = wait_for(checked(conflict(), is_dead=False), 3 * SESSION_S)
    assert sent(checked(described(scene, i=first()), is_dead=True)) == [("first", "i", -2)]


@pytest.mark.parametrize("holders", [{"i": first(-2)}, {}])
def test_id_that_was_released_is_joined_without_a_check(holders: dict[str, Holder]) -> None:
    """A close, the guardian or the end of the session released the id."""
    scene = checked(conflict(), is_dead=False)
    checks = len(scene.all(CheckHolder))
    assert sent(described(scene, **holders)) == [("member-1", "i", 0)]
    assert len(scene.all(CheckHolder)) == checks


def test_answer_to_an_earlier_check_is_ignored() -> None:
    """A proof counts only for the holder that was checked."""
    scene = checked(conflict(), is_dead=False)
    earlier = scene.all(CheckHolder)[-1].request_id
    described(scene, i=first())
    assert sent(scene.feed(HolderChecked(request_id=earlier, is_dead=True))) == []
    assert scene.protocol.claim.state is ClaimState.CHECKING


def test_refusal_without_a_holder_is_followed_by_a_description() -> None:
    """The description names the holder, and then the member checks it."""
    scene = described(conflict(holder=None), i=first())
    assert [check.member_id for check in scene.new(CheckHolder)] == ["first"]


def test_member_that_cannot_describe_repeats_its_join_and_checks_the_named_holder() -> None:
    """Without DESCRIBE on the topics, the refusal of each join names the holder."""
    scene = checked(conflict(), is_dead=False)
    scene.until(lambda s: bool(s.new(DescribeGroup)))
    scene.feed(GroupDescribeFailed(request_id=scene.all(DescribeGroup)[-1].request_id, error=NOT_ALLOWED))
    assert sent(scene) == [("member-1", "i", 0)]
    assert sent(checked(held(scene), is_dead=True)) == [("first", "i", -2)]


def test_slower_of_two_replacements_waits_for_the_faster_one() -> None:
    """FENCED_INSTANCE_ID for the release: the other replacement has the id and is alive, so this member waits."""
    scene = checked(conflict(), is_dead=True).reject(Verdict.FATAL, FENCED_INSTANCE)
    assert scene.state is S.JOINING
    scene.until(lambda s: bool(s.new_heartbeats))
    assert sent(scene) == [("member-1", "i", 0)]
    checked(held(scene, "faster"), is_dead=False)
    assert (scene.state, "faster" in texts(scene)[-1]) == (S.JOINING, True)


def test_holder_that_the_coordinator_does_not_know_needs_no_release() -> None:
    """UNKNOWN_MEMBER_ID for the release counts as success."""
    scene = checked(conflict(), is_dead=True).reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, sent(scene)) == (S.JOINING, [("member-1", "i", 0)])


def test_heartbeat_of_the_dead_holder_that_was_on_its_way_is_followed_by_another_release() -> None:
    """A dead holder's requests may still arrive. A limit on releases protects the coordinator from a wrong proof."""
    scene = conflict()
    for _ in range(MOST_TAKEOVERS):
        assert sent(checked(scene, is_dead=True)) == [("first", "i", -2)]
        held(scene.answer(-2))
    assert (sent(checked(scene, is_dead=True)), scene.state) == ([], S.JOINING)


def test_dead_holders_may_follow_each_other_without_end() -> None:
    """The limit counts the releases of one holder."""
    scene = conflict("dead")
    for number in range(2 * MOST_TAKEOVERS):
        assert sent(checked(scene, is_dead=True))[0][2] == -2
        held(scene.answer(-2), f"dead-{number}")


def test_fenced_member_takes_its_place_back_only_from_a_dead_member() -> None:
    """The member's age does not matter: without proof it waits for the member that replaced it."""
    scene = checked(conflict(), is_dead=True).answer(-2).answer(5, {A0}).settle()
    scene.fence().finish()
    scene.until(lambda s: bool(s.new_heartbeats))
    assert checked(held(scene, "second"), is_dead=False).state is S.JOINING
    assert sent(checked(described(scene, i=Holder(member_id="second", member_epoch=6)), is_dead=True)) == [
        ("second", "i", -2)
    ]


@pytest.mark.parametrize("is_dead", [True, False])
def test_full_group_gives_the_place_of_a_dead_holder(is_dead: bool) -> None:  # noqa: FBT001
    """Before KAFKA-20601 the coordinator refuses the new member id; a live holder keeps its place."""
    scene = joining(instance_id="i", conflict_policy=ConflictPolicy.TAKEOVER_WHEN_DEAD).with_heartbeat_in_flight()
    scene.fail(GROUP_FULL)
    described(scene, i=first())
    checked(scene, is_dead=is_dead)
    assert (sent(scene), scene.state) == ([("first", "i", -1)] if is_dead else [], S.JOINING)


def test_member_that_leaves_during_a_check_ignores_the_answer() -> None:
    """The application closes while the member waits for the result."""
    scene = conflict()
    scene.leave()
    assert sent(checked(scene, is_dead=True)) == []
