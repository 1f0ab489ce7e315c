"""The built-in assignors, by Kafka's names; Java's leaders and ours come to the same, or to something as good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from consumer_membership.membership.classic.assignor import Assignor, MemberSubscription
from consumer_membership.membership.classic.assignors.range import RangeAssignor
from consumer_membership.membership.classic.assignors.roundrobin import RoundRobinAssignor
from consumer_membership.membership.classic.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from consumer_membership.membership.classic.validation import Claim, told

__all__ = [
    "BUILT_IN",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "claim_reader",
]

BUILT_IN: Mapping[str, Assignor] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
    }
)


def claim_reader(assignor: Assignor) -> Callable[[MemberSubscription], Claim]:
    """How members that use this assignor say what they own: the built-in sticky ones have user data of their own."""
    return assignor.claim if isinstance(assignor, StickyAssignor | CooperativeStickyAssignor) else told
