"""What the README shows can be run, and what it says of the configuration is so."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from consumer_membership import Consumer, MembershipView, MemberSubscription, Topics, spark
from consumer_membership.cli import main
from consumer_membership.config import SaslMechanism
from consumer_membership.config.model import FETCHER_DEFAULTS, ConsumerConfig
from consumer_membership.config.security import HONOURED_BY_TLS
from consumer_membership.config.strategies import DEFAULT
from consumer_membership.membership.classic.assignors.checked import assign_checked
from consumer_membership.types import GroupProtocol

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_python_is_python_and_names_what_exists() -> None:
    """Also the view's fields and the consumer's methods."""
    assert len(BLOCKS) == 5
    used = [node for block in BLOCKS for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Attribute)]
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


def test_tls_and_sasl_are_as_the_section_says() -> None:
    """Its configuration is a good one, and every key that it names is honoured."""
    section = README.partition("\n## TLS and SASL\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (shown,) = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Dict)]
    settings = ConsumerConfig.from_mapping(ast.literal_eval(shown)).connection_settings()
    assert settings.tls is not None
    assert settings.sasl is not None
    named = set(re.findall(r"`((?:enable\.)?ssl\.[a-z.]+)`", section))
    assert len(named) == 9
    assert named <= HONOURED_BY_TLS
    assert {mechanism.value for mechanism in SaslMechanism} <= set(re.findall(r"[A-Z0-9-]{5,}", section))


def test_words_of_the_spark_section_exist() -> None:
    """Functions, sinks and their parameters."""
    section = README.partition("\n## In Spark\n")[2].partition("\n## ")[0]
    named = {match[1]: match[2] for match in re.finditer(r"^\| .*?`(\w+)[.\w]*(?:\((.*?)\))?`", section, re.MULTILINE)}
    assert {"run", "drain", "member_task", "read_group", "check", "PostgresSink", "KafkaSink"} <= named.keys()
    assert named.keys() <= set(spark.__all__)
    for name, parameters in named.items():
        known = inspect.signature(getattr(spark, name)).parameters
        for parameter in filter(None, (parameters or "").split(", ")):
            assert parameter in known
    for option in ("sink_timeout_s", "sink_attempts", "batch_format"):
        assert option in spark.Options.__annotations__


def test_assignor_gives_each_topic_to_one_member() -> None:
    """It is taken where an assignor is asked for, and what it gives is sent."""
    (block,) = (block for block in BLOCKS if "assign(" in block)
    module = ModuleType("shown")
    exec(block, module.__dict__)  # noqa: S102 - what the README shows
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


def test_the_two_commands_install_extras_that_exist() -> None:
    """Each is one line that does all its set-up."""
    commands = re.findall(
        r"^python3 -m venv \.venv && .*'(?:-e )?\.\[(.*)\]' && \.venv/bin/(.*)$", README, re.MULTILINE
    )
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [command for _, command in commands] == ["consumer-membership demo", "python -m tests"]
    assert {extra for named, _ in commands for extra in named.split(",")} <= extras.keys()


@pytest.mark.parametrize("line", re.findall(r"^consumer-membership (.*)$", README, re.MULTILINE))
def test_command_lines_are_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as their arguments go."""
    for command in ("run_demo", "consume", "run_foreground", "describe", "remove_members"):
        monkeypatch.setattr(f"consumer_membership.cli.command.{command}", lambda *_, **__: 0)
    assert main(line.split()) == 0


def test_keys_and_defaults_are_those_of_the_configuration() -> None:
    """The table of keys."""
    rows = dict(re.findall(r"^\| `([a-z]+\.[a-z.]+)` \| (\S+) ", README, re.MULTILINE))
    assert rows
    fields = {name.replace("_", "."): field.default for name, field in ConsumerConfig.model_fields.items()}
    for key, shown in rows.items():
        assert key in fields or key in FETCHER_DEFAULTS
        if key in FETCHER_DEFAULTS:
            assert shown == FETCHER_DEFAULTS[key]
        elif key == "group.protocol":
            given = {"group.id": "g", "bootstrap.servers": "h:1", key: shown.strip("`")}
            assert ConsumerConfig.from_mapping(given).group_protocol == fields[key]
        elif key == "partition.assignment.strategy":
            assert shown == ",".join(assignor.name for assignor in DEFAULT)
        elif fields[key] not in (None, ()):
            assert shown.strip("`") == str(fields[key])
