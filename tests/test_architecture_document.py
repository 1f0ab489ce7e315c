"""docs/explanation/architecture.md is true: its diagrams are generated, and its states, tests and modules exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import pytest

from consumer_membership.membership import states
from consumer_membership.membership.classic import states as classic_states
from consumer_membership.membership.consumer.claim_states import CLAIM_TRANSITIONS
from consumer_membership.membership.states import MemberState, TransitionRule, diagram

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "consumer_membership"
MAP = ROOT / "docs" / "explanation/architecture.md"


def text() -> str:
    """Return the document."""
    return MAP.read_text()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("states", states.TRANSITIONS),
        ("classic states", classic_states.CLASSIC_TRANSITIONS),
        ("claim states", CLAIM_TRANSITIONS),
    ],
    ids=["states", "classic states", "claim states"],
)
def test_architecture_document_has_the_generated_state_diagrams(
    name: str, table: Sequence[TransitionRule[Enum]]
) -> None:
    """The document has the current diagrams; renew them with print(diagram(TABLE)) between the markers."""
    shown = re.search(rf"<!-- {name}: begin -->\n```mermaid\n(.*?)\n```\n<!-- {name}: end -->", text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == diagram(table)


def test_architecture_document_maps_every_member_state_to_java() -> None:
    """The table of Java names lists every member state."""
    rows = re.findall(r"^\| ([A-Z]+) \| [A-Z]", text(), re.MULTILINE)
    assert rows == [state.value for state in MemberState]


def test_architecture_document_names_existing_tests() -> None:
    """Each test that the document names for a rule exists."""
    named = re.findall(r"`([\w/]+)::(test_\w+)`", text())
    assert len(named) > 20
    missing = []
    for module, name in named:
        path = ROOT / "tests" / f"{module}.py"
        defined = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
        if name not in defined:
            missing.append(f"{module}::{name}")
    assert missing == []


def test_architecture_document_names_existing_modules() -> None:
    """Each module and each folder that the document names exists, also outside of its table."""
    rooms = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())
    named = set(re.findall(rf"`((?:{rooms})/\w+)`", text()))
    assert named
    assert [one for one in sorted(named) if not ((PACKAGE / f"{one}.py").exists() or (PACKAGE / one).is_dir())] == []
