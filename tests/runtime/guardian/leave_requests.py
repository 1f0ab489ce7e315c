"""Wills for the tests, made as the observer makes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from consumer_membership.config import ConnectionSettings, SaslSettings, TlsSettings
from consumer_membership.membership.events import TimePassed
from consumer_membership.membership.member import Member
from consumer_membership.membership.portrait import view_of
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.guardian.leave_requests import Address, Will
from consumer_membership.runtime.guardian.observer import GuardianObserver
from consumer_membership.runtime.guardian.owner import Guardian
from consumer_membership.runtime.network.security import Security
from consumer_membership.types import BrokerAddress, GroupProtocol


class NotedGuardian(Guardian):
    """A guardian without a process: it remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, Will | None]] = []
        self.tended = 0

    def tell(self, key: int, will: Will | None) -> None:
        """Remember it."""
        self.told.append((key, will))

    def tend(self) -> None:
        """Count it."""
        self.tended += 1


def view(
    state: MemberState = MemberState.STABLE,
    coordinator: Address | None = ("127.0.0.1", 9092),
    *,
    member_id: str = "m",
    instance_id: str | None = None,
    epoch: int = 5,
    protocol: GroupProtocol = GroupProtocol.CONSUMER,
    group_id: str = "orders",
) -> MembershipView:
    """A member's picture."""
    settings = MemberSettings(group_id=group_id, instance_id=instance_id)
    fresh = view_of(Member(settings, new_member_id=lambda: member_id, jitter=lambda: 0.5))
    place = None if coordinator is None else BrokerAddress(node_id=1, host=coordinator[0], port=coordinator[1])
    return replace(fresh, state=state, coordinator=place, member_epoch=epoch, member_id=member_id, protocol=protocol)


def will(
    coordinator: Address,
    bootstrap: Iterable[Address] = (),
    *,
    member_id: str = "m",
    instance_id: str | None = None,
    protocol: GroupProtocol = GroupProtocol.CONSUMER,
    group_id: str = "orders",
    tls: TlsSettings | None = None,
    sasl: SaslSettings | None = None,
) -> Will:
    """The will of a member of this group with this coordinator."""
    noted = NotedGuardian()
    settings = ConnectionSettings(bootstrap_servers=tuple(bootstrap), client_id="tests", tls=tls, sasl=sasl)
    picture = view(
        coordinator=coordinator, member_id=member_id, instance_id=instance_id, protocol=protocol, group_id=group_id
    )
    security = Security(replace(settings, tls=None))
    GuardianObserver(noted, settings, security).observed(TimePassed(), (), picture)
    ((_, made),) = noted.told
    assert made is not None
    return made
