"""The test command: the stages that it runs, its progress lines, and its final report."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings, strategies

from tests.__main__ import DURATION, STAGES, Plan, Progress, Running, chosen, closing, main, opening, repeating, run_all
from tests.support import coverage_report, seeds
from tests.support.outcomes import Outcomes, skip_lines

ROOT = Path(__file__).resolve().parent.parent
CHECKS = [name for name, stage in STAGES.items() if stage.is_check]
OF_FULL = [name for name, stage in STAGES.items() if stage.is_full]
WITH_PYTEST = ["units", "docs", "broker", "docker", "hosts", "newest-spark", "connect-spark"]

Run = Callable[[Running], int]


@pytest.fixture
def output(tmp_path: Path) -> Iterator[IO[str]]:
    """Return the open log file of a stage."""
    with (tmp_path / "log").open("w") as log:
        yield log


def plan(folder: Path, *, full: bool = False, broker: bool = True, hosts: bool = True) -> Plan:
    """Return a plan with these flags, on a machine that has every requirement."""
    return Plan(full=full, broker=broker, docker=True, hosts=hosts, folder=folder)


def commands(planned: Plan, name: str, output: IO[str], monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Record the commands of a stage without running them."""
    noted: list[Sequence[str]] = []

    def note(_: Running, words: Sequence[str], **__: object) -> int:
        noted.append(words)
        return 0

    monkeypatch.setattr(Running, "run", note)
    monkeypatch.setattr("tests.__main__.newest_pyspark", lambda: Path("/pyspark"))
    assert STAGES[name].run(Running(planned, name, output, 0)) == 0
    return noted


def with_outcomes(planned: Plan, stage: str, *lines: str) -> None:
    """Write the outcomes file that pytest would write for a stage."""
    (planned.folder / f"{stage}.outcomes").write_text("".join(f"{line}\n" for line in lines))


def of_stages(monkeypatch: pytest.MonkeyPatch, runs: Mapping[str, Run]) -> None:
    """Replace the functions of these stages."""
    for name, run in runs.items():
        monkeypatch.setitem(STAGES, name, replace(STAGES[name], run=run))


# ---- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_PYTEST)
@pytest.mark.parametrize("full", [False, True])
def test_only_gate_stages_deselect_the_tests_of_the_full_run(
    tmp_path: Path, output: IO[str], monkeypatch: pytest.MonkeyPatch, name: str, *, full: bool
) -> None:
    """Only a stage of the gate, without --full, deselects the tests that are left to the full run."""
    (words,) = commands(plan(tmp_path, full=full), name, output, monkeypatch)
    assert ("--gate" in words) == (not full and name not in OF_FULL)


@pytest.mark.parametrize("name", WITH_PYTEST)
@pytest.mark.parametrize("full", [False, True])
def test_only_the_full_run_measures_coverage(
    tmp_path: Path, output: IO[str], monkeypatch: pytest.MonkeyPatch, name: str, *, full: bool
) -> None:
    """The gate runs without coverage, which would slow it down."""
    (words,) = commands(plan(tmp_path, full=full), name, output, monkeypatch)
    assert set(coverage_report.FLAGS) & set(words) == (set(coverage_report.FLAGS) if full else set())


@pytest.mark.parametrize("name", STAGES)
def test_option_only_selects_the_named_stage_of_either_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A named stage also runs without --full, and every other stage is omitted with the reason."""
    monkeypatch.setattr("tests.__main__.docker_answers", lambda: True)
    planned = plan(tmp_path)
    assert chosen(planned, frozenset({name})) == [name]
    others = ", ".join(other for other in STAGES if other != name)
    assert planned.left_out == [f"{others}: other stages were chosen"]


def test_gate_omits_the_stages_of_the_full_run(tmp_path: Path) -> None:
    """Without flags, the stages of the full run are omitted with the reason."""
    planned = plan(tmp_path)
    assert set(chosen(planned, frozenset())) == STAGES.keys() - set(OF_FULL)
    assert planned.left_out == [f"{name}, which is left to --full" for name in OF_FULL]


def test_command_without_a_selected_stage_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that leave no stage to run are a mistake and not a success."""
    assert main(["--only", "hosts", "--no-hosts"]) == 1
    assert "left out: the tests that need network namespaces, because of --no-hosts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--only", "nothing"], "there is no such stage"),
        (["nothing:tests/test_text.py"], "there is no such stage"),
        (["tests/test_text.py"], "write STAGE:TEST"),
    ],
)
def test_command_rejects_an_unknown_stage(capsys: pytest.CaptureFixture[str], words: list[str], expected: str) -> None:
    """An unknown stage is an error; otherwise a misspelled one would be omitted silently."""
    with pytest.raises(SystemExit):
        main(words)
    assert expected in capsys.readouterr().err


def test_opening_lists_duration_requirements_and_seed(tmp_path: Path) -> None:
    """The first lines list the duration of the run, the requirements of the machine and the seed."""
    planned = plan(tmp_path)
    lines = list(opening(planned, chosen(planned, frozenset())))
    assert any(DURATION[False] in line for line in lines)
    assert any(line.startswith("broker needs a Kafka broker: a Docker engine, or Java 17 with Maven") for line in lines)
    assert lines[-1] == "seed 0 (the fixed one)"


