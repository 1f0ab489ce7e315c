"""The test command: lint, types, import contracts, all five floors, examples and the wheel.

    python -m tests                 the gate: ten minutes on two cores
    python -m tests --full          everything: what the gate leaves to it is counted at its end
    python -m tests --no-broker     without floor 5 (real broker); says so
    python -m tests --no-docker     without the tests that need a Docker engine; says so
    python -m tests --no-hosts      without the tests that need network namespaces; says so
    python -m tests --only lint,units
    python -m tests --only hosts    a stage of the full run, as the full run has it

Two lanes of stages run beside each other: floor 5, which waits for sessions and rebalances most of the time, and, with
less of a claim to the cores, all others one after the other. A stage's output is shown when it is over. The command
fails if a stage fails, and also if a stage cannot run: only what was left out by a flag, or what this machine has no
engine for, is left out, and the last lines name it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.costs import Costs
from tests.support.newest_pyspark import newest_pyspark

ROOT = Path(__file__).resolve().parent.parent
#: Floors 1 to 4 need no broker.
UNITS = "not integration and not docker"
FLOOR_5 = "integration and not docker and not hosts"
#: Of floor 5 in processes: its tests wait more than they compute.
WORKERS = 6
#: Lower than floor 5's, whose tests have members that must answer in time.
NICE = 5
#: Those that have a session.
SPARK_TESTS = (
    "tests/spark/test_runs.py",
    "tests/spark/test_group_read.py",
    "tests/spark/test_doctor.py",
    "tests/spark/source/test_data_source.py",
)
#: Those that are the same with a session of Spark Connect.
CONNECT_TESTS = (*SPARK_TESTS, "tests/spark/sinks/test_in_spark.py", "tests/spark/sinks/test_kafka_in_drain.py")
#: What the installed package is asked.
HAS_DOCUMENTS = """
from importlib.resources import files
assert (files("consumer_membership") / "docs" / "troubleshooting.md").is_file()
"""


@dataclass(slots=True)
class Plan:
    """What to run, and what was left out and why."""

    full: bool
    broker: bool
    docker: bool
    hosts: bool
    #: For what the stages tell about their costs.
    folder: Path
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Running:
    """A stage that is under way."""

    plan: Plan
    name: str
    output: IO[str]
    nice: int

    @property
    def is_full(self) -> bool:
        """Whether it runs as in the full run, which a stage that only the full run has always does."""
        return self.plan.full or STAGES[self.name].is_full

    def python(self, *words: str) -> int:
        """Run this interpreter with these words, at the project's root; its exit code."""
        return self.run([sys.executable, *words])

    def pytest(self, name: str, *words: str, environment: Mapping[str, str] | None = None) -> int:
        """Run tests; `name` is that of their costs."""
        of_gate = [] if self.is_full else ["--gate"]
        costs = ["--costs", str(self.plan.folder / f"{name}.json")]
        return self.run([sys.executable, "-m", "pytest", "-q", *of_gate, *costs, *words], environment=environment)

    def run(self, words: Sequence[str], cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> int:
        """Run a command, its output into the stage's; its exit code."""
        print(
            "$ " + " ".join(Path(words[0]).name if i == 0 else word for i, word in enumerate(words)), file=self.output
        )
        self.output.flush()
        to = self.output
        with subprocess.Popen(
            words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT, env=environment
        ) as process:
            os.setpriority(os.PRIO_PROCESS, process.pid, self.nice)
            return process.wait()


def lint(stage: Running) -> int:
    """Ruff's rules, and its format."""
    return stage.python("-m", "ruff", "check", ".") or stage.python("-m", "ruff", "format", "--check", ".")


def types(stage: Running) -> int:
    """Mypy --strict over the package."""
    return stage.python("-m", "mypy", "-p", "consumer_membership")


def contracts(stage: Running) -> int:
    """Who may import whom."""
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return stage.python("-c", script)


def scenarios(stage: Running) -> int:
    """Every scenario id is a named test or stands in the table."""
    return stage.python("-m", "tests.scenarios")


def units(stage: Running) -> int:
    """Floors 1 to 4: units, properties, simulation, wire."""
    return stage.pytest("units", "-n", "2", "--dist", "loadfile", "-m", UNITS, "--ignore", "tests/integration")


def exploration(stage: Running) -> int:
    """Every interleaving of small worlds, as far as the time goes: 20 s, in full 10 minutes."""
    return stage.python("-m", "tests.exploration", "--minutes", "10" if stage.is_full else "0.34")


def simulation(stage: Running) -> int:
    """2,500 seeds of every profile of chaos."""
    return stage.python("-m", "tests.simulation", "--seeds", "2500")


def wheel(stage: Running) -> int:
    """The wheel builds, installs into an empty environment, imports, has its documents, and its command answers."""
    with tempfile.TemporaryDirectory() as folder:
        code = stage.python("-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
        if code:
            return code
        built = next(Path(folder).glob("*.whl"))
        home = Path(folder) / "venv"
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        answers: list[Callable[[], int]] = [
            lambda: stage.run([str(home / "bin" / "pip"), "install", "-q", str(built)]),
            lambda: stage.run([str(home / "bin" / "consumer-membership"), "--version"], Path(folder)),
            lambda: stage.run([python, "-c", "from consumer_membership import Consumer"], Path(folder)),
            lambda: stage.run([python, "-c", HAS_DOCUMENTS], Path(folder)),
        ]
        return next((code for code in (answer() for answer in answers) if code), 0)


def broker(stage: Running) -> int:
    """Floor 5: the real broker, with examples, demo and command line."""
    # Each process collects all that it is told of, which takes ten seconds for everything.
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "integration" in path.read_text()]
    words = ["-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-m", FLOOR_5]
    return stage.pytest("broker", *words, *files)


def docker(stage: Running) -> int:
    """Floor 5's tests of containers: what looks at all of an engine's containers must be alone with it."""
    return stage.pytest("docker", "-m", "docker")


def hosts(stage: Running) -> int:
    """Spark over several hosts, whose networks are cut: alone, for each site is ten processes of Java."""
    return stage.pytest("hosts", "-m", "hosts", "tests/spark/hosts")


def newest_spark(stage: Running) -> int:
    """Spark's tests once more with the newest pyspark; the others have the oldest one, whose Kafka source resolves."""
    try:
        folder = newest_pyspark()
    except RuntimeError as failed:
        print(failed)
        return 1
    # Before the installed one, in the drivers and in their tasks.
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return stage.pytest("newest-spark", *SPARK_TESTS, environment={**os.environ, "PYTHONPATH": path})


def connect_spark(stage: Running) -> int:
    """Spark's tests once more, with a session of Spark Connect, whose server is a process of its own."""
    return stage.pytest("connect-spark", "--connect", *CONNECT_TESTS)


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing that is run.

    Attributes:
        run: Its exit code.
        is_full: Whether the gate leaves it to the full run.
        waits: Whether it has the lane of those that wait for brokers.
    """

    run: Callable[[Running], int]
    is_full: bool = False
    waits: bool = False


STAGES: dict[str, Stage] = {
    "lint": Stage(lint),
    "types": Stage(types),
    "contracts": Stage(contracts),
    "scenarios": Stage(scenarios),
    "units": Stage(units),
    "exploration": Stage(exploration),
    "simulation": Stage(simulation, is_full=True),
    "wheel": Stage(wheel),
    "broker": Stage(broker, waits=True),
    "docker": Stage(docker, is_full=True, waits=True),
    "hosts": Stage(hosts, is_full=True, waits=True),
    "newest-spark": Stage(newest_spark, is_full=True, waits=True),
    "connect-spark": Stage(connect_spark, is_full=True, waits=True),
}


def chosen(plan: Plan, only: frozenset[str]) -> list[str]:
    """The names of the stages to run; why the others are left out goes into the plan."""
    names = []
    for name, stage in STAGES.items():
        if only and name not in only:
            plan.left_out.append(f"{name}, because of --only")
        elif stage.is_full and not plan.full and not only:
            plan.left_out.append(f"{name}, which is left to --full")
        elif stage.waits and not plan.broker:
            plan.left_out.append(f"{name} (floor 5, the real broker), because of --no-broker")
        elif name == "docker" and not plan.docker:
            plan.left_out.append("the tests that need Docker, because of --no-docker")
        elif name == "hosts" and not plan.hosts:
            plan.left_out.append("the tests that need network namespaces, because of --no-hosts")
        elif name == "docker" and not docker_answers():
            plan.left_out.append("the tests that need Docker: no engine answers here (start one, then run again)")
        else:
            names.append(name)
    return names


def run_lane(plan: Plan, names: Iterable[str], printing: threading.Lock, nice: int) -> list[str]:
    """Run these stages one after the other; those that failed."""
    failed = []
    for name in names:
        began = time.monotonic()
        path = plan.folder / f"{name}.log"
        with path.open("w+") as output:
            if STAGES[name].run(Running(plan, name, output, nice)):
                failed.append(name)
        how = "FAILED" if name in failed else "ok"
        with printing:
            print(f"\n==== {name}: {STAGES[name].run.__doc__}\n{path.read_text(errors='replace')}", end="")
            print(f"==== {name}: {how} after {time.monotonic() - began:.0f} s", flush=True)
    return failed


def run_all(plan: Plan, names: Sequence[str]) -> list[str]:
    """Run both lanes beside each other; the stages that failed."""
    printing = threading.Lock()
    waiting = [name for name in names if STAGES[name].waits]
    others = [name for name in names if not STAGES[name].waits]
    with ThreadPoolExecutor(2) as lanes:
        one = lanes.submit(run_lane, plan, waiting, printing, 0)
        other = lanes.submit(run_lane, plan, others, printing, NICE if waiting else 0)
        return one.result() + other.result()


def docker_answers() -> bool:
    """Whether a Docker engine answers on this machine."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=60)  # noqa: S607
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


_ONLY = f"some of: {', '.join(STAGES)}; one that the gate leaves to --full runs as in --full"


def _parser() -> argparse.ArgumentParser:
    """What this command takes."""
    parser = argparse.ArgumentParser(prog="python -m tests", description="Run all checks of this project.")
    parser.add_argument("--full", action="store_true", help="everything, and not only what ten minutes suffice for")
    parser.add_argument("--no-broker", action="store_true", help="leave floor 5 (the real broker) out")
    parser.add_argument("--no-docker", action="store_true", help="leave out the tests that need a Docker engine")
    parser.add_argument("--no-hosts", action="store_true", help="leave out the tests that need network namespaces")
    parser.add_argument("--only", default="", metavar="STAGE,...", help=_ONLY)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages; 0 if there were some and all passed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    only = frozenset(filter(None, options.only.split(",")))
    if unknown := only - STAGES.keys():
        parser.error(f"--only {','.join(sorted(unknown))}: there is no such stage; the stages are {', '.join(STAGES)}")
    # A shell has what it starts in the background ignore Ctrl-C, and so would every program that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Those whom this process starts end with it, however it ends.
    os.environ["TESTS_OWNER"] = str(os.getpid())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        plan = Plan(
            full=options.full,
            broker=not options.no_broker,
            docker=not options.no_docker,
            hosts=not options.no_hosts,
            folder=Path(folder),
        )
        names = chosen(plan, only)
        if not names:
            print("\n".join(["there is nothing to run", *(f"left out: {words}" for words in plan.left_out)]))
            return 1
        print(f"running {', '.join(names)}", flush=True)
        failed = run_all(plan, names)
        costs = Costs.read(plan.folder.glob("*.json"))
    print("\n" + "\n".join([*costs.lines(), *(f"left out: {words}" for words in plan.left_out)]))
    took = time.monotonic() - began
    print(f"{'failed: ' + ', '.join(failed) if failed else 'every stage that ran passed'}, after {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
