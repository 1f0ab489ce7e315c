"""The reported events of a group of partners, and the violations in them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One event of one partner (`tests.support.partners.reporting`)."""

    at: int
    event: str
    partitions: frozenset[int] = frozenset()
    generation: int | None = None
    first: int = 0
    last: int = -1
    offsets: tuple[tuple[int, int], ...] = ()
    text: str = ""
    protocol: str = ""
    group: str = ""

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Parse one line of a partner's stdout."""
        values: dict[str, Any] = json.loads(line)
        if "partition" in values:
            values["partitions"] = [values.pop("partition")]
        if "offsets" in values:
            values["offsets"] = tuple((partition, offset) for partition, offset in values["offsets"])
        return cls(**values | {"partitions": frozenset(values.pop("partitions", ()))})


@dataclass(slots=True)
class Account:
    """The events that one partner has reported so far, in order."""

    reports: list[Report] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    #: How often it received each (partition, offset).
    records: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: The offset after the highest received record of each partition.
    reached: dict[int, int] = field(default_factory=dict)
    #: The latest generation of which it was the leader.
    leads: int | None = None
    #: The latest `view` event; only partners with this package report it.
    view: Report | None = None
    withholds: bool = False
    is_closed: bool = False
    #: The time when its process ended, which also ended its ownership of all partitions; None: it is running.
    ended_at: int | None = None

    def take(self, report: Report) -> None:
        """Add one event."""
        self.reports.append(report)
        match report.event:
            case "assigned":
                self.owned |= report.partitions
            case "revoked" | "lost":
                self.owned -= report.partitions
            case "records":
                (partition,) = report.partitions
                self.records.update((partition, offset) for offset in range(report.first, report.last + 1))
                self.reached[partition] = max(report.last + 1, self.reached.get(partition, 0))
            case "leads":
                self.leads = report.generation
            case "view":
                self.view = report
            case "withholds":
                self.withholds = True
            case "closed":
                self.is_closed = True
            case "committed" | "refused" | "error":
                pass
            case _:
                raise AssertionError(f"unknown event: {report}")


#: The end of an ownership that has not ended: later than any event.
_NOT_ENDED = 1 << 62


def double_owners(accounts: Mapping[str, Account]) -> list[str]:
    """Return a text for each time that two members owned a partition at the same time."""
    found = []
    for partition in sorted({p for account in accounts.values() for one in account.reports for p in one.partitions}):
        ownerships = sorted(
            (*times, name) for name, account in accounts.items() for times in _ownerships(account, partition)
        )
        until, by = 0, ""
        # Sorted by start, it is enough to compare each ownership with the latest end of earlier ones.
        for begin, end, name in ownerships:
            if begin < until and name != by:
                found.append(f"{partition}: {name} from {begin}, {by} until {until}")
            if end > until:
                until, by = end, name
    return found


