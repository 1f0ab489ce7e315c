"""Real brokers in containers, started by testcontainers and by docker-compose.yml."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from consumer_membership.devbroker import Backend, start
from consumer_membership.devbroker.broker import Broker
from consumer_membership.devbroker.readiness import await_ready
from consumer_membership.devbroker.tcp_ports import draw_ports
from tests.support.kafka import create_topic, produce, unique
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.docker, pytest.mark.slow]

# A broker that was killed can register again only after its previous session has ended: 9 s by default.
QUICK_SESSIONS = {"broker.session.timeout.ms": "2500", "broker.heartbeat.interval.ms": "500"}

COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"


def docker(*words: str) -> str:
    """Return the output of a docker command."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S607


def containers() -> set[str]:
    """Return the ids of all containers of devbroker, running or not."""
    return set(docker("ps", "-aq", "--filter", "label=consumer-membership.devbroker.owner").split())


def networks() -> set[str]:
    """Return the ids of all networks of devbroker."""
    return set(docker("network", "ls", "-q", "--filter", "label=consumer-membership.devbroker.owner").split())


def test_container_listens_on_loopback_only_and_is_removed_after_stop() -> None:
    """A container listens on loopback only, because it has no authentication; stop() removes all its resources."""
    before = (containers(), networks())
    with start(NEWEST, backend=Backend.DOCKER) as broker:
        assert (broker.backend, broker.version) == (Backend.DOCKER, NEWEST)
        host, _, port = broker.bootstrap_servers.partition(":")
        assert host == "127.0.0.1"
        (container,) = containers() - before[0]
        assert docker("port", container, "9092/tcp") == f"127.0.0.1:{port}"
        topic = create_topic(broker.bootstrap_servers, unique("orders"), 2)
        assert produce(broker.bootstrap_servers, topic, 10) == {0: 5, 1: 5}
    assert (containers(), networks()) == before


@pytest.mark.parametrize("ending", [Broker.stop_node, Broker.kill_node])
def test_restarted_container_keeps_topics(kafka_broker: BrokerFactory, ending: object) -> None:
    """A restarted container keeps its port and its storage, as a JVM does."""
    assert callable(ending)
    broker = kafka_broker(properties=QUICK_SESSIONS, backend=Backend.DOCKER, is_shared=False)
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("orders"))
    pid = broker.node_pid(1)
    assert pid is not None
    ending(broker, 1)
    assert broker.node_pid(1) is None
    broker.start_node(1)
    broker.wait_ready()
    assert broker.node_pid(1) not in {pid, None}
    assert topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=PATIENCE_S).topics


def test_three_containers_form_one_cluster(kafka_broker: BrokerFactory) -> None:
    """Three containers, which connect to each other by name, form a cluster that clients reach on loopback."""
    broker = kafka_broker(nodes=3, properties=QUICK_SESSIONS, backend=Backend.DOCKER, is_shared=False)
    servers = broker.bootstrap_servers
    topic = create_topic(servers, unique("orders"), 3, replication_factor=3)
    broker.kill_node(2)
    broker.wait_ready()
    assert sum(produce(servers, topic, 9).values()) == 9


def test_start_removes_container_of_dead_owner(kafka_broker: BrokerFactory) -> None:
    """A start removes the containers of ended processes of this machine, which may have been killed, and no others."""
    dead = subprocess.Popen(["true"])  # noqa: S607 - its pid is what counts
    dead.wait()
    host = os.uname().nodename
    owners = {"dead": f"{host}:{dead.pid}", "alive": f"{host}:{os.getpid()}", "elsewhere": f"other-{host}:{dead.pid}"}
    label = "consumer-membership.devbroker.owner"
    made = {
        name: docker("create", "--label", f"{label}={owner}", f"apache/kafka:{NEWEST}", "bash")
        for name, owner in owners.items()
    }
    try:
        kafka_broker(backend=Backend.DOCKER, is_shared=False)
        assert {name for name, container in made.items() if container[:12] in containers()} == {"alive", "elsewhere"}
    finally:
        docker("rm", "--force", *made.values())


@pytest.fixture
def compose() -> Iterator[str]:
    """Start docker-compose.yml and return the bootstrap servers."""
    port = str(draw_ports(1)[0])
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)  # noqa: S607
    program = ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]
    if shutil.which(program[0]) is None:
        pytest.fail("neither `docker compose` nor `docker-compose` is here; install one or pass --no-docker")
    command = [*program, "-f", str(COMPOSE_FILE), "-p", unique("devbroker")]
    environment = os.environ | {"KAFKA_PORT": port}
    try:
        up = subprocess.run([*command, "up", "-d"], env=environment, capture_output=True, text=True, check=False)
        assert up.returncode == 0, up.stderr
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([*command, "down", "-v"], env=environment, capture_output=True, check=True)


def test_compose_file_starts_broker(compose: str) -> None:
    """The file in the top folder starts a broker on 127.0.0.1 only."""
    await_ready(compose, nodes=[compose], check=lambda: None, timeout_s=PATIENCE_S)
    metadata = AdminClient({"bootstrap.servers": compose}).list_topics(timeout=PATIENCE_S)
    assert [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()] == [compose]
    topic = create_topic(compose, unique("orders"))
    assert produce(compose, topic, 3) == {0: 3}


def test_compose_file_listens_on_9092_by_default() -> None:
    """The default address is the one in the documentation."""
    text = COMPOSE_FILE.read_text()
    assert '"127.0.0.1:${KAFKA_PORT:-9092}:9092"' in text
    assert f"image: apache/kafka:{NEWEST}" in text
