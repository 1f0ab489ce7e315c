"""The process of the fuzzer: `python -m tests.fuzzing.process MODULE MEMORY FOLDER TARGET=FLAGS ...`.

`tests.fuzzing` starts it. It instruments the package once, which takes seconds, and then forks a process for each
target, two at a time, with a memory limit. Each target writes its output to a file in FOLDER. When a target ends, this
process prints a line with the target's name and its wait status.
"""

from __future__ import annotations

import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import atheris

from tests.support.partners.stop import die_with_parent

#: How many targets run at the same time.
PROCESSES = 2


def main(words: list[str]) -> None:
    """Fuzz these targets of this module with libFuzzer's flags."""
    module, memory, folder, *orders = words
    # Only the package is instrumented: the coverage of other code does not depend on the inputs.
    with atheris.instrument_imports(include=["consumer_membership"]):
        targets = import_module(module).TARGETS
        from tests.fuzzing.mutations import MUTATED  # noqa: PLC0415
    running: dict[int, str] = {}
    while orders or running:
        while orders and len(running) < PROCESSES:
            name, _, flags = orders.pop(0).partition("=")
            pid = os.fork()
            if not pid:
                die_with_parent()
                output = Path(folder, f"{name}.log").open("wb")  # noqa: SIM115 - until the end of the process
                os.dup2(output.fileno(), sys.stdout.fileno())
                os.dup2(output.fileno(), sys.stderr.fileno())
                resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
                mutators = {"custom_mutator": MUTATED[name](_mutate)} if name in MUTATED else {}
                _fuzz(name, targets[name], shlex.split(flags), mutators)
            running[pid] = name
        pid, status = os.wait()
        print(running.pop(pid), status, flush=True)


def _mutate(data: bytes, most_bytes: int) -> bytes:
    # `Fuzz` replaces `atheris.Mutate`, so the function is looked up at each call.
    changed: bytes = atheris.Mutate(data, most_bytes)
    return changed


def _fuzz(name: str, target: Callable[[bytes], None], flags: list[str], mutators: Mapping[str, object]) -> NoReturn:
    """Fuzz until libFuzzer ends the process."""

    def run(data: bytes) -> None:
        try:
            target(data)
        except BaseException:
            # libFuzzer's timer would end the process by SIGALRM if it expired while the input is being written.
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise

    atheris.Setup([name, *flags], run, **mutators)
    atheris.Fuzz()
    raise AssertionError("libFuzzer has returned")


if __name__ == "__main__":
    die_with_parent()
    main(sys.argv[1:])
