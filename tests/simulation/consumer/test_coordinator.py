"""The fake coordinator keeps the broker's rules (rules 3.1 to 3.7): no fake may lie alone."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.types import OffsetAndMetadata, Offsets, TopicIdPartition, TopicPartition
from tests.simulation import rules as code
from tests.simulation.consumer.coordinator import ConsumerCoordinator
from tests.simulation.exchanges import Commit, CommitResults, Fetch, Fetched
from tests.simulation.rules import RULES_4_0, RULES_4_2, RULES_4_4, Granted, Refused, Rules

TOPIC = UUID(int=7)
ALL = frozenset(TopicIdPartition(TOPIC, number) for number in range(4))
FIRST = TopicPartition("a", 0)
EVERY_RULES = pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_2, RULES_4_4], ids=["4.0", "4.2", "4.4"])


def coordinator(rules: Rules) -> ConsumerCoordinator:
    """A coordinator of a cluster with topic a of four partitions."""
    sut = ConsumerCoordinator(rules)
    sut.create_topic("a", 4, TOPIC)
    return sut


def beat(
    member_id: str,
    epoch: int,
    owned: frozenset[TopicIdPartition] | None = None,
    *,
    is_full: bool = False,
    instance_id: str | None = None,
) -> Heartbeat:
    """A heartbeat; one with epoch 0 is complete and owns nothing."""
    is_full = is_full or epoch == 0
    return Heartbeat(
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rebalance_timeout_s=60.0 if is_full else None,
        topics=("a",) if is_full else None,
        owned=frozenset() if epoch == 0 else owned,
    )


def say(sut: ConsumerCoordinator, one: Heartbeat, now: float = 0.0) -> Granted | Refused:
    """Send a heartbeat."""
    answer = sut.answer("g", one, now)
    assert isinstance(answer, Granted | Refused), answer
    return answer


def commit(
    sut: ConsumerCoordinator, member_id: str, epoch: int, offsets: Offsets, now: float
) -> Mapping[TopicPartition, int]:
    """Commit; each partition's error code."""
    answer = sut.answer("g", Commit(member_id=member_id, generation=epoch, offsets=offsets), now)
    assert isinstance(answer, CommitResults), answer
    return answer.codes


def fetch(sut: ConsumerCoordinator, member_id: str | None, epoch: int) -> object:
    """Ask for what is committed of the first partition."""
    return sut.answer("g", Fetch(member_id=member_id, member_epoch=epoch, partitions=frozenset({FIRST})), 0.1)


def granted(sut: ConsumerCoordinator, one: Heartbeat, now: float = 0.0) -> Granted:
    """Send a heartbeat that succeeds."""
    answer = say(sut, one, now)
    assert isinstance(answer, Granted), answer
    return answer


def refused(sut: ConsumerCoordinator, one: Heartbeat, now: float = 0.0) -> int:
    """Send a heartbeat that is refused; the error code."""
    answer = say(sut, one, now)
    assert isinstance(answer, Refused), answer
    return answer.code


@EVERY_RULES
def test_b11_handover_goes_through_revocation_and_its_acknowledgement(rules: Rules) -> None:
    """B11: nothing goes to the second member before the first one has said that it gave it up."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    assert first.assignment == ALL
    second = granted(sut, beat("m2", 0), 2.0)
    assert second.assignment == frozenset()
    told = granted(sut, beat("m1", first.member_epoch), 2.1)
    assert (len(told.assignment or ()), told.member_epoch) == (2, first.member_epoch)
    assert granted(sut, beat("m2", second.member_epoch), 2.2).assignment is None
    assert granted(sut, beat("m1", told.member_epoch, told.assignment), 2.3).member_epoch > told.member_epoch
    assert granted(sut, beat("m2", second.member_epoch), 2.4).assignment == ALL - (told.assignment or ALL)


@EVERY_RULES
def test_b10_repeated_complete_heartbeats_change_nothing(rules: Rules) -> None:
    """B10: idempotent in the stable state, while waiting for partitions, and during a revocation."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    stable = [granted(sut, beat("m1", first.member_epoch, ALL, is_full=True), 0.1) for _ in range(2)]
    second = granted(sut, beat("m2", 0), 2.0)
    waiting = [granted(sut, beat("m2", second.member_epoch, frozenset(), is_full=True), 2.1) for _ in range(2)]
    revoking = [granted(sut, beat("m1", first.member_epoch, ALL, is_full=True), 2.2) for _ in range(2)]
    assert stable[0] == stable[1] == first
    assert waiting[0] == waiting[1] == second
    assert revoking[0] == revoking[1]


