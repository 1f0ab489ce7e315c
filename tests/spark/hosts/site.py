"""A site: brokers, a database, and Spark's master, workers and driver, each on its own host."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from consumer_membership.devbroker import Backend, Broker, start
from tests.spark.clusters import SPARK_S, SessionProcess, a_session, a_standalone_cluster
from tests.support.network import Host, Network, network
from tests.support.postgres import postgres
from tests.support.waiting import wait_until

#: Each worker's cores, whatever the machine has: one worker can run all tasks if the other one is lost.
CORES = 8


@dataclass(frozen=True, slots=True)
class Site:
    """The hosts of a site; the tests observe it from `desk`."""

    network: Network
    kafka: Broker
    conninfo: str
    master: str
    folder: Path

    @property
    def desk(self) -> Host:
        """The host of the tests."""
        return self.network.host("desk")

    @property
    def broker(self) -> Host:
        """The host of Kafka."""
        return self.network.host("broker")

    @property
    def driver(self) -> Host:
        """The host of the sessions."""
        return self.network.host("driver")

    @property
    def workers(self) -> tuple[Host, Host]:
        """The hosts of the tasks."""
        return self.network.host("worker-1"), self.network.host("worker-2")

    @contextmanager
    def session(self, **settings: str) -> Iterator[SessionProcess]:
        """A driver on its host, with all slots of both workers; two underscores in a key stand for a dot."""
        address = {"spark.driver.host": self.driver.address, "spark.driver.bindAddress": self.driver.address}
        given = {key.replace("__", "."): value for key, value in settings.items()}
        with ExitStack() as stack:
            with self.driver.entered():
                session = stack.enter_context(a_session(self.master, {**address, **given}))
            yield session


@contextmanager
def a_site(folder: Path) -> Iterator[Site]:
    """A site, for as long as the block lasts.

    Raises:
        RuntimeError: this machine does not support hosts; the text names what is missing.
    """
    with ExitStack() as stack:
        net = stack.enter_context(network())
        with net.host("broker").entered():
            kafka = stack.enter_context(start(backend=Backend.JVM, host=net.host("broker").address))
        with net.host("database").entered():
            conninfo = stack.enter_context(postgres(net.host("database").address))
        workers = [net.host("worker-1"), net.host("worker-2")]
        master = stack.enter_context(a_standalone_cluster(folder, workers, CORES, master=net.host("master")))
        # An application that starts before both workers are registered has all its executors on the first one.
        wait_until(
            lambda: (folder / "daemon-0").read_text().count("Registering worker") == len(workers),
            "the workers' registration",
            SPARK_S,
        )
        yield Site(net, kafka, conninfo, master, folder)


def kill(host: Host) -> None:
    """Kill every process of this host with SIGKILL, like a power loss; pull the host's cable first."""
    space = Path(host.path).stat().st_ino
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_there = (process / "ns" / "net").stat().st_ino == space
        except OSError:
            # The process has just ended.
            continue
        if is_there:
            os.kill(int(process.name), signal.SIGKILL)
