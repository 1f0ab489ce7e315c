"""The books on a group of partners: what each told, and what of that was never to happen."""

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
        """One line of its stdout."""
        words: dict[str, Any] = json.loads(line)
        if "partition" in words:
            words["partitions"] = [words.pop("partition")]
        if "offsets" in words:
            words["offsets"] = tuple((partition, offset) for partition, offset in words["offsets"])
        return cls(**words | {"partitions": frozenset(words.pop("partitions", ()))})


@dataclass(slots=True)
class Account:
    """What one partner told so far, in its order."""

    told: list[Told] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    #: How often it was given each (partition, offset).
    records: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: The offset behind the highest record of each partition.
    reached: dict[int, int] = field(default_factory=dict)
    #: The generation that it led last.
    leads: int | None = None
    #: What its view told last, if it is one of ours.
    view: Told | None = None
    withholds: bool = False
    is_closed: bool = False
    #: When its process ended, if it did: what it had by then it has no more.
    ended_at: int | None = None

    def take(self, told: Told) -> None:
        """Enter one event."""
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
    """Each time that a partition was in two members' hands at a moment, in words."""
    found = []
    for partition in sorted({p for account in accounts.values() for told in account.told for p in told.partitions}):
        terms = sorted((*term, name) for name, account in accounts.items() for term in _terms(account, partition))
        until, by = 0, ""
        # Sorted by their begins: who overlaps with anybody before overlaps with the one who had it longest.
        for begin, end, name in terms:
            if begin < until and name != by:
                found.append(f"{partition}: {name} from {begin}, {by} until {until}")
            if end > until:
                until, by = end, name
    return found


def _terms(account: Account, partition: int) -> Iterator[tuple[int, int]]:
    """From when until when it had the partition."""
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


def repetitions(accounts: Mapping[str, Account]) -> list[str]:
    """Each batch that began before what had been committed when its member got the partition, in words.

    Or before the end of that member's last batch, or of a partition that it did not have.
    """
    commits = sorted(
        (told.at, partition, offset)
        for account in accounts.values()
        for told in account.told
        if told.event == "committed"
        for partition, offset in told.offsets
    )
    return [
        f"{name} was given {told} where it was to go on at {at}"
        for name, account in accounts.items()
        for told, at in _batches(account, commits)
        if at is None or told.first < at
    ]


def _batches(account: Account, commits: Sequence[tuple[int, int, int]]) -> Iterator[tuple[Told, int | None]]:
    """Each batch, and the least offset that it may begin with; None: it may not be given at all."""
    least: dict[int, int] = {}
    for told in account.told:
        match told.event:
            case "assigned":
                for partition in told.partitions:
                    before = (offset for at, number, offset in commits if number == partition and at < told.at)
                    least[partition] = max(before, default=0)
            case "records":
                (partition,) = told.partitions
                yield told, least.get(partition)
                least[partition] = told.last + 1
            case "revoked" | "lost":
                for partition in told.partitions:
                    least.pop(partition, None)
            case _:
                pass


def uncommitted(account: Account) -> Counter[tuple[int, int]]:
    """The (partition, offset) that it was given and had not committed when it gave the partition up, lost it or ended.

    That is what others may be given again.
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
