"""Extract exact timeline data from recordings of this package's members: owners, standstills and their causes.

A sample of a group locates a change only between two points in time, and shows only the coordinator's view. A recording
has the exact time, and what happened between the coordinator's response and the application's callback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from consumer_membership.health.handlers import HandlersDisowned, RecordDeadLettered
from consumer_membership.membership.effects import PausePartitions, StateChanged
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.observe.labels import partitions_named
from consumer_membership.recorder.recording import Recording, read
from consumer_membership.recorder.replay import Replay, ReplayedEvent
from consumer_membership.text import counted
from consumer_membership.types import TopicPartition

_S = MemberState
#: The states whose reason is the cause of later assignments and revocations.
_CAUSES = frozenset({_S.RECONCILE, _S.FENCED, _S.STALE, _S.FATAL, _S.UNSUBSCRIBING})
#: The states that are also events of their own.
_REPORTED = frozenset({_S.FENCED, _S.STALE, _S.FATAL, _S.JOINING, _S.UNSUBSCRIBING})
_ENDS = frozenset({_S.FENCED, _S.STALE, _S.FATAL})
#: Dead letters with at most this many seconds between them are one event.
_TOGETHER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRun:
    """A time in which a member owned a partition, in seconds since 1970."""

    partition: TopicPartition
    member_id: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStandstill:
    """A time in which a member returned no records of a partition, from a decision until it was carried out."""

    partition: TopicPartition
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event of the member, with its cause."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMember:
    """The content of one recording; `note` states why the data ends early."""

    group_id: str
    name: str
    member_ids: frozenset[str]
    begin: float
    end: float
    runs: tuple[OwnedRun, ...]
    standstills: tuple[RecordedStandstill, ...]
    events: tuple[RecordedEvent, ...]
    note: str = ""


def recorded_member(path: Path) -> RecordedMember:
    """Return the content of the recording in this file.

    Raises:
        OSError: The file cannot be read.
        RecordingError: The file is not a recording, or this version of the package cannot read it.
    """
    recording = read(path)
    return _RecordingReader(recording).recorded_member(path.name)


class _RecordingReader:
    """Replays a recording and collects its content."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        settings = recording.settings
        self._name = settings.instance_id or f"process {recording.process}"
        self._begin = recording.moment(recording.entries[0].at if recording.entries else recording.clock)
        self._owned: dict[TopicPartition, tuple[str, float]] = {}
        self._paused: dict[TopicPartition, float] = {}
        self._wanted: dict[TopicPartition, float] = {}
        self._cause = self._member_id = ""
        self._runs: list[OwnedRun] = []
        self._standstills: list[RecordedStandstill] = []
        self._events: list[RecordedEvent] = []
        self._member_ids: set[str] = set()

    def recorded_member(self, file: str) -> RecordedMember:
        run = Replay(self._recording)
        self._update(run.member.view(), self._begin)
        at = self._begin
        for step in run.steps():
            if step.difference is not None:
                break
            at = self._recording.moment(step.entry.at)
            self._step(step, at)
        end, note = self._recording.moment(self._recording.known_until), ""
        if not self._recording.is_whole:
            note = f"{file} is incomplete: later events of its member are missing."
        if run.difference is not None:
            end = at
            note = (
                f"{file} is shown up to event {run.count - 1}: this version of the package behaves differently there."
            )
        self._add_handlers(end)
        self._runs += [
            OwnedRun(partition=partition, member_id=member_id, begin=begin, end=end)
            for partition, (member_id, begin) in self._owned.items()
        ]
        return RecordedMember(
            group_id=self._recording.settings.group_id,
            name=self._name,
            member_ids=frozenset(self._member_ids),
            begin=self._begin,
            end=end,
            runs=tuple(self._runs),
            standstills=tuple(self._standstills),
            events=tuple(sorted(self._events, key=lambda event: event.at)),
            note=note,
        )

    def _step(self, step: ReplayedEvent, at: float) -> None:
        for effect in step.effects:
            match effect:
                case StateChanged(new=new, reason=reason):
                    if new in _CAUSES:
                        self._cause = reason
                    if new in _REPORTED:
                        self._add_event(at, f"{new}: {reason}")
                case PausePartitions(partitions=partitions):
                    stopped = self._owned.keys() if partitions is None else partitions
                    # A partition that was paused before and is not in this effect is resumed.
                    self._paused = {one: self._paused.get(one, at) for one in stopped}
                case _:
                    pass
        self._update(step.view, at)

    def _update(self, view: MembershipView, at: float) -> None:
        if view.member_id:
            self._member_id = view.member_id
            self._member_ids.add(view.member_id)
        owned = view.owned.keys()
        removed, added = self._owned.keys() - owned, owned - self._owned.keys()
        if removed:
            self._remove(removed, view, at)
        if added:
            self._add(added, view, at)
        wanted = view.target - owned if view.state not in _ENDS else frozenset()
        self._wanted = {one: self._wanted.get(one, at) for one in wanted}

    def _remove(self, partitions: Iterable[TopicPartition], view: MembershipView, at: float) -> None:
        removed = sorted(partitions)
        for one in removed:
            member_id, begin = self._owned.pop(one)
            self._runs.append(OwnedRun(partition=one, member_id=member_id, begin=begin, end=at))
        standstill_s = self._standstill([(one, self._paused.pop(one, at)) for one in removed], at)
        act = "lost" if view.state in _ENDS else "revoked"
        self._add_event(
            at, f"{act} {partitions_named(removed)}{_after(standstill_s, ' after a standstill of')}", self._cause
        )

    def _add(self, partitions: Iterable[TopicPartition], view: MembershipView, at: float) -> None:
        added = sorted(partitions)
        for one in added:
            self._owned[one] = (view.member_id, at)
        waited_s = self._standstill([(one, self._wanted.pop(one, at)) for one in added], at)
        text = f"assigned {partitions_named(added)} in epoch {view.member_epoch}"
        self._add_event(at, text + _after(waited_s, " after a wait of"), self._cause or "start of the recording")

    def _add_handlers(self, until: float) -> None:
        """Add the facts about handlers until then; dead letters in quick succession are one event."""
        dead: list[RecordDeadLettered] = []
        dead_at = 0.0
        for entry in self._recording.handlers:
            at = self._recording.moment(entry.at)
            if at > until:
                break
            if dead and (at - dead_at > _TOGETHER_S or not isinstance(entry.fact, RecordDeadLettered)):
                self._add_event(dead_at, _dead_letters(dead))
                dead = []
            match entry.fact:
                case RecordDeadLettered() as fact:
                    dead.append(fact)
                    dead_at = at
                case HandlersDisowned() as fact:
                    self._add_event(at, fact.text)
        if dead:
            self._add_event(dead_at, _dead_letters(dead))

    def _standstill(self, since: Iterable[tuple[TopicPartition, float]], at: float) -> float:
        longest = 0.0
        for partition, begin in since:
            if at > begin:
                self._standstills.append(RecordedStandstill(partition=partition, begin=begin, end=at))
                longest = max(longest, at - begin)
        return longest

    def _add_event(self, at: float, text: str, cause: str = "") -> None:
        suffix = f": {cause}" if cause else ""
        name = f"{self._name} ({self._member_id[:8]})" if self._member_id else self._name
        self._events.append(RecordedEvent(at=at, text=f"{name} {text}{suffix}"))


def _dead_letters(facts: list[RecordDeadLettered]) -> str:
    """Return the text of one or several dead letters."""
    if len(facts) == 1:
        return facts[0].text
    errors = sorted({fact.error for fact in facts})
    partitions = partitions_named(sorted({fact.partition for fact in facts}))
    return f"dead-lettered {counted(len(facts), 'record')} of {partitions}: {', '.join(errors)}"


def _after(seconds: float, text: str) -> str:
    return f"{text} {seconds:.3f} s" if seconds > 0 else ""


def between(runs: Iterable[OwnedRun]) -> Iterator[tuple[OwnedRun, OwnedRun]]:
    """Yield each pair of consecutive runs of a partition that have a gap between them."""
    by_partition: dict[TopicPartition, list[OwnedRun]] = {}
    for run in runs:
        by_partition.setdefault(run.partition, []).append(run)
    for of_one in by_partition.values():
        of_one.sort(key=lambda run: run.begin)
        yield from ((one, following) for one, following in pairwise(of_one) if following.begin > one.end)
