"""Which versions of which API this package speaks, and the choice of one with a broker.

The versions are the fewest that reach the brokers this package is for. A member of the consumer protocol needs Apache
Kafka 4.0. One of the classic protocol does with Apache Kafka 2.4, the first with cooperative rebalances (KIP-429) and
with all that static members need (KIP-345), and with what speaks as it did. What sets the lowest version of each API:

| API | lowest | because of |
|---|---|---|
| Metadata | 7 | Redpanda, which offers up to 8, in older releases up to 7; Kafka 2.4 has up to 9 |
| ListOffsets | 2 | Redpanda, which offers up to 4, in older releases up to 3; Kafka 2.4 has up to 5 |
| OffsetFetch | 6 | Kafka 2.4 and librdkafka's mock cluster; Redpanda has up to 7 |
| FindCoordinator | 3 | Kafka 2.4, Redpanda and the mock cluster |
| JoinGroup | 5 | Kafka 2.4, Redpanda and the mock cluster, which have up to 6 |
| SyncGroup | 3 | Kafka 2.4, Redpanda and the mock cluster, which have up to 4 |
| OffsetCommit, Heartbeat, LeaveGroup, DescribeGroups, ListGroups | 8, 3, 4, 5, 3 | Kafka 2.4 and Redpanda |
| SaslAuthenticate | 1 | Kafka 2.4, whose newest it is |

Metadata below 7 has no leader epochs, and ListOffsets below 2 no isolation level; between the lowest and the newest of
either stands nothing that is asked for here, but the topic ids of Metadata 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72

    @property
    def title(self) -> str:
        """The name as Kafka's documentation writes it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


#: Ascending; the newest that the broker offers too is taken.
SPOKEN: Mapping[Api, tuple[int, ...]] = MappingProxyType(
    {
        # 2 brings the isolation level (KIP-98).
        Api.LIST_OFFSETS: (2, 7),
        # 7 brings leader epochs (KIP-320), 12 takes topic ids (KIP-516), 13 has an error of its own (KIP-1102).
        Api.METADATA: (7, 12, 13),
        # 9 is the first that the broker takes from a member of the consumer protocol (`CONSUMER_COMMIT`), and older
        # brokers lack it; 10 names topics by id, which a commit of the application does not know.
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
        # 4 brings states (KIP-518), 5 the types (KIP-848).
        Api.LIST_GROUPS: (3, 4, 5),
        # 1 is followed by SaslAuthenticate (KIP-152), 0 by bytes without a frame.
        Api.SASL_HANDSHAKE: (1,),
        Api.API_VERSIONS: (0, 3),
        Api.DESCRIBE_CONFIGS: (4,),
        # 1 says how long the broker believes it (KIP-368).
        Api.SASL_AUTHENTICATE: (1, 2),
        # The three of KIP-664, by which an operator finds a transaction that hangs.
        Api.DESCRIBE_PRODUCERS: (0,),
        Api.DESCRIBE_TRANSACTIONS: (0,),
        Api.LIST_TRANSACTIONS: (0,),
        # 1 brings the regular expression (KIP-848 as released in 4.0).
        Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        # 1 says of each member which protocol it speaks (KIP-1099).
        Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
        # A broker offers both where somebody there receives what clients push (KIP-714).
        Api.GET_TELEMETRY_SUBSCRIPTIONS: (0,),
        Api.PUSH_TELEMETRY: (0,),
    }
)

#: The OffsetCommit of a member of the consumer protocol is this one or a newer one (KIP-848).
CONSUMER_COMMIT = 9

#: Topics can be asked for by id with this Metadata or a newer one; 10 and 11 have the field, and no broker reads it.
METADATA_BY_ID = 12

#: The first release of Apache Kafka that offers a version, where it is not the floor of the whole package.
_RELEASES: Mapping[tuple[Api, int], str] = MappingProxyType(
    {
        (Api.METADATA, METADATA_BY_ID): "3.0",
        (Api.OFFSET_COMMIT, CONSUMER_COMMIT): "4.0",
        (Api.LIST_GROUPS, 4): "2.6",
        (Api.DESCRIBE_PRODUCERS, 0): "3.0",
        (Api.DESCRIBE_TRANSACTIONS, 0): "3.0",
        (Api.LIST_TRANSACTIONS, 0): "3.0",
        # A group has a configuration since then.
        (Api.DESCRIBE_CONFIGS, 4): "4.0",
        (Api.CONSUMER_GROUP_HEARTBEAT, 0): "4.0",
        (Api.CONSUMER_GROUP_DESCRIBE, 0): "4.0",
        (Api.GET_TELEMETRY_SUBSCRIPTIONS, 0): "3.7",
        (Api.PUSH_TELEMETRY, 0): "3.7",
    }
)
_OLDEST_RELEASE = "2.4"


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
    theirs = f"versions {offered} of it" if offered else "none of it"
    remedy = f"Use a broker of Apache Kafka {_RELEASES.get((api, wanted[0]), _OLDEST_RELEASE)} or later."
    if offered is not None and offered.lowest > wanted[-1]:
        remedy = "The broker is too new for this package: use a newer version of consumer-membership."
    return f"{api.title} (api key {api.value}) is needed in version {spoken}, and the broker offers {theirs}. {remedy}"


class BrokerVersions(NamedTuple):
    """What one broker said in ApiVersions: for each api key the range that it offers."""

    ranges: Mapping[int, VersionRange] = MappingProxyType({})

    def of(self, api: Api, at_least: int = 0) -> int:
        """The version in which to call `api` on this broker; none below `at_least` will do.

        Raises:
            UnsupportedProtocolError: the broker and this package have none in common.
        """
        return negotiate(api, self.ranges.get(api.value), at_least)
