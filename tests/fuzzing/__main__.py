"""Fuzz: `python -m tests.fuzzing [TARGET ...] [--seconds N] [--seed N]`, or `TARGET --input FILE` to run one input.

Each target runs in its own process (`process`), with a memory limit and a time limit for each input, and begins with
the inputs of the corpus. Two targets run at the same time, and all targets together take N seconds. The command prints
a line for each target. If a target failed, it prints the traceback, keeps the input in `tests/results/fuzzing`, and
returns 1. Once the defect is fixed, move that file to `tests/fuzzing/corpus/TARGET/found-NAME`, where the unit tests
run it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzzing.corpus import FOLDER
from tests.fuzzing.targets import TARGETS
from tests.support import seeds

RESULTS = Path(__file__).resolve().parent.parent / "results" / "fuzzing"
#: How many targets run at the same time, as in `process`.
PROCESSES = 2
#: The address space of a process; without inputs it uses 0.5 GB.
MEMORY_BYTES = 2 << 30
#: The longest time of one input; a recording may take 20 s of CPU time for one event (`recorder.replay`).
INPUT_S = 30
#: The largest input; the largest seed of the corpus has 9 KB.
INPUT_BYTES = 16_384
#: How long the processes may take to start and to end on a busy machine.
LAPSE_S = 180
#: How many lines of the output of a failed target are printed.
_SHOWN_LINES = 40

MISSING = """\
the fuzzer needs atheris, which is in the dependency group `test` on Linux with x86_64:
  python -m pip install 'atheris>=3.0'
atheris has no wheels for other platforms; run this stage on Linux with x86_64"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a target: how many inputs ran, the covered edges, and the output if it failed."""

    target: str
    inputs: int
    coverage: int
    failure: str

    @property
    def line(self) -> str:
        """Return the row of the table."""
        return f"{self.target:18} {self.inputs:>9,} {self.coverage:>9,}  {'FAILED' if self.failure else 'ok'}"


HEAD = f"{'target':18} {'inputs':>9} {'edges':>9}"


def fuzz(
    targets: Sequence[str],
    seconds: float,
    seed: int,
    *,
    module: str = "tests.fuzzing.targets",
    input_s: int = INPUT_S,
) -> Iterator[Outcome]:
    """Fuzz these targets, each for this time, and yield the result of each at its end."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    left = list(targets)
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as scratch:
        flags = [f"-max_total_time={max(1, round(seconds))}", f"-timeout={input_s}", f"-max_len={INPUT_BYTES}"]
        flags += [f"-rss_limit_mb={MEMORY_BYTES >> 20}", f"-seed={seed % (1 << 31) or 1}", "-print_final_stats=1"]
        orders = [f"{target}={shlex.join([*flags, *_folders(target, scratch)])}" for target in targets]
        command = [sys.executable, "-m", "tests.fuzzing.process", module, str(MEMORY_BYTES), scratch, *orders]
        log = Path(scratch, "process.log")
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "TMPDIR": scratch},
                start_new_session=True,
            ) as process,
        ):
            rounds = -(-len(targets) // PROCESSES)
            # libFuzzer ends each target in time. This timer ends a process that cannot start or end.
            end = threading.Timer(rounds * (seconds + input_s) + LAPSE_S, _kill, [process])
            end.start()
            try:
                for line in process.stdout or ():
                    target, status = line.split()
                    left.remove(target)
                    yield _outcome(target, int(status), Path(scratch, f"{target}.log"))
            finally:
                end.cancel()
                _kill(process)
        shown = _end_of(log)
    for target in left:
        yield Outcome(target, 0, 0, f"{shown}\nthe target did not run, or did not end in time")


def _folders(target: str, scratch: str) -> list[str]:
    """Return libFuzzer's arguments: the path of failed inputs, a new folder for found inputs, and the corpus."""
    grows = Path(scratch, target)
    grows.mkdir()
    stays = [str(FOLDER / target)] if (FOLDER / target).is_dir() else []
    return [f"-artifact_prefix={RESULTS}/{target}-", str(grows), *stays]


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process with the targets that it has forked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    shown = [line for line in lines if not line.startswith(("INFO:", "WARNING:", "#", "stat::"))]
    return "\n".join(shown[-_SHOWN_LINES:])


def _outcome(target: str, status: int, log: Path) -> Outcome:
    output = log.read_text(errors="replace")
    inputs = re.findall(r"stat::number_of_executed_units: +([0-9]+)", output)
    coverage = re.findall(r" cov: ([0-9]+)", output)
    failure = ""
    # A target that ends the process itself prints no statistics.
    if status or not inputs:
        failure = f"{_end_of(log)}\nthe process ended with code {os.waitstatus_to_exitcode(status)}"
    return Outcome(target, int(inputs[-1]) if inputs else 0, int(coverage[-1]) if coverage else 0, failure)


def run(targets: Sequence[str], seconds: float, seed: int) -> int:
    """Fuzz these targets, which share the time; return 1 if one failed."""
    if find_spec("atheris") is None:
        print(MISSING)
        return 1
    share = seconds * min(PROCESSES, len(targets)) / len(targets)
    print(f"seed {seed}\n{HEAD}", flush=True)
    failed: list[Outcome] = []
    for outcome in fuzz(targets, share, seed):
        print(outcome.line, flush=True)
        failed += [outcome] if outcome.failure else []
    for outcome in failed:
        print(f"\n---- {outcome.target}\n{outcome.failure}")
    if failed:
        print(f"\nthe inputs are in {RESULTS}; python -m tests.fuzzing TARGET --input FILE repeats one")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description="Fuzz the readers of foreign data.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of all targets together; default: 60")
    parser.add_argument("--seed", type=int, metavar="N", help="of the mutations; default: a fixed one")
    parser.add_argument("--input", type=Path, metavar="FILE", help="run only this input, without the fuzzer")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the fuzzer or a single input, as the command line requests; return the exit code."""
    parser = _parser()
    options = parser.parse_args(words)
    targets = options.targets or list(TARGETS)
    if unknown := sorted(set(targets) - set(TARGETS)):
        parser.error(f"{', '.join(unknown)}: there is no such target; the targets are {', '.join(TARGETS)}")
    if options.input is None:
        return run(targets, options.seconds, seeds.FIXED if options.seed is None else options.seed)
    if len(options.targets) != 1:
        parser.error("--input needs exactly one TARGET")
    TARGETS[targets[0]](options.input.read_bytes())
    print("the target accepts or refuses the input as it should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
