"""Which versions of which API this package speaks, and the choice of one with a broker.

The versions are the fewest that reach the brokers this package is for. Metadata 12, the first that can be asked by
topic id, sets the floor: Apache Kafka 3.0. Below the newest stand only those that librdkafka's mock cluster
(FindCoordinator 3, OffsetFetch 6, JoinGroup 5, SyncGroup 3) or brokers before 4.0 need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from consumer_membership.errors import UnsupportedProtocolError


class Api(IntEnum):
    """The APIs of the Kafka protocol that this package calls, by their keys."""

    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    API_VERSIONS = 18
    DESCRIBE_CONFIGS = 32
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69

    @property
    def title(self) -> str:
        """The name as Kafka's documentation writes it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


#: Ascending; the newest that the broker offers too is taken.
SPOKEN: Mapping[Api, tuple[int, ...]] = MappingProxyType(
    {
        Api.LIST_OFFSETS: (7,),
        Api.METADATA: (12, 13),
        # 9 is the first that the broker takes from a member of the consumer protocol (`CONSUMER_COMMIT`), and brokers
        # before 4.0 lack it; 10 names topics by id, which a commit of the application does not know.
        Api.OFFSET_COMMIT: (8, 9),
        # 7 brings require_stable, 9 the member's id and epoch; 10 names topics by id.
        Api.OFFSET_FETCH: (6, 7, 8, 9),
        Api.FIND_COORDINATOR: (3, 4),
        # 5 brings the instance id (KIP-345), 9 the reason (KIP-800) and the skipped assignment (KIP-814).
        Api.JOIN_GROUP: (5, 9),
        # 3 brings the instance id.
        Api.HEARTBEAT: (3, 4),
        # 3 brings the instance id, 5 the protocol's name, by which both sides notice a mistake (KIP-559).
        Api.SYNC_GROUP: (3, 5),
        # Several members in one request since 3 (KIP-345); 5 brings the reason (KIP-800).
        Api.LEAVE_GROUP: (4, 5),
        # 6 tells an unknown group from a dead one (KIP-1043).
        Api.DESCRIBE_GROUPS: (5, 6),
        Api.API_VERSIONS: (0, 3),
        Api.DESCRIBE_CONFIGS: (4,),
        # 1 brings the regular expression (KIP-848 as released in 4.0).
        Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        # 1 says of each member which protocol it speaks (KIP-1099).
        Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
    }
)

#: The OffsetCommit of a member of the consumer protocol is this one or a newer one (KIP-848).
CONSUMER_COMMIT = 9

#: What a member of the classic protocol needs beyond what everybody does.
_CLASSIC = frozenset({Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT})


class VersionRange(NamedTuple):
    """The versions of one API that a broker offers, both ends included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        """`LOWEST-HIGHEST`, or the one version."""
        return f"{self.lowest}-{self.highest}" if self.lowest != self.highest else str(self.lowest)


def negotiate(api: Api, offered: VersionRange | None, at_least: int = 0) -> int:
    """The newest version of `api` that the broker offers and this package speaks, from `at_least` on.

    Raises:
        UnsupportedProtocolError: there is none; the text says what the broker lacks and which broker has it.
    """
    wanted = [version for version in SPOKEN[api] if version >= at_least]
    if offered is not None:
        common = [version for version in wanted if offered.lowest <= version <= offered.highest]
        if common:
            return common[-1]
    raise UnsupportedProtocolError(_refusal(api, offered, wanted))


def _refusal(api: Api, offered: VersionRange | None, wanted: Sequence[int]) -> str:
    if api is Api.CONSUMER_GROUP_HEARTBEAT and offered is None:
        return (
            "The broker does not offer ConsumerGroupHeartbeat (api key 68), so it does not support the new CONSUMER "
            "group protocol (KIP-848). Apache Kafka offers it from 4.0 on, with the feature group.version at 1: use "
            "such a broker, or raise group.version where the cluster was upgraded. Brokers without it serve "
            "group.protocol=classic only."
        )
    spoken = ", ".join(map(str, wanted))
    oldest = "3.0" if api in _CLASSIC else "4.0"
    theirs = f"versions {offered} of it" if offered else "none of it"
    return (
        f"{api.title} (api key {api.value}) is needed in version {spoken}, and the broker offers {theirs}. "
        f"Use a broker of Apache Kafka {oldest} or later."
    )


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """What one broker said in ApiVersions: for each api key the range that it offers."""

    ranges: Mapping[int, VersionRange] = field(default_factory=dict)

    def of(self, api: Api, at_least: int = 0) -> int:
        """The version in which to call `api` on this broker; none below `at_least` will do.

        Raises:
            UnsupportedProtocolError: the broker and this package have none in common.
        """
        return negotiate(api, self.ranges.get(api.value), at_least)
