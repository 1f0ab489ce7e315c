"""`Consumer.lease`, its guard, and the check of each record with `ownership.lease.enable`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.clients.lease import Lease
from consumer_membership.errors import LeaseOverError
from consumer_membership.types import TopicPartition
from tests.clients.application import record, subscribed
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.waiting import PATIENCE_S


def session_ends(consumer: ScriptedConsumer, left_s: float) -> None:
    """Make the member's lease end after this time; no thread sets the wake-up."""
    consumer.member.view = replace(consumer.member.view, lease_until=time.monotonic() + left_s)


def owner(consumers: ConsumerFactory, topic: str, *, has_leases: bool = True) -> ScriptedConsumer:
    """A member that owns partition 0 at epoch 4, and has returned its first record."""
    consumer = subscribed(consumers, topic, [], ownership_lease_enable=has_leases)
    consumer.member.assign({TopicPartition(topic, 0): 0}, epoch=4)
    session_ends(consumer, PATIENCE_S)
    assert record(consumer).offset() == 0
    return consumer


def lease_of(consumer: ScriptedConsumer, topic: str) -> Lease:
    """The lease of partition 0."""
    return consumer.lease(PartitionOffset(topic, 0))


# ---- the lease ------------------------------------------------------------------------------------------------------


def test_lease_has_the_epoch_of_the_assignment_and_the_remaining_time(consumers: ConsumerFactory, topic: str) -> None:
    """The token is the epoch at which the partition was assigned; the end is the member's."""
    consumer = owner(consumers, topic)
    lease = lease_of(consumer, topic)
    until = consumer.membership().lease_until
    assert until is not None
    assert (lease.topic, lease.partition, lease.token, lease.holds) == (topic, 0, 4, True)
    assert 0 < lease.remaining <= PATIENCE_S
    assert lease.until == pytest.approx(until, abs=1.0)


def test_lease_moves_on_with_heartbeat_responses_and_ends_with_the_session(
    consumers: ConsumerFactory, topic: str
) -> None:
    """A lease object reflects each later change of the member's lease."""
    consumer = owner(consumers, topic)
    lease = lease_of(consumer, topic)
    session_ends(consumer, -1.0)
    assert (lease.remaining, lease.holds) == (0.0, False)
    session_ends(consumer, PATIENCE_S)
    assert lease.holds


def test_lease_of_an_earlier_assignment_stays_over(consumers: ConsumerFactory, topic: str) -> None:
    """The partition may have had another owner between two assignments."""
    consumer = owner(consumers, topic)
    lease = lease_of(consumer, topic)
    consumer.member.revoke(None)
    while consumer.assignment():
        consumer.poll(0)
    assert not lease.holds
    consumer.member.assign({TopicPartition(topic, 0): 1}, epoch=6)
    session_ends(consumer, PATIENCE_S)
    assert record(consumer).offset() == 1
    assert (lease_of(consumer, topic).token, lease_of(consumer, topic).holds, lease.holds) == (6, True, False)


def test_lease_of_a_partition_that_is_not_owned_raises(consumers: ConsumerFactory, topic: str) -> None:
    """`lease` raises for a partition that the member does not own."""
    with pytest.raises(LeaseOverError, match=f"{topic}-1 is not owned"):
        owner(consumers, topic).lease(PartitionOffset(topic, 1))


def test_lease_without_the_configuration_key_raises_with_the_fix(consumers: ConsumerFactory, topic: str) -> None:
    """A lease that is not checked for each record, or whose session is guessed, would promise too much."""
    with pytest.raises(KafkaException, match=r"set ownership\.lease\.enable=true"):
        lease_of(owner(consumers, topic, has_leases=False), topic)


def test_token_of_an_epoch_that_an_earlier_owner_may_have_raises(consumers: ConsumerFactory, topic: str) -> None:
    """Only `token` raises: the lease itself holds, and its other errors do not need the token."""
    consumer = owner(consumers, topic)
    consumer.member.view = replace(consumer.member.view, has_tokens=False)
    lease = lease_of(consumer, topic)
    assert lease.holds
    with pytest.raises(KafkaException, match=f"the lease of {topic}-0 has no token: the coordinator refused"):
        print(lease.token)
    session_ends(consumer, -1.0)
    with pytest.raises(LeaseOverError, match=f"{topic}-0 is over"), lease.guard():
        pytest.fail("the work began")


