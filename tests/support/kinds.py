"""The kinds of brokers that tests share, defined by the broker properties.

Tests with the same kind share one broker (`RunBrokers.shared`), and use their own names (`tests.support.kafka.unique`).
"""

from __future__ import annotations

from tests.support.acls import AUTHORIZER

#: Sessions are short enough to expire within a test. The type of a group with members never changes; this is not a
#: separate kind, because another broker would cost more. The other group settings are Kafka's defaults.
SHORT_SESSIONS = {
    "group.consumer.migration.policy": "disabled",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
}

#: Short sessions, with Kafka's default policy: groups with members are converted in both directions.
BIDIRECTIONAL = {key: value for key, value in SHORT_SESSIONS.items() if key != "group.consumer.migration.policy"}

#: The consumer protocol is disabled.
CLASSIC_ONLY = {"group.coordinator.rebalance.protocols": "classic"}

#: Groups of both protocols are full with two members.
TWO_MEMBERS = {"group.max.size": "2", "group.consumer.max.size": "2"}

#: The broker aborts expired transactions within 0.2 s instead of 10 s, and sessions are short.
TRANSACTIONS = SHORT_SESSIONS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}

#: At most two members in each group, short sessions, and ACLs.
STRICT = SHORT_SESSIONS | TWO_MEMBERS | AUTHORIZER
