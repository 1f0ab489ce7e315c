"""The API versions that this package supports, and the choice of one with a broker.

The versions are the fewest that cover the supported brokers. A member of the consumer protocol needs Apache Kafka 4.0.
A member of the classic protocol needs Apache Kafka 2.4, the first with cooperative rebalances (KIP-429) and with
everything that static members need (KIP-345), or a compatible broker. The reason for the lowest version of each API:

| API | lowest | because of |
|---|---|---|
| Metadata | 7 | Redpanda, which offers up to 8, in older releases up to 7; Kafka 2.4 has up to 9 |
| ListOffsets | 2 | Redpanda, which offers up to 4, in older releases up to 3; Kafka 2.4 has up to 5 |
| OffsetFetch | 6 | Kafka 2.4 and librdkafka's mock cluster; Redpanda has up to 7 |
| FindCoordinator | 3 | Kafka 2.4, Redpanda and the mock cluster |
| JoinGroup | 5 | Kafka 2.4, Redpanda and the mock cluster, which have up to 6 |
| SyncGroup | 3 | Kafka 2.4, Redpanda and the mock cluster, which have up to 4 |
| OffsetCommit, Heartbeat, LeaveGroup, DescribeGroups, ListGroups | 8, 3, 4, 5, 3 | Kafka 2.4 and Redpanda |
| SaslAuthenticate | 1 | Kafka 2.4, whose newest version it is |

Metadata below 7 has no leader epochs, and ListOffsets below 2 no isolation level. The versions between the lowest and
the newest add nothing that is used here, except the topic ids of Metadata 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from consumer_membership.errors import UnsupportedProtocolError


class Api(IntEnum):
    """The APIs of the Kafka protocol that this package calls, by key."""

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
        """The name in Kafka's documentation."""
        return "".join(word.capitalize() for word in self.name.split("_"))


#: Ascending; the newest version that the broker also offers is used.
SUPPORTED: Mapping[Api, tuple[int, ...]] = MappingProxyType(
    {
        # 2 adds the isolation level (KIP-98).
        Api.LIST_OFFSETS: (2, 7),
        # 7 adds leader epochs (KIP-320), 12 accepts topic ids (KIP-516), 13 has an error of its own (KIP-1102).
        Api.METADATA: (7, 12, 13),
        # 9 is the first that the broker accepts from a member of the consumer protocol (`CONSUMER_COMMIT`); older
        # brokers do not have it. 10 names topics by id, which a commit of the application does not know.
        Api.OFFSET_COMMIT: (8, 9),
        # 7 adds require_stable, 9 the member's id and epoch; 10 names topics by id.
        Api.OFFSET_FETCH: (6, 7, 8, 9),
        Api.FIND_COORDINATOR: (3, 4),
        # 5 adds the instance id (KIP-345), 9 the reason (KIP-800) and the skipped assignment (KIP-814).
        Api.JOIN_GROUP: (5, 9),
        # 3 adds the instance id.
        Api.HEARTBEAT: (3, 4),
        # 3 adds the instance id, 5 the protocol's name, by which both sides detect a mismatch (KIP-559).
        Api.SYNC_GROUP: (3, 5),
        # Several members in one request since 3 (KIP-345); 5 adds the reason (KIP-800).
        Api.LEAVE_GROUP: (4, 5),
        # 6 distinguishes an unknown group from a dead one (KIP-1043).
        Api.DESCRIBE_GROUPS: (5, 6),
        # 4 adds states (KIP-518), 5 the types (KIP-848).
        Api.LIST_GROUPS: (3, 4, 5),
        # 1 is followed by SaslAuthenticate (KIP-152), 0 by bytes without a frame.
        Api.SASL_HANDSHAKE: (1,),
        # 3 names the client (KIP-511); connections to known brokers of Kafka 4.4 use `VERSIONS_FOR_ONE_BROKER`.
        Api.API_VERSIONS: (0, 3),
        Api.DESCRIBE_CONFIGS: (4,),
        # 1 has the lifetime of the authentication (KIP-368).
        Api.SASL_AUTHENTICATE: (1, 2),
        # The three APIs of KIP-664, with which an operator finds hanging transactions.
        Api.DESCRIBE_PRODUCERS: (0,),
        Api.DESCRIBE_TRANSACTIONS: (0,),
        Api.LIST_TRANSACTIONS: (0,),
        # 1 adds the regular expression (KIP-848 as released in 4.0).
        Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        # 1 has the protocol of each member (KIP-1099).
        Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
        # A broker offers both if it has a plug-in that receives clients' metrics (KIP-714).
        Api.GET_TELEMETRY_SUBSCRIPTIONS: (0,),
        Api.PUSH_TELEMETRY: (0,),
    }
)

#: A member of the consumer protocol uses this or a newer version of OffsetCommit (KIP-848).
CONSUMER_COMMIT = 9

#: This and newer versions of ApiVersions name the broker that the client wants to reach (KIP-1242).
VERSIONS_FOR_ONE_BROKER = 5

#: This and newer versions of Metadata accept topic ids; 10 and 11 have the field, but no broker reads it.
METADATA_BY_ID = 12

#: The first release of Apache Kafka that offers a version, if it is not the oldest supported release.
_RELEASES: Mapping[tuple[Api, int], str] = MappingProxyType(
    {
        (Api.METADATA, METADATA_BY_ID): "3.0",
        (Api.OFFSET_COMMIT, CONSUMER_COMMIT): "4.0",
        (Api.LIST_GROUPS, 4): "2.6",
        (Api.DESCRIBE_PRODUCERS, 0): "3.0",
        (Api.DESCRIBE_TRANSACTIONS, 0): "3.0",
        (Api.LIST_TRANSACTIONS, 0): "3.0",
        # Groups have configurations since then.
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
        """Return `LOWEST-HIGHEST`, or the one version."""
        return f"{self.lowest}-{self.highest}" if self.lowest != self.highest else str(self.lowest)


def negotiate(api: Api, offered: VersionRange | None, at_least: int = 0) -> int:
    """Return the newest version of `api` from `at_least` on that the broker and this package support.

    Raises:
        UnsupportedProtocolError: there is no such version; the message has the missing API and the broker release that
            has it.
    """
    wanted = [version for version in SUPPORTED[api] if version >= at_least]
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
            "such a broker, or raise group.version if the cluster was upgraded. Brokers without it support only "
            "group.protocol=classic."
        )
    supported = ", ".join(map(str, wanted))
    offers = f"versions {offered} of it" if offered else "none of it"
    remedy = f"Use a broker of Apache Kafka {_RELEASES.get((api, wanted[0]), _OLDEST_RELEASE)} or later."
    if offered is not None and offered.lowest > wanted[-1]:
        remedy = "The broker is too new for this package: use a newer version of consumer-membership."
    return (
        f"{api.title} (api key {api.value}) is needed in version {supported}, but the broker offers {offers}. {remedy}"
    )


class BrokerVersions(NamedTuple):
    """The versions that one broker reported in ApiVersions: the offered range of each API key."""

    ranges: Mapping[int, VersionRange] = MappingProxyType({})

    def of(self, api: Api, at_least: int = 0) -> int:
        """Return the version in which to call `api` on this broker, at least `at_least`.

        Raises:
            UnsupportedProtocolError: the broker and this package have no version in common.
        """
        return negotiate(api, self.ranges.get(api.value), at_least)
