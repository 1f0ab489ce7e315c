"""Which version is chosen, and what is said where there is none."""

import pytest

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.wire.versions import SPOKEN, Api, BrokerVersions, VersionRange, negotiate

#: What Apache Kafka 4.3.1 offers (protocol rules 6.5; ListOffsets seen on the wire).
KAFKA_4_3 = {2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (2, 9), 12: (0, 4), 13: (0, 5)}
KAFKA_4_3 |= {14: (0, 5), 15: (0, 6), 18: (0, 4), 32: (1, 4), 68: (0, 1), 69: (0, 1)}
#: What librdkafka 2.16's mock cluster offers.
MOCK = {2: (0, 7), 3: (0, 12), 8: (0, 9), 9: (0, 6), 10: (0, 3), 11: (0, 6), 12: (0, 5), 13: (0, 4), 14: (0, 4)}
MOCK |= {18: (0, 2), 68: (1, 1)}
#: What Apache Kafka 3.0 offers of what a classic member needs.
KAFKA_3_0 = {3: (0, 12), 8: (0, 8), 9: (0, 8), 10: (0, 4), 11: (0, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5)}


def chosen(offered: dict[int, tuple[int, int]]) -> dict[str, int]:
    """The version of each API with a broker that offers these."""
    versions = BrokerVersions({key: VersionRange(*ends) for key, ends in offered.items()})
    return {api.title: versions.of(api) for api in Api if api.value in offered}


def test_newest_common_version_with_a_4_3_broker() -> None:
    """With a current broker every API is spoken in the newest version that this package knows."""
    assert chosen(KAFKA_4_3) == {
        "ListOffsets": 7,
        "Metadata": 13,
        "OffsetCommit": 9,
        "OffsetFetch": 9,
        "FindCoordinator": 4,
        "JoinGroup": 9,
        "Heartbeat": 4,
        "LeaveGroup": 5,
        "SyncGroup": 5,
        "DescribeGroups": 6,
        "ApiVersions": 3,
        "DescribeConfigs": 4,
        "ConsumerGroupHeartbeat": 1,
        "ConsumerGroupDescribe": 1,
    }


def test_newest_common_version_with_the_mock_cluster() -> None:
    """The mock cluster, a floor of the tests, is spoken to in its older versions."""
    assert chosen(MOCK) == {
        "ListOffsets": 7,
        "Metadata": 12,
        "OffsetCommit": 9,
        "OffsetFetch": 6,
        "FindCoordinator": 3,
        "JoinGroup": 5,
        "Heartbeat": 4,
        "LeaveGroup": 4,
        "SyncGroup": 3,
        "ApiVersions": 0,
        "ConsumerGroupHeartbeat": 1,
    }


def test_classic_members_can_use_brokers_before_4_0() -> None:
    """Metadata 12 sets the floor; everything else that a classic member needs is there too."""
    assert chosen(KAFKA_3_0) == {
        "Metadata": 12,
        "OffsetCommit": 8,
        "OffsetFetch": 8,
        "FindCoordinator": 4,
        "JoinGroup": 5,
        "Heartbeat": 4,
        "LeaveGroup": 4,
        "SyncGroup": 5,
    }


def test_floor_that_a_caller_sets_counts() -> None:
    """A commit of the consumer protocol needs 9 where one of the classic protocol does with 8."""
    assert negotiate(Api.OFFSET_COMMIT, VersionRange(0, 8)) == 8
    assert negotiate(Api.OFFSET_COMMIT, VersionRange(0, 9), 9) == 9
    with pytest.raises(UnsupportedProtocolError, match="needed in version 9, and the broker offers versions 0-8 of it"):
        negotiate(Api.OFFSET_COMMIT, VersionRange(0, 8), 9)


@pytest.mark.parametrize("api", Api)
def test_versions_are_ascending_and_never_empty(api: Api) -> None:
    """`negotiate` takes the last common one, so the table must ascend."""
    assert SPOKEN[api]
    assert list(SPOKEN[api]) == sorted(set(SPOKEN[api]))


def test_broker_without_the_consumer_protocol_is_refused_with_the_remedy() -> None:
    """H32 (client): no api key 68 means no KIP-848; the text says from which broker on there is."""
    with pytest.raises(UnsupportedProtocolError) as refusal:
        negotiate(Api.CONSUMER_GROUP_HEARTBEAT, None)
    text = str(refusal.value)
    assert "does not offer ConsumerGroupHeartbeat (api key 68)" in text
    assert "KIP-848" in text
    assert "from 4.0 on" in text
    assert "group.version" in text
    assert "group.protocol=classic" in text


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        (VersionRange(0, 11), "needed in version 12, 13, and the broker offers versions 0-11 of it"),
        (VersionRange(14, 14), "needed in version 12, 13, and the broker offers versions 14 of it"),
        (None, "needed in version 12, 13, and the broker offers none of it"),
    ],
)
def test_refusal_names_both_sides(offered: VersionRange | None, said: str) -> None:
    """Too old, too new and absent are told apart by the ranges in the text."""
    with pytest.raises(UnsupportedProtocolError, match=r"Metadata \(api key 3\)") as refusal:
        negotiate(Api.METADATA, offered)
    assert said in str(refusal.value)
