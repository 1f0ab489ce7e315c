"""Groups of all clients that have an assignor, on a real broker: each member leads, and the members work together."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_membership.devbroker import Broker
from tests.integration.partners import Company
from tests.integration.writer import PARTITIONS, Writer
from tests.support.kafka import create_topic, unique
from tests.support.partners.life import STRATEGIES, Client, Strategy

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Who is alone in the group when the others come, and so leads first; then the order is the coordinator's.
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


def is_visited(company: Company, strategy: Strategy) -> None:
    """Another member joins and leaves: the leader makes others revoke a part of their partitions and keep the rest."""
    leader = company.leader()
    guest = company.join(Client.CONFLUENT, strategy)
    company.settled()
    company.dismiss(guest)
    company.settled()
    assert company.leader() is leader


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
        Company(servers, unique("group"), topic, PARTITIONS, tmp_path) as company,
        Writer(servers, topic) as writer,
    ):
        company.join(first, strategy)
        company.settled()
        for client in others:
            company.join(client, strategy)
        company.settled()
        led = [company.leader()]
        assert led == company.members[:1]
        while len(company.members) > 1:
            if strategy is Strategy.COOPERATIVE_STICKY:
                is_visited(company, strategy)
            company.dismiss(led[-1])
            company.settled()
            led.append(company.leader())
        # The last member is alone now: let it also lead another member.
        last = company.members[0]
        company.join(Client.KAFKA_PYTHON if last.life.client is Client.OURS else Client.OURS, strategy)
        company.settled()
        assert company.leader() is last
        assert sorted(partner.life.client for partner in led) == sorted([first, *others])
        company.everything_seen(writer.stop())
        company.check()
