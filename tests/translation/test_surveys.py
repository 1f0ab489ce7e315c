"""Operators' requests that do not concern groups: the calls and their responses, especially errors."""

from __future__ import annotations

from consumer_membership.translation import surveys
from consumer_membership.translation.surveys import ListedGroup, OpenTransaction, TransactionState
from consumer_membership.types import BrokerError, TopicPartition
from consumer_membership.wire.serial import Struct
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange

VERSIONS = BrokerVersions({api.value: VersionRange(0, 5) for api in Api})
P0 = TopicPartition("t", 0)


def test_listed_groups_reads_old_and_new_versions() -> None:
    """Version 3 has no state and version 4 no type; "Classic" becomes this package's "classic"."""
    old = Struct(error_code=0, groups=(Struct(group_id="g", protocol_type="consumer"),))
    new = Struct(
        error_code=0,
        groups=(Struct(group_id="g", protocol_type="consumer", group_state="Stable", group_type="Classic"),),
    )
    assert surveys.listed_groups(old) == (ListedGroup(group_id="g", protocol_type="consumer", state=None, kind=None),)
    assert surveys.listed_groups(new) == (
        ListedGroup(group_id="g", protocol_type="consumer", state="Stable", kind="classic"),
    )
    assert surveys.list_groups(VERSIONS).version == 5


def test_rejected_survey_returns_error_and_never_empty_result() -> None:
    """A caller without authorization must not receive an empty result."""
    refused = Struct(error_code=31, groups=(), transaction_states=())
    for answer in (surveys.listed_groups(refused), surveys.transactional_ids(refused)):
        assert isinstance(answer, BrokerError)
        assert answer.name == "CLUSTER_AUTHORIZATION_FAILED"
    settings = surveys.settings(Struct(results=(Struct(error_code=31, error_message="no", configs=()),)))
    assert isinstance(settings, BrokerError)
    assert settings.message == "no"


def test_producers_returns_only_open_transactions() -> None:
    """A producer without an open transaction has offset -1 and is omitted; the oldest comes first."""

    def producer(number: int, start: int) -> Struct:
        return Struct(producer_id=number, producer_epoch=0, last_timestamp=5, current_txn_start_offset=start)

    partition = Struct(
        partition_index=0,
        error_code=0,
        error_message=None,
        active_producers=(producer(1, 9), producer(2, -1), producer(3, 4)),
    )
    found = surveys.producers(Struct(topics=(Struct(name="t", partitions=(partition,)),)))
    assert found == {
        P0: tuple(
            OpenTransaction(partition=P0, producer_id=number, producer_epoch=0, start_offset=start, last_timestamp_ms=5)
            for number, start in ((3, 4), (1, 9))
        )
    }
    assert surveys.describe_producers(VERSIONS, [P0]).fields == {"topics": [{"name": "t", "partition_indexes": (0,)}]}


def test_transactions_returns_state_and_start_by_producer_id() -> None:
    """Transactions are listed by producer id; an unauthorized one is absent."""
    listed = Struct(error_code=0, transaction_states=(Struct(producer_id=7, transactional_id="tx"),))
    assert surveys.transactional_ids(listed) == {7: "tx"}

    def state(producer: int, code: int, started: int) -> Struct:
        return Struct(
            error_code=code,
            producer_id=producer,
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=started,
        )

    described = Struct(transaction_states=(state(7, 0, 12), state(8, 0, -1), state(9, 53, 12)))
    assert surveys.transactions(described) == {
        7: TransactionState(state="Ongoing", timeout_ms=60_000, started_ms=12),
        8: TransactionState(state="Ongoing", timeout_ms=60_000, started_ms=None),
    }
    assert surveys.list_transactions(VERSIONS, {9, 7}).fields["producer_id_filters"] == (7, 9)
    assert surveys.describe_transactions(VERSIONS, ["b", "a"]).fields == {"transactional_ids": ("a", "b")}


def test_settings_requests_one_resource_and_omits_secrets() -> None:
    """The resource is a broker's node id or a group's name; a setting without a value is secret."""
    configs = (Struct(name="group.max.size", value="7"), Struct(name="password", value=None))
    assert surveys.settings(Struct(results=(Struct(error_code=0, error_message=None, configs=configs),))) == {
        "group.max.size": "7"
    }
    broker, group = surveys.describe_broker_config(VERSIONS, 3), surveys.describe_whole_group_config(VERSIONS, "g")
    asked = [call.fields["resources"] for call in (broker, group)]
    assert asked == [
        [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
        for kind, name in ((4, "3"), (32, "g"))
    ]
