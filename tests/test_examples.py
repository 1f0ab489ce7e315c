"""Each example runs the way a user runs it, on a real broker."""

from __future__ import annotations

import http.server
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from consumer_membership import Consumer, TopicPartition
from consumer_membership.demo.brokers import offsets_at_end
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import draw_ports
from consumer_membership.membership.consumer import claim
from tests.support.brokers import RunBrokers
from tests.support.documents import DOCS
from tests.support.kafka import commit, create_topic, produce, read_committed, unique, wait_for_end_of_transactions
from tests.support.prometheus import promtool
from tests.support.secured import Materials, Way, client_config
from tests.support.texts import is_of_busy_broker
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, PROCESS_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
RECORDS = 40
#: For each example its topic, its folder, and the lines of each run.
SparkLines = dict[str, tuple[str, Path, list[list[str]]]]
#: A program that runs scripts one after the other in one process, so that Java starts only once.
IN_TURN = """
import json, runpy, sys
for sys.argv in json.loads(sys.argv[1]):
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("ended", flush=True)
"""


def run(example: str, kafka: Broker, topic: str, *arguments: str) -> list[str]:
    """Return the lines that the example prints, with a group of its own and the broker from the environment."""
    return lines_of(ran(example, kafka, topic, *arguments))


def lines_of(process: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the output lines of a process that ended with exit code 0 and no errors."""
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.splitlines()


def of_script(example: str, kafka: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the example to its end with these arguments only."""
    with in_process(kafka, str(ROOT / "examples" / f"{example}.py"), *arguments) as process:
        return ended(process)


def committed_of(kafka: Broker, group: str) -> int:
    """Return the sum of the committed offsets of the group, whose topic has the same name."""
    committed, _ = offsets_at_end(kafka.bootstrap_servers, group=group, topic=group, partitions=PARTITIONS)
    return sum(offset for offset in committed.values() if offset > 0)


def answer(url: str) -> str:
    """Return the body of the response, also for an error status such as 503; "" if there is no response."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:  # noqa: S310 - loopback
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def ran(example: str, kafka: Broker, topic: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the example to its end."""
    with started(example, kafka, topic, *arguments) as process:
        return ended(process)


@contextmanager
def started(example: str, kafka: Broker, topic: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the example in a process that is killed at the end of the block."""
    with in_process(kafka, str(ROOT / "examples" / f"{example}.py"), "-t", topic, "-g", topic, *arguments) as process:
        yield process


@contextmanager
def in_process(kafka: Broker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start this interpreter with these arguments and the broker in its environment."""
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, *arguments],
            # Spark 4.0 creates its folder `artifacts` in the current folder.
            cwd=folder,
            env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for the end of the process and return its output without the warnings of a busy machine.

    librdkafka logs a line (BGQUEUE) if a producer is closed before its background thread has served the last event.
    """
    stdout, stderr = process.communicate(timeout=280)
    lines = stderr.splitlines(keepends=True)
    errors = "".join(line for line in lines if "|BGQUEUE|" not in line and not is_of_busy_broker(line))
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, errors)


@pytest.fixture(scope="module", params=[1, 2], ids=["once", "twice"])
def spark_lines(request: pytest.FixtureRequest, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> SparkLines:
    """Run each Spark example once or twice, and return the lines that it prints; stderr is ignored."""
    folder = tmp_path_factory.mktemp("files")
    examples = ("spark_drain", "spark_foreach_partition_sink", "spark_streaming", "spark_handler")
    topics = {example: filled(kafka) for example in examples}
    produce(kafka.bootstrap_servers, topics["spark_handler"], [(b"key", b"fail")])
    arguments = {
        example: [str(ROOT / "examples" / f"{example}.py"), "-t", topic, "-g", topic]
        for example, topic in topics.items()
    }
    arguments["spark_foreach_partition_sink"] += ["-o", str(folder)]
    arguments["spark_streaming"] += ["--checkpoint", str(folder / "checkpoint")]
    in_turn = json.dumps([arguments[example] for example in topics for _ in range(request.param)])
    with in_process(kafka, "-c", IN_TURN, in_turn) as process:
        finished = ended(process)
    assert finished.returncode == 0, finished.stderr
    printed = [run.splitlines() for run in finished.stdout.split("ended\n")]
    assert printed.pop() == []
    return {
        example: (topic, folder, [printed.pop(0) for _ in range(request.param)]) for example, topic in topics.items()
    }


@pytest.fixture
def topic(kafka: Broker) -> str:
    """Return a new topic with 40 records."""
    return filled(kafka)


def filled(kafka: Broker) -> str:
    """Create a topic with 40 records, and return its name."""
    name = create_topic(kafka.bootstrap_servers, unique("examples"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, ((b"key", str(number).encode()) for number in range(RECORDS)))
    return name


def test_every_example_is_tested() -> None:
    """Each example has a test with its name, in this module or in another module for examples."""
    modules = Path(__file__).parent.glob("test_*example*.py")
    tested = {name for path in modules for name in re.findall(r"^def test_(\w+)\(", path.read_text(), re.MULTILINE)}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} <= tested


def test_index_links_each_example_and_folder() -> None:
    """The index has each file and each folder of `examples`; a folder of one file can be linked by the file."""
    index = ROOT / "examples" / "README.md"
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index.read_text())}
    entries = {path for path in index.parent.iterdir() if path.name not in ("README.md", "__pycache__")}
    assert {path for path in entries if not any(one.is_relative_to(path) for one in linked)} == set()


def test_examples_import_names_of_confluent_kafka_from_this_package() -> None:
    """No example imports confluent_kafka: one import line has the consumer, the producer and the errors."""
    imports = re.compile(r"^(?:from|import) confluent_kafka", re.MULTILINE)
    without_strings = {
        path.name: re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        for path in (ROOT / "examples").rglob("*.py")
    }
    assert [name for name, code in without_strings.items() if imports.search(code)] == []


def test_quickstart(kafka: Broker, topic: str) -> None:
    """The example prints records and its partitions and leaves; a second run continues after the first."""
    lines = run("quickstart", kafka, topic, "-n", "10")
    assert sum(line.startswith(f"{topic}[") for line in lines) == 10
    # The view never waits: on a busy machine ten records are read before the membership sees the end of on_assign.
    assert re.fullmatch(rf"(STABLE|ACK|RECONCILE), member epoch \d+, (0|{PARTITIONS}) partitions", lines[-1])
    again = run("quickstart", kafka, topic, "-n", "30")
    assert not set(lines[:10]) & set(again)
    assert sum(line.startswith(f"{topic}[") for line in again) == 30


def test_manual_commit(kafka: Broker, topic: str) -> None:
    """Each record is handled once, with the epoch, and the commits reach the end."""
    lines = run("manual_commit", kafka, topic, "-n", str(RECORDS))
    values = Counter(line.rpartition(" ")[2] for line in lines if line.startswith("epoch "))
    assert values == Counter(f"b'{number}'" for number in range(RECORDS))
    assert {int(line.split(":")[0].removeprefix("epoch ")) > 0 for line in lines if line.startswith("epoch ")} == {True}
    committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
    assert committed == end == dict.fromkeys(range(PARTITIONS), 10)


def test_exactly_once(kafka: Broker, topic: str) -> None:
    """Each result occurs once for read_committed consumers, the offsets reach the end, and SIGTERM ends it cleanly.

    The example creates its output topic.
    """
    out = unique("out")

    def is_everything_committed() -> bool:
        committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
        return committed == end

    with started("exactly_once", kafka, topic, "-o", out, "--batch", "15", "--idle", "100") as process:
        wait_until(is_everything_committed, "everything committed")
        process.send_signal(signal.SIGTERM)
        finished = ended(process)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert sum(int(line.removesuffix(" records")) for line in finished.stdout.splitlines()) == RECORDS
    wait_for_end_of_transactions(kafka.bootstrap_servers, out)
    results = Counter(message.value() for message in read_committed(kafka.bootstrap_servers, out))
    assert results == Counter(b"invoice for %d" % number for number in range(RECORDS))


def interrupted(example: str, kafka: Broker, topic: str) -> list[str]:
    """Interrupt the example once all records are committed, and return its lines after a clean exit."""

    def is_everything_committed() -> bool:
        committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
        return committed == end

    with started(example, kafka, topic, "--seconds", "100") as process:
        wait_until(is_everything_committed, "everything committed")
        assert process.poll() is None, "it ended before it was interrupted"
        process.send_signal(signal.SIGINT)
        finished = ended(process)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout.splitlines()


def test_asyncio_consumer(kafka: Broker, topic: str) -> None:
    """All records are handled and committed, and Ctrl-C ends the example cleanly."""
    lines = interrupted("asyncio_consumer", kafka, topic)
    assert sorted(lines[:PARTITIONS]) == [f"assigned {partition}, from 0" for partition in range(PARTITIONS)]
    assert sum(int(line.removeprefix("handled ")) for line in lines[PARTITIONS:-1]) == RECORDS
    assert lines[-1] == "leaving"


def test_rebalance_callbacks(kafka: Broker, topic: str) -> None:
    """One assignment covers all partitions, and Ctrl-C revokes each partition with its count."""
    lines = interrupted("rebalance_callbacks", kafka, topic)
    assert lines[:2] == [f"assigned {list(range(PARTITIONS))}", "leaving"]
    assert sorted(re.sub(r"\d+$", "N", line) for line in lines[2:]) == [
        f"revoked {partition}: 10 records since epoch N" for partition in range(PARTITIONS)
    ]


def test_static_member(kafka: Broker, topic: str) -> None:
    """A restarted static member has the same partitions at the same member epoch, without a rebalance."""
    lines = run("static_member", kafka, topic)
    owns = [line for line in lines if " owns " in line]
    assert owns[0] == owns[1]
    assert f"owns {list(range(PARTITIONS))}" in owns[0]
    assert lines[-1] == "the same partitions"


def test_static_crash_recovery(kafka: Broker, topic: str) -> None:
    """A killed and restarted static member has the same partitions, and the other member sees no rebalance."""
    lines = run("static_crash_recovery", kafka, topic)
    assert lines[0] == f"member-0 owns {list(range(PARTITIONS))}"
    assert lines[2] == "member-0 was killed"
    assert re.fullmatch(r"member-0 is back after \d+\.\d\d s and owns \[\d, \d\]", lines[3])
    assert lines[4:] == ["the same partitions", "member-1 saw no rebalance"]


def test_assign_by_lag(kafka: Broker) -> None:
    """Three members share all partitions, and each has a third of the lag."""
    lines = run("assign_by_lag", kafka, unique("examples"))
    rows = [re.fullmatch(r" *(\d+)  \[([\d, ]+)\]", line) for line in lines[1:]]
    assert sorted(int(number) for row in rows if row for number in row[2].split(",")) == list(range(8))
    lags = [int(row[1]) for row in rows if row]
    assert (len(lags), sum(lags)) == (3, 18_000)
    assert max(lags) - min(lags) <= 1_000


def test_assign_co_partitioned(kafka: Broker) -> None:
    """Equal partition numbers of both topics share one owner, although one member subscribes to orders only."""
    lines = run("assign_co_partitioned", kafka, unique("examples"))
    assert [line for line in lines if not line.startswith("  ")] == ["members: 1", "members: 2", "members: 3"]
    rows = [re.fullmatch(r"  orders \[(.*)\], payments \[(.*)\]", line) for line in lines if line.startswith("  ")]
    orders, payments = ([row[topic] for row in rows if row] for topic in (1, 2))
    everything = "0, 1, 2, 3, 4, 5"
    assert orders[:3] == [everything, "", everything]
    assert payments[:3] == ["", "", everything]
    assert orders[3] == ""
    assert orders[3:] == payments[3:]
    assert sorted(map(len, orders[4:])) == [7, 7]


def test_asyncio_consumer_ends_with_the_exception_of_its_handler(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """An exception in one record's task ends the program, and the batch is not committed."""
    source = (ROOT / "examples" / "asyncio_consumer.py").read_text()
    program = tmp_path / "failing.py"
    program.write_text(source.replace("await asyncio.sleep(", 'int(message.value() or b"") / 0 or ('))
    with in_process(kafka, str(program), "-t", topic, "-g", topic) as process:
        finished = ended(process)
    assert finished.returncode == 1
    assert "ZeroDivisionError" in finished.stderr
    assert committed_of(kafka, topic) == 0


def test_produce(kafka: Broker) -> None:
    """The topic is created once, and each record is delivered; records with one key are in one partition."""
    topic = unique("examples")
    for _ in range(2):
        printed = lines_of(of_script("produce", kafka, "-t", topic, "-n", "20", "--rate", "200"))
        assert printed == [f"produced 20 records to {topic}"]
    records = read_committed(kafka.bootstrap_servers, topic)
    assert len(records) == 40
    assert len({(record.key(), record.partition()) for record in records}) == 10


def test_store_offsets(kafka: Broker, topic: str) -> None:
    """A record whose handler raises is not committed, and the next run continues with it."""
    failed = ran("store_offsets", kafka, topic, "--fail-at", "4")
    assert failed.returncode == 1
    assert "ValueError: cannot handle offset 4" in failed.stderr
    handled = failed.stdout.splitlines()
    assert committed_of(kafka, topic) == len(handled)
    again = run("store_offsets", kafka, topic, "-n", str(RECORDS - len(handled)))
    assert not set(handled) & set(again)
    assert len({*handled, *again}) == RECORDS
    assert committed_of(kafka, topic) == RECORDS


def test_shard_work(kafka: Broker, topic: str) -> None:
    """In a second run, the shards of the example continue at the offsets that the first run committed."""
    group = unique("crawlers")
    for _ in range(2):
        with in_process(kafka, str(ROOT / "examples" / "shard_work.py"), kafka.bootstrap_servers, group, topic) as one:
            assert one.stdout is not None
            found = [one.stdout.readline() for _ in range(PARTITIONS)]
            one.send_signal(signal.SIGTERM)
            printed = lines_of(ended(one))
        assert all(line.startswith("shard ") for line in found)
        assert printed[-1].startswith("released ")


def test_worker_pool(kafka: Broker, topic: str) -> None:
    """The consumer pauses and resumes, and commits all finished records before it leaves the group."""
    with started("worker_pool", kafka, topic, "--high", "8", "--low", "4", "--workers", "2") as process:
        assert process.stdout is not None
        first = [process.stdout.readline().split(":")[0] for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        printed = lines_of(ended(process))
    assert first == ["paused", "resumed"] * 2
    assert printed[-1] == "left the group"
    assert 12 <= committed_of(kafka, topic) <= RECORDS


def test_worker_pool_ends_with_the_exception_of_its_handler(kafka: Broker, topic: str, tmp_path: Path) -> None:
    """The exception of a worker ends the program; finished records before the failed one are committed."""
    source = (ROOT / "examples" / "worker_pool.py").read_text()
    program = tmp_path / "failing.py"
    program.write_text(re.sub(r"time\.sleep\(.*\)", "1 / (message.offset() - 8)", source))
    with in_process(kafka, str(program), "-t", topic, "-g", topic) as process:
        finished = ended(process)
    assert (finished.returncode, finished.stderr.count("Traceback")) == (1, 1)
    assert "ZeroDivisionError" in finished.stderr
    assert 8 <= committed_of(kafka, topic) <= 8 * PARTITIONS


def stopped(example: str, kafka: Broker, topic: str, *arguments: str, tracebacks: int = 0) -> list[str]:
    """Send SIGTERM to the example when all records are committed; return its lines after a clean exit.

    The example must log this number of tracebacks of failing handlers. Its producers may log to stderr that a
    coordinator of the new broker was not ready.
    """

    def is_everything_committed() -> bool:
        assert process.poll() is None, ended(process)
        committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
        return committed == end

    with started(example, kafka, topic, *arguments) as process:
        wait_until(is_everything_committed, "everything committed")
        process.send_signal(signal.SIGTERM)
        finished = ended(process)
    assert (finished.returncode, finished.stderr.count("Traceback")) == (0, tracebacks), finished.stderr
    return finished.stdout.splitlines()


def test_processor_worker(kafka: Broker, topic: str) -> None:
    """Records that fail are tried again and go to the dead-letter topic, which the example creates."""
    produce(kafka.bootstrap_servers, topic, [(b"other key", b"fail")])
    lines = stopped("processor_worker", kafka, topic, tracebacks=1)
    assert lines[-1] == f"finished {RECORDS + 1}, retries 2, dead letters 1"
    (letter,) = read_committed(kafka.bootstrap_servers, f"{topic}.dlq")
    assert (letter.key(), letter.value()) == (b"other key", b"fail")


def test_processor_exactly_once(kafka: Broker, topic: str) -> None:
    """Each result occurs once for read_committed consumers, the offsets reach the end, and SIGTERM ends it cleanly."""
    out = unique("out")
    assert stopped("processor_exactly_once", kafka, topic, "-o", out) == [f"{RECORDS} records"]
    wait_for_end_of_transactions(kafka.bootstrap_servers, out)
    results = Counter(message.value() for message in read_committed(kafka.bootstrap_servers, out))
    assert results == Counter(b"invoice for %d" % number for number in range(RECORDS))


def test_processor_processes(kafka: Broker, topic: str) -> None:
    """Worker processes handle all records, and SIGTERM ends the example cleanly."""
    lines = stopped("processor_processes", kafka, topic, "--processes", "2")
    assert lines == [f"{RECORDS} records in 2 processes"]


def test_sasl_ssl(broker_pool: RunBrokers, secured_materials: Materials, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records arrive over SASL_SSL, and a wrong password ends the program with the broker's message."""
    broker = broker_pool.shared(NEWEST, security=secured_materials.security)
    topic = filled(broker)
    config = client_config(broker, secured_materials, Way.SCRAM_512_OVER_TLS, "alice")
    arguments = ["-b", str(config["bootstrap.servers"]), "--ca", str(config["ssl.ca.location"]), "--username", "alice"]
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_SASL_PASSWORD", str(config["sasl.password"]))
    # librdkafka may log to stderr that its connection ended while it authenticated, because the program closes early.
    accepted = ran("sasl_ssl", broker, topic, *arguments)
    assert (accepted.returncode, len(accepted.stdout.splitlines())) == (0, 10), accepted.stderr
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_SASL_PASSWORD", "wrong")
    refused = ran("sasl_ssl", broker, topic, *arguments)
    assert refused.returncode == 1
    assert "cannot log in: " in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_graceful_shutdown(kafka: Broker, topic: str, number: signal.Signals) -> None:
    """A signal ends the program with exit code 0; it commits everything and leaves the group."""
    with started("graceful_shutdown", kafka, topic) as process:
        assert process.stderr is not None
        assert any("Adding newly assigned partitions" in line for line in process.stderr)
        process.send_signal(number)
        finished = ended(process)
    assert finished.returncode == 0
    handled = re.findall(r"stopping after (\d+) records", finished.stderr)
    assert [int(count) for count in handled] == [committed_of(kafka, topic)]
    assert f"Group {topic}: Empty" in lines_of(of_command(kafka, "lag", "-g", topic))[0]


def of_command(kafka: Broker, subcommand: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a subcommand of the package to its end."""
    with in_process(
        kafka, "-m", "consumer_membership", subcommand, "-b", kafka.bootstrap_servers, *arguments
    ) as process:
        return ended(process)


def test_prometheus_metrics(kafka: Broker, topic: str) -> None:
    """The metrics of the consumer are served with its group and the lag of its partitions."""
    (port,) = draw_ports(1)
    with started("prometheus_metrics", kafka, topic, "--address", f"127.0.0.1:{port}") as process:
        metrics = f"http://127.0.0.1:{port}/metrics"
        wait_until(lambda: answer(metrics).count("kafka_consumer_partition_lag{") == PARTITIONS, "the lag")
        assert f'group="{topic}"' in answer(metrics)
        process.send_signal(signal.SIGTERM)
        assert lines_of(ended(process)) == [metrics]


class Webhook(http.server.BaseHTTPRequestHandler):
    """Puts the body of each POST into a queue."""

    received: queue.SimpleQueue[dict[str, Any]]

    def do_POST(self) -> None:
        self.received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_alert_on_event(kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The webhook receives the fatal error of a member whose place another process takes over."""
    # A join can take longer than 2 s on a busy machine, after which the newer consumer would wait.
    monkeypatch.setattr(claim, "NEWEST_FOR_S", PATIENCE_S)

    class Handler(Webhook):
        received = queue.SimpleQueue()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        arguments = ["--instance", "worker-1", "--webhook", f"http://127.0.0.1:{server.server_port}/"]
        with started("alert_on_event", kafka, topic, *arguments) as process:
            wait_until(lambda: committed_of(kafka, topic) == RECORDS, "a commit of the first process")
            config = {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": topic,
                "group.instance.id": "worker-1",
            }
            with Consumer(config) as consumer:
                consumer.subscribe([topic])
                consumer.poll(0.1)
                alerts = [Handler.received.get(timeout=PATIENCE_S)]
                while alerts[-1]["event"] != "fatal":
                    alerts.append(Handler.received.get(timeout=PATIENCE_S))
            finished = ended(process)
        server.shutdown()
    assert {(one["status"], one["group"], one["member"]) for one in alerts} == {("firing", topic, "worker-1")}
    assert finished.returncode == 1
    assert "KafkaException" in finished.stderr


def test_group_admin(kafka: Broker, topic: str) -> None:
    """Groups are listed, one is described, and a static member is removed; a missing group is an error."""
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": topic,
        "group.instance.id": "worker-7",
        "auto.offset.reset": "earliest",
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None, "a record")
    # The state is Reconciling if the member closed before it acknowledged its partitions.
    (listed,) = (line for line in lines_of(of_script("group_admin", kafka)) if line.startswith(topic))
    assert listed in (f"{topic}: consumer, Stable", f"{topic}: consumer, Reconciling")
    described = lines_of(of_script("group_admin", kafka, "-g", topic))
    assert described[0].startswith(f"{topic}: consumer protocol, ")
    assert re.fullmatch(rf"worker-7 on \S+ owns {topic}-0, {topic}-1, {topic}-2, {topic}-3", described[1])
    assert len(described) == 2 + PARTITIONS
    (removed,) = lines_of(of_script("group_admin", kafka, "-g", topic, "--remove", "worker-7"))
    assert removed.startswith("removed: ")
    missing = of_script("group_admin", kafka, "-g", unique("missing"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_replay_from_time(kafka: Broker, topic: str) -> None:
    """All partitions of the group go back to their first record after the time, or to their end without one."""
    servers = kafka.bootstrap_servers
    commit(servers, topic, *(TopicPartition(topic, number, 7) for number in range(PARTITIONS)))
    for since, offset in (("2020-01-01", 0), ("2099-01-01T00:00:00+00:00", 10)):
        printed = run("replay_from_time", kafka, topic, "--since", since)
        assert printed == [f"{topic}[{number}] continues at {offset}" for number in range(PARTITIONS)]
        assert committed_of(kafka, topic) == offset * PARTITIONS


def check_application(example: str, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the application is ready, counts all records by key, and leaves the group when it ends."""
    (port,) = draw_ports(1)
    for name in ("TOPIC", "GROUP"):
        monkeypatch.setenv(name, topic)
    arguments = ["--app-dir", str(ROOT / "examples"), f"{example}:app", "--port", str(port)]
    with in_process(kafka, "-m", "uvicorn", *arguments) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answer(f"{url}/orders") == f'{{"key":{RECORDS}}}', "the count of all records")
        wait_until(lambda: json.loads(answer(f"{url}/readyz") or "{}").get("verdict") == "idle", "an idle consumer")
        process.send_signal(signal.SIGTERM)
        finished = ended(process)
    assert "Application shutdown complete" in finished.stderr
    assert "ERROR" not in finished.stderr
    assert committed_of(kafka, topic) == RECORDS


def test_fastapi_app(kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer of the application counts all records, and leaves the group with the application."""
    check_application("fastapi_app", kafka, topic, monkeypatch)


def test_fastapi_processor(kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor of the application counts all records, and leaves the group with the application."""
    check_application("fastapi_processor", kafka, topic, monkeypatch)


def test_tests_of_an_application_are_those_of_the_page() -> None:
    """The files in examples/testing are those of docs/consuming/testing.md, which test_programs_of_pages.py runs."""
    page = (DOCS / "consuming" / "testing.md").read_text()
    shown = dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL))
    files = {path.name: path.read_text() for path in (ROOT / "examples" / "testing").glob("*.py")}
    assert files == shown


@pytest.mark.parametrize("path", ["docker-compose.yml", "examples/monitoring/docker-compose.yml"])
def test_compose_files_match_the_schema_of_docker_compose(path: str) -> None:
    """Each compose file is valid; the schema is part of check-jsonschema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(ROOT / path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PROCESS_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_monitoring_files_match_each_other(tmp_path: Path) -> None:
    """The mounted files exist where the services read them, and the ports are published on loopback only.

    The compose file is checked for form only, because it needs a Docker engine; Prometheus checks its own files.
    """
    folder = ROOT / "examples" / "monitoring"
    services = yaml.safe_load((folder / "docker-compose.yml").read_text())["services"]
    assert services.keys() == {"kafka", "prometheus", "grafana"}
    extended = services["kafka"]["extends"]
    kafka = yaml.safe_load((folder / extended["file"]).read_text())["services"][extended["service"]]
    ports = [*kafka["ports"], *services["prometheus"]["ports"], *services["grafana"]["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    mounts: dict[str, Path] = {}
    for service in ("prometheus", "grafana"):
        for volume in services[service]["volumes"]:
            source, target, mode = volume.split(":")
            assert mode == "ro"
            mounts[target] = (folder / source).resolve(strict=True)
    settings = yaml.safe_load((folder / "prometheus.yml").read_text())
    assert [f"/etc/prometheus/{name}" for name in settings["rule_files"]] == ["/etc/prometheus/alerts.yml"]
    assert mounts["/etc/prometheus/alerts.yml"] == ROOT / "examples" / "prometheus" / "alerts.yml"
    for path in (folder / "prometheus.yml", mounts["/etc/prometheus/alerts.yml"]):
        shutil.copy(path, tmp_path)
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")
    (job,) = settings["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["host.docker.internal:8080"]}]
    (source,) = yaml.safe_load((folder / "grafana-datasource.yml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((folder / "grafana-dashboards.yml").read_text())["providers"]
    dashboard = json.loads(mounts[f"{provider['options']['path']}/consumers.json"].read_text())
    assert dashboard["title"] in (folder / "docker-compose.yml").read_text()


@pytest.mark.timeout(300)
def test_spark_drain(spark_lines: SparkLines) -> None:
    """The first run drains all records of every partition, and a second run reads none."""
    topic, _, (first, *second) = spark_lines["spark_drain"]
    expected = [f"{topic}[{number}]: offsets 0 to 10, 10 records" for number in range(PARTITIONS)]
    assert first == [*expected, f"{RECORDS} records"]
    assert all(lines[-1] == "0 records" for lines in second)


@pytest.mark.timeout(300)
def test_spark_handler(spark_lines: SparkLines, kafka: Broker) -> None:
    """One record is a dead letter and the job ends, and a second run reads none."""
    topic, _, (first, *second) = spark_lines["spark_handler"]
    assert first == [f"{RECORDS + 1} records"]
    assert all(lines == ["0 records"] for lines in second)
    (letter,) = read_committed(kafka.bootstrap_servers, f"{topic}.dlq")
    assert letter.value() == b"fail"


@pytest.mark.timeout(300)
def test_spark_streaming(spark_lines: SparkLines) -> None:
    """One batch has the records of all partitions, and a second run reads none."""
    _, _, (first, *second) = spark_lines["spark_streaming"]
    assert first == [f"batch 0, partition {number}: {RECORDS // PARTITIONS} records" for number in range(PARTITIONS)]
    assert all(lines == [] for lines in second)


def test_spark_foreach_partition_sink(spark_lines: SparkLines) -> None:
    """The files hold each record once, also after a second run."""
    topic, folder, printed = spark_lines["spark_foreach_partition_sink"]
    expected = [f"{topic}[{number}]: 10 records in {folder}" for number in range(PARTITIONS)]
    assert printed == [expected] * len(printed)
