"""The members' processes as the demo sees them: started, told to leave, killed, and what they reported last."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import IO, Self

from consumer_membership.demo.application import Order, Report, Standing, decode

_LEAVE_S = 5.0
_HURRIED_LEAVE_S = 2.0
_TAIL_LINES = 8


@dataclass(slots=True)
class Member:
    """One process of the group, by its own reports and by what was done to it."""

    index: int
    name: str
    process: subprocess.Popen[str]
    standing: Standing | None = None
    is_leaving: bool = False
    is_killed: bool = False
    has_ended: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it is meant to be in the group."""
        return not (self.is_leaving or self.is_killed or self.has_ended)

    @property
    def owned(self) -> tuple[int, ...]:
        """The partitions that it says it owns; a dead one owns none, whatever the coordinator still believes."""
        return self.standing.owned if self.standing is not None and not self.has_ended else ()

    @property
    def is_settled(self) -> bool:
        """Whether it is STABLE and owns something."""
        return self.standing is not None and self.standing.state == "STABLE" and bool(self.standing.owned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A member's process is over, and nothing of what it wrote is left to read."""

    exit_code: int
    last_words: str


class Members:
    """Starts members' processes and hears them; a context manager that leaves none behind.

    Every member ends by itself when this process does, since its stdin then ends too.
    """

    def __init__(self, bootstrap_servers: str, *, group: str, topic: str, partitions: int) -> None:
        self._order = Order(
            name="", bootstrap_servers=bootstrap_servers, group=group, topic=topic, partitions=partitions
        )
        self._heard: queue.SimpleQueue[tuple[Member, Report | Ended]] = queue.SimpleQueue()
        self._hearers: list[threading.Thread] = []
        #: All that there ever were, by index.
        self.all: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_all(_LEAVE_S if kind is None else _HURRIED_LEAVE_S)

    def start(self) -> Member:
        """One more member."""
        name = f"member-{len(self.all) + 1}"
        argument = replace(self._order, name=name).to_argument()
        process = start_module("consumer_membership.demo.application", argument, stderr=subprocess.PIPE)
        member = Member(index=len(self.all), name=name, process=process)
        self.all.append(member)
        hearer = threading.Thread(target=self._hear, args=(member,), name=name, daemon=True)
        self._hearers.append(hearer)
        hearer.start()
        return member

    def leave(self, member: Member) -> None:
        """Tell it to leave (SIGTERM)."""
        member.is_leaving = True
        member.process.terminate()

    def kill(self, member: Member) -> None:
        """End it as a crash would (SIGKILL)."""
        member.is_killed = True
        member.process.kill()

    def next_report(self, timeout_s: float) -> tuple[Member, Report | Ended] | None:
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

    def _hear(self, member: Member) -> None:
        last_words: deque[str] = deque(maxlen=_TAIL_LINES)
        with member.process as process:
            other = threading.Thread(target=_gather, args=(process.stderr, last_words), daemon=True)
            other.start()
            for line in process.stdout or ():
                try:
                    self._heard.put((member, decode(line)))
                except ValueError:
                    # A killed process may leave half a line behind; what it would have said was not committed yet.
                    last_words.append(line)
            other.join()
        self._heard.put((member, Ended(exit_code=process.returncode, last_words="".join(last_words).strip())))

    def _end_all(self, patience_s: float) -> None:
        """End all processes, in good order if they do not take long, and hear them out."""
        for member in self.all:
            member.process.terminate()
        deadline = time.monotonic() + patience_s
        for hearer in self._hearers:
            hearer.join(max(0.0, deadline - time.monotonic()))
        for member in self.all:
            member.process.kill()
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


def _gather(lines: IO[str] | None, into: deque[str]) -> None:
    into.extend(lines or ())
