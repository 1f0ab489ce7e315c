"""The programs of the how-to pages for consuming and of the tutorials run on a real broker as the pages describe."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer_membership import GroupError, TopicPartition
from consumer_membership.admin import GroupAdmin, GroupReport
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import draw_ports
from tests.support.documents import DOCS, ROOT
from tests.support.kafka import commit, create_topic, produce, read_committed, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

#: A code block with its file name.
_PROGRAM = re.compile(r"^ *```\w+ title=\"(?P<name>[\w.]+)\"\n(?P<code>.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: The topics and groups of the programs.
_NAMES = (
    *("orders", "manual-commits", "store-offsets", "worker-pool", "service", "aio-service"),
    *(
        "handlers",
        "aio-handlers",
        "handlers-eos",
        "payments",
        "orders.dlq",
        "avro-orders",
        "avro-payments",
        "read-since",
        "orders-eos",
        "invoices",
        "check",
        "switch",
        "fastapi",
    ),
)
#: A time before all records.
LONG_AGO = "2020-01-01T00:00:00"


class Programs:
    """The programs of a page in a folder, with the test's broker, and with topics and groups of this test only."""

    def __init__(self, page: str, kafka: Broker, folder: Path) -> None:
        self.servers = kafka.bootstrap_servers
        self.folder = folder
        self.names = {name: unique(name) for name in _NAMES}
        for found in _PROGRAM.finditer((DOCS / page).read_text()):
            code = textwrap.dedent(found["code"]).replace("localhost:9092", self.servers)
            for name, other in self.names.items():
                code = code.replace(f'"{name}"', f'"{other}"')
            (folder / found["name"]).write_text(code)

    def run(self, name: str, *arguments: str) -> list[str]:
        """Run a program to its end and return the lines that it prints."""
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", name, *arguments],
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout.splitlines()

    @contextmanager
    def started(self, *words: str, log: str = "log") -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Start Python with these arguments; yield the process with the file of its output."""
        output = self.folder / log
        command = [sys.executable, *words]
        with output.open("wb") as file, subprocess.Popen(command, cwd=self.folder, stdout=file, stderr=file) as process:
            try:
                yield process, output
            finally:
                process.kill()

    def with_orders(self, records: int = 100) -> str:
        """Create the topic `orders` of the page with records; return its name."""
        topic = create_topic(self.servers, self.names["orders"], 4)
        produce(self.servers, topic, ((f"customer-{n % 10}".encode(), f"order {n}".encode()) for n in range(records)))
        return topic

    def report(self, group: str) -> GroupReport | None:
        """Return the report of a group; None if it does not exist."""
        try:
            return GroupAdmin({"bootstrap.servers": self.servers}).describe(self.names[group])
        except GroupError:
            return None

    def committed(self, group: str) -> int:
        """Return the sum of the committed offsets of a group."""
        report = self.report(group)
        return 0 if report is None else sum(one.committed or 0 for one in report.partitions)

    def members(self, group: str) -> int:
        """Return the number of members of a group."""
        report = self.report(group)
        return 0 if report is None or report.group is None else len(report.group.members)


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> int:
    """Send a signal and return the exit code."""
    process.send_signal(number)
    return process.wait(60)


def test_manual_commits_commit_every_handled_record(kafka: Broker, tmp_path: Path) -> None:
    """Both patterns of docs/consuming/manual-commits.md commit all records, and a second run has nothing to do."""
    page = Programs("consuming/manual-commits.md", kafka, tmp_path)
    assert page.run("produce.py") == ["produced 100 records"]
    printed = page.run("commit_batches.py")
    assert [line for line in printed if line.startswith("not committed")] == []
    assert page.run("commit_batches.py") == []
    assert len(page.run("store_offsets.py")) == 100
    assert [page.committed(group) for group in ("manual-commits", "store-offsets")] == [100, 100]


def test_worker_pool_pauses_and_commits_finished_records(kafka: Broker, tmp_path: Path) -> None:
    """The program of docs/consuming/pause-and-resume.md pauses, handles all records and commits them at its end."""
    page = Programs("consuming/pause-and-resume.md", kafka, tmp_path)
    page.with_orders()
    with page.started("worker_pool.py") as (process, output):
        wait_until(lambda: output.read_text().count("resumed") >= 2, "a second resume", seen=output.read_text)
        assert end(process, signal.SIGINT) == 0
        assert output.read_text().splitlines()[-1] == "left the group"
    committed = page.committed("worker-pool")
    assert 20 <= committed <= 100


@pytest.mark.parametrize(("program", "group"), [("worker.py", "handlers"), ("aio_worker.py", "aio-handlers")])
def test_workers_handle_all_records_and_commit_at_their_end(
    kafka: Broker, tmp_path: Path, program: str, group: str
) -> None:
    """Both workers of docs/consuming/handlers.md handle each record, and commit and leave the group at SIGTERM."""
    page = Programs("consuming/handlers.md", kafka, tmp_path)
    page.with_orders()
    with page.started(program) as (process, output):
        wait_until(lambda: output.read_text().count("order") == 100, "all records", seen=output.read_text)
        assert end(process) == 0
    assert (page.committed(group), page.members(group)) == (100, 0)


def test_handler_with_outputs_writes_each_result_once(kafka: Broker, tmp_path: Path) -> None:
    """The transactional program of docs/consuming/handlers.md writes one invoice for each order."""
    page = Programs("consuming/handlers.md", kafka, tmp_path)
    page.with_orders()
    create_topic(page.servers, page.names["invoices"])
    with page.started("invoices.py") as (process, output):
        wait_until(lambda: page.committed("handlers-eos") == 100, "all offsets", seen=output.read_text)
        assert end(process) == 0
    invoices = Counter(message.value() for message in read_committed(page.servers, page.names["invoices"]))
    assert invoices == Counter(b"invoice for order %d" % number for number in range(100))


def test_failed_records_become_dead_letters_and_are_replayed(kafka: Broker, tmp_path: Path) -> None:
    """The program of docs/consuming/dead-letters.md writes failed records to its topic, and the commands read them."""
    page = Programs("consuming/dead-letters.md", kafka, tmp_path)
    topic, dead = page.with_orders(), create_topic(page.servers, page.names["orders.dlq"], 3)
    produce(page.servers, topic, [(None, b"no number")])
    with page.started("payments.py") as (process, output):
        wait_until(lambda: page.committed("payments") == 101, "all offsets", seen=output.read_text)
        assert end(process) == 0
    words = ["-m", "consumer_membership", "dead-letters", dead]
    listed = map(json.loads, page.run(*words, "list", "-b", page.servers, "--json"))
    assert Counter(letter["exception"] for letter in listed) == {
        "LookupError": 10,
        "confluent_kafka.error.ValueDeserializationError": 1,
    }
    replay = page.run(*words, "replay", "-b", page.servers, "--exception", "LookupError")
    assert replay[0] == f"{dead}: 10 dead letters replayed, group {dead}.replay"


@pytest.mark.parametrize(("program", "group"), [("service.py", "service"), ("aio_service.py", "aio-service")])
def test_service_leaves_its_group_at_a_signal(kafka: Broker, tmp_path: Path, program: str, group: str) -> None:
    """Both programs of docs/consuming/graceful-shutdown.md commit and leave at SIGTERM, with exit code 0."""
    page = Programs("consuming/graceful-shutdown.md", kafka, tmp_path)
    page.with_orders()
    with page.started(program) as (process, output):
        wait_until(lambda: "newly assigned" in output.read_text() or group == "aio-service", "an assignment")
        wait_until(lambda: page.members(group) == 1, "a member", seen=output.read_text)
        assert end(process) == 0
        assert "stopping" in output.read_text()
    assert page.members(group) == 0


def test_schema_registry_programs_decode_records_and_report_others(kafka: Broker, tmp_path: Path) -> None:
    """Both programs of docs/consuming/schema-registry.md print the records and the one that cannot be decoded."""
    page = Programs("consuming/schema-registry.md", kafka, tmp_path)
    text = (DOCS / "consuming/schema-registry.md").read_text()
    for program in ("avro_orders.py", "deserializing.py"):
        assert "\n".join(page.run(program)) in text


def test_replay_moves_a_group_and_reads_without_one(kafka: Broker, tmp_path: Path) -> None:
    """The programs of docs/consuming/replay-from-a-time.md move a group to a time, and count the records since then."""
    page = Programs("consuming/replay-from-a-time.md", kafka, tmp_path)
    topic = page.with_orders()
    group = page.names["store-offsets"]
    commit(page.servers, group, *(TopicPartition(topic, number, 1) for number in range(4)))
    assert len(page.run("move_group.py", group, topic, LONG_AGO)) == 4
    assert page.committed("store-offsets") == 0
    (line,) = page.run("read_since.py", topic, LONG_AGO)
    assert line.startswith("100 records since 2020-01-01 00:00:00")


def test_fastapi_application_counts_records_and_commits_at_its_end(kafka: Broker, tmp_path: Path) -> None:
    """The application of docs/consuming/fastapi.md is ready, counts the records by key, and commits at SIGTERM."""
    page = Programs("consuming/fastapi.md", kafka, tmp_path)
    page.with_orders()
    (port,) = draw_ports(1)

    def get(path: str) -> dict[str, object]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as response:
                return dict(json.load(response))
        except OSError:  # also the status 503
            return {}

    with page.started("-m", "uvicorn", "app:app", "--port", str(port)) as (process, output):
        expected = {f"customer-{number}": 10 for number in range(10)}
        wait_until(lambda: get("orders") == expected, "the counts", seen=output.read_text)
        wait_until(lambda: get("readyz").get("verdict") == "idle", "an idle consumer", seen=output.read_text)
        end(process)
        assert "Application shutdown complete" in output.read_text()
    assert page.committed("fastapi") == 100


def test_testing_page_passes_its_own_tests(kafka: Broker, tmp_path: Path) -> None:
    """All tests of docs/consuming/testing.md pass, on the fake and the mock cluster and on the broker."""
    page = Programs("consuming/testing.md", kafka, tmp_path)
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": page.servers}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=200
    )
    assert "11 passed" in ran.stdout, ran.stdout + ran.stderr


def test_exactly_once_writes_each_invoice_once_although_a_process_is_killed(kafka: Broker, tmp_path: Path) -> None:
    """The tutorial's two processes, one of which is killed and started again, write 10,000 invoices once each."""
    page = Programs("tutorials/exactly-once.md", kafka, tmp_path)
    page.run("setup_topics.py")
    with (
        page.started("invoices.py", "a", log="a") as (first, of_a),
        page.started("invoices.py", "b", log="b") as (second, of_b),
    ):
        wait_until(lambda: "written" in of_a.read_text() and "written" in of_b.read_text(), "transactions of both")
        end(first, signal.SIGKILL)
        with page.started("invoices.py", "a", log="c") as (third, _):
            wait_until(lambda: page.committed("invoices") == 10_000, "all orders", patience_s=120)
            assert (end(second), end(third)) == (0, 0)
    (count, _) = page.run("check_invoices.py")
    assert count == "10000 invoices, 0 of them more than once"


