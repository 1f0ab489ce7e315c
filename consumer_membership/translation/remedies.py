"""Remedies for errors that end a membership: one table per request, with the keys of that protocol.

The translation of a response adds the remedy to the error (`BrokerError.remedy`), and no other place adds one, so that
a message has its advice once. Errors that the member itself detects, such as the holder of an instance id, have their
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
_OWN_ID = "the newest member with an instance id owns it, so this member ends; give each process its own id"
_NOT_UNDERSTOOD = "the broker could not parse the request; check for a proxy or another broker in between"

#: Remedies of a classic member that has joined.
_JOINED: Mapping[int, str] = MappingProxyType(
    {_E.group_authorization_failed: _READ_GROUP, _E.fenced_instance_id: _OWN_ID}
)

#: By request and error code, for errors that can end a member; errors without an entry have no known remedy.
REMEDIES: Mapping[Api, Mapping[int, str]] = MappingProxyType(
    {
        Api.CONSUMER_GROUP_HEARTBEAT: {
            _E.invalid_group_id: _VALID_GROUP,
            _E.group_authorization_failed: _READ_GROUP,
            _E.unsupported_version: "use Apache Kafka 4.0 or later, with the feature group.version at 1 "
            "(kafka-features upgrade --feature group.version=1) and 'consumer' among the broker's "
            "group.coordinator.rebalance.protocols",
            _E.invalid_request: _NOT_UNDERSTOOD,
            _E.group_id_not_found: "the group uses the classic protocol and is not converted; close its classic "
            "members, or use another group.id",
            _E.group_max_size_reached: "raise group.consumer.max.size on the brokers, or run fewer members",
            _E.fenced_instance_id: _OWN_ID,
            _E.unsupported_assignor: "set group.remote.assignor to one of the brokers' assignors "
            "(group.consumer.assignors), or remove the key",
            _E.invalid_regular_expression: "use RE2/J syntax for the pattern, and subscribe again",
        },
        Api.JOIN_GROUP: {
            _E.inconsistent_group_protocol: "set partition.assignment.strategy to an assignor that all members have",
            _E.invalid_group_id: _VALID_GROUP,
            _E.invalid_session_timeout: "set session.timeout.ms between them, or change them on the brokers",
            _E.group_authorization_failed: _READ_GROUP,
            _E.unsupported_version: "use brokers of Apache Kafka 2.4 or later, or remove group.instance.id",
            _E.invalid_request: _NOT_UNDERSTOOD,
            _E.group_max_size_reached: "raise group.max.size on the brokers, or run fewer members",
            _E.fenced_instance_id: _OWN_ID,
        },
        Api.SYNC_GROUP: _JOINED,
        Api.HEARTBEAT: _JOINED,
        # For a classic member; a member of the consumer protocol learns from a heartbeat that its membership has ended.
        Api.OFFSET_COMMIT: _JOINED,
        Api.OFFSET_FETCH: {
            _E.group_authorization_failed: _READ_GROUP,
            _E.topic_authorization_failed: "grant READ on the topic to this principal",
        },
    }
)

#: Codes that have another meaning for a member that has joined than for a joining member.
OF_MEMBERS: Mapping[Api, Mapping[int, str]] = MappingProxyType(
    {
        Api.CONSUMER_GROUP_HEARTBEAT: {
            _E.group_id_not_found: "the group was deleted or converted, or this is a new cluster; the member joins "
            "again; if that is unexpected, check bootstrap.servers",
        }
    }
)


def with_remedy(request: Api, error: BrokerError, *, is_member: bool = False) -> BrokerError:
    """Return the error of this request with its remedy, if there is a known one.

    `is_member`: the request is from a member that has joined.
    """
    of_members = OF_MEMBERS.get(request, {}) if is_member else {}
    remedy = of_members.get(error.code) or REMEDIES[request].get(error.code)
    return error if remedy is None else replace(error, remedy=remedy)
