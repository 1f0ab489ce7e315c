"""The clients whose verifiable consumers the scenarios start, and the command line of each."""

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
#: slf4j-simple's name of the stream.
_STDERR = Path("System.err")


class Client(StrEnum):
    """The clients, in the order of the table."""

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
    """The options of a verifiable consumer that a scenario sets; Kafka's service has the same."""

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
            # A broker's class data archive is for its own class path.
            java = replace(java_for(NEWEST), classpath=tools_classpath(), archive=Path("none"))
            executable, *rest = java.command(_MAIN, *arguments, log=_STDERR)
            # The process lives for seconds, in which the second compiler costs more CPU time than it saves.
            return [executable, "-XX:TieredStopAtLevel=1", *rest]


def arguments(
    options: MemberOptions, *, bootstrap_servers: str, group: str, topic: str, instance_id: str | None
) -> list[str]:
    """Return the arguments that all verifiable consumers accept."""
    words = ["--bootstrap-server", bootstrap_servers, "--group-id", group, "--topic", topic]
    words += ["--reset-policy", "earliest", "--group-protocol", options.protocol]
    if options.protocol is GroupProtocol.CLASSIC:
        # Java refuses it under the consumer protocol, where the broker sets the session timeout.
        words += ["--session-timeout", str(options.session_timeout_s * 1000)]
        words += ["--assignment-strategy", ",".join(JAVA_CLASSES[one] for one in options.strategies)]
    elif options.remote_assignor is not None:
        words += ["--group-remote-assignor", options.remote_assignor]
    if instance_id is not None:
        words += ["--group-instance-id", instance_id]
    if options.is_auto_commit:
        words.append("--enable-autocommit")
    return words
