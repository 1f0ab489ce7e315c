"""librdkafka's mock cluster in its own process: real TCP, without Java or Docker.

It runs in a subprocess, because a failed assertion in librdkafka would end the test run. It supports FindCoordinator up
to version 3, Metadata up to 12, OffsetFetch up to 6, ListOffsets up to 7 and ApiVersions up to 2. It removes a member
whose connection ends.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_PROGRAM = """
import sys
from confluent_kafka import Producer
cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": int(sys.argv[1]), "log_level": 0})
brokers = cluster.list_topics(timeout=10).brokers
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class MockCluster:
    """A running mock cluster; a context manager that ends it."""

    process: subprocess.Popen[str]
    bootstrap_servers: str

    @classmethod
    def start(cls, brokers: int = 3) -> Self:
        """Start a cluster with this number of brokers; it ends when its standard input is closed."""
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(brokers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        bootstrap_servers = process.stdout.readline().strip()
        if not bootstrap_servers:
            raise RuntimeError(f"the mock cluster ended with exit code {process.wait()} before it listened")
        return cls(process, bootstrap_servers)

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The hosts and ports of the brokers."""
        pairs = (server.rsplit(":", 1) for server in self.bootstrap_servers.split(","))
        return tuple((host, int(port)) for host, port in pairs)

    def stop(self) -> None:
        """End the cluster."""
        self.process.communicate(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
