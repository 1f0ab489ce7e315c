"""The members' processes as the demo sees them: started, told to leave, killed, and what they reported last."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Self

from consumer_membership.demo.application import MemberArguments, Report, Standing, decode

_LEAVE_S = 5.0
_HURRIED_LEAVE_S = 2.0
_TAIL_LINES = 8


#: What is known of a member that has not reported yet.
_STARTING = Standing(state="starting", epoch=None, owned=(), waits_for=None)


@dataclass(slots=True, kw_only=True)
class MemberProcess:
    """One process of the group: what it reported, what was done to it, and what the demo knows of its records."""

    index: int
    name: str
    pid: int
    standing: Standing = _STARTING
    is_leaving: bool = False
    is_killed: bool = False
    has_ended: bool = False
    handled: int = 0
    lag: int = 0

    @property
    def fate(self) -> str:
        """What became of it; empty while it runs."""
        return "killed" if self.is_killed else "left" if self.has_ended else ""

    @property
    def is_active(self) -> bool:
        """Whether it is meant to be in the group."""
        return not (self.is_leaving or self.fate)

    @property
    def owned(self) -> tuple[int, ...]:
        """The partitions that it says it owns; a dead one owns none, whatever the coordinator still believes."""
        return () if self.fate else self.standing.owned

    @property
    def is_settled(self) -> bool:
        """Whether it is STABLE and owns something."""
        return self.standing.state == "STABLE" and bool(self.standing.owned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A member's process is over, and nothing of what it wrote is left to read."""

    exit_code: int
    last_output: str


class Members:
    """Starts members' processes and hears them; a context manager that leaves none behind.

    Every member ends by itself when this process does, since its stdin then ends too.
    """

    def __init__(self, bootstrap_servers: str, *, group: str, topic: str, partitions: int) -> None:
        self._arguments = MemberArguments(
            name="", bootstrap_servers=bootstrap_servers, group=group, topic=topic, partitions=partitions
        )
        self._heard: queue.SimpleQueue[tuple[MemberProcess, Report | Ended]] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []
        self._hearers: list[threading.Thread] = []
        #: All that there ever were, by index.
        self.all: list[MemberProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_all(_LEAVE_S if kind is None else _HURRIED_LEAVE_S)

    def start(self) -> MemberProcess:
        """One more member."""
        name = f"member-{len(self.all) + 1}"
        argument = replace(self._arguments, name=name).to_argument()
        process = start_module("consumer_membership.demo.application", argument, stderr=subprocess.STDOUT)
        member = MemberProcess(index=len(self.all), name=name, pid=process.pid)
        self.all.append(member)
        self._processes.append(process)
        hearer = threading.Thread(target=self._hear, args=(member, process), name=name, daemon=True)
        self._hearers.append(hearer)
        hearer.start()
        return member

    def leave(self, member: MemberProcess) -> None:
        """Tell it to leave (SIGTERM)."""
        member.is_leaving = True
        self._processes[member.index].terminate()

    def kill(self, member: MemberProcess) -> None:
        """End it as a crash would (SIGKILL)."""
        member.is_killed = True
        self._processes[member.index].kill()

    def next_report(self, timeout_s: float) -> tuple[MemberProcess, Report | Ended] | None:
        """What a member has to say, in its order; None if nobody says anything in time."""
        try:
            member, report = self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None
        match report:
            case Standing():
                member.standing = report
            case Ended():
                member.has_ended = True
        return member, report

    def _hear(self, member: MemberProcess, process: subprocess.Popen[str]) -> None:
        last_output: deque[str] = deque(maxlen=_TAIL_LINES)
        with process:
            for line in process.stdout or ():
                try:
                    self._heard.put((member, decode(line)))
                except ValueError:
                    # It is of stderr. Or a killed process left half a line behind; what it would have said was not
                    # committed yet.
                    last_output.append(line)
        self._heard.put((member, Ended(exit_code=process.returncode, last_output="".join(last_output).strip())))

    def _end_all(self, patience_s: float) -> None:
        """End all processes, in good order if they do not take long, and hear them out."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + patience_s
        for hearer in self._hearers:
            hearer.join(max(0.0, deadline - time.monotonic()))
        for process in self._processes:
            process.kill()
        for hearer in self._hearers:
            hearer.join()


def start_module(module: str, argument: str, stderr: int | None = None) -> subprocess.Popen[str]:
    """Start a module of this package as a process that hears by its stdin of this one's end, and speaks by its stdout.

    Apart from the terminal's foreground group: Ctrl-C is for the demo, which then ends its processes in order.
    """
    return subprocess.Popen(  # noqa: S603 - this package's own module
        [sys.executable, "-m", module, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
