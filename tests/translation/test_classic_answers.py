"""Coordinator responses to a classic member: values, verdicts for every code, and messages."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership.classic.exchanges import (
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicLeft,
    ClassicVerdict,
    JoinAnswered,
    JoinRejected,
    SyncAnswered,
    SyncRejected,
)
from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.membership.events import CommitVerdict
from consumer_membership.translation import classic_answers
from consumer_membership.translation.consumer_protocol import encode_assignment, encode_subscription
from consumer_membership.translation.verdicts import classic_verdict
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from consumer_membership.wire.versions import Api
from tests.wire.classic import (
    SUBSCRIBED,
    classic_heartbeat_answer,
    heartbeat_order,
    join_answer,
    join_order,
    leave_order,
    sync_answer,
    sync_order,
)
from tests.wire.groups import commit_answer, leave_answer

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RETRY, REDISCOVER, NOW = ClassicVerdict.RETRY, ClassicVerdict.REDISCOVER, ClassicVerdict.REJOIN_NOW
REJOIN, KEEP, LATER = ClassicVerdict.REJOIN, ClassicVerdict.REJOIN_KEEP_ID, ClassicVerdict.REJOIN_LATER

#: Rules 4.7, by number; every code that is not here is fatal.
JOIN = {14: RETRY, 15: REDISCOVER, 16: REDISCOVER, 22: KEEP, 25: REJOIN, 27: NOW, 79: ClassicVerdict.MEMBER_ID_REQUIRED}
#: Rules 4.10: Java ends at 14.
SYNC = {14: LATER, 15: REDISCOVER, 16: REDISCOVER, 22: KEEP, 25: REJOIN, 27: NOW}
CLASSIC_HEARTBEAT = {14: RETRY, 15: REDISCOVER, 16: REDISCOVER, 22: KEEP, 25: REJOIN, 27: NOW}
#: The meaning of a commit's error codes for the membership; other codes have none.
COMMIT = {22: KEEP, 25: REJOIN, 27: NOW, 30: ClassicVerdict.FATAL, 82: ClassicVerdict.FATAL}
CODES = [*(code.value for code in ErrorCode), 134, 199, -2, 32767]


@pytest.mark.parametrize("code", CODES)
def test_classic_verdict_covers_every_error_code(code: int) -> None:
    """The tables are total, including for codes of newer brokers."""
    assert classic_verdict(Api.JOIN_GROUP, code) is JOIN.get(code, ClassicVerdict.FATAL)
    assert classic_verdict(Api.SYNC_GROUP, code) is SYNC.get(code, ClassicVerdict.FATAL)
    assert classic_verdict(Api.HEARTBEAT, code) is CLASSIC_HEARTBEAT.get(code, ClassicVerdict.FATAL)
    assert classic_answers.commit_membership(frozenset({0, code})) is COMMIT.get(code)  # type: ignore[attr-defined]  # imported there


@pytest.mark.parametrize("code", [code.value for code in ErrorCode if code.value])
def test_classic_response_with_any_error_code_is_rejection(code: int) -> None:
    """Each error code produces a rejection with that code and the request's number."""
    joined = classic_answers.join_group(join_answer(code=code), "g", join_order())
    assert isinstance(joined, JoinRejected)
    assert (joined.request_id, joined.verdict, joined.error.code) == (7, classic_verdict(Api.JOIN_GROUP, code), code)
    synced = classic_answers.sync_group(sync_answer(code=code), "g", sync_order())
    assert isinstance(synced, SyncRejected)
    assert (synced.request_id, synced.verdict, synced.error.code) == (8, classic_verdict(Api.SYNC_GROUP, code), code)
    heartbeat_response = classic_answers.heartbeat(classic_heartbeat_answer(code), "g", heartbeat_order())
    assert isinstance(heartbeat_response, ClassicHeartbeatRejected)
    assert (heartbeat_response.request_id, heartbeat_response.error.code) == (9, code)
    assert heartbeat_response.verdict is classic_verdict(Api.HEARTBEAT, code)


# ---- JoinGroup ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 9])
def test_join_response_gives_leader_each_members_subscription(version: int) -> None:
    """The subscription contains the instance id, which is outside the encoded bytes."""
    members = {"m": ("i", encode_subscription(SUBSCRIBED)), "n": encode_subscription(SUBSCRIBED, 1)}
    answer = join_answer(version=version, members=members)
    own = MemberSubscription(topics=SUBSCRIBED.topics, owned=SUBSCRIBED.owned, generation=4, instance_id="i")
    older = MemberSubscription(topics=SUBSCRIBED.topics, owned=SUBSCRIBED.owned, version=1)
    joined = classic_answers.join_group(answer, "g", join_order())
    assert joined == JoinAnswered(
        request_id=7,
        generation=5,
        member_id="m",
        leader_id="m",
        protocol_name="range",
        members={"m": own, "n": older},
    )
    assert joined.is_leader


