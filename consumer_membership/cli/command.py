"""The arguments of all subcommands, and which code each runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from consumer_membership import __version__
from consumer_membership.cli.consume import ConsumeOptions, consume
from consumer_membership.demo.cluster import WAYS
from consumer_membership.demo.run import DemoOptions, run_demo
from consumer_membership.devbroker import DEFAULT_VERSION, SUPPORTED_VERSIONS, Way
from consumer_membership.devbroker.foreground import run_foreground

_Number = TypeVar("_Number", int, float)

_DESCRIPTION = "Kafka consumer groups whose membership (KIP-848) you can see."
_CONSUME = """\
Prints the records of topics as a member of a group: records on stdout, what
happens to the membership on stderr. Ctrl-C commits what was printed, leaves the
group and exits with 0.

examples:
  consumer-membership consume -b localhost:9092 -g look -t orders
  consumer-membership consume -b localhost:9092 -g look -t '^order.*' --json
"""
_DEMO = """\
Starts a real Kafka, a stream of numbered records and members as processes of
their own; shows a scale-out from one to three members, a clean leave and a
kill -9; then checks that every record was seen, that only the killed member's
were seen twice, and that committed offsets = end offsets. Exits with 0 if that
holds, else with 1.
"""
_BROKER = """\
Runs a real Kafka on free ports of this machine until Ctrl-C, in Docker if there
is an engine, else in a local Java. Where KAFKA_BOOTSTRAP_SERVERS names a broker
it only shows that one.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` by default); the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="consumer-membership", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(_command(commands, "demo", "show a group at work on a real broker, and check it", _DEMO))
    _add_consume(_command(commands, "consume", "print records, and what happens to the membership", _CONSUME))
    _add_broker(_command(commands, "broker", "run a real Kafka until Ctrl-C", _BROKER))
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, description: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add_demo(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--version", choices=SUPPORTED_VERSIONS, metavar="V", help=f"Kafka's version (default {DEFAULT_VERSION})")
    add("--partitions", type=_at_least(3, int), default=12, metavar="N", help="of the topic (default %(default)s)")
    add("--rate", type=_at_least(1, int), default=2_000, metavar="R", help="records per second (default %(default)s)")
    add(
        "--seconds",
        type=_at_least(0, float),
        default=3.0,
        metavar="S",
        help="to look at each step's result (default 3)",
    )
    add("--way", choices=WAYS, help="where the broker comes from (default: the first of these that can be had)")
    add("--plain", action="store_true", help="lines instead of the live table, as when stdout is no terminal")
    parser.set_defaults(run=_demo)


def _add_consume(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    add(
        "-b",
        "--bootstrap-servers",
        default=servers,
        metavar="HOST:PORT",
        help="several with commas (default: $KAFKA_BOOTSTRAP_SERVERS)",
    )
    add("-g", "--group", required=True, help="group.id")
    add("-t", "--topic", action="append", required=True, help="a name, or a regular expression that begins with ^")
    add("--instance-id", metavar="I", help="group.instance.id: be a static member")
    add(
        "-c",
        "--config",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="any other configuration key; may be repeated",
    )
    add("--json", action="store_true", help="one JSON object per record; bytes that are not UTF-8 as base64")
    add(
        "--from-beginning",
        action="store_true",
        help="begin at the oldest record, where the group has committed nothing",
    )
    add("-n", "--max-records", type=_at_least(1, int), metavar="MAX", help="leave after so many records")
    add("--timeout", type=_at_least(0, float), metavar="S", help="leave after so many seconds without a record")
    add("-v", "--verbose", action="count", default=0, help="the log on stderr too; twice: heartbeats as well")
    parser.set_defaults(run=_consume)


def _add_broker(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--version", choices=SUPPORTED_VERSIONS, metavar="V", help=f"{', '.join(SUPPORTED_VERSIONS)}")
    add("--nodes", type=_at_least(1, int), metavar="N", help="how many nodes (default 1)")
    add("--port", type=_at_least(1, int), metavar="P", help="the first node's port (default: free ones)")
    add("--way", choices=[way.value for way in Way], help="default: the first of these that can be had")
    add(
        "-p",
        "--property",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="a broker property; may be repeated",
    )
    parser.set_defaults(run=_broker)


def _demo(options: argparse.Namespace) -> int:
    chosen = DemoOptions(
        way=options.way,
        version=options.version,
        partitions=options.partitions,
        rate=options.rate,
        hold_s=options.seconds,
        is_plain=options.plain,
    )
    return run_demo(chosen, sys.stdout)


def _consume(options: argparse.Namespace) -> int:
    config: dict[str, object] = dict(options.config)
    if options.bootstrap_servers is not None and "bootstrap.servers" not in config:
        config["bootstrap.servers"] = options.bootstrap_servers
    config["group.id"] = options.group
    if options.instance_id is not None:
        config["group.instance.id"] = options.instance_id
    if options.from_beginning:
        config["auto.offset.reset"] = "earliest"
    chosen = ConsumeOptions(
        topics=tuple(options.topic),
        config=config,
        is_json=options.json,
        max_records=options.max_records,
        timeout_s=options.timeout,
        verbosity=options.verbose,
    )
    return consume(chosen, sys.stdout, sys.stderr)


def _broker(options: argparse.Namespace) -> int:
    way = Way(options.way) if options.way is not None else None
    return run_foreground(
        options.version, options.nodes, dict(options.property), sys.stdout, port=options.port, way=way
    )


# ---- argument types -------------------------------------------------------------------------------------------------


def _key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def _at_least(least: _Number, kind: type[_Number]) -> Callable[[str], _Number]:
    def number(text: str) -> _Number:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number
