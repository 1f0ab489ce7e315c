"""Collect samples of a group of any client, and write one page with the owners of each partition over time.

A sample is a survey without the details that rarely change. Only changes are kept: each partition has the runs of its
owners, its standstills, and its lag at a few hundred points in time, so that ten minutes of a thousand partitions fit
into a page that opens quickly. Samples of the past come from the coordinator's records (`history`), with exact times.
When the page is written, recordings of this package's members (`recorded`) replace the samples of these members.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from consumer_membership.admin import GroupDescription, GroupSurvey, MemberDescription, Subject
from consumer_membership.observe.labels import NO_GROUP, partitions_named
from consumer_membership.observe.rates import position_of
from consumer_membership.observe.recorded import OwnedRun, RecordedMember, RecordedStandstill, between
from consumer_membership.types import TopicPartition

#: Columns of the lag chart: about as many as are distinguishable on a screen.
LAG_COLUMNS = 240
#: Significant digits of a lag; more are not visible in the chart.
_DIGITS = 3
#: A shorter standstill without a change of owner is not shown: one column of a page of ten minutes, in ms.
_LEAST_MS = 600_000 / LAG_COLUMNS
#: There is a standstill if a commit takes this many times longer than usual. Gaps with auto-commit vary by a factor
#: of two, because a record arrives anywhere between two commits, and a sample adds up to its interval.
_USUAL_GAPS = 3
#: The minimum number of gaps from which the usual gap is computed.
_LEAST_GAPS = 3
#: The default `auto.commit.interval.ms` of librdkafka, Java and this package, used if there are too few gaps.
_DEFAULT_GAP_MS = 5_000
#: The resolution of gaps in ms, which bounds the memory for long observations.
_GAP_STEP_MS = 100
_PAGE = Path(__file__).parent / "timeline.html"
_DATA = "/*DATA*/null"
_NO_OWNER = -1
#: Begin and end (ms), and the owner's number.
_Piece: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """An event at a point in time: a change of the group with its cause, or an event from a recording."""

    at: float
    text: str
    is_exact: bool = False


@dataclass(slots=True)
class _LagTrack:
    """The data of one partition."""

    #: The begin (ms) and the owner's number of each run; -1 is no owner.
    owners: list[tuple[int, int]] = field(default_factory=list)
    #: Begin and end (ms) of the times with lag but without a commit.
    still: list[list[int]] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    progress: int | None = None
    moved_at: int = 0
    #: By owner, the times (ms) that records waited for a commit.
    gaps: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def owner_at(self, ms: int) -> int:
        """Return the owner's number at this time."""
        return next((owner for begin, owner in reversed(self.owners) if begin <= ms), _NO_OWNER)

    def is_handed_over(self, begin: int, end: int) -> bool:
        """Whether the owner changes between these two times."""
        return any(begin <= at <= end for at, _ in self.owners[1:])


