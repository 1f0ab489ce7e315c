"""Rules for the tests themselves: imports, the origin of brokers, and lists that name tests."""

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
#: The fixtures through which a test requests a broker.
BROKERS = {"broker_pool", "kafka_broker", "kafka", "broker", "environment"}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, and the names that it imports from them as if they were modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield tests, fixtures and helpers, including methods."""
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def name_of(path: Path) -> str:
    """Return the path in pytest's form."""
    return path.relative_to(ROOT).as_posix()


def test_modules_never_import_test_modules() -> None:
    """No module imports a test module; shared code is in tests/support or in builder modules."""
    tests = {f"tests.{'.'.join(path.relative_to(TESTS).with_suffix('').parts)}" for path in TESTS.rglob("test_*.py")}
    assert {name_of(path): found for path in sorted(TESTS.rglob("*.py")) if (found := tests & set(imports(path)))} == {}


def test_integration_tests_take_their_brokers_from_the_pool() -> None:
    """Integration tests get all brokers from fixtures, also their own brokers (`own`), and never start one directly."""
    for path in sorted((TESTS / "integration").glob("test_*.py")):
        taken = {argument.arg for function in functions(path) for argument in function.args.args}
        assert taken & BROKERS, name_of(path)
        assert "consumer_membership.devbroker.start" not in set(imports(path)), name_of(path)


def assigned_names(path: Path) -> set[str]:
    """Return the names that a module assigns at its top level."""
    targets = [
        target
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def test_patience_is_defined_in_one_module() -> None:
    """Only tests/support/waiting.py defines PATIENCE_S; a different limit has a name that states its reason."""
    named = {name_of(path) for path in TESTS.rglob("*.py") if {"PATIENCE_S", "_PATIENCE_S"} & assigned_names(path)}
    assert named == {"tests/support/waiting.py"}


@pytest.mark.slow
def test_full_run_patterns_each_match_a_collected_test() -> None:
    """Each pattern of the full run matches a collected test; otherwise a renamed test would run in the gate again."""
    files = sorted({name_of(path) for pattern in NAMED for path in ROOT.glob(pattern.partition("::")[0])})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [pattern for pattern in NAMED if not any(fnmatchcase(one, pattern) for one in collected)] == []


def test_spark_session_list_names_every_file_that_uses_the_session() -> None:
    """The list names each gate file that uses the Spark session; another process would start a second session."""
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
