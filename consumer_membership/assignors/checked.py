"""One run of an assignor by the group's leader: with claims that are good, and with a result that may be sent.

What an assignor returned is read as what it should have returned: a user's own may return anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import SupportsIndex

from consumer_membership.assignors import claim_reader
from consumer_membership.assignors.assignor import (
    Assigned,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    Topics,
)
from consumer_membership.assignors.validation import (
    check_complete,
    check_cooperative,
    protocol_claim,
    validate_subscriptions,
    withhold,
)
from consumer_membership.errors import AssignmentError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition

_REMEDY = "return a mapping of member ids to lists of (topic, partition number)"
#: So much of a value is shown in an error.
_SHOWN = 80


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
    shown = validated.applied_to(subscriptions) if claim_of is protocol_claim else subscriptions
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one member is given: an `Assigned` that was looked at."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None


def read_result(given: object) -> dict[str, Share]:
    """What each member is given, copied once: what is returned may be used up by looking at it.

    Raises:
        AssignmentError: it is of another shape; the text says where, and what is expected.
    """
    if not isinstance(given, Mapping):
        raise _misshapen(f"it returned {_shown(given)}")
    result = {}
    for member, share in given.items():
        if not isinstance(member, str):
            raise _misshapen(f"it gives partitions to {_shown(member)}, which is no member id")
        result[member] = _share(share, member)
    return result


def _share(given: object, member: str) -> Share:
    # A user's own code may give anything, whatever its type says.
    partitions: object = given
    user_data: object = None
    if isinstance(given, Assigned):
        partitions, user_data = given.partitions, given.user_data
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise _misshapen(f"it gives {_shown(partitions)} to {member}")
    if user_data is not None and not isinstance(user_data, bytes):
        raise AssignmentError(f"{member} is given the user data {_shown(user_data)}; give bytes, or None")
    return Share(partitions=tuple(_partition(one, member) for one in partitions), user_data=user_data)


def _partition(given: object, member: str) -> TopicPartition:
    if isinstance(given, tuple | list) and len(given) == len(TopicPartition._fields):
        topic, number = given
        if isinstance(topic, str) and isinstance(number, SupportsIndex) and not isinstance(number, bool):
            return TopicPartition(topic, number.__index__())
    raise _misshapen(f"it gives {_shown(given)} to {member}, which is no partition")


def _shown(given: object) -> str:
    return f"{given!a:.{_SHOWN}} (of the type {type(given).__name__})"


def _misshapen(what: str) -> AssignmentError:
    return AssignmentError(f"assign() has no result that can be sent: {what}; {_REMEDY}")