class Timeline:
    """Collects samples of one group, the oldest first; `seconds` is the total time that the page will show.

    `began` is the start of the page in seconds since 1970; None is the time of the first sample.
    """

    def __init__(self, group_id: str, seconds: float, began: float | None = None) -> None:
        self.group_id = group_id
        self._column_ms = max(1.0, seconds * 1000 / LAG_COLUMNS)
        self._least_ms = min(self._column_ms, _LEAST_MS)
        self._began = began
        self._last_ms = 0
        self._columns: list[int] = []
        self._members: dict[str, int] = {}
        self._names: list[str] = []
        self._tracks: dict[TopicPartition, _LagTrack] = {}
        self._before: GroupDescription | None = None
        self._states: list[tuple[int, str]] = []
        self._recordings: list[RecordedMember] = []
        self._refused: set[str] = set()
        self._standstills: dict[TopicPartition, list[RecordedStandstill]] = {}
        self.events: list[TimelineEvent] = []
        #: The reasons for missing data.
        self.notes: list[str] = []
        #: Whether the group existed at any time of the page.
        self.has_seen_group = False

    def add_recording(self, recording: RecordedMember) -> None:
        """Add a member's recording; it replaces the samples of that member during the recorded time."""
        self._recordings.append(recording)
        self.has_seen_group = True
        for one in recording.standstills:
            self._standstills.setdefault(one.partition, []).append(one)
        self.events += (TimelineEvent(at=one.at, text=one.text, is_exact=True) for one in recording.events)
        if recording.note:
            self.notes.append(recording.note)

    def add(self, survey: GroupSurvey, *, is_exact: bool = False) -> None:
        """Add the next sample; the time of an exact sample is the time of the changes in it."""
        if self._began is None:
            self._began = survey.at
        # The clocks of brokers and of this machine may differ slightly.
        now = max(self._last_ms, round((survey.at - self._began) * 1000))
        self._last_ms = now
        if survey.group is None:
            self._state(now, "unknown")
            self._note_refusal(survey)
            return
        self.has_seen_group |= survey.group.state != NO_GROUP
        self._state(now, survey.group.state)
        if self._before is not None and (cause := cause_of(self._before, survey.group)):
            self.events.append(TimelineEvent(at=survey.at, text=cause, is_exact=is_exact))
        self._before = survey.group
        owners = {
            partition: self._member(member.member_id, member.instance_id or member.client_id)
            for member in survey.group.members
            for partition in member.assignment
        }
        is_column = not self._columns or now - self._columns[-1] >= self._column_ms
        if is_column:
            self._columns.append(now)
        for partition in sorted({*survey.offsets, *survey.committed, *owners, *self._tracks}):
            self._partition(partition, owners.get(partition, _NO_OWNER), survey, now, is_column=is_column)

    def _note_refusal(self, survey: GroupSurvey) -> None:
        """Add a note with the reason why the group is unknown, each reason once."""
        refusal = survey.refusals.get(Subject.COORDINATOR) or survey.refusals.get(Subject.GROUP)
        if refusal is not None and refusal.name not in self._refused:
            self._refused.add(refusal.name)
            self.notes.append(f"The group could not be described: {refusal.description}")

    def _state(self, now: int, state: str) -> None:
        if not self._states or self._states[-1][1] != state:
            self._states.append((now, state))

    def _member(self, member_id: str, name: str) -> int:
        if member_id not in self._members:
            self._members[member_id] = len(self._names)
            self._names.append(f"{name} {member_id}")
        return self._members[member_id]

    def _partition(
        self, partition: TopicPartition, owner: int, survey: GroupSurvey, now: int, *, is_column: bool
    ) -> None:
        if partition not in self._tracks:
            missed = len(self._columns) - is_column
            self._tracks[partition] = _LagTrack(lags=[-1] * missed, moved_at=now)
        track = self._tracks[partition]
        if not track.owners or track.owners[-1][1] != owner:
            track.owners.append((now, owner))
        offsets = survey.offsets.get(partition)
        end = None if offsets is None else offsets.end
        progress = position_of(survey.committed.get(partition), end).progress
        lag = -1 if progress is None or end is None else max(0, end - progress)
        if progress != track.progress or lag <= 0:
            if progress != track.progress and track.progress is not None and track.owners[-1][0] <= track.moved_at:
                track.gaps[owner][round((now - track.moved_at) / _GAP_STEP_MS) * _GAP_STEP_MS] += 1
            track.progress, track.moved_at = progress, now
        elif track.still and track.still[-1][0] == track.moved_at:
            track.still[-1][1] = now
        else:
            track.still.append([track.moved_at, now])
        if is_column:
            track.lags.append(_rounded(lag))

    def _stalls(self, track: _LagTrack, usual_ms: Mapping[int, int], group_ms: int) -> Iterator[tuple[int, int]]:
        """Yield the waits for a commit that are longer than usual for the partition's owner."""
        for begin, end in track.still:
            owner = track.owner_at(end)
            usual = _usual(track.gaps[owner]) if owner in track.gaps else None
            least_ms: float = _USUAL_GAPS * (usual or usual_ms.get(owner, group_ms))
            if not track.is_handed_over(begin, end):
                least_ms = max(least_ms, self._least_ms)
            if end - begin >= least_ms:
                yield begin, end

    def _cadence(self) -> tuple[Mapping[int, int], int]:
        """Return the usual time (ms) that records wait for a commit, by owner and for the group."""
        by_owner: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for track in self._tracks.values():
            for owner, gaps in track.gaps.items():
                by_owner[owner] += gaps
        usual = {owner: usual for owner, gaps in by_owner.items() if (usual := _usual(gaps)) is not None}
        return usual, _usual(sum(by_owner.values(), Counter())) or _DEFAULT_GAP_MS

    def data(self) -> Mapping[str, object]:
        """Return the data of the page; times are ms since its start, and standstills and lags are differences."""
        began = self._began or 0.0
        exact = self._exact()
        usual_ms, group_ms = self._cadence()
        for partition in exact.keys() - self._tracks.keys():
            self._tracks[partition] = _LagTrack(lags=[-1] * len(self._columns))
        return {
            "group": self.group_id,
            "began": round(began * 1000),
            "ms": self._last_ms,
            "notes": self.notes,
            "states": [list(one) for one in self._states],
            "columns": _differences(self._columns),
            "events": [
                [round((one.at - began) * 1000), one.text, int(one.is_exact)]
                for one in sorted(self.events, key=lambda one: one.at)
                if 0 <= one.at - began <= self._last_ms / 1000
            ],
            "partitions": [
                [
                    f"{partition.topic}[{partition.partition}]",
                    self._owners(track, exact.get(partition, ())),
                    _differences(
                        self._still(self._stalls(track, usual_ms, group_ms), partition, exact.get(partition, ()))
                    ),
                    _differences(track.lags),
                ]
                for partition, track in sorted(self._tracks.items())
            ],
            "members": self._names,
        }

    # ---- what members recorded ----

    def _ms(self, at: float) -> int:
        """Return a time as ms since the start of the page, limited to the page."""
        return min(self._last_ms, max(0, round((at - (self._began or 0.0)) * 1000)))

    def _exact(self) -> Mapping[TopicPartition, list[OwnedRun]]:
        """Return the recorded runs by partition."""
        found: dict[TopicPartition, list[OwnedRun]] = {}
        for recording in self._recordings:
            for run in recording.runs:
                self._member(run.member_id, recording.name)
                found.setdefault(run.partition, []).append(run)
        return found

    def _owners(self, track: _LagTrack, runs: Iterable[OwnedRun]) -> list[int]:
        """Return the begin and the owner's number of each run, as one flat list."""
        ends = [*(at for at, _ in track.owners[1:]), self._last_ms]
        pieces = [(at, end, owner) for (at, owner), end in zip(track.owners, ends, strict=False)]
        if not self._recordings:
            return [number for begin, _, owner in pieces for number in (begin, owner)]
        for recording in self._recordings:
            known = {self._members[one] for one in recording.member_ids if one in self._members}
            pieces = list(_cut(pieces, self._ms(recording.begin), self._ms(recording.end), known))
        for run in runs:
            begin, end = self._ms(run.begin), self._ms(run.end)
            if end > begin:
                pieces = [*_cut(pieces, begin, end, None), (begin, end, self._members[run.member_id])]
        return list(_flat(sorted(pieces), self._last_ms))

    def _still(
        self, stalls: Iterable[tuple[int, int]], partition: TopicPartition, runs: Iterable[OwnedRun]
    ) -> list[int]:
        """Return the standstills: from commits, or from recordings with a precision of 1 ms."""
        waits = [(self._ms(one.begin), self._ms(one.end)) for one in self._standstills.get(partition, ())]
        waits += [(self._ms(one.end), self._ms(following.begin)) for one, following in between(runs)]
        spans = [*stalls, *_joined(waits)]
        return [number for span in sorted(spans) for number in span]

    def page(self) -> str:
        """Return the page as HTML."""
        # Names from the cluster must not end the script or start a comment: `<!--<script` hides the script's end tag.
        data = json.dumps(self.data(), separators=(",", ":")).replace("<", "\\u003c")
        return _PAGE.read_text(encoding="utf-8").replace(_DATA, data)


