"""A partner with Java's client: VerifiableConsumer of kafka-tools, whose output is translated to partner events.

Its log arrives on the same stream as its reports, in order: only the log has the generation and the leader.
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
from tests.support.partners.speech import say, say_committed, say_partitions, say_records
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
#: How its reports begin; the log also has lines with a brace.
_REPORT = '{"timestamp":'
#: slf4j-simple's name of the stream that the reports are on.
_BESIDE_THE_REPORTS = Path("System.out")


class _Interpreter:
    """Reads its lines and reports the events."""

    def __init__(self) -> None:
        self._generation: int | None = None

    def read(self, stdout: IO[str]) -> None:
        """Read until its end."""
        for line in stdout:
            if line.startswith(_REPORT):
                self._report(json.loads(line))
            else:
                sys.stderr.write(line)
                self._log(line)

    def _log(self, line: str) -> None:
        if (leads := _LEADS.search(line)) is not None:
            say("leads", generation=int(leads[1]))
        elif (joined := _JOINED.search(line)) is not None:
            self._generation = int(joined[1])
        elif " ERROR " in line:
            say("error", text=line.strip())

    def _report(self, report: dict[str, Any]) -> None:
        at: int = report["timestamp"]
        match report["name"]:
            case "partitions_assigned":
                say_partitions("assigned", _numbers(report["partitions"]), self._generation, at=at)
            case "partitions_revoked":
                # Lost ones too: it has no callback of its own for them.
                say_partitions("revoked", _numbers(report["partitions"]), self._generation, at=at)
            case "records_consumed":
                for some in report["partitions"]:
                    say_records(some["partition"], some["minOffset"], some["maxOffset"], at=at)
            case "offsets_committed" if report["success"]:
                say_committed({some["partition"]: some["offset"] for some in report["offsets"]}, at=at)
            case "offsets_committed":
                say("refused", at=at, text=str(report.get("error")))
            case _:  # its start and its end, which other partners do not tell
                pass


def _numbers(partitions: Iterable[dict[str, Any]]) -> list[int]:
    return [some["partition"] for some in partitions]


def _properties(life: Lifetime) -> str:
    lines = [f"client.id={life.client_id}"]
    if life.protocol == "classic":
        lines.append(f"heartbeat.interval.ms={life.heartbeat_interval_ms}")
    return "\n".join(lines) + "\n"


def _words(life: Lifetime, properties: Path) -> list[str]:
    words = ["--bootstrap-server", life.bootstrap_servers, "--group-id", life.group, "--topic", life.topic]
    words += ["--group-protocol", life.protocol, "--reset-policy", "earliest", "--consumer.config", str(properties)]
    if life.protocol == "classic":
        words += ["--assignment-strategy", ",".join(_ASSIGNORS[name] for name in life.strategies)]
        words += ["--session-timeout", str(life.session_timeout_ms)]
    if life.instance_id is not None:
        words += ["--group-instance-id", life.instance_id]
    return words


def live(life: Lifetime) -> None:
    """Run one member until SIGTERM."""
    with tempfile.TemporaryDirectory(prefix="consumer-membership-partner-") as folder:
        properties = Path(folder, "consumer.properties")
        properties.write_text(_properties(life))
        # A broker's class data archive is for its own class path.
        java = replace(java_for(NEWEST), classpath=tools_classpath(life.kafka_version), archive=Path(folder, "none"))
        executable, *words = java.command(_MAIN, *_words(life, properties), log=_BESIDE_THE_REPORTS)
        consumer = subprocess.Popen(
            # It lives for seconds: what the better compiler costs is not earned back.
            [executable, "-XX:TieredStopAtLevel=1", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one thread, and nothing but a system call
        )
        signal.signal(signal.SIGTERM, lambda *_: consumer.terminate())
        assert consumer.stdout is not None
        with consumer.stdout as stdout:
            _Interpreter().read(stdout)
        consumer.wait()
    # Its shutdown hook leaves the group before the process ends.
    say("closed")
