"""The fixtures of the pytest plugin, each tested in a separate pytest run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = "consumer_membership.testing.pytest_consumer_membership"
#: The path of the package's sources, which a separate run needs: its folder has no configuration of this project.
ROOT = Path(__file__).parents[2]

FAKE = """
from consumer_membership import Consumer, Producer

def test_application(fake_kafka):
    Producer({"bootstrap.servers": fake_kafka.bootstrap_servers}).produce("orders", b"1")
    config = {"bootstrap.servers": fake_kafka.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    assert consumer.poll(10).value() == b"1"
    consumer.close()
"""
BROKER = """
import pathlib, pytest
from consumer_membership import Consumer, Producer

@pytest.mark.kafka_topic(partitions=2)
@pytest.mark.parametrize("number", range(4))
def test_application(kafka_broker, kafka_topic, kafka_group, number):
    servers = kafka_broker.bootstrap_servers
    with pathlib.Path("servers").open("a") as file:
        file.write(servers + "\\n")
    producer = Producer({"bootstrap.servers": servers})
    assert len(producer.list_topics(kafka_topic, timeout=60).topics[kafka_topic].partitions) == 2
    producer.produce(kafka_topic, b"1")
    producer.flush()
    with Consumer({"bootstrap.servers": servers, "group.id": kafka_group, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([kafka_topic])
        assert consumer.poll(60).value() == b"1"
"""


def run(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in this folder, with strict markers and with the plugin."""
    (folder / "test_application.py").write_text(program)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, f"--basetemp={folder / 'base'}", *options],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_fake_kafka_serves_an_unchanged_application(tmp_path: Path) -> None:
    """The application creates its own consumer and producer from `bootstrap.servers`."""
    done = run(tmp_path, FAKE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_plugin_imports_nothing_of_the_package(tmp_path: Path) -> None:
    """The plugin's import loads no module of the package, because every pytest run of an environment imports it."""
    source = ROOT / "consumer_membership" / "testing" / "pytest_consumer_membership.py"
    program = f"import sys; sys.path.insert(0, {str(source.parent)!r}); import pytest_consumer_membership\n"
    program += "assert not [name for name in sys.modules if name.startswith(('consumer_membership.', 'confluent'))]"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.integration
@pytest.mark.slow
def test_workers_share_one_broker_that_ends_with_the_session(tmp_path: Path) -> None:
    """Two workers of pytest-xdist use one broker, which is stopped when both have ended."""
    done = run(tmp_path, BROKER, "-n2")
    assert done.returncode == 0, done.stdout + done.stderr
    servers = (tmp_path / "servers").read_text().split()
    assert (len(servers), len(set(servers))) == (4, 1)