def cause_of(before: GroupDescription, after: GroupDescription) -> str:
    """Return the visible cause of a change between two descriptions, or an empty string without a change."""
    old, new = ({one.member_id: one for one in group.members} for group in (before, after))
    reasons = [
        *(f"{_name(after, one)} joined" for one in sorted(new.keys() - old.keys())),
        *(f"{_name(before, one)} left" for one in sorted(old.keys() - new.keys())),
        *(
            f"{_name(after, one)} {'closed and keeps its partitions' if new[one].is_away else 'returned'}"
            for one in sorted(old.keys() & new.keys())
            if old[one].is_away != new[one].is_away
        ),
        *(
            f"{_name(after, one)} changed its subscription"
            for one in sorted(old.keys() & new.keys())
            if (old[one].topics, old[one].pattern) != (new[one].topics, new[one].pattern)
        ),
    ]
    if before.protocol is not after.protocol and NO_GROUP not in (before.state, after.state):
        reasons.append(f"the group was converted to the {after.protocol.value} protocol")
    if not reasons and before.epoch != after.epoch:
        reasons.append("new group epoch without a visible cause: topics changed, or a member left and joined again")
    if not reasons:
        stayed = sorted(old.keys() & new.keys())
        reasons += (text for one in stayed if (text := _moved(_name(after, one), old[one], new[one])))
    return "; ".join(reasons)


