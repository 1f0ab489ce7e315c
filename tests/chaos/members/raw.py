"""A member that uses confluent-kafka, in a group of the classic protocol. It does not import this package."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.chaos import history as h
from tests.chaos.members.account import Account
from tests.chaos.members.calls import Application


def run_raw(account: Account) -> int:
    """Run the member until it is closed, or fails permanently."""
    consumer = Consumer(account.config())

    def assigned(partitions: list[TopicPartition]) -> h.Assigned:
        epochs = tuple(h.Epoch(one.topic, one.partition, -1) for one in partitions)
        return h.Assigned(member_id=consumer.memberid(), epochs=epochs)

    application = Application(account, consumer, assigned, lambda _: None)
    try:
        return application.run()
    except KeyboardInterrupt:
        return 130
    finally:
        application.close()
