"""Whom a removal means, and what becomes of each, from descriptions and answers alone."""

from __future__ import annotations

import pytest

from consumer_membership.admin import MemberIdentity, RemovalOutcome, removal
from consumer_membership.errors import ConfigurationError
from consumer_membership.types import BrokerError, GroupProtocol
from tests.admin.builders import group, member

DYNAMIC, STATIC, AWAY = member("d"), member("s", "i"), member("a", "j", epoch=-2)
GROUP = group(DYNAMIC, STATIC, AWAY)
BY_ID, BY_INSTANCE = MemberIdentity(member_id="d"), MemberIdentity(instance_id="i")
UNKNOWN = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
FENCED = BrokerError(code=82, name="FENCED_INSTANCE_ID")


# ---- who is asked for ------------------------------------------------------------------------------------------------


def test_each_id_is_asked_for_once_in_the_order_given() -> None:
    """Instance ids first; an id that is named twice is one member."""
    assert removal.chosen(["i", "j", "i"], ["d", "d"], everyone=False) == (
        MemberIdentity(instance_id="i"),
        MemberIdentity(instance_id="j"),
        MemberIdentity(member_id="d"),
    )
    assert removal.chosen([], [], everyone=True) == ()


@pytest.mark.parametrize(
    ("instance_ids", "member_ids", "everyone", "key"),
    [
        pytest.param([], [], False, "member_ids", id="nobody"),
        pytest.param(["i"], [], True, "everyone", id="ids and everyone"),
        pytest.param([""], [], False, "instance_ids", id="an empty id"),
        pytest.param(["i"], ["d", ""], False, "member_ids", id="an empty id among others"),
        pytest.param("orders", [], False, "instance_ids", id="a text for a list"),
    ],
)
def test_unclear_choice_is_refused_before_anything_is_asked(
    instance_ids: list[str],
    member_ids: list[str],
    *,
    everyone: bool,
    key: str,
) -> None:
    """The key that is wrong is named; `instance_ids="orders"` does not mean six members."""
    with pytest.raises(ConfigurationError) as refusal:
        removal.chosen(instance_ids, member_ids, everyone=everyone)
    assert refusal.value.key == key


def test_everyone_is_asked_for_as_java_does() -> None:
    """A static member by its instance id, whoever holds it by then; a dynamic one by its member id."""
    assert [removal.identity_of(one) for one in GROUP.members] == [
        BY_ID,
        BY_INSTANCE,
        MemberIdentity(instance_id="j"),
    ]


def test_member_that_is_asked_for_both_ways_goes_once() -> None:
    """The second time the coordinator would not know it, and a removal would look like a failure."""
    both = [BY_INSTANCE, MemberIdentity(member_id="s"), BY_ID]
    assert removal.without_doubles(both, GROUP) == {both[0]: both[0], both[1]: both[0], BY_ID: BY_ID}
    assert removal.without_doubles(both, None) == {one: one for one in both}


@pytest.mark.parametrize(("reason", "said"), [(None, ""), ("", ""), ("moving", ": moving")])
def test_reason_begins_as_java_s(reason: str | None, said: str) -> None:
    """Operators search the coordinator's log for these words."""
    assert removal.full_reason(reason) == f"member was removed by an admin{said}"


# ---- what becomes of them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (BY_ID, "it comes back by itself; to evict it for good, stop its process first"),
        (
            BY_INSTANCE,
            "A consumer of this package ends with a fatal error and stays away until its program makes a new",
        ),
        (
            BY_INSTANCE,
            "other clients (librdkafka, Java) join again as a new member of the same instance id: to evict",
        ),
        (MemberIdentity(instance_id="j"), "it was away"),
    ],
)
def test_dry_run_says_who_is_meant_and_what_would_follow(asked: MemberIdentity, words: str) -> None:
    """What a removal leads to depends on whether the member may still be alive."""
    foreseen = removal.foreseen(asked, GROUP)
    assert (foreseen.outcome, foreseen.succeeded) == (RemovalOutcome.WOULD_BE_REMOVED, True)
    assert foreseen.member is not None
    assert words in foreseen.message
    done = removal.concluded(asked, None, GROUP, None)
    assert (done.outcome, done.member, done.message) == (RemovalOutcome.REMOVED, foreseen.member, foreseen.message)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (MemberIdentity(instance_id="x"), "no member with the instance id 'x'; its instance ids: i, j"),
        (MemberIdentity(member_id="x"), "no member with the member id 'x'; its member ids: a, d, s"),
        (MemberIdentity(member_id="i"), "'i'; it is the instance id of one: give it as that"),
        (MemberIdentity(instance_id="d"), "'d'; it is the member id of one: give it as that"),
    ],
)
def test_unknown_id_is_told_with_those_that_there_are(asked: MemberIdentity, words: str) -> None:
    """In a dry run and in a real one alike."""
    for unknown in (removal.foreseen(asked, GROUP), removal.concluded(asked, UNKNOWN, GROUP, GROUP)):
        assert (unknown.outcome, unknown.succeeded, unknown.member) == (RemovalOutcome.UNKNOWN, False, None)
        assert words in unknown.message


def test_unknown_id_in_a_group_that_has_none_of_the_kind() -> None:
    """No list of nothing."""
    asked = MemberIdentity(instance_id="x")
    assert removal.foreseen(asked, group()).message.endswith("'x'; it has no members")
    assert removal.foreseen(asked, group(DYNAMIC)).message.endswith("'x'; it has no member with an instance id")
    assert removal.concluded(asked, UNKNOWN, None, None).message == "the group has no member with the instance id 'x'"


def test_member_that_joined_after_the_description_is_removed_all_the_same() -> None:
    """The coordinator decides, not the description."""
    done = removal.concluded(MemberIdentity(member_id="new"), None, GROUP, None)
    assert (done.outcome, done.member, done.message) == (RemovalOutcome.REMOVED, None, "")


def test_member_that_left_meanwhile_is_gone_and_no_failure() -> None:
    """It left by itself, or an attempt removed it whose answer was lost: it is out of the group either way."""
    gone = removal.concluded(BY_ID, UNKNOWN, GROUP, group(STATIC))
    assert (gone.outcome, gone.succeeded, gone.member) == (RemovalOutcome.ALREADY_GONE, True, DYNAMIC)


def test_member_that_is_shown_and_not_known_is_too_new_for_the_broker() -> None:
    """Rules 3.5: before 4.0 LeaveGroup knows members of the classic protocol only."""
    refused = removal.concluded(BY_ID, UNKNOWN, GROUP, GROUP)
    assert (refused.outcome, refused.succeeded) == (RemovalOutcome.REFUSED, False)
    assert "can be removed from Apache Kafka 4.0 on" in refused.message
    classic = group(member("d", protocol=GroupProtocol.CLASSIC), protocol=GroupProtocol.CLASSIC)
    assert removal.concluded(BY_ID, UNKNOWN, classic, classic).message == "UNKNOWN_MEMBER_ID"


def test_any_other_error_is_a_refusal_in_the_broker_s_words() -> None:
    """Never a success."""
    refused = removal.concluded(BY_INSTANCE, FENCED, GROUP, None)
    assert (refused.outcome, refused.succeeded) == (RemovalOutcome.REFUSED, False)
    assert (refused.member, refused.message) == (STATIC, "FENCED_INSTANCE_ID")


def test_removal_without_description_says_what_is_not_known() -> None:
    """Topics that may not be described hide the members, not the right to remove them."""
    done = removal.concluded(BY_ID, None, None, None)
    assert (done.outcome, done.member) == (RemovalOutcome.REMOVED, None)
    assert "describing the group is not allowed" in done.message
