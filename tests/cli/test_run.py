"""`consumer-membership run`: starts unmodified programs with this package's consumer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from confluent_kafka import Consumer
import confluent_kafka, confluent_kafka.cimpl
with Consumer({"group.id": "g", "bootstrap.servers": ""}) as consumer:
    assert consumer.membership().owned == {}
assert sys.modules["confluent_kafka"] is confluent_kafka and confluent_kafka.__spec__.loader is not None
print(*sys.argv[1:])
"""
CHILD = """
import multiprocessing, subprocess, sys

def is_ours():
    import confluent_kafka
    return hasattr(confluent_kafka.Consumer, "membership")

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(is_ours)
    print(subprocess.check_output([sys.executable, "-c", "import child; print(child.is_ours())"], text=True).strip())
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Create a folder with programs, one of them a module in a package."""
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "plain.py").write_text("import sys; print(*(name for name in sys.modules if 'membership' in name))")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "worker.py").write_text(PROGRAM)
    return tmp_path


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command with these arguments in the folder."""
    command = [sys.executable, "-m", "consumer_membership", "run", *words]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=kept | env, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--", sys.executable, "app.py", "a", "-b", "--", "c"),
        (sys.executable, "app.py", "a", "-b", "--", "c"),
        ("app.py", "a", "-b", "--", "c"),
        ("-m", "package.worker", "a", "-b", "--", "c"),
    ],
    ids=["after two dashes", "by itself", "a file", "a module"],
)
def test_run_gives_program_our_consumer_and_its_arguments(programs: Path, words: tuple[str, ...]) -> None:
    """For each form of the command line, the program runs with this package's consumer and its own arguments."""
    done = run(programs, *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a -b -- c\n", "")


@pytest.mark.slow
def test_run_applies_to_child_processes(programs: Path) -> None:
    """Children of `multiprocessing` and `subprocess` also use this package's consumer."""
    done = run(programs, "child.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.slow
def test_run_of_program_without_kafka_imports_no_package_module(programs: Path) -> None:
    """A program that does not import confluent_kafka starts without this package's modules."""
    assert run(programs, "plain.py").stdout == "\n"


@pytest.mark.slow
def test_run_also_executes_next_sitecustomize(programs: Path) -> None:
    """Python runs only the first sitecustomize, so `run` executes the next one, for example a tracer's."""
    (programs / "first").mkdir()
    (programs / "first" / "sitecustomize.py").write_text("import os; os.environ['SAID'] = 'so'")
    (programs / "app.py").write_text(PROGRAM + "\nimport os; print(os.environ['SAID'])")
    done = run(programs, "app.py", PYTHONPATH=str(programs / "first"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "\nso\n", "")


@pytest.mark.slow
def test_startup_reports_python_that_lacks_the_package(programs: Path) -> None:
    """A Python without this package logs the reason, and the program uses confluent-kafka's own consumer."""
    (programs / "consumer_membership.py").write_text("raise ImportError('no such thing here')")
    (programs / "other.py").write_text("import confluent_kafka; print(hasattr(confluent_kafka.Consumer, 'membership'))")
    startup = Path(__file__).parents[2] / "consumer_membership" / "cli" / "startup"
    env = os.environ | {"PYTHONPATH": f"{programs}{os.pathsep}{startup}"}
    done = subprocess.run(
        [sys.executable, "other.py"], cwd=programs, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert f"{sys.executable} cannot import consumer_membership (no such thing here)" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "a program is required, or -m and a module"),
        (("-x",), 2, "a program is required, or -m and a module"),
        (("-m",), 2, "a program is required, or -m and a module"),
        (("--", "no-such-program"), 127, "no-such-program: No such file or directory"),
        (("./app.txt",), 126, "./app.txt: Permission denied"),
    ],
    ids=str,
)
def test_run_of_unstartable_program_exits_with_shell_code(
    programs: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    """The exit codes are those of a shell, and the error names the reason."""
    (programs / "app.txt").write_text("no program")
    done = run(programs, *words)
    assert (done.returncode, message in done.stderr) == (code, True)
    assert "Traceback" not in done.stderr
