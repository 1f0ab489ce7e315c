"""Processors that are killed at random lose no record, keep the order of each key, and repeat only records in hand.

Most keys are quick. One is hot: a tenth of all records. One is slow, so that the other records of its partition finish
far beyond the committed offset. One is poison: its records go to the topic for dead letters.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from consumer_membership.demo.brokers import offsets_at_end
from consumer_membership.devbroker import Broker
from consumer_membership.translation.offset_metadata import decode
from tests.support.brokers import RunBrokers
from tests.support.handler_calls import ENTRY, Account, Call, Kill, Place, account, calls_of
from tests.support.kafka import create_topic, read_committed, unique
from tests.support.kinds import TRANSACTIONS
from tests.support.processor_worker import ATTEMPTS, POISON, Job
from tests.support.seeds import seed_for
from tests.support.signals import handles
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
#: The headers of Spring, whose numbers are big-endian.
ORIGINAL_PARTITION, ORIGINAL_OFFSET = "kafka_dlt-original-partition", "kafka_dlt-original-offset"
PARTITIONS, WORKERS, KEYS = 6, 3, 1000
HOT_SHARE, SLOW_SHARE, POISON_SHARE = 0.1, 0.002, 0.002
#: The times of a record and of a slow one: the slow key takes about as long as all others together.
RECORD_S, SLOW_S = 0.003, 0.15
CONCURRENCY = 4
#: Dynamic members of a cooperative classic group, whose sessions end as soon as those of the consumer protocol.
CLASSIC: Mapping[str, object] = MappingProxyType(
    {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
    }
)
COMMITS_EVERY_MS = 100
#: Two hundred thousand records on a busy machine.
RUN_S = 400.0


@dataclass(slots=True)
class Worker:
    """A processor in its own process; `number` counts all processes."""

    number: int
    instance: str | None
    process: subprocess.Popen[bytes]
    calls: Path
    output: Path

    @property
    def is_at_work(self) -> bool:
        """Whether it has called its handler and is alive."""
        return self.process.poll() is None and self.calls.exists() and self.calls.stat().st_size > 0

    def lines(self) -> str:
        """The end of its output."""
        return self.output.read_text(errors="replace")[-3000:]


class Crew:
    """A group of processors, its topic and its topic for dead letters."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        held: ExitStack,
        *,
        reads_metadata: bool = True,
        kind: Literal["thread", "coroutine", "process"] = "thread",
        writes_results: bool = False,
        config: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.servers = broker.bootstrap_servers
        self.topic = create_topic(self.servers, unique("in"), PARTITIONS)
        self.dead_letters = create_topic(self.servers, unique("dead-letters"), 1)
        self.results = create_topic(self.servers, unique("results"), 1) if writes_results else None
        self.reads_metadata, self.kind, self.config = reads_metadata, kind, config
        self.workers: list[Worker] = []
        self.kills: dict[int, Kill] = {}
        #: The records of each key in their order.
        self.records: defaultdict[int, list[Place]] = defaultdict(list)
        self.count = 0
        #: How many records were finished beyond the committed offsets at the kills.
        self.finished_beyond = 0
        self._folder, self._held = folder, held

    def produce(self, count: int, chance: random.Random) -> None:
        """Write this many records; the partition follows from the key."""
        weights = [HOT_SHARE, SLOW_SHARE, POISON_SHARE, *[(1 - HOT_SHARE - SLOW_SHARE - POISON_SHARE) / KEYS] * KEYS]
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 5})

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            assert error is None
            self.records[int(message.key() or b"")].append((message.partition() or 0, message.offset() or 0))

        for key in chance.choices(range(len(weights)), weights, k=count):
            while True:
                try:
                    producer.produce(self.topic, b"", b"%d" % key, key % PARTITIONS, on_delivery=acknowledged)
                    break
                except BufferError:
                    producer.poll(1.0)
            producer.poll(0)
        assert producer.flush(60.0) == 0
        self.count += count
        assert sum(map(len, self.records.values())) == self.count

    def start(self, instance: str | None) -> Worker:
        """Start one more worker, which ends with the test at the latest."""
        number = len(self.workers)
        config: dict[str, object] = {
            "bootstrap.servers": self.servers,
            "group.id": self.topic,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMITS_EVERY_MS,
            **self.config,
            **({} if instance is None else {"group.instance.id": instance}),
        }
        calls, output = self._folder / f"calls-{number}", self._folder / f"output-{number}"
        job = Job(
            config=config,
            topic=self.topic,
            dead_letters=self.dead_letters,
            log=str(calls),
            record_s=RECORD_S,
            slow_s=SLOW_S,
            concurrency=CONCURRENCY,
            kind=self.kind,
            results=self.results,
            reads_metadata=self.reads_metadata,
        )
        with output.open("wb") as lines:
            process = self._held.enter_context(
                subprocess.Popen(job.command(), cwd=ROOT, stdout=lines, stderr=subprocess.STDOUT)
            )
        self._held.callback(process.kill)
        worker = Worker(number, instance, process, calls, output)
        self.workers.append(worker)
        return worker

    def kill(self, worker: Worker) -> Worker:
        """Kill this worker, read what the coordinator has of it, and start its replacement."""
        worker.process.kill()
        worker.process.wait()
        at = time.monotonic_ns()
        reader = Consumer({"bootstrap.servers": self.servers, "group.id": self.topic, "log_level": 0})
        answer = reader.committed([TopicPartition(self.topic, number) for number in range(PARTITIONS)], timeout=60.0)
        reader.close()
        committed = {one.partition: max(one.offset, 0) for one in answer}
        finished = {one.partition: _finished(one.metadata, one.offset) for one in answer}
        self.kills[worker.number] = Kill(at=at, committed=committed, finished=finished if self.reads_metadata else {})
        begun = {call.place for call in calls_of(worker.number, worker.calls)}
        self.finished_beyond += sum(offset in finished[partition] for partition, offset in begun)
        return self.start(worker.instance)

    def replace(self, worker: Worker) -> Worker:
        """Stop this worker with SIGTERM, and start its replacement."""
        assert self.stop([worker]) == [0], worker.lines()
        return self.start(worker.instance)

    @property
    def progress(self) -> int:
        """How many calls of all workers have begun or ended, halved: about the number of handled records."""
        return sum(worker.calls.stat().st_size for worker in self.workers if worker.calls.exists()) // ENTRY.size // 2

    def wait_for(self, records: int) -> None:
        """Wait until about this many records were handled."""
        wait_until(lambda: self.progress >= records, f"{records} records", RUN_S, seen=self.lines)

    def is_at_end(self) -> bool:
        """Return whether the group has committed the end of each partition."""
        committed, end = offsets_at_end(self.servers, group=self.topic, topic=self.topic, partitions=PARTITIONS)
        return committed == end

    def wait_for_the_end(self) -> None:
        """Wait until the group has committed everything."""
        wait_until(self.is_at_end, "everything committed", RUN_S, seen=self.lines)

    def lines(self) -> list[str]:
        """The output of the living workers."""
        return [worker.lines() for worker in self.workers if worker.number not in self.kills]

    def stop(self, workers: Sequence[Worker]) -> list[int]:
        """Stop these workers with SIGTERM; their exit codes."""
        for worker in workers:
            pid = worker.process.pid
            wait_until(lambda pid=pid: handles(pid, signal.SIGTERM), "the handler of SIGTERM", RUN_S, seen=worker.lines)  # type: ignore[misc]
            worker.process.send_signal(signal.SIGTERM)
        return [worker.process.wait(RUN_S) for worker in workers]

    def dead_lettered(self) -> list[Place]:
        """The records in the topic for dead letters, as their headers name them, in its order."""
        headers = [dict(message.headers() or []) for message in read_committed(self.servers, self.dead_letters)]
        return [
            (_number(one["kafka_dlt-original-partition"]), _number(one["kafka_dlt-original-offset"])) for one in headers
        ]

    def calls(self) -> list[Call]:
        """Return the calls of all workers."""
        return [call for worker in self.workers for call in calls_of(worker.number, worker.calls)]


