"""The workers `owner` and `ownership` with Java's KafkaConsumer, of the release that the development broker runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.processes import WorkerFailedError
from tests.support.java_programs import compile_program, program_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.benchmarks.workers import owner, ownership

JAVA = "java"
"""The value of `module` for the Java side, which is not a Python module."""
OWNER, OWNERSHIP = "OwnerRun", "OwnershipRun"
"""The programs."""


def compile_worker(folder: Path, program: str) -> None:
    """Compile one of the programs into a folder.

    Raises:
        WorkerFailedError: The compiler or Kafka's jars are missing, or the compiler failed; the message has its output.
    """
    try:
        compile_program(program, folder)
    except RuntimeError as error:
        raise WorkerFailedError(str(error)) from error


def owner_command(folder: Path, job: owner.Job) -> list[str]:
    """Return the command line of a compiled owner."""
    clock_offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    arguments = [job.topic, str(int(job.pace_s * 1000)), f"{clock_offset:.6f}"]
    return program_command(OWNER, folder, [*arguments, *_properties(job.config)])


def ownership_command(folder: Path, job: ownership.Job) -> list[str]:
    """Return the command line of a compiled worker `ownership`; System.nanoTime is CLOCK_MONOTONIC on Linux."""
    return program_command(OWNERSHIP, folder, [job.topic, *_properties(job.config)])


def _properties(config: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in config.items()]
