"""A member that calls `assign` with all partitions, and commits in a group without members.

It begins at the committed offsets, and also assigns partitions that are added to the topic.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, TopicPartition

from consumer_membership import Consumer
from tests.chaos import history as h
from tests.chaos.members.account import Account, named
from tests.chaos.members.statements import Statements

_POLL_S, _METADATA_S, _TIMEOUT_S = 0.1, 2.0, 5.0


class ManualApplication:
    """The application of one consumer."""

    def __init__(self, account: Account, consumer: Consumer) -> None:
        self._account, self._consumer = account, consumer
        self._refresh_at = 0.0

    def run(self) -> int:
        """Poll until the member has to close, or fails permanently."""
        account, consumer = self._account, self._consumer
        while not account.is_closing:
            time.sleep(account.take_sleep_s())
            begun_ns = h.now_ns()
            try:
                self._assign_all()
                message = consumer.poll(_POLL_S)
            except KafkaException as error:
                account.writer.write(h.Raised(error=repr(error)))
                continue
            if message is not None:
                if (failed := message.error()) is not None:
                    if account.error(failed):
                        return 1
                    continue
                account.received(message, begun_ns, None)
            if account.is_commit_due():
                self.commit()
        return 0

    def commit(self) -> None:
        """Commit the offsets of all received records."""
        number, offsets = self._account.begin_commit()
        try:
            result = self._consumer.commit(offsets=offsets, asynchronous=False) if offsets else []
        except KafkaException as error:
            self._account.end_commit(number, error)
        else:
            self._account.end_commit(number, result)

    def _assign_all(self) -> None:
        """Assign the partitions of the topic that are not assigned yet, at their committed offsets."""
        if time.monotonic() < self._refresh_at:
            return
        topic = self._account.topic
        found = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        self._refresh_at = time.monotonic() + _METADATA_S
        assigned = {one.partition for one in self._consumer.assignment()}
        new = [TopicPartition(topic, number) for number in found if number not in assigned]
        if not new:
            return
        committed = self._consumer.committed(new, timeout=_TIMEOUT_S)
        if failed := [one.error for one in committed if one.error is not None]:
            raise KafkaException(failed[0])
        epochs = tuple(h.Epoch(one.topic, one.number, -1) for one in named(new))
        self._account.writer.write(h.Assigned(member_id=None, epochs=epochs))
        self._consumer.incremental_assign(committed)


def run_manual(account: Account) -> int:
    """Run the member until it is closed, or fails permanently."""
    consumer = Consumer(account.config())
    application = ManualApplication(account, consumer)
    statements = Statements(account.writer, consumer.membership, consumer.health, has_leases=account.plan.has_leases)
    try:
        return application.run()
    except KeyboardInterrupt:
        return 130
    finally:
        statements.stop()
        application.commit()
        consumer.close()
        account.writer.write(h.Closed())
        consumer.dump(account.folder / f"{account.process}.recording")
