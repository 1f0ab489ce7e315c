"""One run of an assignor by the group's leader: with claims that are good, and with a result that may be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer_membership.membership.classic.assignor import Assignor, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.membership.classic.assignors import claim_reader
from consumer_membership.membership.classic.assignors.result import read_result
from consumer_membership.membership.classic.validation import (
    check_complete,
    check_cooperative,
    told,
    validate_subscriptions,
    withhold,
)
from consumer_membership.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What to send to each member of the group, and what contradicted itself in their claims, in words for the log.

    `user_data` has the bytes of those members to whom the assignor gives some.
    """

    assignments: Mapping[str, frozenset[TopicPartition]]
    user_data: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def assign_checked(assignor: Assignor, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Checked:
    """Have the partitions assigned; whoever the assignor left out gets nothing.

    A user's own assignor is given the good claims only (KIP-792). What two members claim with equal right is withheld
    for a round under the cooperative protocol, as the built-in one does itself.

    Raises:
        AssignmentError: the result is no assignment, is incomplete, or gives away what somebody still claims; it names
            the partition.
    """
    claim_of = claim_reader(assignor)
    validated = validate_subscriptions(subscriptions, claim_of)
    shown = validated.applied_to(subscriptions) if claim_of is told else subscriptions
    given = read_result(assignor.assign(topics, shown))
    result = {member: share.partitions for member, share in given.items()}
    is_cooperative = RebalanceProtocol.COOPERATIVE in assignor.protocols
    if is_cooperative:
        result = withhold(validated, result, validated.contested)
        check_cooperative(validated, result)
    check_complete(topics, subscriptions, result, validated.claimants if is_cooperative else ())
    return Checked(
        assignments={member: frozenset(result.get(member, ())) for member in subscriptions},
        user_data={member: share.user_data for member, share in given.items() if share.user_data is not None},
        notes=tuple(str(conflict) for conflict in validated.conflicts),
    )