@pytest.mark.parametrize(
    ("rules", "expected"), [(RULES_4_0, code.FENCED_MEMBER_EPOCH), (RULES_4_2, None), (RULES_4_4, None)]
)
def test_b09_rejoin_with_epoch_zero_is_accepted_from_4_2_on(rules: Rules, expected: int | None) -> None:
    """B09, KAFKA-19233: before, a known member's epoch 0 is fenced once its previous epoch is not 0 any more."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    granted(sut, beat("m2", 0), 2.0)
    told = granted(sut, beat("m1", first.member_epoch), 2.1)
    granted(sut, beat("m1", told.member_epoch, told.assignment), 2.2)
    answer = say(sut, beat("m1", 0), 2.3)
    assert (answer.code if isinstance(answer, Refused) else None) == expected


@EVERY_RULES
def test_previous_epoch_is_tolerated_in_a_complete_heartbeat_only(rules: Rules) -> None:
    """Rules 3.1: the answer with the newer epoch was lost; a bare repetition is fenced."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    granted(sut, beat("m2", 0), 2.0)
    told = granted(sut, beat("m1", first.member_epoch), 2.1)
    granted(sut, beat("m1", told.member_epoch, told.assignment), 2.2)
    assert refused(sut, beat("m1", told.member_epoch), 2.3) == code.FENCED_MEMBER_EPOCH
    again = granted(sut, beat("m1", told.member_epoch, told.assignment, is_full=True), 2.4)
    assert again.assignment == told.assignment


@EVERY_RULES
def test_sessions_and_rebalance_timeouts_end(rules: Rules) -> None:
    """Rules 3.2: a silent member, and one that does not revoke in time, are removed."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    granted(sut, beat("m2", 0), 2.0)
    granted(sut, beat("m1", first.member_epoch), 2.1)
    for moment in range(3, 62):
        granted(sut, beat("m1", first.member_epoch), float(moment))
        sut.pass_time(float(moment))
    assert sut.groups["g"].members.keys() == {"m1"}
    sut.pass_time(62.2)
    assert refused(sut, beat("m1", first.member_epoch), 62.3) == code.UNKNOWN_MEMBER_ID


@EVERY_RULES
def test_takeover_of_a_held_instance_id(rules: Rules) -> None:
    """Rules 3.3, verified on 4.3.1: refused, released on the holder's behalf, joined, the holder is fenced."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0, instance_id="i"), 0.0)
    answer = say(sut, beat("m2", 0, instance_id="i"), 1.0)
    assert answer == Refused(
        code.UNRELEASED_INSTANCE_ID,
        "Static member m2 with instance id i cannot join the group because the instance id is owned by m1 member.",
    )
    granted(sut, Heartbeat(member_id="m1", member_epoch=-2, instance_id="i"), 1.1)
    taken = granted(sut, beat("m2", 0, instance_id="i"), 1.2)
    assert (taken.assignment, taken.member_epoch) == (ALL, first.member_epoch)
    assert refused(sut, beat("m1", first.member_epoch, instance_id="i"), 1.3) == code.FENCED_INSTANCE_ID


