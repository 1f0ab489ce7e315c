"""The worker `owner` with Java's KafkaConsumer, of the Kafka release that the development broker runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.devbroker.java import cache_folder
from tests.benchmarks.processes import WorkerFailedError
from tests.support.versions import NEWEST

if TYPE_CHECKING:
    from tests.benchmarks.workers.owner import Job

_PROGRAM = "OwnerRun"
_SOURCE = Path(__file__).parents[1] / "support" / "java" / f"{_PROGRAM}.java"
#: Little memory and few threads: many of them run at the same time.
_OPTIONS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def compile_owner(folder: Path) -> None:
    """Compile the program into a folder.

    Raises:
        WorkerFailedError: The compiler or Kafka's jars are missing, or it failed; the message has the output.
    """
    compiler = shutil.which("javac")
    if compiler is None or shutil.which("java") is None:
        raise WorkerFailedError("java and javac are not both on the path")
    command = [compiler, "-d", str(folder), "-cp", _jars(), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkerFailedError(f"{_SOURCE.name} cannot be compiled: {done.stdout}{done.stderr}")


def owner_command(folder: Path, job: Job) -> list[str]:
    """Return the command line of a compiled owner."""
    clock_offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    properties = [f"{name}={value}" for name, value in job.config.items()]
    classes = os.pathsep.join([str(folder), _jars()])
    words = [job.topic, str(int(job.pace_s * 1000)), f"{clock_offset:.6f}", *properties]
    return ["java", *_OPTIONS, "-cp", classes, _PROGRAM, *words]


def _jars() -> str:
    libraries = cache_folder() / f"kafka-{NEWEST}" / "libs"
    return os.pathsep.join(sorted(str(path) for path in libraries.glob("*.jar") if _is_needed(path.name)))


def _is_needed(name: str) -> bool:
    return name.startswith(("kafka-clients", "slf4j", "lz4", "snappy", "zstd"))
