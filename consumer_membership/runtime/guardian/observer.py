"""Keeps the guardian's knowledge of one member right, by the pictures of it after each event."""

from __future__ import annotations

import socket
from types import MappingProxyType
from typing import NamedTuple

from consumer_membership.config import AddressFamily, ConnectionSettings
from consumer_membership.membership.effects import Effect, Heartbeat
from consumer_membership.membership.events import Event
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.guardian.owner import Guardian
from consumer_membership.runtime.guardian.wills import Frames, Will
from consumer_membership.types import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, BrokerAddress
from consumer_membership.wire import requests
from consumer_membership.wire.connection import api_versions_v0
from consumer_membership.wire.frames import encode
from consumer_membership.wire.versions import SPOKEN, Api, BrokerVersions, VersionRange

#: The states in which the coordinator may count on the member. A join may be on its way, so JOINING is one of them;
#: the member's id is its own from the start (KIP-1082).
GUARDED = IN_GROUP | {MemberState.UNSUBSCRIBING}

_FAMILIES = MappingProxyType(
    {
        AddressFamily.ANY: socket.AF_UNSPEC,
        AddressFamily.V4: socket.AF_INET,
        AddressFamily.V6: socket.AF_INET6,
    }
)
_FIRST, _SECOND = 0, 1


class _Identity(NamedTuple):
    """What a will is made of; as long as it stays, the will does."""

    member_id: str
    instance_id: str | None
    coordinator: BrokerAddress


class GuardianObserver:
    """Tells the guardian of one member: when its will changes, and when there is nothing to leave any more."""

    def __init__(self, guardian: Guardian, connection: ConnectionSettings) -> None:
        self._guardian = guardian
        self._connection = connection
        self._key = guardian.new_key()
        self._told: _Identity | None = None

    def observed(self, event: Event, effects: tuple[Effect, ...], view: MembershipView) -> None:  # noqa: ARG002
        """Say what has changed; called before the effects are performed, so before a join goes out."""
        identity = self._identity(view)
        if identity == self._told:
            if identity is not None:
                self._guardian.tend()
            return
        self._told = identity
        self._guardian.tell(self._key, None if identity is None else self._will(view.group_id, identity))

    def _identity(self, view: MembershipView) -> _Identity | None:
        if view.state not in GUARDED:
            return None
        coordinator = view.coordinator
        if coordinator is None and self._told is not None:
            # Lost, not forgotten: the guardian begins there, and looks further where it is told to.
            coordinator = self._told.coordinator
        if coordinator is None:
            # Nobody has heard of this member yet.
            return None
        return _Identity(view.member_id, view.instance_id, coordinator)

    def _will(self, group_id: str, identity: _Identity) -> Will:
        is_static = identity.instance_id is not None
        client_id = self._connection.client_id
        heartbeat = Heartbeat(
            member_id=identity.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=identity.instance_id,
            owned=frozenset(),
        )
        leave = {
            version: encode(requests.consumer_group_heartbeat(versions, group_id, heartbeat), _SECOND, client_id)
            for version, versions in _each_version(Api.CONSUMER_GROUP_HEARTBEAT)
        }
        find: Frames = {
            version: encode(requests.find_coordinator(versions, group_id), _SECOND, client_id)
            for version, versions in _each_version(Api.FIND_COORDINATOR)
        }
        return Will(
            group_id=group_id,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
            member_epoch=heartbeat.member_epoch,
            coordinator=(identity.coordinator.host, identity.coordinator.port),
            bootstrap_servers=self._connection.bootstrap_servers,
            address_family=_FAMILIES[self._connection.address_family],
            hello=encode(api_versions_v0(), _FIRST, client_id),
            leave=leave,
            find_coordinator=find,
        )


def _each_version(api: Api) -> list[tuple[int, BrokerVersions]]:
    """Each version that this package speaks, with a broker that offers nothing else: the guardian chooses."""
    return [(version, BrokerVersions({api.value: VersionRange(version, version)})) for version in SPOKEN[api]]
