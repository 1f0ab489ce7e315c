"""Which members a removal selects and its outcome for each, from descriptions and responses alone."""

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


def test_chosen_returns_each_id_once_in_given_order() -> None:
    """Instance ids come first; a repeated id is one member."""
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
def test_chosen_with_ambiguous_selection_raises(
    instance_ids: list[str],
    member_ids: list[str],
    *,
    everyone: bool,
    key: str,
) -> None:
    """The error names the wrong key; `instance_ids="orders"` does not mean six members."""
    with pytest.raises(ConfigurationError) as refusal:
        removal.chosen(instance_ids, member_ids, everyone=everyone)
    assert refusal.value.key == key


def test_identity_of_uses_instance_id_of_static_members() -> None:
    """As in Java, a static member is removed by its instance id and a dynamic one by its member id."""
    assert [removal.identity_of(one) for one in GROUP.members] == [
        BY_ID,
        BY_INSTANCE,
        MemberIdentity(instance_id="j"),
    ]


def test_without_doubles_merges_both_ids_of_one_member() -> None:
    """The coordinator would report the second id as unknown, and the removal would look like a failure."""
    both = [BY_INSTANCE, MemberIdentity(member_id="s"), BY_ID]
    assert removal.without_doubles(both, GROUP) == {both[0]: both[0], both[1]: both[0], BY_ID: BY_ID}
    assert removal.without_doubles(both, None) == {one: one for one in both}


@pytest.mark.parametrize(("reason", "said"), [(None, ""), ("", ""), ("moving", ": moving")])
def test_full_reason_begins_with_java_wording(reason: str | None, said: str) -> None:
    """Operators search the coordinator's log for this text."""
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
def test_foreseen_names_member_and_consequence(asked: MemberIdentity, words: str) -> None:
    """The consequence of a removal depends on whether the member may still be alive."""
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
def test_unknown_id_message_lists_existing_ids(asked: MemberIdentity, words: str) -> None:
    """A dry run and a real removal have the same message."""
    for unknown in (removal.foreseen(asked, GROUP), removal.concluded(asked, UNKNOWN, GROUP, GROUP)):
        assert (unknown.outcome, unknown.succeeded, unknown.member) == (RemovalOutcome.UNKNOWN, False, None)
        assert words in unknown.message


def test_unknown_id_message_without_such_ids_has_no_list() -> None:
    """The message has no empty list of ids."""
    asked = MemberIdentity(instance_id="x")
    assert removal.foreseen(asked, group()).message.endswith("'x'; it has no members")
    assert removal.foreseen(asked, group(DYNAMIC)).message.endswith("'x'; it has no member with an instance id")
    assert removal.concluded(asked, UNKNOWN, None, None).message == "the group has no member with the instance id 'x'"


def test_member_that_joined_after_description_is_removed() -> None:
    """The coordinator decides, not the description."""
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
    """Another error is never a success."""
    refused = removal.concluded(BY_INSTANCE, FENCED, GROUP, None)
    assert (refused.outcome, refused.succeeded) == (RemovalOutcome.REFUSED, False)
    assert (refused.member, refused.message) == (STATIC, "FENCED_INSTANCE_ID")


def test_removal_without_description_states_missing_authorization() -> None:
    """Topics without DESCRIBE authorization hide the members, but do not prevent their removal."""
    done = removal.concluded(BY_ID, None, None, None)
    assert (done.outcome, done.member) == (RemovalOutcome.REMOVED, None)
    assert "describing the group is not allowed" in done.message
