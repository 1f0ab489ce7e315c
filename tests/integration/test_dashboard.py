"""A real Prometheus scrapes a process with two members and runs the dashboard's queries: no panel is empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Thread

import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from consumer_membership.processing import Processor
from tests.support.dashboard import queries
from tests.support.kafka import create_topic, produce, unique
from tests.support.prometheus import Prometheus, prometheus
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Rates need several scrapes of each series, from a Prometheus that has just been started.
SCRAPED_S = 90.0
#: The values that Grafana substitutes for its variables.
VARIABLES = {"$__rate_interval": "1m", "$__range": "5m", "$group": ".*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Two members of one group, of which the first has joined, a processor, and the address of their metrics."""

    address: str
    topic: str
    members: tuple[Consumer, Consumer]


@pytest.fixture
def process(kafka: Broker) -> Iterator[Process]:
    """This process, until all members are closed."""
    (port,) = draw_ports(1)
    address = f"{LOOPBACK}:{port}"
    topic, group = create_topic(kafka.bootstrap_servers, unique("dashboard"), 4), unique("group")
    settings: dict[str, object] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        "statistics.interval.ms": 500,
        "health.http.address": address,
    }
    first, second = (Consumer({**settings, "client.id": f"member-{number}"}) for number in range(2))
    processor = Processor({**settings, "group.id": unique("group")}, [topic], lambda _: None)
    handling = Thread(target=processor.run)
    handling.start()
    try:
        for member in (first, second):
            member.subscribe([topic], on_assign=lambda *_: None, on_revoke=lambda *_: None)
        yield Process(address=address, topic=topic, members=(first, second))
    finally:
        processor.stop()
        handling.join()
        first.close()
        second.close()


def empty(server: Prometheus) -> list[str]:
    """The panels whose queries return no number yet, with the queries."""
    found = []
    for title, query in queries():
        asked = query
        for name, value in VARIABLES.items():
            asked = asked.replace(name, value)
        if all(number == "NaN" for number in server.numbers(asked)):
            found.append(f"{title}: {asked}")
    return found


def test_each_dashboard_query_returns_a_number(kafka: Broker, process: Process) -> None:
    """Prometheus parses each query and returns a number while records flow and after the second member has joined."""
    first, second = process.members
    with prometheus(process.address) as server:
        polled = [first]

        def write_and_poll() -> None:
            produce(kafka.bootstrap_servers, process.topic, 50)
            for _ in range(20):
                for member in polled:
                    member.poll(0.02)
            # Rates do not count events before the first scrape.
            if server.numbers('sum(kafka_consumer_assigned_partitions{client_id=~"member-.*"}) == 4'):
                polled[:] = [first, second]

        wait_until(
            lambda: not empty(server),
            "a number for each query",
            SCRAPED_S,
            between=write_and_poll,
            seen=lambda: "\n".join(empty(server)),
        )
