"""The tables of what a member orders of the network: every order is in them, and nothing else."""

from __future__ import annotations

from typing import get_args

import pytest

from consumer_membership.config import ConnectionSettings, OffsetReset, StartSettings
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.member import GroupMember
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.runtime.network import exchanges
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.member_requests import MemberRequests, NetworkOrder
from consumer_membership.types import GroupProtocol


@pytest.fixture
def requests() -> MemberRequests:
    """What performs the orders of a member; it asks no broker."""
    protocols = ProtocolSettings(
        classic=ClassicSettings(assignors=()), protocols=(GroupProtocol.CLASSIC,), reason="a test"
    )
    member = GroupMember(MemberSettings(group_id="g"), protocols, new_member_id=lambda: "m", jitter=lambda: 0.5)
    cluster = Cluster(ConnectionSettings(bootstrap_servers=()))
    start = StartSettings(reset=OffsetReset.LATEST, read_committed=True)
    return MemberRequests(cluster, member, start, lambda _: None)


def test_every_order_of_the_network_has_its_performer(requests: MemberRequests) -> None:
    """An order that the table lacks would end the membership thread."""
    assert requests.performers.keys() == set(get_args(NetworkOrder))


def test_every_exchange_with_the_coordinator_is_in_the_table() -> None:
    """Likewise."""
    assert exchanges._EXCHANGES.keys() == set(get_args(exchanges.Order))
