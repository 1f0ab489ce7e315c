"""Each example runs the way a user runs it, on a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from consumer_membership.demo.brokers import offsets_at_end
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, read_committed, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
RECORDS = 40
#: For each example its topic, its folder, and the lines of each run.
SparkLines = dict[str, tuple[str, Path, list[list[str]]]]
#: Runs scripts one after the other in one process, so that Java starts once.
IN_TURN = """
import json, runpy, sys
for sys.argv in json.loads(sys.argv[1]):
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("ended", flush=True)
"""


def run(example: str, kafka: Broker, topic: str, *words: str) -> list[str]:
    """Return the lines that the example prints, with a group of its own and the broker from the environment."""
    asked = ran(example, kafka, topic, *words)
    assert (asked.returncode, asked.stderr) == (0, "")
    return asked.stdout.splitlines()


def ran(example: str, kafka: Broker, topic: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the example to its end."""
    with started(example, kafka, topic, *words) as process:
        return ended(process)


@contextmanager
def started(example: str, kafka: Broker, topic: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start the example in a process that is killed at the end of the block."""
    with in_process(kafka, str(ROOT / "examples" / f"{example}.py"), "-t", topic, "-g", topic, *words) as process:
        yield process


@contextmanager
def in_process(kafka: Broker, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start this interpreter with these arguments and the broker in its environment."""
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, *words],
            # Spark 4.0 creates its folder `artifacts` here.
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
    """Wait for the end of the process and return its output."""
    stdout, stderr = process.communicate(timeout=280)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture(scope="module", params=[1, 2], ids=["once", "twice"])
def spark_lines(request: pytest.FixtureRequest, kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> SparkLines:
    """The lines that each Spark example prints in one run or in two; stderr is ignored."""
    folder = tmp_path_factory.mktemp("files")
    topics = {example: filled(kafka) for example in ("spark_drain", "spark_foreach_partition_sink", "spark_streaming")}
    words = {
        example: [str(ROOT / "examples" / f"{example}.py"), "-t", topic, "-g", topic]
        for example, topic in topics.items()
    }
    words["spark_foreach_partition_sink"] += ["-o", str(folder)]
    words["spark_streaming"] += ["--checkpoint", str(folder / "checkpoint")]
    in_turn = json.dumps([words[example] for example in topics for _ in range(request.param)])
    with in_process(kafka, "-c", IN_TURN, in_turn) as process:
        asked = ended(process)
    assert asked.returncode == 0, asked.stderr
    printed = [run.splitlines() for run in asked.stdout.split("ended\n")]
    assert printed.pop() == []
    return {
        example: (topic, folder, [printed.pop(0) for _ in range(request.param)]) for example, topic in topics.items()
    }


@pytest.fixture
def topic(kafka: Broker) -> str:
    """A topic with 40 records."""
    return filled(kafka)


def filled(kafka: Broker) -> str:
    """Create such a topic."""
    name = create_topic(kafka.bootstrap_servers, unique("examples"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, ((b"key", str(number).encode()) for number in range(RECORDS)))
    return name


def test_every_example_is_tested_here() -> None:
    """Each example has a test with its name."""
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} <= tested


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
    """Each result occurs once for read_committed consumers, the offsets reach the end, and SIGTERM ends it cleanly."""
    out = create_topic(kafka.bootstrap_servers, unique("out"))

    def is_everything_committed() -> bool:
        committed, end = offsets_at_end(kafka.bootstrap_servers, group=topic, topic=topic, partitions=PARTITIONS)
        return committed == end

    with started("exactly_once", kafka, topic, "-o", out, "--batch", "15", "--idle", "100") as process:
        wait_until(is_everything_committed, "everything committed")
        process.send_signal(signal.SIGTERM)
        asked = ended(process)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert sum(int(line.removesuffix(" records")) for line in asked.stdout.splitlines()) == RECORDS
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
        asked = ended(process)
    assert (asked.returncode, asked.stderr) == (0, "")
    return asked.stdout.splitlines()


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


@pytest.mark.timeout(300)
def test_spark_drain(spark_lines: SparkLines) -> None:
    """The first run drains all records of every partition, and a second run reads none."""
    topic, _, (first, *second) = spark_lines["spark_drain"]
    expected = [f"{topic}[{number}]: offsets 0 to 10, 10 records" for number in range(PARTITIONS)]
    assert first == [*expected, f"{RECORDS} records"]
    assert all(lines[-1] == "0 records" for lines in second)


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
