"""The accounts of a group of partners: their reported events, and the violations in them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of one partner (`tests.support.partners.speech`)."""

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
        """Parse one line of its stdout."""
        words: dict[str, Any] = json.loads(line)
        if "partition" in words:
            words["partitions"] = [words.pop("partition")]
        if "offsets" in words:
            words["offsets"] = tuple((partition, offset) for partition, offset in words["offsets"])
        return cls(**words | {"partitions": frozenset(words.pop("partitions", ()))})


@dataclass(slots=True)
class Account:
    """The events of one partner so far, in order."""

    told: list[Told] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    #: How often it was given each (partition, offset).
    records: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: The offset behind the highest record of each partition.
    reached: dict[int, int] = field(default_factory=dict)
    #: The generation that it led last.
    leads: int | None = None
    #: The last state of its view, if it is one of ours.
    view: Told | None = None
    withholds: bool = False
    is_closed: bool = False
    #: When its process ended, if it did: what it had by then it has no more.
    ended_at: int | None = None

    def take(self, told: Told) -> None:
        """Add one event."""
        self.told.append(told)
        match told.event:
            case "assigned":
                self.owned |= told.partitions
            case "revoked" | "lost":
                self.owned -= told.partitions
            case "records":
                (partition,) = told.partitions
                self.records.update((partition, offset) for offset in range(told.first, told.last + 1))
                self.reached[partition] = max(told.last + 1, self.reached.get(partition, 0))
            case "leads":
                self.leads = told.generation
            case "view":
                self.view = told
            case "withholds":
                self.withholds = True
            case "closed":
                self.is_closed = True
            case "committed" | "refused" | "error":
                pass
            case _:
                raise AssertionError(f"an event that nobody knows: {told}")


#: Later than any event.
_STILL = 1 << 62


def doubles(accounts: Mapping[str, Account]) -> list[str]:
    """A text for each time that two members owned a partition at once."""
    found = []
    for partition in sorted({p for account in accounts.values() for told in account.told for p in told.partitions}):
        terms = sorted((*term, name) for name, account in accounts.items() for term in _terms(account, partition))
        until, by = 0, ""
        # Sorted by their begins: an interval that overlaps with an earlier one overlaps with the one that ends last.
        for begin, end, name in terms:
            if begin < until and name != by:
                found.append(f"{partition}: {name} from {begin}, {by} until {until}")
            if end > until:
                until, by = end, name
    return found


def _terms(account: Account, partition: int) -> Iterator[tuple[int, int]]:
    """The times from which and until which the member owned the partition."""
    since: int | None = None
    for told in account.told:
        if partition not in told.partitions:
            continue
        if told.event == "assigned" and since is None:
            since = told.at
        elif told.event in ("revoked", "lost") and since is not None:
            yield since, told.at
            since = None
    if since is not None:
        yield since, account.ended_at or _STILL


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The smallest valid offset from which a member may read a partition, and the reason."""

    offset: int
    why: str


def repetitions(accounts: Mapping[str, Account]) -> list[str]:
    """A text for each batch that began before the committed offset at its member's assignment.

    Also for a batch that began before the end of the member's last batch, or of a partition that it did not own. Below
    follow all partners' events of the partition around that time.
    """
    commits = sorted(
        (told.at, partition, offset, name)
        for name, account in accounts.items()
        for told in account.told
        if told.event == "committed"
        for partition, offset in told.offsets
    )
    return [
        f"{name} was given {_span(told)} at {told.at}, {_where(start)}\n{_history(accounts, told)}"
        for name, account in accounts.items()
        for told, start in _batches(account, commits)
        if start is None or told.first < start.offset
    ]


def _batches(account: Account, commits: Sequence[tuple[int, int, int, str]]) -> Iterator[tuple[Told, _Start | None]]:
    """Each batch and the offset where it may begin; None if it must not be delivered at all."""
    least: dict[int, _Start] = {}
    for told in account.told:
        match told.event:
            case "assigned":
                for partition in told.partitions:
                    before = [
                        _Start(offset=offset, why=f"{name} told of that commit at {at}")
                        for at, number, offset, name in commits
                        if number == partition and at < told.at
                    ]
                    nothing = _Start(offset=0, why="nothing was committed")
                    start = max(before, default=nothing, key=lambda one: one.offset)
                    least[partition] = _Start(offset=start.offset, why=f"{start.why}, it got {partition} at {told.at}")
            case "records":
                (partition,) = told.partitions
                yield told, least.get(partition)
                least[partition] = _Start(offset=told.last + 1, why=f"its last batch ended there at {told.at}")
            case "revoked" | "lost":
                for partition in told.partitions:
                    least.pop(partition, None)
            case _:
                pass


def _span(told: Told) -> str:
    (partition,) = told.partitions
    return f"{partition}: {told.first}..{told.last}"


def _where(start: _Start | None) -> str:
    return "which it did not have" if start is None else f"where it was to go on at {start.offset} ({start.why})"


#: How many lines before and after are listed below a repetition.
_LINES_BEFORE, _LINES_AFTER = 40, 10


def _history(accounts: Mapping[str, Account], repeated: Told) -> str:
    """One line for each event of any partner about the partition around that time, and for each rejected commit."""
    (partition,) = repeated.partitions
    lines = sorted(
        (told.at, f"  {told.at} {name} {words}")
        for name, account in accounts.items()
        for told in account.told
        if (words := _said_of(partition, told)) is not None
    )
    before = [line for at, line in lines if at <= repeated.at][-_LINES_BEFORE:]
    return "\n".join(before + [line for at, line in lines if at > repeated.at][:_LINES_AFTER])


def _said_of(partition: int, told: Told) -> str | None:
    """The event's statement about the partition, or about all partitions; None without one."""
    match told.event:
        case "records" if partition in told.partitions:
            return f"was given {_span(told)}"
        case "committed" if partition in (offsets := dict(told.offsets)):
            return f"committed {partition}: {offsets[partition]}"
        case "assigned" | "revoked" | "lost" if partition in told.partitions:
            return f"{told.event} {sorted(told.partitions)} in generation {told.generation}"
        case "refused" | "error":
            return f"{told.event}: {told.text}"
        case "withholds" | "closed":
            return told.event
        case "view":
            return f"view: {told.protocol} member of a {told.group} group, generation {told.generation}"
        case _:
            return None


def uncommitted(account: Account) -> Counter[tuple[int, int]]:
    """The (partition, offset) of its records that were uncommitted when it revoked or lost the partition or ended.

    These records may be redelivered to other members.
    """
    left: Counter[tuple[int, int]] = Counter()
    pending: dict[int, list[int]] = {}
    for told in account.told:
        match told.event:
            case "records":
                (partition,) = told.partitions
                pending.setdefault(partition, []).extend(range(told.first, told.last + 1))
            case "committed":
                for partition, at in told.offsets:
                    pending[partition] = [offset for offset in pending.get(partition, []) if offset >= at]
            case "revoked" | "lost":
                left.update((p, offset) for p in told.partitions for offset in pending.pop(p, []))
            case _:
                pass
    if account.is_closed or account.ended_at is not None:
        left.update((p, offset) for p, offsets in pending.items() for offset in offsets)
    return left
