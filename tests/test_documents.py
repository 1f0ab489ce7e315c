"""The documents are true: their snippets and commands run, their links resolve, and the names in them exist."""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib.util
import inspect
import pkgutil
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import confluent_kafka
import confluent_kafka.admin
import pytest
from kio.schema.errors import ErrorCode

import consumer_membership
from consumer_membership import (
    Assignor,
    Consumer,
    HealthVerdict,
    LifecycleKind,
    MembershipView,
    MemberState,
    MemberSubscription,
    Topics,
    admin,
    aio,
    errors,
    spark,
)
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.cli import command, main
from consumer_membership.config import SaslMechanism
from consumer_membership.config.environment import PREFIX, variable_of
from consumer_membership.config.keys import FETCHER_DEFAULTS, KEYS
from consumer_membership.config.model import ConsumerConfig
from consumer_membership.config.strategies import DEFAULT
from consumer_membership.config.tls_and_sasl import HONOURED_BY_TLS
from consumer_membership.devbroker.backends import VARIABLE
from consumer_membership.metrics import exposition, opentelemetry, prometheus
from consumer_membership.metrics.catalogue import CATALOGUE, CONSUMER_LABELS
from consumer_membership.metrics.membership_ledger import NO_ANSWER, RebalanceCause, Standstill
from consumer_membership.runtime.log_lines import _CONTEXTS as LOGGERS
from consumer_membership.spark.source.java_properties import TRANSLATED
from consumer_membership.spark.source.options import NAMES as OPTIONS
from consumer_membership.translation.remedies import REMEDIES
from consumer_membership.translation.verdicts import error_name
from consumer_membership.types import GroupProtocol
from tests import __main__ as everything
from tests.benchmarks import __main__ as benchmarks
from tests.exploration import __main__ as exploration
from tests.simulation import __main__ as simulation
from tests.support import configuration_table, coverage_report, librdkafka_keys, seeds
from tests.support.documents import (
    DOCS,
    MAP,
    README,
    ROOT,
    anchors,
    blocks,
    documents,
    links,
    name_of,
    prose,
    quoted,
    section,
    tables,
)
from tests.support.mock_cluster import MockCluster

PACKAGE = ROOT / "consumer_membership"
#: The documents for users, and contributing.md for developers; every name in them must exist.
OF_USERS = [path for path in documents() if path not in (MAP, DOCS / "project/protocol.md")]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]

#: The argument parser of each module that `python -m` runs.
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "tests": everything._parser,
    "tests.benchmarks": benchmarks._parser,
    "tests.exploration": exploration._parser,
    "tests.simulation": simulation._parser,
}
#: Settings of brokers, groups and producers, not of this package.
OF_OTHERS = {
    "connections.max.reauth.ms",
    "consumer.assignment.interval.ms",
    "consumer.session.timeout.ms",
    "group.consumer.assignment.interval.ms",
    "group.consumer.max.size",
    "group.consumer.migration.policy",
    "group.consumer.session.timeout.ms",
    "group.initial.rebalance.delay.ms",
    "group.max.size",
    "transaction.timeout.ms",
    "transaction.version",
    "transactional.id",
}
#: Operations of Kafka's ACLs, which are written in capitals like error codes.
OPERATIONS = {"ALTER_CONFIGS"}
#: Environment variables of metrics systems, and the failure name for a missing response.
OF_METRICS = {"PROMETHEUS_MULTIPROC_DIR", opentelemetry.OPT_IN, NO_ANSWER}
#: Names from Java and Spark.
FOREIGN_NAMES = {"GroupCoordinator", "foreachPartition", "mapInArrow"}

read = Path.read_text


def all_blocks(language: str) -> list[tuple[Path, str]]:
    """Return the blocks in one language of all documents for users."""
    return [(path, code) for path in OF_USERS for code in blocks(read(path), language)]


def id_of(value: object) -> str | None:
    """Return the name of a document as the test id."""
    return name_of(value) if isinstance(value, Path) else None


# ---- links -----------------------------------------------------------------------------------------------------------


