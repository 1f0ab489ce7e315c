"""The rules of a coordinator of the consumer protocol (rules 2.4 and 3.1 to 3.7), on the simulation and on brokers.

Each test runs on the simulated coordinator with the rules of several versions and, marked integration, on a real
coordinator.
"""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.exchanges import (
    Commit,
    CommitResults,
    Describe,
    Described,
    Fetch,
    Fetched,
    LeavingMember,
)
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, Granted, Refused, Rules
from consumer_membership.types import Assignment, OffsetAndMetadata, TopicPartition
from tests.simulation.consumer.rule_scene import FIRST, NOTHING, Member, Sut, commit, fetch, pair, remove
from tests.simulation.under_test import PARTITIONS, TOPIC

#: A character of two UTF-16 code units, and four bytes in UTF-8.
G_CLEF = "\N{MUSICAL SYMBOL G CLEF}"
OFFSETS = {FIRST: OffsetAndMetadata(offset=3)}


# ---- epochs ----


def test_first_member_gets_all_partitions_with_its_join(consumer: Sut) -> None:
    """Rules 3.2: The response to the join of a group's first member has the whole assignment."""
    joined = Member(consumer, "m1").join()
    assert joined.assignment == frozenset(consumer.topic)
    assert joined.member_epoch > 0


