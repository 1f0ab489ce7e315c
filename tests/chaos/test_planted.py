"""Planted bugs: each patch applies to its module, and the checker's tests report the bugs of the checker."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.chaos import small
from tests.chaos.planted import BUGS, Planted
from tests.support.waiting import PROCESS_S


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_planted_bug_applies_to_its_module(bug: Planted) -> None:
    """Each text occurs once in the module, and the broken module is valid Python that differs from the correct one."""
    source = bug.path.read_text(encoding="utf-8")
    broken = bug.applied_to(source)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(source))
    assert (bug.setup is None) == (not bug.rules)


def test_planted_bug_is_in_the_process_that_applies_it() -> None:
    """Only a process that applies a bug before the import has the broken module."""
    program = (
        "from tests.chaos import planted\nplanted.apply('view-of-an-old-epoch')\n"
        "import inspect\nfrom consumer_membership.membership import member\n"
        "print(member.MemberCore.view.__code__.co_names.count('min'))"
    )
    for code, found in ((program, "1"), (program.replace("planted.apply('view-of-an-old-epoch')", ""), "0")):
        ended = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PROCESS_S
        )
        assert ended.stdout.strip() == found


def test_planted_bug_in_an_imported_module_is_an_error() -> None:
    """Applying a bug after the import raises an error, because it would have no effect."""
    program = (
        "from tests.chaos import planted\nfrom consumer_membership.membership import member\n"
        "planted.apply('view-of-an-old-epoch')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PROCESS_S
    )
    assert "was imported before the bug" in ended.stderr


def test_planted_bug_of_the_checker_fails_its_tests() -> None:
    """The checker's tests report one of its planted bugs; `python -m tests.chaos --planted` runs all of them."""
    assert small.run_planted(["checker-ignores-the-committed-offset"], bootstrap="none") == 0


def test_unknown_planted_bug_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """For an unknown name, `run_planted` returns 2 and prints the known names."""
    assert small.run_planted(["nothing"]) == 2
    assert "view-of-an-old-epoch" in capsys.readouterr().err
