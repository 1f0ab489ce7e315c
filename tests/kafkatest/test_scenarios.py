"""Kafka's consumer group scenarios with this package's verifiable consumer, on a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafkatest.clients import Client
from tests.kafkatest.scenarios import CASES, Case
from tests.kafkatest.stage import Stage

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

#: The case of the gate: members come and go one after the other, and each record is reported once.
GATE = "group_consumption[consumer]"


def play(case: Case, kafka_broker: BrokerFactory, folder: Path) -> None:
    """Run a case with members of this package; members and brokers are restarted once instead of five times."""
    broker = kafka_broker(nodes=case.nodes, properties=case.properties, is_shared=case.nodes == 1)
    case.play(Stage.prepare(broker, Client.OURS, folder, bounces=1, partitions=case.partitions, config=case.config))


@pytest.mark.parametrize("case", [case for case in CASES if case.name == GATE], ids=lambda case: case.name)
def test_members_that_come_and_go_report_each_record_once(
    case: Case, kafka_broker: BrokerFactory, tmp_path: Path
) -> None:
    """Three verifiable consumers start and stop one after the other; records, positions and commits agree."""
    play(case, kafka_broker, tmp_path)


@pytest.mark.parametrize("case", [case for case in CASES if case.name != GATE], ids=lambda case: case.name)
def test_scenario_of_kafka_s_system_tests_passes(case: Case, kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    """Each other case passes with members of this package."""
    play(case, kafka_broker, tmp_path)
