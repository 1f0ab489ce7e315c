"""Define the subcommands: arguments, help, exit codes, and the function that each one runs."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from consumer_membership import __version__
from consumer_membership.cli import run
from consumer_membership.cli.argument_types import (
    at_least,
    duration,
    group_state,
    key_and_value,
    offset_range,
    seconds,
    sendable_text,
)
from consumer_membership.cli.consume import ConsumeOptions, consume
from consumer_membership.cli.doctor import DoctorOptions, examine
from consumer_membership.cli.groups import DescribeOptions, GroupQuery, RemovalOptions, describe, remove_members
from consumer_membership.cli.overview import STATES, LagOptions, ListOptions, list_groups, show_lag
from consumer_membership.cli.replay import REPLAY_DESCRIPTION, REPLAY_EXAMPLES, REPLAY_EXITS, ReplayOptions, replay
from consumer_membership.cli.timeline import TimelineOptions, draw_timeline
from consumer_membership.demo.brokers import BACKENDS
from consumer_membership.demo.run import DemoOptions, run_demo
from consumer_membership.devbroker import DEFAULT_VERSION, SUPPORTED_VERSIONS, Backend
from consumer_membership.devbroker.foreground import run_foreground

_TEN_MINUTES_S = 600.0

_DESCRIPTION = "Consume from Kafka, and inspect, diagnose and repair consumer groups."
_CONSUME = """\
Join a consumer group and print records on stdout. Membership events (state
changes, assignments, errors) go to stderr. Ctrl-C commits the offsets of the
printed records and leaves the group.
"""
_CONSUME_EXAMPLES = """\
  consumer-membership consume -b localhost:9092 -g billing -t orders
  consumer-membership consume -b localhost:9092 -g billing -t '^order.*' --json
"""
_DESCRIBE = """\
Show the state of a consumer group, its members with their assignments, and the
committed offset, end offset and lag of each partition. Works for groups of the
consumer protocol (KIP-848) and of the classic protocol. Requires the ACL
operation DESCRIBE on the group and on its topics.
"""
_DESCRIBE_EXAMPLES = """\
  consumer-membership describe -b localhost:9092 -g orders
  consumer-membership describe -b localhost:9092 -g orders --json | jq .lag
"""
_LIST = """\
List the groups of a cluster: consumer, classic, share and streams groups. The
list contains only groups that this client may describe.
"""
_LIST_EXAMPLES = """\
  consumer-membership list -b localhost:9092
  consumer-membership list -b localhost:9092 --state Empty --type classic --json
"""
_LAG = """\
Show the lag of a consumer group, largest first. With --watch, repeat until
Ctrl-C and add the consumption rate, the production rate and the estimated time
until the lag is zero. With --watch and --json, each sample is one line.
Requires the ACL operation DESCRIBE on the group and on its topics.
"""
_LAG_EXAMPLES = """\
  consumer-membership lag -b localhost:9092 -g orders
  consumer-membership lag -b localhost:9092 -g orders --watch --interval 5
"""
_DOCTOR = """\
Observe a consumer group for some seconds and print findings with evidence and
a fix, root causes first. Works with any client library. The checks cover
access rights, the coordinator, topics, partition leaders, committed offsets,
open transactions, stalled members and partitions, static members that are
away, rebalances, assignments and broker limits. Requires the ACL operation
DESCRIBE on the group and on its topics; the report lists every request that
was denied.
"""
_DOCTOR_EXAMPLES = """\
  consumer-membership doctor -b localhost:9092 -g orders
  consumer-membership doctor -b localhost:9092 -g orders --seconds 30 --json
