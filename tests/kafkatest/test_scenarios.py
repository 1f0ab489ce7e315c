"""Kafka's consumer group scenarios with this package's verifiable consumer, on a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafkatest.clients import Client
from tests.kafkatest.environment import Environment
from tests.kafkatest.scenarios import CASES, Case

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

#: The case that each test run includes; `tests.support.full` assigns the other cases to the full run only.
STANDARD_CASE = "group_consumption[consumer]"


def run(case: Case, kafka_broker: BrokerFactory, folder: Path) -> None:
    """Run a case with members of this package; members and brokers are restarted once instead of five times."""
    broker = kafka_broker(nodes=case.nodes, properties=case.properties, is_shared=case.nodes == 1)
    case.run(
        Environment.prepare(broker, Client.OURS, folder, bounces=1, partitions=case.partitions, config=case.config)
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.name == STANDARD_CASE], ids=lambda case: case.name)
def test_members_that_join_and_leave_report_each_record_once(
    case: Case, kafka_broker: BrokerFactory, tmp_path: Path
) -> None:
    """Three verifiable consumers start and stop one after the other; records, positions and commits agree."""
    run(case, kafka_broker, tmp_path)


@pytest.mark.parametrize("case", [case for case in CASES if case.name != STANDARD_CASE], ids=lambda case: case.name)
def test_scenario_of_kafka_system_tests_passes(case: Case, kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    """The other cases pass with members of this package."""
    run(case, kafka_broker, tmp_path)
