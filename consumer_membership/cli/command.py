"""The arguments of all subcommands, and which code each runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from consumer_membership import __version__
from consumer_membership.cli.asking import Asking
from consumer_membership.cli.consume import ConsumeOptions, consume
from consumer_membership.cli.describe import DescribeOptions, describe
from consumer_membership.cli.removal import RemovalOptions, remove_members
from consumer_membership.demo.brokers import WAYS
from consumer_membership.demo.run import DemoOptions, run_demo
from consumer_membership.devbroker import DEFAULT_VERSION, SUPPORTED_VERSIONS, Way
from consumer_membership.devbroker.foreground import run_foreground
from consumer_membership.text import excerpt, problem_of

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
_DESCRIBE = """\
Shows what a group is, who its members are and what they have, and how far the
group is in each partition; groups of the consumer protocol (KIP-848) and
classic ones. Needs the ACL operation DESCRIBE on the group and its topics.

examples:
  consumer-membership describe -b localhost:9092 -g orders
  consumer-membership describe -b localhost:9092 -g orders --json | jq .lag
"""
_REMOVE = """\
Removes members from a group on their behalf, static and dynamic ones, of both
protocols: their partitions go to the others at once. Where the process still
runs, a dynamic member comes back at its next heartbeat; a static one of this
package ends with a fatal error, and one of another client comes back: stop the
process first. Asks nothing; --dry-run shows who is meant. Needs the ACL operation READ on the
group. Exits with 1 if any of them could not be removed.

examples:
  consumer-membership remove-members -b localhost:9092 -g orders --instance-id orders-3 --dry-run
  consumer-membership remove-members -b localhost:9092 -g orders --all --reason 'moving to another cluster'
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
    _add_describe(_command(commands, "describe", "show a group, its members and its lag", _DESCRIBE))
    _add_removal(_command(commands, "remove-members", "remove members from a group", _REMOVE))
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


def _add_group(parser: argparse.ArgumentParser) -> None:
    """Which group, of which cluster, and how to get there."""
    add = parser.add_argument
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    add(
        "-b",
        "--bootstrap-servers",
        default=servers,
        type=_text,
        metavar="HOST:PORT",
        help="several with commas (default: $KAFKA_BOOTSTRAP_SERVERS)",
    )
    add("-g", "--group", required=True, type=_text, help="group.id")
    add(
        "-c",
        "--config",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="any other configuration key; may be repeated",
    )


def _add_consume(parser: argparse.ArgumentParser) -> None:
    _add_group(parser)
    add = parser.add_argument
    help_of_topic = "a name, or a regular expression that begins with ^"
    add("-t", "--topic", action="append", required=True, type=_text, help=help_of_topic)
    add("--instance-id", type=_text, metavar="I", help="group.instance.id: be a static member")
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


def _add_asking(parser: argparse.ArgumentParser) -> None:
    _add_group(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument(
        "--timeout",
        type=_at_least(0.001, float),
        metavar="S",
        help="seconds for it all, attempts included (default 30)",
    )


def _add_describe(parser: argparse.ArgumentParser) -> None:
    _add_asking(parser)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--members", action="store_true", help="the members only; asks for no offsets")
    part.add_argument("--offsets", action="store_true", help="the partitions only: committed, end, lag, owner")
    parser.set_defaults(run=_describe)


def _add_removal(parser: argparse.ArgumentParser) -> None:
    _add_asking(parser)
    add = parser.add_argument
    add(
        "--instance-id", action="append", default=[], type=_text, metavar="I", help="a static member's; may be repeated"
    )
    add("--member-id", action="append", default=[], type=_text, metavar="M", help="of any member; may be repeated")
    add("--all", action="store_true", help="every member")
    add("--dry-run", action="store_true", help="remove nobody, show who is meant")
    add("--reason", type=_text, metavar="TEXT", help="for the coordinator's log")
    parser.set_defaults(run=lambda options: _remove_members(options, parser))


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


def _config(options: argparse.Namespace) -> dict[str, object]:
    config: dict[str, object] = dict(options.config)
    if options.bootstrap_servers is not None and "bootstrap.servers" not in config:
        config["bootstrap.servers"] = options.bootstrap_servers
    return config


def _asking(options: argparse.Namespace) -> Asking:
    return Asking(config=_config(options), group=options.group, is_json=options.json, timeout_s=options.timeout)


def _describe(options: argparse.Namespace) -> int:
    chosen = DescribeOptions(
        asking=_asking(options), shows_members=not options.offsets, shows_offsets=not options.members
    )
    return describe(chosen, sys.stdout, sys.stderr)


def _remove_members(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    named = bool(options.instance_id or options.member_id)
    if options.all and named:
        parser.error("argument --all: not allowed with --instance-id or --member-id")
    if not options.all and not named:
        parser.error("one of the arguments --instance-id --member-id --all is required")
    chosen = RemovalOptions(
        asking=_asking(options),
        instance_ids=tuple(options.instance_id),
        member_ids=tuple(options.member_id),
        everyone=options.all,
        reason=options.reason,
        is_dry_run=options.dry_run,
    )
    return remove_members(chosen, sys.stdout, sys.stderr)


def _consume(options: argparse.Namespace) -> int:
    config = _config(options)
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


def _text(given: str) -> str:
    """Text that Kafka can be told: an argument with bytes that are not UTF-8 is none."""
    problem = problem_of(given)
    if problem is not None:
        raise argparse.ArgumentTypeError(f"{excerpt(given)!a} cannot be told to Kafka: {problem}")
    return given


def _key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise argparse.ArgumentTypeError(f"{excerpt(text)!a} is not KEY=VALUE")
    # The value may be a secret, and a long text such as a certificate.
    problem = problem_of(key) or problem_of(value, None, is_secret=True)
    if problem is not None:
        raise argparse.ArgumentTypeError(f"{excerpt(key)!a} cannot be set so: {problem}")
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
