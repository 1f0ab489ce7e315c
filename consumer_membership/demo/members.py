"""The processes of the members: start, leave, kill, and their reports."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Self

from consumer_membership.demo.application import MemberArguments, MemberStatus, Report, decode

_LEAVE_S = 5.0
_HURRIED_LEAVE_S = 2.0
_TAIL_LINES = 8


#: The status of a member before its first report.
_STARTING = MemberStatus(state="starting", epoch=None, owned=(), waits_for=None)


@dataclass(slots=True, kw_only=True)
class MemberProcess:
    """One process of the group: its last status, how it ended, and its numbers of records."""

    index: int
    name: str
    pid: int
    status: MemberStatus = _STARTING
    is_leaving: bool = False
    is_killed: bool = False
    has_ended: bool = False
    handled: int = 0
    lag: int = 0

    @property
    def fate(self) -> str:
        """How the process ended; empty while it runs."""
        return "killed" if self.is_killed else "left" if self.has_ended else ""

    @property
    def is_active(self) -> bool:
        """Whether the member should be in the group."""
        return not (self.is_leaving or self.fate)

    @property
    def owned(self) -> tuple[int, ...]:
        """The partitions that the running member reports; none after its end, even if its session is still active."""
        return () if self.fate else self.status.owned

    @property
    def is_settled(self) -> bool:
        """Whether the member is STABLE and owns partitions."""
        return self.status.state == "STABLE" and bool(self.status.owned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a member's process, after all of its output was read."""

    exit_code: int
    last_output: str


class Members:
    """Starts the members' processes and receives their reports; the context manager ends all processes.

    If this process is killed, the members end because their stdin is closed.
    """

    def __init__(self, bootstrap_servers: str, *, group: str, topic: str, partitions: int) -> None:
        self._arguments = MemberArguments(
            name="", bootstrap_servers=bootstrap_servers, group=group, topic=topic, partitions=partitions
        )
        self._reports: queue.SimpleQueue[tuple[MemberProcess, Report | Ended]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        #: All members, including ended ones, by index.
        self.all: list[MemberProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_all(_LEAVE_S if kind is None else _HURRIED_LEAVE_S)

    def start(self) -> MemberProcess:
        """Start one more member."""
        name = f"member-{len(self.all) + 1}"
        argument = replace(self._arguments, name=name).to_argument()
        process = start_module("consumer_membership.demo.application", argument, stderr=subprocess.STDOUT)
        member = MemberProcess(index=len(self.all), name=name, pid=process.pid)
        self.all.append(member)
        self._processes.append(process)
        reader = threading.Thread(target=self._read, args=(member, process), name=name, daemon=True)
        self._readers.append(reader)
        reader.start()
        return member

    def leave(self, member: MemberProcess) -> None:
        """Request a clean leave (SIGTERM)."""
        member.is_leaving = True
        self._processes[member.index].terminate()

    def kill(self, member: MemberProcess) -> None:
        """Simulate a crash (SIGKILL)."""
        member.is_killed = True
        self._processes[member.index].kill()

    def next_report(self, timeout_s: float) -> tuple[MemberProcess, Report | Ended] | None:
        """Return the next report of any member, or None if there is none in time."""
        try:
            member, report = self._reports.get(timeout=timeout_s)
        except queue.Empty:
            return None
        match report:
            case MemberStatus():
                member.status = report
            case Ended():
                member.has_ended = True
        return member, report

    def _read(self, member: MemberProcess, process: subprocess.Popen[str]) -> None:
        last_output: deque[str] = deque(maxlen=_TAIL_LINES)
        with process:
            for line in process.stdout or ():
                try:
                    self._reports.put((member, decode(line)))
                except ValueError:
                    # A line of stderr, or an incomplete line of a killed process, whose records were not committed.
                    last_output.append(line)
        self._reports.put((member, Ended(exit_code=process.returncode, last_output="".join(last_output).strip())))

    def _end_all(self, patience_s: float) -> None:
        """End all processes, with a clean leave if it is quick, and read their last output."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + patience_s
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        for process in self._processes:
            process.kill()
        for reader in self._readers:
            reader.join()


def start_module(module: str, argument: str, stderr: int | None = None) -> subprocess.Popen[str]:
    """Start a module of this package as a process; its stdin ends with this process, and its stdout has its reports.

    The process is in its own session, so that Ctrl-C reaches only the demo, which then ends its processes in order.
    """
    return subprocess.Popen(  # noqa: S603 - this package's own module
        [sys.executable, "-m", module, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
