"""The arguments of all subcommands, and which code each runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from consumer_membership import __version__
from consumer_membership.cli import run
from consumer_membership.cli.consume import ConsumeOptions, consume
from consumer_membership.cli.doctor import DoctorOptions, examine
from consumer_membership.cli.groups import Asking, DescribeOptions, RemovalOptions, describe, remove_members
from consumer_membership.cli.overview import STATES, LagOptions, ListOptions, list_groups, show_lag
from consumer_membership.cli.replay import REPLAY_DESCRIPTION, ReplayOptions, replay
from consumer_membership.cli.timeline import TimelineOptions, draw_timeline
from consumer_membership.demo.brokers import BACKENDS
from consumer_membership.demo.run import DemoOptions, run_demo
from consumer_membership.devbroker import DEFAULT_VERSION, SUPPORTED_VERSIONS, Backend
from consumer_membership.devbroker.foreground import run_foreground
from consumer_membership.text import excerpt, problem_of

_TEN_MINUTES_S = 600.0
#: More than this nobody means, and `inf` is no time that a system waits for.
_YEAR_S = 366 * 24 * 3_600.0
_Number = TypeVar("_Number", int, float)

_DESCRIPTION = "Kafka consumer groups whose membership (KIP-848) you can see."
_CONSUME = """\
Prints the records of topics as a member of a group: records on stdout, what
happens to the membership on stderr. Ctrl-C commits what was printed, leaves the
group and exits with 0. Exits with 1 if none of the topics exists.

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
_LIST = """\
Lists the groups of a cluster, of every kind, as their coordinators tell them. A
group that this client may not describe is not told. Exits with 1 if a broker did
not tell its groups.

examples:
  consumer-membership list -b localhost:9092
  consumer-membership list -b localhost:9092 --state Empty --protocol classic --json
"""
_LAG = """\
Shows how far a group is behind, worst partition first; with --watch again and
again, with rates and the time until it is at the end, if it goes on so. With
--json, --watch writes one object a line. Needs what `describe` needs.

examples:
  consumer-membership lag -b localhost:9092 -g orders
  consumer-membership lag -b localhost:9092 -g orders --watch --interval 5
"""
_DOCTOR = """\
Watches a group of any client for some seconds and says what is the matter with
it, the cause first that explains the others: who holds partitions and does not
commit, transactions that are open, members that are away, rebalances that do not
end, topics, leaders, offsets, rights, limits. Exits with 1 if something is not
read and will not be by itself. Needs DESCRIBE on the group and its topics; what
it may not ask for is named.

examples:
  consumer-membership doctor -b localhost:9092 -g orders
  consumer-membership doctor -b localhost:9092 -g orders --seconds 30 --json
"""
_TIMELINE = """\
Writes a page about a group of any client that needs no server: who owned which
partition when, each change of the group with its cause, how long partitions
stood still, and the lag. --last shows what was, by the coordinator's records, at
once and without having watched; --for watches from now on, and Ctrl-C writes what
was seen until then; with neither it is ten minutes of each. Recordings of members
of this package (consumer.dump(), recorder.directory) are merged in exactly. Exits
with 1 if the group was not seen at all. Needs what `describe` needs; the past also
READ on the topic __consumer_offsets, and where that is not allowed the page says
so.

examples:
  consumer-membership timeline -b localhost:9092 -g orders --last 10m -o group.html
  consumer-membership timeline -b localhost:9092 -g orders --for 10m -o group.html
  consumer-membership timeline -b localhost:9092 -g orders --last 1h -o group.html --recording a.gz b.gz
"""
_WATCH = """\
A live screen of a group of any client: members, what moves, and for each
partition lag, rate, time until it is at the end and how long it stands still.
Keys: l p o s sort by lag, partition, owner, standstill; f filters; arrows, pages,
j k space b g G scroll the partitions, after m the members; q ends.

examples:
  consumer-membership watch -b localhost:9092 -g orders
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
_CHECKPOINT = """\
Shows where a streaming query of Spark is, from its checkpoint's folder (of
spark-sql-kafka or of kafka-group). to-group commits these offsets to a group,
from-group makes a new checkpoint that begins where a group is, and to-kafka
rewrites the checkpoint of a kafka-group query in place, so that the query goes
on with format("kafka"). Nothing is written without --execute.
Stop the query first, and the group's members. A kafka-group query is recognized
by its member; an idle query of spark-sql-kafka cannot be recognized. Folders of
other file systems (hdfs://, s3a://): consumer_membership.spark.CheckpointFolder.

examples:
  consumer-membership checkpoint show /data/orders/checkpoint
  consumer-membership checkpoint to-group /data/orders/checkpoint -b localhost:9092 -g orders --execute
  consumer-membership checkpoint from-group /data/orders/new -b localhost:9092 -g orders --execute
  consumer-membership checkpoint to-kafka /data/orders/checkpoint -b localhost:9092 --execute
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
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        form = argparse.RawDescriptionHelpFormatter
        sub = subparsers.add_parser(
            command.name, help=command.summary, description=command.description, formatter_class=form
        )
        for flags, how in command.arguments:
            sub.add_argument(*flags.split(), **how)
        either = sub.add_mutually_exclusive_group() if command.either else sub
        for flags, how in command.either:
            either.add_argument(*flags.split(), **how)
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


def _asking(options: argparse.Namespace) -> Asking:
    return Asking(config=_config(options), group=options.group, is_json=options.json, timeout_s=options.timeout)


def _describe(options: argparse.Namespace) -> int:
    chosen = DescribeOptions(
        asking=_asking(options), shows_members=not options.offsets, shows_offsets=not options.members
    )
    return describe(chosen, sys.stdout, sys.stderr)


def _list(options: argparse.Namespace) -> int:
    chosen = ListOptions(
        config=_config(options),
        states=frozenset(options.state),
        protocols=frozenset(options.protocol),
        is_json=options.json,
        timeout_s=options.timeout,
    )
    return list_groups(chosen, sys.stdout, sys.stderr)


def _lag(options: argparse.Namespace) -> int:
    chosen = LagOptions(
        asking=_asking(options), watches=options.watch, interval_s=options.interval, looks=options.looks
    )
    return show_lag(chosen, sys.stdout, sys.stderr)


def _doctor(options: argparse.Namespace) -> int:
    return examine(DoctorOptions(asking=_asking(options), seconds=options.seconds), sys.stdout, sys.stderr)


def _timeline(options: argparse.Namespace) -> int:
    chosen = TimelineOptions(
        asking=Asking(config=_config(options), group=options.group, timeout_s=options.timeout),
        output=Path(options.output),
        seconds=options.seconds if options.seconds is not None else _TEN_MINUTES_S * (options.last is None),
        interval_s=options.interval,
        last_s=options.last if options.last is not None else _TEN_MINUTES_S * (options.seconds is None),
        recordings=tuple(map(Path, options.recording)),
    )
    return draw_timeline(chosen, sys.stdout, sys.stderr)


def _watch(options: argparse.Namespace) -> int:
    # A terminal of POSIX, and rich, for this command alone.
    from consumer_membership.cli.watch import watch_group

    asking = Asking(config=_config(options), group=options.group, timeout_s=options.timeout)
    return watch_group(asking, options.interval, sys.stdout, sys.stderr)


def _remove_members(options: argparse.Namespace) -> int:
    named = bool(options.instance_id or options.member_id)
    if options.all and named:
        options.parser.error("argument --all: not allowed with --instance-id or --member-id")
    if not options.all and not named:
        options.parser.error("one of the arguments --instance-id --member-id --all is required")
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


def _replay(options: argparse.Namespace) -> int:
    chosen = ReplayOptions(
        path=Path(options.file),
        until_s=options.until,
        is_stepwise=options.step,
        explains=options.explain,
        is_json=options.json,
    )
    return replay(chosen, sys.stdout, sys.stderr)


def _checkpoint(options: argparse.Namespace) -> int:
    # Spark's checkpoints are for this command alone.
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


def _state(text: str) -> str:
    """A state of a group, in any case of letters."""
    state = next((one for one in STATES if one.lower() == text.lower()), None)
    if state is None:
        raise argparse.ArgumentTypeError(
            f"{excerpt(text)!a} is not a state of a group; give one of {', '.join(STATES)}"
        )
    return state


def _duration(text: str) -> float:
    """Seconds: `90`, `90s`, `10m`, `2h`, `7d`."""
    unit = _UNITS.get(text[-1:])
    number = text if unit is None else text[:-1]
    seconds = _at_least(0.1, float)(number) * (1.0 if unit is None else unit)
    if seconds > _YEAR_S:
        raise argparse.ArgumentTypeError(f"{text} is more than a year")
    return seconds


_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _at_least(least: _Number, kind: type[_Number], most: float = inf) -> Callable[[str], _Number]:
    def number(text: str) -> _Number:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than a year in seconds")
        return value

    return number


def _seconds(least: float) -> Callable[[str], float]:
    return _at_least(least, float, _YEAR_S)


# ---- the commands and their arguments -------------------------------------------------------------------------------


#: What `add_argument` is told: the flags in one text, and how.
_Argument: TypeAlias = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand; of its `either` one may be given at most."""

    name: str
    summary: str
    description: str
    run: Callable[[argparse.Namespace], int]
    arguments: tuple[_Argument, ...]
    either: tuple[_Argument, ...] = ()


def _takes(flags: str, metavar: str | None, help_text: str, **how: object) -> _Argument:
    """An argument with a value, text unless another type is given."""
    return flags, {"metavar": metavar, "help": help_text, "type": _text, **how}


def _several(flags: str, metavar: str | None, help_text: str, **how: object) -> _Argument:
    """An argument that may be repeated."""
    return _takes(flags, metavar, help_text, action="append", **how)


def _flag(flags: str, help_text: str, **how: object) -> _Argument:
    return flags, {"action": "store_true", "help": help_text, **how}


_COUNT, _NUMBER = _at_least(1, int), _seconds(0)
_BROKER_BACKENDS = [backend.value for backend in Backend]
_BACKEND_HELP = "where the broker comes from (default: the first of these that can be had)"
#: Which group, of which cluster, and how to get there.
_CLUSTER = (
    _takes("-b --bootstrap-servers", "HOST:PORT", "several with commas (default: $KAFKA_BOOTSTRAP_SERVERS)"),
    _several(
        "-c --config", "KEY=VALUE", "any other configuration key; may be repeated", type=_key_and_value, default=[]
    ),
)
_GROUP = (*_CLUSTER, _takes("-g --group", None, "group.id", required=True))
_HOW = (
    _flag("--json", "one JSON object instead of tables"),
    _takes("--timeout", "S", "seconds for it all, attempts included (default 30)", type=_seconds(0.001)),
)
_ASKING = (*_GROUP, *_HOW)
_KINDS = ("classic", "consumer", "share", "streams")
_COMMANDS = (
    _Command(
        "demo",
        "show a group at work on a real broker, and check it",
        _DEMO,
        _demo,
        (
            _takes("--version", "V", f"Kafka's version (default {DEFAULT_VERSION})", choices=SUPPORTED_VERSIONS),
            _takes("--partitions", "N", "of the topic (default %(default)s)", type=_at_least(3, int), default=12),
            _takes("--rate", "R", "records per second (default %(default)s)", type=_COUNT, default=2_000),
            _takes("--seconds", "S", "to look at each step's result (default 3)", type=_NUMBER, default=3.0),
            _takes("--backend", None, _BACKEND_HELP, choices=BACKENDS),
            _flag("--plain", "lines instead of the live table, as when stdout is no terminal"),
        ),
    ),
    _Command(
        "consume",
        "print records, and what happens to the membership",
        _CONSUME,
        _consume,
        (
            *_GROUP,
            _several("-t --topic", None, "a name, or a regular expression that begins with ^", required=True),
            _takes("--instance-id", "I", "group.instance.id: be a static member"),
            _flag("--json", "one JSON object per record; bytes that are not UTF-8 as base64"),
            _flag("--from-beginning", "begin at the oldest record, where the group has committed nothing"),
            _takes("-n --max-records", "MAX", "leave after so many records", type=_COUNT),
            _takes("--timeout", "S", "leave after so many seconds without a record", type=_NUMBER),
            _flag("-v --verbose", "the log on stderr too; twice: heartbeats as well", action="count", default=0),
        ),
    ),
    _Command(
        "describe",
        "show a group, its members and its lag",
        _DESCRIBE,
        _describe,
        _ASKING,
        either=(
            _flag("--members", "the members only; asks for no offsets"),
            _flag("--offsets", "the partitions only: committed, end, lag, owner"),
        ),
    ),
    _Command(
        "list",
        "list the groups of a cluster",
        _LIST,
        _list,
        (
            *_CLUSTER,
            *_HOW,
            _several("--state", None, f"only groups in this state: {', '.join(STATES)}", type=_state, default=[]),
            _several("--protocol", None, "only groups of this protocol; may be repeated", choices=_KINDS, default=[]),
        ),
    ),
    _Command(
        "lag",
        "show how far a group is behind",
        _LAG,
        _lag,
        (
            *_ASKING,
            _flag("--watch", "again and again, until Ctrl-C, with rates"),
            _takes("--interval", "S", "seconds between two looks (default 2)", type=_seconds(0.1), default=2.0),
            _takes("--looks", "N", "end after so many looks", type=_COUNT),
        ),
    ),
    _Command(
        "doctor",
        "say what is the matter with a group",
        _DOCTOR,
        _doctor,
        (
            *_ASKING,
            _takes(
                "--seconds",
                "S",
                "to watch it (default 12; below that, whoever commits every 5 s may look still)",
                type=_seconds(0.1),
                default=12.0,
            ),
        ),
    ),
    _Command(
        "timeline",
        "write a page: who owned what when",
        _TIMELINE,
        _timeline,
        (
            *_GROUP,
            _takes("--timeout", "S", "seconds for each look (default 30)", type=_seconds(0.001)),
            _takes("--last", "TIME", "how much of the past: 90s, 10m, 2h, 7d", type=_duration),
            _takes("--for", "TIME", "how long to watch from now on", type=_duration, dest="seconds"),
            _takes("--recording", "FILE", "recordings of members", nargs="+", action="extend", default=[]),
            _takes("--interval", "S", "seconds between two looks (default 1)", type=_seconds(0.1), default=1.0),
            _takes("-o --output", "FILE", "the page", required=True),
        ),
    ),
    _Command(
        "watch",
        "show a group as a live screen",
        _WATCH,
        _watch,
        (
            *_GROUP,
            _takes("--timeout", "S", "seconds for each look (default 30)", type=_seconds(0.001)),
            _takes("--interval", "S", "seconds between two looks (default 2)", type=_seconds(0.1), default=2.0),
        ),
    ),
    _Command(
        "remove-members",
        "remove members from a group",
        _REMOVE,
        _remove_members,
        (
            *_ASKING,
            _several("--instance-id", "I", "a static member's; may be repeated", default=[]),
            _several("--member-id", "M", "of any member; may be repeated", default=[]),
            _flag("--all", "every member"),
            _flag("--dry-run", "remove nobody, show who is meant"),
            _takes("--reason", "TEXT", "for the coordinator's log"),
        ),
    ),
    _Command(
        "run",
        "run a program with this package's consumer in it",
        run.RUN_DESCRIPTION,
        lambda options: run.run_program(options.program),
        (("program", {"nargs": argparse.REMAINDER, "metavar": "PROGRAM", "help": "and its arguments; -m MODULE"}),),
    ),
    _Command(
        "replay",
        "run a member's recording again, and show what it waited for",
        REPLAY_DESCRIPTION,
        _replay,
        (
            _takes("file", "FILE", "a recording"),
            _takes("--until", "S", "stop so many seconds after the first event", type=_NUMBER, default=inf),
            _flag("--step", "show each event, what it led to, and the state"),
            _flag("--explain", "say in a paragraph what was the matter"),
            _flag("--json", "one JSON object"),
        ),
    ),
    _Command(
        "checkpoint",
        'show where a query of Spark is; move it to a group, from a group, or to format("kafka")',
        _CHECKPOINT,
        _checkpoint,
        (
            _takes("action", None, "what to do", choices=("show", "to-group", "from-group", "to-kafka")),
            _takes("path", "PATH", "the query's checkpointLocation, a local folder"),
            *_CLUSTER,
            _takes("-g --group", None, "group.id"),
            _takes("--source", "N", "which source of the query, from 0, where it has several", type=_at_least(0, int)),
            _flag("--execute", "write; without it only what would be written is shown"),
            _flag("--json", "show: one JSON object"),
        ),
    ),
    _Command(
        "broker",
        "run a real Kafka until Ctrl-C",
        _BROKER,
        _broker,
        (
            _takes("--version", "V", ", ".join(SUPPORTED_VERSIONS), choices=SUPPORTED_VERSIONS),
            _takes("--nodes", "N", "how many nodes (default 1)", type=_COUNT),
            _takes("--port", "P", "the first node's port (default: free ones)", type=_COUNT),
            _takes("--backend", None, "default: the first of these that can be had", choices=_BROKER_BACKENDS),
            _several(
                "-p --property", "KEY=VALUE", "a broker property; may be repeated", type=_key_and_value, default=[]
            ),
        ),
    ),
)
