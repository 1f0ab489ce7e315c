"""Which version is chosen, and what is said where there is none."""

import pytest

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.wire.versions import (
    CONSUMER_COMMIT,
    METADATA_BY_ID,
    SPOKEN,
    Api,
    BrokerVersions,
    VersionRange,
    negotiate,
)
from tests.support.offered import KAFKA_2_4, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, KAFKA_4_4, MOCK, REDPANDA


def chosen(offered: dict[int, tuple[int, int]]) -> dict[str, int]:
    """The version of each API with a broker that offers these."""
    versions = BrokerVersions({key: VersionRange(*ends) for key, ends in offered.items()})
    return {api.title: versions.of(api) for api in Api if api.value in offered}


@pytest.mark.parametrize("offered", [KAFKA_4_3, KAFKA_4_4], ids=["Kafka 4.3", "Kafka 4.4"])
def test_newest_common_version_with_a_current_broker(offered: dict[int, tuple[int, int]]) -> None:
    """Every API is spoken in the newest version that this package knows; what 4.4 has beyond it is not needed."""
    assert chosen(offered) == {
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
        "ListGroups": 5,
        "SaslHandshake": 1,
        "ApiVersions": 3,
        "DescribeConfigs": 4,
        "SaslAuthenticate": 2,
        "DescribeProducers": 0,
        "DescribeTransactions": 0,
        "ListTransactions": 0,
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


#: What is spoken with the oldest of them.
OLDEST = {
    "ListOffsets": 2,
    "Metadata": 7,
    "OffsetCommit": 8,
    "OffsetFetch": 6,
    "FindCoordinator": 3,
    "JoinGroup": 5,
    "Heartbeat": 4,
    "LeaveGroup": 4,
    "SyncGroup": 3,
    "DescribeGroups": 5,
    "ApiVersions": 3,
}


@pytest.mark.parametrize(
    ("offered", "newer"),
    [
        pytest.param(KAFKA_2_4, {}, id="Kafka 2.4"),
        pytest.param(KAFKA_2_8, {"OffsetFetch": 7, "SyncGroup": 5}, id="Kafka 2.8"),
        pytest.param(
            KAFKA_3_9,
            {
                "ListOffsets": 7,
                "Metadata": 12,
                "OffsetCommit": 9,
                "OffsetFetch": 9,
                "FindCoordinator": 4,
                "JoinGroup": 9,
                "LeaveGroup": 5,
                "SyncGroup": 5,
                # Offered, and refused unless the broker's group.coordinator.rebalance.protocols says otherwise.
                "ConsumerGroupHeartbeat": 0,
                "ConsumerGroupDescribe": 0,
            },
            id="Kafka 3.9",
        ),
        pytest.param(REDPANDA, {"OffsetFetch": 7}, id="Redpanda"),
    ],
)
def test_classic_members_can_use_brokers_before_4_0(offered: dict[int, tuple[int, int]], newer: dict[str, int]) -> None:
    """Kafka 2.4 and Redpanda set the floor; everything that a classic member needs is there."""
    found = chosen({key: ends for key, ends in offered.items() if key != Api.DESCRIBE_CONFIGS})
    assert found == OLDEST | newer


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
        (VersionRange(0, 6), "the broker offers versions 0-6 of it. Use a broker of Apache Kafka 2.4 or later."),
        (
            VersionRange(14, 14),
            "the broker offers versions 14 of it. The broker is too new for this package: use a new",
        ),
        (None, "the broker offers none of it. Use a broker of Apache Kafka 2.4 or later."),
    ],
)
def test_refusal_names_both_sides(offered: VersionRange | None, said: str) -> None:
    """Too old, too new and absent are told apart by the ranges in the text."""
    with pytest.raises(UnsupportedProtocolError, match=r"Metadata \(api key 3\)") as refusal:
        negotiate(Api.METADATA, offered)
    assert f"needed in version 7, 12, 13, and {said}" in str(refusal.value)


@pytest.mark.parametrize(
    ("api", "offered", "at_least", "release"),
    [
        (Api.METADATA, VersionRange(0, 8), METADATA_BY_ID, "3.0"),
        (Api.OFFSET_COMMIT, VersionRange(0, 8), CONSUMER_COMMIT, "4.0"),
        (Api.JOIN_GROUP, VersionRange(0, 4), 0, "2.4"),
        (Api.DESCRIBE_CONFIGS, VersionRange(0, 2), 0, "4.0"),
        (Api.CONSUMER_GROUP_DESCRIBE, None, 0, "4.0"),
    ],
)
def test_refusal_names_the_release_that_has_what_is_needed(
    api: Api, offered: VersionRange | None, at_least: int, release: str
) -> None:
    """Not the package's floor, where the caller needs more than that."""
    with pytest.raises(UnsupportedProtocolError, match=rf"Use a broker of Apache Kafka {release} or later\."):
        negotiate(api, offered, at_least)
