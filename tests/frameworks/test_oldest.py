"""The oldest supported confluent-kafka, the installed confluent-kafka, and other versions of Python.

With each of them, a program has the same results with confluent-kafka's own consumer and with this package's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from consumer_membership.devbroker import Broker
from tests.frameworks.apps import verbs
from tests.frameworks.environments import (
    ROOT,
    environment,
    interpreter,
    oldest_confluent_kafka,
    other_pythons,
    variables,
)
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PROCESS_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: The other requirements of the client tests, and the tests that compare with later releases.
OF_TESTS = ("hypothesis>=6.100", "psutil>=6", "pytest>=8.3", "pytest-timeout>=2.3", "wrapt")
LATER = ("test_arguments.py", "test_parity.py")


@pytest.fixture(scope="module", params=["lowest", "installed", *other_pythons()])
def python(request: pytest.FixtureRequest) -> Path:
    """Return an interpreter with the oldest or installed confluent-kafka, or another Python with the newest one."""
    if request.param == "installed":
        return Path(sys.executable)
    if request.param == "lowest":
        return environment("oldest", oldest_confluent_kafka())
    other = interpreter(request.param)
    if other is None:
        pytest.skip(f"this machine has no Python {request.param}")
    return environment(f"python{request.param}", python=other)


def run(python: Path, broker: Broker, whose: str, protocol: str) -> tuple[dict[str, object], str]:
    """Run the program, and return its results and the type of its group."""
    topic = create_topic(broker.bootstrap_servers, unique("verbs"), verbs.PARTITIONS)
    produce(broker.bootstrap_servers, topic, verbs.RECORDS)
    command = [str(python), str(verbs.__file__), whose, protocol, broker.bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables(), timeout=PROCESS_S)
    assert done.returncode == 0, done.stderr
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups([topic])[topic].result()
    return json.loads(done.stdout.replace(topic, "TOPIC")), described.type.name


def test_consumer_has_the_same_results_as_confluent_kafka(python: Path, kafka: Broker) -> None:
    """Commits, seeks, positions, callbacks, a transaction, errors, names and classes agree with both protocols."""
    theirs, kind = run(python, kafka, "raw", "raw")
    assert kind == "CLASSIC"
    assert theirs["callbacks"] == [["assign", [0, 1]], ["revoke", [0, 1]]]
    assert theirs["names that it lacks"] == []
    for whose in ("ours", "installed"):
        for protocol in ("classic", "consumer"):
            assert run(python, kafka, whose, protocol) == (theirs, protocol.upper()), (whose, protocol)


def test_oldest_confluent_kafka_passes_the_tests_of_clients() -> None:
    """The tests of clients pass, except tests that compare with later releases or need the stubs of later releases."""
    python = environment("oldest-tests", oldest_confluent_kafka().replace("=", "[avro]=", 1), *OF_TESTS)
    given = [f"--ignore=tests/clients/{name}" for name in LATER]
    deselected = "--deselect=tests/clients/test_names.py::test_program_passes_a_strict_type_checker"
    tests = ["tests/clients", "tests/runtime/application/test_error_message.py"]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *given, deselected, *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=variables())
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
