"""The test command: lint, types, import contracts, all five floors, examples and the wheel.

    python -m tests                 everything
    python -m tests --no-broker     without floor 5 (real broker); says so
    python -m tests --no-docker     without the tests that need a Docker engine; says so
    python -m tests --only lint,units

Each stage's output is shown as it comes. The command fails if a stage fails, and also if a stage cannot run: only what
was left out by a flag, or what this machine has no engine for, is left out, and the last lines name it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Folders whose tests are quick and need no broker; floors 1 to 4. They run in two processes.
NOT_INTEGRATION = "not integration and not docker"
#: Beside the one of the extra `test`.
NEWEST_PYSPARK = "4.3.0"
#: What the installed package is asked.
HAS_DOCUMENTS = """
from importlib.resources import files
assert (files("consumer_membership") / "docs" / "troubleshooting.md").is_file()
"""
#: Those that have a session.
SPARK_TESTS = ("tests/spark/test_runs.py", "tests/spark/test_group_read.py", "tests/spark/test_doctor.py")


@dataclass(slots=True)
class Plan:
    """What to run, and what was left out and why."""

    broker: bool
    docker: bool
    only: frozenset[str]
    left_out: list[str] = field(default_factory=list)


def python(*words: str) -> int:
    """Run this interpreter with these words, at the project's root."""
    return run([sys.executable, *words])


def run(words: Sequence[str], cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> int:
    """Run a command, output passed through; its exit code."""
    print("$ " + " ".join(Path(words[0]).name if i == 0 else word for i, word in enumerate(words)), flush=True)
    return subprocess.run(words, cwd=cwd, check=False, stdin=subprocess.DEVNULL, env=environment).returncode


def lint(_: Plan) -> int:
    """Ruff's rules, and its format."""
    return python("-m", "ruff", "check", ".") or python("-m", "ruff", "format", "--check", ".")


def types(_: Plan) -> int:
    """Mypy --strict over the package."""
    return python("-m", "mypy", "-p", "consumer_membership")


def contracts(_: Plan) -> int:
    """Who may import whom."""
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return python("-c", script)


def units(_: Plan) -> int:
    """Floors 1 to 4: units, properties, simulation, wire."""
    return python("-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", NOT_INTEGRATION)


def exploration(_: Plan) -> int:
    """Every interleaving of small worlds, as far as two minutes go (`python -m tests.exploration --help`: further)."""
    return python("-m", "tests.exploration", "--minutes", "2")


def scenarios(_: Plan) -> int:
    """Every scenario id is a named test or stands in the table."""
    return python("-m", "tests.scenarios")


def broker(plan: Plan) -> int:
    """Floor 5: the real broker, with examples, demo and command line; two processes, each with its own brokers."""
    if not plan.broker:
        plan.left_out.append("floor 5 (the real broker), because of --no-broker")
        return 0
    code = python(
        "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "integration and not docker", "--durations=15"
    )
    # What looks at all of an engine's containers must be alone with it.
    return code or (python("-m", "pytest", "-q", "-m", "docker") if plan.docker else 0)


def newest_spark(plan: Plan) -> int:
    """Spark's tests once more with the newest pyspark; the others have the oldest one, whose Kafka source resolves."""
    if not plan.broker:
        return 0
    folder = Path.home() / ".cache" / "consumer-membership" / f"pyspark-{NEWEST_PYSPARK}"
    if not (folder / "pyspark" / "version.py").exists():
        code = python("-m", "pip", "install", "-q", "--target", str(folder), f"pyspark=={NEWEST_PYSPARK}")
        if code:
            return code
    # Before the installed one, in the drivers and in their tasks.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
    }
    return run([sys.executable, "-m", "pytest", "-q", *SPARK_TESTS], environment=environment)


def wheel(_: Plan) -> int:
    """The wheel builds, installs into an empty environment, imports, has its documents, and its command answers."""
    with tempfile.TemporaryDirectory() as folder:
        code = python("-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
        if code:
            return code
        built = next(Path(folder).glob("*.whl"))
        home = Path(folder) / "venv"
        venv.create(home, with_pip=True)
        answers: list[Callable[[], int]] = [
            lambda: run([str(home / "bin" / "pip"), "install", "-q", str(built)]),
            lambda: run([str(home / "bin" / "consumer-membership"), "--version"], Path(folder)),
            lambda: run([str(home / "bin" / "python"), "-c", "from consumer_membership import Consumer"], Path(folder)),
            lambda: run([str(home / "bin" / "python"), "-c", HAS_DOCUMENTS], Path(folder)),
        ]
        return next((code for code in (answer() for answer in answers) if code), 0)


STAGES: dict[str, Callable[[Plan], int]] = {
    "lint": lint,
    "types": types,
    "contracts": contracts,
    "units": units,
    "scenarios": scenarios,
    "exploration": exploration,
    "broker": broker,
    "newest-spark": newest_spark,
    "wheel": wheel,
}


def docker_answers() -> bool:
    """Whether a Docker engine answers on this machine."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=60)  # noqa: S607
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


def _parser() -> argparse.ArgumentParser:
    """What this command takes."""
    parser = argparse.ArgumentParser(prog="python -m tests", description="Run all checks of this project.")
    parser.add_argument("--no-broker", action="store_true", help="leave floor 5 (the real broker) out")
    parser.add_argument("--no-docker", action="store_true", help="leave out the tests that need a Docker engine")
    parser.add_argument("--only", default="", metavar="STAGE,...", help=f"some of: {', '.join(STAGES)}")
    return parser


def main() -> int:
    """Run the stages; 0 if all that was to run passed."""
    parser = _parser()
    options = parser.parse_args()
    only = frozenset(filter(None, options.only.split(",")))
    if unknown := only - STAGES.keys():
        parser.error(f"--only {','.join(sorted(unknown))}: there is no such stage; the stages are {', '.join(STAGES)}")
    plan = Plan(broker=not options.no_broker, docker=not options.no_docker, only=only)
    if options.no_docker:
        plan.left_out.append("the tests that need Docker, because of --no-docker")
    elif not docker_answers():
        plan.docker = False
        plan.left_out.append("the tests that need Docker: no engine answers here (start one, then run again)")
    failed = []
    for name, stage in STAGES.items():
        if plan.only and name not in plan.only:
            plan.left_out.append(f"{name}, because of --only")
            continue
        print(f"\n==== {name}: {stage.__doc__}", flush=True)
        began = time.monotonic()
        if stage(plan):
            failed.append(name)
        print(f"==== {name}: {'FAILED' if name in failed else 'ok'} after {time.monotonic() - began:.0f} s", flush=True)
    print("\n" + "\n".join(f"left out: {words}" for words in plan.left_out))
    print(f"failed: {', '.join(failed)}" if failed else "every stage that ran passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
