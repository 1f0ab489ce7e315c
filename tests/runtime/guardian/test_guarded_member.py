"""Which pictures of a member change what the guardian is to do for it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from consumer_membership.config import AddressFamily, ConnectionSettings, SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.membership.events import TimePassed
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.guardian.guarded_member import CLASSIC_GUARDED, GUARDED, GuardedMember
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.types import NO_MEMBER_ID, GroupProtocol
from consumer_membership.wire.versions import SPOKEN, Api
from tests.runtime.guardian.leave_requests import NotedGuardian, view
from tests.support.scripted_broker import _parse

SETTINGS = ConnectionSettings(
    bootstrap_servers=(("kafka", 9092),), client_id="app", address_family=AddressFamily.V4, crash_guardian=True
)


CLASSIC = GroupProtocol.CLASSIC


def told_of(*views: MembershipView) -> NotedGuardian:
    """A guardian that was told of these pictures of one member."""
    noted = NotedGuardian()
    observer = GuardedMember(noted, SETTINGS, ConnectionSecurity(SETTINGS))
    for picture in views:
        observer.observed(TimePassed(), (), picture)
    return noted


@pytest.mark.parametrize(
    "state",
    [MemberState.JOINING, MemberState.RECONCILE, MemberState.ACK, MemberState.STABLE, MemberState.UNSUBSCRIBING],
)
def test_member_that_the_coordinator_may_know_has_a_leave_request(state: MemberState) -> None:
    """A join may be on its way, and a leave not yet."""
    assert state in GUARDED
    ((_, request),) = told_of(view(state)).told
    assert request is not None
    assert (request.group_id, request.member_id, request.coordinator) == (
        "orders",
        "m",
        ("127.0.0.1", 9092),
    )
    assert request.bootstrap_servers == (("kafka", 9092),)


@pytest.mark.parametrize("state", sorted(set(MemberState) - GUARDED, key=str))
def test_member_out_of_its_group_has_none_any_more(state: MemberState) -> None:
    """UNSUBSCRIBED, FENCED, STALE, FATAL: there is nothing to leave."""
    noted = told_of(view(), view(state), view(state))
    assert [request is None for _, request in noted.told] == [False, True]
    assert told_of(view(state)).told == []


def test_nothing_is_said_while_nothing_changes() -> None:
    """Epochs and states within the group are not the guardian's; it is looked after all the same."""
    noted = told_of(view(MemberState.JOINING, epoch=0), view(MemberState.RECONCILE, epoch=3), view(epoch=4))
    assert (len(noted.told), noted.tended) == (1, 2)


def test_member_without_coordinator_is_unknown_to_it() -> None:
    """No heartbeat was sent yet."""
    assert told_of(view(MemberState.JOINING, None)).told == []


def test_lost_coordinator_is_the_last_one_known() -> None:
    """The guardian begins there, and looks it up where it is gone."""
    assert len(told_of(view(), view(coordinator=None)).told) == 1


@pytest.mark.parametrize(
    "changed", [view(coordinator=("127.0.0.1", 9093)), view(member_id="another"), view(instance_id="another")]
)
def test_change_of_what_the_leave_says_is_told(changed: MembershipView) -> None:
    """The coordinator moved; the member took another id; it claimed another instance id."""
    noted = told_of(view(), changed)
    assert len(noted.told) == 2
    assert noted.told[0][0] == noted.told[1][0]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_frames_are_the_leave_in_every_version(instance_id: str | None, epoch: int) -> None:
    """-1 ends a dynamic membership, -2 keeps a static member's partitions for its replacement."""
    ((_, request),) = told_of(view(instance_id=instance_id)).told
    assert request is not None
    assert request.member_epoch == epoch
    assert tuple(request.leave) == SPOKEN[Api.CONSUMER_GROUP_HEARTBEAT]
    for version, frame in request.leave.items():
        leave = _parse(1, 1, frame[4:])
        assert (leave.version, leave.correlation_id, leave.client_id) == (version, 1, "app")
        entity = leave.entity
        assert (entity.group_id, entity.member_id, entity.member_epoch) == ("orders", "m", epoch)
        assert entity.instance_id == instance_id


def test_other_frames_are_those_of_any_client() -> None:
    """ApiVersions in version 0, and FindCoordinator for the group in every version."""
    ((_, request),) = told_of(view()).told
    assert request is not None
    hello = _parse(1, 1, request.hello[4:])
    assert (hello.api_key, hello.version, hello.correlation_id) == (18, 0, 0)
    found = {version: _parse(1, 1, frame[4:]) for version, frame in request.find_coordinator.items()}
    assert {version: request.version for version, request in found.items()} == {3: 3, 4: 4}
    assert (found[3].entity.key, found[4].entity.coordinator_keys) == ("orders", ("orders",))


@pytest.mark.parametrize("state", sorted(CLASSIC_GUARDED, key=str))
def test_classic_member_with_an_id_has_a_leave_request(state: MemberState) -> None:
    """In the group, on its way in or out; one that was fenced for its generation alone keeps its id, and its place."""
    ((_, request),) = told_of(view(state, protocol=CLASSIC)).told
    assert request is not None
    assert (request.group_id, request.member_id, request.member_epoch) == ("orders", "m", None)


