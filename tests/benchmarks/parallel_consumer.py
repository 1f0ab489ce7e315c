"""Confluent's Parallel Consumer for Java, for comparison: its jars, and a program that is compiled for each run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.maven_jars import jars_of
from tests.benchmarks.processes import WorkerFailedError

VERSION = "0.5.3.2"
"""The last release."""

_PROGRAM = "ParallelConsumerRun"
_SOURCE = Path(__file__).parents[1] / "support" / "java" / f"{_PROGRAM}.java"
_COMPILE_TIMEOUT_S = 120


def parallel_consumer_command(folder: Path, *arguments: str) -> list[str]:
    """Return the command line of the program, compiled into this folder.

    Raises:
        WorkerFailedError: Maven or the compiler is missing, or failed; the message has the output.
    """
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        raise WorkerFailedError("java and javac are not both on the path")
    jars = jars_of("parallel-consumer", "io.confluent.parallelconsumer", "parallel-consumer-core", VERSION)
    if not (folder / f"{_PROGRAM}.class").exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            command = [compiler, "-d", scratch, "-cp", os.pathsep.join(jars), str(_SOURCE)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
            if done.returncode:
                raise WorkerFailedError(f"{_SOURCE.name} cannot be compiled: {done.stdout}{done.stderr}")
            for path in Path(scratch).iterdir():
                path.replace(folder / path.name)
    return [java, "-cp", os.pathsep.join([str(folder), *jars]), _PROGRAM, *arguments]