@pytest.mark.parametrize("path", ["README.md", "docs/project/contributing.md"])
def test_documents_have_the_duration_of_the_test_command(path: str) -> None:
    """Documents and command have the same duration."""
    assert DURATION[False] in " ".join((ROOT / path).read_text().split())


# ---- checks and lanes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", CHECKS)
def test_run_stops_at_the_first_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    """After a failed check no stage of either lane starts, and each of them is listed as omitted."""
    ran: list[str] = []
    planned = plan(tmp_path)
    names = chosen(planned, frozenset())

    def run(stage: Running) -> int:
        ran.append(stage.name)
        return int(stage.name == broken)

    of_stages(monkeypatch, dict.fromkeys(names, run))
    assert run_all(planned, names) == [broken]
    assert ran == names[: names.index(broken) + 1]
    reasons = [words for words in planned.left_out if words.endswith(f"because {broken} failed")]
    assert sorted(words.partition(",")[0] for words in reasons) == sorted(set(names) - set(ran))
    assert f"==== {broken}: FAILED" in capsys.readouterr().out


def test_failed_stage_stops_no_other_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a failed check stops the run, so that a run of ten minutes reports every failure."""
    planned = plan(tmp_path)
    names = chosen(planned, frozenset())
    of_stages(monkeypatch, {name: lambda stage: int(not STAGES[stage.name].is_check) for name in names})
    assert set(run_all(planned, names)) == set(names) - set(CHECKS)
    assert capsys.readouterr().out.count("FAILED after") == len(names) - len(CHECKS)


def test_stages_keep_bytecode_whatever_the_environment(
    tmp_path: Path, output: IO[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of a run compile each module once, also if the variable of the caller forbids files of bytecode."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert Running(plan(tmp_path), "units", output, 0).python("-c", "import sys; print(sys.dont_write_bytecode)") == 0
    assert (tmp_path / "log").read_text().splitlines()[-1] == "False"


# ---- progress --------------------------------------------------------------------------------------------------------


def test_progress_shows_counts_and_time_of_each_running_stage(tmp_path: Path) -> None:
    """A stage with tests shows finished, total and failed tests and its time; another stage shows its time."""
    planned = plan(tmp_path)
    with_outcomes(planned, "units", '["total", 3, ""]', '["done", "a", ""]', '["failed", "b", ""]', '["done", "b", ""]')
    progress = Progress(planned)
    for name in ("units", "wheel"):
        progress.begin(name)
    assert re.fullmatch(r"\[0:\d\d\] units 2/3, 1 failed, 0:\d\d \| wheel 0:\d\d", progress.line())


def test_outcomes_ignore_an_incomplete_last_line(tmp_path: Path) -> None:
    """The outcomes of a running stage can be read at any time."""
    planned = plan(tmp_path)
    (tmp_path / "units.outcomes").write_text('["total", 3, ""]\n["done", "a", ""]\n["fail')
    assert planned.outcomes("units") == Outcomes(total=3, done=1)
    assert planned.outcomes("broker") == Outcomes()


TESTS = """
import pytest

@pytest.fixture
def broken():
    yield
    raise ValueError("in the teardown")

@pytest.mark.parametrize("number", [1, 2])
def test_skipped(number):
    pytest.skip("no such thing here")

@pytest.mark.xfail(strict=True, reason="known")
def test_expected():
    assert False

@pytest.mark.parametrize("word", ["a b", "it's"])
def test_failed(word):
    assert not word

def test_torn_down(broken):
    pass

def test_passed():
    pass
"""
FAILED = ["test_a.py::test_failed[a b]", "test_a.py::test_failed[it's]", "test_a.py::test_torn_down", "test_b.py"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_outcomes_match_those_of_pytest(tmp_path: Path, processes: list[str]) -> None:
    """A failed phase fails its test, a file that cannot be collected fails, and an expected failure is not a skip."""
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from tests.support.outcomes import OutcomeWriter\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(OutcomeWriter(Path('outcomes')))\n"
    )
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text("import nothing_of_this_name")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, *processes], cwd=tmp_path, env=environment, check=False, capture_output=True, timeout=100)
    found = Outcomes.read(tmp_path / "outcomes")
    assert (found.total, found.done, sorted(found.failed)) == (7, 7, FAILED)
    assert list(skip_lines(found.skipped)) == ["skipped: test_a.py::test_skipped (2 cases): no such thing here"]


# ---- the final report ------------------------------------------------------------------------------------------------


def test_repeating_returns_a_command_with_failed_tests_stages_and_seed(tmp_path: Path) -> None:
    """A stage without a failed test is repeated completely, and a shell parses each test id unchanged."""
    planned = replace(plan(tmp_path, full=True), seed=7)
    with_outcomes(planned, "units", '["failed", "t.py::test_a[it\'s b]", ""]', '["failed", "t.py::test_c", ""]')
    words = shlex.split(repeating(planned, ["units", "wheel"]))
    assert words[1:] == [
        *["-m", "tests", "--full", "--seed", "7", "--only", "wheel"],
        *["units:t.py::test_a[it's b]", "units:t.py::test_c"],
    ]


@pytest.mark.parametrize("name", WITH_PYTEST)
def test_stage_runs_exactly_the_named_tests(
    tmp_path: Path, output: IO[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A stage with named tests omits its own list of files."""
    planned = replace(plan(tmp_path), tests={name: ["t.py::test_a", "t.py::test_b"]})
    (words,) = commands(planned, name, output, monkeypatch)
    assert [word for word in words if ".py" in word and not word.startswith("--")] == ["t.py::test_a", "t.py::test_b"]


