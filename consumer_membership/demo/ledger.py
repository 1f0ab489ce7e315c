"""Who saw which record, and whether that is what a consumer group promises.

The promise is "at least once, and more than once only where a member died before it committed": nothing is lost, and a
record that was seen twice was seen by a member that was killed. A member that leaves, joins or gives partitions away in
good order causes no double.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from consumer_membership.demo.records import Run

#: Numbers named in a finding.
_SAMPLE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the check found.

    `twice` counts the records that were seen more than once and that a killed member accounts for; `findings` say what
    is wrong, one sentence each, and are empty if the promise was kept.
    """

    produced: int
    seen: int
    twice: int
    committed: int
    end: int
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return not self.findings


class Ledger:
    """Counts records by number.

    Args:
        partitions: The distance between two numbers of one partition.
    """

    def __init__(self, partitions: int) -> None:
        self._distance = partitions
        #: By number: 0 if nobody saw it, else one more than the first member's index.
        self._first_seen_by = bytearray()
        self._later_seen_by: dict[int, list[int]] = {}
        self.seen = 0

    @property
    def twice(self) -> int:
        """How many records were seen more than once."""
        return len(self._later_seen_by)

    def note(self, member: int, run: Run) -> None:
        """The member with this index (below 255) saw these records."""
        end = run.first + run.length * self._distance
        if len(self._first_seen_by) < end:
            self._first_seen_by.extend(bytes(end - len(self._first_seen_by)))
        numbers = range(run.first, end, self._distance)
        fresh = self._first_seen_by[run.first : end : self._distance].count(0)
        self.seen += fresh
        if fresh == run.length:
            self._first_seen_by[run.first : end : self._distance] = bytes([member + 1]) * run.length
            return
        for number in numbers:
            if self._first_seen_by[number]:
                self._later_seen_by.setdefault(number, []).append(member)
            else:
                self._first_seen_by[number] = member + 1

    def check(
        self,
        *,
        produced: int,
        killed: Collection[int],
        committed: Mapping[int, int],
        end: Mapping[int, int],
        strange: int = 0,
        unacknowledged: int = 0,
    ) -> Verdict:
        """The verdict on the numbers 0 to `produced` - 1.

        Args:
            produced: How many records were produced.
            killed: The members that had no chance to commit.
            committed: The group's committed offset of each partition.
            end: The end offset of each partition.
            strange: Records that members saw and that are not the demo's.
            unacknowledged: Records that the broker never acknowledged; these may be there or not.
        """
        unexplained = [
            number
            for number, later in self._later_seen_by.items()
            if not {self._first_seen_by[number] - 1, *later} & set(killed)
        ]
        findings = [
            _finding("never seen", self._unseen(produced)),
            _finding("seen more than once although no killed member had them", unexplained),
            _finding("seen and never produced", self._beyond(produced)),
            f"{strange} records were not the demo's own" if strange else "",
            f"{unacknowledged} records were never acknowledged by the broker" if unacknowledged else "",
            *_behind(committed, end),
        ]
        return Verdict(
            produced=produced,
            seen=self.seen,
            twice=self.twice - len(unexplained),
            committed=sum(offset for offset in committed.values() if offset > 0),
            end=sum(end.values()),
            findings=tuple(filter(None, findings)),
        )

    def _unseen(self, produced: int) -> list[int]:
        return [number for number, by in enumerate(self._first_seen_by[:produced]) if not by] + list(
            range(len(self._first_seen_by), produced)
        )

    def _beyond(self, produced: int) -> list[int]:
        return [number for number in range(produced, len(self._first_seen_by)) if self._first_seen_by[number]]


def _finding(what: str, numbers: Collection[int]) -> str:
    """One sentence, empty where there is nothing to say."""
    if not numbers:
        return ""
    named = ", ".join(map(str, sorted(numbers)[:_SAMPLE])) + (", ..." if len(numbers) > _SAMPLE else "")
    return f"{len(numbers)} records were {what}: {named}"


def _behind(committed: Mapping[int, int], end: Mapping[int, int]) -> list[str]:
    return [
        f"partition {partition}: committed offset {committed.get(partition, 'none')}, end offset {offset}"
        for partition, offset in sorted(end.items())
        if committed.get(partition, 0) != offset
    ]
