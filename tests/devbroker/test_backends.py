"""The order of the backends, and the error of each backend that is unavailable."""

from __future__ import annotations

import os
import socket
import time
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from consumer_membership.devbroker import Backend, BackendMissingError, Broker, BrokerUnavailableError, start
from consumer_membership.devbroker.backends import first_of
from consumer_membership.devbroker.java import java_for
from consumer_membership.devbroker.request import BrokerRequest
from tests.support.versions import NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: A local engine has one second to respond; the rest of this time is for a busy machine.
PROMPT_S = 10.0


def missing(backend: Backend) -> Callable[[BrokerRequest], Broker]:
    """Return the starter of an unavailable backend."""

    def starter(_: BrokerRequest) -> Broker:
        raise BackendMissingError(f"no {backend.value} here")

    return starter


def found(backend: Backend) -> Callable[[BrokerRequest], Broker]:
    """Return the starter of an available backend."""
    return lambda request: Broker(backend=backend, version=request.kafka_version, bootstrap_servers="127.0.0.1:1")


def script(folder: Path, name: str, body: str) -> None:
    """Create an executable with this name in a folder for the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def seconds_without_docker() -> float:
    """Return how long a start takes to detect that no Docker engine responds."""
    import_module("testcontainers.core.docker_client")  # imported before the measurement
    began = time.monotonic()
    with pytest.raises(BackendMissingError, match="connecting to the Docker engine"):
        start(backend=Backend.DOCKER)
    return time.monotonic() - began


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove broker, engine, Java and Maven from the environment; return the folder that is the PATH."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-such.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.mark.parametrize("winner", list(Backend))
def test_first_of_uses_first_available_backend(winner: Backend) -> None:
    """`first_of` uses the first available backend, in the order: an existing broker, Docker, a JVM."""
    order = list(Backend)
    starters = {
        backend: found(backend) if order.index(backend) >= order.index(winner) else missing(backend)
        for backend in order
    }
    assert first_of(starters, BrokerRequest()).backend is winner
    assert order == [Backend.EXISTING, Backend.DOCKER, Backend.JVM]


def test_first_of_without_way_reports_what_each_lacks() -> None:
    """One error names what each of the three backends lacks."""
    with pytest.raises(BrokerUnavailableError) as raised:
        first_of({backend: missing(backend) for backend in Backend}, BrokerRequest(version="4.1.2"))
    text = str(raised.value)
    assert "Kafka 4.1.2" in text
    assert all(f"{backend.value}: no {backend.value} here" in text for backend in Backend)


def test_first_of_raises_failure_of_available_way() -> None:
    """If an available backend fails, its error is raised; the next backend would hide an invalid property."""

    def failing(_: BrokerRequest) -> Broker:
        raise BrokerUnavailableError("node 1 ended unexpectedly")

    starters = {Backend.EXISTING: missing(Backend.EXISTING), Backend.DOCKER: failing, Backend.JVM: found(Backend.JVM)}
    with pytest.raises(BrokerUnavailableError, match="ended unexpectedly"):
        first_of(starters, BrokerRequest())


@pytest.mark.slow  # testcontainers takes a third of a second to import
@pytest.mark.usefixtures("bare_machine")
def test_start_on_bare_machine_lists_what_to_install() -> None:
    """On a machine without broker, Docker, Java and Maven, the error contains the fix for each backend."""
    with pytest.raises(BrokerUnavailableError) as raised:
        start()
    text = str(raised.value)
    assert "KAFKA_BOOTSTRAP_SERVERS is not set" in text
    assert "connecting to the Docker engine" in text
    assert "install Java 17" in text


@pytest.mark.slow
@pytest.mark.usefixtures("bare_machine")
def test_start_does_not_wait_for_absent_docker_engine() -> None:
    """Without a Docker engine, a start detects this within seconds."""
    assert seconds_without_docker() < PROMPT_S


@pytest.mark.slow
@pytest.mark.usefixtures("bare_machine")
def test_start_gives_up_quickly_on_unresponsive_docker_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start detects within seconds that an engine accepts connections but never responds; docker waits a minute."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as engine:  # tmp_path may be too long
        engine.bind(f"{folder}/engine.sock")
        engine.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/engine.sock")
        assert seconds_without_docker() < PROMPT_S


@pytest.mark.slow
@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("host", ["tcp://10.0.0.1:2375", "http://elsewhere"])
def test_docker_engine_of_other_machine_is_rejected(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A remote Docker engine is rejected, because its ports are on another machine's loopback."""
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(BackendMissingError, match="may be remote"):
        start(backend=Backend.DOCKER)


def test_start_with_forced_unavailable_way_raises(bare_machine: Path) -> None:
    """A requested backend is never replaced by another one."""
    script(bare_machine, "java", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    with pytest.raises(BackendMissingError, match="KAFKA_BOOTSTRAP_SERVERS is not set"):
        start(backend=Backend.EXISTING)


def test_java_for_rejects_old_java_with_its_version(bare_machine: Path) -> None:
    """A Java older than 17, which Kafka 4 requires, is rejected with its version before it is started."""
    script(bare_machine, "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    with pytest.raises(BackendMissingError, match=r'version "11\.0\.2".*needs Java 17'):
        java_for(NEWEST)


def test_java_for_prefers_java_home_over_path(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka's own scripts, JAVA_HOME precedes the PATH."""
    script(bare_machine, "java", """echo 'openjdk version "11.0.2"' >&2""")
    home = bare_machine.parent / "jdk"
    home.mkdir()
    script(home / "bin", "java", """echo 'openjdk version "17.0.9"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(home))
    # This Java is recent enough, so the error names the next missing program.
    with pytest.raises(BackendMissingError, match="mvn"):
        java_for(NEWEST)


def test_java_for_without_maven_names_jar_folder(bare_machine: Path) -> None:
    """Without Maven, the error names the folder into which the user may put the jars."""
    script(bare_machine, "java", """echo 'openjdk version "17.0.9"' >&2""")
    folder = os.path.join(os.environ["XDG_CACHE_HOME"], "consumer-membership", f"kafka-{NEWEST}")  # noqa: PTH118 - a text
    with pytest.raises(BackendMissingError, match=folder):
        java_for(NEWEST)


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(
    ("asked", "named"),
    [({"properties": {"group.max.size": "2"}}, "group.max.size=2"), ({"port": 9092}, "port 9092")],
)
def test_start_rejects_existing_broker_for_properties_or_port(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], named: str
) -> None:
    """An existing broker is rejected if properties or a port are requested, because they cannot be set."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with pytest.raises(BrokerUnavailableError, match=named) as refused:
        start(**asked)  # type: ignore[arg-type]  # one argument at a time
    assert not isinstance(refused.value, BackendMissingError)
    assert "KAFKA_BOOTSTRAP_SERVERS" in str(refused.value)
