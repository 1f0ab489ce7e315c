"""The test command: lint, types, import contracts, all five levels of tests, examples and the wheel.

    python -m tests                 the gate, for each change
    python -m tests --full          everything, with fresh seeds and a coverage report
    python -m tests --no-broker     without level 5 (the real broker)
    python -m tests --no-docker     without the tests that need a Docker engine
    python -m tests --no-hosts      without the tests that need network namespaces
    python -m tests --only lint,units
    python -m tests --only docs     the documentation site, in a browser
    python -m tests --only hosts    a stage of the full run, as in the full run
    python -m tests --seed 7        with the random choices of an earlier full run
    python -m tests units:tests/test_text.py    only these tests of a stage

The checks (lint, contracts, types) run first; if one of them fails, the command ends. Then two lanes of stages run side
by side: the stages on real brokers, which wait for sessions and rebalances most of the time, and all other stages with
lower priority. A line every 15 seconds shows the progress of the running stages, and names tests that failed. The
output of a stage is shown when it ends.

The command fails if a stage fails or cannot run. Stages are omitted only because of a flag, or if the machine has no
Docker engine. The last lines name the omitted stages, every skipped test with its reason, and one command that repeats
the failed tests and stages.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support import coverage_report, seeds
from tests.support.costs import Costs
from tests.support.newest_pyspark import newest_pyspark
from tests.support.outcomes import Outcomes, skip_lines

ROOT = Path(__file__).resolve().parent.parent
#: Levels 1 to 4 need no broker.
UNITS = "not integration and not docker"
#: The tests of the stage `docs`.
IN_BROWSER = "tests/test_site_in_browser.py"
LEVEL_5 = "integration and not docker and not hosts"
#: The number of processes of level 5, for two cores: its tests wait for nine tenths of their time. With 7 processes,
#: and 3 for the other levels, brokers got no CPU time for a minute, and tests failed.
WORKERS = 5
#: The number of processes of levels 1 to 4: many of these tests wait for another process or thread.
UNIT_WORKERS = 2
#: The niceness of the lane without brokers, because members in level 5 must respond in time.
NICE = 10
PROGRESS_S = 15.0
#: A variable that is removed: with it, each of the hundreds of processes of a run would compile the package again, and
#: each pytest process all test files.
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
#: How long the gate and the full run take on two idle cores, once the broker is in the cache; as in the documents.
DURATION = {False: "10 to 15 minutes", True: "about an hour"}
#: Tests with a Spark session.
SPARK_TESTS = (
    "tests/spark/test_runs.py",
    "tests/spark/test_group_read.py",
    "tests/spark/test_doctor.py",
    "tests/spark/source/test_data_source.py",
)
#: Tests that also run with a session of Spark Connect.
CONNECT_TESTS = (*SPARK_TESTS, "tests/spark/sinks/test_in_spark.py", "tests/spark/sinks/test_kafka_in_drain.py")
#: A program that runs in the environment of the installed wheel.
CONTENT_IS_RIGHT = """
import re
from importlib.metadata import metadata
from importlib.resources import files
package = files("consumer_membership")
assert (package / "py.typed").is_file()
assert not (package / "docs").is_dir()
page = metadata("consumer-membership").get_payload()
links = re.findall(r"\\]\\(([^)]+)\\)", page)
assert links and all(link.startswith(("https://", "#")) for link in links), links
"""


@dataclass(slots=True)
class Plan:
    """The stages and tests to run, and the omitted stages.

    Attributes:
        full: Whether this is the full run.
        broker: Whether stages on real brokers may run.
        docker: Whether the stage that needs a Docker engine may run.
        hosts: Whether the stage that needs network namespaces may run.
        folder: The folder for the output, outcomes and costs of stages.
        seed: The seed of all random choices.
        tests: The selected tests of each stage; a stage that is missing here runs all its tests.
        left_out: The stages that do not run, each with the reason.
        cpu_s: The CPU seconds of each stage so far, including brokers; on a busy machine they change little, unlike
            the duration.
    """

    full: bool
    broker: bool
    docker: bool
    hosts: bool
    folder: Path
    seed: int = seeds.FIXED
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def outcomes(self, stage: str) -> Outcomes:
        """Return the outcomes of a stage's tests so far."""
        return Outcomes.read(self.folder / f"{stage}.outcomes")


def environment_of(plan: Plan) -> dict[str, str]:
    """Return the environment of the processes of this run: with its seed, and with files of bytecode."""
    return {key: value for key, value in os.environ.items() if key != NO_BYTECODE} | seeds.environment(plan.seed)


