"""Shared brokers: in one process, and in all processes of a test run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from consumer_membership.devbroker import DEFAULT_VERSION, Backend, Broker, BrokerUnavailableError, Security
from tests.support import broker_pool
from tests.support.broker_pool import BrokerPool
from tests.support.brokers import MOST_IDLE, BrokerKeeper, RemoteNode, RunBrokers


class Started:
    """A replacement of `start` whose brokers need neither time nor memory."""

    def __init__(self) -> None:
        self.kinds: list[tuple[str | None, dict[str, str]]] = []
        self.stopped: list[str] = []
        self.may_go_on = Event()
        self.may_go_on.set()

    def __call__(
        self,
        version: str | None = None,
        nodes: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        backend: Backend | None = None,
        security: Security | None = None,
    ) -> Broker:
        """Return another broker, and record its version and properties."""
        if version == "4.0.0":
            raise BrokerUnavailableError("no jars")
        address = f"127.0.0.1:{len(self.kinds)}"
        self.kinds.append((version, dict(properties or {})))
        assert self.may_go_on.wait(60)
        return Broker(
            backend=backend or Backend.JVM,
            version=version or DEFAULT_VERSION,
            bootstrap_servers=address,
            nodes=[
                RemoteNode(node_id=number, address=address, secured={"TLS": "localhost:1"} if security else {}, pid=7)
                for number in range(1, (nodes or 1) + 1)
            ],
            release=lambda: self.stopped.append(address),
        )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Replace `start`, and record the brokers that are started from now on."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    made = Started()
    monkeypatch.setattr(broker_pool, "start", made)
    return made


@pytest.fixture
def keeper(started: Started) -> Iterator[BrokerKeeper]:
    """Return the keeper of a run's brokers; `started` records them."""
    made = BrokerKeeper()
    assert started.kinds == []
    yield made
    made.stop()


def test_pool_treats_default_and_explicit_default_as_equal(started: Started) -> None:
    """No arguments, the newest version, one node and the already used backend all return one broker."""
    with BrokerPool() as brokers:
        first = brokers.shared()
        same = [
            brokers.shared(DEFAULT_VERSION),
            brokers.shared(nodes=1, properties={}),
            brokers.shared(backend=Backend.JVM),
        ]
        assert [one is first for one in same] == [True] * 3
        assert brokers.shared(backend=Backend.DOCKER) is not first
        assert brokers.shared(properties={"a": "b"}) is not first
    assert len(started.stopped) == len(started.kinds) == 3
    assert [start.kind for start in brokers.starts][-1] == f"Kafka {DEFAULT_VERSION}, 1 node, a=b"


def test_pool_does_not_assume_version_of_existing_broker(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with a version starts separately, because this start checks the version of the existing broker."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    with BrokerPool() as brokers:
        assert brokers.shared() is not brokers.shared(DEFAULT_VERSION)
    assert [version for version, _ in started.kinds] == [None, DEFAULT_VERSION]


def test_pool_callers_wait_for_start_in_progress(started: Started) -> None:
    """Threads with equal requests receive the same broker from a single start."""
    started.may_go_on.clear()
    with BrokerPool() as brokers, ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(brokers.shared) for _ in range(4)]
        started.may_go_on.set()
        assert len({one.result(60) for one in asked}) == 1
    assert len(started.kinds) == 1


def test_processes_of_test_run_share_brokers(keeper: BrokerKeeper, started: Started) -> None:
    """Each process has its own connection; its handle stays the same object while the broker is the same."""
    one, other = RunBrokers(keeper.folder), RunBrokers(keeper.folder)
    security = Security(key_pem="k", certificate_chain_pem="c", client_authority_pem="a", users={"u": "p"})
    for brokers in (one, other):
        assert brokers.shared() is brokers.shared(DEFAULT_VERSION, backend=Backend.JVM)
        assert brokers.shared(security=security).secured == {"TLS": "localhost:1"}
    assert one.shared().bootstrap_servers == other.shared().bootstrap_servers
    assert len(started.kinds) == len(keeper.starts) == 2
    with pytest.raises(BrokerUnavailableError, match="no jars"):
        one.shared("4.0.0")


def test_stop_node_of_shared_broker_raises(keeper: BrokerKeeper) -> None:
    """`stop_node` raises for a shared broker, because other tests use its nodes."""
    broker = RunBrokers(keeper.folder).shared()
    assert broker.node_pid(1) == 7
    with pytest.raises(BrokerUnavailableError, match="start a separate broker"):
        broker.stop_node(1)


def test_keeper_stops_longest_idle_brokers(keeper: BrokerKeeper, started: Started) -> None:
    """Some idle brokers are kept for later requests; the brokers that are idle longest stop, never a held broker."""
    holds, releases = RunBrokers(keeper.folder), RunBrokers(keeper.folder)
    held = holds.shared()
    assert releases.shared().bootstrap_servers == held.bootstrap_servers
    for number in range(MOST_IDLE + 2):
        releases.shared(properties={"number": str(number)})
        releases.release()
        assert releases.shared(properties={"number": str(number)})
        releases.release()
    # The keeper handles this request after the last release.
    releases.shared()
    assert started.stopped == ["127.0.0.1:1", "127.0.0.1:2"]