def test_readme_links_to_every_document_and_example() -> None:
    """The README links to each document for users and to each example."""
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(read(README)) if "://" not in link}
    assert [name_of(path) for path in OF_USERS if path != README and path not in linked] == []
    assert set((ROOT / "examples").glob("*.py")) <= linked


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_document_links_resolve(path: Path) -> None:
    """Relative links name existing files and headings."""
    broken = []
    for link in links(read(path)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(read(target))):
            broken.append(link)
    assert broken == []


# ---- Python ----------------------------------------------------------------------------------------------------------


def test_python_snippets_parse_and_use_existing_attributes() -> None:
    """Python snippets parse, and use only existing methods and fields of the package's objects."""
    shown = all_blocks("python")
    assert len(shown) == 19
    used = [node for _, code in shown for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)]
    of = {
        "consumer": dir(Consumer),
        "view": MembershipView.__dataclass_fields__,
        "result": dir(spark.DrainResult),
        "handle": dir(spark.RunHandle),
        "context": dir(spark.SinkContext),
    }
    for node in used:
        if isinstance(node.value, ast.Name) and node.value.id in of:
            assert node.attr in of[node.value.id]


def run_block(code: str, names: dict[str, object]) -> None:
    """Run a snippet of a document."""
    exec(code, names)  # noqa: S102 - that is the test


class _EnoughError(Exception):
    """Ends an example that polls forever."""


@pytest.mark.slow
def test_readme_snippets_run_on_a_mock_cluster() -> None:
    """The README's loop prints each record and closes, and its view snippet prints the state and the position."""
    use, view = blocks(read(README), "python")
    printed: list[tuple[object, ...]] = []

    def show(*values: object) -> None:
        printed.append(values)
        if len(printed) == 3:
            raise _EnoughError

    with MockCluster.start(brokers=1) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(3):
            producer.produce("orders", str(number).encode(), key=b"key", partition=0)
        producer.flush(20)
        here = use.replace("localhost:9092", cluster.bootstrap_servers)
        with pytest.raises(_EnoughError):
            run_block(here, {"print": show})
        assert printed == [(b"key", b"0"), (b"key", b"1"), (b"key", b"2")]

        config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "view", "auto.offset.reset": "earliest"}
        with Consumer(config) as consumer:
            consumer.subscribe(["orders"])
            message = consumer.poll(30)
            assert message is not None
            printed.clear()
            partition = confluent_kafka.TopicPartition("orders", 0, 1)
            of_view = {"consumer": consumer, "partition": partition, "print": lambda *values: printed.append(values)}
            run_block(view, of_view)
            assert printed[0] == (of_view["view"].state,)  # type: ignore[attr-defined]  # the block makes it
            assert printed[-1] == ([partition],)


def test_readme_lists_every_member_state() -> None:
    """The comment beside `view.state` lists all states in their order."""
    (named,) = re.findall(r"print\(view\.state\)  # (.*)", read(README))
    assert named.split() == [state.value for state in MemberState]


def test_security_document_matches_the_supported_tls_and_sasl_keys() -> None:
    """The document's configuration is valid, its TLS keys are honored, and it names every SASL mechanism."""
    text = read(DOCS / "operating/security.md")
    (block,) = blocks(text, "python")
    (shown,) = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Dict)]
    settings = ConsumerConfig.from_mapping(ast.literal_eval(shown)).connection_settings()
    assert settings.tls is not None
    assert settings.sasl is not None
    named = set(re.findall(r"`((?:enable\.)?ssl\.[a-z.]+)`", text))
    assert len(named) == 9
    assert named <= HONOURED_BY_TLS
    assert {mechanism.value for mechanism in SaslMechanism} <= set(re.findall(r"[A-Z0-9-]{5,}", text))


def test_spark_document_names_existing_functions_parameters_and_options() -> None:
    """The functions, sinks, parameters and source options that docs/spark/spark.md names exist."""
    text, _, source = read(DOCS / "spark/spark.md").partition("## Structured Streaming")
    options = re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\|(.*?)\|", source.partition("\n## ")[0], re.MULTILINE)))
    assert {name.lower() for name in options} <= OPTIONS.keys()
    named = {match[1]: match[2] for match in re.finditer(r"^\| .*?`(\w+)[.\w]*(?:\((.*?)\))?`", text, re.MULTILINE)}
    assert {"run", "drain", "member_task", "read_group", "check", "PostgresSink", "KafkaSink"} <= named.keys()
    assert named.keys() <= set(spark.__all__)
    for name, parameters in named.items():
        known = inspect.signature(getattr(spark, name)).parameters
        for parameter in filter(None, (parameters or "").split(", ")):
            assert parameter in known
    for option in ("sink_timeout_s", "sink_attempts", "batch_format"):
        assert option in spark.Options.__annotations__