def _finished(metadata: str | None, committed: int) -> frozenset[int]:
    beyond = decode(metadata, committed)
    return frozenset() if beyond is None else frozenset(range(beyond.base, beyond.high)) - frozenset(beyond.unfinished)


def _number(header: bytes | str | None) -> int:
    assert isinstance(header, bytes)
    return int.from_bytes(header, "big")


def broker_of(pool: RunBrokers, membership: str) -> Broker:
    """Return a broker that soon ends the sessions of killed dynamic members; static ones keep Kafka's 45 s."""
    return pool.shared() if membership == "static" else pool.shared(properties=TRANSACTIONS)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Closes resources at the end of the test."""
    with ExitStack() as held:
        yield held


def ended_at_random(crew: Crew, records: int, kills: int, *, is_static: bool) -> Account:
    """Process these records with workers that are ended and replaced at random; return their account.

    Half as many workers as are killed are stopped with SIGTERM.
    """
    chance = random.Random(seed_for("processor kills"))  # noqa: S311 - which worker is ended when, and how
    crew.produce(records, chance)
    workers = [crew.start(f"worker-{number}" if is_static else None) for number in range(WORKERS)]
    ways = [crew.kill] * kills + [crew.replace] * (kills // 2)
    chance.shuffle(ways)
    for threshold, end in zip(sorted(chance.sample(range(1, records), len(ways))), ways, strict=True):
        crew.wait_for(threshold)
        wait_until(
            lambda: any(worker.is_at_work for worker in workers) or crew.is_at_end(),
            "a worker at work, or the end",
            RUN_S,
            seen=crew.lines,
        )
        at_work = [number for number, worker in enumerate(workers) if worker.is_at_work]
        if not at_work:
            # On a busy machine, the other workers may handle all records before their replacements start.
            break
        place = chance.choice(at_work)
        workers[place] = end(workers[place])
    crew.wait_for_the_end()
    assert crew.stop(workers) == [0] * WORKERS, crew.lines()
    dead_letters = crew.dead_lettered()
    calls = crew.calls()
    found = account(crew.records, calls, crew.kills, dead_letters=dead_letters, attempts=ATTEMPTS)
    print(
        f"{records} records, {kills} kills, {'static' if is_static else 'dynamic'} members, handlers: {crew.kind}, "
        f"{'metadata' if crew.reads_metadata else 'offsets only'}: {len(found.lost)} lost, {len(found.disordered)} out "
        f"of order, {found.repeated} repeated ({found.running} of them ran at a kill); in hand at the kills: "
        f"{found.in_hand}; finished beyond the committed offsets: {crew.finished_beyond}; dead letters: "
        f"{len(dead_letters)} of {len(crew.records[POISON])} records"
    )
    assert found.lost == []
    assert sorted(set(dead_letters)) == crew.records[POISON]
    # Each owner writes a record at most once.
    assert Counter(dead_letters) <= Counter(call.place for call in calls if call.attempt == ATTEMPTS)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("membership", "kind", "records", "kills"),
    [
        ("static", "thread", 5000, 3),
        ("static", "thread", 200_000, 12),
        ("dynamic", "coroutine", 200_000, 12),
        ("classic", "thread", 20_000, 6),
        ("static", "process", 20_000, 6),
    ],
)
def test_processors_killed_at_random_repeat_only_records_in_hand(
    broker_pool: RunBrokers,
    tmp_path: Path,
    held: ExitStack,
    membership: str,
    kind: Literal["thread", "coroutine", "process"],
    records: int,
    kills: int,
) -> None:
    """No record is lost, each key keeps its order, and the next owner repeats only records that no commit has finished.

    Partitions of workers that stop, or that move while the group rebalances, repeat nothing.
    """
    crew = Crew(
        broker_of(broker_pool, membership), tmp_path, held, kind=kind, config=CLASSIC if membership == "classic" else {}
    )
    found = ended_at_random(crew, records, kills, is_static=membership == "static")
    assert (found.disordered, found.unexplained) == ([], [])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("membership", "records", "kills"), [("static", 2000, 2), ("static", 100_000, 12), ("dynamic", 20_000, 4)]
)
def test_transactional_processors_killed_at_random_write_each_result_once(
    broker_pool: RunBrokers, tmp_path: Path, held: ExitStack, membership: str, records: int, kills: int
) -> None:
    """A record may be handled again, but its result, or its dead letter, is in the topic once."""
    crew = Crew(broker_of(broker_pool, membership), tmp_path, held, writes_results=True)
    found = ended_at_random(crew, records, kills, is_static=membership == "static")
    assert found.disordered == []
    assert crew.results is not None
    results = Counter(message.value() for message in read_committed(crew.servers, crew.results))
    good = [place for key, places in crew.records.items() for place in places if key != POISON]
    assert results == Counter(b"%d %d" % place for place in good)
    assert sorted(crew.dead_lettered()) == crew.records[POISON]


@pytest.mark.timeout(600)
def test_owner_that_ignores_metadata_repeats_finished_records(
    broker_pool: RunBrokers, tmp_path: Path, held: ExitStack
) -> None:
    """Any other client continues at the committed offset: it repeats what was finished beyond it, and loses nothing."""
    crew = Crew(broker_of(broker_pool, "static"), tmp_path, held, reads_metadata=False)
    found = ended_at_random(crew, 200_000, 12, is_static=True)
    assert found.repeated >= crew.finished_beyond


def test_processor_that_was_suspended_beyond_its_session_starts_no_queued_record(
    broker_pool: RunBrokers, tmp_path: Path, held: ExitStack
) -> None:
    """Its partitions have another owner by then, so that only the records whose handlers ran have run on two owners."""
    crew = Crew(broker_of(broker_pool, "dynamic"), tmp_path, held)
    crew.produce(1500, random.Random(seed_for("suspended processor")))  # noqa: S311 - the order of keys
    suspended = crew.start(None)
    crew.wait_for(150)
    suspended.process.send_signal(signal.SIGSTOP)
    other = crew.start(None)
    crew.wait_for_the_end()
    until = time.monotonic_ns()
    suspended.process.send_signal(signal.SIGCONT)
    crew.produce(300, random.Random(0))  # noqa: S311 - the order of keys
    crew.wait_for_the_end()
    assert crew.stop([suspended, other]) == [0, 0], crew.lines()
    late = [call for call in calls_of(0, suspended.calls) if call.began_at > until]
    handled = {call.place for call in calls_of(1, other.calls) if call.began_at < until}
    again = [call for call in late if call.place in handled]
    print(f"{len(again)} of {len(late)} late calls had another owner")
    assert len(again) <= CONCURRENCY
