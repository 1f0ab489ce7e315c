"""The documents are true: their snippets and commands run, their links resolve, and the names in them exist.

The rules hold for every page, so that a page can be added, split or removed without a change here. A page opts in to
more by a comment directly before a code block:

- `<!-- run -->`: the block runs on a mock cluster until its end; `<!-- run: 3 -->` interrupts it (Ctrl-C) after
  it has printed three lines. The topic `orders` has three records, with the key `key` and the values 0 to 2.
- `<!-- output -->`: the `text` block has the lines that the block before it prints; `...` matches any text.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib.util
import inspect
import io
import keyword
import pkgutil
import re
import shlex
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest
from kio.schema.errors import ErrorCode

import consumer_membership
from consumer_membership import (
    Consumer,
    Health,
    HealthVerdict,
    MembershipView,
    MemberState,
    MemberSubscription,
    Topics,
    admin,
    aio,
    devbroker,
    errors,
    processing,
    spark,
    uninstall,
)
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.cli import command, main
from consumer_membership.config import SaslMechanism
from consumer_membership.config.environment import PREFIX, variable_of
from consumer_membership.config.keys import FETCHER_DEFAULTS, KEYS
from consumer_membership.config.model import ConsumerConfig
from consumer_membership.config.strategies import DEFAULT
from consumer_membership.kafkatest import arguments as kafkatest_arguments
from consumer_membership.metrics import opentelemetry, prometheus
from consumer_membership.observe.findings import Cause
from consumer_membership.processing.settings import PROCESSOR_KEYS, ProcessorSettings
from consumer_membership.runtime.log_lines import _CONTEXTS as LOGGERS
from consumer_membership.spark.source.java_properties import TRANSLATED
from consumer_membership.spark.source.options import NAMES as OPTIONS
from consumer_membership.translation.remedies import REMEDIES
from consumer_membership.translation.verdicts import error_name
from tests import __main__ as everything
from tests.benchmarks import __main__ as benchmarks
from tests.chaos import __main__ as chaos
from tests.exploration import __main__ as exploration
from tests.fuzzing import __main__ as fuzzing
from tests.kafkatest import __main__ as kafkatest
from tests.simulation import __main__ as simulation
from tests.support import configuration_table, coverage_report, foreign_names, librdkafka_keys, log_messages, seeds
from tests.support.documents import (
    DOCS,
    EXAMPLES,
    README,
    ROOT,
    Block,
    all_blocks,
    anchors,
    blocks,
    documents,
    documents_for_users,
    links,
    name_of,
    prose,
    quoted,
    section,
    tables,
)
from tests.support.mock_cluster import MockCluster

PACKAGE = ROOT / "consumer_membership"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
GROUPS = PYPROJECT.get("dependency-groups", {})

#: The argument parser of each module that `python -m` runs.
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "consumer_membership.kafkatest": kafkatest_arguments._parser,
    "tests": everything._parser,
    "tests.benchmarks": benchmarks._parser,
    "tests.chaos": chaos._parser,
    "tests.exploration": exploration._parser,
    "tests.fuzzing": fuzzing._parser,
    "tests.kafkatest": kafkatest._parser,
    "tests.simulation": simulation._parser,
}
#: The languages of blocks with commands. Output is in blocks with the language `text`.
SHELLS = {"", "sh", "bash", "shell", "console"}
#: The classes of the variables in snippets, by the variable's name; classes of Spark apply only to pages about Spark.
OBJECTS: dict[str, tuple[type, ...]] = {
    "consumer": (Consumer, aio.AIOConsumer),
    "view": (MembershipView,),
    "health": (Health,),
}
OBJECTS_OF_SPARK: dict[str, tuple[type, ...]] = {
    "result": (spark.DrainResult,),
    "handle": (spark.RunHandle,),
    "context": (spark.SinkContext,),
}
#: Extensions of file names, because file names look like configuration keys.
FILES = (".py", ".md", ".yml", ".yaml", ".toml", ".json", ".jsonl", ".sh", ".html", ".txt", ".pem", ".key", ".xml")

read = Path.read_text


def id_of(value: object) -> str | None:
    """Return the name of a document as the test id."""
    return name_of(value) if isinstance(value, Path) else None


def of_all_blocks(language: str) -> list[tuple[Path, str]]:
    """Return the blocks in one language of all documents for users."""
    return [(path, code) for path in documents_for_users() for code in blocks(read(path), language)]


# ---- links -----------------------------------------------------------------------------------------------------------


def test_documents_link_to_every_example() -> None:
    """Some document links to each example, or to its folder."""
    linked = {
        (path.parent / link.partition("#")[0]).resolve()
        for path in documents()
        for link in links(read(path))
        if "://" not in link
    }
    assert [name_of(path) for path in sorted(EXAMPLES.glob("*.py")) if path not in linked] == []


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_document_links_resolve(path: Path) -> None:
    """Relative links name existing files and headings."""
    broken = []
    for link in links(read(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(read(target))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_document_has_one_title(path: Path) -> None:
    """A document begins with its only heading of the first level, which is its title in search results."""
    text = re.sub(r"\A---\n.*?\n---\n", "", read(path), flags=re.DOTALL)
    assert text.lstrip().startswith("# ")
    assert len(re.findall(r"^# ", prose(text), re.MULTILINE)) == 1


# ---- Python ----------------------------------------------------------------------------------------------------------


def test_python_snippets_parse_and_use_existing_attributes() -> None:
    """Python snippets parse, and use only existing methods and fields of the package's objects."""
    shown = of_all_blocks("python")
    assert shown
    missing = []
    for path, code in shown:
        known = OBJECTS | (OBJECTS_OF_SPARK if (DOCS / "spark") in path.parents else {})
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                kinds = known[node.value.id]
                if not any(node.attr in {*dir(kind), *getattr(kind, "__dataclass_fields__", ())} for kind in kinds):
                    missing.append((name_of(path), ast.unparse(node)))
    assert missing == []


