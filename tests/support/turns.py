"""Let fewer tests run at the same time while the processors are busy.

Members, brokers and Spark's workers have time limits of a few seconds. If other programs use the processors for
seconds, many tests that run at the same time exceed those limits, and none of them ends sooner.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: This many tests may always run at the same time, however busy the machine is.
ALWAYS = 2
#: A process that would use a processor all the time must get this share of one before another test begins.
_LEAST_SHARE = 0.5
_PROBE_S = 0.02
_PAUSE_S = 0.25


def share_of_a_core() -> float:
    """Measure which share of a core a process gets that needs all of it, by using 20 ms of processor time."""
    began_at, used_before = time.monotonic(), time.thread_time()
    while time.thread_time() - used_before < _PROBE_S:
        pass
    return _PROBE_S / (time.monotonic() - began_at)


class Turns:
    """The turns of one test run: each test takes one while it runs, and all processes share them.

    A turn is a lock on a file, so a process that ends releases its turn.

    Args:
        folder: A folder that all processes of the run use.
        most: How many tests may run at the same time while the processors are not busy.
        share: Measures the processors.
    """

    def __init__(self, folder: Path, most: int, share: Callable[[], float] = share_of_a_core) -> None:
        self._files = [folder / f"turn-{number}" for number in range(most)]
        self._share = share
        self._retry = threading.Event()  # never set

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a free turn, and hold it within the block."""
        while (turn := self._free()) is None:
            self._retry.wait(_PAUSE_S)
        with turn:
            yield

    def _free(self) -> IO[str] | None:
        """Lock a free turn, and return its file, whose close releases the lock; None if no turn is free."""
        for number, path in enumerate(self._files):
            if number == ALWAYS and self._share() < _LEAST_SHARE:
                return None
            file = path.open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
            else:
                return file
        return None
