"""The coverage of the protocol's scenarios by tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios import BROKER, CLIENT, HEARTBEAT, MEMBER, Level, claimed, coverage, ids_in, needless, uncovered


def test_every_scenario_is_tested_or_does_not_apply() -> None:
    """`python -m tests.scenarios` fails exactly if this test fails."""
    covered = coverage()
    assert (uncovered(covered), needless(covered)) == ([], [])


def test_required_scenarios_have_the_ranges_of_the_protocol_document() -> None:
    """The required ids have the numbers that `docs/project/protocol.md` lists."""
    assert (len(MEMBER), len(HEARTBEAT), MEMBER[0], MEMBER[-1]) == (93, 36, "M01", "M133")
    assert (len(BROKER), len(CLIENT), BROKER[-1], CLIENT[-1]) == (20, 20, "B32", "C20")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("M41: an on_revoke that raises.", {"M41"}),
        ("M05, H20: two at once.", {"M05", "H20"}),
        ("M120-M123: a range.", {"M120", "M121", "M122", "M123"}),
        ("S02-04: a short one.", {"S02", "S03", "S04"}),
        ("KAFKA-19335 and M1 are none.", set()),
    ],
)
def test_ids_in_finds_single_ids_and_ranges(text: str, ids: set[str]) -> None:
    """An id is a letter and two or three digits, and a range includes all of its numbers."""
    assert ids_in(text) == ids


@pytest.mark.parametrize(
    ("docstring", "ids"),
    [
        ("M41, H20: two at once.", {"M41", "H20"}),
        ("C01, rules 4.3: with its source.", {"C01"}),
        ("Beside M41: a mention.", set()),
        ("M41: one, and not M42.", {"M41"}),
        ("M41 without a colon.", set()),
    ],
)
def test_claimed_returns_only_the_ids_at_the_start_of_the_docstring(docstring: str, ids: set[str]) -> None:
    """Ids in the middle of a docstring are mentions and claim no coverage."""
    assert claimed(docstring) == ids


def test_coverage_derives_the_test_level_from_folder_mark_and_import(tmp_path: Path) -> None:
    """The folder determines the test level, unless a mark or an import does."""
    for name, text in {
        "membership/test_a.py": 'def test_a():\n    """M01: x."""\n    assert x\n',
        "membership/test_properties.py": 'class TestA:\n def test_a(self):\n  """M02: x."""\n  check()\n',
        "simulation/test_b.py": 'async def test_b():\n    """M03: x."""\n    assert x\n',
        "runtime/test_c.py": 'pytestmark = [pytest.mark.integration]\ndef test_c():\n    """M04: x."""\n    assert x\n',
        "wire/test_d.py": 'import tests.support.mock_cluster\ndef test_d():\n    """H04: x."""\n    assert x\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert coverage(tmp_path) == {
        "M01": {Level.UNIT},
        "M02": {Level.PROPERTIES},
        "M03": {Level.SIMULATION},
        "M04": {Level.INTEGRATION},
        "H04": {Level.WIRE},
    }


@pytest.mark.parametrize(
    "text",
    [
        'def helper():\n    """M01: x."""\n    assert x\n',
        'class Machine:\n    """M01: x."""\n',
        'def test_a():\n    """M01: x."""\n',
        '@pytest.mark.skip\ndef test_a():\n    """M01: x."""\n    assert x\n',
        '@pytest.mark.xfail(reason="later")\ndef test_a():\n    """M01: x."""\n    assert x\n',
    ],
    ids=["helper", "class", "empty", "skipped", "failing"],
)
def test_coverage_ignores_docstrings_of_helpers_and_of_tests_that_do_not_run(tmp_path: Path, text: str) -> None:
    """Only a test that runs and asserts covers a scenario."""
    (tmp_path / "test_a.py").write_text(text)
    assert coverage(tmp_path) == {}
