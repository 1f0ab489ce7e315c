"""The sink for Kafka on a real broker: the result of each record once for readers of committed records."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from consumer_membership.admin import GroupAdmin
from consumer_membership.clients.group_metadata import pack_group_metadata
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.spark import OffsetRange
from consumer_membership.spark.bounds import Bounds, Tally, tally_in
from consumer_membership.spark.context import notes_of
from consumer_membership.spark.sinks import KafkaSink, OutRecord, kafka
from consumer_membership.spark.sinks import producer as kafka_producer
from consumer_membership.types import OffsetAndMetadata
from tests.spark.sinks import kafka_task
from tests.spark.sinks.builders import Word, sent, use
from tests.spark.sinks.kafka_task import INSTANCE_ID, Task, copied
from tests.spark.sinks.zombie import Zombie, zombie
from tests.support.kafka import appended, create_topic, produce, read_committed, unique
from tests.support.proxy import END_TXN, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]
RECORDS, PARTITIONS = 40, 2


class Ground:
    """Two topics and a group of a test's own."""

    def __init__(self, broker: Broker) -> None:
        self.servers = broker.bootstrap_servers
        self.group = unique("g")
        self.topic = create_topic(self.servers, unique("in"), PARTITIONS)
        self.out = create_topic(self.servers, unique("out"), PARTITIONS)
        produce(self.servers, self.topic, RECORDS)

    def sink(self, **config: str | int) -> KafkaSink:
        """A sink that copies."""
        return KafkaSink({"bootstrap.servers": self.servers, **config}, functools.partial(copied, out=self.out))

    def task(self, attempt: int = 1, account: Bounds | None = None) -> Task:
        """A task of the group."""
        return Task(self.servers, self.group, self.topic, attempt=attempt, account=account)

    def stopped(self, point: str) -> AbstractContextManager[Zombie]:
        """A task that stands still at a point."""
        words = (point, self.servers, self.group, self.topic, self.out, RECORDS)
        return zombie(*words, module=kafka_task.__name__)

    def read(self) -> Counter[str]:
        """Where the committed records in the out topic are from."""
        found: Counter[str] = Counter()
        for message in read_committed(self.servers, self.out):
            (header,) = message.headers() or []
            found[str(header[1], "ascii")] += 1  # type: ignore[arg-type]  # a consumer gives bytes
        return found

    def notes(self) -> list[tuple[int, str]]:
        """The offsets of the group with their metadata, as they are."""
        found = GroupAdmin({"bootstrap.servers": self.servers}).committed(self.group)
        return [(at.offset, at.metadata) for _, at in sorted(found.items()) if isinstance(at, OffsetAndMetadata)]

    def origins(self, per_partition: int = RECORDS // PARTITIONS) -> Counter[str]:
        """What is in the in topic."""
        return Counter(f"{p}:{offset}" for p in range(PARTITIONS) for offset in range(per_partition))


@pytest.fixture
def ground(kafka: Broker) -> Ground:
    """On the broker that tests share."""
    return Ground(kafka)


def test_records_and_offsets_are_one_transaction(ground: Ground) -> None:
    """What a transform yields is written, and the group's offsets are behind it, batch for batch, by one producer."""
    sink = ground.sink()
    assert sink.commits_offsets
    producers = []
    with ground.task() as task:
        for _ in range(2):
            sink(*task.take(RECORDS // 2))
            producers.append(sink._producer.held())
        assert producers[0] is producers[1]
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.notes() == [(RECORDS // PARTITIONS, "")] * PARTITIONS
    assert ground.read() == ground.origins()


def test_account_of_a_drain_is_in_the_transaction(ground: Ground) -> None:
    """As committed as the offsets, and read as what was written, whatever the producer's library puts behind it."""
    sink, run = ground.sink(), "run@1"
    account = Bounds(run, dict.fromkeys(((ground.topic, number) for number in range(PARTITIONS)), RECORDS))
    with ground.task(account=account) as task:
        sink(*task.take(RECORDS))
        # Answered when the transaction is over for the coordinator of the group, too.
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    each = RECORDS // PARTITIONS
    whole = Tally(run=run, first=0, records=each, began_at=1.0, ended_at=2.0)
    assert [(offset, tally_in(note, run)) for offset, note in ground.notes()] == [(each, whole)] * PARTITIONS


def test_transform_that_raises_leaves_nothing(ground: Ground) -> None:
    """Neither records nor offsets; its error comes out as it is, and the next call is as the first."""
    seen: list[int] = []

    def twice(message: Message) -> Iterator[OutRecord]:
        seen.append(message.offset() or 0)
        if len(seen) == RECORDS:
            raise ZeroDivisionError
        yield from copied(message, out=ground.out)

    sink = KafkaSink({"bootstrap.servers": ground.servers, "linger.ms": 0}, twice)
    with ground.task() as task:
        records, about = task.take(RECORDS)
        with pytest.raises(ZeroDivisionError):
            sink(records, about)
        assert ground.read() == Counter()
        sink(records, about)
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.read() == ground.origins()


@pytest.mark.parametrize("point", ["before", "inside"])
def test_stopped_task_writes_nothing_after_its_replacement(ground: Ground, point: str) -> None:
    """Before its transaction, or inside it; the coordinator does not take its offsets, and its words say so."""
    with ground.stopped(point) as stopped, ground.task(attempt=2) as task:
        sink = ground.sink()
        sink(*task.take(RECORDS))
        said = stopped.go_on()
        # The replacement's producer is still its own.
        produce(ground.servers, ground.topic, PARTITIONS)
        sink(*task.take(PARTITIONS))
        sink.close()
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS + 1] * PARTITIONS
    assert said.startswith("FencedError the coordinator does not confirm the member")
    assert ground.read() == ground.origins(RECORDS // PARTITIONS + 1)


def test_prepared_producer_ends_what_a_killed_task_left(ground: Ground) -> None:
    """Its offsets are pending, and nobody could know what is committed until the broker's timeout of a minute."""
    with ground.stopped("commit") as stopped:
        stopped.kill()
    sink = ground.sink()
    sink.prepare(0, INSTANCE_ID)
    with ground.task(attempt=2) as task:
        sink(*task.take(RECORDS))
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.read() == ground.origins()


def test_member_that_is_none_any_more_writes_nothing(ground: Ground) -> None:
    """The coordinator of a group without members would take offsets that no member's epoch stands for."""
    sink = ground.sink()
    with ground.task() as task:
        records, about = task.take(RECORDS)
    nobody = Word(metadata=pack_group_metadata(ground.group, -1, "", None))
    with pytest.raises(FencedError, match=f"'pipe-0' is no member of group '{ground.group}' any more"):
        sink(records, replace(about, ownership=nobody))
    sink.close()
    assert ground.read() == Counter()


def test_epoch_that_moves_in_between_is_asked_for_again(ground: Ground) -> None:
    """A member of an epoch that is gone is refused; confirmed by the coordinator, it begins its batch again."""

    class Late:
        """Tells of the epoch before at first."""

        def __init__(self, task: Task) -> None:
            self.task, self.asked = task, 0

        def verify(self) -> None:
            self.task.verify()

        def group_metadata(self) -> bytes:
            self.asked += 1
            consumer = self.task.consumer
            late = pack_group_metadata(ground.group, consumer.generation() - 1, consumer.memberid() or "", INSTANCE_ID)
            return late if self.asked == 1 else self.task.group_metadata()

        def commit_metadata(self, part: OffsetRange) -> str:
            return self.task.commit_metadata(part)

    sink = ground.sink()
    with ground.task() as task:
        records, about = task.take(RECORDS)
        late = Late(task)
        sink(records, replace(about, ownership=late))
        assert late.asked == 2
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.read() == ground.origins()


def test_producer_that_lost_its_id_says_so(ground: Ground) -> None:
    """Another pipeline of the name, say: the group knows of no replacement, and the text tells where to look."""
    sink = ground.sink()
    with ground.task() as task:
        sink(*task.take(RECORDS // 2))
        other = Producer({"bootstrap.servers": ground.servers, "transactional.id": INSTANCE_ID})
        other.init_transactions(PATIENCE_S)
        other.close()
        with pytest.raises(FencedError, match=r"another producer has transactional.id 'pipe-0'"):
            sink(*task.take(RECORDS // 2))
    sink.close()
    assert sum(ground.read().values()) == RECORDS // 2


def test_producer_that_lost_its_id_in_the_middle_says_so(ground: Ground) -> None:
    """Then already `produce` fails, and librdkafka says nothing there but that something failed for good."""
    others = Producer({"bootstrap.servers": ground.servers, "transactional.id": INSTANCE_ID})

    def overtaken(message: Message) -> Iterator[OutRecord]:
        yield from copied(message, out=ground.out)
        others.init_transactions(PATIENCE_S)
        while True:  # until one is refused
            yield from copied(message, out=ground.out)

    sink = KafkaSink({"bootstrap.servers": ground.servers}, overtaken)
    with (
        ground.task() as task,
        pytest.raises(FencedError, match=r"another producer has transactional.id 'pipe-0'") as fenced,
    ):
        sink(*task.take(RECORDS))
    refused = fenced.value.__cause__
    assert isinstance(refused, KafkaException)
    assert refused.args[0].code() == KafkaError._FATAL
    others.close()
    assert ground.read() == Counter()


@pytest.mark.parametrize("is_committed", [True, False])
def test_commit_whose_answer_was_lost_is_looked_up(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    """The next call with the same records asks the group, and writes them only if it has not got their offsets."""

    class Deaf(Producer):
        """Commits, or does not, and hears of a broken connection."""

        def commit_transaction(self, *args: float) -> None:
            if is_committed:
                super().commit_transaction(*args)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "broken"))

        def abort_transaction(self, *_: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "broken"))

    sink = ground.sink()
    with ground.task() as task:
        records, about = task.take(RECORDS)
        with monkeypatch.context() as patch:
            patch.setattr(kafka_producer, "Producer", Deaf)
            with pytest.raises(SinkError, match="it is not known whether it was committed"):
                sink(records, about)
        sink(records, about)
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.read() == ground.origins()


@pytest.mark.parametrize("resets", [True, False])
def test_late_commit_cannot_end_a_later_batch(ground: Ground, *, resets: bool) -> None:
    """Librdkafka has sent it twice, and the first one arrives in the middle of the next batch, which fails then."""
    batches: list[int] = []
    is_failing = True

    def transform(message: Message) -> Iterator[OutRecord]:
        yield from copied(message, out=ground.out)
        batches[-1] += 1
        if is_failing and len(batches) == 2 and batches[-1] == RECORDS // 2:
            # The transaction has begun for the brokers.
            wait_until(lambda: appended(ground.servers, ground.out) > written, "a record of the second batch")
            proxy.arrive()
            raise ZeroDivisionError

    with Proxy(ground.servers) as proxy, ground.task() as task:
        sink = KafkaSink({"bootstrap.servers": proxy.address, "linger.ms": 0, "socket.timeout.ms": 1500}, transform)
        proxy.delay(END_TXN, resets=resets)
        batches.append(0)
        sink(*task.take(RECORDS // 2))
        assert proxy.is_late
        wait_until(lambda: ground.read().total() == RECORDS // 2, "the end of the first transaction")
        written = appended(ground.servers, ground.out)
        records, about = task.take(RECORDS // 2)
        batches.append(0)
        with pytest.raises(ZeroDivisionError):
            sink(records, about)
        assert ground.read().total() == RECORDS // 2
        is_failing = False
        sink(records, about)
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
        sink.close()
    assert ground.read() == ground.origins()


def test_topic_that_does_not_exist_is_named_with_the_record(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call fails before anything is produced, with the topic, the broker's reason and the record's place."""
    monkeypatch.setattr(kafka, "TOPIC_S", 1.0)
    missing = unique("missing")
    sink = KafkaSink({"bootstrap.servers": ground.servers}, functools.partial(copied, out=missing))
    with ground.task() as task:
        records, about = task.take(RECORDS)
        with pytest.raises(SinkError, match=rf"topic '{missing}' cannot be written: Broker: Unknown topic") as failed:
            sink(records, about)
        assert notes_of(failed.value) == [f"at record {ground.topic}-{records[0].partition()}@{records[0].offset()}"]
        # A topic that is created later is found by the next call.
        create_topic(ground.servers, missing)
        sink(records, about)
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()


def test_check_use_names_a_topic_that_does_not_exist(ground: Ground) -> None:
    """Topics that are declared are looked up on the driver, before a job starts."""
    config, missing = {"bootstrap.servers": ground.servers}, unique("missing")
    made = KafkaSink(config, lambda _: (), topics=[ground.out])
    assert made.check_use(use()) == f"topics {ground.out} exist and may be written"
    with pytest.raises(ConfigurationError, match=rf"topics='{missing}'.*Unknown topic .*create the topic") as refused:
        KafkaSink(config, lambda _: (), topics=[ground.out, missing]).check_use(use())
    assert refused.value.key == "topics"


def test_record_that_is_not_delivered_is_named_after_one_transaction(ground: Ground) -> None:
    """A batch with an undeliverable record fails with its topic and the reason, without inner repetitions."""
    transformed: list[int] = []
    small = create_topic(ground.servers, unique("small"), 1, {"max.message.bytes": "300"})

    def enlarged(message: Message) -> Iterator[OutRecord]:
        transformed.append(message.offset() or 0)
        yield OutRecord(topic=small, value=bytes(1000))

    sink = KafkaSink({"bootstrap.servers": ground.servers}, enlarged)
    with ground.task() as task:
        records, about = task.take(RECORDS)
        reason = rf"a record for topic '{small}' was not delivered: Broker: Message size too large; nothing was written"
        with pytest.raises(SinkError, match=reason):
            sink(records, about)
    sink.close()
    assert len(transformed) == RECORDS


def test_sink_is_sent_as_its_configuration(ground: Ground) -> None:
    """Also after it was used, with a transform of its own."""
    sink = KafkaSink({"bootstrap.servers": ground.servers}, lambda message: copied(message, out=ground.out))
    with ground.task() as task:
        sink(*task.take(RECORDS // 2))
        copy = sent(sink)
        sink.close()
        copy(*task.take(RECORDS // 2))
        copy.close()
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    assert ground.read() == ground.origins()
