"""Schemas that are imported ahead: while an order's answer is awaited, those of the order that comes next.

kio's schemas cost 4 to 14 ms each to import, together a third of the time from a constructor to the first record. Only
those of the newest version are imported here; a broker that is older makes `requests` import others when it needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from consumer_membership.membership.classic.exchanges import SendJoin
from consumer_membership.membership.effects import FindCoordinator, SendHeartbeat
from consumer_membership.types import GroupProtocol

_OFFSET_FETCH = "offset_fetch.v9"
_OF_A_LOOKUP: Mapping[GroupProtocol, tuple[str, ...]] = MappingProxyType(
    {
        GroupProtocol.CONSUMER: ("find_coordinator.v4", "consumer_group_heartbeat.v1"),
        GroupProtocol.CLASSIC: ("find_coordinator.v4", "join_group.v9", "consumer_protocol_subscription.v3"),
    }
)
_AFTER: Mapping[type[object], tuple[str, ...]] = MappingProxyType(
    {
        SendHeartbeat: ("metadata.v13", _OFFSET_FETCH),
        SendJoin: ("sync_group.v5", "consumer_protocol_assignment.v0", _OFFSET_FETCH),
    }
)


def schemas_ahead(order: object, protocol: GroupProtocol) -> tuple[str, ...]:
    """What a member of this protocol needs after this order, in the order in which it does."""
    if isinstance(order, FindCoordinator):
        return _OF_A_LOOKUP.get(protocol, ())
    return _AFTER.get(type(order), ())


@cache
def import_schema(name: str) -> None:
    """Import one of kio's schemas, once."""
    import_module(f"kio.schema.{name}")