@dataclass(frozen=True, slots=True)
class Running:
    """A stage that is running."""

    plan: Plan
    name: str
    output: IO[str]
    nice: int

    @property
    def is_full(self) -> bool:
        """Whether it runs as in the full run; stages that only the full run has always run like this."""
        return self.plan.full or STAGES[self.name].is_full

    def python(self, *words: str) -> int:
        """Run this interpreter with these arguments at the project's root; return its exit code."""
        return self.run([sys.executable, *words])

    def pytest(self, *flags: str, files: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> int:
        """Run the selected tests of this stage, or else the tests in `files` or in all files; return the exit code."""
        of_gate = [] if self.is_full else ["--gate"]
        begun = str(self.plan.folder / self.name)
        # Each option is one word with its value, because pytest would treat an existing path as a folder of tests.
        notes = [f"--costs={begun}.json", f"--outcomes={begun}.outcomes"]
        covered = coverage_report.FLAGS if self.plan.full else ()
        data = {coverage_report.VARIABLE: f"{begun}.coverage"}
        chosen = self.plan.tests.get(self.name) or files
        return self.run(
            [sys.executable, "-m", "pytest", "-q", *of_gate, *notes, *covered, *flags, *chosen],
            environment={**data, **(environment or {})},
        )

    def run(self, words: Sequence[str], cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> int:
        """Run a command, whose output is appended to the stage's output; return its exit code."""
        shown = (Path(words[0]).name, *words[1:])
        print("$ " + " ".join(shown), file=self.output, flush=True)
        of_process = environment_of(self.plan) | dict(environment or {})
        to = self.output
        with subprocess.Popen(
            words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT, env=of_process
        ) as process:
            os.setpriority(os.PRIO_PROCESS, process.pid, self.nice)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.plan.cpu_s[self.name] += used.ru_utime + used.ru_stime
            return process.returncode


def lint(stage: Running) -> int:
    """Check ruff's rules and format, and the language of documents, docstrings and comments."""
    commands = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["tests.support.language"])
    return next((code for code in (stage.python("-m", *words) for words in commands) if code), 0)


def contracts(stage: Running) -> int:
    """Check that packages import only the packages that they may import."""
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return stage.python("-c", script)


def types(stage: Running) -> int:
    """Check types: `mypy --strict` for the package, and slightly less strict for the tests."""
    return stage.python("-m", "mypy")


def scenarios(stage: Running) -> int:
    """Check that each scenario has a test that names its id, or is listed in the table of exceptions."""
    return stage.python("-m", "tests.scenarios")


def units(stage: Running) -> int:
    """Run levels 1 to 4: units, properties, simulation, wire."""
    flags = ["-n", str(UNIT_WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-m", UNITS]
    return stage.pytest(*flags, "--ignore=tests/integration", f"--ignore={IN_BROWSER}")


def exploration(stage: Running) -> int:
    """Explore every interleaving of small configurations for 10 minutes; unit tests explore the smallest ones."""
    return stage.python("-m", "tests.exploration", "--minutes", "10")


def simulation(stage: Running) -> int:
    """Simulate 2,500 seeds of every profile of chaos."""
    return stage.python("-m", "tests.simulation", "--seeds", "2500", "--start", str(stage.plan.seed))


def fuzzing(stage: Running) -> int:
    """Fuzz all code that reads data from other programs for a minute; the unit tests run the corpus."""
    return stage.python("-m", "tests.fuzzing", "--seconds", "60", "--seed", str(stage.plan.seed))


def chaos(stage: Running) -> int:
    """Cause faults on a cluster of three nodes for ten minutes, and check the records and commits of the members."""
    return stage.python("-m", "tests.chaos", "--minutes", "10", "--seed", str(stage.plan.seed))


def planted(stage: Running) -> int:
    """Check that small rounds of chaos report each planted bug of the package and of the checker."""
    return stage.python("-m", "tests.chaos", "--planted")


def wheel(stage: Running) -> int:
    """Build the source archive and the wheel, check them with `twine check`, and install and try the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        code = stage.python("-m", "build", "--no-isolation", "--outdir", folder)
        if code:
            return code
        built = next(Path(folder).glob("*.whl"))
        if code := stage.python("-m", "twine", "check", "--strict", *map(str, sorted(Path(folder).iterdir()))):
            return code
        home = Path(folder) / "venv"
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        answers: list[Callable[[], int]] = [
            lambda: stage.run([str(home / "bin" / "pip"), "install", "-q", str(built)]),
            lambda: stage.run([str(home / "bin" / "consumer-membership"), "--version"], Path(folder)),
            lambda: stage.run([python, "-c", "from consumer_membership import Consumer"], Path(folder)),
            lambda: stage.run([python, "-c", CONTENT_IS_RIGHT], Path(folder)),
        ]
        return next((code for code in (answer() for answer in answers) if code), 0)


def docs(stage: Running) -> int:
    """Build the documentation site strictly, and test it in a browser: each page, the search and the color schemes."""
    return stage.pytest(files=["tests/test_site.py", IN_BROWSER])


def broker(stage: Running) -> int:
    """Run level 5, the tests on a real broker, with examples, demo and command line."""
    # Each process collects all files that it receives, which would take ten seconds for all test files.
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "integration" in path.read_text()]
    flags = ["-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-m", LEVEL_5]
    return stage.pytest(*flags, files=files)


def docker(stage: Running) -> int:
    """Run level 5's tests of containers alone, because a test that lists all containers needs the engine for itself."""
    return stage.pytest("-m", "docker")


def hosts(stage: Running) -> int:
    """Run the tests of Spark on several hosts, whose networks are cut, alone, because each site has ten JVMs."""
    return stage.pytest("-m", "hosts", files=["tests/spark/hosts"])


def newest_spark(stage: Running) -> int:
    """Run Spark's tests with the newest pyspark; other stages use the oldest one, whose Kafka source can be fetched."""
    try:
        folder = newest_pyspark()
    except RuntimeError as failed:
        print(failed, file=stage.output)
        return 1
    # The newest pyspark precedes the installed pyspark on the path of drivers and of their tasks.
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return stage.pytest(files=SPARK_TESTS, environment={"PYTHONPATH": path})


def connect_spark(stage: Running) -> int:
    """Run Spark's tests with a session of Spark Connect, whose server is a separate process."""
    return stage.pytest("--connect", files=CONNECT_TESTS)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a run.

    Attributes:
        run: Runs the stage and returns its exit code.
        is_check: Whether it runs before the lanes, and its failure ends the command.
        is_full: Whether only the full run includes it.
        waits: Whether it is in the lane of the stages that wait for brokers.
        needs: The requirements of the machine in addition to Python and the dependency group `dev`.
    """

    run: Callable[[Running], int]
    is_check: bool = False
    is_full: bool = False
    waits: bool = False
    needs: str = ""


_BROKER = "a Kafka broker: a Docker engine, or Java 17 with Maven, or KAFKA_BOOTSTRAP_SERVERS"
_PIP = "a package index for pip"
#: The stages, in the order in which they run within a lane.
STAGES: dict[str, Stage] = {
    "lint": Stage(lint, is_check=True),
    "contracts": Stage(contracts, is_check=True),
    "types": Stage(types, is_check=True),
    "scenarios": Stage(scenarios),
    "units": Stage(units),
    "exploration": Stage(exploration, is_full=True),
    "simulation": Stage(simulation, is_full=True),
    "fuzzing": Stage(fuzzing, is_full=True, needs="Linux with x86_64, for which atheris has wheels"),
    "wheel": Stage(wheel, needs=_PIP),
    "docs": Stage(docs, is_full=True, needs="chromium with chromedriver (Debian: chromium chromium-driver)"),
    "broker": Stage(broker, waits=True, needs=f"{_BROKER}; Java 17 for Spark; {_PIP}"),
    "docker": Stage(docker, is_full=True, waits=True, needs="a Docker engine (left out where none answers)"),
    "hosts": Stage(hosts, is_full=True, waits=True, needs="network namespaces: Linux, root and iproute2"),
    "chaos": Stage(chaos, is_full=True, waits=True, needs="Java 17 with Maven, for a cluster of three nodes"),
    "planted": Stage(planted, is_full=True, waits=True, needs="Java 17 with Maven, for a broker"),
    "newest-spark": Stage(newest_spark, is_full=True, waits=True, needs=f"Java 17, {_PIP}"),
    "connect-spark": Stage(connect_spark, is_full=True, waits=True, needs=f"Java 17, {_PIP}"),
}


def chosen(plan: Plan, only: frozenset[str]) -> list[str]:
    """Return the names of the stages to run; add the other stages, with the reasons, to the plan's `left_out`."""
    names = []
    if others := [name for name in STAGES if only and name not in only]:
        plan.left_out.append(f"{', '.join(others)}: other stages were chosen")
    for name, stage in STAGES.items():
        if name in others:
            continue
        if stage.is_full and not plan.full and not only:
            plan.left_out.append(f"{name}, which is left to --full")
        elif stage.waits and not plan.broker:
            plan.left_out.append(f"{name} (level 5, the real broker), because of --no-broker")
        elif name == "docker" and not plan.docker:
            plan.left_out.append("the tests that need Docker, because of --no-docker")
        elif name == "hosts" and not plan.hosts:
            plan.left_out.append("the tests that need network namespaces, because of --no-hosts")
        elif name == "docker" and not docker_answers():
            plan.left_out.append("the tests that need Docker: no engine answers here (start one, then run again)")
        else:
            names.append(name)
    return names


class Progress:
    """Prints the output of each stage when it ends, and meanwhile the progress of the running stages."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._running: dict[str, float] = {}
        self._named: set[str] = set()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Print a line every 15 seconds within the context."""
        is_over = threading.Event()

        def show() -> None:
            while not is_over.wait(PROGRESS_S):
                with self._lock:
                    self._name_failures()
                    print(self.line(), flush=True)

        thread = threading.Thread(target=show, name="progress")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def line(self) -> str:
        """Return a line with the progress of each running stage."""
        now = time.monotonic()
        running = [f"{name} {self._words(name)}{_clock(now - began)}" for name, began in self._running.items()]
        return f"[{_clock(now - self._began)}] {' | '.join(running)}"

    def begin(self, name: str) -> None:
        """Add a running stage."""
        with self._lock:
            self._running[name] = time.monotonic()

    def end(self, name: str, output: str, *, has_failed: bool) -> None:
        """Print the output of a stage that ended."""
        with self._lock:
            took = time.monotonic() - self._running.pop(name)
            print(f"\n==== {name}: {STAGES[name].run.__doc__}\n{output}", end="")
            print(f"==== {name}: {'FAILED' if has_failed else 'ok'} after {took:.0f} s", flush=True)

    def _words(self, name: str) -> str:
        found = self._plan.outcomes(name)
        if not found.total:
            return ""
        failed = f", {len(found.failed)} failed" if found.failed else ""
        return f"{found.done}/{found.total}{failed}, "

    def _name_failures(self) -> None:
        for name in self._running:
            for test in self._plan.outcomes(name).failed:
                if test not in self._named:
                    self._named.add(test)
                    print(f"FAILED in {name}: {test}")


def _clock(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run_lane(plan: Plan, names: Iterable[str], progress: Progress, nice: int = 0) -> list[str]:
    """Run these stages one after the other, until a check fails; return the failed stages."""
    failed: list[str] = []
    for name in names:
        if failed and STAGES[failed[-1]].is_check:
            plan.left_out.append(f"{name}, because {failed[-1]} failed")
            continue
        progress.begin(name)
        path = plan.folder / f"{name}.log"
        with path.open("w+") as output:
            if STAGES[name].run(Running(plan, name, output, nice)):
                failed.append(name)
        progress.end(name, path.read_text(errors="replace"), has_failed=name in failed)
    return failed


@contextmanager
def compiling(plan: Plan, names: Iterable[str]) -> Iterator[None]:
    """Compile all test files within the context, if the stages with most of them run.

    The checks leave one of two cores idle. Without this process, the processes of both lanes would compile the same
    files at the same time. The tests that it collects are not used: the stages collect their tests themselves.
    """
    if plan.tests or not {"units", "broker"} <= set(names):
        yield
        return
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        words,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        env=environment_of(plan),
    ) as process:
        try:
            yield
        finally:
            process.kill()


def run_all(plan: Plan, names: Sequence[str]) -> list[str]:
    """Run the checks, then both lanes side by side; return the stages that failed."""
    progress = Progress(plan)
    checks = [name for name in names if STAGES[name].is_check]
    waiting = [name for name in names if STAGES[name].waits]
    others = [name for name in names if not STAGES[name].waits and not STAGES[name].is_check]
    with progress.shown():
        if failed := run_lane(plan, checks, progress):
            plan.left_out.extend(f"{name}, because {failed[-1]} failed" for name in (*others, *waiting))
            return failed
        with ThreadPoolExecutor(2) as lanes:
            one = lanes.submit(run_lane, plan, waiting, progress)
            other = lanes.submit(run_lane, plan, others, progress, NICE if waiting else 0)
            return one.result() + other.result()


def repeating(plan: Plan, failed: Iterable[str]) -> str:
    """Return the command that repeats failed tests with their seed, and failed stages without a failed test."""
    tests = {name: plan.outcomes(name).failed for name in failed}
    whole = [name for name, found in tests.items() if not found]
    words = [os.path.relpath(sys.executable), "-m", "tests"]
    words += ["--full"] if plan.full else []
    words += ["--seed", str(plan.seed)] if plan.seed != seeds.FIXED else []
    words += ["--only", ",".join(whole)] if whole else []
    return shlex.join([*words, *(f"{name}:{test}" for name, found in tests.items() for test in found)])


def docker_answers() -> bool:
    """Return whether a Docker engine responds on this machine."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=60)  # noqa: S607
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


_ONLY = f"some of: {', '.join(STAGES)}; a stage that the gate leaves to --full runs as in --full"


def _parser() -> argparse.ArgumentParser:
    """Return the parser of this command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests", description="Run all checks of this project.")
    parser.add_argument("tests", nargs="*", metavar="STAGE:TEST", help="only these tests of a stage, by pytest's ids")
    parser.add_argument("--full", action="store_true", help=f"everything: {DURATION[True]} on two idle cores")
    parser.add_argument("--no-broker", action="store_true", help="leave level 5 (the real broker) out")
    parser.add_argument("--no-docker", action="store_true", help="leave out the tests that need a Docker engine")
    parser.add_argument("--no-hosts", action="store_true", help="leave out the tests that need network namespaces")
    parser.add_argument("--only", default="", metavar="STAGE,...", help=_ONLY)
    parser.add_argument("--seed", type=int, metavar="N", help="of all random choices; default: fixed, in --full fresh")
    return parser


def opening(plan: Plan, names: Sequence[str]) -> Iterator[str]:
    """Yield lines with the duration, the requirements and the seed of the run."""
    yield f"running {', '.join(names)}"
    if set(names) >= {"units", "broker"} and not plan.tests:
        yield f"takes {DURATION[plan.full]} on two idle cores; the first run also fetches the brokers"
    yield from (f"{name} needs {STAGES[name].needs}" for name in names if STAGES[name].needs)
    yield f"seed {plan.seed}" + (" (the fixed one)" if plan.seed == seeds.FIXED else f"; --seed {plan.seed} repeats it")


def closing(plan: Plan, names: Iterable[str], failed: Sequence[str]) -> Iterator[str]:
    """Yield lines with the costs, the tests and stages that did not run, and the command that repeats the failures."""
    yield from Costs.read(plan.folder.glob("*.json")).lines()
    if plan.cpu_s:
        stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in plan.cpu_s.items())
        yield f"CPU time: {sum(plan.cpu_s.values()):.0f} s ({stages})"
    for name in names:
        yield from skip_lines(plan.outcomes(name).skipped)
    yield from (f"left out: {words}" for words in plan.left_out)
    if failed:
        yield from (f"FAILED in {name}: {test}" for name in failed for test in plan.outcomes(name).failed)
        yield f"to repeat what failed:\n  {repeating(plan, failed)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages; return 0 if at least one stage ran and all passed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    tests: dict[str, list[str]] = {}
    for word in options.tests:
        stage, _, test = word.partition(":")
        if not test:
            parser.error(f"{word}: write STAGE:TEST, for example units:tests/test_text.py")
        tests.setdefault(stage, []).append(test)
    only = frozenset([*filter(None, options.only.split(",")), *tests])
    if unknown := only - STAGES.keys():
        parser.error(f"--only {','.join(sorted(unknown))}: there is no such stage; the stages are {', '.join(STAGES)}")
    if options.full and (lacking := coverage_report.lacking()):
        print(lacking)
        return 1
    # A shell makes background processes ignore Ctrl-C, and programs that a test interrupts would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Processes that this process starts end with it, however it ends.
    os.environ["TESTS_OWNER"] = str(os.getpid())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        plan = Plan(
            full=options.full,
            broker=not options.no_broker,
            docker=not options.no_docker,
            hosts=not options.no_hosts,
            folder=Path(folder),
            seed=_seed(options.seed, is_full=options.full),
            tests=tests,
        )
        names = chosen(plan, only)
        if not names:
            print("\n".join(["there is nothing to run", *(f"left out: {words}" for words in plan.left_out)]))
            return 1
        print("\n".join(opening(plan, names)), flush=True)
        with compiling(plan, names):
            failed = run_all(plan, names)
        print("\n" + "\n".join(closing(plan, names, failed)))
        if plan.full:
            print("\n".join(coverage_report.write(plan.folder.glob("*.coverage"))))
    took = time.monotonic() - began
    print(f"{'failed: ' + ', '.join(failed) if failed else 'every stage that ran passed'}, after {_clock(took)}")
    return 1 if failed else 0


def _seed(given: int | None, *, is_full: bool) -> int:
    """Return the given seed, or else the fixed seed; the full run draws a new seed."""
    if given is not None:
        return given
    return seeds.fresh_seed() if is_full else seeds.FIXED


if __name__ == "__main__":
    sys.exit(main())
