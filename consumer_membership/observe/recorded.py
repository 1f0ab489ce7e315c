"""What members of ours recorded, as exact facts of a timeline: who had what when, what stood still, and why.

A look from outside sees a change somewhere between two moments, and only what the coordinator knows. A recording has
the moment itself, and what happened between the coordinator's order and the application's hands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from consumer_membership.membership.effects import PausePartitions, StateChanged
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.observe.labels import partitions_named
from consumer_membership.recorder.recording import Recording, read
from consumer_membership.recorder.replay import Replay, ReplayedEvent
from consumer_membership.types import TopicPartition

_S = MemberState
#: The states that are the cause of what follows; the others only lead on.
_CAUSES = frozenset({_S.RECONCILE, _S.FENCED, _S.STALE, _S.FATAL, _S.UNSUBSCRIBING})
#: Those that are told by themselves, too.
_REPORTED = frozenset({_S.FENCED, _S.STALE, _S.FATAL, _S.JOINING, _S.UNSUBSCRIBING})
_ENDS = frozenset({_S.FENCED, _S.STALE, _S.FATAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRun:
    """A partition that a member had for a time; seconds since 1970."""

    partition: TopicPartition
    member_id: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStandstill:
    """A partition of which its member handed nothing out, from an order until it was carried out."""

    partition: TopicPartition
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFact:
    """Something that the member did, with its cause."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAccount:
    """All that one recording tells of its member between two moments; `note` says where it had to end early."""

    group_id: str
    name: str
    member_ids: frozenset[str]
    begin: float
    end: float
    runs: tuple[OwnedRun, ...]
    standstills: tuple[RecordedStandstill, ...]
    facts: tuple[RecordedFact, ...]
    note: str = ""


def account_of(path: Path) -> MemberAccount:
    """What the recording in this file tells.

    Raises:
        OSError: it cannot be read.
        RecordingError: it is no recording, or one that this version of the package cannot read.
    """
    recording = read(path)
    return _Account(recording).member_account(path.name)


class _Account:
    """What was told by a recording until some step of its replay."""

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
        self._facts: list[RecordedFact] = []
        self._member_ids: set[str] = set()

    def member_account(self, file: str) -> MemberAccount:
        run = Replay(self._recording)
        self._see(run.member.view(), self._begin)
        at = self._begin
        for step in run.steps():
            if step.difference is not None:
                break
            at = self._recording.moment(step.entry.at)
            self._step(step, at)
        end, note = self._recording.moment(self._recording.known_until), ""
        if not self._recording.is_whole:
            note = f"{file} was cut short: what became of its member afterwards is not known."
        if run.difference is not None:
            end = at
            note = f"{file} is told up to its event {run.count - 1}: this version of the package does otherwise there."
        self._runs += [
            OwnedRun(partition=partition, member_id=member_id, begin=begin, end=end)
            for partition, (member_id, begin) in self._owned.items()
        ]
        return MemberAccount(
            group_id=self._recording.settings.group_id,
            name=self._name,
            member_ids=frozenset(self._member_ids),
            begin=self._begin,
            end=end,
            runs=tuple(self._runs),
            standstills=tuple(self._standstills),
            facts=tuple(self._facts),
            note=note,
        )

    def _step(self, step: ReplayedEvent, at: float) -> None:
        for effect in step.effects:
            match effect:
                case StateChanged(new=new, reason=reason):
                    if new in _CAUSES:
                        self._cause = reason
                    if new in _REPORTED:
                        self._add_fact(at, f"{new}: {reason}")
                case PausePartitions(partitions=partitions):
                    stopped = self._owned.keys() if partitions is None else partitions
                    # What an earlier order stopped and this one does not name is handed out again.
                    self._paused = {one: self._paused.get(one, at) for one in stopped}
                case _:
                    pass
        self._see(step.view, at)

    def _see(self, view: MembershipView, at: float) -> None:
        if view.member_id:
            self._member_id = view.member_id
            self._member_ids.add(view.member_id)
        owned = view.owned.keys()
        given_up, taken = self._owned.keys() - owned, owned - self._owned.keys()
        if given_up:
            self._give_up(given_up, view, at)
        if taken:
            self._take(taken, view, at)
        wanted = view.target - owned if view.state not in _ENDS else frozenset()
        self._wanted = {one: self._wanted.get(one, at) for one in wanted}

    def _give_up(self, partitions: Iterable[TopicPartition], view: MembershipView, at: float) -> None:
        given_up = sorted(partitions)
        for one in given_up:
            member_id, begin = self._owned.pop(one)
            self._runs.append(OwnedRun(partition=one, member_id=member_id, begin=begin, end=at))
        stood_s = self._stood([(one, self._paused.pop(one, at)) for one in given_up], at)
        act = "lost" if view.state in _ENDS else "gave up"
        self._add_fact(
            at, f"{act} {partitions_named(given_up)}{_after(stood_s, ' after they had stood still for')}", self._cause
        )

    def _take(self, partitions: Iterable[TopicPartition], view: MembershipView, at: float) -> None:
        taken = sorted(partitions)
        for one in taken:
            self._owned[one] = (view.member_id, at)
        waited_s = self._stood([(one, self._wanted.pop(one, at)) for one in taken], at)
        text = f"has {partitions_named(taken)} in epoch {view.member_epoch}{_after(waited_s, ', told of them')}"
        self._add_fact(at, text + (" before" if waited_s else ""), self._cause or "as its recording begins")

    def _stood(self, since: Iterable[tuple[TopicPartition, float]], at: float) -> float:
        longest = 0.0
        for partition, begin in since:
            if at > begin:
                self._standstills.append(RecordedStandstill(partition=partition, begin=begin, end=at))
                longest = max(longest, at - begin)
        return longest

    def _add_fact(self, at: float, text: str, cause: str = "") -> None:
        because = f": {cause}" if cause else ""
        who = f"{self._name} ({self._member_id[:8]})" if self._member_id else self._name
        self._facts.append(RecordedFact(at=at, text=f"{who} {text}{because}"))


def _after(seconds: float, text: str) -> str:
    return f"{text} {seconds:.3f} s" if seconds > 0 else ""


def between(runs: Iterable[OwnedRun]) -> Iterator[tuple[OwnedRun, OwnedRun]]:
    """Each run of a partition with the next one of it that begins after its end."""
    by_partition: dict[TopicPartition, list[OwnedRun]] = {}
    for run in runs:
        by_partition.setdefault(run.partition, []).append(run)
    for of_one in by_partition.values():
        of_one.sort(key=lambda run: run.begin)
        yield from ((one, following) for one, following in pairwise(of_one) if following.begin > one.end)