def test_python_snippets_import_existing_names() -> None:
    """Imports of this package in snippets name existing modules and objects."""
    missing = []
    for path, code in of_all_blocks("python"):
        for node in ast.walk(ast.parse(code)):
            match node:
                case ast.ImportFrom(module=str(module), names=names) if module.startswith("consumer_membership"):
                    room = importlib.import_module(module)
                    missing += [(name_of(path), name.name) for name in names if not hasattr(room, name.name)]
                case ast.Import(names=names):
                    own = [name.name for name in names if name.name.startswith("consumer_membership")]
                    missing += [(name_of(path), name) for name in own if importlib.util.find_spec(name) is None]
    assert missing == []


def test_configurations_in_snippets_are_accepted() -> None:
    """A dict with `bootstrap.servers` and `group.id` in a snippet is a valid configuration of a consumer."""
    found = 0
    known = {*KEYS, *PROCESSOR_KEYS, *librdkafka_keys.keys(), *foreign_names.KEYS, "default.topic.config"}
    for path, code in of_all_blocks("python"):
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.Dict):
                continue
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "bootstrap.servers" not in keys:
                continue
            assert set(keys) <= known, path
            try:
                given = ast.literal_eval(node)
            except ValueError:
                continue
            if "group.id" in given:
                ConsumerConfig.from_mapping(given).connection_settings()
                found += 1
    assert found > 0


class Runnable(NamedTuple):
    """A block that is marked with `run`, and the output that is shown after it."""

    path: Path
    lines: int | None
    code: str
    output: str | None


def runnable_blocks() -> list[Runnable]:
    """Return all blocks that are marked with `run`."""
    found = []
    for path in documents_for_users():
        shown = [*all_blocks(read(path)), Block(language="", marker="", code="")]
        for block, following in pairwise(shown):
            if marked := re.fullmatch(r"run(?:: (\d+))?", block.marker):
                output = following.code if following.marker == "output" else None
                found.append(Runnable(path, int(marked[1]) if marked[1] else None, block.code, output))
    return found


