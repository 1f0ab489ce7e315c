"""Groups of all clients that have an assignor, on a real broker: each member leads, and the members work together."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_membership.devbroker import Broker
from tests.integration.partners import MixedGroup
from tests.integration.writer import PARTITIONS, Writer
from tests.support.kafka import create_topic, unique
from tests.support.partners.life import STRATEGIES, Client, Strategy

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: The client that is alone in the group when the others join, and so leads first. The coordinator elects the next ones.
FIRST = {
    Strategy.RANGE: Client.CONFLUENT,
    Strategy.ROUNDROBIN: Client.OURS,
    Strategy.STICKY: Client.JAVA,
    Strategy.COOPERATIVE_STICKY: Client.OURS,
}


def cast_of(strategy: Strategy) -> list[Client]:
    """Two of our members and one of each other client that has the assignor; the first one leads first."""
    others = [client for client in Client if strategy in STRATEGIES[client]]
    return sorted([Client.OURS, *others], key=lambda client: client is not FIRST[strategy])


def is_visited(mixed_group: MixedGroup, strategy: Strategy) -> None:
    """Let another member join and leave: the leader makes others revoke some of their partitions and keep the rest."""
    leader = mixed_group.leader()
    guest = mixed_group.join(Client.CONFLUENT, strategy)
    mixed_group.settled()
    mixed_group.leave(guest)
    mixed_group.settled()
    assert mixed_group.leader() is leader


@pytest.mark.parametrize("strategy", Strategy)
def test_each_client_leads_a_mixed_group_without_losing_a_record(
    kafka: Broker, tmp_path: Path, strategy: Strategy
) -> None:
    """The leader leaves until each member has led: each partition has one owner every time, and no record is lost.

    No member gets a partition before its last owner revoked it; only uncommitted records are repeated.
    """
    servers = kafka.bootstrap_servers
    topic = create_topic(servers, unique("topic"), PARTITIONS)
    first, *others = cast_of(strategy)
    with (
        MixedGroup(servers, unique("group"), topic, PARTITIONS, tmp_path) as mixed_group,
        Writer(servers, topic) as writer,
    ):
        mixed_group.join(first, strategy)
        mixed_group.settled()
        for client in others:
            mixed_group.join(client, strategy)
        mixed_group.settled()
        led = [mixed_group.leader()]
        assert led == mixed_group.members[:1]
        while len(mixed_group.members) > 1:
            if strategy is Strategy.COOPERATIVE_STICKY:
                is_visited(mixed_group, strategy)
            mixed_group.leave(led[-1])
            mixed_group.settled()
            led.append(mixed_group.leader())
        # The last member is alone now: let it also lead another member.
        last = mixed_group.members[0]
        mixed_group.join(Client.KAFKA_PYTHON if last.life.client is Client.OURS else Client.OURS, strategy)
        mixed_group.settled()
        assert mixed_group.leader() is last
        assert sorted(partner.life.client for partner in led) == sorted([first, *others])
        mixed_group.everything_seen(writer.stop())
        mixed_group.check()
