"""The tests themselves: who imports whom, where brokers come from, and lists of tests that name what there is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.__main__ import SPARK_TESTS
from tests.support.full import NAMED
from tests.support.order import LONGEST

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
#: The fixtures by which a test says which broker it needs.
BROKERS = {"broker_pool", "kafka_broker", "kafka", "broker", "ground"}
#: A shorter module may be a table or a few types, which those that read it test.
LINES_OF_A_MODULE = 100
#: Modules whose test has another name, because they are parts of what is tested as a whole.
TESTED_BY: Mapping[str, str] = MappingProxyType(
    {
        "admin/inquiry.py": "admin/test_group_admin.py",
        "admin/history.py": "cli/test_timeline.py",
        "aio/callbacks.py": "aio/test_consumer.py",
        "clients/consumer.py": "clients/test_parity.py",
        "clients/exceptions.py": "clients/test_errors.py",
        "clients/outcomes.py": "clients/test_parity.py",
        "config/settings.py": "clients/test_errors.py",
        "config/strategies.py": "config/test_group_protocol.py",
        "demo/brokers.py": "demo/test_run.py",
        "demo/members.py": "demo/test_run.py",
        "demo/mock.py": "demo/test_run.py",
        "devbroker/properties.py": "devbroker/test_request.py",
        "errors.py": "clients/test_errors.py",
        "membership/classic/assignor.py": "membership/classic/test_protocol.py",
        "membership/classic/assignors/checked.py": "membership/classic/test_assignors_own.py",
        "membership/classic/assignors/holdings.py": "membership/classic/test_assignors.py",
        "membership/classic/assignors/range.py": "membership/classic/test_assignors.py",
        "membership/classic/assignors/returns.py": "membership/classic/test_assignors.py",
        "membership/classic/assignors/sticky.py": "membership/classic/test_assignors.py",
        "membership/classic/assignors/sticky_balance.py": "membership/classic/test_assignors.py",
        "membership/classic/assignors/sticky_quotas.py": "membership/classic/test_assignors.py",
        "membership/classic/exchanges.py": "membership/classic/test_protocol.py",
        "membership/classic/leader.py": "membership/classic/test_protocol.py",
        "membership/consumer/protocol.py": "membership/test_member_leaving.py",
        "membership/effects.py": "membership/test_reconciler.py",
        "membership/parts.py": "membership/test_member_leaving.py",
        "membership/protocol.py": "membership/classic/test_protocol.py",
        "observe/observation.py": "observe/test_doctor.py",
        "observe/rules_of_access.py": "observe/test_doctor.py",
        "observe/rules_of_members.py": "observe/test_doctor.py",
        "runtime/application/lifetime.py": "clients/test_close.py",
        "runtime/application/metrics_meter.py": "integration/test_metrics.py",
        "runtime/guardian/asking.py": "runtime/guardian/test_leaving.py",
        "runtime/network/cluster_client.py": "admin/test_survey.py",
        "spark/checkpoint.py": "cli/test_checkpoint.py",
        "spark/checkpoint_folder.py": "cli/test_checkpoint.py",
        "spark/context.py": "spark/test_member.py",
        "spark/sinks/files.py": "spark/sinks/test_parquet.py",
        "spark/source/hold.py": "spark/source/test_stream.py",
        "spark/source/logs.py": "spark/source/test_stream.py",
        "spark/source/rows.py": "spark/source/test_beside_spark.py",
        "spark/diagnosis/examination.py": "spark/test_doctor.py",
        "spark/task.py": "spark/test_runs.py",
        "types.py": "membership/test_reconciler.py",
        "wire/codec.py": "wire/test_messages.py",
        "wire/error_codes.py": "wire/test_messages.py",
        "wire/schema.py": "wire/test_messages_of_kafka.py",
    }
)


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


def test_module_has_a_test_of_its_name() -> None:
    """`membership/view.py` is tested by `membership/test_view.py` or `test_view_*.py`, or the list says where."""
    package = ROOT / "consumer_membership"
    without = set()
    for path in package.rglob("*.py"):
        folder = TESTS / path.relative_to(package).parent
        named = [*folder.glob(f"test_{path.stem}.py"), *folder.glob(f"test_{path.stem}_*.py")]
        if not named and path.stem.strip("_") == path.stem and path.read_text().count("\n") > LINES_OF_A_MODULE:
            without.add(path.relative_to(package).as_posix())
    assert without == TESTED_BY.keys()
    assert [name for name in TESTED_BY.values() if not (TESTS / name).exists()] == []


def test_floor_5_has_its_brokers_from_the_pool() -> None:
    """One broker of each kind for a whole run; a test that stops nodes has its own from there, too (`own`)."""
    for path in sorted((TESTS / "integration").glob("test_*.py")):
        taken = {argument.arg for function in functions(path) for argument in function.args.args}
        assert taken & BROKERS, name_of(path)
        assert "consumer_membership.devbroker.start" not in set(imports(path)), name_of(path)


@pytest.mark.parametrize("pattern", NAMED)
def test_what_is_left_to_the_full_run_exists(pattern: str) -> None:
    """A test that was renamed would come back into the gate without a word."""
    path, _, name = pattern.partition("::")
    names = {function.name for function in functions(ROOT / path)}
    # Parameters are known to pytest alone.
    assert name.startswith("*") or any(fnmatchcase(one, name) for one in names if one.startswith("test_"))


@pytest.mark.parametrize("name", [*LONGEST, *SPARK_TESTS])
def test_files_that_are_named_exist(name: str) -> None:
    """In the order of files, and in the newest Spark's tests."""
    assert (ROOT / name).exists()
