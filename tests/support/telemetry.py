"""A real broker that receives the metrics that clients push (KIP-714), and access to these pushes.

Kafka passes metrics to a reporter class (`java/TelemetryReporter.java`), which this module compiles. The class is on
the broker's class path as a Java agent, which is set with Kafka's environment variable for JVM flags.
"""

from __future__ import annotations

import base64
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from consumer_membership.devbroker.java import classpath, java_for
from consumer_membership.devbroker.request import Backend
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from consumer_membership.devbroker import Broker

    Start = Callable[..., AbstractContextManager[Broker]]

_NAME = "TelemetryReporter"
_FLAGS = "KAFKA_JVM_PERFORMANCE_OPTS"
#: The time limit for a Java program and for its compiler.
_JAVA_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """One push of one client.

    The keys of `values` are the metric's name and the values of its attributes; `totals` has the names of monotonic
    sums.
    """

    client_id: str
    instance_id: str
    is_last: bool
    resource: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    values: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    totals: frozenset[str] = frozenset()


class Receiver:
    """A broker with the reporter class."""

    def __init__(self, broker: Broker, classes: Path, file: Path) -> None:
        self.broker = broker
        self._classes = classes
        self._file = file

    def subscribe(self, name: str, metrics: str, interval_ms: int) -> None:
        """Make all clients push these metrics at this interval; `name` is the name of the subscription."""
        command = [java_for(NEWEST).executable, "-cp", f"{self._classes}:{classpath(NEWEST)}", _NAME]
        arguments = [self.broker.bootstrap_servers, name, f"metrics={metrics}", f"interval.ms={interval_ms}"]
        subprocess.run([*command, *arguments], check=True, capture_output=True, timeout=_JAVA_S)

    def pushes(self, client_id: str) -> list[Pushed]:
        """Return the pushes of clients with this client id."""
        text = self._file.read_text() if self._file.exists() else ""
        lines = text.split("\n")[:-1]  # without the last line, which the broker may not have completed
        return [_read(line) for line in lines if line.startswith(f"{client_id} ")]

    def wait_for(self, client_id: str, metric: str, least: float) -> Pushed:
        """Wait for a push of this client with at least this value of the metric, and return the push."""

        def found() -> Pushed | None:
            for one in self.pushes(client_id):
                if max((value for name, value in one.values.items() if name[0] == metric), default=-1.0) >= least:
                    return one
            return None

        return wait_until(found, f"{metric} of at least {least}", seen=lambda: self.pushes(client_id)[-3:])


def _read(line: str) -> Pushed:
    client_id, instance_id, is_last, data = line.split(" ")
    values: dict[tuple[str, ...], float] = {}
    totals = set()
    resource: dict[str, str] = {}
    scope = ""
    for of_resource in MetricsData.FromString(base64.b64decode(data)).resource_metrics:
        resource = {one.key: one.value.string_value for one in of_resource.resource.attributes}
        for of_scope in of_resource.scope_metrics:
            scope = of_scope.scope.name
            for metric in of_scope.metrics:
                is_total = metric.WhichOneof("data") == "sum"
                totals |= {metric.name} if is_total else set()
                for point in (metric.sum if is_total else metric.gauge).data_points:
                    labels = (one.value.string_value or str(one.value.int_value) for one in point.attributes)
                    number = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                    values[metric.name, *labels] = number
    return Pushed(
        client_id=client_id,
        instance_id=instance_id,
        is_last=is_last == "true",
        resource=resource,
        scope=scope,
        values=values,
        totals=frozenset(totals),
    )


@contextmanager
def receiver(start: Start, folder: Path) -> Iterator[Receiver]:
    """Start a broker that receives metrics, with `devbroker.start` or `RunBrokers.own`; this needs javac."""
    classes, agent, file = folder / "classes", folder / "reporter.jar", folder / "pushed"
    classes.mkdir()
    compiler = Path(java_for(NEWEST).executable).with_name("javac")
    source = Path(__file__).parent / "java" / f"{_NAME}.java"
    subprocess.run([compiler, "-d", classes, "-cp", classpath(NEWEST), source], check=True, timeout=_JAVA_S)
    with zipfile.ZipFile(agent, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nPremain-Class: {_NAME}\n\n")
        for path in classes.iterdir():
            jar.write(path, path.name)
    flags = os.environ.get(_FLAGS, "")
    os.environ[_FLAGS] = f"{flags} -javaagent:{agent}"
    try:
        properties = {"metric.reporters": _NAME, "telemetry.file": str(file)}
        with start(NEWEST, None, properties, backend=Backend.JVM) as broker:
            yield Receiver(broker, classes, file)
    finally:
        os.environ[_FLAGS] = flags
