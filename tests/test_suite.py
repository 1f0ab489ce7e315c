"""The tests themselves: who imports whom, where brokers come from, and lists of tests that name what there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.support.full import NAMED
from tests.support.order import SPARK_SESSION

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
#: The fixtures by which a test says which broker it needs.
BROKERS = {"broker_pool", "kafka_broker", "kafka", "broker", "ground"}


def imports(path: Path) -> Iterator[str]:
    """The modules that one imports, and the names that it takes from them as if they were modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Tests, fixtures and helpers, methods too."""
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def name_of(path: Path) -> str:
    """As pytest writes it."""
    return path.relative_to(ROOT).as_posix()


def test_no_module_imports_a_test() -> None:
    """What tests share stands in tests/support or in a module of builders: a test can be moved, renamed and read."""
    tests = {f"tests.{'.'.join(path.relative_to(TESTS).with_suffix('').parts)}" for path in TESTS.rglob("test_*.py")}
    assert {name_of(path): found for path in sorted(TESTS.rglob("*.py")) if (found := tests & set(imports(path)))} == {}


def test_floor_5_has_its_brokers_from_the_pool() -> None:
    """One broker of each kind for a whole run; a test that stops nodes has its own from there, too (`own`)."""
    for path in sorted((TESTS / "integration").glob("test_*.py")):
        taken = {argument.arg for function in functions(path) for argument in function.args.args}
        assert taken & BROKERS, name_of(path)
        assert "consumer_membership.devbroker.start" not in set(imports(path)), name_of(path)


def assigned_names(path: Path) -> set[str]:
    """The names that a module assigns at its top level."""
    targets = [
        target
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def test_default_patience_is_defined_once() -> None:
    """A test that must wait for another time than the default names its reason, and not PATIENCE_S."""
    named = {name_of(path) for path in TESTS.rglob("*.py") if {"PATIENCE_S", "_PATIENCE_S"} & assigned_names(path)}
    assert named == {"tests/support/waiting.py"}


@pytest.mark.slow
def test_what_is_left_to_the_full_run_exists() -> None:
    """Each pattern matches a test as pytest collects it; otherwise a renamed test would be back in the gate."""
    files = sorted({name_of(path) for pattern in NAMED for path in ROOT.glob(pattern.partition("::")[0])})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [pattern for pattern in NAMED if not any(fnmatchcase(one, pattern) for one in collected)] == []


def test_one_process_has_all_tests_of_the_spark_session() -> None:
    """A file of the gate that uses the session is listed; otherwise another process would start a second session."""
    left_to_full = {pattern.removesuffix("::*") for pattern in NAMED}
    sessions = {"spark", "spark_session"}
    users = {
        name_of(path)
        for path in sorted((TESTS / "spark").rglob("test_*.py"))
        for function in functions(path)
        for argument in function.args.args
        if argument.arg in sessions and argument.annotation and ast.unparse(argument.annotation) == "SparkSession"
    }
    assert users - left_to_full == set(SPARK_SESSION)