"""
_TIMELINE = """\
Write one HTML file that shows the owner of each partition over time, each
change of the group with its cause, standstills, and lag. Works with any client
library. --last reads the past from __consumer_offsets. --for samples the group
from now on; Ctrl-C stops early and writes the page. Without either option, the
page shows the last ten minutes and the next ten. --recording adds the
recordings of members of this package (consumer.dump(), recorder.directory),
with exact times. Requires the ACL operation DESCRIBE on the group and on its
topics; --last also requires READ on the topic __consumer_offsets.
"""
_TIMELINE_EXAMPLES = """\
  consumer-membership timeline -b localhost:9092 -g orders --last 10m -o group.html
  consumer-membership timeline -b localhost:9092 -g orders --for 10m -o group.html
  consumer-membership timeline -b localhost:9092 -g orders --last 1h -o group.html --recording a.gz b.gz
"""
_WATCH = """\
Show a consumer group as a live screen: members, partitions that move, and lag,
consumption rate and stall time of each partition. Works with any client
library.

keys:
  l, p, o, s              sort by lag, partition, owner or stall time
  f                       filter: all, with lag, stalled, moving
  j, k, arrows            scroll by one line
  space, b, Page Up/Down  scroll by one page
  g, G, Home, End         go to the first or last line
  m                       switch scrolling between partitions and members
  q                       quit
"""
_WATCH_EXAMPLES = """\
  consumer-membership watch -b localhost:9092 -g orders
"""
_REMOVE = """\
Remove static or dynamic members from a consumer group (KIP-345), of either
protocol. The remaining members receive the partitions immediately. If the
process of a removed member still runs, a dynamic member joins again; a static
member of this package stops with a fatal error; a static member of another
client joins again. Stop the process first to keep it out. The command does not
ask for confirmation; use --dry-run to check. Requires the ACL operation READ
on the group; --all and --dry-run also require DESCRIBE on the group and on its
topics.
"""
_REMOVE_EXAMPLES = """\
  consumer-membership remove-members -b localhost:9092 -g orders --instance-id orders-3 --dry-run
  consumer-membership remove-members -b localhost:9092 -g orders --all --reason 'moving to another cluster'
"""
_DEAD_LETTERS = """\
List, show or replay the records of a dead-letter topic. Reads the headers that
this package, Spring Kafka and Kafka Connect write.

  list    print a table with the original record and the error of each one
  show    print all headers, the key, the value and the stack trace
  replay  put the records back to their original topics, once each

Each transaction of a replay contains records and the offsets of their dead
letters in the group of the replay. If the command is interrupted or fails, run
it again: it continues after the last committed transaction. A replay ends at
the offsets that are the ends when it starts. The consumers of the original
topics need isolation.level=read_committed. Requires the ACL operation READ on
the topic; replay also requires READ on the group, WRITE on the original topics
and WRITE on the transactional id, which is the name of the group.
"""
_DEAD_LETTERS_EXAMPLES = """\
  consumer-membership dead-letters orders.dlq list -b localhost:9092
  consumer-membership dead-letters orders.dlq show -b localhost:9092 --partition 0 --offsets 17
  consumer-membership dead-letters orders.dlq replay -b localhost:9092 --exception TimeoutError --dry-run
"""
_CHECKPOINT = """\
Show or convert the Kafka offsets in the checkpoint of a Spark streaming query:

  show        print the query id, the batches and the offsets
  to-group    commit the offsets to a consumer group
  from-group  create a checkpoint that starts at a group's committed offsets
  to-kafka    rewrite the checkpoint of a kafka-group query, so that the query
              continues with format("kafka")