def test_join_response_gives_follower_only_leader_id() -> None:
    """The coordinator sends the subscriptions to the leader only."""
    joined = classic_answers.join_group(join_answer(leader="n"), "g", join_order())
    assert isinstance(joined, JoinAnswered)
    assert (joined.is_leader, joined.leader_id, joined.members, joined.skip_assignment) == (False, "n", {}, False)


def test_join_response_lets_returning_leader_skip_assignment() -> None:
    """KIP-814: Version 9 has a flag for this."""
    joined = classic_answers.join_group(join_answer(skip_assignment=True), "g", join_order())
    assert isinstance(joined, JoinAnswered)
    assert joined.skip_assignment


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\xff\xff", b'{"worker":"w"}'])
def test_join_response_reports_unreadable_subscription_and_keeps_others(blob: bytes) -> None:
    """The group continues without the member whose subscription is unreadable."""
    answer = join_answer(members={"m": encode_subscription(SUBSCRIBED), "stranger": blob})
    joined = classic_answers.join_group(answer, "g", join_order())
    assert isinstance(joined, JoinAnswered)
    assert joined.members == {"m": SUBSCRIBED}
    (note,) = joined.unreadable.values()
    assert list(joined.unreadable) == ["stranger"]
    assert note.startswith("the subscription of member stranger cannot be decoded (")


def test_join_response_with_member_id_required_contains_member_id() -> None:
    """KIP-394: The member id counts only with this error code."""
    asked = classic_answers.join_group(join_answer(code=79, member_id="made", protocol_name=None), "g", join_order())
    assert isinstance(asked, JoinRejected)
    assert (asked.verdict, asked.member_id) == (ClassicVerdict.MEMBER_ID_REQUIRED, "made")
    unknown = classic_answers.join_group(join_answer(code=25, member_id="made"), "g", join_order())
    assert isinstance(unknown, JoinRejected)
    assert unknown.member_id == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"protocol_type": "connect"}, "its protocol type is 'connect'"),
        ({"protocol_name": "mine"}, "selected 'mine', but this member offered cooperative-sticky, range"),
        ({"protocol_name": None}, "selected no protocol"),
    ],
)
def test_join_response_with_protocol_not_offered_is_fatal(changed: dict[str, Any], words: str) -> None:
    """A protocol that this member did not offer is fatal, as in Java's client."""
    joined = classic_answers.join_group(join_answer(**changed), "g", join_order())
    assert isinstance(joined, JoinRejected)
    assert (joined.verdict, joined.error.name) == (ClassicVerdict.FATAL, "INCONSISTENT_GROUP_PROTOCOL")
    assert words in joined.error.description


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (81, "Consumer group g already has the configured maximum number of members; raise group.max.size"),
        (23, "Group g has no assignor in common with this member (cooperative-sticky, range)"),
        (26, "session.timeout.ms=45000 is outside the broker's group.min.session.timeout.ms"),
        (30, "Not authorized to access group: g"),
        (35, "group.instance.id is 'i'; use brokers of Apache Kafka 2.4 or later"),
        (82, "group.instance.id 'i' is held by another member of group g"),
    ],
)
def test_rejected_join_message_names_value_and_fix(code: int, words: str) -> None:
    """The protocol has no error message here, so this package provides one."""
    joined = classic_answers.join_group(join_answer(code=code), "g", join_order(instance_id="i"))
    assert isinstance(joined, JoinRejected)
    assert words in joined.error.description


# ---- SyncGroup ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 5])
def test_sync_response_returns_partitions_and_user_data(version: int) -> None:
    """The response also has the protocol's name from version 5."""
    answer = sync_answer(version=version, assignment=encode_assignment({T0, T1}, b"u", 0))
    assert classic_answers.sync_group(answer, "g", sync_order()) == SyncAnswered(
        request_id=8,
        assignment=frozenset({T0, T1}),
        user_data=b"u",
        protocol_name="range" if version == 5 else None,
    )


