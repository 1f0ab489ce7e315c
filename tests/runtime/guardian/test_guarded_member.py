"""Which views of a member change its leave request at the guardian."""

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
from consumer_membership.wire.versions import SUPPORTED, Api
from tests.runtime.guardian.leave_requests import RecordingGuardian, view
from tests.support.scripted_broker import _parse

SETTINGS = ConnectionSettings(
    bootstrap_servers=(("kafka", 9092),), client_id="app", address_family=AddressFamily.V4, crash_guardian=True
)


CLASSIC = GroupProtocol.CLASSIC


def guardian_after(*views: MembershipView) -> RecordingGuardian:
    """Return a guardian that received these views of one member."""
    guardian = RecordingGuardian()
    observer = GuardedMember(guardian, SETTINGS, ConnectionSecurity(SETTINGS))
    for member_view in views:
        observer.observed(TimePassed(), (), member_view)
    return guardian


@pytest.mark.parametrize(
    "state",
    [MemberState.JOINING, MemberState.RECONCILE, MemberState.ACK, MemberState.STABLE, MemberState.UNSUBSCRIBING],
)
def test_guarded_member_has_a_leave_request_while_the_coordinator_may_know_it(state: MemberState) -> None:
    """The member's join may be in flight, or its leave may not have been sent yet."""
    assert state in GUARDED
    ((_, request),) = guardian_after(view(state)).updates
    assert request is not None
    assert (request.group_id, request.member_id, request.coordinator) == (
        "orders",
        "m",
        ("127.0.0.1", 9092),
    )
    assert request.bootstrap_servers == (("kafka", 9092),)


@pytest.mark.parametrize("state", sorted(set(MemberState) - GUARDED, key=str))
def test_guarded_member_outside_its_group_has_no_leave_request(state: MemberState) -> None:
    """A member in UNSUBSCRIBED, FENCED, STALE or FATAL has nothing to leave."""
    guardian = guardian_after(view(), view(state), view(state))
    assert [request is None for _, request in guardian.updates] == [False, True]
    assert guardian_after(view(state)).updates == []


def test_guarded_member_sends_no_update_while_its_leave_is_the_same() -> None:
    """Epochs and states within the group do not change the leave request; a dead guardian is still restarted."""
    guardian = guardian_after(view(MemberState.JOINING, epoch=0), view(MemberState.RECONCILE, epoch=3), view(epoch=4))
    assert (len(guardian.updates), guardian.restarts_requested) == (1, 2)


def test_guarded_member_without_a_coordinator_has_no_leave_request() -> None:
    """Without a coordinator, the member has sent no heartbeat yet."""
    assert guardian_after(view(MemberState.JOINING, None)).updates == []


def test_guarded_member_keeps_the_last_known_coordinator() -> None:
    """The guardian sends the leave to that coordinator first, and looks up the coordinator if it has moved."""
    assert len(guardian_after(view(), view(coordinator=None)).updates) == 1


@pytest.mark.parametrize(
    "changed", [view(coordinator=("127.0.0.1", 9093)), view(member_id="another"), view(instance_id="another")]
)
def test_guarded_member_updates_its_leave_request_after_a_change(changed: MembershipView) -> None:
    """The coordinator moved, or the member has another member id or instance id."""
    guardian = guardian_after(view(), changed)
    assert len(guardian.updates) == 2
    assert guardian.updates[0][0] == guardian.updates[1][0]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leave_request_has_the_leave_in_every_version(instance_id: str | None, epoch: int) -> None:
    """Epoch -1 ends a dynamic membership; epoch -2 keeps a static member's partitions for its replacement."""
    ((_, request),) = guardian_after(view(instance_id=instance_id)).updates
    assert request is not None
    assert request.member_epoch == epoch
    assert tuple(request.leave) == SUPPORTED[Api.CONSUMER_GROUP_HEARTBEAT]
    for version, frame in request.leave.items():
        leave = _parse(1, 1, frame[4:])
        assert (leave.version, leave.correlation_id, leave.client_id) == (version, 1, "app")
        entity = leave.entity
        assert (entity.group_id, entity.member_id, entity.member_epoch) == ("orders", "m", epoch)
        assert entity.instance_id == instance_id


def test_leave_request_has_the_frames_of_other_requests() -> None:
    """The leave request contains ApiVersions in version 0, and FindCoordinator for the group in every version."""
    ((_, request),) = guardian_after(view()).updates
    assert request is not None
    hello = _parse(1, 1, request.hello[4:])
    assert (hello.api_key, hello.version, hello.correlation_id) == (18, 0, 0)
    found = {version: _parse(1, 1, frame[4:]) for version, frame in request.find_coordinator.items()}
    assert {version: request.version for version, request in found.items()} == {3: 3, 4: 4}
    assert (found[3].entity.key, found[4].entity.coordinator_keys) == ("orders", ("orders",))


@pytest.mark.parametrize("state", sorted(CLASSIC_GUARDED, key=str))
def test_classic_member_with_an_id_has_a_leave_request(state: MemberState) -> None:
    """The member is in the group, joins it or leaves it.

    A member that was fenced only for its generation keeps its id and its place.
    """
    ((_, request),) = guardian_after(view(state, protocol=CLASSIC)).updates
    assert request is not None
    assert (request.group_id, request.member_id, request.member_epoch) == ("orders", "m", None)


