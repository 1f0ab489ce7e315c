"""Run the core on recorded events, step by step, and compare each effect with the recorded one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import inf
from typing import NoReturn

from consumer_membership.membership.classic.exchanges import SendJoin
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.view import MembershipView
from consumer_membership.recorder.chance import Draw
from consumer_membership.recorder.recording import UNFIT, RecordedAssignor, Recording, damage_of
from consumer_membership.recorder.ring import Entry
from consumer_membership.recorder.snapshot import restored
from consumer_membership.recorder.values import RecordingError

#: An event takes about 1 s of CPU time with 100,000 partitions. A recording from elsewhere may have a regular
#: expression that would run for years.
MOST_CPU_S = 20.0


class _CpuLimitError(Exception):
    """An event took too much CPU time."""


@contextmanager
def _cpu_limit() -> Iterator[None]:
    """Limit the CPU time of the block; only in the main thread, because it uses a signal, which also stops `re`."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(_: int, __: object) -> NoReturn:
        raise _CpuLimitError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between this core and the recording; `number` counts entries from 1."""

    number: int
    at: float
    what: str
    recorded: tuple[object, ...]
    replayed: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEvent:
    """One entry, its effects in the replay, and the member's view after it."""

    number: int
    entry: Entry
    effects: tuple[GroupEffect, ...]
    view: MembershipView
    difference: Difference | None = None


class _RecordedChance:
    """The recorded draws in their order; a further draw is a difference."""

    def __init__(self) -> None:
        self._left: list[Draw] = []
        self.problem = ""

    def give(self, draws: tuple[Draw, ...]) -> None:
        """Set the draws of the next event."""
        if self._left:
            self.problem = self.problem or "fewer random draws than in the recording"
        self._left = list(draws)

    @property
    def is_used_up(self) -> bool:
        """Return whether all draws were used."""
        return not self._left

    def jitter(self) -> float:
        """Return the next recorded draw, as `Chance.jitter`."""
        if self._left and isinstance(self._left[0], float | int):
            return float(self._left.pop(0))
        self.problem = self.problem or "a random number was drawn that is not in the recording"
        return 0.5

    def new_member_id(self) -> str:
        """Return the next recorded draw, as `Chance.new_member_id`."""
        if self._left and isinstance(self._left[0], str):
            return str(self._left.pop(0))
        self.problem = self.problem or "a member id was created that is not in the recording"
        return "replayed"


class Replay:
    """One run of the core on a recording; iterate over `steps` once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._chance = _RecordedChance()
        self.member = self._begin()
        self.difference: Difference | None = None
        #: The number of entries that were run.
        self.count = 0

    def _begin(self) -> MemberCore:
        recording, chance = self.recording, self._chance
        chance.give(recording.draws)
        if recording.state is None:
            return MemberCore(
                recording.settings, recording.protocols, new_member_id=chance.new_member_id, jitter=chance.jitter
            )
        draws = {"jitter": chance.jitter, "new_member_id": chance.new_member_id}
        try:
            return restored(recording.state, recording.settings, recording.protocols, draws)
        except UNFIT as error:
            raise RecordingError(f"its checkpoint: {damage_of(error)}") from error

    def run(self, until: float = inf) -> Difference | None:
        """Run all entries up to this moment and return the first difference."""
        for _ in self.steps(until):
            pass
        return self.difference

    def steps(self, until: float = inf) -> Iterator[ReplayedEvent]:
        """Run and yield each entry up to this moment (`Entry.at`); stop after the first difference."""
        for number, entry in enumerate(self.recording.entries, 1):
            if entry.at > until:
                return
            effects, difference = self._run(number, entry)
            self.count, self.difference = number, difference
            view = self.member.view()
            if difference is None and number == self.recording.view_after:
                self.difference = difference = self._compared_view(number, entry, view)
            yield ReplayedEvent(number=number, entry=entry, effects=effects, view=view, difference=difference)
            if difference is not None:
                return

    def _run(self, number: int, entry: Entry) -> tuple[tuple[GroupEffect, ...], Difference | None]:
        self._chance.give(entry.draws)
        self._prepare_assignors(entry)
        error: str | None = None
        effects: tuple[GroupEffect, ...] = ()
        try:
            with _cpu_limit():
                effects = self.member.handle(entry.event, entry.at)
        except _CpuLimitError:
            raise RecordingError(
                f"event {number} takes more than {MOST_CPU_S:g} s of CPU time; does the recording have a regular "
                "expression that backtracks without end?"
            ) from None
        except Exception as raised:  # noqa: BLE001 - a recording may show a defect of the core
            error = f"{type(raised).__name__}: {raised}"
        what = ""
        if error != entry.error:
            what = f"it raised {entry.error or 'nothing'} in the recording, and {error or 'nothing'} in the replay"
        elif effects != entry.effects:
            what = "its effects differ"
        elif self._chance.problem or not self._chance.is_used_up:
            what = self._chance.problem or "fewer random draws than in the recording"
        if not what:
            return effects, None
        return effects, Difference(number=number, at=entry.at, what=what, recorded=entry.effects, replayed=effects)

    def _prepare_assignors(self, entry: Entry) -> None:
        for assignor in self.recording.protocols.classic.assignors:
            for effect in entry.effects:
                if isinstance(effect, SendJoin) and isinstance(assignor, RecordedAssignor):
                    assignor.user_data_by_name.update(
                        {name: subscription.user_data for name, subscription in effect.protocols}
                    )

    def _compared_view(self, number: int, entry: Entry, view: MembershipView) -> Difference | None:
        seen = self.recording.view
        if seen is None or seen == view:
            return None
        names = [one.name for one in fields(view) if getattr(view, one.name) != getattr(seen, one.name)]
        return Difference(
            number=number,
            at=entry.at,
            what=f"the member's {', '.join(names)} differs",
            recorded=tuple(getattr(seen, name) for name in names),
            replayed=tuple(getattr(view, name) for name in names),
        )
