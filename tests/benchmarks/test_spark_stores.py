"""The records that the Spark figures read from a topic that a transactional sink has written."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from consumer_membership.devbroker import Broker
from tests.benchmarks.spark_stores import store_of
from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.spark_run import KAFKA
from tests.support.kafka import unique
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PARTITIONS = 2


def test_kafka_store_returns_each_committed_record_and_no_other(kafka: Broker) -> None:
    """Committed duplicates are returned twice; aborted records and records of an open transaction are not returned."""
    with store_of(KAFKA, kafka.bootstrap_servers, PARTITIONS) as store:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("t")})
        producer.init_transactions(PATIENCE_S)
        for numbers, end in (
            ([0, 1, 1], producer.commit_transaction),
            ([2, 0], producer.abort_transaction),
            ([3], producer.commit_transaction),
            ([4], producer.flush),
        ):
            producer.begin_transaction()
            for number in numbers:
                producer.produce(store.place, NUMBER_AND_TIME.pack(number, 0.0), partition=number % PARTITIONS)
            end(PATIENCE_S)
        assert sorted(store.numbers()) == [0, 1, 1, 3]
        producer.abort_transaction(PATIENCE_S)
        assert sorted(store.numbers()) == [0, 1, 1, 3]
