"""Where the scenario is played: it hears the members, keeps the ledger, and has the screen redrawn.

One thread does all of it, the one that plays the scenario: whatever the script waits for, it waits here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from consumer_membership.demo.cluster import Cluster
from consumer_membership.demo.crew import Crew, Ended, Member
from consumer_membership.demo.ledger import Ledger
from consumer_membership.demo.records import Run, partition_of
from consumer_membership.demo.reports import Called, Changed, Complained, Handled, Left, Report
from consumer_membership.demo.scene import MemberLine, Progress, Scene, StepLine
from consumer_membership.demo.screen import Screen, member_line
from consumer_membership.demo.stream import Stream

#: How often the screen is redrawn.
_REDRAW_S = 0.15


class ScenarioError(Exception):
    """The scenario cannot go on: a member ended by itself, the stream broke off, a step came to nothing."""


class TooLateError(ScenarioError):
    """What a step waits for did not come in time."""


class Stage:
    """What the script can do and see."""

    def __init__(
        self, cluster: Cluster, crew: Crew, stream: Stream, screen: Screen, *, partitions: int, steps: Sequence[str]
    ) -> None:
        self.cluster = cluster
        self.crew = crew
        self.stream = stream
        self.ledger = Ledger(partitions)
        #: Records that members saw and that are not the demo's.
        self.strange = 0
        self._screen = screen
        self._partitions = partitions
        self._steps = [StepLine(title=title, progress=Progress.TO_COME) for title in steps]
        self._handled: Counter[int] = Counter()
        #: By partition, the number that comes after the highest one seen.
        self._positions = {partition: partition for partition in range(partitions)}
        self._began = time.monotonic()
        self._redraw_at = 0.0

    # ---- for the script ----

    @property
    def active(self) -> list[Member]:
        """The members that are meant to be in the group."""
        return [member for member in self.crew.members if member.is_active]

    @property
    def is_balanced(self) -> bool:
        """Whether all active members are STABLE and own every partition once."""
        owned = sorted(partition for member in self.active for partition in member.owned)
        return all(member.is_settled for member in self.active) and owned == list(range(self._partitions))

    @contextmanager
    def step(self, number: int) -> Iterator[list[str]]:
        """Mark a step as running, then as done with what the script put into the list as its outcome."""
        outcome: list[str] = []
        title = self._steps[number].title
        self._steps[number] = StepLine(title=title, progress=Progress.RUNNING)
        self._screen.begin_step(self._scene(), number)
        yield outcome
        self._steps[number] = StepLine(title=title, progress=Progress.DONE, outcome=", ".join(outcome))
        self._screen.end_step(self._scene(), number)

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> float:
        """Let things happen until this holds; how many seconds that took.

        Raises:
            TooLateError: it did not come in time.
            ScenarioError: something went wrong meanwhile.
        """
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > timeout_s:
                standings = "".join(f"\n  {member_line(line)}" for line in self._scene().members)
                raise TooLateError(f"{what}: not within {timeout_s:.0f} s{standings}")
            self._let_happen(_REDRAW_S)
        return time.monotonic() - began

    def watch(self, seconds: float) -> None:
        """Let things happen for so long.

        Raises:
            ScenarioError: something went wrong meanwhile.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._let_happen(min(left, _REDRAW_S))

    def tell(self, text: str) -> None:
        """Something for the reader."""
        self._screen.tell(time.monotonic() - self._began, text)

    # ---- what happens ----

    def _let_happen(self, timeout_s: float) -> None:
        heard = self.crew.next_report(timeout_s)
        if heard is not None:
            self._take_note(*heard)
        if self.stream.refusal is not None:
            raise ScenarioError(f"the stream of records broke off: {self.stream.refusal}")
        if (now := time.monotonic()) >= self._redraw_at:
            self._redraw_at = now + _REDRAW_S
            self._screen.draw(self._scene())

    def _take_note(self, member: Member, report: Report | Ended) -> None:
        match report:
            case Handled():
                self.strange += report.strange
                for run in report.runs:
                    self._note_run(member, run)
            case Changed():
                self._note(member, report.at, f"{' -> '.join(report.states)}: {report.reason}")
            case Called():
                partitions = " ".join(map(str, report.partitions)) or "none"
                self._note(member, report.at, f"{report.callback}: {partitions}")
            case Complained():
                self._note(member, time.monotonic(), report.text)
            case Left():
                self._note(member, time.monotonic(), f"closed; it handled {report.handled} records")
            case Ended() if report.exit_code != 0 and not member.is_killed:
                raise ScenarioError(f"{member.name} ended by itself, exit code {report.exit_code}\n{report.last_words}")
            case _:
                pass

    def _note(self, member: Member, at: float, text: str) -> None:
        # The clock is the machine's, so the times of several processes compare.
        self._screen.tell(at - self._began, f"{member.name}  {text}")

    def _note_run(self, member: Member, run: Run) -> None:
        self.ledger.note(member.index, run)
        self._handled[member.index] += run.length
        partition = partition_of(run.first, self._partitions)
        after = run.first + run.length * self._partitions
        self._positions[partition] = max(self._positions[partition], after)

    # ---- the picture ----

    def _scene(self) -> Scene:
        produced = self.stream.produced
        return Scene(
            at=time.monotonic() - self._began,
            title=f"{self.cluster.title} at {self.cluster.bootstrap_servers}",
            remarks=self.cluster.remarks,
            partitions=self._partitions,
            steps=tuple(self._steps),
            members=tuple(self._line(member, produced) for member in self.crew.members),
            produced=produced,
            seen=self.ledger.seen,
            twice=self.ledger.twice,
        )

    def _line(self, member: Member, produced: int) -> MemberLine:
        standing = member.standing
        fate = "killed" if member.is_killed else "left" if member.has_ended else ""
        return MemberLine(
            name=member.name,
            pid=member.process.pid,
            fate=fate,
            state=standing.state if standing is not None else "starting",
            epoch=standing.epoch if standing is not None else None,
            owned=() if fate else member.owned,
            handled=self._handled[member.index],
            lag=0 if fate else sum(self._lag(partition, produced) for partition in member.owned),
            waits_for=(standing.waits_for if standing is not None else None) or "",
        )

    def _lag(self, partition: int, produced: int) -> int:
        return len(range(self._positions[partition], produced, self._partitions))