@pytest.mark.parametrize("name", WITH_PYTEST)
def test_stage_passes_pytest_no_path_outside_the_project(
    tmp_path: Path, output: IO[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path outside of the project would change pytest's root directory, settings and conftest.py."""
    (_, *words), *_ = commands(plan(tmp_path), name, output, monkeypatch)
    assert [word for word in words if Path(word).is_absolute() and not Path(word).is_relative_to(ROOT)] == []


def test_closing_lists_skipped_failed_and_omitted_tests(tmp_path: Path) -> None:
    """The last lines list every test and stage that did not run or failed."""
    planned = plan(tmp_path)
    planned.left_out.append("hosts, which is left to --full")
    with_outcomes(planned, "units", '["skipped", "t.py::test_a", "no IPv6"]', '["failed", "t.py::test_b", ""]')
    lines = list(closing(planned, ["units"], ["units"]))
    assert lines[:3] == [
        "skipped: t.py::test_a: no IPv6",
        "left out: hosts, which is left to --full",
        "FAILED in units: t.py::test_b",
    ]
    assert lines[3].endswith("-m tests units:t.py::test_b")


@pytest.mark.slow
def test_command_runs_a_selected_test_with_the_given_seed(tmp_path: Path) -> None:
    """The real command runs one test of one stage with the given seed."""
    test = "units:tests/test_main.py::test_run_seed_comes_from_the_environment"
    done = subprocess.run(
        [sys.executable, "-m", "tests", "--seed", "7", test],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 7; --seed 7 repeats it" in done.stdout
    assert re.search(r"1 passed.*\n==== units: ok after \d+ s", done.stdout)
    assert re.search(r"every stage that ran passed, after \d+:\d\d$", done.stdout.strip())


# ---- seeds -----------------------------------------------------------------------------------------------------------


def test_run_seed_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name has its own constant seed.

    Without the variable, and with the fixed seed, all seeds are the fixed one.
    """
    monkeypatch.setenv(seeds.VARIABLE, "7")
    assert seeds.run_seed() == 7
    assert seeds.seed_for("a") == seeds.seed_for("a") != seeds.seed_for("b")
    monkeypatch.delenv(seeds.VARIABLE)
    assert {seeds.run_seed(), seeds.seed_for("a"), seeds.seed_for("b")} == {seeds.FIXED}


def test_full_run_draws_fresh_seeds_and_passes_them_to_processes(tmp_path: Path, output: IO[str]) -> None:
    """Each process of a stage receives the run's seed, also as the hash seed that orders sets."""
    assert len({seeds.fresh_seed() for _ in range(5)} - {seeds.FIXED}) == 5
    planned = replace(plan(tmp_path), seed=7)
    shown = "import os; print(os.environ['TESTS_SEED'], os.environ['PYTHONHASHSEED'])"
    assert Running(planned, "units", output, 0).python("-c", shown) == 0
    assert (tmp_path / "log").read_text().splitlines()[-1] == "7 7"


def examples() -> list[int]:
    """Return the examples that Hypothesis draws for one test."""
    drawn: list[int] = []

    @settings(max_examples=5)
    @given(strategies.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    return drawn


def test_hypothesis_draws_the_same_examples_for_the_same_seed() -> None:
    """Each seed, the fixed one included, has its own examples, and draws them again each time."""

    def drawn(seed: int) -> list[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(seeds.VARIABLE, str(seed))
            seeds.seed_hypothesis()
            return examples()

    try:
        first, second = ([drawn(seed) for seed in (seeds.FIXED, 7, 8)] for _ in range(2))
    finally:
        seeds.seed_hypothesis()
    assert first == second
    assert len(set(map(tuple, first))) == 3


# ---- coverage --------------------------------------------------------------------------------------------------------


def test_coverage_totals_are_computed_per_package() -> None:
    """A total is the share of all lines of a package, not the mean of its modules."""
    figures = {
        "/x/consumer_membership/wire/a.py": {"covered_lines": 9, "num_statements": 10},
        "/x/consumer_membership/wire/b/c.py": {"covered_lines": 0, "num_statements": 20},
        "/x/consumer_membership/text.py": {"covered_lines": 5, "num_statements": 10},
    }
    assert list(coverage_report.totals(figures))[1:] == [
        "   50.0%  5/10  modules of the package itself",
        "   30.0%  9/30  wire",
        "   35.0%  14/40  together",
    ]
