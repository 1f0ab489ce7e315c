"""A partner that uses the Java client: VerifiableConsumer of kafka-tools, whose output is translated to partner events.

VerifiableConsumer writes its log to the same stream as its events, because only the log has the generation and the
leader, and so the order of log and events is known.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from consumer_membership.devbroker.java import java_for
from tests.support.partners.life import Lifetime, Strategy
from tests.support.partners.reporting import report, report_committed, report_partitions, report_records
from tests.support.partners.stop import die_with_parent
from tests.support.partners.tools_jars import tools_classpath
from tests.support.versions import NEWEST

_MAIN = "org.apache.kafka.tools.VerifiableConsumer"
_PACKAGE = "org.apache.kafka.clients.consumer"
_ASSIGNORS = {
    Strategy.RANGE: f"{_PACKAGE}.RangeAssignor",
    Strategy.ROUNDROBIN: f"{_PACKAGE}.RoundRobinAssignor",
    Strategy.STICKY: f"{_PACKAGE}.StickyAssignor",
    Strategy.COOPERATIVE_STICKY: f"{_PACKAGE}.CooperativeStickyAssignor",
}
_JOINED = re.compile(r"Successfully synced group in generation Generation\{generationId=(\d+)")
_LEADS = re.compile(r"Finished assignment for group at generation (\d+)")
#: The text at the start of each event; lines of the log may also begin with a brace.
_EVENT = '{"timestamp":'
#: slf4j-simple writes the log to the stream that has the events.
_LOG = Path("System.out")


class _Translator:
    """Reads the lines of VerifiableConsumer and reports partner events."""

    def __init__(self) -> None:
        self._generation: int | None = None

    def read(self, stdout: IO[str]) -> None:
        """Read until the end of the stream."""
        for line in stdout:
            if line.startswith(_EVENT):
                self._translate(json.loads(line))
            else:
                sys.stderr.write(line)
                self._log(line)

    def _log(self, line: str) -> None:
        if (leads := _LEADS.search(line)) is not None:
            report("leads", generation=int(leads[1]))
        elif (joined := _JOINED.search(line)) is not None:
            self._generation = int(joined[1])
        elif " ERROR " in line:
            report("error", text=line.strip())

    def _translate(self, event: dict[str, Any]) -> None:
        at: int = event["timestamp"]
        match event["name"]:
            case "partitions_assigned":
                report_partitions("assigned", _numbers(event["partitions"]), self._generation, at=at)
            case "partitions_revoked":
                # VerifiableConsumer has no separate event for lost partitions.
                report_partitions("revoked", _numbers(event["partitions"]), self._generation, at=at)
            case "records_consumed":
                for item in event["partitions"]:
                    report_records(item["partition"], item["minOffset"], item["maxOffset"], at=at)
            case "offsets_committed" if event["success"]:
                report_committed({item["partition"]: item["offset"] for item in event["offsets"]}, at=at)
            case "offsets_committed":
                report("refused", at=at, text=str(event.get("error")))
            case _:  # its start and its end, which partners do not report
                pass


def _numbers(partitions: Iterable[dict[str, Any]]) -> list[int]:
    return [item["partition"] for item in partitions]


def _properties(life: Lifetime) -> str:
    lines = [f"client.id={life.client_id}"]
    if life.protocol == "classic":
        lines.append(f"heartbeat.interval.ms={life.heartbeat_interval_ms}")
    return "\n".join(lines) + "\n"


def _arguments(life: Lifetime, properties: Path) -> list[str]:
    arguments = ["--bootstrap-server", life.bootstrap_servers, "--group-id", life.group, "--topic", life.topic]
    arguments += ["--group-protocol", life.protocol, "--reset-policy", "earliest", "--consumer.config", str(properties)]
    if life.protocol == "classic":
        arguments += ["--assignment-strategy", ",".join(_ASSIGNORS[name] for name in life.strategies)]
        arguments += ["--session-timeout", str(life.session_timeout_ms)]
    if life.instance_id is not None:
        arguments += ["--group-instance-id", life.instance_id]
    return arguments


def live(life: Lifetime) -> None:
    """Run one member until SIGTERM."""
    with tempfile.TemporaryDirectory(prefix="consumer-membership-partner-") as folder:
        properties = Path(folder, "consumer.properties")
        properties.write_text(_properties(life))
        # Without a class data archive: the broker's archive fits the broker's class path only.
        java = replace(java_for(NEWEST), classpath=tools_classpath(life.kafka_version), archive=Path(folder, "none"))
        executable, *options = java.command(_MAIN, *_arguments(life, properties), log=_LOG)
        consumer = subprocess.Popen(
            # The process runs for seconds only, so the JVM's second compiler costs more CPU time than it saves.
            [executable, "-XX:TieredStopAtLevel=1", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - safe: one thread, and the function only makes a system call
        )
        signal.signal(signal.SIGTERM, lambda *_: consumer.terminate())
        assert consumer.stdout is not None
        with consumer.stdout as stdout:
            _Translator().read(stdout)
        consumer.wait()
    # VerifiableConsumer's shutdown hook has left the group before its process ended.
    report("closed")
