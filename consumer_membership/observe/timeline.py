"""Who owned what when, of a group of any client: samples gathered into runs, and written as one page.

A sample is a survey that asks for what changes. What is kept of it is what is new: each partition has the runs of its
owners and of its standing still, and its lag at a few hundred moments at most, so that ten minutes of a thousand
partitions fit into a page that opens at once. Samples of the past come from the coordinator's records (`history`),
which know the moment that looks only lie around; and what a member of ours recorded (`recorded`) takes the place of
what was sampled of it, when the page is made.
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
from consumer_membership.observe.recorded import MemberAccount, OwnedRun, RecordedStandstill, between
from consumer_membership.types import OffsetAndMetadata, TopicPartition

#: Columns of the lag chart: a screen has about so many that an eye tells apart.
LAG_COLUMNS = 240
#: Lags are kept to three digits: no pixel shows more.
_DIGITS = 3
#: A shorter standstill of a partition that keeps its owner is not shown: a column of ten minutes.
_LEAST_MS = 600_000 / LAG_COLUMNS
#: A partition stalls once it waits for a commit this many times longer than usual. Auto-commit's gaps vary by a factor
#: of two, because a record arrives anywhere between two commits, and a sample adds up to its interval.
_USUAL_GAPS = 3
#: So many gaps tell what is usual.
_LEAST_GAPS = 3
#: `auto.commit.interval.ms` of librdkafka's, Java's and this package's consumers, where too few commits were seen.
_DEFAULT_GAP_MS = 5_000
#: Gaps are counted in steps of this many ms, so that a watch of days needs no more memory than one of minutes.
_GAP_STEP_MS = 100
_PAGE = Path(__file__).parent / "timeline.html"
_DATA = "/*DATA*/null"
_NOBODY = -1
#: From when to when (ms), and whose.
_Piece: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """Something that happened at a moment: a rebalance with its cause, or what a recorder tells."""

    at: float
    text: str
    is_exact: bool = False


@dataclass(slots=True)
class _LagTrack:
    """One partition."""

    #: Where each run begins (ms), and whose it is; -1: nobody's.
    owners: list[tuple[int, int]] = field(default_factory=list)
    #: From when to when (ms) nothing was committed although there was something to read.
    still: list[list[int]] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    committed: int | None = None
    moved_at: int = 0
    #: By owner, how long records waited for its commits.
    gaps: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def owner_at(self, ms: int) -> int:
        """The owner at this moment."""
        return next((owner for begin, owner in reversed(self.owners) if begin <= ms), _NOBODY)

    def is_handed_over(self, begin: int, end: int) -> bool:
        """Whether the owner changes between these two moments."""
        return any(begin <= at <= end for at, _ in self.owners[1:])


class Timeline:
    """Gathers samples of one group, the oldest first; `seconds` is how much time it will show in all.

    `began`: when that begins (seconds since 1970); None: with the first sample.
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
        self._accounts: list[MemberAccount] = []
        self._refused: set[str] = set()
        self._stood: dict[TopicPartition, list[RecordedStandstill]] = {}
        self.events: list[TimelineEvent] = []
        #: What is missing, in words.
        self.notes: list[str] = []
        #: Whether the group was there at any moment of the page.
        self.has_seen_group = False

    def add_account(self, account: MemberAccount) -> None:
        """Merge what a member recorded: it knows better than a sample what that member had, while it was recorded."""
        self._accounts.append(account)
        self.has_seen_group = True
        for one in account.standstills:
            self._stood.setdefault(one.partition, []).append(one)
        self.events += (TimelineEvent(at=one.at, text=one.text, is_exact=True) for one in account.facts)
        if account.note:
            self.notes.append(account.note)

    def add(self, survey: GroupSurvey, *, is_exact: bool = False) -> None:
        """Add the next sample; an exact one stands at the very moment of what is new in it."""
        if self._began is None:
            self._began = survey.at
        # Clocks of brokers and of this machine may differ by a little.
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
            self._partition(partition, owners.get(partition, _NOBODY), survey, now, is_column=is_column)

    def _note_refusal(self, survey: GroupSurvey) -> None:
        """Say why the group is unknown, each reason once."""
        refusal = survey.refusals.get(Subject.COORDINATOR) or survey.refusals.get(Subject.GROUP)
        if refusal is not None and refusal.name not in self._refused:
            self._refused.add(refusal.name)
            self.notes.append(f"The group could not be looked at: {refusal.words}")

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
        found, offsets = survey.committed.get(partition), survey.offsets.get(partition)
        committed = found.offset if isinstance(found, OffsetAndMetadata) else None
        end = None if offsets is None else offsets.end
        lag = -1 if committed is None or end is None else max(0, end - committed)
        if committed != track.committed or lag <= 0:
            if committed != track.committed and track.committed is not None and track.owners[-1][0] <= track.moved_at:
                track.gaps[owner][round((now - track.moved_at) / _GAP_STEP_MS) * _GAP_STEP_MS] += 1
            track.committed, track.moved_at = committed, now
        elif track.still and track.still[-1][0] == track.moved_at:
            track.still[-1][1] = now
        else:
            track.still.append([track.moved_at, now])
        if is_column:
            track.lags.append(_rounded(lag))

    def _stalls(self, track: _LagTrack, usual_ms: Mapping[int, int], group_ms: int) -> Iterator[tuple[int, int]]:
        """The waits for a commit that are longer than this partition's owner usually takes."""
        for begin, end in track.still:
            owner = track.owner_at(end)
            usual = _usual(track.gaps[owner]) if owner in track.gaps else None
            least_ms: float = _USUAL_GAPS * (usual or usual_ms.get(owner, group_ms))
            if not track.is_handed_over(begin, end):
                least_ms = max(least_ms, self._least_ms)
            if end - begin >= least_ms:
                yield begin, end

    def _cadence(self) -> tuple[Mapping[int, int], int]:
        """How long records usually wait for a commit: by owner, and in the group."""
        by_owner: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for track in self._tracks.values():
            for owner, gaps in track.gaps.items():
                by_owner[owner] += gaps
        usual = {owner: usual for owner, gaps in by_owner.items() if (usual := _usual(gaps)) is not None}
        return usual, _usual(sum(by_owner.values(), Counter())) or _DEFAULT_GAP_MS

    def data(self) -> Mapping[str, object]:
        """What the page shows; times in ms since its begin, those of standstills and lags as differences."""
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
        """A moment within the page."""
        return min(self._last_ms, max(0, round((at - (self._began or 0.0)) * 1000)))

    def _exact(self) -> Mapping[TopicPartition, list[OwnedRun]]:
        """By partition, the runs that members recorded."""
        found: dict[TopicPartition, list[OwnedRun]] = {}
        for account in self._accounts:
            for run in account.runs:
                self._member(run.member_id, account.name)
                found.setdefault(run.partition, []).append(run)
        return found

    def _owners(self, track: _LagTrack, runs: Iterable[OwnedRun]) -> list[int]:
        """Where each run begins, and whose it is, one after the other."""
        ends = [*(at for at, _ in track.owners[1:]), self._last_ms]
        pieces = [(at, end, owner) for (at, owner), end in zip(track.owners, ends, strict=False)]
        if not self._accounts:
            return [number for begin, _, owner in pieces for number in (begin, owner)]
        for account in self._accounts:
            known = {self._members[one] for one in account.member_ids if one in self._members}
            pieces = list(_cut(pieces, self._ms(account.begin), self._ms(account.end), known))
        for run in runs:
            begin, end = self._ms(run.begin), self._ms(run.end)
            if end > begin:
                pieces = [*_cut(pieces, begin, end, None), (begin, end, self._members[run.member_id])]
        return list(_flat(sorted(pieces), self._last_ms))

    def _still(
        self, stalls: Iterable[tuple[int, int]], partition: TopicPartition, runs: Iterable[OwnedRun]
    ) -> list[int]:
        """From when to when nothing was consumed: by what was committed, or to a millisecond by what was recorded."""
        waits = [(self._ms(one.begin), self._ms(one.end)) for one in self._stood.get(partition, ())]
        waits += [(self._ms(one.end), self._ms(following.begin)) for one, following in between(runs)]
        spans = [*stalls, *_joined(waits)]
        return [number for span in sorted(spans) for number in span]

    def page(self) -> str:
        """The whole page."""
        # No text of a cluster ends the script or begins a comment in it: `<!--<script` hides the script's own end.
        data = json.dumps(self.data(), separators=(",", ":")).replace("<", "\\u003c")
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
    if before.protocol is not after.protocol and NO_GROUP not in (before.state, after.state):
        reasons.append(f"the group became one of the {after.protocol.value} protocol")
    if not reasons and before.epoch != after.epoch:
        reasons.append("a new group epoch without a visible cause: topics changed, or a member left and joined again")
    if not reasons:
        stayed = sorted(old.keys() & new.keys())
        reasons += (text for one in stayed if (text := _moved(_name(after, one), old[one], new[one])))
    return "; ".join(reasons)


