"""A consumer outside its group reports no epoch on a real broker, so nothing that it writes afterwards looks valid."""

from __future__ import annotations

from dataclasses import dataclass

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.clients.group_metadata import epoch_in
from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from consumer_membership.types import ASSIGNMENT_LOST_CODE, GroupProtocol
from tests.integration.polls import AnyConsumer, next_error_of_poll
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, unique
from tests.support.kinds import STRICT
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def broker(broker_pool: RunBrokers) -> Broker:
    """The broker of the table of errors."""
    return broker_pool.shared(NEWEST, properties=STRICT)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a consumer reports about its membership."""

    generation: int
    metadata: int
    owned: int
    since: int | None
    group_protocol: GroupProtocol | None

    @classmethod
    def by(cls, consumer: Consumer, topic: str) -> Shown:
        """Read the values from this consumer."""
        view = consumer.membership()
        return cls(
            generation=consumer.generation(),
            metadata=epoch_in(consumer.consumer_group_metadata()),
            owned=len(view.owned),
            since=consumer.owned_since(TopicPartition(topic, 0)),
            group_protocol=view.group_protocol,
        )


OUT = Shown(generation=-1, metadata=-1, owned=0, since=None, group_protocol=None)


def config(broker: Broker, group: str, protocol: str, **more: object) -> dict[str, object]:
    """The configuration of a member."""
    given = {key.replace("_", "."): value for key, value in more.items()}
    servers = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    return {**servers, "log_level": 0, "enable.auto.commit": False, **given}


def settled(consumer: AnyConsumer) -> None:
    """Poll until it has the topic's two partitions, and, with this package, until its view shows them."""

    def is_settled() -> bool:
        has_them = consumer.poll(0.05) is None and len(consumer.assignment()) == 2
        return has_them and (not isinstance(consumer, Consumer) or len(consumer.membership().owned) == 2)

    wait_until(is_settled, "two partitions")


def refusal_of_transaction(broker: Broker, metadata: object, at: TopicPartition) -> int:
    """The error code of transactional offsets that a producer commits with this group metadata."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": unique("t"), "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([at], metadata, PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    return refused.value.args[0].code()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_replaced_member_has_no_epoch_from_its_fatal_error_on(broker: Broker, protocol: str) -> None:
    """A replaced member has no epoch from its error on; its commits and transactions are refused."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    at = TopicPartition(topic, 0, 1)
    lost: list[Shown] = []
    refused: list[int] = []

    def on_lost(consumer: Consumer, _: list[TopicPartition]) -> None:
        lost.append(Shown.by(consumer, topic))
        with pytest.raises(KafkaException) as raised:
            consumer.commit(offsets=[at], asynchronous=False)
        refused.append(raised.value.args[0].code())

    with Consumer(config(broker, group, protocol, group_instance_id="i")) as holder:
        holder.subscribe([topic], on_lost=on_lost)
        settled(holder)
        before = Shown.by(holder, topic)
        assert min(before.generation, before.metadata, before.since or 0, before.owned) > 0
        assert before.group_protocol is not None
        with Worker(broker.bootstrap_servers, group, [topic], group_protocol=protocol, group_instance_id="i") as newer:
            newer.settled(2)
            next_error_of_poll(holder)
            assert Shown.by(holder, topic) == OUT
            # A heartbeat between the holder's release and the newcomer's join causes on_lost before the error.
            holder.poll(0)
            assert (Shown.by(holder, topic), lost) == (OUT, [OUT])
            assert refused in ([KafkaError._FATAL], [ASSIGNMENT_LOST_CODE])
            print(f"{protocol}: the holder had {before.generation}, its replacement has {newer.consumer.generation()}")
            code = refusal_of_transaction(broker, holder.consumer_group_metadata(), at)
            assert code in (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNKNOWN_MEMBER_ID)
    assert holder.generation() == -1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_replaced_member_of_confluent_kafka_keeps_an_epoch(broker: Broker, protocol: str) -> None:
    """After a fatal error confluent-kafka's group metadata have the old generation, or 0."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    raw = confluent_kafka.Consumer(config(broker, group, protocol, group_instance_id="i"))
    raw.subscribe([topic])
    settled(raw)
    with Worker(broker.bootstrap_servers, group, [topic], group_protocol=protocol, group_instance_id="i") as newer:
        newer.settled(2)
        next_error_of_poll(raw)
        written = raw.consumer_group_metadata()
        print(f"{protocol}: {written!r}")
        assert isinstance(written, bytes)
        assert epoch_in(written) >= 0
    raw.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_member_that_exceeded_max_poll_interval_has_no_epoch_until_it_rejoins(broker: Broker, protocol: str) -> None:
    """A STALE member has left before its application polls again; it gets a new epoch when it rejoins."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    admin = GroupAdmin({"bootstrap.servers": broker.bootstrap_servers})
    with Consumer(config(broker, group, protocol, max_poll_interval_ms=1000)) as slow:
        slow.subscribe([topic])
        settled(slow)
        wait_until(lambda: not admin.describe(group, with_offsets=False).group.members, "a group without members")
        assert slow.membership().state is MemberState.STALE
        assert Shown.by(slow, topic) == OUT
        next_error_of_poll(slow)
        wait_until(lambda: slow.poll(0.05) is None and slow.generation() > 0, "a new epoch")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_member_that_left_has_no_epoch(broker: Broker, protocol: str) -> None:
    """A member has no epoch after `unsubscribe` and after `close`."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 2), unique("group")
    consumer = Consumer(config(broker, group, protocol))
    consumer.subscribe([topic])
    settled(consumer)
    consumer.unsubscribe()
    wait_until(
        lambda: consumer.poll(0.05) is None and consumer.membership().state is MemberState.UNSUBSCRIBED, "UNSUBSCRIBED"
    )
    assert Shown.by(consumer, topic) == OUT
    consumer.subscribe([topic])
    settled(consumer)
    consumer.close()
    assert (consumer.generation(), consumer.membership().group_protocol) == (-1, None)
    assert consumer.owned_since(TopicPartition(topic, 0)) is None
