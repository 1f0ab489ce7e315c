"""The members that a removal selects, and the outcome for each of them, computed from descriptions and responses."""

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


# ---- the selection ---------------------------------------------------------------------------------------------------


def test_chosen_returns_each_id_once_in_given_order() -> None:
    """Instance ids come first; a repeated id is one member."""
    assert removal.chosen(["i", "j", "i"], ["d", "d"], all_members=False) == (
        MemberIdentity(instance_id="i"),
        MemberIdentity(instance_id="j"),
        MemberIdentity(member_id="d"),
    )
    assert removal.chosen([], [], all_members=True) == ()


@pytest.mark.parametrize(
    ("instance_ids", "member_ids", "all_members", "key"),
    [
        pytest.param([], [], False, "member_ids", id="no selection"),
        pytest.param(["i"], [], True, "all_members", id="ids and all members"),
        pytest.param([""], [], False, "instance_ids", id="an empty id"),
        pytest.param(["i"], ["d", ""], False, "member_ids", id="an empty id among others"),
        pytest.param("orders", [], False, "instance_ids", id="a text for a list"),
    ],
)
def test_chosen_with_ambiguous_selection_raises(
    instance_ids: list[str],
    member_ids: list[str],
    *,
    all_members: bool,
    key: str,
) -> None:
    """The error names the wrong key; `instance_ids="orders"` does not mean six members."""
    with pytest.raises(ConfigurationError) as refusal:
        removal.chosen(instance_ids, member_ids, all_members=all_members)
    assert refusal.value.key == key


def test_pair_selects_the_member_that_has_both_ids() -> None:
    """KIP-345: A pair of instance id and member id selects no other holder of the instance id."""
    assert removal.chosen([], [], {"i": "s"}, all_members=False) == (MemberIdentity(member_id="s", instance_id="i"),)
    assert removal.found(MemberIdentity(member_id="s", instance_id="i"), GROUP) is STATIC
    assert removal.found(MemberIdentity(member_id="a", instance_id="i"), GROUP) is None


def test_wrong_pair_is_refused_with_the_present_holder() -> None:
    """FENCED_INSTANCE_ID: The message names the holder, in a dry run also; an unknown instance id is unknown."""
    wrong = MemberIdentity(member_id="d", instance_id="i")
    for result in (removal.foreseen(wrong, GROUP), removal.concluded(wrong, FENCED, GROUP, None)):
        assert (result.outcome, result.member, result.succeeded) == (RemovalOutcome.REFUSED, STATIC, False)
        assert "'i' is held by the member 's', not by 'd'" in result.message
    absent = removal.foreseen(MemberIdentity(member_id="d", instance_id="k"), GROUP)
    assert (absent.outcome, absent.member) == (RemovalOutcome.UNKNOWN, None)
    assert "no member with the instance id 'k'; existing instance ids: i, j" in absent.message
    hidden = removal.concluded(wrong, FENCED, None, None)
    assert (hidden.outcome, hidden.message) == (RemovalOutcome.REFUSED, "FENCED_INSTANCE_ID")


def test_identity_of_uses_instance_id_of_static_members() -> None:
    """As in Java, a static member is removed by its instance id and a dynamic one by its member id."""
    assert [removal.identity_of(one) for one in GROUP.members] == [
        BY_ID,
        BY_INSTANCE,
        MemberIdentity(instance_id="j"),
    ]


def test_without_doubles_merges_both_ids_of_one_member() -> None:
    """Both ids of a member are one removal, because the coordinator would report the second id as unknown."""
    both = [BY_INSTANCE, MemberIdentity(member_id="s"), BY_ID]
    assert removal.without_doubles(both, GROUP) == {both[0]: both[0], both[1]: both[0], BY_ID: BY_ID}
    assert removal.without_doubles(both, None) == {one: one for one in both}


@pytest.mark.parametrize(("reason", "suffix"), [(None, ""), ("", ""), ("moving", ": moving")])
def test_full_reason_begins_with_java_wording(reason: str | None, suffix: str) -> None:
    """The reason begins with the Java client's text, for which operators search the coordinator's log."""
    assert removal.full_reason(reason) == f"member was removed by an admin{suffix}"