def test_switch_joins_the_running_group_and_goes_back(kafka: Broker, tmp_path: Path) -> None:
    """The tutorial's service joins its own group with the other client, in both directions, and loses no record."""
    page = Programs("tutorials/switch-from-confluent-kafka.md", kafka, tmp_path)
    page.with_orders()
    ours = ("-m", "consumer_membership", "run", "--", sys.executable, "service.py")
    for step, (old, new) in enumerate([(("service.py",), ours), (ours, ("service.py",))]):
        with page.started(*old, log=f"old-{step}") as (first, of_first):
            wait_until(lambda: "assigned [0, 1, 2, 3]" in of_first.read_text(), "the first", seen=of_first.read_text)
            with page.started(*new, log=f"new-{step}") as (second, of_second):
                wait_until(lambda: re.search(r"^assigned \[\d", of_second.read_text(), re.MULTILINE), "the second")
                assert end(first) == 0
                wait_until(lambda: "assigned [0, 1, 2, 3]" in of_second.read_text(), "the rest for the second")
                assert end(second) == 0
    assert page.committed("switch") == 100


def test_kubernetes_script_replaces_processes_without_a_rebalance(kafka: Broker, tmp_path: Path) -> None:
    """In the script of the tutorial, every instance id keeps its partitions and the group keeps its epoch."""
    page = Programs("tutorials/kubernetes-deploys.md", kafka, tmp_path)
    topic, group = page.with_orders(), unique("deploys")
    script = (tmp_path / "deploy.sh").read_text().replace("TOPIC=orders", f"TOPIC={topic}")
    (tmp_path / "deploy.sh").write_text(
        script.replace("GROUP_ID=deploys", f"GROUP_ID={group}").replace("-g deploys", f"-g {group}")
    )
    shutil.copy(ROOT / "examples/kubernetes/orders.py", tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["/bin/bash", "deploy.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    rows = re.findall(r"^\S+ +(orders-\d) +rdkafka +\S+ +(\d+) +(\S+)", ran.stdout, re.MULTILINE)
    assert len(rows) == 9, ran.stdout + ran.stderr
    assert set(rows[:3]) == set(rows[3:6]) == set(rows[6:])


def test_spark_drain_writes_each_event_once_and_continues(kafka: Broker, tmp_path: Path) -> None:
    """The tutorial's job drains the topic into files, has nothing to do afterwards, and continues with new records."""
    page = Programs("tutorials/spark-drain.md", kafka, tmp_path)
    topic, group = unique("events"), unique("drain")  # the folder of the files has the topic's name in the page
    for name in ("produce_events.py", "drain_events.py"):
        code = (tmp_path / name).read_text().replace("200_000", "2_000").replace('"events-to-parquet"', f'"{group}"')
        code = code.replace('["events"]', f'["{topic}"]').replace('"events" not in', f'"{topic}" not in')
        code = code.replace('NewTopic("events"', f'NewTopic("{topic}"').replace(
            'produce("events"', f'produce("{topic}"'
        )
        (tmp_path / name).write_text(code)
    for total in (2_000, 4_000):
        page.run("produce_events.py")
        drained = page.run("drain_events.py")
        assert re.fullmatch(r"2000 records in [\d.]+ s", drained[-1])
        (rows, _) = page.run("check_events.py")
        assert rows == f"{total} rows, {total} distinct offsets"
