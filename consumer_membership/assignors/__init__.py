"""The built-in assignors by Kafka's names; their results equal those of Java's assignors, or are equally good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from consumer_membership.assignors.assignor import Assignor, MemberSubscription
from consumer_membership.assignors.range import RangeAssignor
from consumer_membership.assignors.roundrobin import RoundRobinAssignor

if TYPE_CHECKING:
    from consumer_membership.assignors.validation import Claim

__all__ = ["BUILT_IN", "claim_reader"]


class _BuiltIn(Mapping[str, Assignor]):
    """One instance of each assignor; the two sticky ones are imported on first use."""

    def __init__(self) -> None:
        self._made: dict[str, Assignor] = {one.name: one for one in (RangeAssignor(), RoundRobinAssignor())}

    def __getitem__(self, name: str) -> Assignor:
        if name in _STICKY and name not in self._made:
            from consumer_membership.assignors import sticky

            # The first access creates them; there is one instance of each, whatever threads access it.
            for one in (sticky.StickyAssignor(), sticky.CooperativeStickyAssignor()):
                self._made.setdefault(one.name, one)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in _STICKY

    def __iter__(self) -> Iterator[str]:
        return iter(("range", "roundrobin", *_STICKY))

    def __len__(self) -> int:
        return len(tuple(iter(self)))


_STICKY = ("sticky", "cooperative-sticky")
BUILT_IN: Mapping[str, Assignor] = _BuiltIn()


def claim_reader(assignor: Assignor) -> Callable[[MemberSubscription], Claim]:
    """Return how members with this assignor state their owned partitions: the sticky ones use their user data."""
    from consumer_membership.assignors import sticky  # needed only on leaders
    from consumer_membership.assignors.validation import protocol_claim

    return (
        assignor.claim
        if isinstance(assignor, sticky.StickyAssignor | sticky.CooperativeStickyAssignor)
        else protocol_claim
    )