def _moved(name: str, before: MemberDescription, after: MemberDescription) -> str:
    """Return the partitions that the member revoked and got, or an empty string without a change."""
    revoked, assigned = before.assignment - after.assignment, after.assignment - before.assignment
    acts = (("revoked", revoked), ("was assigned", assigned))
    text = " and ".join(f"{act} {partitions_named(partitions)}" for act, partitions in acts if partitions)
    return f"{name} {text}" if text else ""


def _name(group: GroupDescription, member_id: str) -> str:
    member = next(one for one in group.members if one.member_id == member_id)
    return f"{member.instance_id or member.client_id or 'member'} ({member_id[:8]})"


def _cut(pieces: Iterable[_Piece], begin: int, end: int, owners: set[int] | None) -> Iterator[_Piece]:
    """Yield the pieces of these owners (None: of all owners) without this time, and all other pieces."""
    for first, last, owner in pieces:
        if owners is not None and owner not in owners:
            yield first, last, owner
            continue
        if first < begin:
            yield first, min(last, begin), owner
        if last > end:
            yield max(first, end), last, owner


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the times with adjacent and overlapping ones joined."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if end > begin and joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > begin:
            joined.append((begin, end))
    return joined


def _flat(pieces: Iterable[_Piece], last: int) -> Iterator[int]:
    """Yield begins and owners until the last time, with no owner in gaps between pieces."""
    reached, current = 0, None
    for begin, end, owner in pieces:
        if begin > reached and current != _NO_OWNER:
            yield from (reached, _NO_OWNER)
            current = _NO_OWNER
        if owner != current:
            yield from (begin, owner)
            current = owner
        reached = max(reached, end)
    if reached < last and current != _NO_OWNER:
        yield from (reached, _NO_OWNER)


def _usual(gaps: Counter[int]) -> int | None:
    """Return the median gap (ms), at least one step, or None if there are too few."""
    if gaps.total() < _LEAST_GAPS:
        return None
    left = gaps.total() / 2
    for gap, count in sorted(gaps.items()):
        left -= count
        if left <= 0:
            return max(gap, _GAP_STEP_MS)
    return None


def _rounded(lag: int) -> int:
    digits = len(str(lag)) - _DIGITS
    return round(lag, -digits) if digits > 0 else lag


def _differences(numbers: list[int]) -> list[int]:
    """Return the first number and then the differences between neighbors."""
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]