# ---- the outcomes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (BY_ID, "it joins again automatically; to remove it permanently, stop its process first"),
        (BY_INSTANCE, "A consumer of this package then stops with a fatal error and does not join again"),
        (BY_INSTANCE, "other clients (librdkafka, Java) join again with the same instance id: to remove"),
        (MemberIdentity(instance_id="j"), "the static member was away"),
    ],
)
def test_foreseen_names_member_and_consequence(requested: MemberIdentity, words: str) -> None:
    """The consequence of a removal depends on whether the member may still be alive."""
    foreseen = removal.foreseen(requested, GROUP)
    assert (foreseen.outcome, foreseen.succeeded) == (RemovalOutcome.WOULD_BE_REMOVED, True)
    assert foreseen.member is not None
    assert words in foreseen.message
    done = removal.concluded(requested, None, GROUP, None)
    assert (done.outcome, done.member, done.message) == (RemovalOutcome.REMOVED, foreseen.member, foreseen.message)


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (MemberIdentity(instance_id="x"), "no member with the instance id 'x'; existing instance ids: i, j"),
        (MemberIdentity(member_id="x"), "no member with the member id 'x'; existing member ids: a, d, s"),
        (MemberIdentity(member_id="i"), "'i' is the instance id of a member: request it by instance id"),
        (MemberIdentity(instance_id="d"), "'d' is the member id of a member: request it by member id"),
    ],
)
def test_unknown_id_message_lists_existing_ids(requested: MemberIdentity, words: str) -> None:
    """A dry run and a real removal have the same message."""
    for unknown in (removal.foreseen(requested, GROUP), removal.concluded(requested, UNKNOWN, GROUP, GROUP)):
        assert (unknown.outcome, unknown.succeeded, unknown.member) == (RemovalOutcome.UNKNOWN, False, None)
        assert words in unknown.message


def test_unknown_id_message_without_such_ids_has_no_list() -> None:
    """The message has no empty list of ids."""
    requested = MemberIdentity(instance_id="x")
    assert removal.foreseen(requested, group()).message.endswith("'x'; the group has no members")
    assert removal.foreseen(requested, group(DYNAMIC)).message.endswith(
        "'x'; the group has no member with an instance id"
    )
    assert (
        removal.concluded(requested, UNKNOWN, None, None).message == "the group has no member with the instance id 'x'"
    )


def test_member_that_joined_after_description_is_removed() -> None:
    """A member that joined after the description is removed, because the coordinator decides."""
    done = removal.concluded(MemberIdentity(member_id="new"), None, GROUP, None)
    assert (done.outcome, done.member, done.message) == (RemovalOutcome.REMOVED, None, "")


def test_member_that_left_meanwhile_is_already_gone_and_succeeds() -> None:
    """The member left, or an attempt whose response was lost removed it; both are a success."""
    gone = removal.concluded(BY_ID, UNKNOWN, GROUP, group(STATIC))
    assert (gone.outcome, gone.succeeded, gone.member) == (RemovalOutcome.ALREADY_GONE, True, DYNAMIC)


def test_described_member_reported_unknown_is_refused_with_version_hint() -> None:
    """Rules 3.5: Before 4.0, LeaveGroup covers only members of the classic protocol."""
    refused = removal.concluded(BY_ID, UNKNOWN, GROUP, GROUP)
    assert (refused.outcome, refused.succeeded) == (RemovalOutcome.REFUSED, False)
    assert "can be removed from Apache Kafka 4.0 on" in refused.message
    classic = group(member("d", protocol=GroupProtocol.CLASSIC), protocol=GroupProtocol.CLASSIC)
    assert removal.concluded(BY_ID, UNKNOWN, classic, classic).message == "UNKNOWN_MEMBER_ID"


def test_other_removal_error_is_refused_with_brokers_error() -> None:
    """A member with another error in the response is refused, with the broker's error."""
    refused = removal.concluded(BY_INSTANCE, FENCED, GROUP, None)
    assert (refused.outcome, refused.succeeded) == (RemovalOutcome.REFUSED, False)
    assert (refused.member, refused.message) == (STATIC, "FENCED_INSTANCE_ID")


def test_removal_without_description_states_missing_authorization() -> None:
    """Topics without DESCRIBE authorization hide the members, but do not prevent their removal."""
    done = removal.concluded(BY_ID, None, None, None)
    assert (done.outcome, done.member) == (RemovalOutcome.REMOVED, None)
    assert "describing the group is not allowed" in done.message
