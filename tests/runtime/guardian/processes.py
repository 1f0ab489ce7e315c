"""Small applications in separate processes that tests kill, and their guardians."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


def has_ended(process: psutil.Process) -> bool:
    """Return whether the process has ended; a container's init process may take time to reap it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Application:
    """A Python program in a separate process, which is killed when its context ends.

    The program prints lines with `report(word)` and waits for input with `order()`.
    """

    PRELUDE = """
import os, signal, sys
def report(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def order(): return sys.stdin.readline().strip()
"""

    def __init__(
        self, program: str, *words: str, flags: tuple[str, ...] = (), stderr: IO[bytes] | int | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", self.PRELUDE + program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=ROOT,
            start_new_session=True,
            bufsize=0,
        )
        self._others: list[psutil.Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # If a guardian outlived its application here, it would act while the test's broker is being closed.
        for other in self._others:
            if not has_ended(other):
                other.kill()
        wait_until(lambda: all(map(has_ended, self._others)), "the end of all processes")
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def read_words(self) -> list[str]:
        """Return the words of the next line that the program prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().split()
        assert line, f"the application ended: {self.process.poll()}"
        return line

    def process_named(self, word: str) -> psutil.Process:
        """Return the process whose id the program prints next, after this word."""
        printed, pid = self.read_words()
        assert printed == word
        found = psutil.Process(int(pid))
        self._others.append(found)
        return found

    def guardian(self) -> psutil.Process:
        """Return the guardian's process as soon as it exists."""
        itself = psutil.Process(self.process.pid)
        guardian = wait_until(
            lambda: next((child for child in itself.children() if "guardian" in " ".join(child.cmdline())), None),
            "a guardian",
        )
        self._others.append(guardian)
        return guardian

    def order(self, word: str = "") -> None:
        """Send a line to the program, so that it continues."""
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()


def sleeps_again(process: psutil.Process) -> Callable[[], bool]:
    """Return a condition that holds once the process has woken up after this call and sleeps again."""
    before = process.num_ctx_switches().voluntary

    def holds() -> bool:
        return process.num_ctx_switches().voluntary > before and process.status() == psutil.STATUS_SLEEPING

    return holds


def pss_bytes(process: psutil.Process) -> int:
    """Return the process's proportional share of the memory that it uses (Linux)."""
    full: int = process.memory_full_info().pss
    return full


def maps(process: psutil.Process) -> str:
    """Return the memory maps of the process as text (Linux)."""
    return Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