def test_b11_handover_goes_through_revocation_and_its_acknowledgement(consumer: Sut) -> None:
    """B11: A handover takes three heartbeats, because the first member acknowledges the revocation."""
    first, second = Member(consumer, "m1"), Member(consumer, "m2")
    first.has_all()
    before = first.epoch
    assert second.join().assignment == NOTHING
    kept = first.next_assignment()
    assert (len(kept), first.epoch) == (PARTITIONS // 2, before)
    assert not second.heartbeat().assignment
    assert first.heartbeat(kept).member_epoch > before
    assert second.heartbeat().assignment == frozenset(consumer.topic) - kept


def test_b10_repeated_complete_heartbeats_change_nothing(consumer: Sut) -> None:
    """B10: A repeated complete heartbeat of a member that is stable, waits or must revoke gets the same response."""
    first, second = Member(consumer, "m1"), Member(consumer, "m2")
    joined = first.join()
    whole = frozenset(consumer.topic)
    stable = [first.heartbeat(whole, is_full=True) for _ in range(2)]
    second.join()
    first.next_assignment()
    second.heartbeat()
    waiting = [second.heartbeat(NOTHING, is_full=True) for _ in range(2)]
    revoking = [first.heartbeat(whole, is_full=True) for _ in range(2)]
    assert stable == [joined, joined]
    assert waiting[0] == waiting[1]
    assert revoking[0] == revoking[1]


def test_b09_rejoin_with_epoch_zero_is_accepted_from_4_2_on(consumer: Sut) -> None:
    """B09, KAFKA-19233: A known member that sends epoch 0 keeps its epoch; before 4.2 it is fenced."""
    first, _, kept = pair(consumer)
    known = first.epoch
    answer = first.call(0, NOTHING, is_full=True)
    if consumer.rules.accepts_rejoin:
        assert isinstance(answer, Granted)
        assert (answer.member_epoch, answer.assignment) == (known, kept)
    else:
        assert isinstance(answer, Refused)
        assert answer.code == code.FENCED_MEMBER_EPOCH


def test_previous_epoch_is_tolerated_in_a_complete_heartbeat_only(consumer: Sut) -> None:
    """Rules 3.1: Only a complete heartbeat may have the previous epoch, as the last response may have been lost."""
    first, second = Member(consumer, "m1"), Member(consumer, "m2")
    first.has_all()
    second.join()
    kept = first.next_assignment()
    before = first.epoch
    first.heartbeat(kept)
    assert first.refused(before) == code.FENCED_MEMBER_EPOCH
    again = first.call(before, kept, is_full=True)
    assert isinstance(again, Granted)
    assert again.assignment == kept


def test_larger_epoch_is_fenced(consumer: Sut) -> None:
    """Rules 3.1: A heartbeat with a larger epoch than the coordinator's is fenced, but the member stays."""
    member = Member(consumer, "m1")
    member.has_all()
    assert member.refused(member.epoch + 1) == code.FENCED_MEMBER_EPOCH
    member.heartbeat()


def test_heartbeat_of_a_non_member_gets_unknown_member_id(consumer: Sut) -> None:
    """Rules 3.1: An epoch above 0 is refused in a missing group and for a missing member, with different errors."""
    assert Member(consumer, "m1").call(3) == Refused(
        code.GROUP_ID_NOT_FOUND, f"Consumer group {consumer.group_id} not found."
    )
    Member(consumer, "m1").join()
    assert Member(consumer, "m2").call(3) == Refused(
        code.UNKNOWN_MEMBER_ID, f"Member m2 is not a member of group {consumer.group_id}."
    )


def test_join_with_missing_fields_or_owned_partitions_is_refused(consumer: Sut) -> None:
    """Rules 2.4: A join with missing fields, owned partitions or an unknown assignor is refused."""
    whole = frozenset(consumer.topic)
    member = Member(consumer, "m1")
    assert member.refused(0) == code.INVALID_REQUEST
    assert member.refused(0, whole, is_full=True) == code.INVALID_REQUEST
    assert member.refused(-2) == code.INVALID_REQUEST
    assert member.refused(-3) == code.INVALID_REQUEST
    assert Member(consumer, "").refused_join() == code.INVALID_REQUEST
    assert Member(consumer, "m1", "").refused_join() == code.INVALID_REQUEST
    assert Member(consumer, "m1", assignor="mine").call(0, NOTHING, is_full=True) == Refused(
        code.UNSUPPORTED_ASSIGNOR, "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


def test_smaller_subscription_shrinks_the_assignment(consumer: Sut) -> None:
    """KAFKA-19431: A smaller subscription shrinks the assignment; from 4.2 on, in the same response."""
    other, left = consumer.create_topic(2), frozenset(consumer.topic)
    member = Member(consumer, "m1", topics=(TOPIC, other.name))
    assert member.join().assignment == left | frozenset(other)
    member.topics = (TOPIC,)
    answer = member.heartbeat(left | frozenset(other), is_full=True)
    assert not consumer.rules.shrinks_immediately or answer.assignment == left
    consumer.until(lambda: member.whole(left) == left)


def test_added_partitions_of_a_subscribed_topic_are_assigned(consumer: Sut) -> None:
    """Rules 3.2: Partitions that are added to a subscribed topic are assigned."""
    topic = consumer.create_topic(2)
    member = Member(consumer, "m1", topics=(topic.name,))
    assert member.join().assignment == frozenset(topic)
    grown = consumer.grow_topic(topic, 3)
    assert member.next_assignment() == frozenset(grown)


def test_b03_pattern_is_resolved_later_and_removed_by_an_empty_one(consumer: Sut) -> None:
    """B03: The topics that match a regular expression are assigned later, and an empty pattern removes them."""
    other = consumer.create_topic(2)
    member = Member(consumer, "m1", topics=(), pattern=f"{TOPIC[:-1]}.")
    member.join()
    consumer.until(lambda: member.whole() == frozenset(consumer.topic))
    member.topics, member.pattern = (other.name,), ""
    consumer.until(lambda: member.whole() == frozenset(other))


def test_b03_invalid_pattern_is_refused(consumer: Sut) -> None:
    """B03: An invalid pattern gets INVALID_REGULAR_EXPRESSION, and the error text contains the pattern."""
    answer = Member(consumer, "m1", topics=(), pattern="[").call(0, NOTHING, is_full=True)
    assert isinstance(answer, Refused)
    assert answer.code == code.INVALID_REGULAR_EXPRESSION
    assert answer.message.startswith("SubscribedTopicRegex `[` is not a valid regular expression: ")


def test_first_member_of_an_emptied_group_gets_all_partitions_with_its_join(consumer: Sut) -> None:
    """Rules 7.1: The first member of an emptied group gets all partitions immediately, except on 4.3 (not tested)."""
    first = Member(consumer, "m1")
    first.has_all()
    first.call(-1)
    Member(consumer, "m2").has_all()


@pytest.mark.parametrize(("assignor", "shares"), [("range", [2, 4]), ("uniform", [3, 3]), (None, [3, 3])])
def test_assignor_that_members_request_assigns(consumer: Sut, assignor: str | None, shares: list[int]) -> None:
    """Rules 6.1: Range gives one member the first partitions of each topic; the broker's default is uniform."""
    topics = tuple(consumer.create_topic(3).name for _ in range(2))
    first, second = (Member(consumer, name, topics=topics, assignor=assignor) for name in ("m1", "m2"))
    first.join()
    second.join()
    consumer.until(lambda: len(first.whole()) < 6)
    kept = first.whole()
    first.heartbeat(kept)
    given = second.next_assignment()
    assert sorted([len(kept), len(given)]) == shares


def test_other_assignor_of_a_member_begins_an_epoch_from_4_4_on(consumer: Sut) -> None:
    """Rules 7.1: From 4.4 on, another assignor begins an epoch; before, it applies at the next change of the group."""
    member = Member(consumer, "m1")
    whole = member.join().assignment or NOTHING
    before = member.epoch
    member.assignor = "range"
    answer = member.heartbeat(whole, is_full=True)
    if consumer.rules.assigns_for_another_assignor:
        consumer.until(lambda: member.heartbeat().member_epoch > before)
    else:
        assert [answer.member_epoch, member.heartbeat().member_epoch] == [before, before]


# ---- removals ----


def test_silent_member_is_removed_at_the_end_of_its_session(brief_consumer: Sut) -> None:
    """Rules 3.2: A member without heartbeats is removed at the end of its session; its id is then unknown."""
    first, second, _ = pair(brief_consumer)

    def is_alone() -> bool:
        first.heartbeat()
        return brief_consumer.members() == {"m1"}

    brief_consumer.until(is_alone)
    assert second.refused(second.epoch) == code.UNKNOWN_MEMBER_ID
    brief_consumer.until(lambda: first.whole() == frozenset(brief_consumer.topic))


def test_member_that_does_not_revoke_in_time_is_removed(consumer: Sut) -> None:
    """Rules 3.2: A member that does not revoke within its rebalance timeout is removed, even if it sends heartbeats."""
    first, second = Member(consumer, "m1", rebalance_timeout_s=1.0), Member(consumer, "m2")
    first.has_all()
    second.join()
    first.next_assignment()

    def is_out() -> bool:
        second.heartbeat()
        return isinstance(answer := first.call(first.epoch), Refused) and answer.code == code.UNKNOWN_MEMBER_ID

    consumer.until(is_out)
    assert consumer.members() == {"m2"}


def test_b30_administrator_removes_members(consumer: Sut) -> None:
    """B30: Members are removed by member id, by instance id or by both, each with its own result (KAFKA-18188)."""
    first, static = Member(consumer, "m1"), Member(consumer, "m2", "i")
    first.join()
    static.join()
    unknown, fenced = code.UNKNOWN_MEMBER_ID, code.FENCED_INSTANCE_ID
    strangers = (LeavingMember("m9"), LeavingMember(instance_id="i9"), LeavingMember("m1", "i"))
    assert remove(consumer, *strangers) == (unknown, unknown, fenced)
    assert remove(consumer, LeavingMember("m1"), LeavingMember(instance_id="i")) == (0, 0)
    assert first.refused(first.epoch) == unknown
    assert static.refused(static.epoch) == unknown


# ---- static members ----


def test_takeover_of_a_held_instance_id_fences_the_holder(consumer: Sut) -> None:
    """Rules 3.3: A join with a held instance id is refused until the id is released; it fences the holder."""
    holder, newcomer = Member(consumer, "m1", "i"), Member(consumer, "m2", "i")
    holder.has_all()
    epoch = holder.epoch
    assert newcomer.call(0, NOTHING, is_full=True) == Refused(
        code.UNRELEASED_INSTANCE_ID,
        "Static member m2 with instance id i cannot join the group because the instance id is owned by m1 member.",
    )
    assert holder.call(-2) == Granted(member_epoch=-2, heartbeat_interval_s=0.0, assignment=None)
    newcomer.has_all()
    assert newcomer.epoch == epoch
    assert holder.call(epoch) == Refused(
        code.FENCED_INSTANCE_ID, "Static member m1 with instance id i was fenced by member m2."
    )


def test_holder_cannot_join_again_without_a_release(consumer: Sut) -> None:
    """Rules 3.3: A holder cannot join again with its own instance id before it has released the id."""
    holder = Member(consumer, "m1", "i")
    holder.has_all()
    assert holder.call(0, NOTHING, is_full=True) == Refused(
        code.UNRELEASED_INSTANCE_ID,
        "Static member m1 with instance id i cannot join the group because the instance id is owned by m1 member.",
    )


def test_released_place_is_taken_without_a_change_for_other_members(consumer: Sut) -> None:
    """Rules 3.3: A member that takes a released id gets its partitions immediately; other members do not change."""
    first, static = Member(consumer, "m1"), Member(consumer, "m2", "i")
    first.has_all()
    static.join()
    kept = first.next_assignment()
    first.heartbeat(kept)
    given = static.next_assignment()
    epoch = first.heartbeat().member_epoch
    static.call(-2)
    assert Member(consumer, "m3", "i").join().assignment == given
    assert first.heartbeat() == Granted(
        member_epoch=epoch, heartbeat_interval_s=first.heartbeat().heartbeat_interval_s, assignment=None
    )


def released_pair(sut: Sut) -> tuple[Member, Assignment, Assignment]:
    """Let two static members leave with -2; return the first member, and the partitions of the ids i1 and i2."""
    first, second = Member(sut, "m1", "i1"), Member(sut, "m2", "i2")
    first.has_all()
    second.join()
    kept = first.next_assignment()
    first.heartbeat(kept)
    given = second.next_assignment()
    second.heartbeat(given)
    first.call(-2)
    second.call(-2)
    return first, kept, given


def test_member_id_with_another_instance_id_takes_its_own_partitions_out_of_the_target(consumer: Sut) -> None:
    """Rules 3.3: If a member id joins with another instance id, the second target replaces its first target.

    The partitions of the first id then have no owner. Before 4.4 the first id is also refused to every other member;
    from 4.4 on, a member that joins with it is a new member.
    """
    first, kept, given = released_pair(consumer)
    again = Member(consumer, first.member_id, "i2")
    assert again.join().assignment == given
    assert again.whole(given) == given
    described = consumer.call(Describe())
    assert isinstance(described, Described)
    assert described.holders.keys() == {"i2"}
    other = Member(consumer, "m3", "i1")
    if consumer.rules.releases_former_instance:
        before = again.epoch
        other.join()
        consumer.until(lambda: other.whole() == kept)
        assert other.epoch > before
    else:
        assert other.refused_join() == code.UNRELEASED_INSTANCE_ID


def test_new_member_id_with_another_instance_id_leaves_its_partitions_to_the_next_holder(consumer: Sut) -> None:
    """Rules 3.3: Released instance ids keep their partitions for new member ids."""
    _, kept, given = released_pair(consumer)
    assert Member(consumer, "m3", "i2").join().assignment == given
    assert Member(consumer, "m4", "i1").join().assignment == kept


def test_member_without_topics_that_leaves_increases_the_epoch(consumer: Sut) -> None:
    """Rules 3.3: A replacement gets the former epoch; a member without topics that joins and leaves increases it.

    No partition moves, and the member without topics gets no partition.
    """
    first, second = Member(consumer, "m1"), Member(consumer, "m2", "i")
    first.has_all()
    second.join()
    kept = first.next_assignment()
    first.heartbeat(kept)
    given = second.next_assignment()
    second.heartbeat(given)
    consumer.until(lambda: first.heartbeat().member_epoch == second.heartbeat().member_epoch)
    before = second.epoch
    second.call(-2)
    newcomer = Member(consumer, "m3", "i")
    assert newcomer.join() == Granted(
        member_epoch=before, heartbeat_interval_s=first.heartbeat().heartbeat_interval_s, assignment=given
    )
    temporary = Member(consumer, "m4", topics=())
    assert temporary.join().assignment == NOTHING
    temporary.call(-1)
    consumer.until(lambda: newcomer.heartbeat().member_epoch > before)
    assert newcomer.whole(given) == given
    consumer.until(lambda: first.heartbeat().member_epoch == newcomer.epoch)
    assert first.whole(kept) == kept


def test_released_place_is_kept_until_the_session_ends(brief_consumer: Sut) -> None:
    """Rules 3.3: After a leave with -2 other members get the member's partitions only when its session ends."""
    first, static = Member(brief_consumer, "m1"), Member(brief_consumer, "m2", "i")
    first.has_all()
    static.join()
    kept = first.next_assignment()
    first.heartbeat(kept)
    static.next_assignment()
    static.call(-2)
    assert brief_consumer.members() == {"m1", "m2"}
    assert first.next_assignment() == frozenset(brief_consumer.topic)
    assert brief_consumer.members() == {"m1"}


def test_static_member_that_left_permanently_is_unknown(consumer: Sut) -> None:
    """Rules 3.3: A leave with -1 removes the instance id, and the other members get its partitions."""
    first, static = Member(consumer, "m1"), Member(consumer, "m2", "i")
    first.has_all()
    static.join()
    first.heartbeat(first.next_assignment())
    static.next_assignment()
    epoch = static.epoch
    static.call(-1)
    assert static.call(epoch) == Refused(code.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    assert first.next_assignment() == frozenset(consumer.topic)


def test_only_the_holder_can_release_its_place(consumer: Sut) -> None:
    """Rules 3.3: A leave with -2 is fenced for another member's id, and unknown for an id without a holder."""
    Member(consumer, "m1", "i").has_all()
    assert Member(consumer, "m2", "i").refused(-2) == code.FENCED_INSTANCE_ID
    assert Member(consumer, "m2", "i9").refused(-2) == code.UNKNOWN_MEMBER_ID


def test_describe_returns_the_holder_of_an_instance_id(consumer: Sut) -> None:
    """Rules 3.3: ConsumerGroupDescribe returns the holder of an instance id, with epoch -2 after its release."""
    holder = Member(consumer, "m1", "i")
    holder.has_all()
    Member(consumer, "m2").join()
    epochs = []
    for _ in range(2):
        described = consumer.call(Describe())
        assert isinstance(described, Described)
        epochs.append({name: (one.member_id, one.member_epoch) for name, one in described.holders.items()})
        before, _ = holder.epoch, holder.call(-2)
    assert epochs == [{"i": ("m1", epochs[0]["i"][1])}, {"i": ("m1", -2)}]
    assert (epochs[0]["i"][1] or 0) > 0
    assert before is not None


def test_describe_returns_the_partitions_of_a_holder_that_left_temporarily(consumer: Sut) -> None:
    """Rules 3.3: ConsumerGroupDescribe returns the assignment of a released id, so that its next holder can prepare."""
    holder = Member(consumer, "m1", "i")
    holder.has_all()
    for _ in range(2):
        described = consumer.call(Describe(with_partitions=True))
        assert isinstance(described, Described)
        assert described.holders["i"].partitions == {TopicPartition(TOPIC, number) for number in range(PARTITIONS)}
        holder.call(-2)


def test_full_group_refuses_a_new_member(small_consumer: Sut) -> None:
    """KAFKA-20601: A full group refuses new members, and before 4.4 also a returning instance id."""
    static, other = Member(small_consumer, "m1", "i"), Member(small_consumer, "m2")
    static.join()
    other.join()
    assert Member(small_consumer, "m3").call(0, NOTHING, is_full=True) == Refused(
        code.GROUP_MAX_SIZE_REACHED, "The consumer group has reached its maximum capacity of 2 members."
    )
    static.call(-2)
    answer = Member(small_consumer, "m4", "i").call(0, NOTHING, is_full=True)
    assert isinstance(answer, Granted) is small_consumer.rules.admits_returning_instances


# ---- offsets ----


def test_b31_commits_are_fenced_by_the_epoch(consumer: Sut) -> None:
    """B31: KIP-1251 (4.3) accepts older epochs for partitions that are held since then; larger epochs are refused."""
    first, second = Member(consumer, "m1"), Member(consumer, "m2")
    first.has_all()
    second.join()
    kept = first.next_assignment()
    old = first.epoch
    now = first.heartbeat(kept).member_epoch
    partition = TopicPartition(TOPIC, min(kept).partition)
    stale = code.STALE_MEMBER_EPOCH
    of_old = 0 if consumer.rules.accepts_older_commits else stale
    assert [first.commit(epoch, partition) for epoch in (old, now, now + 1)] == [of_old, 0, stale]
    new = TopicPartition(TOPIC, min(second.next_assignment()).partition)
    assert [second.commit(epoch, new) for epoch in (second.epoch - 1, second.epoch)] == [stale, 0]


def test_commits_without_a_member_are_accepted_only_in_an_empty_group(consumer: Sut) -> None:
    """Rules 3.6: A commit without a member creates a missing group, and is refused while the group has members."""
    assert commit(consumer, "m9", 3) == code.GROUP_ID_NOT_FOUND
    assert commit(consumer, "", -1) == 0
    member = Member(consumer, "m1")
    member.join()
    refusals = [commit(consumer, "", -1), commit(consumer, "m9", member.epoch)]
    assert refusals == [code.UNKNOWN_MEMBER_ID, code.UNKNOWN_MEMBER_ID]


def test_instance_id_of_a_commit_is_not_checked(consumer: Sut) -> None:
    """Rules 3.6: The coordinator ignores a commit's instance id in a group of the consumer protocol."""
    member = Member(consumer, "m1")
    member.join()
    wrong = Commit(member_id="m1", generation=member.epoch, instance_id="i9", offsets=OFFSETS)
    assert consumer.call(wrong) == CommitResults(codes={FIRST: 0})


def test_former_epoch_of_a_released_member_is_stale(consumer: Sut) -> None:
    """Rules 3.6: A commit of a member that left with -2 gets STALE_MEMBER_EPOCH."""
    member = Member(consumer, "m1", "i")
    member.has_all()
    epoch = member.epoch
    member.call(-2)
    assert member.commit(epoch) == code.STALE_MEMBER_EPOCH


def test_b32_offset_fetch_refuses_an_older_epoch(consumer: Sut) -> None:
    """B32: OffsetFetch refuses older epochs, as KIP-1251 covers only commits; a fetch without a member succeeds."""
    first, second = Member(consumer, "m1"), Member(consumer, "m2")
    first.has_all()
    before = first.epoch
    assert fetch(consumer, "m1", before) == Fetched(offsets={FIRST: None})
    second.join()
    first.heartbeat(first.next_assignment())
    assert fetch(consumer, "m1", first.epoch) == Fetched(offsets={FIRST: None})
    assert fetch(consumer) == Fetched(offsets={FIRST: None})
    assert fetch(consumer, "m1", before) == Refused(code.STALE_MEMBER_EPOCH)
    assert fetch(consumer, "m1", first.epoch + 1) == Refused(code.STALE_MEMBER_EPOCH)
    assert fetch(consumer, "m9", 1) == Refused(code.UNKNOWN_MEMBER_ID)


def test_offset_fetch_of_a_missing_group_returns_no_offset(consumer: Sut) -> None:
    """Rules 3.7: OffsetFetch of a missing group returns no offset, and does not check the member."""
    assert fetch(consumer) == Fetched(offsets={FIRST: None})
    assert fetch(consumer, "m1", 1) == Fetched(offsets={FIRST: None})


def test_committed_offsets_are_returned_and_removed_with_their_topic(consumer: Sut) -> None:
    """Rules 3.7: OffsetFetch returns committed offsets, which are removed with their topic."""
    topic = consumer.create_topic(1)
    partition = TopicPartition(topic.name, 0)
    wanted = Fetch(partitions=frozenset({partition}))
    assert commit(consumer, "", -1, partition) == 0
    assert consumer.call(wanted) == Fetched(offsets={partition: OffsetAndMetadata(offset=3)})
    consumer.delete_topic(topic)
    consumer.until(lambda: consumer.call(wanted) == Fetched(offsets={partition: None}))
    assert commit(consumer, "", -1, partition) == code.UNKNOWN_TOPIC_OR_PARTITION


def test_commit_with_too_long_metadata_is_refused_for_its_partition(consumer: Sut) -> None:
    """Rules 3.6: Metadata may have up to offset.metadata.max.bytes (4096) UTF-16 code units."""
    kept, refused = (TopicPartition(consumer.create_topic(1).name, 0) for _ in range(2))
    offsets = {
        kept: OffsetAndMetadata(offset=3, metadata=G_CLEF * 2048),
        refused: OffsetAndMetadata(offset=3, metadata=G_CLEF * 2048 + "m"),
    }
    assert consumer.call(Commit(offsets=offsets)) == CommitResults(
        codes={kept: 0, refused: code.OFFSET_METADATA_TOO_LARGE}
    )
    wanted = Fetch(partitions=frozenset(offsets))
    assert consumer.call(wanted) == Fetched(offsets={kept: offsets[kept], refused: None})


# ---- several nodes, only on the simulation ----


@pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_2, RULES_4_4], ids=["4.0", "4.2", "4.4"])
def test_requests_to_another_or_a_loading_node_are_refused(rules: Rules) -> None:
    """Rules 4.7: After a move the old node refuses requests, and the new node refuses them until it has loaded."""
    sut = ConsumerCoordinator(rules)
    joins = Heartbeat(member_id="m1", member_epoch=0, rebalance_timeout_s=60.0, topics=("a",), owned=NOTHING)
    sut.answer("g", joins, 0.0)
    sut.move(2, 1.0, loading_s=0.5)
    asked = [sut.answer("g", joins, at, node_id=node) for node, at in ((1, 1.1), (2, 1.1), (2, 1.6))]
    codes = [answer.code if isinstance(answer, Refused) else 0 for answer in asked]
    assert codes == [code.NOT_COORDINATOR, code.COORDINATOR_LOAD_IN_PROGRESS, 0]
