"""Requests of operators beyond groups: which groups exist, what blocks a partition, and the settings of a broker.

Requests and their responses as values; a broker's rejection is a BrokerError instead of the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.translation.answers import by_partition
from consumer_membership.translation.requests import topics_with_numbers
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import BrokerError, TopicPartition
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api, BrokerVersions

_SUCCESS = ErrorCode.none.value
#: DescribeConfigs: the kinds of resources.
_BROKER_RESOURCE, _GROUP_RESOURCE = 4, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """One group as a coordinator lists it; `state` and `kind` are None if the broker is too old to report them."""

    group_id: str
    #: "consumer" for groups of consumers of both protocols; empty for a group with offsets only.
    protocol_type: str
    state: str | None
    #: classic, consumer, share or streams.
    kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer that has records without an end marker in a partition; unreported values are None."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    #: The first offset at which `read_committed` consumers wait.
    start_offset: int
    #: When the producer last wrote, in ms since 1970.
    last_timestamp_ms: int
    transactional_id: str | None = None
    state: str | None = None
    timeout_ms: int | None = None
    started_ms: int | None = None


# ---- requests --------------------------------------------------------------------------------------------------------


def list_groups(versions: BrokerVersions) -> Call:
    """Return a ListGroups of all groups of this broker."""
    return Call(
        api=Api.LIST_GROUPS,
        version=versions.of(Api.LIST_GROUPS),
        fields={"states_filter": (), "types_filter": ()},
    )


def describe_producers(versions: BrokerVersions, partitions: Iterable[TopicPartition]) -> Call:
    """Return a DescribeProducers for the leader of these partitions."""
    return Call(
        api=Api.DESCRIBE_PRODUCERS,
        version=versions.of(Api.DESCRIBE_PRODUCERS),
        fields={"topics": topics_with_numbers(partitions)},
    )


def list_transactions(versions: BrokerVersions, producer_ids: Iterable[int]) -> Call:
    """Return a ListTransactions of these producers; each transaction coordinator knows its own."""
    return Call(
        api=Api.LIST_TRANSACTIONS,
        version=versions.of(Api.LIST_TRANSACTIONS),
        fields={"state_filters": (), "producer_id_filters": tuple(sorted(producer_ids))},
    )


def describe_transactions(versions: BrokerVersions, transactional_ids: Iterable[str]) -> Call:
    """Return a DescribeTransactions for the coordinator that listed them."""
    return Call(
        api=Api.DESCRIBE_TRANSACTIONS,
        version=versions.of(Api.DESCRIBE_TRANSACTIONS),
        fields={"transactional_ids": tuple(sorted(transactional_ids))},
    )


def describe_broker_config(versions: BrokerVersions, node_id: int) -> Call:
    """Return a DescribeConfigs of all settings of this broker, which only this broker can answer."""
    return _describe_config(versions, _BROKER_RESOURCE, str(node_id))


def describe_whole_group_config(versions: BrokerVersions, group_id: str) -> Call:
    """Return a DescribeConfigs of all settings of this group, including the broker's defaults."""
    return _describe_config(versions, _GROUP_RESOURCE, group_id)


def _describe_config(versions: BrokerVersions, kind: int, name: str) -> Call:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return Call(
        api=Api.DESCRIBE_CONFIGS,
        version=versions.of(Api.DESCRIBE_CONFIGS),
        fields={"resources": [resource], "include_synonyms": False, "include_documentation": False},
    )


# ---- responses -------------------------------------------------------------------------------------------------------


def listed_groups(message: Message) -> tuple[ListedGroup, ...] | BrokerError:
    """Return the groups that this broker coordinates and that the caller may describe."""
    if int(message.error_code) != _SUCCESS:
        return broker_error(int(message.error_code))
    return tuple(
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            state=getattr(group, "group_state", None) or None,
            kind=(getattr(group, "group_type", None) or "").lower() or None,
        )
        for group in message.groups
    )


def producers(message: Message) -> Mapping[TopicPartition, tuple[OpenTransaction, ...] | BrokerError]:
    """Return the open transactions of each partition, the oldest first."""
    return {partition: _open(partition, found) for partition, found in by_partition(message.topics).items()}


def _open(partition: TopicPartition, found: Message) -> tuple[OpenTransaction, ...] | BrokerError:
    if int(found.error_code) != _SUCCESS:
        return broker_error(int(found.error_code), found.error_message)
    transactions = (
        OpenTransaction(
            partition=partition,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            start_offset=one.current_txn_start_offset,
            last_timestamp_ms=one.last_timestamp,
        )
        for one in found.active_producers
        if one.current_txn_start_offset >= 0
    )
    return tuple(sorted(transactions, key=lambda one: one.start_offset))


def transactional_ids(message: Message) -> Mapping[int, str] | BrokerError:
    """Return the transactional id of each producer that this coordinator knows, by producer id."""
    if int(message.error_code) != _SUCCESS:
        return broker_error(int(message.error_code))
    return {one.producer_id: one.transactional_id for one in message.transaction_states}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """A transaction as its coordinator knows it; `started_ms` is None if none is open."""

    state: str
    timeout_ms: int
    started_ms: int | None


def transactions(message: Message) -> Mapping[int, TransactionState]:
    """Return the coordinator's state of each transaction, by producer id; those that it may not report are absent."""
    return {
        one.producer_id: TransactionState(
            state=one.transaction_state,
            timeout_ms=one.transaction_timeout_ms,
            started_ms=None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
        )
        for one in message.transaction_states
        if int(one.error_code) == _SUCCESS
    }


def settings(message: Message) -> Mapping[str, str] | BrokerError:
    """Return the settings of the requested resource; those without a value, such as secrets, are absent."""
    for found in message.results:
        if int(found.error_code) != _SUCCESS:
            return broker_error(int(found.error_code), found.error_message)
    return {one.name: one.value for found in message.results for one in found.configs if one.value is not None}