@EVERY_RULES
def test_static_member_that_left_for_good_is_unknown(rules: Rules) -> None:
    """Rules 3.3: -1 removes the instance id, -2 needs one."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0, instance_id="i"), 0.0)
    granted(sut, Heartbeat(member_id="m1", member_epoch=-1, instance_id="i"), 0.1)
    assert say(sut, beat("m1", first.member_epoch, instance_id="i"), 0.2) == Refused(
        code.UNKNOWN_MEMBER_ID, "Instance id i is unknown."
    )
    assert refused(sut, Heartbeat(member_id="m1", member_epoch=-2), 0.3) == code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("rules", "epochs"),
    [
        (RULES_4_2, {-1: code.STALE_MEMBER_EPOCH, 0: 0, 1: code.STALE_MEMBER_EPOCH}),
        (RULES_4_4, {-1: 0, 0: 0, 1: code.STALE_MEMBER_EPOCH}),
    ],
    ids=["4.2", "4.4"],
)
def test_commits_are_fenced_by_the_epoch(rules: Rules, epochs: dict[int, int]) -> None:
    """Rules 3.6: KIP-1251 (4.3) accepts an older epoch for what has been held since then."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    granted(sut, beat("m2", 0), 2.0)
    told = granted(sut, beat("m1", first.member_epoch), 2.1)
    now = granted(sut, beat("m1", told.member_epoch, told.assignment), 2.2).member_epoch
    kept = min(told.assignment or ())
    offsets = {TopicPartition("a", kept.partition): OffsetAndMetadata(offset=3)}
    answers = {step: commit(sut, "m1", now + step, offsets, 2.3) for step in epochs}
    assert {step: next(iter(answer.values())) for step, answer in answers.items()} == epochs


@EVERY_RULES
def test_commits_without_a_member_count_in_an_empty_group_only(rules: Rules) -> None:
    """Rules 3.6: a simple consumer's commit is refused while the group has members."""
    sut = coordinator(rules)
    offsets = {FIRST: OffsetAndMetadata(offset=3)}
    empty = commit(sut, "", -1, offsets, 0.0)
    granted(sut, beat("m1", 0), 0.1)
    assert (empty, commit(sut, "", -1, offsets, 0.2)) == ({FIRST: 0}, {FIRST: code.UNKNOWN_MEMBER_ID})


@EVERY_RULES
def test_offset_fetch_knows_no_older_epoch(rules: Rules) -> None:
    """Rules 3.7: no KIP-1251 for OffsetFetch; without a member it is always answered."""
    sut = coordinator(rules)
    first = granted(sut, beat("m1", 0), 0.0)
    assert fetch(sut, "m1", first.member_epoch) == Fetched(offsets={FIRST: None})
    assert fetch(sut, None, -1) == Fetched(offsets={FIRST: None})
    assert fetch(sut, "m1", first.member_epoch + 1) == Refused(code.STALE_MEMBER_EPOCH)
    assert fetch(sut, "m9", 1) == Refused(code.UNKNOWN_MEMBER_ID)


@EVERY_RULES
def test_other_nodes_and_a_loading_one_refuse(rules: Rules) -> None:
    """After a move the old node is not the coordinator, and the new one loads first."""
    sut = coordinator(rules)
    granted(sut, beat("m1", 0), 0.0)
    sut.move(2, 1.0, loading_s=0.5)
    asked = [sut.answer("g", beat("m1", 0), at, node_id=node) for node, at in ((1, 1.1), (2, 1.1), (2, 1.6))]
    codes = [answer.code if isinstance(answer, Refused) else 0 for answer in asked]
    assert codes == [code.NOT_COORDINATOR, code.COORDINATOR_LOAD_IN_PROGRESS, 0]


@EVERY_RULES
def test_join_must_be_complete_and_own_nothing(rules: Rules) -> None:
    """Rules 2.4: the broker's own checks."""
    sut = coordinator(rules)
    bare = Heartbeat(member_id="m1", member_epoch=0)
    owning = Heartbeat(member_id="m1", member_epoch=0, rebalance_timeout_s=1.0, topics=("a",), owned=ALL)
    foreign = Heartbeat(
        member_id="m1", member_epoch=0, rebalance_timeout_s=1.0, topics=("a",), owned=frozenset(), assignor="mine"
    )
    assert [refused(sut, one) for one in (bare, owning, foreign)] == [
        code.INVALID_REQUEST,
        code.INVALID_REQUEST,
        code.UNSUPPORTED_ASSIGNOR,
    ]
    assert ConsumerCoordinator(rules).answer("g", beat("m1", 3), 0.0) == Refused(
        code.GROUP_ID_NOT_FOUND, "Consumer group g not found."
    )
