"""Kill a member with a guardian, and count the members at the coordinator."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from consumer_membership.devbroker import Broker
from tests.runtime.guardian.consumers import ConsumerProcess
from tests.runtime.guardian.processes import has_ended, pss_bytes
from tests.support.waiting import SOONER_THAN_A_SESSION_S, wait_until

#: The broker's default of group.consumer.session.timeout.ms.
SESSION_S = 45.0


def members(broker: Broker, group: str) -> int:
    """Return the number of members at the coordinator."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups([group])[group].result()
    assert described.state is not ConsumerGroupState.UNKNOWN
    return len(described.members)


def guardian_log_after_kill(one: ConsumerProcess, two: ConsumerProcess, group: str) -> str:
    """Kill the first of two members with twelve partitions; return the end of its guardian's log line.

    Return when the other member owns all partitions.
    """
    two.settled(6)
    member_id = one.settled(6).member_id
    guardian = one.guardian()
    assert guardian.net_connections("inet") == []
    assert guardian.memory_info().rss < 25e6, (guardian.memory_info().rss, pss_bytes(guardian))
    one.kill()
    # This is long before the end of the session.
    two.settled(12, SOONER_THAN_A_SESSION_S)
    wait_until(lambda: has_ended(guardian), "the guardian's end")
    (line,) = one.guardian_lines()
    member, died, outcome = line.partition(f" its process {one.process.pid} died; ")
    assert died
    assert member.endswith(f"member {member_id} of group {group}:")
    return outcome
