"""What the others see when a member with a guardian dies."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from consumer_membership.devbroker import Broker
from tests.runtime.guardian.consumers import ConsumerProcess
from tests.runtime.guardian.processes import has_ended, pss_bytes
from tests.support.waiting import SOONER_THAN_A_SESSION_S, wait_until

#: group.consumer.session.timeout.ms of a broker by default.
SESSION_S = 45.0


def members(broker: Broker, group: str) -> int:
    """How many members the coordinator counts."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state is not ConsumerGroupState.UNKNOWN
    return len(described.members)


def said_at_its_death(one: ConsumerProcess, two: ConsumerProcess, group: str) -> str:
    """Kill the first of two members that share twelve partitions; its guardian's words, once the other has them all."""
    two.settled(6)
    member_id = one.settled(6).member_id
    guardian = one.guardian()
    assert guardian.net_connections("inet") == []
    assert guardian.memory_info().rss < 25e6, (guardian.memory_info().rss, pss_bytes(guardian))
    one.kill()
    # Long before the session would end otherwise.
    two.settled(12, SOONER_THAN_A_SESSION_S)
    wait_until(lambda: has_ended(guardian), "the guardian's end")
    (line,) = one.guardian_lines()
    whose, died, words = line.partition(f" its process {one.process.pid} died; ")
    assert died
    assert whose.endswith(f"member {member_id} of group {group}:")
    return words
