"""`cooperative-sticky`: as `sticky`, but members go on with what they keep, as Java's CooperativeStickyAssignor.

What moves between two members is left out in this round (KIP-429): its owner gives it up, joins again, and then it is
given to the new one. Ownership comes from the protocol's own fields. The generation does, too (KIP-792); clients
before that told it as an INT32 in the user data, which is written here also, for older leaders.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from consumer_membership.membership.classic.assignor import NO_GENERATION, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.membership.classic.assignors.sticky_core import assign_sticky
from consumer_membership.membership.classic.validation import Claim, withhold
from consumer_membership.types import TopicPartition

_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor:
    """Balanced after the last of at most two rounds; nobody gives up what it keeps.

    It supports the eager protocol, too, so that a group can move from an eager assignor in two rolling restarts.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """The generation, as Java tells it to leaders before KIP-792."""
        del topics, owned
        return _GENERATION.pack(generation)

    def claim(self, subscription: MemberSubscription) -> Claim:
        """What the member owns; its generation from the user data where the protocol's own field does not tell it."""
        generation = subscription.generation
        if generation < 0:
            data = subscription.user_data or b""
            generation = _GENERATION.unpack_from(data)[0] if len(data) >= _GENERATION.size else NO_GENERATION
        return Claim(owned=subscription.owned, generation=generation)

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, tuple[TopicPartition, ...]]:
        """The partitions that each member gets in this round."""
        outcome = assign_sticky(topics, subscriptions, self.claim)
        return withhold(outcome.validated, outcome.assignment)
