"""The test command's plan: which stages run, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.__main__ import STAGES, Plan, Running, chosen, main

OF_FULL = [name for name, stage in STAGES.items() if stage.is_full]
WITH_PYTEST = ["units", "broker", "docker", "hosts", "newest-spark", "connect-spark"]


@pytest.fixture
def output(tmp_path: Path) -> Iterator[IO[str]]:
    """A stage's log."""
    with (tmp_path / "log").open("w") as log:
        yield log


def plan(folder: Path, *, full: bool = False, broker: bool = True, hosts: bool = True) -> Plan:
    """What flags and the machine say."""
    return Plan(full=full, broker=broker, docker=True, hosts=hosts, folder=folder)


def commands(planned: Plan, name: str, output: IO[str], monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands of a stage, which are only noted."""
    noted: list[Sequence[str]] = []
    monkeypatch.setattr(Running, "run", lambda _, words, **__: noted.append(words) or 0)
    monkeypatch.setattr("tests.__main__.newest_pyspark", lambda: Path("/pyspark"))
    assert STAGES[name].run(Running(planned, name, output, 0)) == 0
    return noted


@pytest.mark.parametrize("name", WITH_PYTEST)
@pytest.mark.parametrize("full", [False, True])
def test_stage_of_the_full_run_leaves_no_test_to_the_full_run(
    tmp_path: Path, output: IO[str], monkeypatch: pytest.MonkeyPatch, name: str, *, full: bool
) -> None:
    """Only a stage of the gate, without --full, deselects the tests that the gate leaves out."""
    (words,) = commands(plan(tmp_path, full=full), name, output, monkeypatch)
    assert ("--gate" in words) == (not full and name not in OF_FULL)


@pytest.mark.parametrize("name", STAGES)
def test_only_chooses_the_named_stage_of_either_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A stage that is named runs without --full, too, and what else there is is left out with the reason."""
    monkeypatch.setattr("tests.__main__.docker_answers", lambda: True)
    planned = plan(tmp_path)
    assert chosen(planned, frozenset({name})) == [name]
    assert len(planned.left_out) == len(STAGES) - 1


def test_gate_leaves_the_stages_of_the_full_run_out(tmp_path: Path) -> None:
    """Without flags, the stages of the full run are left out with the reason."""
    planned = plan(tmp_path)
    assert set(chosen(planned, frozenset())) == STAGES.keys() - set(OF_FULL)
    assert planned.left_out == [f"{name}, which is left to --full" for name in OF_FULL]


def test_command_without_a_stage_to_run_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that leave nothing to run are a mistake, and not a success."""
    assert main(["--only", "hosts", "--no-hosts"]) == 1
    assert "left out: the tests that need network namespaces, because of --no-hosts" in capsys.readouterr().out