@pytest.mark.parametrize(
    ("blob", "note"),
    [
        (b"", "the group's leader omitted this member from its assignment"),
        (b"\x00\x00\x7f\xff\xff\xff", "the assignment of member m cannot be decoded ("),
    ],
)
def test_sync_response_with_unreadable_assignment_is_empty_with_note(blob: bytes, note: str) -> None:
    """A foreign leader's malformed assignment does not end the member."""
    synced = classic_answers.sync_group(sync_answer(assignment=blob), "g", sync_order())
    assert isinstance(synced, SyncAnswered)
    assert synced.assignment == frozenset()
    assert synced.note.startswith(note)


@pytest.mark.parametrize("changed", [{"protocol_type": "connect"}, {"protocol_name": "roundrobin"}])
def test_sync_response_with_other_protocol_is_fatal(changed: dict[str, Any]) -> None:
    """Rules 4.7: The client itself checks the protocol."""
    synced = classic_answers.sync_group(sync_answer(**changed), "g", sync_order())
    assert isinstance(synced, SyncRejected)
    assert (synced.verdict, synced.error.code) == (ClassicVerdict.FATAL, 23)


# ---- Heartbeat, LeaveGroup, OffsetCommit ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_classic_heartbeat_response_returns_request_id(version: int) -> None:
    """A successful response carries only the request's number."""
    answered = classic_answers.heartbeat(classic_heartbeat_answer(version=version), "g", heartbeat_order())
    assert answered == ClassicHeartbeatAnswered(request_id=9)


def test_leave_response_returns_members_own_result() -> None:
    """The result is the request's error, the member's error or None; a missing member is an error."""
    assert classic_answers.leave_group(leave_answer(("m", None, 0)), "g", leave_order()) == ClassicLeft(request_id=10)
    for answer, code in (
        (leave_answer(("m", None, 25)), 25),
        (leave_answer(code=16), 16),
        (leave_answer(("other", None, 0)), -1),
    ):
        error = classic_answers.leave_group(answer, "g", leave_order()).error
        assert error is not None
        assert error.code == code


def test_leave_response_matches_stale_member_by_instance_id() -> None:
    """Without a member id, the result is found by instance id; its code has the table's verdict."""
    order = leave_order(member_id="", instance_id="i")
    assert classic_answers.leave_group(leave_answer(("ghost", "i", 0)), "g", order) == ClassicLeft(request_id=10)
    assert classic_answers.leave_group(leave_answer(("", "i", 25)), "g", order).verdict is REJOIN
    assert {code: classic_verdict(Api.LEAVE_GROUP, code) for code in (14, 15, 16, 25, 30, 35, -1)} == {
        14: RETRY,
        15: REDISCOVER,
        16: REDISCOVER,
        25: REJOIN,
        **dict.fromkeys((30, 35, -1), ClassicVerdict.FATAL),
    }


def commit_order(*partitions: TopicPartition) -> CommitOffsets:
    """Build a commit."""
    offsets = {partition: OffsetAndMetadata(offset=7) for partition in partitions}
    return CommitOffsets(commit_id=4, offsets=offsets, member_id="m", member_epoch=5, instance_id="i")


@pytest.mark.parametrize(
    ("codes", "verdict", "membership"),
    [
        ({T0: 0, T1: 0}, CommitVerdict.FINAL, None),
        ({T0: 14, T1: 14}, CommitVerdict.RETRY, None),
        ({T0: 16, T1: 16}, CommitVerdict.REDISCOVER, None),
        ({T0: 0, T1: 12}, CommitVerdict.FINAL, None),
        ({T0: 22, T1: 22}, CommitVerdict.FINAL, KEEP),
        ({T0: 27, T1: 14}, CommitVerdict.FINAL, NOW),
        ({T0: 25, T1: 82}, CommitVerdict.FINAL, ClassicVerdict.FATAL),
    ],
)
def test_commit_response_returns_commit_and_membership_verdicts(
    codes: dict[TopicPartition, int], verdict: CommitVerdict, membership: ClassicVerdict | None
) -> None:
    """The commit verdict equals the consumer protocol's, and is final if the membership is in doubt."""
    answered = classic_answers.offset_commit(commit_answer(codes), "g", commit_order(T0, T1))
    assert (answered.answer.commit_id, answered.answer.verdict, answered.membership) == (4, verdict, membership)
    found = {partition: error.code if error else 0 for partition, error in answered.answer.errors.items()}
    assert found == codes


def test_fenced_commit_error_names_instance_id() -> None:
    """The broker sends only the code, so the message adds the instance id."""
    answered = classic_answers.offset_commit(commit_answer({T0: 82}), "g", commit_order(T0))
    error = answered.answer.errors[T0]
    assert error is not None
    assert "group.instance.id 'i'" in error.message
