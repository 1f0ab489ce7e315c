"""kio's schemas of a member's first requests, imported before a group waits for them.

A schema costs 4 to 9 ms to import, for it makes its dataclasses then, and those between a constructor and the first
record were two thirds of a member's CPU time there: three members that start together on two cores needed one more
generation of their group for it. So those that every member needs are imported with this module, and those of one
protocol with the first consumer that prefers it. Both are of the newest version; a broker that is older makes
`requests` import others when it needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from consumer_membership.types import GroupProtocol

OF_EVERY_MEMBER = ("api_versions.v3", "find_coordinator.v4", "metadata.v13", "offset_fetch.v9", "list_offsets.v7")
OF_PROTOCOL: Mapping[GroupProtocol, tuple[str, ...]] = MappingProxyType(
    {
        GroupProtocol.CONSUMER: ("consumer_group_heartbeat.v1",),
        GroupProtocol.CLASSIC: (
            "join_group.v9",
            "consumer_protocol_subscription.v3",
            "sync_group.v5",
            "consumer_protocol_assignment.v0",
            "heartbeat.v4",
        ),
    }
)


def import_schemas(protocol: GroupProtocol) -> None:
    """Import what a member of this protocol needs beside what every member does."""
    for name in OF_PROTOCOL[protocol]:
        import_module(f"kio.schema.{name}")


for _name in OF_EVERY_MEMBER:
    import_module(f"kio.schema.{_name}")
