"""A member that calls `poll` or `consume`, with the consumer of this package or of confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from tests.chaos import history as h
from tests.chaos.members.account import Account, named, partition_of
from tests.chaos.plan import Loop

_POLL_S = 0.1
_BATCH = 20

Callback = Callable[[confluent_kafka.Consumer, list[TopicPartition]], None]


class Application:
    """The application of one consumer.

    `assigned` returns the event for partitions that are assigned, and `lease_until_ns` the end of a partition's lease.
    `on_warm` has the argument `on_warm` of `subscribe`; it is empty for confluent-kafka, which has no such argument.
    """

    def __init__(
        self,
        account: Account,
        consumer: confluent_kafka.Consumer,
        assigned: Callable[[list[TopicPartition]], h.Assigned],
        lease_until_ns: Callable[[TopicPartition], int | None],
        on_warm: Mapping[str, Callback] = MappingProxyType({}),
    ) -> None:
        self._account, self._consumer = account, consumer
        self._assigned, self._lease_until_ns = assigned, lease_until_ns
        self._on_warm = on_warm

    def run(self) -> int:
        """Poll until the member has to close, or fails permanently."""
        account, consumer = self._account, self._consumer
        consumer.subscribe(
            [account.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
            **self._on_warm,
        )
        while not account.is_closing:
            time.sleep(account.take_sleep_s())
            begun_ns = h.now_ns()
            try:
                messages = self._receive()
            except Exception as error:  # noqa: BLE001 - callbacks and the client may raise any error
                account.writer.write(h.Raised(error=repr(error)))
                continue
            for message in messages:
                if (failed := message.error()) is not None:
                    if account.error(failed):
                        return 1
                    continue
                partition = partition_of(message)
                until_ns = self._lease_until_ns(TopicPartition(partition.topic, partition.number))
                account.received(message, begun_ns, until_ns)
            if account.is_commit_due():
                self._commit(None)
        return 0

    def close(self) -> None:
        """Close the consumer, which commits the remaining offsets in on_revoke, and write that it is closed."""
        self._consumer.close()
        self._account.writer.write(h.Closed())

    def _receive(self) -> list[Message]:
        if self._account.plan.loop is Loop.CONSUME:
            return self._consumer.consume(_BATCH, _POLL_S)
        message = self._consumer.poll(_POLL_S)
        return [] if message is None else [message]

    def _commit(self, partitions: tuple[h.Partition, ...] | None) -> None:
        if self._account.plan.commits_automatically:
            return
        number, offsets = self._account.begin_commit(partitions)
        try:
            result = self._consumer.commit(offsets=offsets, asynchronous=False) if offsets else []
        except KafkaException as error:
            self._account.end_commit(number, error)
        else:
            self._account.end_commit(number, result)

    # ---- callbacks ----

    def _on_assign(self, _: object, partitions: list[TopicPartition]) -> None:
        self._account.writer.write(self._assigned(partitions))
        time.sleep(self._account.slow_s())

    def _on_revoke(self, _: object, partitions: list[TopicPartition]) -> None:
        given_up = named(partitions)
        try:
            self._commit(given_up)
            time.sleep(self._account.slow_s())
        finally:
            self._account.drop(given_up)
            self._account.writer.write(h.Revoked(partitions=given_up))

    def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        lost = named(partitions)
        self._account.drop(lost)
        self._account.writer.write(h.Lost(partitions=lost))


def run_calls(account: Account) -> int:
    """Run a member of this package."""
    # Members of confluent-kafka also use this module, and must not import the package.
    from consumer_membership import Consumer  # noqa: PLC0415
    from tests.chaos.members.statements import Statements, epochs_of, ns  # noqa: PLC0415

    consumer = Consumer(account.config())

    def assigned(partitions: list[TopicPartition]) -> h.Assigned:
        view = consumer.membership()
        return h.Assigned(
            member_id=view.member_id,
            epochs=epochs_of(account.plan.has_leases, consumer, partitions),
            instance_id=view.instance_id,
        )

    def lease_until_ns(partition: TopicPartition) -> int | None:
        if not account.plan.has_leases or consumer.membership().is_session_assumed:
            return None
        try:
            return ns(consumer.lease(partition).until)
        except KafkaException:
            # The partition is not owned: the checker has rules for this.
            return None

    on_warm = {"on_warm": lambda _, partitions: account.warmed(partitions)}
    application = Application(account, consumer, assigned, lease_until_ns, on_warm)
    statements = Statements(account.writer, consumer.membership, consumer.health, has_leases=account.plan.has_leases)
    try:
        return application.run()
    except KeyboardInterrupt:
        return 130
    finally:
        statements.stop()
        application.close()
        consumer.dump(account.folder / f"{account.process}.recording")
