"""The clients whose verifiable consumers the scenarios start, and their command lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from consumer_membership.devbroker.java import java_for
from tests.support.partners.tools_jars import tools_classpath
from tests.support.versions import NEWEST

_MAIN = "org.apache.kafka.tools.VerifiableConsumer"
_PACKAGE = "org.apache.kafka.clients.consumer"
#: slf4j-simple writes its log to this stream.
_STDERR = Path("System.err")


class Client(StrEnum):
    """The clients, in the order of the result table."""

    OURS = "ours"
    JAVA = "java"
    CONFLUENT = "confluent"


class Strategy(StrEnum):
    """Kafka's assignors of classic groups, as values of `partition.assignment.strategy`."""

    RANGE = "range"
    ROUNDROBIN = "roundrobin"
    STICKY = "sticky"
    COOPERATIVE_STICKY = "cooperative-sticky"


class GroupProtocol(StrEnum):
    """The group protocols."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


JAVA_CLASSES: Mapping[Strategy, str] = MappingProxyType(
    {
        Strategy.RANGE: f"{_PACKAGE}.RangeAssignor",
        Strategy.ROUNDROBIN: f"{_PACKAGE}.RoundRobinAssignor",
        Strategy.STICKY: f"{_PACKAGE}.StickyAssignor",
        Strategy.COOPERATIVE_STICKY: f"{_PACKAGE}.CooperativeStickyAssignor",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """The options of a verifiable consumer that a scenario sets, as in Kafka's `verifiable_consumer.py`."""

    protocol: GroupProtocol = GroupProtocol.CLASSIC
    strategies: tuple[Strategy, ...] = (Strategy.RANGE,)
    remote_assignor: str | None = "range"
    is_auto_commit: bool = False
    session_timeout_s: int = 10

    @property
    def is_eager(self) -> bool:
        """Whether each rebalance revokes all partitions."""
        return self.protocol is GroupProtocol.CLASSIC and self.strategies != (Strategy.COOPERATIVE_STICKY,)


def command(client: Client, arguments: list[str]) -> list[str]:
    """Return the command line of a client's verifiable consumer with these arguments.

    Raises:
        RuntimeError: Java's jars are missing and could not be fetched.
    """
    match client:
        case Client.OURS:
            return [sys.executable, "-m", "consumer_membership.kafkatest", *arguments]
        case Client.CONFLUENT:
            return [sys.executable, "-m", "tests.kafkatest.confluent_consumer", *arguments]
        case Client.JAVA:
            # Without a class data archive: the broker's archive fits the broker's class path only.
            java = replace(java_for(NEWEST), classpath=tools_classpath(), archive=Path("none"))
            executable, *rest = java.command(_MAIN, *arguments, log=_STDERR)
            # The process runs for seconds only, so the JVM's second compiler costs more CPU time than it saves.
            return [executable, "-XX:TieredStopAtLevel=1", *rest]


def arguments(
    options: MemberOptions, *, bootstrap_servers: str, group: str, topic: str, instance_id: str | None
) -> list[str]:
    """Return the arguments that all verifiable consumers accept."""
    found = ["--bootstrap-server", bootstrap_servers, "--group-id", group, "--topic", topic]
    found += ["--reset-policy", "earliest", "--group-protocol", options.protocol]
    if options.protocol is GroupProtocol.CLASSIC:
        # Only for the classic protocol: under the consumer protocol the broker sets the session timeout.
        found += ["--session-timeout", str(options.session_timeout_s * 1000)]
        found += ["--assignment-strategy", ",".join(JAVA_CLASSES[strategy] for strategy in options.strategies)]
    elif options.remote_assignor is not None:
        found += ["--group-remote-assignor", options.remote_assignor]
    if instance_id is not None:
        found += ["--group-instance-id", instance_id]
    if options.is_auto_commit:
        found.append("--enable-autocommit")
    return found
