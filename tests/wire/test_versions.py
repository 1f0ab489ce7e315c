"""The choice of the version, and the error if there is no common one."""

import pytest

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.wire.versions import (
    CONSUMER_COMMIT,
    METADATA_BY_ID,
    SUPPORTED,
    Api,
    BrokerVersions,
    VersionRange,
    negotiate,
)
from tests.support.offered import KAFKA_2_4, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, KAFKA_4_4, MOCK, REDPANDA


def chosen(offered: dict[int, tuple[int, int]]) -> dict[str, int]:
    """Return the version of each API for a broker with these ranges."""
    versions = BrokerVersions({key: VersionRange(*ends) for key, ends in offered.items()})
    return {api.title: versions.of(api) for api in Api if api.value in offered}


@pytest.mark.parametrize("offered", [KAFKA_4_3, KAFKA_4_4], ids=["Kafka 4.3", "Kafka 4.4"])
def test_versions_with_current_broker_are_newest_known(offered: dict[int, tuple[int, int]]) -> None:
    """Each API uses the newest version that this package knows, even if 4.4 has newer ones."""
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


def test_versions_with_mock_cluster_are_its_newest() -> None:
    """The mock cluster of the tests offers older versions, which are used."""
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


#: The versions that this package uses with the oldest of these brokers.
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
                # Offered, but rejected unless the broker's group.coordinator.rebalance.protocols allows it.
                "ConsumerGroupHeartbeat": 0,
                "ConsumerGroupDescribe": 0,
            },
            id="Kafka 3.9",
        ),
        pytest.param(REDPANDA, {"OffsetFetch": 7}, id="Redpanda"),
    ],
)
def test_versions_for_classic_members_work_with_brokers_before_4_0(
    offered: dict[int, tuple[int, int]], newer: dict[str, int]
) -> None:
    """Kafka 2.4 and Redpanda are the minimum; they offer each API that a classic member needs."""
    found = chosen({key: ends for key, ends in offered.items() if key != Api.DESCRIBE_CONFIGS})
    assert found == OLDEST | newer


def test_negotiate_respects_minimum_version_of_caller() -> None:
    """A commit of the consumer protocol needs version 9, and one of the classic protocol version 8."""
    assert negotiate(Api.OFFSET_COMMIT, VersionRange(0, 8)) == 8
    assert negotiate(Api.OFFSET_COMMIT, VersionRange(0, 9), 9) == 9
    with pytest.raises(UnsupportedProtocolError, match="needed in version 9, but the broker offers versions 0-8 of it"):
        negotiate(Api.OFFSET_COMMIT, VersionRange(0, 8), 9)


@pytest.mark.parametrize("api", Api)
def test_supported_versions_are_ascending_and_not_empty(api: Api) -> None:
    """`negotiate` selects the last common version, so the table must be ascending."""
    assert SUPPORTED[api]
    assert list(SUPPORTED[api]) == sorted(set(SUPPORTED[api]))


def test_negotiate_without_consumer_protocol_raises_error_with_fix() -> None:
    """H32 (client): Without api key 68, the broker lacks KIP-848; the error names the required release."""
    with pytest.raises(UnsupportedProtocolError) as refusal:
        negotiate(Api.CONSUMER_GROUP_HEARTBEAT, None)
    text = str(refusal.value)
    assert "does not offer ConsumerGroupHeartbeat (api key 68)" in text
    assert "KIP-848" in text
    assert "from 4.0 on" in text
    assert "group.version" in text
    assert "group.protocol=classic" in text


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        (VersionRange(0, 6), "the broker offers versions 0-6 of it. Use a broker of Apache Kafka 2.4 or later."),
        (
            VersionRange(14, 14),
            "the broker offers versions 14 of it. The broker is too new for this package: use a new",
        ),
        (None, "the broker offers none of it. Use a broker of Apache Kafka 2.4 or later."),
    ],
)
def test_negotiate_error_names_needed_and_offered_versions(offered: VersionRange | None, message: str) -> None:
    """The ranges in the error distinguish too old, too new and missing."""
    with pytest.raises(UnsupportedProtocolError, match=r"Metadata \(api key 3\)") as refusal:
        negotiate(Api.METADATA, offered)
    assert f"needed in version 7, 12, 13, but {message}" in str(refusal.value)


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
def test_negotiate_error_names_release_with_needed_version(
    api: Api, offered: VersionRange | None, at_least: int, release: str
) -> None:
    """The error names the release that the caller needs, not the package's minimum."""
    with pytest.raises(UnsupportedProtocolError, match=rf"Use a broker of Apache Kafka {release} or later\."):
        negotiate(api, offered, at_least)
