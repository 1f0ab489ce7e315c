"""The command line of a verifiable consumer, and the configuration that it means.

The names, defaults and precedence are those of Java's VerifiableConsumer: options on the command line override the
properties file.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_JAVA_ASSIGNORS: Mapping[str, str] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiableOptions:
    """The options of one verifiable consumer.

    Attributes:
        topic: The topic to subscribe to.
        max_messages: The number of records after which the consumer closes; None: no limit.
        is_verbose: Whether each record is reported.
        is_auto_commit: Whether the consumer commits automatically; otherwise each reported batch is committed.
        config: The consumer's configuration.
    """

    topic: str
    max_messages: int | None
    is_verbose: bool
    is_auto_commit: bool
    config: Mapping[str, str | int | bool]


def parse(arguments: Sequence[str]) -> VerifiableOptions:
    """Return the options on a command line; an invalid command line ends the process with the usage on stderr."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        config: dict[str, str | int | bool] = dict(_properties(given.config)) if given.config else {}
    except (OSError, ValueError) as error:
        parser.error(f"--consumer.config: {error}")
    return VerifiableOptions(
        topic=given.topic,
        max_messages=given.max_messages if given.max_messages >= 0 else None,
        is_verbose=given.verbose,
        is_auto_commit=given.enable_autocommit,
        config=config | _config(given),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m consumer_membership.kafkatest",
        description="Consume a topic as a group member, and write each event to stdout as one JSON object per line.",
    )
    brokers = parser.add_mutually_exclusive_group(required=True)
    brokers.add_argument("--bootstrap-server", dest="brokers", metavar="HOST:PORT,...", help="the brokers")
    brokers.add_argument(
        "--broker-list",
        dest="brokers",
        metavar="HOST:PORT,...",
        help="the brokers, as tests of older clients name them",
    )
    parser.add_argument("--topic", required=True, help="the topic to consume")
    parser.add_argument("--group-id", required=True, help="the consumer group")
    parser.add_argument("--group-instance-id", metavar="ID", help="the id of a static member")
    parser.add_argument(
        "--group-protocol",
        type=str.lower,
        choices=("classic", _CONSUMER),
        default="classic",
        help="the group protocol; default: classic",
    )
    parser.add_argument(
        "--group-remote-assignor", metavar="NAME", help="the broker's assignor, with --group-protocol consumer"
    )
    parser.add_argument(
        "--assignment-strategy",
        type=_strategies,
        default="range",
        metavar="NAMES",
        help="comma-separated assignors, for --group-protocol classic: Java's class names, or values of "
        "partition.assignment.strategy; default: range",
    )
    parser.add_argument(
        "--session-timeout",
        type=int,
        default=30_000,
        metavar="MS",
        help="the session timeout in ms, for --group-protocol classic; default: 30000",
    )
    parser.add_argument("--enable-autocommit", action="store_true", help="commit automatically, not after each batch")
    parser.add_argument(
        "--max-messages", type=int, default=-1, metavar="N", help="close after N records; default: -1, no limit"
    )
    parser.add_argument(
        "--reset-policy",
        choices=("earliest", "latest", "none"),
        default="earliest",
        help="the start without a committed offset; default: earliest",
    )
    parser.add_argument("--verbose", action="store_true", help="also report each record")
    parser.add_argument(
        "--consumer.config",
        "--command-config",
        dest="config",
        type=Path,
        metavar="FILE",
        help="a properties file with confluent-kafka's configuration keys; options of this command line override it",
    )
    return parser


def _config(given: argparse.Namespace) -> dict[str, str | int | bool]:
    config: dict[str, str | int | bool] = {
        "bootstrap.servers": given.brokers,
        "group.id": given.group_id,
        "group.protocol": given.group_protocol,
        "enable.auto.commit": given.enable_autocommit,
        "auto.offset.reset": "error" if given.reset_policy == "none" else given.reset_policy,
    }
    if given.group_instance_id:
        config["group.instance.id"] = given.group_instance_id
    if given.group_protocol != _CONSUMER:
        config["partition.assignment.strategy"] = given.assignment_strategy
        config["session.timeout.ms"] = given.session_timeout
    elif given.group_remote_assignor:
        config["group.remote.assignor"] = given.group_remote_assignor
    return config


def _strategies(text: str) -> str:
    names = [part.strip().removeprefix(_JAVA_PACKAGE) for part in text.split(",")]
    return ",".join(_JAVA_ASSIGNORS.get(name, name) for name in names)


def _properties(path: Path) -> Mapping[str, str]:
    """Return the keys and values of a properties file; lines that are empty or start with # or ! are skipped.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line has no `=`.
    """
    properties: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"line {number} of {path} is not key=value: {text!r}")
        properties[key.strip()] = value.strip()
    return properties
