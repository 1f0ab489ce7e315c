"""Keeps the guardian's knowledge of one member up to date, from the member's view after each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, assert_never

from consumer_membership.config import ConnectionSettings, SaslSettings, TlsSettings
from consumer_membership.membership.classic.exchanges import SendClassicLeave
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.guardian.leave_requests import HELLO, QUESTION, Frames, LeaveRequest
from consumer_membership.runtime.guardian.owner import Guardian
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.transport import FAMILIES
from consumer_membership.translation import requests
from consumer_membership.types import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_MEMBER_ID,
    BrokerAddress,
    GroupProtocol,
)
from consumer_membership.wire.codec import Call, encode
from consumer_membership.wire.connection import api_versions_v0
from consumer_membership.wire.versions import SUPPORTED, Api, BrokerVersions, VersionRange

#: The states in which the coordinator may know the member. A join may be in flight, so JOINING is one of them; the
#: member generates its id itself (KIP-1082).
GUARDED = IN_GROUP | {MemberState.UNSUBSCRIBING}
#: The same states of the classic protocol, as long as the member has an id, which the coordinator assigns (KIP-394),
#: and FENCED: a member that was fenced only for its generation keeps its id and stays in the group.
CLASSIC_GUARDED = GUARDED | {MemberState.FENCED}
#: For the broker's log (KIP-800).
_REASON = "its process died without leaving"


class _Identity(NamedTuple):
    """The inputs of a leave request: while they are unchanged, so is the request."""

    protocol: GroupProtocol
    member_id: str
    instance_id: str | None
    coordinator: BrokerAddress
    sasl: SaslSettings | None


class GuardedMember:
    """Notifies the guardian of one member: when its leave request changes, and when there is nothing left to leave.

    The request follows the present protocol of the member, which `group.protocol=auto` may change, and the present
    credentials, which are `security`'s.
    """

    def __init__(self, guardian: Guardian, connection: ConnectionSettings, security: ConnectionSecurity) -> None:
        self._guardian = guardian
        self._connection = connection
        self._security = security
        self._tls = None if connection.tls is None else from_anywhere(connection.tls)
        self._key = guardian.new_key()
        self._sent: _Identity | None = None

    def observed(self, event: object, effects: tuple[object, ...], view: MembershipView) -> None:  # noqa: ARG002
        """Send the changes; called before the effects are performed, so before a join is sent."""
        identity = self._identity(view)
        if identity == self._sent:
            if identity is not None:
                self._guardian.restart_and_send()
            return
        self._sent = identity
        self._guardian.update(self._key, None if identity is None else self._request(view.group_id, identity))

    def _identity(self, view: MembershipView) -> _Identity | None:
        if not _may_leave(view):
            return None
        coordinator = view.coordinator
        if coordinator is None and self._sent is not None:
            # The guardian starts with the last known coordinator, and looks the coordinator up again if necessary.
            coordinator = self._sent.coordinator
        if coordinator is None:
            # No broker knows this member yet.
            return None
        sasl = self._security.sasl
        return _Identity(view.protocol, view.member_id, view.instance_id, coordinator, sasl and _with_keytab(sasl))

    def _request(self, group_id: str, identity: _Identity) -> LeaveRequest:
        client_id = self._connection.client_id

        def frames(api: Api, build: Callable[[BrokerVersions], Call]) -> Frames:
            # In each version that this package supports: the guardian chooses one for the broker.
            only = {version: BrokerVersions({api: VersionRange(version, version)}) for version in SUPPORTED[api]}
            return {version: encode(build(versions), QUESTION, client_id) for version, versions in only.items()}

        member_epoch = _leave_epoch(identity)
        if member_epoch is None:
            order = _leave_order(identity)
            leave = frames(Api.LEAVE_GROUP, lambda versions: requests.leave_group(versions, group_id, order))
        else:
            goodbye = Heartbeat(
                member_id=identity.member_id,
                member_epoch=member_epoch,
                instance_id=identity.instance_id,
                owned=frozenset(),
            )
            leave = frames(
                Api.CONSUMER_GROUP_HEARTBEAT,
                lambda versions: requests.consumer_group_heartbeat(versions, group_id, goodbye),
            )
        return LeaveRequest(
            group_id=group_id,
            member_id=identity.member_id,
            instance_id=identity.instance_id,
            member_epoch=member_epoch,
            coordinator=(identity.coordinator.host, identity.coordinator.port),
            bootstrap_servers=self._connection.bootstrap_servers,
            address_family=FAMILIES[self._connection.address_family],
            client_id=client_id,
            tls=self._tls,
            sasl=identity.sasl,
            hello=encode(api_versions_v0(), HELLO, client_id),
            leave=leave,
            find_coordinator=frames(
                Api.FIND_COORDINATOR, lambda versions: requests.find_coordinator(versions, group_id)
            ),
        )


def from_anywhere(tls: TlsSettings) -> TlsSettings:
    """Return the settings for the guardian, which runs in another directory and without installed packages.

    Paths are absolute, and a keystore, which the standard library cannot read, is PEM text.

    Raises:
        ConfigurationError: the keystore cannot be read.
    """
    from consumer_membership.config.authorities import PROBE
    from consumer_membership.runtime.network.identity import as_pem

    return replace(
        as_pem(tls),
        ca_location=PROBE if tls.ca_location == PROBE else _absolute(tls.ca_location),
        crl_location=_absolute(tls.crl_location),
        certificate_location=_absolute(tls.certificate_location),
        key_location=_absolute(tls.key_location),
    )


def _with_keytab(sasl: SaslSettings) -> SaslSettings:
    """Return the settings with an absolute path of the keytab."""
    if sasl.kerberos is None:
        return sasl
    return replace(sasl, kerberos=replace(sasl.kerberos, keytab=_absolute(sasl.kerberos.keytab)))


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def _may_leave(view: MembershipView) -> bool:
    """Whether a leave on its behalf would have an effect."""
    match view.protocol:
        case GroupProtocol.CONSUMER:
            return view.state in GUARDED
        case GroupProtocol.CLASSIC:
            # A LeaveGroup removes a static member permanently. Otherwise the coordinator waits for its return, which
            # needs no leave: the newest holder of an instance id wins (KIP-345).
            is_static = view.instance_id is not None
            return view.state in CLASSIC_GUARDED and view.member_id != NO_MEMBER_ID and not is_static
        case _:
            assert_never(view.protocol)


def _leave_epoch(identity: _Identity) -> int | None:
    """The epoch with which this member leaves; None: its protocol has none."""
    if identity.protocol is GroupProtocol.CLASSIC:
        return None
    return LEAVE_EPOCH if identity.instance_id is None else LEAVE_STATIC_EPOCH


def _leave_order(identity: _Identity) -> SendClassicLeave:
    return SendClassicLeave(
        request_id=QUESTION, member_id=identity.member_id, instance_id=identity.instance_id, reason=_REASON
    )