to-group, from-group and to-kafka change nothing without --execute. Stop the
query and the members of the group first. A running kafka-group query is
detected; an idle query of spark-sql-kafka is not. The command reads local
folders; for other file systems (hdfs://, s3a://) use
consumer_membership.spark.CheckpointFolder.
"""
_CHECKPOINT_EXAMPLES = """\
  consumer-membership checkpoint show /data/orders/checkpoint
  consumer-membership checkpoint to-group /data/orders/checkpoint -b localhost:9092 -g orders --execute
  consumer-membership checkpoint from-group /data/orders/new -b localhost:9092 -g orders --execute
  consumer-membership checkpoint to-kafka /data/orders/checkpoint -b localhost:9092 --execute
"""
_DEMO = """\
Start an Apache Kafka broker, produce numbered records, and run consumers in
separate processes. The demo scales out from one member to three, stops one
member cleanly and kills another with SIGKILL. Then it checks that every record
was consumed, that only records of the killed member were consumed twice, and
that the committed offsets equal the end offsets.
"""
_DEMO_EXAMPLES = """\
  consumer-membership demo
  consumer-membership demo --plain --backend jvm
"""
_BROKER = """\
Run an Apache Kafka broker on free local ports until Ctrl-C. The broker runs in
Docker if an engine is available, otherwise in a local JVM. Its data is deleted
at the end. If KAFKA_BOOTSTRAP_SERVERS is set, print that broker's address and
exit.
"""
_BROKER_EXAMPLES = """\
  consumer-membership broker
  consumer-membership broker --version 4.4.0 --nodes 3 --port 9092 -p group.max.size=100
"""

#: The exit codes of most commands that send requests to a cluster; Ctrl-C has the code that shells use for SIGINT.
_EXITS: Mapping[int, str] = {
    0: "success",
    1: "a broker rejected a request or did not respond, or the output cannot be written",
    2: "invalid argument or configuration",
    130: "interrupted by Ctrl-C",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` by default) and return the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="consumer-membership", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for flags, how in command.arguments:
            sub.add_argument(*flags.split(), **how)
        exclusive = sub.add_mutually_exclusive_group() if command.exclusive else sub
        for flags, how in command.exclusive:
            exclusive.add_argument(*flags.split(), **how)
        sub.set_defaults(run=command.run, parser=sub, bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS"))
    return parser


# ---- what each command runs -----------------------------------------------------------------------------------------


def _demo(options: argparse.Namespace) -> int:
    chosen = DemoOptions(
        backend=options.backend,
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


def _query(options: argparse.Namespace) -> GroupQuery:
    return GroupQuery(config=_config(options), group=options.group, is_json=options.json, timeout_s=options.timeout)


def _describe(options: argparse.Namespace) -> int:
    chosen = DescribeOptions(
        query=_query(options), shows_members=not options.offsets, shows_offsets=not options.members
    )
    return describe(chosen, sys.stdout, sys.stderr)


def _list(options: argparse.Namespace) -> int:
    chosen = ListOptions(
        config=_config(options),
        states=frozenset(options.state),
        types=frozenset(options.type),
        is_json=options.json,
        timeout_s=options.timeout,
    )
    return list_groups(chosen, sys.stdout, sys.stderr)


def _lag(options: argparse.Namespace) -> int:
    chosen = LagOptions(
        query=_query(options), watches=options.watch, interval_s=options.interval, samples=options.samples
    )
    return show_lag(chosen, sys.stdout, sys.stderr)


def _doctor(options: argparse.Namespace) -> int:
    return examine(DoctorOptions(query=_query(options), seconds=options.seconds), sys.stdout, sys.stderr)


def _timeline(options: argparse.Namespace) -> int:
    chosen = TimelineOptions(
        query=GroupQuery(config=_config(options), group=options.group, timeout_s=options.timeout),
        output=Path(options.output),
        seconds=options.seconds if options.seconds is not None else _TEN_MINUTES_S * (options.last is None),
        interval_s=options.interval,
        last_s=options.last if options.last is not None else _TEN_MINUTES_S * (options.seconds is None),
        recordings=tuple(map(Path, options.recording)),
    )
    return draw_timeline(chosen, sys.stdout, sys.stderr)


def _watch(options: argparse.Namespace) -> int:
    # Only this command needs a POSIX terminal and rich.
    try:
        from consumer_membership.cli.watch import watch_group
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "rich":
            raise
        from consumer_membership.installation import install_command

        sys.stderr.write(f"consumer-membership watch: the library rich is missing; run: {install_command('cli')}\n")
        return 1
    query = GroupQuery(config=_config(options), group=options.group, timeout_s=options.timeout)
    return watch_group(query, options.interval, sys.stdout, sys.stderr)


def _remove_members(options: argparse.Namespace) -> int:
    named = bool(options.instance_id or options.member_id or options.static_member)
    if options.all and named:
        options.parser.error("argument --all: not allowed with ids of members")
    if not options.all and not named:
        options.parser.error("one of --instance-id, --member-id, --static-member and --all is required")
    chosen = RemovalOptions(
        query=_query(options),
        instance_ids=tuple(options.instance_id),
        member_ids=tuple(options.member_id),
        static_members=dict(options.static_member),
        all_members=options.all,
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


def _replay(options: argparse.Namespace) -> int:
    chosen = ReplayOptions(
        path=Path(options.file),
        until_s=options.until,
        is_stepwise=options.step,
        explains=options.explain,
        is_json=options.json,
    )
    return replay(chosen, sys.stdout, sys.stderr)


def _dead_letters(options: argparse.Namespace) -> int:
    # Only this command needs the modules of processors.
    from consumer_membership.cli.dead_letters import DeadLetterOptions, dead_letters
    from consumer_membership.processing.dead_letter_topic import LetterSelection

    if options.action != "replay":
        for name in ("group", "to", "dry_run"):
            if getattr(options, name):
                options.parser.error(f"argument --{name.replace('_', '-')}: only replay accepts it")
    first, last = options.offsets or (0, None)
    chosen = DeadLetterOptions(
        topic=options.topic,
        action=options.action,
        config=_config(options),
        selection=LetterSelection(
            partitions=frozenset(options.partition),
            first_offset=first,
            last_offset=last,
            exception=options.exception,
            original_topic=options.original_topic,
            most=options.max_records,
        ),
        group=options.group,
        to=options.to,
        is_dry_run=options.dry_run,
        is_json=options.json,
        timeout_s=options.timeout,
    )
    return dead_letters(chosen, sys.stdout, sys.stderr)


def _checkpoint(options: argparse.Namespace) -> int:
    # Only this command needs the Spark modules.
    from consumer_membership.cli.checkpoint import CheckpointOptions, checkpoint

    chosen = CheckpointOptions(
        action=options.action,
        path=options.path,
        config=_config(options),
        group=options.group,
        source=options.source,
        executes=options.execute,
        is_json=options.json,
    )
    return checkpoint(chosen, sys.stdout, sys.stderr)


def _broker(options: argparse.Namespace) -> int:
    backend = Backend(options.backend) if options.backend is not None else None
    return run_foreground(
        options.version,
        options.nodes,
        dict(options.property),
        sys.stdout,
        sys.stderr,
        port=options.port,
        backend=backend,
    )


# ---- the commands and their arguments -------------------------------------------------------------------------------


#: The flags in one string, and the keyword arguments of `add_argument`.
_Argument: TypeAlias = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: help, exit codes and arguments; at most one of its `exclusive` arguments may be given."""

    name: str
    summary: str
    description: str
    examples: str
    exits: Mapping[int, str]
    run: Callable[[argparse.Namespace], int]
    arguments: tuple[_Argument, ...]
    exclusive: tuple[_Argument, ...] = ()

    @property
    def epilog(self) -> str:
        """The end of the help: exit codes and examples."""
        lines = (
            textwrap.fill(text, 78, initial_indent=f"  {code:<4} ", subsequent_indent=" " * 7)
            for code, text in self.exits.items()
        )
        return "exit codes:\n{}\n\nexamples:\n{}".format("\n".join(lines), self.examples)


def _takes(flags: str, metavar: str | None, help_text: str, **how: object) -> _Argument:
    """Return an argument with a value, which is a string unless another type is given."""
    return flags, {"metavar": metavar, "help": help_text, "type": sendable_text, **how}


def _repeated(flags: str, metavar: str | None, help_text: str, **how: object) -> _Argument:
    """Return an argument that may be repeated."""
    return _takes(flags, metavar, help_text, action="append", **how)


def _flag(flags: str, help_text: str, **how: object) -> _Argument:
    return flags, {"action": "store_true", "help": help_text, **how}


_COUNT, _NUMBER = at_least(1, int), seconds(0)
_BROKER_BACKENDS = [backend.value for backend in Backend]
_BACKEND_HELP = "where the broker runs (default: the first one that is available)"
_CLUSTER = (
    _takes(
        "-b --bootstrap-servers",
        "HOST:PORT",
        "comma-separated list of host:port (default: $KAFKA_BOOTSTRAP_SERVERS)",
    ),
    _repeated(
        "-c --config", "KEY=VALUE", "set a configuration property; may be repeated", type=key_and_value, default=[]
    ),
)
_GROUP = (*_CLUSTER, _takes("-g --group", "GROUP", "group id", required=True))
_OUTPUT = (
    _flag("--json", "print one JSON object instead of tables"),
    _takes("--timeout", "SECONDS", "total timeout, including retries (default: 30)", type=seconds(0.001)),
)
_QUERY = (*_GROUP, *_OUTPUT)
_SAMPLE_TIMEOUT = _takes("--timeout", "SECONDS", "timeout of each sample (default: 30)", type=seconds(0.001))
_TYPES = ("classic", "consumer", "share", "streams")
COMMANDS = (
    Command(
        "demo",
        "run a consumer group on a real broker and check the result",
        _DEMO,
        _DEMO_EXAMPLES,
        {0: "the check passed", 1: "the check failed, or no broker is available", 130: "stopped by Ctrl-C or SIGTERM"},
        _demo,
        (
            _takes("--version", "VERSION", f"Kafka version (default: {DEFAULT_VERSION})", choices=SUPPORTED_VERSIONS),
            _takes("--partitions", "N", "partitions (default: %(default)s)", type=at_least(3, int), default=12),
            _takes("--rate", "N", "records per second (default: %(default)s)", type=_COUNT, default=2_000),
            _takes("--seconds", "SECONDS", "pause after each step (default: 3)", type=_NUMBER, default=3.0),
            _takes("--backend", "BACKEND", f"{_BACKEND_HELP}: {', '.join(BACKENDS)}", choices=BACKENDS),
            _flag("--plain", "print lines instead of a live table (default if stdout is not a terminal)"),
        ),
    ),
    Command(
        "consume",
        "join a group and print records",
        _CONSUME,
        _CONSUME_EXAMPLES,
        {
            0: "stopped by Ctrl-C, SIGTERM, --max-records or --timeout",
            1: "fatal error, not joined before --timeout, no such topic for 3 seconds, or the output cannot be written",
            2: "invalid argument or configuration, or an error before the member joined",
        },
        _consume,
        (
            *_GROUP,
            _repeated(
                "-t --topic",
                "TOPIC",
                "topic name, or a regular expression that starts with ^; may be repeated",
                required=True,
            ),
            _takes("--instance-id", "ID", "join as a static member with this group.instance.id"),
            _flag("--json", "print one JSON object per record; bytes that are not UTF-8 are in base64"),
            _flag("--from-beginning", "start at the oldest record if the group has no committed offset"),
            _takes("-n --max-records", "N", "leave after N records", type=_COUNT),
            _takes("--timeout", "SECONDS", "leave if no record arrives for this time", type=_NUMBER),
            _flag("-v --verbose", "log to stderr; repeat to include heartbeats", action="count", default=0),
        ),
    ),
    Command(
        "describe",
        "show the members and the lag of a group",
        _DESCRIBE,
        _DESCRIBE_EXAMPLES,
        _EXITS,
        _describe,
        _QUERY,
        exclusive=(
            _flag("--members", "show only the members; does not read offsets"),
            _flag("--offsets", "show only the partitions"),
        ),
    ),
    Command(
        "list",
        "list the groups of a cluster",
        _LIST,
        _LIST_EXAMPLES,
        {**_EXITS, 1: f"{_EXITS[1]}; or the list is incomplete because a broker did not return its groups"},
        _list,
        (
            *_CLUSTER,
            *_OUTPUT,
            _repeated(
                "--state",
                "STATE",
                f"list only groups in this state; may be repeated: {', '.join(STATES)}",
                type=group_state,
                default=[],
            ),
            _repeated(
                "--type",
                "TYPE",
                f"list only groups of this type; may be repeated: {', '.join(_TYPES)}",
                choices=_TYPES,
                default=[],
            ),
        ),
    ),
    Command(
        "lag",
        "show the lag of a group",
        _LAG,
        _LAG_EXAMPLES,
        _EXITS,
        _lag,
        (
            *_QUERY,
            _flag("--watch", "repeat until Ctrl-C and show rates"),
            _takes(
                "--interval",
                "SECONDS",
                "seconds between samples (default: 2)",
                type=seconds(0.1),
                default=2.0,
            ),
            _takes("--samples", "N", "stop after N samples with --watch", type=_COUNT),
        ),
    ),
    Command(
        "doctor",
        "diagnose a consumer group",
        _DOCTOR,
        _DOCTOR_EXAMPLES,
        {**_EXITS, 0: "no critical finding", 1: f"critical finding; or {_EXITS[1]}"},
        _doctor,
        (
            *_QUERY,
            _takes(
                "--seconds",
                "SECONDS",
                "observation time (default: 12); use more than the commit interval of the members, otherwise they may "
                "appear stalled",
                type=seconds(0.1),
                default=12.0,
            ),
        ),
    ),
    Command(
        "timeline",
        "write an HTML page with the owners of each partition over time",
        _TIMELINE,
        _TIMELINE_EXAMPLES,
        {**_EXITS, 0: "the page was written", 1: f"the group was never seen; or {_EXITS[1]}"},
        _timeline,
        (
            *_GROUP,
            _SAMPLE_TIMEOUT,
            _takes("--last", "TIME", "time to show from the past, for example 90s, 10m, 2h or 7d", type=duration),
            _takes("--for", "TIME", "time to sample from now on", type=duration, dest="seconds"),
            _takes(
                "--recording",
                "FILE",
                "recordings of members of this package to include",
                nargs="+",
                action="extend",
                default=[],
            ),
            _takes("--interval", "SECONDS", "time between samples (default: 1)", type=seconds(0.1), default=1.0),
            _takes("-o --output", "FILE", "HTML file to write", required=True),
        ),
    ),
    Command(
        "watch",
        "show a group as a live screen",
        _WATCH,
        _WATCH_EXAMPLES,
        {**_EXITS, 2: f"{_EXITS[2]}, or stdin or stdout is not a terminal"},
        _watch,
        (
            *_GROUP,
            _SAMPLE_TIMEOUT,
            _takes("--interval", "SECONDS", "time between samples (default: 2)", type=seconds(0.1), default=2.0),
        ),
    ),
    Command(
        "remove-members",
        "remove members from a group",
        _REMOVE,
        _REMOVE_EXAMPLES,
        {**_EXITS, 0: "all members were removed", 1: f"a member was not removed; or {_EXITS[1]}"},
        _remove_members,
        (
            *_QUERY,
            _repeated("--instance-id", "ID", "remove this static member; may be repeated", default=[]),
            _repeated("--member-id", "ID", "remove the member with this member id; may be repeated", default=[]),
            (
                "--static-member",
                {
                    "nargs": 2,
                    "metavar": ("INSTANCE", "MEMBER"),
                    "help": "remove this static member only if this member id still holds it; may be repeated",
                    "type": sendable_text,
                    "action": "append",
                    "default": [],
                },
            ),
            _flag("--all", "remove all members"),
            _flag("--dry-run", "show the members, but do not remove them"),
            _takes("--reason", "TEXT", "reason for the coordinator's log"),
        ),
    ),
    Command(
        "run",
        "run a program with the consumer of this package",
        run.RUN_DESCRIPTION,
        run.RUN_EXAMPLES,
        run.RUN_EXITS,
        lambda options: run.run_program(options.program),
        (
            (
                "program",
                {
                    "nargs": argparse.REMAINDER,
                    "metavar": "PROGRAM",
                    "help": "the program and its arguments, or -m MODULE and its arguments",
                },
            ),
        ),
    ),
    Command(
        "replay",
        "replay the recording of a member",
        REPLAY_DESCRIPTION,
        REPLAY_EXAMPLES,
        REPLAY_EXITS,
        _replay,
        (
            _takes("file", "FILE", "recording to replay"),
            _takes("--until", "SECONDS", "stop this time after the first event", type=_NUMBER, default=inf),
            _flag("--step", "print each event, its effects and the state"),
            _flag("--explain", "print a diagnosis in one paragraph"),
            _flag("--json", "print one JSON object"),
        ),
    ),
    Command(
        "dead-letters",
        "list, show or replay the records of a dead-letter topic",
        _DEAD_LETTERS,
        _DEAD_LETTERS_EXAMPLES,
        {**_EXITS, 1: f"a record could not be replayed; or {_EXITS[1]}"},
        _dead_letters,
        (
            _takes("topic", "TOPIC", "dead-letter topic"),
            _takes("action", "ACTION", "list, show or replay", choices=("list", "show", "replay")),
            *_CLUSTER,
            _repeated("--partition", "N", "only this partition; may be repeated", type=at_least(0, int), default=[]),
            _takes("--offsets", "OFFSETS", "only these offsets: 17, 10-20, or 10-", type=offset_range),
            _takes("--exception", "CLASS", "only this class of exceptions, with or without its module"),
            _takes("--original-topic", "TOPIC", "only records of this original topic"),
            _takes("-n --max-records", "N", "stop after N records", type=_COUNT),
            _takes("--to", "TOPIC", "replay all records to this topic"),
            _takes("-g --group", "GROUP", "group of the replay (default: TOPIC.replay)"),
            _flag("--dry-run", "show the number of records, but do not replay them"),
            _flag("--json", "print JSON: one object per record, and one object for a replay"),
            _takes(
                "--timeout",
                "SECONDS",
                "longest time without a response of the brokers (default: 30)",
                type=seconds(0.001),
            ),
        ),
    ),
    Command(
        "checkpoint",
        "show or convert the offsets in a Spark checkpoint",
        _CHECKPOINT,
        _CHECKPOINT_EXAMPLES,
        _EXITS,
        _checkpoint,
        (
            _takes(
                "action",
                "ACTION",
                "show, to-group, from-group or to-kafka",
                choices=("show", "to-group", "from-group", "to-kafka"),
            ),
            _takes("path", "PATH", "checkpointLocation of the query, a local folder"),
            *_CLUSTER,
            _takes("-g --group", "GROUP", "group id; required by to-group and from-group"),
            _takes("--source", "N", "index of the source, from 0, if the query has several", type=at_least(0, int)),
            _flag("--execute", "write the changes; without this option they are only printed"),
            _flag("--json", "print one JSON object (show only)"),
        ),
    ),
    Command(
        "broker",
        "run an Apache Kafka broker until Ctrl-C",
        _BROKER,
        _BROKER_EXAMPLES,
        {0: "stopped by Ctrl-C or SIGTERM", 1: "no broker is available, or the broker ended", 2: "invalid argument"},
        _broker,
        (
            _takes(
                "--version",
                "VERSION",
                f"Kafka version (default: {DEFAULT_VERSION}): {', '.join(SUPPORTED_VERSIONS)}",
                choices=SUPPORTED_VERSIONS,
            ),
            _takes("--nodes", "N", "number of nodes (default: 1)", type=_COUNT),
            _takes("--port", "PORT", "port of the first node; the others follow (default: free ports)", type=_COUNT),
            _takes("--backend", "BACKEND", f"{_BACKEND_HELP}: {', '.join(_BROKER_BACKENDS)}", choices=_BROKER_BACKENDS),
            _repeated(
                "-p --property",
                "KEY=VALUE",
                "set a broker property; may be repeated",
                type=key_and_value,
                default=[],
            ),
        ),
    ),
)