def _moved(name: str, before: MemberDescription, after: MemberDescription) -> str:
    """What the member gave up and got; empty where it has what it had."""
    given_up, got = before.assignment - after.assignment, after.assignment - before.assignment
    acts = (("gave up", given_up), ("got", got))
    text = " and ".join(f"{act} {partitions_named(partitions)}" for act, partitions in acts if partitions)
    return f"{name} {text}" if text else ""


def _name(group: GroupDescription, member_id: str) -> str:
    member = next(one for one in group.members if one.member_id == member_id)
    return f"{member.instance_id or member.client_id or 'member'} ({member_id[:8]})"


def _cut(pieces: Iterable[_Piece], begin: int, end: int, owners: set[int] | None) -> Iterator[_Piece]:
    """The pieces without this time, where they are of these owners; None: of anybody."""
    for first, last, owner in pieces:
        if owners is not None and owner not in owners:
            yield first, last, owner
            continue
        if first < begin:
            yield first, min(last, begin), owner
        if last > end:
            yield max(first, end), last, owner


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The times that touch each other as one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if end > begin and joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > begin:
            joined.append((begin, end))
    return joined


def _flat(pieces: Iterable[_Piece], last: int) -> Iterator[int]:
    """Begins and owners until the last moment, with nobody where no piece is."""
    reached, whose = 0, None
    for begin, end, owner in pieces:
        if begin > reached and whose != _NOBODY:
            yield from (reached, _NOBODY)
            whose = _NOBODY
        if owner != whose:
            yield from (begin, owner)
            whose = owner
        reached = max(reached, end)
    if reached < last and whose != _NOBODY:
        yield from (reached, _NOBODY)


def _usual(gaps: Counter[int]) -> int | None:
    """The median gap (ms), at least one step; None: there are too few."""
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
    """The first, and then how much each is more than the one before it."""
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]