def run_block(code: str, names: dict[str, object]) -> None:
    """Run a snippet of a document, and undo its `install()`."""
    try:
        exec(code, names)  # noqa: S102 - that is the test
    finally:
        uninstall()


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown", runnable_blocks(), ids=lambda shown: f"{name_of(shown.path)}:{shown.code.splitlines()[0][:40]}"
)
def test_marked_snippets_run_on_a_mock_cluster(shown: Runnable) -> None:
    """A block that is marked with `run` runs, and prints the output that the page shows."""
    printed: list[str] = []

    def show(*values: object, **_: object) -> None:
        printed.extend(" ".join(map(str, values)).splitlines())
        if shown.lines is not None and len(printed) >= shown.lines:
            raise KeyboardInterrupt

    with MockCluster.start(brokers=1) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(3):
            producer.produce("orders", str(number).encode(), key=b"key", partition=0)
        producer.flush(20)
        code = shown.code.replace("localhost:9092", cluster.bootstrap_servers)
        names: dict[str, object] = {"print": show, "__name__": "__main__"}
        config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "shown", "auto.offset.reset": "earliest"}
        with Consumer(config) as consumer:
            if {"consumer", "message", "partition"} & _undefined(code):
                consumer.subscribe(["orders"])
                names |= {"consumer": consumer, "message": consumer.poll(30)}
                names["partition"] = confluent_kafka.TopicPartition("orders", 0, 1)
            if shown.lines is None:
                run_block(code, names)
            else:
                with suppress(KeyboardInterrupt):
                    run_block(code, names)
                assert len(printed) >= shown.lines
    if shown.output is not None:
        expected = shown.output.splitlines()
        patterns = [re.escape(line.rstrip()).replace(re.escape("..."), ".*") for line in expected]
        assert len(printed) == len(patterns), printed
        assert [one for one, pattern in zip(printed, patterns, strict=True) if not re.fullmatch(pattern, one)] == []


def _undefined(code: str) -> set[str]:
    """Return the names that the code reads and never assigns."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    return {node.id for node in names} - {node.id for node in names if isinstance(node.ctx, ast.Store)}


def test_member_states_in_snippets_are_complete() -> None:
    """A comment beside `view.state` lists all states in their order."""
    for _, code in of_all_blocks("python"):
        for listed in re.findall(r"print\(view\.state\)  # ([A-Z ]+)$", code, re.MULTILINE):
            assert listed.split() == [state.value for state in MemberState]


def test_documented_assignors_assign_each_topic_to_members() -> None:
    """Each class in a snippet that has a method `assign` is accepted, and its result passes validation."""
    found = 0
    for path, code in of_all_blocks("python"):
        classes = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
        names = [one.name for one in classes for part in one.body if getattr(part, "name", "") == "assign"]
        if not names:
            continue
        module = ModuleType("shown")
        run_block(code, module.__dict__)
        for name in names:
            config = {"group.id": "g", "bootstrap.servers": "h:1"}
            config["partition.assignment.strategy"] = getattr(module, name)
            settings = ConsumerConfig.from_mapping(config).protocol_settings()
            (assignor,) = settings.classic.assignors
            subscriptions = {
                "a": MemberSubscription(topics=frozenset({"orders"})),
                "b": MemberSubscription(topics=frozenset({"orders", "payments", "missing"})),
            }
            given = assign_checked(assignor, Topics(partitions={"orders": 2, "payments": 1}), subscriptions).assignments
            assert sum(map(len, given.values())) == 3, path
            found += 1
    assert found > 0


# ---- Spark -----------------------------------------------------------------------------------------------------------


def test_documented_functions_of_spark_have_the_parameters_that_are_named() -> None:
    """Functions and sinks in Spark's tables have the named parameters, and none is missing."""
    pages = [read(path) for path in sorted((DOCS / "spark").glob("*.md"))]
    cells = [cell for text in pages for cell in re.findall(r"^\|(.*?)\|", text, re.MULTILINE)]
    for name, method, parameters in re.findall(r"`(\w+)(?:\.(\w+))?\((.*?)\)`", "\n".join(cells)):
        if name in spark.__all__:
            owner = getattr(spark, name)
            known = inspect.signature(getattr(owner, method) if method else owner).parameters
            for parameter in filter(None, re.split(r", ?", parameters)):
                assert parameter.partition("=")[0].lstrip("*") in {*known, "...", ""}, name
    everywhere = "\n".join(pages)
    parts = ("run", "drain", "member_task", "read_group", "check", "PostgresSink", "KafkaSink")
    for name in (*parts, *spark.Options.__annotations__):
        assert re.search(rf"\b{name}\b", everywhere), name


