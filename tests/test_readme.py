"""What the README shows can be run, and what it says of the configuration is so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from consumer_membership import Consumer, MembershipView
from consumer_membership.cli import main
from consumer_membership.config.model import FETCHER_DEFAULTS, ConsumerConfig

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_python_is_python_and_names_what_exists() -> None:
    """Also the view's fields and the consumer's methods."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    used = [node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Attribute)]
    of = {"consumer": dir(Consumer), "view": MembershipView.__dataclass_fields__}
    for node in used:
        if isinstance(node.value, ast.Name) and node.value.id in of:
            assert node.attr in of[node.value.id]


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
        default = FETCHER_DEFAULTS.get(key, fields.get(key))
        if default not in (None, ()):
            assert shown.strip("`") == str(default)