def _ownerships(account: Account, partition: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each period in which the member owned the partition."""
    since: int | None = None
    for report in account.reports:
        if partition not in report.partitions:
            continue
        if report.event == "assigned" and since is None:
            since = report.at
        elif report.event in ("revoked", "lost") and since is not None:
            yield since, report.at
            since = None
    if since is not None:
        yield since, account.ended_at or _NOT_ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The lowest offset from which a member may receive records of a partition, and the reason."""

    offset: int
    reason: str


def repetitions(accounts: Mapping[str, Account]) -> list[str]:
    """Return a text for each batch that must not have been delivered.

    Such a batch begins before the offset that was committed when the partition was assigned, or before the end of the
    member's previous batch, or the member did not own its partition. The text has the batch, and below it the
    events of all partners for the partition around that time.
    """
    commits = sorted(
        (report.at, partition, offset, name)
        for name, account in accounts.items()
        for report in account.reports
        if report.event == "committed"
        for partition, offset in report.offsets
    )
    return [
        f"{name} received {_span(report)} at {report.at} {_expected(start)}\n{_history(accounts, report)}"
        for name, account in accounts.items()
        for report, start in _batches(account, commits)
        if start is None or report.first < start.offset
    ]


def _batches(account: Account, commits: Sequence[tuple[int, int, int, str]]) -> Iterator[tuple[Report, _Start | None]]:
    """Yield each batch with the lowest offset where it may begin; None if the member did not own the partition."""
    lowest: dict[int, _Start] = {}
    for report in account.reports:
        match report.event:
            case "assigned":
                for partition in report.partitions:
                    before = [
                        _Start(offset=offset, reason=f"{name} reported this commit at {at}")
                        for at, number, offset, name in commits
                        if number == partition and at < report.at
                    ]
                    beginning = _Start(offset=0, reason="no offset was committed")
                    start = max(before, default=beginning, key=lambda one: one.offset)
                    reason = f"{start.reason}; partition {partition} was assigned at {report.at}"
                    lowest[partition] = _Start(offset=start.offset, reason=reason)
            case "records":
                (partition,) = report.partitions
                yield report, lowest.get(partition)
                lowest[partition] = _Start(offset=report.last + 1, reason=f"its previous batch at {report.at}")
            case "revoked" | "lost":
                for partition in report.partitions:
                    lowest.pop(partition, None)
            case _:
                pass


def _span(report: Report) -> str:
    (partition,) = report.partitions
    return f"{partition}: {report.first}..{report.last}"


def _expected(start: _Start | None) -> str:
    if start is None:
        return "without owning the partition"
    return f"instead of continuing at {start.offset} ({start.reason})"


#: How many earlier and later events are listed for a repetition.
_LINES_BEFORE, _LINES_AFTER = 40, 10


def _history(accounts: Mapping[str, Account], repeated: Report) -> str:
    """Return a line for each event of the partition, and for each rejected commit, of all partners around that time."""
    (partition,) = repeated.partitions
    lines = sorted(
        (report.at, f"  {report.at} {name} {text}")
        for name, account in accounts.items()
        for report in account.reports
        if (text := _described(partition, report)) is not None
    )
    before = [line for at, line in lines if at <= repeated.at][-_LINES_BEFORE:]
    return "\n".join(before + [line for at, line in lines if at > repeated.at][:_LINES_AFTER])


def _described(partition: int, report: Report) -> str | None:
    """Return a text for an event of the partition or of all partitions; None for other events."""
    match report.event:
        case "records" if partition in report.partitions:
            return f"received {_span(report)}"
        case "committed" if partition in (offsets := dict(report.offsets)):
            return f"committed {partition}: {offsets[partition]}"
        case "assigned" | "revoked" | "lost" if partition in report.partitions:
            return f"{report.event} {sorted(report.partitions)} in generation {report.generation}"
        case "refused" | "error":
            return f"{report.event}: {report.text}"
        case "withholds" | "closed":
            return report.event
        case "view":
            return f"view: {report.protocol} member of a {report.group} group, generation {report.generation}"
        case _:
            return None


def uncommitted(account: Account) -> Counter[tuple[int, int]]:
    """Return the records that were uncommitted when the partner revoked or lost their partition, or ended.

    Records are (partition, offset). Other members may receive these records again.
    """
    left: Counter[tuple[int, int]] = Counter()
    pending: dict[int, list[int]] = {}
    for report in account.reports:
        match report.event:
            case "records":
                (partition,) = report.partitions
                pending.setdefault(partition, []).extend(range(report.first, report.last + 1))
            case "committed":
                for partition, at in report.offsets:
                    pending[partition] = [offset for offset in pending.get(partition, []) if offset >= at]
            case "revoked" | "lost":
                left.update((p, offset) for p in report.partitions for offset in pending.pop(p, []))
            case _:
                pass
    if account.is_closed or account.ended_at is not None:
        left.update((p, offset) for p, offsets in pending.items() for offset in offsets)
    return left