@pytest.mark.parametrize("state", sorted(set(MemberState) - CLASSIC_GUARDED, key=str))
def test_classic_member_outside_its_group_has_no_leave_request(state: MemberState) -> None:
    """A member in UNSUBSCRIBED, STALE or FATAL has nothing to leave, whether or not it keeps its id."""
    guardian = guardian_after(view(protocol=CLASSIC), view(state, protocol=CLASSIC))
    assert [request is None for _, request in guardian.updates] == [False, True]


def test_classic_member_has_a_leave_request_once_it_has_an_id() -> None:
    """The coordinator creates the id with its first response, and the member is pending from then on."""
    guardian = guardian_after(
        view(MemberState.JOINING, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(MemberState.JOINING, member_id="given", protocol=CLASSIC),
        view(member_id="given", protocol=CLASSIC),
    )
    assert [None if request is None else request.member_id for _, request in guardian.updates] == ["given"]


def test_classic_member_that_lost_its_id_has_no_leave_request_until_it_gets_another() -> None:
    """After UNKNOWN_MEMBER_ID the coordinator has no such member."""
    guardian = guardian_after(
        view(protocol=CLASSIC),
        view(MemberState.FENCED, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(MemberState.JOINING, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(MemberState.JOINING, member_id="another", protocol=CLASSIC),
    )
    assert [None if request is None else request.member_id for _, request in guardian.updates] == [
        "m",
        None,
        "another",
    ]


def test_classic_static_member_has_no_leave_request() -> None:
    """A LeaveGroup would remove its place permanently; without a LeaveGroup, its replacement takes over the place."""
    assert guardian_after(view(instance_id="i", protocol=CLASSIC)).updates == []


def test_leave_request_follows_the_protocol() -> None:
    """With `group.protocol=auto`, a member that one protocol refuses joins with the other one, in both directions."""
    guardian = guardian_after(
        view(MemberState.JOINING, epoch=0),
        view(MemberState.JOINING, member_id=NO_MEMBER_ID, protocol=CLASSIC),
        view(protocol=CLASSIC),
        view(),
    )
    assert [None if request is None else request.member_epoch for _, request in guardian.updates] == [
        -1,
        None,
        None,
        -1,
    ]
    assert [request is None for _, request in guardian.updates] == [False, True, False, False]


def test_classic_leave_request_has_the_leave_in_every_version() -> None:
    """LeaveGroup names only this member, with the reason if the version has a field for it (KIP-800)."""
    ((_, request),) = guardian_after(view(protocol=CLASSIC)).updates
    assert request is not None
    assert tuple(request.leave) == SUPPORTED[Api.LEAVE_GROUP]
    for version, frame in request.leave.items():
        leave = _parse(1, 1, frame[4:])
        assert (leave.api_key, leave.version) == (Api.LEAVE_GROUP, version)
        assert (leave.correlation_id, leave.client_id, leave.entity.group_id) == (1, "app", "orders")
        (member,) = leave.entity.members
        assert (member.member_id, member.group_instance_id) == ("m", None)
        assert getattr(member, "reason", None) == (None if version == 4 else "its process died without leaving")


# ---- TLS and SASL ----------------------------------------------------------------------------------------------------

SASL = SaslSettings(mechanism=SaslMechanism.SCRAM_SHA_512, username="alice", password="hunter2")  # noqa: S106


def test_leave_request_of_a_plaintext_member_has_neither_tls_nor_sasl() -> None:
    """Then the guardian imports no TLS or SASL module."""
    ((_, request),) = guardian_after(view()).updates
    assert request is not None
    assert (request.tls, request.sasl) == (None, None)


def test_leave_request_has_the_current_credentials() -> None:
    """After `set_sasl_credentials`, the next event updates the leave request if the credentials changed."""
    guardian = RecordingGuardian()
    settings = replace(SETTINGS, sasl=SASL)
    security = ConnectionSecurity(settings)
    observer = GuardedMember(guardian, settings, security)
    for username, password in (("alice", "hunter2"), ("alice", "hunter2"), ("alice", "hunter3"), ("bob", "hunter3")):
        security.set_credentials(username, password)
        observer.observed(TimePassed(), (), view())
    standing = [request for _, request in guardian.updates if request is not None]
    assert [request.sasl for request in standing] == [
        SASL,
        replace(SASL, password="hunter3"),  # noqa: S106
        replace(SASL, username="bob", password="hunter3"),  # noqa: S106
    ]
    assert guardian.restarts_requested == 1
    assert "hunter" not in repr(standing)
    assert "hunter" not in repr(observer._sent)


def test_leave_request_paths_are_relative_to_the_members_first_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guardian runs in the root folder, and the application may change its working folder; only paths change."""
    given: dict[str, Any] = {
        field.name: field.name
        for field in fields(TlsSettings)
        if field.name.endswith("_location") and field.name != "keystore_location"  # the member reads it
    }
    tls = TlsSettings(**given, ca_pem="text", checks_hostname=False)
    settings = replace(SETTINGS, tls=tls)
    guardian = RecordingGuardian()
    monkeypatch.chdir(tmp_path)
    observer = GuardedMember(guardian, settings, ConnectionSecurity(SETTINGS))
    monkeypatch.chdir("/")
    observer.observed(TimePassed(), (), view())
    ((_, request),) = guardian.updates
    assert request is not None
    assert request.tls == replace(tls, **{name: str(tmp_path / name) for name in given})  # type: ignore[arg-type]  # all of them are paths