@pytest.mark.parametrize("state", sorted(set(MemberState) - CLASSIC_GUARDED, key=str))
def test_classic_member_out_of_its_group_has_none_any_more(state: MemberState) -> None:
    """UNSUBSCRIBED, STALE, FATAL: there is nothing to leave, whether the member keeps its id or not."""
    noted = told_of(view(protocol=CLASSIC), view(state, protocol=CLASSIC))
    assert [request is None for _, request in noted.told] == [False, True]


def test_classic_member_has_a_leave_request_from_its_id_on() -> None:
    """The coordinator makes the id with its first answer, and counts on the member, pending, from then on."""
    noted = told_of(
        view(MemberState.JOINING, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(MemberState.JOINING, member_id="given", protocol=CLASSIC),
        view(member_id="given", protocol=CLASSIC),
    )
    assert [None if request is None else request.member_id for _, request in noted.told] == ["given"]


def test_classic_member_that_lost_its_id_has_no_leave_request_until_it_gets_another() -> None:
    """UNKNOWN_MEMBER_ID: the coordinator has forgotten it."""
    noted = told_of(
        view(protocol=CLASSIC),
        view(MemberState.FENCED, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(MemberState.JOINING, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(MemberState.JOINING, member_id="another", protocol=CLASSIC),
    )
    assert [None if request is None else request.member_id for _, request in noted.told] == [
        "m",
        None,
        "another",
    ]


def test_classic_static_member_has_no_leave_request() -> None:
    """A LeaveGroup would end its place for good; as it is, its replacement takes it from the dead at once."""
    assert told_of(view(instance_id="i", protocol=CLASSIC)).told == []


def test_will_follows_the_protocol() -> None:
    """`group.protocol=auto`: refused as a consumer member, it joins as a classic one; and the other way round."""
    noted = told_of(
        view(MemberState.JOINING, epoch=0),
        view(MemberState.JOINING, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(protocol=CLASSIC),
        view(),
    )
    assert [None if request is None else request.member_epoch for _, request in noted.told] == [
        -1,
        None,
        None,
        -1,
    ]
    assert [request is None for _, request in noted.told] == [False, True, False, False]


def test_classic_frames_are_the_leave_in_every_version() -> None:
    """LeaveGroup for this member alone, with the reason where the version has room for one (KIP-800)."""
    ((_, request),) = told_of(view(protocol=CLASSIC)).told
    assert request is not None
    assert tuple(request.leave) == SPOKEN[Api.LEAVE_GROUP]
    for version, frame in request.leave.items():
        leave = _parse(1, 1, frame[4:])
        assert (leave.api_key, leave.version) == (Api.LEAVE_GROUP, version)
        assert (leave.correlation_id, leave.client_id, leave.entity.group_id) == (1, "app", "orders")
        (member,) = leave.entity.members
        assert (member.member_id, member.group_instance_id) == ("m", None)
        assert getattr(member, "reason", None) == (None if version == 4 else "its process died without leaving")


# ---- TLS and SASL ----------------------------------------------------------------------------------------------------

SASL = SaslSettings(mechanism=SaslMechanism.SCRAM_SHA_512, username="alice", password="hunter2")  # noqa: S106


def test_will_of_a_plaintext_member_has_nothing_of_either() -> None:
    """The guardian imports for it what it always did."""
    ((_, request),) = told_of(view()).told
    assert request is not None
    assert (request.tls, request.sasl) == (None, None)


def test_will_has_the_credentials_of_the_moment_and_is_told_again_with_others() -> None:
    """`set_sasl_credentials`: at the next event, and only where they are others."""
    noted = NotedGuardian()
    settings = replace(SETTINGS, sasl=SASL)
    security = ConnectionSecurity(settings)
    observer = GuardedMember(noted, settings, security)
    for username, password in (("alice", "hunter2"), ("alice", "hunter2"), ("alice", "hunter3"), ("bob", "hunter3")):
        security.set_credentials(username, password)
        observer.observed(TimePassed(), (), view())
    standing = [request for _, request in noted.told if request is not None]
    assert [request.sasl for request in standing] == [
        SASL,
        replace(SASL, password="hunter3"),  # noqa: S106
        replace(SASL, username="bob", password="hunter3"),  # noqa: S106
    ]
    assert noted.tended == 1
    assert "hunter" not in repr(standing)
    assert "hunter" not in repr(observer._told)


def test_paths_mean_the_folder_in_which_the_member_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guardian stands at the root, and the application may go elsewhere; all other settings are as they were."""
    given: dict[str, Any] = {
        field.name: field.name for field in fields(TlsSettings) if field.name.endswith("_location")
    }
    tls = TlsSettings(**given, ca_pem="text", checks_hostname=False)
    settings = replace(SETTINGS, tls=tls)
    noted = NotedGuardian()
    monkeypatch.chdir(tmp_path)
    observer = GuardedMember(noted, settings, ConnectionSecurity(SETTINGS))
    monkeypatch.chdir("/")
    observer.observed(TimePassed(), (), view())
    ((_, request),) = noted.told
    assert request is not None
    assert request.tls == replace(tls, **{name: str(tmp_path / name) for name in given})  # type: ignore[arg-type]  # paths alone