def test_options_of_the_spark_source_in_snippets_exist() -> None:
    """Snippets with the format `kafka-group` use options that the source has."""
    pages = [read(path) for path in sorted((DOCS / "spark").glob("*.md"))]
    used = {
        name.lower()
        for text in pages
        for code in blocks(text, "python")
        for chain in re.findall(r"format\(\"kafka-group\"\)(.*?)\.load\(", code, re.DOTALL)
        for name in re.findall(r"\.option\(\s*\"([\w.]+)\"", chain)
    }
    assert {name for name in used if not name.startswith("kafka.")} <= OPTIONS.keys()


def test_options_table_of_the_spark_source_names_existing_options() -> None:
    """The first cells of the options table in docs/spark/structured-streaming.md are options of the source."""
    text = section(read(DOCS / "spark/structured-streaming.md"), "Options")
    (table,) = tables(text)
    names = {name.lower() for row in table[2:] for name in re.findall(r"`([\w.]+)`", row.split("|")[1])}
    assert names <= OPTIONS.keys()
    assert {"group.id", "startingoffsets", "failondataloss"} <= names


def test_run_and_drain_options_table_lists_each_option() -> None:
    """The options table in docs/spark/run-and-drain.md has every option of `Options`."""
    (table,) = tables(section(read(DOCS / "spark/run-and-drain.md"), "Options"))
    names = {name for row in table[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert spark.Options.__annotations__.keys() <= names


def test_probes_page_lists_each_health_verdict() -> None:
    """The table of verdicts in docs/operating/probes.md has one row for each verdict."""
    (table,) = tables(section(read(DOCS / "operating/probes.md"), "Verdicts"))
    named = [re.findall(r"`(\w+)`", row.split("|")[1])[0] for row in table[2:]]
    assert sorted(named) == sorted(verdict.value for verdict in HealthVerdict)


# ---- commands --------------------------------------------------------------------------------------------------------


def commands() -> list[tuple[Path, str]]:
    """Return the command lines of this project's programs in the documents."""
    found = []
    for path in documents_for_users():
        for block in all_blocks(read(path)):
            if block.language not in SHELLS:
                continue
            for line in block.code.replace("\\\n", " ").splitlines():
                if block.language == "console" and not line.startswith("$ "):
                    continue
                found += [(path, " ".join(line.split()))] if any(map(_is_checked, split(line))) else []
    return list(dict.fromkeys(found))


def split(line: str) -> list[list[str]]:
    """Return the commands of a line, without a prompt, variables before the command, and the folder `.venv/bin`."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if re.fullmatch(r"[|;&]+", word):
                found.append([])
            elif found[-1] or not re.match(r"\w+=", word):
                found[-1].append(re.sub(r"^(\S*/)?\.?venv/bin/", "", word) if not found[-1] else word)
    except ValueError:  # not a command: a sentence with an apostrophe
        return []
    return [words for words in found if words]


def _is_checked(words: list[str]) -> bool:
    return words[0] in {"consumer-membership", "python", "python3", "pip"}


@pytest.mark.parametrize(("path", "line"), commands(), ids=id_of)
def test_documented_command_lines_are_accepted(path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of each documented command line of this project's programs are accepted."""
    for words in filter(_is_checked, split(line)):
        check_command(words, path, monkeypatch)


def check_command(words: list[str], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a program of this project would reject these arguments."""
    words = words[: next((at for at, word in enumerate(words) if re.fullmatch(r"[<>]+", word)), len(words))]
    match words:
        case ["consumer-membership", "run", *_]:
            started: list[list[str]] = []
            monkeypatch.setattr(
                "consumer_membership.cli.run.os.execvpe", lambda _, program, __: started.append(program)
            )
            main(words[1:])
            assert words[-1:] == started[0][-1:]
        case ["consumer-membership", *_, "--version" | "--help"]:
            with pytest.raises(SystemExit, match="0"):
                main(words[1:])
        case ["consumer-membership", *rest]:
            for name in _subcommand_functions():
                monkeypatch.setattr(name, lambda *_, **__: 0)
            assert main(rest) == 0, path
        case ["python" | "python3", "-m", "pytest", *rest]:
            assert all((ROOT / word.partition("::")[0]).exists() for word in rest if word.startswith("tests/"))
            flags = {word for word in rest if word.startswith("--no-")}
            assert flags <= {"--no-broker", "--no-docker", "--no-hosts"}
        case ["python" | "python3", "-m", module, *rest] if module in PARSERS:
            options = PARSERS[module]().parse_args(rest)
            assert set(filter(None, getattr(options, "only", "").split(","))) <= everything.STAGES.keys()
        case ["python" | "python3", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None, module
        case ["python" | "python3", script, *_] if script.startswith(("examples/", "tests/")):
            assert (ROOT / script).exists(), script
        case ["pip", *rest]:
            check_pip(rest)


def check_pip(words: list[str]) -> None:
    """Fail if pip's arguments name an extra, a dependency group or a wheel that this project does not have."""
    version = consumer_membership.__version__
    for before, word in pairwise(["", *words]):
        if before == "--group":
            assert word in GROUPS
        if before != "--group" and (given := re.fullmatch(r"(\.|.*consumer[-_]membership.*)\[([\w,-]+)\](.*)", word)):
            assert set(given[2].split(",")) <= EXTRAS.keys()
        if wheel := re.match(r"dist/consumer_membership-[^[]*\.whl", word):
            assert wheel[0] in (
                f"dist/consumer_membership-{version}-py3-none-any.whl",
                "dist/consumer_membership-*.whl",
            )


def _subcommand_functions() -> list[str]:
    """Return the functions that subcommands call, by their paths."""
    cli = "consumer_membership.cli"
    of_command = (
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
    )
    named = [f"{cli}.command.{name}" for name in of_command if hasattr(command, name)]
    return [
        *named,
        f"{cli}.watch.watch_group",
        f"{cli}.checkpoint.checkpoint",
        f"{cli}.dead_letters.dead_letters",
    ]


def test_command_of_ci_is_the_documented_one() -> None:
    """`.ci/run` installs and tests with the command that the documents show."""
    shown = {line for path, line in commands() if re.search(r"venv .*python -m tests$", line)}
    assert shown
    (setup,) = {line.rpartition(" && ")[0] for line in shown}
    assert setup in read(ROOT / ".ci" / "run")


def test_commands_and_options_in_backticks_exist() -> None:
    """The modules, subcommands and options in backticks exist."""
    subcommands = _subcommands(command._parser())
    options = {
        option
        for parser in (command._parser(), *subcommands.values(), *(make() for make in PARSERS.values()))
        for action in parser._actions
        for option in action.option_strings
    }
    options |= {"--no-broker", "--no-docker", "--no-hosts", "--help", *foreign_names.OPTIONS}
    for path in documents_for_users():
        for words in map(str.split, quoted(read(path))):
            match words:
                case ["consumer-membership", name, *_] if re.fullmatch(r"[a-z][a-z-]*", name):
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


def test_documents_show_each_subcommand() -> None:
    """The documents have an example of each subcommand."""
    shown = {words[1] for _, line in commands() for words in split(line) if words[0] == "consumer-membership"}
    assert _subcommands(command._parser()).keys() <= shown


def test_contributing_table_lists_the_stages_of_the_test_command() -> None:
    """The table whose first column is `stage` lists the stages in their order."""
    (table,) = (
        lines
        for path in documents()
        for lines in tables(read(path))
        if re.match(r"\| *stage *\|", lines[0], re.IGNORECASE)
    )
    assert re.findall(r"^\| `([a-z-]+)` +\|", "\n".join(table), re.MULTILINE) == list(everything.STAGES)


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
    assert set(PROCESSOR_KEYS) <= rows.keys() <= {*KEYS, *PROCESSOR_KEYS}
    assert known.keys() - {"given"} <= rows.keys()
    for key, shown in rows.items():
        if key in FETCHER_DEFAULTS:
            assert shown == FETCHER_DEFAULTS[key]
        elif key == "partition.assignment.strategy":
            assert shown == ",".join(assignor.name for assignor in DEFAULT)
        elif key in known and known[key] not in (None, ()) and key != "group.id":
            given = {"group.id": "g", "bootstrap.servers": "h:1", key: shown}
            assert getattr(ConsumerConfig.from_mapping(given), key.replace(".", "_")) == known[key]
    of_processor = ProcessorSettings.checked({"group.id": "g", "bootstrap.servers": "h:1"}, ["t"], print)
    assert rows["drain.timeout.ms"] == f"{1000 * of_processor.drain_timeout_s:.0f}"
    assert rows["offset.metadata.max.bytes"] == str(of_processor.metadata_limit)


def test_documents_name_every_sasl_mechanism() -> None:
    """A page about operating names every supported SASL mechanism."""
    named = {word for path in DOCS.glob("operating/*.md") for word in re.findall(r"[A-Z0-9-]{5,}", read(path))}
    assert {mechanism.value for mechanism in SaslMechanism} <= named


# ---- names -----------------------------------------------------------------------------------------------------------


def named(pattern: str) -> Iterator[tuple[Path, str]]:
    """Yield the quoted words that match the pattern, with their documents."""
    for path in documents_for_users():
        for words in quoted(read(path)):
            if re.fullmatch(pattern, words):
                yield path, words


@cache
def identifiers() -> frozenset[str]:
    """Return the names in the code of the package, of the test support, of examples and of snippets."""
    found: set[str] = set()
    code = [
        read(path) for path in (*PACKAGE.rglob("*.py"), *EXAMPLES.rglob("*.py"), *ROOT.glob("tests/**/conftest.py"))
    ]
    for text in code:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                found.add(token.string)
            elif token.type == tokenize.STRING and not token.string.startswith(('"""', 'r"""')):
                found |= set(re.findall(r"\w+", token.string))
    for path in documents_for_users():
        for block in all_blocks(read(path)):
            if block.language in {"python", "yaml", "json", "toml"}:
                found |= set(re.findall(r"\w+", block.code))
    return frozenset(found)


def test_configuration_keys_in_backticks_exist() -> None:
    """Keys in backticks exist, with or without a value; settings of Spark are not checked."""
    found = {(path, words.partition("=")[0]) for path, words in named(r"[a-z]+(\.[a-z]+)+(=\S+)?")}
    assert found
    known = {*KEYS, *PROCESSOR_KEYS, *librdkafka_keys.keys(), *foreign_names.KEYS, "default.topic.config"}
    known |= {f"kafka.{key}" for key in (*known, *TRANSLATED)} | OPTIONS.keys()
    assert [(name_of(path), key) for path, key in found if key not in known and not _is_foreign(key)] == []


def _is_foreign(words: str) -> bool:
    """Return whether dotted words are a file, an attribute of a module or of an object, or a key of another program."""
    first = words.partition(".")[0]
    of_objects = {*sys.stdlib_module_names, *foreign_names.KEY_PREFIXES, *OBJECTS, *OBJECTS_OF_SPARK}
    return words.endswith(FILES) or first in of_objects or words.startswith("kafka.consumer.")


def test_environment_variables_in_documents_exist() -> None:
    """Each environment variable of this package in the documents corresponds to a key."""
    known = {variable_of(key) for key in (*KEYS, *PROCESSOR_KEYS)} | {PREFIX}
    pages = documents_for_users()
    found = {(name_of(path), name) for path in pages for name in re.findall(rf"\b{PREFIX}\w*", read(path))}
    assert found
    assert {(path, name) for path, name in found if name not in known} == set()


def test_documented_pod_variables_are_read_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of this package in YAML blocks are valid, with their values."""
    found = 0
    for path, code in of_all_blocks("yaml"):
        variables = dict(re.findall(r"name: (\w+)(?:,|\n) *value: \"(.*?)\"", code))
        given = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
        assert given.keys() <= {variable_of(key) for key in KEYS}, path
        with monkeypatch.context() as patched:
            for name, value in given.items():
                patched.setenv(name, value)
            ConsumerConfig.from_mapping({"group.id": "g", "bootstrap.servers": "h:1"})
        found += len(given)
    assert found > 0


def test_classes_and_exceptions_in_backticks_exist() -> None:
    """Class and exception names in backticks exist in the package, in confluent-kafka, or in a list of other names."""
    packages = (consumer_membership, aio, admin, devbroker, errors, processing, prometheus, spark)
    rooms = (*packages, confluent_kafka, aiokafka, builtins)
    known = foreign_names.CLASSES | {
        word for _, code in of_all_blocks("python") for word in re.findall(r"\b[A-Z]\w+", code)
    }
    found = {
        (path, words.partition("(")[0].partition(".")[0]) for path, words in named(r"[A-Z][a-z]+\w*(\.rows)?(\(.*\))?")
    }
    assert found
    missing = {(name_of(path), name) for path, name in found if not any(hasattr(room, name) for room in rooms)}
    assert {(path, name) for path, name in missing if name not in known} == set()


def test_modules_and_loggers_in_backticks_exist() -> None:
    """Each dotted name of the package in backticks is a logger or can be resolved."""
    loggers = {*LOGGERS, *(one.logger for one in log_messages.messages())}
    for _, name in named(r"consumer_membership(\.\w+)+"):
        if name not in loggers:
            assert pkgutil.resolve_name(name) is not None


def test_methods_fields_and_parameters_in_backticks_exist() -> None:
    """Quoted names with an underscore or with parentheses exist in the code, in confluent-kafka or in snippets."""
    kinds = (
        confluent_kafka.KafkaError,
        confluent_kafka.Producer,
        confluent_kafka.Message,
        confluent_kafka.admin.AdminClient,
    )
    known = {
        *identifiers(),
        *(name for kind in (*kinds, aiokafka.AIOKafkaConsumer, dict, str, bytes) for name in dir(kind)),
        *(*dir(builtins), *sys.stdlib_module_names, *KEYS, *librdkafka_keys.keys(), *foreign_names.NAMES),
        *(value.name.lower() for value in (*Cause, *admin.RemovalOutcome)),
    }
    of_contexts = (spark.SinkContext, spark.SinkHandlerContext)
    of_objects = [("consumer", (Consumer, aio.AIOConsumer)), ("context", of_contexts)]
    missing = [
        (name_of(path), words)
        for name, owners in of_objects
        for path, words in named(rf"{name}\.\w+(\(.*\))?")
        if not any(hasattr(owner, words.partition(".")[2].partition("(")[0]) for owner in owners)
    ]
    for path, words in named(r"[a-z]+(_[a-z]+)*(\(.*\))?(\.[a-z_]+)?|[a-z_]+="):
        first, _, field = words.replace("=", "").partition(").")
        name = first.partition("(")[0]
        if ("_" not in name and "(" not in first) or words.startswith("consumer_membership."):
            continue
        if f'title="{words}"' in read(path):  # a program of this page
            continue
        if name.partition(".")[0] not in known or (field and field not in known):
            missing.append((name_of(path), words))
    assert missing == []


def test_error_codes_in_documents_are_those_of_kafka_or_librdkafka() -> None:
    """Names in capitals with an underscore are codes of Kafka or librdkafka, or names in the code."""
    known = {code.name.upper() for code in ErrorCode} | set(dir(confluent_kafka.KafkaError)) | foreign_names.CAPITALS
    known |= {seeds.VARIABLE, opentelemetry.OPT_IN} | identifiers()
    found = set()
    for path in documents_for_users():
        text = re.sub(rf"(?:{PREFIX}|KAFKA_)\w*", "", prose(read(path)))
        codes = re.findall(r"(?<!\w)(?:_?[A-Z]+(?:_[A-Z]+)+|_[A-Z]+)\b", text)
        found |= {(name_of(path), code) for code in codes}
    assert found
    assert {(path, code) for path, code in found if code not in known} == set()


def test_file_paths_in_backticks_exist() -> None:
    """Paths in backticks whose first folder is one of this project or of the package exist."""
    tops = {path.name for folder in (ROOT, PACKAGE) for path in folder.iterdir() if path.is_dir()} - {".venv", "dist"}
    made = (name_of(benchmarks._RESULTS), name_of(coverage_report.REPORT))
    missing = []
    for path, name in named(r"\.?[\w-]+(/[\w.-]+)+/?"):
        is_here = name.partition("/")[0] in tops and not name.startswith(made)
        if is_here and not any((folder / name).exists() for folder in (ROOT, PACKAGE, PACKAGE.parent / "docs")):
            missing.append((name_of(path), name))
    assert missing == []


# ---- figures and messages --------------------------------------------------------------------------------------------


def test_readme_figures_are_those_of_the_benchmarks() -> None:
    """Each measured value in the README's tables against confluent-kafka occurs in docs/compare/benchmarks.md."""
    measured = read(DOCS / "compare/benchmarks.md")
    rows = [row for table in tables(read(README)) if "confluent-kafka" in table[0] for row in table[2:]]
    assert rows
    unit = r"(?<![\w.])(\d[\d.,]*)(?= ?(?:s|ms|µs|M/s|MB|MiB|kB|KiB|x|%)(?![\w]))"
    missing = [
        (figure, row)
        for row in rows
        for figure in re.findall(unit, row)
        if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", measured)
    ]
    assert missing == []


def test_quoted_messages_in_pages_about_diagnosis_occur_in_the_package() -> None:
    """Sentences in double quotes in docs/diagnose are messages of the package; `...` matches variable parts."""
    messages = [text for path in PACKAGE.rglob("*.py") for text in _texts(ast.parse(read(path)))]
    missing = []
    for path in sorted(DOCS.glob("diagnose/*.md")):
        text = re.sub(r"`[^`]*`|<a id=[^>]*>", "", prose(read(path)))
        for phrase in re.findall(r'"([^"]+)"', text):
            parts = [part.strip() for part in phrase.split("...")]
            missing += [(name_of(path), part) for part in parts if not any(part in message for message in messages)]
    assert missing == []


def _texts(module: ast.Module) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings."""
    mute = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in mute:
            yield node.value


def test_documents_list_each_finding_of_the_doctor() -> None:
    """Each cause that `consumer-membership doctor` can print has a row of a table in docs/diagnose."""
    pages = [read(path) for path in DOCS.glob("diagnose/*.md")]
    rows = {finding for text in pages for finding in re.findall(r"^\| \"([^\"]+)\" \|", text, re.MULTILINE)}
    assert {cause.value for cause in Cause} - rows == set()


def test_documents_list_each_error_that_has_a_remedy() -> None:
    """Each error code that has a remedy in the code has a row of a table in the documents."""
    rows = {
        code
        for path in documents_for_users()
        for code in re.findall(r"^\| (?:<a id=\"[\w-]+\"></a>)?`?([A-Z_]+)`? *\|", read(path), re.MULTILINE)
    }
    assert {error_name(code) for remedies in REMEDIES.values() for code in remedies} <= rows
