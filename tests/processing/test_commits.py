"""`OffsetCommits` on a real broker: the offsets of finished records, with and without metadata."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.processing.commits import MetadataLimit, OffsetCommits
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.outputs import OutputProducer
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import ProcessingOrder, Scheduler
from consumer_membership.processing.work import Work
from consumer_membership.types import TopicPartition
from tests.processing.records import record, taken
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, unique
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize("limit", [0, 4096])
def test_commit_with_and_without_metadata_is_accepted(broker_pool: RunBrokers, limit: int) -> None:
    """Without a committed offset, no leader epoch precedes the first record; and a broker may allow no metadata."""
    broker = broker_pool.shared(properties={"offset.metadata.max.bytes": str(limit)} if limit == 0 else None)
    place = TopicPartition(create_topic(broker.bootstrap_servers, unique("topic")), 0)
    scheduler = Scheduler(order=ProcessingOrder.NONE, max_queued=10, max_batch=1, max_wait_s=0.0)
    work = Work(
        scheduler,
        HandlerLedger(lambda _: HandlerGauges()),
        RetryPolicy.from_argument(None),
        has_target=False,
        max_batch=1,
    )
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": unique("group")})
    outputs = OutputProducer({"bootstrap.servers": broker.bootstrap_servers})
    commits = OffsetCommits(consumer, work, 5.0, MetadataLimit(work, limit), outputs)

    def committed() -> tuple[int, int | None, bool]:
        """Commit; return the committed offset, its leader epoch, and whether it has metadata."""
        commits.commit([place])
        (found,) = consumer.committed([Partition(*place)], PATIENCE_S)
        return found.offset, found.leader_epoch, bool(found.metadata)

    work.assign(place, 1, UnfinishedOffsets(None, None, limit))
    work.admit([record(offset, partition=place) for offset in (5, 6, 7)])
    assert committed() == (5, None, False)
    with work.lock:
        first = taken(scheduler)
        if limit:
            scheduler.finish(taken(scheduler), 0.0)
    assert committed() == (5, None, limit > 0)
    with work.lock:
        scheduler.finish(first, 0.0)
    assert committed() == (7 if limit else 6, 0, False)
    commits.close()
    consumer.close()
