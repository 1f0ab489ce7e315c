"""Who owned what when, of a group of any client: samples gathered into runs, and written as one page.

A sample is a survey that asks for what changes. What is kept of it is what is new: each partition has the runs of its
owners and of its standing still, and its lag at a few hundred moments at most, so that ten minutes of a thousand
partitions fit into a page that opens at once. Events of a member's own recorder, where there is a file of one, are
merged by `Timeline.add_event`: they know the moment that samples only lie around.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from consumer_membership.admin import GroupDescription, GroupSurvey
from consumer_membership.types import OffsetAndMetadata, TopicPartition

#: Columns of the lag chart: a screen has about so many that an eye tells apart.
LAG_COLUMNS = 240
#: Lags are kept to three digits: no pixel shows more.
_DIGITS = 3
_PAGE = Path(__file__).parent / "timeline.html"
_DATA = "/*DATA*/null"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """Something that happened at a moment: a rebalance with its cause, or what a recorder tells."""

    at: float
    text: str
    is_exact: bool = False


@dataclass(slots=True)
class _Track:
    """One partition."""

    #: Where each run begins (ms), and whose it is; -1: nobody's.
    owners: list[tuple[int, int]] = field(default_factory=list)
    #: From when to when (ms) nothing was committed although there was something to read.
    still: list[list[int]] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    committed: int | None = None
    moved_at: int = 0


class Timeline:
    """Gathers samples of one group, the oldest first; `seconds` is how long it will be watched."""

    def __init__(self, group_id: str, seconds: float) -> None:
        self.group_id = group_id
        self._column_ms = max(1.0, seconds * 1000 / LAG_COLUMNS)
        self._began: float | None = None
        self._last_ms = 0
        self._columns: list[int] = []
        self._members: dict[str, int] = {}
        self._names: list[str] = []
        self._tracks: dict[TopicPartition, _Track] = {}
        self._before: GroupDescription | None = None
        self._states: list[tuple[int, str]] = []
        self.events: list[TimelineEvent] = []

    def add_event(self, event: TimelineEvent) -> None:
        """Merge one that somebody else has seen; its time is in seconds since 1970."""
        self.events.append(event)

    def add(self, survey: GroupSurvey) -> None:
        """Add the next sample."""
        if self._began is None:
            self._began = survey.at
        now = round((survey.at - self._began) * 1000)
        self._last_ms = now
        if survey.group is None:
            self._state(now, "unknown")
            return
        self._state(now, survey.group.state)
        if self._before is not None and (cause := cause_of(self._before, survey.group)):
            self.events.append(TimelineEvent(at=survey.at, text=cause))
        self._before = survey.group
        owners = {
            partition: self._member(member.member_id, member.instance_id or member.client_id)
            for member in survey.group.members
            for partition in member.assignment
        }
        is_column = not self._columns or now - self._columns[-1] >= self._column_ms
        if is_column:
            self._columns.append(now)
        for partition in sorted({*survey.offsets, *owners, *self._tracks}):
            self._partition(partition, owners.get(partition, -1), survey, now, is_column=is_column)

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
            self._tracks[partition] = _Track(lags=[-1] * missed, moved_at=now)
        track = self._tracks[partition]
        if not track.owners or track.owners[-1][1] != owner:
            track.owners.append((now, owner))
        found, offsets = survey.committed.get(partition), survey.offsets.get(partition)
        committed = found.offset if isinstance(found, OffsetAndMetadata) else None
        end = None if offsets is None else offsets.end
        lag = -1 if committed is None or end is None else max(0, end - committed)
        if committed != track.committed or lag <= 0:
            track.committed, track.moved_at = committed, now
        elif track.still and track.still[-1][0] == track.moved_at:
            track.still[-1][1] = now
        else:
            track.still.append([track.moved_at, now])
        if is_column:
            track.lags.append(_rounded(lag))

    def data(self) -> Mapping[str, object]:
        """What the page shows; times in ms since the first sample, lags as differences from one column to the next."""
        began = self._began or 0.0
        return {
            "group": self.group_id,
            "began": round(began * 1000),
            "ms": self._last_ms,
            "members": self._names,
            "states": [list(one) for one in self._states],
            "columns": _differences(self._columns),
            "events": [
                [round((one.at - began) * 1000), one.text, int(one.is_exact)]
                for one in sorted(self.events, key=lambda one: one.at)
            ],
            "partitions": [
                [
                    f"{partition.topic}[{partition.partition}]",
                    [number for run in track.owners for number in run],
                    [number for run in track.still for number in run],
                    _differences(track.lags),
                ]
                for partition, track in sorted(self._tracks.items())
            ],
        }

    def page(self) -> str:
        """The whole page."""
        # No text of a cluster ends the script: `</` is written as JSON may have it, too.
        data = json.dumps(self.data(), separators=(",", ":")).replace("</", "<\\/")
        return _PAGE.read_text(encoding="utf-8").replace(_DATA, data)


def cause_of(before: GroupDescription, after: GroupDescription) -> str:
    """What led from one to the other, as far as it is visible from outside; empty where nothing did."""
    old, new = ({one.member_id: one for one in group.members} for group in (before, after))
    reasons = [
        *(f"{_name(after, one)} joined" for one in sorted(new.keys() - old.keys())),
        *(f"{_name(before, one)} left" for one in sorted(old.keys() - new.keys())),
        *(
            f"{_name(after, one)} {'went away, and keeps its place' if new[one].is_away else 'came back'}"
            for one in sorted(old.keys() & new.keys())
            if old[one].is_away != new[one].is_away
        ),
        *(
            f"{_name(after, one)} changed its subscription"
            for one in sorted(old.keys() & new.keys())
            if (old[one].topics, old[one].pattern) != (new[one].topics, new[one].pattern)
        ),
    ]
    if before.protocol is not after.protocol:
        reasons.append(f"the group became one of the {after.protocol.value} protocol")
    moved = sum(new[one].assignment != old[one].assignment for one in old.keys() & new.keys())
    if not reasons and before.epoch != after.epoch:
        reasons.append("a new group epoch without a visible cause: topics changed, or a member left and joined again")
    if not reasons and moved:
        reasons.append(f"{moved} members have other partitions")
    return "; ".join(reasons)


def _name(group: GroupDescription, member_id: str) -> str:
    member = next(one for one in group.members if one.member_id == member_id)
    return f"{member.instance_id or member.client_id or 'member'} ({member_id[:8]})"


def _rounded(lag: int) -> int:
    digits = len(str(lag)) - _DIGITS
    return round(lag, -digits) if digits > 0 else lag


def _differences(numbers: list[int]) -> list[int]:
    """The first, and then how much each is more than the one before it."""
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]