def test_documented_assignor_assigns_each_topic_to_one_member() -> None:
    """The assignor in docs/explanation/group-protocols.md is accepted, and its result passes validation."""
    (block,) = blocks(read(DOCS / "explanation/group-protocols.md"), "python")
    module = ModuleType("shown")
    run_block(block, module.__dict__)
    config = {"group.id": "g", "bootstrap.servers": "h:1", "partition.assignment.strategy": module.OneActive}
    settings = ConsumerConfig.from_mapping(config).protocol_settings()
    assert settings.protocols == (GroupProtocol.CLASSIC,)
    (assignor,) = settings.classic.assignors
    subscriptions = {
        "a": MemberSubscription(topics=frozenset({"orders"})),
        "b": MemberSubscription(topics=frozenset({"orders", "payments", "missing"})),
    }
    given = assign_checked(assignor, Topics(partitions={"orders": 2, "payments": 1}), subscriptions).assignments
    assert given == {"a": {("orders", 0), ("orders", 1)}, "b": {("payments", 0)}}


def test_migration_snippets_run_and_import_the_consumers() -> None:
    """The snippets in docs/compare/migration.md run unchanged and import the package's consumers."""
    block, installed, of_asyncio = blocks(read(DOCS / "compare/migration.md"), "python")
    shown: dict[str, object] = {}
    run_block(block, shown)
    assert shown["Consumer"] is Consumer
    run_block(installed, {})
    run_block(of_asyncio, shown)
    assert shown["AIOConsumer"] is aio.AIOConsumer


# ---- commands --------------------------------------------------------------------------------------------------------


def test_readme_setup_commands_install_existing_extras() -> None:
    """Each setup command is one line and installs existing extras; `.ci/run` contains the test command."""
    commands = re.findall(
        r"^python3 -m venv \.venv && .*'\.\[(.*)\]'(?: --group dev)? && \.venv/bin/(.*)$", read(README), re.MULTILINE
    )
    assert [command for _, command in commands] == ["consumer-membership demo", "python -m tests"]
    assert {extra for named, _ in commands for extra in named.split(",")} <= EXTRAS.keys()
    (tests,) = (line for line in read(README).splitlines() if line.endswith("python -m tests"))
    assert tests in read(ROOT / ".ci" / "run")


LINES = [(path, line) for path, code in all_blocks("") for line in code.splitlines() if line]


