"""What helps against an error that ends a membership: one table for each request, with that protocol's own keys.

Whoever turns an answer into a fact puts the remedy beside the words (`BrokerError.remedy`), and nobody adds another
one: a text has its advice once. Errors that the member finds by itself, as the holder of an instance id, bring their
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from consumer_membership.light_dataclasses import replace
from consumer_membership.types import BrokerError
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api

_E = ErrorCode

_VALID_GROUP = "set a valid group.id"
_READ_GROUP = "grant READ on the group to this principal"
_OWN_ID = "the newest member with an instance id has it, so this one ends; give each process its own id"
_NOT_UNDERSTOOD = "the broker did not understand the request; look for a proxy or another broker in between"

#: Of a classic member that has joined.
_JOINED: Mapping[int, str] = MappingProxyType(
    {_E.group_authorization_failed: _READ_GROUP, _E.fenced_instance_id: _OWN_ID}
)

#: By request and error code, of those whose refusal can end a member; what is missing has no remedy that is known.
REMEDIES: Mapping[Api, Mapping[int, str]] = MappingProxyType(
    {
        Api.CONSUMER_GROUP_HEARTBEAT: {
            _E.invalid_group_id: _VALID_GROUP,
            _E.group_authorization_failed: _READ_GROUP,
            _E.unsupported_version: "use Apache Kafka 4.0 or later, with the feature group.version at 1 "
            "(kafka-features upgrade --feature group.version=1) and 'consumer' among the broker's "
            "group.coordinator.rebalance.protocols",
            _E.invalid_request: _NOT_UNDERSTOOD,
            _E.group_id_not_found: "the group is of the classic protocol and is not converted; end its classic "
            "members, or use another group.id",
            _E.group_max_size_reached: "raise group.consumer.max.size on the brokers, or run fewer members",
            _E.fenced_instance_id: _OWN_ID,
            _E.unsupported_assignor: "name one of the brokers' assignors (group.consumer.assignors) in "
            "group.remote.assignor, or leave it out",
            _E.invalid_regular_expression: "write the pattern as RE2/J reads it, and subscribe again",
        },
        Api.JOIN_GROUP: {
            _E.inconsistent_group_protocol: "set partition.assignment.strategy to have one in common",
            _E.invalid_group_id: _VALID_GROUP,
            _E.invalid_session_timeout: "set one between them, or change them on the brokers",
            _E.group_authorization_failed: _READ_GROUP,
            _E.unsupported_version: "use brokers of Apache Kafka 2.4 or later, or leave group.instance.id out where "
            "it is set",
            _E.invalid_request: _NOT_UNDERSTOOD,
            _E.group_max_size_reached: "raise group.max.size on the brokers, or run fewer members",
            _E.fenced_instance_id: _OWN_ID,
        },
        Api.SYNC_GROUP: _JOINED,
        Api.HEARTBEAT: _JOINED,
        # A classic member's; one of the consumer protocol hears of its end by a heartbeat.
        Api.OFFSET_COMMIT: _JOINED,
        Api.OFFSET_FETCH: {
            _E.group_authorization_failed: _READ_GROUP,
            _E.topic_authorization_failed: "grant READ on the topic to this principal",
        },
    }
)

#: Where a code means something else for a member that has joined than for one that joins.
OF_MEMBERS: Mapping[Api, Mapping[int, str]] = MappingProxyType(
    {
        Api.CONSUMER_GROUP_HEARTBEAT: {
            _E.group_id_not_found: "the group was deleted or converted, or this is a new cluster; the member joins "
            "again; if that is unexpected, check bootstrap.servers",
        }
    }
)


def with_remedy(request: Api, error: BrokerError, *, is_member: bool = False) -> BrokerError:
    """The error of this request with what helps against it, where that is known.

    `is_member`: the request is of a member that has joined.
    """
    of_members = OF_MEMBERS.get(request, {}) if is_member else {}
    remedy = of_members.get(error.code) or REMEDIES[request].get(error.code)
    return error if remedy is None else replace(error, remedy=remedy)
