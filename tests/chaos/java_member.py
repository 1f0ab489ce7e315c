"""The command line of a member that uses the Java consumer (`tests/support/java/ChaosMember.java`)."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.chaos.plan import PASSWORD, POLL_INTERVAL_S, SESSION_S, USER, MemberPlan
from tests.support.java_programs import compile_program, program_command

_PROGRAM = "ChaosMember"
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PACKAGE = "org.apache.kafka.clients.consumer"
_STRATEGIES = {
    "range": f"{_PACKAGE}.RangeAssignor",
    "cooperative-sticky": f"{_PACKAGE}.CooperativeStickyAssignor",
}


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """Compile the program once for all rounds; the folder is deleted at the end of this process."""
    folder = tempfile.TemporaryDirectory(prefix="chaos-java-")
    compile_program(_PROGRAM, Path(folder.name))
    return folder


def java_command(plan: MemberPlan, process: str, group: str, topic: str, servers: str, folder: Path) -> list[str]:
    """Return the command line of the member's process."""
    properties = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": process,
        "group.protocol": "classic",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "max.poll.interval.ms": str(int(POLL_INTERVAL_S * 1000)),
        "session.timeout.ms": str(int(SESSION_S * 1000)),
        "heartbeat.interval.ms": "500",
        "metadata.max.age.ms": "2000",
        "partition.assignment.strategy": _STRATEGIES[plan.strategy],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_LOGIN_MODULE} required username="{USER}" password="{PASSWORD}";',
    }
    kind = f"{plan.loop} {plan.identity} {plan.protocol}"
    arguments = [process, group, topic, str(folder), plan.instance_id or "", kind]
    arguments += [f"{name}={value}" for name, value in properties.items()]
    return program_command(_PROGRAM, Path(_compiled().name), arguments)