# ---- the guard ------------------------------------------------------------------------------------------------------


def test_guard_refuses_to_begin_after_the_end_or_with_too_little_time(consumers: ConsumerFactory, topic: str) -> None:
    """The guard raises before the work begins."""
    consumer = owner(consumers, topic)
    lease = lease_of(consumer, topic)
    with pytest.raises(LeaseOverError, match="nothing was begun"), lease.guard(at_least_s=2 * PATIENCE_S):
        pytest.fail("the work began")
    session_ends(consumer, -1.0)
    with pytest.raises(LeaseOverError, match="nothing was begun"), lease.guard():
        pytest.fail("the work began")


def test_guard_reports_at_its_exit_whether_the_lease_held(consumers: ConsumerFactory, topic: str) -> None:
    """The guard raises if the lease is lost at its exit; an assignment that was confirmed late has held."""
    consumer = owner(consumers, topic)
    lease = lease_of(consumer, topic)
    with lease.guard() as guard:
        assert guard.held is None
        session_ends(consumer, -1.0)
        session_ends(consumer, PATIENCE_S)
    assert guard.held is True
    guard = lease.guard()
    with pytest.raises(LeaseOverError, match="two members"), guard:
        session_ends(consumer, -1.0)
    assert guard.held is False


def test_exception_of_guarded_work_propagates(consumers: ConsumerFactory, topic: str) -> None:
    """The work's exception is more useful than an error about the end of the lease, which `held` shows."""
    consumer = owner(consumers, topic)
    guard = lease_of(consumer, topic).guard()
    with pytest.raises(ZeroDivisionError), guard:
        _fail_after(lambda: session_ends(consumer, -1.0))
    assert guard.held is False


def _fail_after(act: Callable[[], None]) -> None:
    act()
    raise ZeroDivisionError


def test_guard_decorates_functions_and_coroutine_functions(consumers: ConsumerFactory, topic: str) -> None:
    """Each call is guarded until its end."""
    consumer = owner(consumers, topic)
    guard = lease_of(consumer, topic).guard()

    @guard
    def double(number: int) -> int:
        return 2 * number

    @guard
    async def write() -> str:
        await asyncio.sleep(0)
        return "written"

    @guard
    async def lose() -> None:
        await asyncio.sleep(0)
        session_ends(consumer, -1.0)

    assert (double(4), asyncio.run(write())) == (8, "written")
    with pytest.raises(LeaseOverError, match="two members"):
        asyncio.run(lose())
    with pytest.raises(LeaseOverError, match="nothing was begun"):
        double(4)


# ---- the check of each record ----------------------------------------------------------------------------------------


def buffered(consumer: ScriptedConsumer) -> int:
    """Read records until others are buffered; return the offset of the next one."""
    offset = 0
    while not consumer._ready:
        offset = record(consumer).offset() or 0
    (first, *_) = consumer._ready
    assert first.offset() == offset + 1
    return offset + 1


@pytest.mark.parametrize("take", [lambda consumer: consumer.poll(0), lambda consumer: consumer.consume(1, 0)])
def test_buffered_record_is_withheld_at_once_when_the_lease_ends(
    consumers: ConsumerFactory, topic: str, take: Callable[[ScriptedConsumer], object]
) -> None:
    """Each record is checked, before any thread has noticed the end of the lease."""
    consumer = owner(consumers, topic)
    offset = buffered(consumer)
    session_ends(consumer, -1.0)
    assert not consumer._use().line.wake_up.is_set
    assert not take(consumer)
    session_ends(consumer, PATIENCE_S)
    assert record(consumer).offset() == offset


def test_without_leases_buffered_records_are_not_checked_one_by_one(consumers: ConsumerFactory, topic: str) -> None:
    """The hot path reads only the wake-up, which a thread sets when the lease ends."""
    consumer = owner(consumers, topic, has_leases=False)
    offset = buffered(consumer)
    session_ends(consumer, -1.0)
    message = consumer.poll(0)
    assert message is not None
    assert message.offset() == offset
