"""Clocks of a worker that the driver can set: the wall clock, and the monotonic clock, which stops during a suspension.

A preloaded library answers the worker's calls; the clocks of all other processes do not change. It needs Linux with
glibc and a C compiler (`cc`), and no special permissions.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.processes import WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SOURCE = Path(__file__).parents[1] / "support" / "clock_offsets.c"
_LIBRARY = "clock_offsets.so"
_BOTH = struct.Struct("=qq")
_NS = 10**9


def compiled(folder: Path) -> Path:
    """Compile the library into a folder and return its path.

    Raises:
        WorkerFailedError: The compiler is missing or failed; the message has its output.
    """
    compiler, library = shutil.which("cc"), folder / _LIBRARY
    if compiler is None:
        raise WorkerFailedError("cc is not on the path; it is needed to compile clock_offsets.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkerFailedError(f"{_SOURCE.name} cannot be compiled: {done.stderr}")
    return library


class ClockOffsets:
    """The offsets of one worker's clocks, at first zero."""

    def __init__(self, library: Path, path: Path) -> None:
        self._library, self._path = library, path
        path.write_bytes(_BOTH.pack(0, 0))

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command line that runs the command with these clocks, without a process between them."""
        return ["env", f"LD_PRELOAD={self._library}", f"CLOCK_OFFSETS={self._path}", *command]

    def set(self, *, realtime_s: float = 0.0, monotonic_s: float = 0.0) -> None:
        """Set both offsets; the process reads them at once."""
        with self._path.open("r+b") as file:  # written in place, because the process has mapped the file
            file.write(_BOTH.pack(int(realtime_s * _NS), int(monotonic_s * _NS)))
