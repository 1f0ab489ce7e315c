"""Compile and run the Java programs of `tests/support/java` with the client of the newest broker."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from consumer_membership.devbroker.java import cache_folder
from tests.support.versions import NEWEST

_SOURCES = Path(__file__).parent / "java"
#: Little memory and few threads, because many programs run at the same time.
_OPTIONS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def compile_program(name: str, folder: Path) -> None:
    """Compile a program into a folder.

    Raises:
        RuntimeError: The compiler or Kafka's jars are missing, or the compilation failed; the message has the output.
    """
    compiler, source = shutil.which("javac"), _SOURCES / f"{name}.java"
    if compiler is None or shutil.which("java") is None:
        raise RuntimeError("java and javac must both be on the PATH")
    command = [compiler, "-d", str(folder), "-cp", _jars(), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{source.name} cannot be compiled: {done.stdout}{done.stderr}")


def program_command(name: str, folder: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a compiled program with these arguments."""
    classes = os.pathsep.join([str(folder), _jars()])
    return ["java", *_OPTIONS, "-cp", classes, name, *arguments]


def _jars() -> str:
    libraries = cache_folder() / f"kafka-{NEWEST}" / "libs"
    return os.pathsep.join(sorted(str(path) for path in libraries.glob("*.jar") if _is_needed(path.name)))


def _is_needed(name: str) -> bool:
    return name.startswith(("kafka-clients", "slf4j", "lz4", "snappy", "zstd"))
