"""The Kafka sink on a real broker: readers of committed records see the result of each record once."""

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
from consumer_membership.clients.lease import Lease
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.processing import transactional_producer as kafka_producer
from consumer_membership.spark import OffsetRange
from consumer_membership.spark.bounds import Bounds, Tally, tally_in
from consumer_membership.spark.context import Partition, notes_of
from consumer_membership.spark.sinks import KafkaSink, OutRecord, kafka
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
    """Two topics and a group for one test."""

    def __init__(self, broker: Broker) -> None:
        self.servers = broker.bootstrap_servers
        self.group = unique("g")
        self.topic = create_topic(self.servers, unique("in"), PARTITIONS)
        self.out = create_topic(self.servers, unique("out"), PARTITIONS)
        produce(self.servers, self.topic, RECORDS)

    def sink(self, **config: str | int) -> KafkaSink:
        """A sink that copies records."""
        return KafkaSink({"bootstrap.servers": self.servers, **config}, functools.partial(copied, out=self.out))

    def task(self, attempt: int = 1, account: Bounds | None = None) -> Task:
        """A task of the group."""
        return Task(self.servers, self.group, self.topic, attempt=attempt, account=account)

    def stopped(self, point: str) -> AbstractContextManager[Zombie]:
        """A task that is stopped at a point."""
        words = (point, self.servers, self.group, self.topic, self.out, RECORDS)
        return zombie(*words, module=kafka_task.__name__)

    def read(self) -> Counter[str]:
        """The origins of the committed records in the out topic."""
        found: Counter[str] = Counter()
        for message in read_committed(self.servers, self.out):
            (header,) = message.headers() or []
            found[str(header[1], "ascii")] += 1  # type: ignore[arg-type]  # consumed headers are bytes
        return found

    def notes(self) -> list[tuple[int, str]]:
        """The group's committed offsets with their metadata, unparsed."""
        found = GroupAdmin({"bootstrap.servers": self.servers}).committed(self.group)
        return [(at.offset, at.metadata) for _, at in sorted(found.items()) if isinstance(at, OffsetAndMetadata)]

    def origins(self, per_partition: int = RECORDS // PARTITIONS) -> Counter[str]:
        """The origins of the records in the in topic."""
        return Counter(f"{p}:{offset}" for p in range(PARTITIONS) for offset in range(per_partition))


@pytest.fixture
def ground(kafka: Broker) -> Ground:
    """Topics and a group on the shared broker."""
    return Ground(kafka)


def test_kafka_sink_writes_records_and_offsets_in_one_transaction(ground: Ground) -> None:
    """The transform's records and the group's offsets are committed together, batch by batch, by one producer."""
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


def test_commit_metadata_of_a_drain_is_part_of_the_transaction(ground: Ground) -> None:
    """The metadata is committed with the offsets and reads back as written, whatever librdkafka appends."""
    sink, run = ground.sink(), "run@1"
    account = Bounds(run, dict.fromkeys(((ground.topic, number) for number in range(PARTITIONS)), RECORDS))
    with ground.task(account=account) as task:
        sink(*task.take(RECORDS))
        # The group's coordinator responds only when the transaction has also ended for the group.
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    each = RECORDS // PARTITIONS
    whole = Tally(run=run, first=0, records=each, began_at=1.0, ended_at=2.0)
    assert [(offset, tally_in(note, run)) for offset, note in ground.notes()] == [(each, whole)] * PARTITIONS


def test_transform_that_raises_writes_neither_records_nor_offsets(ground: Ground) -> None:
    """The transform's error is raised unchanged, and the next call works like the first."""
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
def test_task_stopped_at_a_transaction_writes_nothing_after_its_replacement(ground: Ground, point: str) -> None:
    """Stopped before or inside its transaction, the task is fenced: the coordinator rejects its offsets."""
    with ground.stopped(point) as stopped, ground.task(attempt=2) as task:
        sink = ground.sink()
        sink(*task.take(RECORDS))
        text = stopped.go_on()
        # The stopped task must not have fenced the replacement's producer.
        produce(ground.servers, ground.topic, PARTITIONS)
        sink(*task.take(PARTITIONS))
        sink.close()
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS + 1] * PARTITIONS
    assert text.startswith("FencedError the coordinator does not confirm the member")
    assert ground.read() == ground.origins(RECORDS // PARTITIONS + 1)


def test_prepare_ends_the_open_transaction_of_a_killed_task(ground: Ground) -> None:
    """Otherwise the killed task's offsets stay pending until the broker's transaction timeout of a minute."""
    with ground.stopped("commit") as stopped:
        stopped.kill()
    sink = ground.sink()
    sink.prepare(0, INSTANCE_ID)
    with ground.task(attempt=2) as task:
        sink(*task.take(RECORDS))
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.read() == ground.origins()


def test_member_that_left_its_group_writes_nothing(ground: Ground) -> None:
    """The sink raises, because the coordinator of a group without members would accept its offsets."""
    sink = ground.sink()
    with ground.task() as task:
        records, about = task.take(RECORDS)
    nobody = Word(metadata=pack_group_metadata(ground.group, -1, "", None))
    with pytest.raises(FencedError, match=f"'pipe-0' is no longer a member of group '{ground.group}'"):
        sink(records, replace(about, ownership=nobody))
    sink.close()
    assert ground.read() == Counter()


def test_stale_member_epoch_is_refreshed_and_the_batch_is_retried(ground: Ground) -> None:
    """A batch with a stale epoch is rejected; once the coordinator confirms the member, the sink retries it."""

    class Late:
        """Group metadata with the previous epoch on the first call."""

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

        @property
        def has_leases(self) -> bool:
            return self.task.has_leases

        def lease(self, partition: Partition) -> Lease:
            return self.task.lease(partition)

    sink = ground.sink()
    with ground.task() as task:
        records, about = task.take(RECORDS)
        late = Late(task)
        sink(records, replace(about, ownership=late))
        assert late.asked == 2
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    sink.close()
    assert ground.read() == ground.origins()


def test_producer_fenced_before_a_batch_raises_fenced_error_with_its_id(ground: Ground) -> None:
    """If another producer uses the `transactional.id` and the group knows no replacement, the error names the id."""
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


def test_producer_fenced_within_a_batch_raises_fenced_error_with_its_id(ground: Ground) -> None:
    """`produce` then fails with librdkafka's generic fatal error, which the sink translates."""
    others = Producer({"bootstrap.servers": ground.servers, "transactional.id": INSTANCE_ID})

    def overtaken(message: Message) -> Iterator[OutRecord]:
        yield from copied(message, out=ground.out)
        others.init_transactions(PATIENCE_S)
        while True:  # until librdkafka refuses a record
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
def test_commit_without_an_answer_is_looked_up_by_the_next_call(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    """The next call with the same records reads the group's offsets and writes the records only if they are missing."""

    class Deaf(Producer):
        """A producer whose connection breaks during a commit, after or before the broker has committed."""

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
    """A duplicate EndTxn of librdkafka that arrives within the next batch does not end its transaction."""
    batches: list[int] = []
    is_failing = True

    def transform(message: Message) -> Iterator[OutRecord]:
        yield from copied(message, out=ground.out)
        batches[-1] += 1
        if is_failing and len(batches) == 2 and batches[-1] == RECORDS // 2:
            # From this record on, the brokers have begun the transaction.
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


def test_unknown_output_topic_is_named_with_the_record(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call fails before anything is produced, with the topic, the broker's reason and the record's place."""
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


def test_check_use_names_an_unknown_output_topic(ground: Ground) -> None:
    """The driver looks up declared topics before a job starts."""
    config, missing = {"bootstrap.servers": ground.servers}, unique("missing")
    made = KafkaSink(config, lambda _: (), topics=[ground.out])
    assert made.check_use(use()) == f"topics {ground.out} exist and may be written"
    with pytest.raises(ConfigurationError, match=rf"topics='{missing}'.*Unknown topic .*create the topic") as refused:
        KafkaSink(config, lambda _: (), topics=[ground.out, missing]).check_use(use())
    assert refused.value.key == "topics"


def test_undeliverable_record_fails_the_batch_after_one_transaction(ground: Ground) -> None:
    """The error has the topic and the reason, and the sink does not retry the batch."""
    transformed: list[int] = []
    small = create_topic(ground.servers, unique("small"), 1, {"max.message.bytes": "300"})

    def enlarged(message: Message) -> Iterator[OutRecord]:
        transformed.append(message.offset() or 0)
        yield OutRecord(topic=small, value=bytes(1000))

    # linger.ms delays sends until the commit; otherwise the error may arrive while later records are transformed.
    sink = KafkaSink({"bootstrap.servers": ground.servers, "linger.ms": "10000"}, enlarged)
    with ground.task() as task:
        records, about = task.take(RECORDS)
        reason = rf"a record for topic '{small}' was not delivered: Broker: Message size too large; nothing was written"
        with pytest.raises(SinkError, match=reason):
            sink(records, about)
    sink.close()
    assert len(transformed) == RECORDS


def test_kafka_sink_is_pickled_as_its_configuration(ground: Ground) -> None:
    """A sink can be pickled after use and with a custom transform."""
    sink = KafkaSink({"bootstrap.servers": ground.servers}, lambda message: copied(message, out=ground.out))
    with ground.task() as task:
        sink(*task.take(RECORDS // 2))
        copy = sent(sink)
        sink.close()
        copy(*task.take(RECORDS // 2))
        copy.close()
        assert task.committed(PARTITIONS) == [RECORDS // PARTITIONS] * PARTITIONS
    assert ground.read() == ground.origins()
