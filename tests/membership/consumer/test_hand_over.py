"""The hand-over of an instance id from its holder to a new process (`group.instance.id.conflict.policy=hand-over`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import pytest

from consumer_membership.membership.consumer.claim_states import ClaimState
from consumer_membership.membership.consumer.hand_over import READ_EVERY_S, RESERVED_S
from consumer_membership.membership.consumer.predecessor import (
    PREDECESSOR_TRANSITIONS,
    READ_REFUSED_EVERY_S,
    PredecessorState,
)
from consumer_membership.membership.consumer.release_watch import IMMINENT_DESCRIPTION_S, IMMINENT_SHARE
from consumer_membership.membership.consumer.reservations import RESERVED_FOR_OTHERS_S
from consumer_membership.membership.consumer.successor import (
    REPEAT_ANNOUNCEMENT_S,
    SUCCESSOR_TRANSITIONS,
    SuccessorState,
)
from consumer_membership.membership.effects import (
    DescribeGroup,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RaiseToApplication,
    ReadAnnouncements,
    RevokePartitions,
    SendHeartbeat,
    WarmPartitions,
    Warned,
    WriteAnnouncement,
)
from consumer_membership.membership.events import (
    AnnouncementNotWritten,
    AnnouncementsNotRead,
    AnnouncementsRead,
    AnnouncementWritten,
    GroupDescribed,
    GroupDescribeFailed,
    HandOverEvent,
    Verdict,
    Warmed,
)
from consumer_membership.membership.states import MemberState, StateMachine, followers
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.types import (
    FENCED_INSTANCE_CODE,
    POLL_TIMEOUT_CODE,
    BrokerError,
    ConflictPolicy,
    HandOverAnnouncement,
    Holder,
    TopicPartition,
)
from tests.membership.builders import (
    A0,
    A1,
    LOADING,
    MAX_POLL_S,
    NOT_ALLOWED,
    UNRELEASED,
    Scene,
    created,
    handing_over,
    joining,
    requested,
    stable,
)

S, N, P = MemberState, SuccessorState, PredecessorState
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
POOL = ("i0", "i1")
GONE = Holder(member_id="old", member_epoch=-2)


def holder(member_id: str = "old", *partitions: TopicPartition) -> Holder:
    """A live holder of these partitions; the default is two partitions."""
    return Holder(member_id=member_id, member_epoch=4, partitions=frozenset(partitions or (ORDERS_1, ORDERS_0)))


def describe(scene: Scene, **holders: Holder) -> Scene:
    """The member requests the next description, and it arrives."""
    scene.until(lambda s: s.protocol.claim.state is ClaimState.DESCRIBING)
    return scene.feed(GroupDescribed(request_id=scene.all(DescribeGroup)[-1].request_id, holders=holders))


def waiting(**settings: object) -> Scene:
    """A new process whose fixed id another member holds; the request for a description is in flight."""
    scene = joining(instance_id="i", conflict_policy=ConflictPolicy.HAND_OVER, **settings)
    return scene.with_heartbeat_in_flight().reject(Verdict.UNRELEASED, UNRELEASED, holder="old")


def warming(**settings: object) -> Scene:
    """A new process that has received a description with the holder's partitions."""
    return describe(waiting(**settings), i=holder())


def warmed(scene: Scene, *, failed: bool = False) -> Scene:
    """on_warm has returned."""
    return scene.feed(Warmed(attempt=scene.all(WarmPartitions)[-1].attempt, failed=failed))


def read(scene: Scene, *announcements: HandOverAnnouncement) -> Scene:
    """The announcements of the latest request arrive."""
    order = scene.all(ReadAnnouncements)[-1]
    return scene.feed(
        AnnouncementsRead(
            request_id=order.request_id,
            announcements={partition: one for partition in order.partitions for one in announcements},
        )
    )


def written(scene: Scene) -> Scene:
    """The announcement is written."""
    return scene.feed(AnnouncementWritten(request_id=scene.all(WriteAnnouncement)[-1].request_id))


def announced(**settings: object) -> Scene:
    """A new process whose announcement the holder can read."""
    return written(read(warmed(warming(**settings))))


def pooled(**holders: Holder) -> Scene:
    """A new process with a pool of ids that are all held."""
    scene = joining(instance_pool=POOL, conflict_policy=ConflictPolicy.HAND_OVER)
    return describe(scene, **(holders or {"i0": holder("old0", ORDERS_0), "i1": holder("old1", ORDERS_1)}))


def taken_by_another(scene: Scene) -> Scene:
    """The chosen holder already has an announcement of another successor."""
    asked = scene.protocol.claim.successor
    assert asked.holder is not None
    announcement = HandOverAnnouncement(
        predecessor=asked.holder.member_id, successor="rival", instance_id=asked.instance_id or ""
    )
    return read(warmed(scene), announcement)


def released() -> Scene:
    """A predecessor that has released its id."""
    return handing_over().settle()