@pytest.mark.parametrize(("path", "line"), LINES, ids=id_of)
def test_documented_command_lines_are_accepted(path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of each documented command line are accepted; an unknown kind of command fails."""
    assert path in OF_USERS
    words = shlex.split(line)
    match words:
        case ["consumer-membership", "run", *_]:
            started: list[list[str]] = []
            monkeypatch.setattr(
                "consumer_membership.cli.run.os.execvpe", lambda _, program, __: started.append(program)
            )
            main(words[1:])
            assert words[-1:] == started[0][-1:]
        case ["consumer-membership", *rest]:
            for name in (
                "run_demo",
                "consume",
                "run_foreground",
                "describe",
                "remove_members",
                "list_groups",
                "replay",
                "show_lag",
                "examine",
                "draw_timeline",
            ):
                monkeypatch.setattr(f"consumer_membership.cli.command.{name}", lambda *_, **__: 0)
            monkeypatch.setattr("consumer_membership.cli.watch.watch_group", lambda *_, **__: 0)
            monkeypatch.setattr("consumer_membership.cli.checkpoint.checkpoint", lambda *_, **__: 0)
            assert main(rest) == 0
        case ["python", "-m", "pytest", *rest]:
            paths = [word for word in rest if word.startswith("tests/")]
            flags = {word for word in rest if word.startswith("--")}
            assert all((ROOT / name).exists() for name in paths)
            assert flags <= {"--no-broker", "--no-docker", "--no-hosts"}
        case ["python", "-m", module, *rest] if module in PARSERS:
            options = PARSERS[module]().parse_args(rest)
            assert set(filter(None, getattr(options, "only", "").split(","))) <= everything.STAGES.keys()
        case ["python", "-m", module]:
            assert importlib.util.find_spec(module) is not None
        case ["pip", "install" | "wheel", *rest]:
            wheels = [word for word in rest if word.endswith(".whl")]
            assert wheels in ([], [f"dist/consumer_membership-{consumer_membership.__version__}-py3-none-any.whl"])
        case ["docker", "compose", *_]:
            assert line in read(ROOT / "docker-compose.yml")
        case ["python3", "-m", "venv", ".venv", "&&", ".venv/bin/pip", "install", "-q", *rest]:
            (package,) = (word for word in rest if word.startswith(".["))
            assert set(package[2:-1].split(",")) <= EXTRAS.keys()
            assert "--group" not in rest or rest[rest.index("--group") + 1] in PYPROJECT["dependency-groups"]
        case _:
            pytest.fail(f"no check for {line!r}")


def test_commands_and_options_in_backticks_exist() -> None:
    """The modules, subcommands and options in backticks exist."""
    subcommands = _subcommands(command._parser())
    options = {
        option
        for parser in (*subcommands.values(), *(make() for make in PARSERS.values()))
        for action in parser._actions
        for option in action.option_strings
    }
    for path in OF_USERS:
        for words in map(str.split, quoted(read(path))):
            match words:
                case ["consumer-membership", name, *_]:
                    assert name in subcommands, path
                case ["python", "-m", module, *rest] if module in PARSERS:
                    PARSERS[module]().parse_args(rest)
                case ["python", "-m", module]:
                    assert importlib.util.find_spec(module) is not None, path
                case [option] if re.fullmatch(r"--[a-z-]+", option):
                    assert option in options, path


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def test_command_line_document_shows_each_subcommand() -> None:
    """docs/reference/command-line.md has an example of each subcommand."""
    code = blocks(read(DOCS / "reference/command-line.md"), "")
    shown = {shlex.split(line)[1] for line in "".join(code).splitlines()}
    assert shown == _subcommands(command._parser()).keys()


def test_contributing_table_lists_the_stages_of_the_test_command() -> None:
    """The table in contributing.md lists the stages in their order."""
    text = section(read(DOCS / "project/contributing.md"), "Everything")
    rows = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    assert rows == list(everything.STAGES)


# ---- the configuration -----------------------------------------------------------------------------------------------


def test_configuration_document_has_the_generated_tables() -> None:
    """The document has the current tables; renew them with `python -m tests.support.configuration_table`."""
    text = read(configuration_table.DOCUMENT)
    assert text == configuration_table.renewed(text)


def test_documented_keys_and_defaults_match_the_configuration() -> None:
    """A documented default is the value that a configuration without the key has."""
    with_defaults, _, _ = read(configuration_table.DOCUMENT).partition("## Every key of librdkafka")
    rows = dict(re.findall(r"^\| `([a-z._]+)` \| (.*?) \|", with_defaults, re.MULTILINE))
    known = {field.name.replace("_", "."): field.default for field in fields(ConsumerConfig)}
    assert rows.keys() <= set(KEYS)
    assert known.keys() - {"given"} <= rows.keys()
    for key, shown in rows.items():
        if key in FETCHER_DEFAULTS:
            assert shown == FETCHER_DEFAULTS[key]
        elif key == "partition.assignment.strategy":
            assert shown == ",".join(assignor.name for assignor in DEFAULT)
        elif key in known and known[key] not in (None, ()) and key != "group.id":
            given = {"group.id": "g", "bootstrap.servers": "h:1", key: shown}
            assert getattr(ConsumerConfig.from_mapping(given), key.replace(".", "_")) == known[key]


# ---- names -----------------------------------------------------------------------------------------------------------


def named(pattern: str) -> Iterator[tuple[Path, str]]:
    """Yield the quoted words that match the pattern, with their documents."""
    for path in OF_USERS:
        for words in quoted(read(path)):
            if re.fullmatch(pattern, words):
                yield path, words


def test_configuration_keys_in_backticks_exist() -> None:
    """Keys in backticks exist, with or without a value; settings of brokers and of Spark are not checked."""
    found = {(path, words.partition("=")[0]) for path, words in named(r"[a-z]+(\.[a-z]+)+(=\S+)?")}
    assert len(found) > 80
    known = {*KEYS, *librdkafka_keys.keys(), *OF_OTHERS, "default.topic.config", "docker-compose.yml"}
    of_a_source = {f"kafka.{key}" for key in (*known, *TRANSLATED)}
    wrong = [(name_of(path), key) for path, key in found if key not in known | of_a_source and not _is_foreign(key)]
    assert wrong == []


def _is_foreign(words: str) -> bool:
    return words.startswith(("spark.", "context.", "consumer.", "kafka.consumer.", "messaging.")) or words.endswith(
        ".py"
    )


def test_environment_variables_in_documents_exist() -> None:
    """Each environment variable in the documents corresponds to a key."""
    known = {variable_of(key) for key in KEYS} | {PREFIX, VARIABLE}
    found = {word for path in OF_USERS for word in re.findall(r"\b(?:CONSUMER_MEMBERSHIP|KAFKA)_\w*", read(path))}
    assert len(found) > 5
    assert found <= known


def test_documented_pod_variables_are_read_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the manifests in docs/operating/static-members.md are read, with their values."""
    shown = read(DOCS / "operating/static-members.md")
    variables = dict(re.findall(r"name: (\w+), value: \"(.*?)\"", shown))
    assert variables.keys() <= {variable_of(key) for key in KEYS}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = ConsumerConfig.from_mapping({"group.id": "g", "bootstrap.servers": "h:1"})
    assert config.group_instance_id_pool == tuple(f"orders-{number}" for number in range(8))
    assert config.crash_guardian_enable is True


def test_classes_and_exceptions_in_backticks_exist() -> None:
    """Class and exception names in backticks exist in the package or in confluent-kafka."""
    rooms = (consumer_membership, aio, errors, spark, admin, prometheus, confluent_kafka, builtins)
    found = {words.partition("(")[0].partition(".")[0] for _, words in named(r"[A-Z][a-z]+\w*(\.rows)?(\(.*\))?")}
    assert {"ConfigurationError", "GroupAdmin", "KafkaSink", "Assigned"} <= found
    assert {name for name in found if not any(hasattr(room, name) for room in rooms)} <= FOREIGN_NAMES


def test_modules_and_loggers_in_backticks_exist() -> None:
    """Each dotted name of the package in backticks is a logger or can be resolved."""
    for _, name in named(r"consumer_membership(\.\w+)+"):
        if name not in LOGGERS:
            assert pkgutil.resolve_name(name) is not None


def test_methods_fields_and_parameters_in_backticks_exist() -> None:
    """Quoted names with an underscore or with parentheses exist as a method, field, parameter, metric or key."""
    callbacks = {"on_assign", "on_revoke", "on_lost", "on_commit", "on_assignment", "error_cb", "stats_cb", "oauth_cb"}
    fixtures = {"kafka_broker", "broker_pool"}
    known = {
        *dir(Consumer),
        *dir(confluent_kafka.KafkaError),
        *dir(confluent_kafka.Producer),
        *dir(confluent_kafka.admin.AdminClient),
        *dir(Assignor),
        *dir(spark.RunHandle),
        *dir(spark.GroupRead),
        *dir(spark.KafkaSink),
        *dir(spark.CheckpointFolder),
        *dir(spark.MemberProgress),
        *spark.Options.__annotations__,
        *spark.__all__,
        *dir(MembershipView),
        *("format", "read_uncommitted", "disable_existing_loggers", "consumer_membership"),
        *(verdict.value for verdict in HealthVerdict),
        *(kind.value for kind in LifecycleKind),
        *(value.value for value in (*RebalanceCause, *Standstill)),
        *(row.prometheus for row in CATALOGUE),
        *(*CONSUMER_LABELS, *dir(exposition), *inspect.signature(opentelemetry.instrument).parameters),
        *KEYS,
        *librdkafka_keys.keys(),
        *(
            name
            for call in (spark.drain, spark.run, spark.FencedError, aio.AIOConsumer)
            for name in inspect.signature(call).parameters
        ),
    }
    missing = [
        (name_of(path), words)
        for name, kind in (("consumer", Consumer), ("context", spark.SinkContext))
        for path, words in named(rf"{name}\.\w+(\(.*\))?")
        if not hasattr(kind, words.partition(".")[2].partition("(")[0])
    ]
    for path, words in named(r"[a-z]+(_[a-z]+)*(\(.*\))?(\.[a-z_]+)?|[a-z_]+="):
        first, _, field = words.replace("=", "").partition(").")
        name = first.partition("(")[0]
        if ("_" not in name and "(" not in first) or words.startswith("consumer_membership."):
            continue
        if name not in known | callbacks | fixtures or (field and field not in MembershipView.__dataclass_fields__):
            missing.append((name_of(path), words))
    assert missing == []


def test_error_codes_in_documents_are_those_of_kafka_or_librdkafka() -> None:
    """Names in capitals with an underscore are known codes, also outside backticks."""
    known = {code.name.upper() for code in ErrorCode} | set(dir(confluent_kafka.KafkaError)) | OPERATIONS | OF_METRICS
    known.add(seeds.VARIABLE)
    found = set()
    for path in OF_USERS:
        text = re.sub(r"(?:CONSUMER_MEMBERSHIP|KAFKA)_\w*", "", prose(read(path)))
        found |= set(re.findall(r"(?<!\w)(?:_?[A-Z]+(?:_[A-Z]+)+|_[A-Z]+)\b", text))
    assert len(found) > 15
    assert found <= known


def test_file_paths_in_backticks_exist() -> None:
    """Paths in backticks exist below the project's or the package's root."""
    found = [words for _, words in named(r"\.?[\w-]+(/[\w.-]+)+|[\w-]+\.(py|md|yml)")]
    assert found
    # An image, outputs of a run, and a value of OpenTelemetry's opt-in variable.
    elsewhere = {"apache/kafka", name_of(benchmarks._RESULTS), name_of(coverage_report.REPORT), "messaging/dup"}
    assert {name for name in found if not (ROOT / name).exists() and not (PACKAGE / name).exists()} <= elsewhere


# ---- figures and messages --------------------------------------------------------------------------------------------


def test_readme_figures_are_rows_of_the_benchmark_table() -> None:
    """The rows of the README's table occur in the generated table of docs/compare/benchmarks.md."""
    (table,) = re.findall(
        r"<!-- figures: begin -->\n(.*)<!-- figures: end -->", read(DOCS / "compare/benchmarks.md"), re.DOTALL
    )
    head, _, *rows = tables(read(README))[0]
    assert head.endswith("| confluent-kafka | here |")
    assert len(rows) == 3
    assert [row for row in rows if row not in table.splitlines()] == []


def test_quoted_messages_in_troubleshooting_occur_in_the_package() -> None:
    """The messages that docs/diagnose/troubleshooting.md quotes occur in the package; `...` matches variable parts."""
    said = [text for path in PACKAGE.rglob("*.py") for text in _texts(ast.parse(read(path)))]
    text = re.sub(r"`[^`]*`", "", prose(read(DOCS / "diagnose/troubleshooting.md")))
    phrases = re.findall(r'"([^"]+)"', text)
    assert len(phrases) > 30
    parts = [part.strip() for phrase in phrases for part in phrase.split("...")]
    assert [part for part in parts if not any(part in one for one in said)] == []


def _texts(module: ast.Module) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings."""
    mute = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in mute:
            yield node.value


def test_troubleshooting_lists_each_error_that_has_a_remedy() -> None:
    """Each error code that has a remedy in the code has a row in docs/diagnose/troubleshooting.md."""
    told = re.findall(r"^\| ([A-Z_]+) \|", read(DOCS / "diagnose/troubleshooting.md"), re.MULTILINE)
    assert {error_name(code) for remedies in REMEDIES.values() for code in remedies} <= set(told)
