"""A member that uses `AIOConsumer`, with coroutine functions as callbacks."""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaException, TopicPartition

from consumer_membership.aio import AIOConsumer
from tests.chaos import history as h
from tests.chaos.members.account import Account, named, partition_of
from tests.chaos.members.statements import Statements, epochs_of, ns

_POLL_S = 0.1


class AsyncApplication:
    """The application of one `AIOConsumer`."""

    def __init__(self, account: Account, consumer: AIOConsumer) -> None:
        self._account, self._consumer = account, consumer

    async def run(self) -> int:
        """Poll until the member has to close, or fails permanently."""
        account = self._account
        await self._consumer.subscribe(
            [account.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
            on_warm=self._on_warm,
        )
        while not account.is_closing:
            await asyncio.sleep(account.take_sleep_s())
            begun_ns = h.now_ns()
            try:
                message = await self._consumer.poll(_POLL_S)
            except Exception as error:  # noqa: BLE001 - callbacks and the client may raise any error
                account.writer.write(h.Raised(error=repr(error)))
                continue
            if message is not None:
                if (failed := message.error()) is not None:
                    if account.error(failed):
                        return 1
                    continue
                account.received(message, begun_ns, self._lease_until_ns(partition_of(message)))
            if account.is_commit_due():
                await self._commit(None)
        return 0

    def _lease_until_ns(self, partition: h.Partition) -> int | None:
        if not self._account.plan.has_leases or self._consumer.membership().is_session_assumed:
            return None
        try:
            return ns(self._consumer.lease(TopicPartition(partition.topic, partition.number)).until)
        except KafkaException:
            return None

    async def _commit(self, partitions: tuple[h.Partition, ...] | None) -> None:
        number, offsets = self._account.begin_commit(partitions)
        try:
            result = await self._consumer.commit(offsets=offsets, asynchronous=False) if offsets else []
        except KafkaException as error:
            self._account.end_commit(number, error)
        else:
            self._account.end_commit(number, result or [])

    async def _on_assign(self, _: object, partitions: list[TopicPartition]) -> None:
        view = self._consumer.membership()
        self._account.writer.write(
            h.Assigned(
                member_id=view.member_id,
                epochs=epochs_of(self._account.plan.has_leases, self._consumer, partitions),
                instance_id=view.instance_id,
            )
        )
        await asyncio.sleep(self._account.slow_s())

    async def _on_warm(self, _: object, partitions: list[TopicPartition]) -> None:
        self._account.warmed(partitions)

    async def _on_revoke(self, _: object, partitions: list[TopicPartition]) -> None:
        given_up = named(partitions)
        try:
            await self._commit(given_up)
            await asyncio.sleep(self._account.slow_s())
        finally:
            self._account.drop(given_up)
            self._account.writer.write(h.Revoked(partitions=given_up))

    async def _on_lost(self, _: object, partitions: list[TopicPartition]) -> None:
        lost = named(partitions)
        self._account.drop(lost)
        self._account.writer.write(h.Lost(partitions=lost))


def run_async(account: Account) -> int:
    """Run the member until it is closed, or fails permanently."""

    async def run() -> int:
        consumer = AIOConsumer(account.config())
        statements = Statements(
            account.writer, consumer.membership, consumer.health, has_leases=account.plan.has_leases
        )
        try:
            return await AsyncApplication(account, consumer).run()
        finally:
            await asyncio.to_thread(statements.stop)
            await consumer.close()
            account.writer.write(h.Closed())
            await consumer.dump(account.folder / f"{account.process}.recording")

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return 130