# ---- the successor ----


def test_successor_prepares_then_writes_an_announcement_and_joins_when_the_id_is_free() -> None:
    """on_warm comes before the announcement, and the join follows the description that shows the release."""
    scene = warming()
    assert scene.new(WarmPartitions) == [WarmPartitions(attempt=1, partitions=frozenset({ORDERS_0, ORDERS_1}))]
    assert (scene.view.waits_for, scene.view.is_warm) == (WaitsFor.HAND_OVER, False)
    warmed(scene)
    assert scene.view.is_warm
    (asked,) = scene.new(ReadAnnouncements)
    assert asked.partitions == {ORDERS_0}
    (order,) = read(scene).new(WriteAnnouncement)
    assert order.partition == ORDERS_0
    assert order.announcement == HandOverAnnouncement(predecessor="old", successor="member-1", instance_id="i")
    describe(written(scene), i=GONE)
    assert [(heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats] == [("i", 0)]


def test_join_after_the_release_needs_no_other_request() -> None:
    """The description shows a group of the consumer protocol, and the partitions of the id, which have no owner now.

    The first join of a member has neither fact.
    """
    scene = describe(announced(), i=GONE)
    first, joins = scene.all(SendHeartbeat)[0], scene.new(SendHeartbeat)
    assert (first.is_consumer_group, first.expected) == (False, frozenset())
    assert [(join.is_consumer_group, join.expected) for join in joins] == [(True, {ORDERS_0, ORDERS_1})]
    scene.answer(4, [A0, A1]).settle()
    assert not any(heartbeat.expected or heartbeat.is_consumer_group for heartbeat in scene.new(SendHeartbeat))


def test_join_after_a_failed_description_checks_for_a_classic_group() -> None:
    """The last member may have left meanwhile, so the group may be a classic group now."""
    scene = announced().until(lambda s: s.protocol.claim.state is ClaimState.DESCRIBING)
    scene.feed(GroupDescribeFailed(request_id=scene.all(DescribeGroup)[-1].request_id, error=NOT_ALLOWED))
    assert [join.is_consumer_group for join in scene.new(SendHeartbeat)] == [False]


def test_join_with_another_id_than_the_awaited_one_expects_no_partitions() -> None:
    """Another id of the pool has other partitions or none."""
    scene = written(read(warmed(pooled())))
    mine = str(scene.protocol.claim.successor.instance_id)
    other = next(i for i in POOL if i != mine)
    describe(scene, **{mine: holder("old0", ORDERS_0)})
    assert [(join.heartbeat.instance_id, join.expected) for join in scene.new(SendHeartbeat)] == [(other, frozenset())]


def test_successor_describes_the_group_every_few_milliseconds_after_its_announcement() -> None:
    """The holder drains and releases its partitions; the join has to follow within milliseconds."""
    scene = announced()
    describe(scene, i=holder())
    described_at = scene.now
    describe(scene, i=holder())
    assert scene.now - described_at == pytest.approx(IMMINENT_DESCRIPTION_S)


def test_successor_describes_the_group_less_often_the_longer_the_holder_drains() -> None:
    """A long drain causes few requests; its end is still noticed within a thousandth of the drain time."""
    scene = announced()
    scene.now += 20.0
    describe(scene.poll(), i=holder())
    described_at = scene.now
    describe(scene, i=holder())
    assert scene.now - described_at == pytest.approx(20.0 * IMMINENT_SHARE, rel=0.1)


def test_successor_whose_on_warm_raised_is_prepared_at_the_next_poll() -> None:
    """As with on_assign, the next poll calls the callback again after an exception."""
    scene = warmed(warming(), failed=True)
    assert (scene.new(ReadAnnouncements), scene.view.is_warm, scene.member.retries_at_poll) == ([], False, True)
    assert [order.attempt for order in scene.poll().new(WarmPartitions)] == [2]
    assert not scene.member.retries_at_poll


def test_late_answer_of_an_earlier_on_warm_is_dropped() -> None:
    """Only the response to the newest order counts."""
    scene = warmed(warming(), failed=True).poll()
    scene.feed(Warmed(attempt=1))
    assert not scene.view.is_warm


def test_successor_prepares_again_for_more_partitions_of_the_holder() -> None:
    """The holder's assignment may grow while the successor waits."""
    scene = describe(announced(), i=holder("old", ORDERS_0, ORDERS_1, TopicPartition("payments", 0)))
    assert [len(order.partitions) for order in scene.new(WarmPartitions)] == [3]


def test_announcement_moves_with_the_first_partition_of_the_holder() -> None:
    """The holder reads announcements at the first partition that it owns."""
    scene = describe(announced(), i=holder("old", ORDERS_1))
    (order,) = scene.until(lambda s: bool(s.new(WriteAnnouncement))).new(WriteAnnouncement)
    assert order.partition == ORDERS_1


def test_announcement_without_effect_is_repeated() -> None:
    """Another successor may have replaced the announcement and then ended."""
    scene = announced()
    wrote_at = scene.now
    while len(scene.all(WriteAnnouncement)) == 1:
        describe(scene.poll(), i=holder())
    assert scene.now - wrote_at == pytest.approx(REPEAT_ANNOUNCEMENT_S, abs=0.1)


def test_failed_request_is_repeated_and_a_refused_one_warns_once() -> None:
    """Without READ on the helper group the member waits, as with the policy `wait`, and the log names the fix.

    After its join the member reads the helper group as a holder, and does not warn again.
    """
    scene = warmed(warming())
    first = scene.all(ReadAnnouncements)[-1].request_id
    scene.feed(AnnouncementsNotRead(request_id=first, error=LOADING))
    read(scene.until(lambda s: bool(s.new(ReadAnnouncements))))
    scene.feed(
        AnnouncementNotWritten(
            request_id=scene.all(WriteAnnouncement)[-1].request_id, error=NOT_ALLOWED, is_refused=True
        )
    )
    (warning,) = scene.new(Warned)
    assert "g.hand-over" in warning.message
    assert "READ" in warning.message
    assert (scene.view.waits_for, scene.view.is_warm) == (WaitsFor.INSTANCE_ID, True)
    describe(scene, i=GONE)
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == ["i"]
    scene.answer(1, [A0]).settle().until(lambda s: bool(s.new(ReadAnnouncements)))
    order = scene.all(ReadAnnouncements)[-1]
    scene.feed(AnnouncementsNotRead(request_id=order.request_id, error=NOT_ALLOWED, is_refused=True))
    assert scene.all(Warned) == [warning]


def test_holder_without_partitions_needs_no_preparation() -> None:
    """There are no partitions to prepare, and no partition to which an announcement could be written."""
    scene = describe(waiting(), i=Holder(member_id="old", member_epoch=4))
    assert (scene.new(WarmPartitions), scene.view.is_warm) == ([], True)
    describe(scene, i=GONE)
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == ["i"]


def test_successor_of_a_fixed_id_makes_no_request_to_a_newer_holder() -> None:
    """Two processes with one id never take it from each other alternately."""
    scene = describe(announced(), i=holder("newer"))
    assert (scene.new(WarmPartitions), scene.view.waits_for) == ([], WaitsFor.INSTANCE_ID)
    assert describe(scene, i=holder("newest")).new(WarmPartitions) == []


def test_successor_of_a_holder_without_partitions_makes_no_request_to_a_newer_one() -> None:
    """The first holder received no request, and the member that holds the id now may be newer."""
    scene = describe(waiting(), i=Holder(member_id="old", member_epoch=4))
    assert describe(scene, i=holder("newer")).all(WarmPartitions) == []


def test_successor_makes_no_request_to_a_holder_that_the_refusal_did_not_name() -> None:
    """The description arrived late and shows a member that has taken the id since; that member may be newer."""
    assert describe(waiting(), i=holder("newer")).all(WarmPartitions) == []


def test_member_that_learns_of_the_holder_late_makes_no_request() -> None:
    """The holder may be newer, because this process may have been stopped and replaced."""
    scene = joining(instance_id="i", conflict_policy=ConflictPolicy.HAND_OVER).with_heartbeat_in_flight()
    scene.now += 3.0
    scene.reject(Verdict.UNRELEASED, UNRELEASED, holder="old")
    assert describe(scene, i=holder()).all(WarmPartitions) == []


@pytest.mark.parametrize(
    ("created_at", "requests"), [pytest.param(1000, 1, id="an older holder"), pytest.param(3000, 0, id="a newer one")]
)
def test_member_that_learns_of_the_holder_late_knows_its_age_from_its_id(created_at: int, requests: int) -> None:
    """On a busy machine the join of a new process may take longer than two seconds."""
    old = created(created_at)
    scene = joining(
        instance_id="i", conflict_policy=ConflictPolicy.HAND_OVER, member_id=created(2000)
    ).with_heartbeat_in_flight()
    scene.now += 3.0
    scene.reject(Verdict.UNRELEASED, UNRELEASED, holder=old)
    assert len(describe(scene, i=holder(old)).all(WarmPartitions)) == requests


def test_long_preparation_does_not_end_the_wait() -> None:
    """The holder releases nothing before the announcement, so the time limit begins with the announcement."""
    scene = warming(max_poll_interval_s=10_000.0)
    for _ in range(3):
        scene.now += 300.0
        describe(scene, i=holder())
    assert (scene.state, scene.view.waits_until) == (S.JOINING, None)
    written(read(warmed(scene)))
    assert scene.view.waits_until is not None


def test_successor_of_a_pool_leaves_a_holder_to_an_earlier_successor() -> None:
    """Several new processes choose different holders."""
    scene = taken_by_another(pooled())
    first = scene.all(WarmPartitions)[-1].partitions
    assert scene.new(WriteAnnouncement) == []
    describe(scene, i0=holder("old0", ORDERS_0), i1=holder("old1", ORDERS_1))
    assert scene.all(WarmPartitions)[-1].partitions == {ORDERS_0, ORDERS_1} - first
    assert taken_by_another(scene).new(WriteAnnouncement) == []
    describe(scene, i0=holder("old0", ORDERS_0), i1=holder("old1", ORDERS_1))
    assert len(taken_by_another(scene).new(WriteAnnouncement)) == 1


@pytest.mark.parametrize(
    ("ids", "chosen"),
    [
        pytest.param((created(500), created(501)), "i0", id="the oldest"),
        pytest.param((created(501), created(500)), "i1", id="the oldest, with the other id"),
        pytest.param((created(500), created(500)), "i1", id="at random among holders of the same age"),
        pytest.param(("member of another version", created(500)), "i0", id="an unknown age counts as old"),
        pytest.param((created(5000), created(6000)), "i0", id="the clock of this process is behind"),
    ],
)
def test_successor_of_a_pool_replaces_the_oldest_process(ids: tuple[str, str], chosen: str) -> None:
    """In a deployment the oldest processes end next; processes that have just started must keep their ids."""
    scene = joining(instance_pool=POOL, conflict_policy=ConflictPolicy.HAND_OVER, member_id=created(2000))
    describe(scene, i0=holder(ids[0], ORDERS_0), i1=holder(ids[1], ORDERS_1))
    assert scene.protocol.claim.successor.instance_id == chosen


def test_successor_of_a_pool_leaves_the_oldest_process_to_an_earlier_successor() -> None:
    """Several new processes replace different holders."""
    scene = joining(instance_pool=POOL, conflict_policy=ConflictPolicy.HAND_OVER, member_id=created(2000))
    holders = {"i0": holder(created(500), ORDERS_0), "i1": holder(created(1000), ORDERS_1)}
    taken_by_another(describe(scene, **holders))
    describe(scene, **holders)
    assert scene.protocol.claim.successor.instance_id == "i1"


def test_successor_of_a_pool_chooses_another_holder_if_its_id_went_to_another_member() -> None:
    """Announcements are hints: the id may go to a member that never wrote an announcement."""
    scene = written(read(warmed(pooled())))
    asked = scene.protocol.claim.successor
    others = {"i0": holder("old0", ORDERS_0), "i1": holder("old1", ORDERS_1)}
    assert asked.instance_id is not None
    describe(scene, **(others | {asked.instance_id: holder("quicker", ORDERS_0)}))
    assert len(scene.new(WarmPartitions)) == 1


RELEASED = Holder(member_id="ended", member_epoch=-2, partitions=frozenset({ORDERS_1}))


def rival(predecessor: str = "ended") -> HandOverAnnouncement:
    """Return the announcement of another successor."""
    return HandOverAnnouncement(predecessor=predecessor, successor="rival", instance_id="i1")


def another_id_is_free() -> tuple[Scene, dict[str, Holder], str]:
    """Return a successor that waits for its holder, the holders, one of which has ended, and the ended holder's id."""
    scene = written(read(warmed(pooled())))
    asked = scene.protocol.claim.successor
    other = next(i for i in POOL if i != asked.instance_id)
    assert asked.holder is not None
    after = {str(asked.instance_id): asked.holder, other: RELEASED}
    return describe(scene, **after), after, other


def test_id_of_a_member_that_ended_without_a_hand_over_is_taken_at_once() -> None:
    """Kubernetes may end a process other than the announced predecessor; its partitions have no owner until then."""
    scene, after, other = another_id_is_free()
    began = scene.now
    (order,) = scene.new(ReadAnnouncements)
    assert (order.partitions, scene.new_heartbeats) == ({ORDERS_1}, [])
    describe(read(scene), **after)
    assert ([heartbeat.instance_id for heartbeat in scene.new_heartbeats], scene.now) == ([other], began)


def test_released_id_is_left_to_its_successor() -> None:
    """A member that waits for another id takes this one only if its successor does not come."""
    scene, after, other = another_id_is_free()
    began = scene.now
    read(scene, rival())
    while not scene.new_heartbeats:
        describe(scene.poll(), **after)
    assert RESERVED_FOR_OTHERS_S <= scene.now - began < RESERVED_FOR_OTHERS_S + 0.1
    assert [heartbeat.instance_id for heartbeat in scene.heartbeats][-1] == other


def test_predecessor_of_a_pool_leaves_its_own_id_longer_to_its_successor() -> None:
    """If the predecessor took its id back while the successor is paused, the successor would wait for it forever."""
    scene = released_of_pool()
    began = scene.now
    while not scene.new_heartbeats:
        describe(scene.poll(), i0=OWN, i1=holder("old1"))
    assert RESERVED_S <= scene.now - began < RESERVED_S + 0.3
    assert [heartbeat.instance_id for heartbeat in scene.heartbeats][-1] == "i0"


def test_released_id_is_taken_at_once_if_its_successor_has_another_one() -> None:
    """The announcement of that successor had no effect."""
    scene, after, other = another_id_is_free()
    describe(read(scene, rival()), **(after | {"outside": holder("rival", ORDERS_1)}))
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == [other]


def test_announcement_to_an_earlier_holder_reserves_no_id() -> None:
    """Announcements stay in the helper group after they have taken effect."""
    scene, after, other = another_id_is_free()
    describe(read(scene, rival("earlier")), **after)
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == [other]


@pytest.mark.parametrize("is_refused", [False, True])
def test_unreadable_announcement_reserves_no_id(is_refused: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Announcements are hints: without them the coordinator gives the id to the first member."""
    scene, after, other = another_id_is_free()
    order = scene.all(ReadAnnouncements)[-1]
    scene.feed(AnnouncementsNotRead(request_id=order.request_id, error=NOT_ALLOWED, is_refused=is_refused))
    describe(scene, **after)
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == [other]


def test_free_id_whose_last_holder_had_no_partitions_is_taken_without_an_announcement() -> None:
    """Without partitions there is no announcement to find and nothing to prepare."""
    scene, after, other = another_id_is_free()
    empty = Holder(member_id="empty", member_epoch=-2)
    describe(read(scene, rival()), **(after | {other: empty}))
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == [other]


def test_successor_that_joins_elsewhere_withdraws_its_announcement() -> None:
    """The holder to which the successor announced itself stays in the group."""
    scene, after, _ = another_id_is_free()
    announcement = scene.all(WriteAnnouncement)[-1]
    describe(read(scene), **after).answer(1, [A1])
    assert [(order.partition, order.announcement) for order in scene.new(WriteAnnouncement)] == [
        (announcement.partition, None)
    ]


def test_successor_that_joins_as_planned_withdraws_nothing() -> None:
    """The announcement has taken effect, and the announcement of the next successor may already have replaced it."""
    scene = describe(announced(), i=GONE).answer(1, [A0])
    assert scene.new(WriteAnnouncement) == []


def test_successor_that_leaves_withdraws_its_announcement() -> None:
    """If the application closes before the hand-over, the holder keeps its id."""
    assert [order.announcement for order in announced().leave().new(WriteAnnouncement)] == [None]


def test_successor_of_a_pool_joins_with_the_id_that_it_requested() -> None:
    """The member joins with the id for whose partitions the application has prepared."""
    scene = written(read(warmed(pooled())))
    mine = str(scene.protocol.claim.successor.instance_id)
    other = next(i for i in POOL if i != mine)
    describe(scene, **{mine: GONE, other: GONE})
    assert [heartbeat.instance_id for heartbeat in scene.new_heartbeats] == [mine]


# ---- the predecessor ----


def test_predecessor_releases_everything_in_order_and_leaves_with_minus_two() -> None:
    """A hand-over is a leave without a request of the application: pause, commit, on_revoke, then epoch -2."""
    scene = handing_over()
    assert scene.state is S.UNSUBSCRIBING
    assert isinstance(scene.step, PausePartitions)
    scene.finish()
    assert isinstance(scene.step, RevokePartitions)
    scene.finish()
    assert [(heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats] == [("i", -2)]
    scene.answer(-2)
    assert (scene.state, scene.view.owned, scene.all(LeaveCompleted)) == (S.JOINING, {}, [])


def test_predecessor_of_a_fixed_id_ends_when_its_successor_holds_the_id() -> None:
    """The error names the holder and is the error of a replaced member."""
    scene = describe(released(), i=Holder(member_id="successor", member_epoch=1, host="h"))
    assert scene.state is S.FATAL
    assert scene.view.last_error is not None
    assert (scene.view.last_error.name, "handed over to member successor" in scene.view.last_error.message) == (
        "FENCED_INSTANCE_ID",
        True,
    )


def test_predecessor_whose_successor_never_comes_joins_again_and_ignores_its_announcement() -> None:
    """The id stays free for a limited time; then the announcement of the dead successor has no effect any more."""
    scene = released()
    began = scene.now
    while not scene.new_heartbeats:
        describe(scene.poll(), i=Holder(member_id="member-1", member_epoch=-2))
    assert RESERVED_S <= scene.now - began < RESERVED_S + 1.0
    assert [order.announcement for order in scene.answer(3, [A0, A1]).new(WriteAnnouncement)] == [None]
    scene.settle().until(lambda s: bool(s.new(ReadAnnouncements)))
    assert requested(scene).state is S.STABLE
    scene.until(lambda s: bool(s.new(ReadAnnouncements)))
    assert requested(scene, "second").state is S.UNSUBSCRIBING


OWN = Holder(member_id="member-1", member_epoch=-2, partitions=frozenset({ORDERS_0}))


def handing_over_of_pool() -> Scene:
    """A predecessor with a pool that has just read the announcement of its successor."""
    scene = joining(instance_pool=POOL, conflict_policy=ConflictPolicy.HAND_OVER)
    describe(scene, i1=holder("old1")).answer(1, [A0]).settle()
    return requested(scene.until(lambda s: bool(s.all(ReadAnnouncements))), instance_id="i0")


def released_of_pool() -> Scene:
    """A predecessor with a pool that has released its id and then read the announcement to itself."""
    scene = handing_over_of_pool().settle()
    return requested(describe(scene, i0=OWN, i1=holder("old1")), instance_id="i0")


def test_predecessor_of_a_pool_waits_for_another_id_and_leaves_the_released_one() -> None:
    """The predecessor makes no request itself. It takes an id immediately if no other successor requested it."""
    scene = released_of_pool()
    describe(scene, i0=OWN, i1=holder("old1"))
    assert (scene.new_heartbeats, scene.state) == ([], S.JOINING)
    describe(scene, i0=holder("successor"), i1=holder("old1"))
    assert scene.all(WarmPartitions) == []
    describe(scene, i0=holder("successor"), i1=RELEASED)
    describe(read(scene), i0=holder("successor"), i1=RELEASED)
    assert ([heartbeat.instance_id for heartbeat in scene.new_heartbeats], scene.new(WriteAnnouncement)) == (["i1"], [])


def test_predecessor_of_a_pool_joins_with_a_new_member_id_if_it_takes_another_id() -> None:
    """The coordinator keeps the released id under the former member id, with its partitions."""
    other = describe(released_of_pool(), i0=OWN, i1=RELEASED)
    describe(read(other), i0=OWN, i1=RELEASED)
    assert [(heartbeat.member_id, heartbeat.instance_id) for heartbeat in other.new_heartbeats] == [("member-2", "i1")]
    other.reject(Verdict.RETRY, LOADING).next_heartbeat()
    assert other.heartbeats[-1].member_id == "member-2"


def test_predecessor_of_a_pool_takes_its_id_back_if_its_successor_joined_elsewhere() -> None:
    """The partitions of the predecessor have no owner for one round trip only."""
    scene = released_of_pool()
    began = scene.now
    describe(scene, i0=OWN, i1=holder("successor"))
    assert ([heartbeat.instance_id for heartbeat in scene.new_heartbeats], scene.now - began < 0.1) == (["i0"], True)
    assert [order.announcement for order in scene.answer(2, [A0]).new(WriteAnnouncement)] == [None]


@pytest.mark.parametrize("pool", [(), POOL], ids=["fixed id", "pool"])
def test_predecessor_whose_release_was_lost_releases_its_id_again(pool: tuple[str, ...]) -> None:
    """Otherwise no member would own the partitions until the session of the predecessor ends."""
    scene = handing_over_of_pool() if pool else handing_over()
    instance_id = "i0" if pool else "i"
    scene.settle(answers=False).drop()
    held = Holder(member_id="member-1", member_epoch=4, partitions=frozenset({ORDERS_0}))
    describe(scene, **{instance_id: held, "i1": holder("old1")})
    assert [
        (heartbeat.member_id, heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats
    ] == [("member-1", instance_id, -2)]
    scene.answer(-2)
    began = scene.now
    describe(scene, **{instance_id: OWN, "i1": holder("old1")})
    assert (scene.new_heartbeats, scene.state, scene.now - began < RESERVED_S) == ([], S.JOINING, True)


def test_predecessor_of_a_pool_that_is_replaced_during_its_release_waits_for_another_id() -> None:
    """The session ended meanwhile and its successor has the id, but the pool has other ids."""
    replaced = BrokerError(code=FENCED_INSTANCE_CODE, name="FENCED_INSTANCE_ID", message="fenced by member new")
    scene = handing_over_of_pool().with_heartbeat_in_flight().reject(Verdict.FATAL, replaced)
    assert (scene.finish().state, scene.new_heartbeats) == (S.JOINING, [])


def test_predecessor_reads_its_announcement_once_a_second_and_rarely_without_permission() -> None:
    """Without READ on the helper group, the broker's refusal is logged once."""
    scene = stable(A0, instance_id="i", conflict_policy=ConflictPolicy.HAND_OVER, max_poll_interval_s=1e6)
    read(scene.until(lambda s: bool(s.new(ReadAnnouncements))))
    began = scene.now
    scene.until(lambda s: bool(s.new(ReadAnnouncements)))
    assert scene.now - began == pytest.approx(READ_EVERY_S)
    for count in (1, 1):
        began = scene.now
        order = scene.all(ReadAnnouncements)[-1]
        scene.feed(AnnouncementsNotRead(request_id=order.request_id, error=NOT_ALLOWED, is_refused=True))
        assert len([one for one in scene.all(Warned) if "hand-over" in one.message]) == count
        scene.until(lambda s: bool(s.new(ReadAnnouncements)))
        assert scene.now - began == pytest.approx(READ_REFUSED_EVERY_S)


@pytest.mark.parametrize("policy", [ConflictPolicy.TAKEOVER, ConflictPolicy.WAIT, ConflictPolicy.FAIL])
def test_other_policies_read_no_announcements(policy: ConflictPolicy) -> None:
    """Without the hand-over policy a member sends no additional requests."""
    scene = stable(A0, instance_id="i", conflict_policy=policy).after(30.0)
    assert scene.all(ReadAnnouncements) == []


@pytest.mark.parametrize(
    ("predecessor", "successor", "instance_id"),
    [("other", "successor", "i"), ("member-1", "member-1", "i"), ("member-1", "successor", "j")],
)
def test_announcement_to_another_member_is_ignored(predecessor: str, successor: str, instance_id: str) -> None:
    """An announcement of an earlier membership, of this member itself, or for another id starts no hand-over."""
    scene = stable(A0, instance_id="i", conflict_policy=ConflictPolicy.HAND_OVER)
    announcement = HandOverAnnouncement(predecessor=predecessor, successor=successor, instance_id=instance_id)
    assert read(scene.until(lambda s: bool(s.new(ReadAnnouncements))), announcement).state is S.STABLE


def test_application_that_closes_during_a_hand_over_leaves_normally() -> None:
    """The successor finds the id free, as after a hand-over, and close() returns."""
    scene = handing_over().leave().settle()
    assert (scene.state, scene.all(LeaveCompleted)) == (S.UNSUBSCRIBED, [LeaveCompleted()])
    assert [heartbeat.member_epoch for heartbeat in scene.heartbeats][-1] == -2


def test_application_that_closes_after_a_hand_over_leaves_at_once() -> None:
    """The member is not in the group any more, so its leave sends no request."""
    scene = released().leave().settle()
    assert (scene.state, scene.all(LeaveCompleted)) == (S.UNSUBSCRIBED, [LeaveCompleted()])


@pytest.mark.parametrize("make", [handing_over, released])
def test_member_that_left_during_a_hand_over_ignores_its_announcement_afterwards(make: Callable[[], Scene]) -> None:
    """The application subscribed again, so this member is newer than the announcement, which still exists."""
    scene = make().leave().settle().subscribe("orders").poll().target(6, A0).settle()
    requested(scene.until(lambda s: bool(s.new(ReadAnnouncements))))
    assert scene.state is S.STABLE
    assert requested(scene.until(lambda s: bool(s.new(ReadAnnouncements))), "another").state is S.UNSUBSCRIBING


def test_application_that_does_not_poll_during_a_hand_over_leaves_at_max_poll_interval() -> None:
    """A stuck application delays its successor no longer than any other rebalance."""
    scene = handing_over(drain_timeout_s=MAX_POLL_S).after(MAX_POLL_S)
    assert (scene.state, scene.new(LosePartitions) != [], scene.heartbeats[-1].member_epoch) == (S.STALE, True, -2)
    scene.poll().finish()
    assert (scene.state, scene.new_heartbeats) == (S.JOINING, [])


def test_callback_that_does_not_return_during_a_hand_over_is_waited_for_until_the_drain_timeout() -> None:
    """The successor gets the id after 10 s, the time for the last commit. The application receives an error first.

    If the former holder continues later, it does not compete with its successor.
    """
    scene = handing_over(drain_timeout_s=5.0).finish()
    assert isinstance(scene.step, RevokePartitions)
    scene.after(14.9)
    assert (scene.state, scene.new_heartbeats[-1].member_epoch) == (S.UNSUBSCRIBING, 1)
    scene.after(0.1)
    assert ([heartbeat.member_epoch for heartbeat in scene.new_heartbeats], scene.state) == ([-2], S.STALE)
    (raised,) = scene.new(RaiseToApplication)
    assert (raised.error.code, "drain.timeout.ms=5000" in raised.error.message) == (POLL_TIMEOUT_CODE, True)
    scene.finish().poll().finish()
    assert (scene.state, scene.new_heartbeats) == (S.JOINING, [])


def test_predecessor_that_is_fenced_during_a_hand_over_waits_for_its_successor() -> None:
    """The successor owns the id, so the fenced member does not compete for it."""
    scene = handing_over().fence().finish()
    assert (scene.state, scene.new_heartbeats, scene.all(LeaveCompleted)) == (S.JOINING, [], [])


# ---- the tables ----

SUCCESSORS: Mapping[tuple[SuccessorState, SuccessorState], Callable[[], Scene]] = {
    (N.IDLE, N.WARMING): warming,
    (N.WARMING, N.WARMING): lambda: describe(warming(), i=holder("old", ORDERS_0, TopicPartition("payments", 0))),
    (N.RAISED, N.WARMING): lambda: warmed(warming(), failed=True).poll(),
    (N.READING, N.WARMING): lambda: describe(warmed(warming()), i=holder("old", TopicPartition("payments", 0))),
    (N.WRITING, N.WARMING): lambda: describe(read(warmed(warming())), i=holder("old", TopicPartition("payments", 0))),
    (N.ANNOUNCED, N.WARMING): lambda: describe(announced(), i=holder("old", TopicPartition("payments", 0))),
    (N.WARMING, N.RAISED): lambda: warmed(warming(), failed=True),
    (N.WARMING, N.READING): lambda: warmed(warming()),
    (N.READING, N.WRITING): lambda: read(warmed(warming())),
    (N.READING, N.IDLE): lambda: taken_by_another(pooled()),
    (N.WRITING, N.ANNOUNCED): announced,
    (N.ANNOUNCED, N.WRITING): lambda: describe(announced(), i=holder("old", ORDERS_1)),
    (N.READING, N.REFUSED): lambda: _refused(warmed(warming())),
    (N.WRITING, N.REFUSED): lambda: _refused(read(warmed(warming()))),
    (N.WARMING, N.IDLE): lambda: warming().leave(),
    (N.RAISED, N.IDLE): lambda: warmed(warming(), failed=True).leave(),
    (N.WRITING, N.IDLE): lambda: read(warmed(warming())).leave(),
    (N.ANNOUNCED, N.IDLE): lambda: announced().leave(),
    (N.REFUSED, N.IDLE): lambda: _refused(warmed(warming())).leave(),
}
PREDECESSORS: Mapping[tuple[PredecessorState, PredecessorState], Callable[[], Scene]] = {
    (P.HOLDING, P.RELEASING): handing_over,
    (P.RELEASING, P.RELEASED): released,
    (P.RELEASING, P.HOLDING): lambda: handing_over().leave(),
    (P.RELEASED, P.HOLDING): lambda: released().leave(),
}


def _refused(scene: Scene) -> Scene:
    read_request, write_request = scene.all(ReadAnnouncements)[-1:], scene.all(WriteAnnouncement)[-1:]
    if write_request:
        return scene.feed(
            AnnouncementNotWritten(request_id=write_request[0].request_id, error=NOT_ALLOWED, is_refused=True)
        )
    return scene.feed(AnnouncementsNotRead(request_id=read_request[0].request_id, error=NOT_ALLOWED, is_refused=True))


def _scene_after(edge: tuple[Enum, Enum]) -> Scene:
    """Return the scene whose last transition is this edge."""
    makers = [make for one, make in SUCCESSORS.items() if one == edge]
    makers += [make for two, make in PREDECESSORS.items() if two == edge]
    return makers[0]()


def test_scenes_cover_every_edge_of_the_tables() -> None:
    """Every edge of the tables has a scene; an edge that no member can take is a defect of its table."""
    requests = {(old, new) for old, after in followers(SUCCESSOR_TRANSITIONS).items() for new in after}
    releases = {(old, new) for old, after in followers(PREDECESSOR_TRANSITIONS).items() for new in after}
    assert (set(SUCCESSORS), set(PREDECESSORS)) == (requests, releases)


@pytest.mark.parametrize("edge", [*SUCCESSORS, *PREDECESSORS], ids=lambda edge: f"{edge[0]}-{edge[1]}")
def test_member_takes_the_edge(edge: tuple[Enum, Enum], monkeypatch: pytest.MonkeyPatch) -> None:
    """A real member takes each edge of the tables."""
    taken: list[tuple[object, object]] = []
    fire = StateMachine.fire

    def recorded(machine: StateMachine[Enum], trigger: Enum) -> Enum:
        old = fire(machine, trigger)
        taken.append((old, machine.state))
        return old

    monkeypatch.setattr(StateMachine, "fire", recorded)
    _scene_after(edge)
    assert edge in taken


EVENTS: tuple[HandOverEvent, ...] = (
    Warmed(attempt=0),
    Warmed(attempt=0, failed=True),
    AnnouncementsRead(request_id=10**6, announcements={}),
    AnnouncementsNotRead(request_id=10**6, error=NOT_ALLOWED, is_refused=True),
    AnnouncementWritten(request_id=10**6),
    AnnouncementNotWritten(request_id=10**6, error=NOT_ALLOWED, is_refused=True),
)


@pytest.mark.parametrize("edge", [*SUCCESSORS, *PREDECESSORS], ids=lambda edge: f"{edge[0]}-{edge[1]}")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_late_events_of_a_hand_over_change_nothing(edge: tuple[Enum, Enum], event: HandOverEvent) -> None:
    """In each state, a response to another request is dropped."""
    scene = _scene_after(edge)
    claim = scene.protocol.claim
    before = (claim.successor.state, claim.predecessor.state, scene.state)
    scene.feed(event)
    assert (claim.successor.state, claim.predecessor.state, scene.state) == before
