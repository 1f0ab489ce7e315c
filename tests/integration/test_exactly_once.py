"""Two examples in processes that are killed or stopped write each record's result once.

`exactly_once.py` has the transactions in its own loop; `processor_exactly_once.py` leaves them to a `Processor`.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from consumer_membership.demo.brokers import offsets_at_end
from consumer_membership.devbroker import Broker
from tests.support.brokers import RunBrokers
from tests.support.kafka import (
    appended,
    create_topic,
    produce,
    read_committed,
    unique,
    wait_for_end_of_transactions,
)
from tests.support.kinds import TRANSACTIONS
from tests.support.proxy import END_TXN, Proxy
from tests.support.seeds import seed_for
from tests.support.signals import handles
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
LOOP, PROCESSOR = "examples/exactly_once.py", "examples/processor_exactly_once.py"
PARTITIONS, WORKERS = 6, 3
#: The number of records in one transaction.
BATCH = 10
#: A killed worker leaves a transaction, which blocks readers until the brokers end it.
TRANSACTION_ENDS_S = 120.0
#: The session of a killed dynamic member has also ended by then.
TRANSACTION_S = 3.0
#: Longer than any test.
NEVER_S = 600.0


@dataclass(slots=True)
class Worker:
    """The example in its own process."""

    process: subprocess.Popen[bytes]
    log: Path
    example: str

    @property
    def lines(self) -> list[str]:
        """Its output lines, and the warnings of the package's log."""
        return self.log.read_text().splitlines()

    @property
    def refusals(self) -> list[str]:
        """Its lines about transactions that were not committed."""
        return [line for line in self.lines if line.startswith("not written, ")]

    @property
    def is_at_work(self) -> bool:
        """Whether it is alive, and has written a record (the loop) or handles records (the processor)."""
        if self.process.poll() is not None:
            return False
        return self.log.stat().st_size > 0 if self.example == LOOP else self.handles_sigterm

    @property
    def handles_sigterm(self) -> bool:
        """Whether it has installed its handler; a SIGTERM before that ends Python at once."""
        return handles(self.process.pid, signal.SIGTERM)


class Crew:
    """A group of such processes, its input topic and its output topic."""

    def __init__(self, broker: Broker, folder: Path, records: int, held: ExitStack, example: str = LOOP) -> None:
        self.example = example
        self.servers = broker.bootstrap_servers
        self.records = 0
        self.topic = create_topic(self.servers, unique("in"), PARTITIONS)
        self.out = create_topic(self.servers, unique("out"), 2)
        self.produce(records)
        self._folder, self._held = folder, held
        self._started = 0

    def produce(self, records: int) -> None:
        """Produce this many more numbered records."""
        numbers = range(self.records, self.records + records)
        produce(self.servers, self.topic, ((f"key-{number % 7}", str(number)) for number in numbers))
        self.records += records

    def worker(
        self,
        instance: str | None,
        *,
        stops_before: str | None = None,
        transaction_s: float = TRANSACTION_S,
        servers: str | None = None,
    ) -> Worker:
        """Start one more worker, which ends with the test at the latest."""
        self._started += 1
        log = self._folder / f"worker-{self._started}"
        via = [] if stops_before is None else ["-m", "tests.support.stopping", stops_before]
        words = [
            "-b",
            servers or self.servers,
            "-g",
            self.topic,
            "-t",
            self.topic,
            "-o",
            self.out,
        ]
        if self.example == LOOP:
            words += ["--batch", str(BATCH), "--idle", str(NEVER_S), "--transaction-timeout", str(transaction_s)]
        words += [] if instance is None else ["-i", instance]
        with log.open("wb") as lines:
            process = self._held.enter_context(
                subprocess.Popen(
                    [sys.executable, "-u", *via, self.example, *words],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdout=lines,
                    stderr=subprocess.STDOUT,
                )
            )
        self._held.callback(process.kill)
        return Worker(process, log, self.example)

    def wait_for(self, appended_records: int) -> None:
        """Wait until the output topic has this many records, committed or not."""
        wait_until(lambda: appended(self.servers, self.out) >= appended_records, "the crew", TRANSACTION_ENDS_S)

    def wait_for_the_end(self) -> None:
        """Wait until the group has committed all input."""

        def is_at_end() -> bool:
            committed, end = offsets_at_end(self.servers, group=self.topic, topic=self.topic, partitions=PARTITIONS)
            return committed == end

        wait_until(is_at_end, "everything committed", TRANSACTION_ENDS_S)

    def results(self) -> Counter[bytes | None]:
        """The results that readers of committed records see, and how often."""
        return Counter(message.value() for message in read_committed(self.servers, self.out))

    def final_results(self) -> Counter[bytes | None]:
        """Wait until no transaction is open, and return the results."""
        wait_for_end_of_transactions(self.servers, self.out)
        return self.results()

    def expected(self) -> Counter[bytes | None]:
        """Each record's result, once."""
        return Counter(b"invoice for %d" % number for number in range(self.records))


