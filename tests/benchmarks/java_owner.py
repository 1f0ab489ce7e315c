"""The worker `owner` with Java's KafkaConsumer, of the Kafka release that the development broker runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.processes import WorkerFailedError
from tests.support.java_programs import compile_program, program_command

if TYPE_CHECKING:
    from tests.benchmarks.workers.owner import Job

_PROGRAM = "OwnerRun"


def compile_owner(folder: Path) -> None:
    """Compile the program into a folder.

    Raises:
        WorkerFailedError: The compiler or Kafka's jars are missing, or it failed; the message has the output.
    """
    try:
        compile_program(_PROGRAM, folder)
    except RuntimeError as error:
        raise WorkerFailedError(str(error)) from error


def owner_command(folder: Path, job: Job) -> list[str]:
    """Return the command line of a compiled owner."""
    clock_offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    properties = [f"{name}={value}" for name, value in job.config.items()]
    return program_command(
        _PROGRAM, folder, [job.topic, str(int(job.pace_s * 1000)), f"{clock_offset:.6f}", *properties]
    )
