"""The kinds of brokers that tests share, as the broker properties with which they are started.

Tests that share a kind share one broker (`broker_pool.shared`) and use their own names
(`tests.support.kafka.unique`).
"""

from __future__ import annotations

from tests.support.acls import AUTHORIZER

#: Sessions that end within a test, and groups that never change their type while they have members (a broker more would
#: cost more than this does); the other group settings are Kafka's own.
SHORT_SESSIONS = {
    "group.consumer.migration.policy": "disabled",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
}

#: Short times, with Kafka's own policy: groups of living members are converted in both directions.
BIDIRECTIONAL = {key: value for key, value in SHORT_SESSIONS.items() if key != "group.consumer.migration.policy"}

#: A broker that has the consumer protocol switched off.
CLASSIC_ONLY = {"group.coordinator.rebalance.protocols": "classic"}

#: Groups of both protocols are full with two members.
TWO_MEMBERS = {"group.max.size": "2", "group.consumer.max.size": "2"}

#: The broker ends abandoned transactions within 0.2 s instead of 10 s, and sessions end in time.
TRANSACTIONS = SHORT_SESSIONS | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}

#: As many members in each group as that, sessions that end within a test, and rules about who may do what.
STRICT = SHORT_SESSIONS | TWO_MEMBERS | AUTHORIZER