@pytest.fixture
def broker(broker_pool: RunBrokers) -> Broker:
    """A broker that soon aborts abandoned transactions and soon ends sessions."""
    return broker_pool.shared(properties=TRANSACTIONS)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Closes resources at the end of the test."""
    with ExitStack() as held:
        yield held


@pytest.mark.timeout(400)
@pytest.mark.parametrize("membership", ["static", "dynamic"])
@pytest.mark.parametrize(("example", "records", "kills"), [(LOOP, 2000, 3), (LOOP, 20_000, 12), (PROCESSOR, 5000, 6)])
def test_workers_killed_at_random_write_each_result_once(
    broker: Broker, tmp_path: Path, held: ExitStack, example: str, records: int, kills: int, membership: str
) -> None:
    """Each result is written once, wherever a worker is killed.

    Its successor continues with an instance id, the other workers without.
    """
    chance = random.Random(seed_for("kills"))  # noqa: S311 - which worker is killed when
    crew = Crew(broker, tmp_path, records, held, example)
    instances = [f"worker-{number}" if membership == "static" else None for number in range(WORKERS)]
    workers = [crew.worker(instance) for instance in instances]
    for threshold in sorted(chance.sample(range(1, records), kills)):
        crew.wait_for(threshold)
        wait_until(lambda: any(worker.is_at_work for worker in workers), "a worker at work", TRANSACTION_ENDS_S)
        place = chance.choice([number for number, worker in enumerate(workers) if worker.is_at_work])
        workers[place].process.kill()
        workers[place].process.wait()
        workers[place] = crew.worker(instances[place])
    crew.wait_for_the_end()
    for worker in workers:
        wait_until(lambda worker=worker: worker.handles_sigterm, "the handler of SIGTERM", TRANSACTION_ENDS_S)  # type: ignore[misc]
        worker.process.send_signal(signal.SIGTERM)
    assert [worker.process.wait(TRANSACTION_ENDS_S) for worker in workers] == [0] * WORKERS, [
        one.lines for one in workers
    ]
    written = appended(crew.servers, crew.out)
    print(f"{records} records, {kills} workers killed, {written} offsets in the out topic")
    assert crew.final_results() == crew.expected()


@pytest.mark.parametrize("membership", ["static", "dynamic"])
def test_stopped_worker_cannot_commit_its_transaction_after_it_was_replaced(
    broker: Broker, tmp_path: Path, held: ExitStack, membership: str
) -> None:
    """The stopped worker has its own open transaction and transactional id.

    The coordinator refuses its offsets (KIP-447).
    """
    crew = Crew(broker, tmp_path, 500, held)
    instances = ["one", "other"] if membership == "static" else [None, None]
    zombie = crew.worker(instances[0], stops_before="send_offsets_to_transaction", transaction_s=NEVER_S)
    _, status = os.waitpid(zombie.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), zombie.lines
    other = crew.worker(instances[1], transaction_s=NEVER_S)
    crew.wait_for_the_end()
    assert crew.results() != crew.expected()
    zombie.process.send_signal(signal.SIGCONT)
    wait_until(lambda: bool(zombie.refusals), "the refusal", TRANSACTION_ENDS_S)
    # The stopped worker is a member again, and works.
    crew.produce(100)
    crew.wait_for_the_end()
    for worker in (zombie, other):
        worker.process.send_signal(signal.SIGTERM)
    assert [worker.process.wait(TRANSACTION_ENDS_S) for worker in (zombie, other)] == [0, 0], zombie.lines
    (refusal,) = zombie.refusals
    print(refusal)
    assert re.fullmatch(rf"not written, {BATCH} records: .*(generation|member).*", refusal, re.IGNORECASE)
    assert crew.final_results() == crew.expected()


@pytest.mark.parametrize("membership", ["static", "dynamic"])
def test_stopped_processor_aborts_its_transaction_and_works_again(
    broker: Broker, tmp_path: Path, held: ExitStack, membership: str
) -> None:
    """The results of a processor that was replaced while it was stopped are aborted; it joins again and works."""
    crew = Crew(broker, tmp_path, 500, held, PROCESSOR)
    instances = ["one", "other"] if membership == "static" else [None, None]
    zombie = crew.worker(instances[0], stops_before="send_offsets_to_transaction")
    _, status = os.waitpid(zombie.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), zombie.lines
    other = crew.worker(instances[1])
    crew.wait_for_the_end()
    zombie.process.send_signal(signal.SIGCONT)
    crew.produce(100)
    crew.wait_for_the_end()
    for worker in (zombie, other):
        worker.process.send_signal(signal.SIGTERM)
    assert [worker.process.wait(TRANSACTION_ENDS_S) for worker in (zombie, other)] == [0, 0], zombie.lines
    assert crew.final_results() == crew.expected()


def test_worker_ends_after_its_transaction_timed_out(broker: Broker, tmp_path: Path, held: ExitStack) -> None:
    """Its pending offsets keep other members from continuing until the transaction times out; then it cannot commit."""
    crew = Crew(broker, tmp_path, 100, held)
    zombie = crew.worker(None, stops_before="commit_transaction")
    _, status = os.waitpid(zombie.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), zombie.lines
    other = crew.worker(None, transaction_s=NEVER_S)
    crew.wait_for_the_end()
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.process.wait(TRANSACTION_ENDS_S) == 1, zombie.lines
    assert len(zombie.refusals) == 1
    print(zombie.lines[-1])
    other.process.send_signal(signal.SIGTERM)
    assert other.process.wait(TRANSACTION_ENDS_S) == 0, other.lines
    assert other.refusals == []
    assert crew.final_results() == crew.expected()


def test_late_transaction_commit_cannot_end_a_later_transaction(
    broker: Broker, tmp_path: Path, held: ExitStack
) -> None:
    """A commit that librdkafka resends automatically cannot end a later transaction.

    With the current producer epoch it would be taken for the later transaction's commit.
    """
    crew = Crew(broker, tmp_path, BATCH, held)
    proxy = held.enter_context(Proxy(crew.servers))
    proxy.delay(END_TXN, resets=True)
    worker = crew.worker(None, servers=proxy.address, transaction_s=NEVER_S)
    proxy.wait(lambda: proxy.is_late, "a commit")
    crew.wait_for_the_end()
    crew.produce(BATCH)
    crew.wait_for_the_end()
    answer = proxy.arrive()
    assert int.from_bytes(answer[-2:], "big") in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(TRANSACTION_ENDS_S) == 0, worker.lines
    assert worker.refusals == []
    assert crew.final_results() == crew.expected()
