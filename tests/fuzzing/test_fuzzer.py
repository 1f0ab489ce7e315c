"""The fuzzer itself: it reports planted defects, and fails on platforms where it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing import __main__ as fuzzer
from tests.fuzzing.__main__ import fuzz, main
from tests.fuzzing.planted import TARGETS


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the folder of failed inputs by a temporary folder, and return it."""
    monkeypatch.setattr(fuzzer, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


#: A text in the output of each planted defect.
DEFECTS = {
    "raises": "MalformedError",
    "hangs": "timeout",
    "takes-memory": "MemoryError",
    "ends-the-process": "the process ended with code 0",
}


@pytest.mark.slow
def test_fuzz_reports_planted_defects_and_passes_a_sound_target(results: Path) -> None:
    """An exception, a hang, too much memory or an end of the process is a failure; all but the last keep the input."""
    outcomes = {one.target: one for one in fuzz(list(TARGETS), 10, 1, module="tests.fuzzing.planted", input_s=1)}
    assert outcomes.keys() == {"sound", *DEFECTS}
    assert outcomes["sound"].failure == ""
    assert min(outcomes["sound"].inputs, outcomes["sound"].coverage) > 1
    assert {name: words in outcomes[name].failure for name, words in DEFECTS.items()} == dict.fromkeys(DEFECTS, True)
    kept = {name: any(path.name.startswith(f"{name}-") for path in results.iterdir()) for name in TARGETS}
    assert kept == {name: name not in ("sound", "ends-the-process") for name in TARGETS}


def test_fuzzing_without_atheris_fails_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the fuzzer is not installed, the command fails and prints the fix."""
    monkeypatch.setattr(fuzzer, "find_spec", lambda _: None)
    assert main(["responses"]) == 1
    assert "python -m pip install 'atheris>=3.0'" in capsys.readouterr().out


def test_input_option_runs_one_input_without_the_fuzzer(tmp_path: Path) -> None:
    """The command that a failure prints runs the input again, without the fuzzer and in its own process."""
    path = tmp_path / "input"
    path.write_bytes(b"\x00" * 9 + b"cm1:")
    assert main(["commit-metadata", "--input", str(path)]) == 0
