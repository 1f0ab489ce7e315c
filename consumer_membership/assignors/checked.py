"""Run an assignor for the group's leader: with valid claims, and with a check of its result.

The result is read as if it had the declared type, because a custom assignor may return anything.
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

_REMEDY = "return a mapping from member ids to lists of (topic, partition number)"
#: The longest text of a value in an error.
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The assignment of each member, and the contradictions in the claims as log messages.

    `user_data` has the bytes for the members to which the assignor gives some.
    """

    assignments: Mapping[str, frozenset[TopicPartition]]
    user_data: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def assign_checked(assignor: Assignor, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Checked:
    """Run the assignor and return a checked assignment; members without an entry receive no partitions.

    A custom assignor receives only the valid claims (KIP-792). Under the cooperative protocol, partitions that two
    members claim with equal right are withheld for one round, as the built-in assignor does.

    Raises:
        AssignmentError: the result is invalid or incomplete, or assigns a partition that another member still claims;
            the message names the partition.
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
    """The assignment of one member: an `Assigned` after its check."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None


def read_result(given: object) -> dict[str, Share]:
    """Return the assignment of each member, copied once, because a result may be an iterator.

    Raises:
        AssignmentError: the result has a wrong form; the message has the place and the expected form.
    """
    if not isinstance(given, Mapping):
        raise _misshapen(f"it returned {_shown(given)}")
    result = {}
    for member, share in given.items():
        if not isinstance(member, str):
            raise _misshapen(f"it gives partitions to {_shown(member)}, which is not a member id")
        result[member] = _share(share, member)
    return result


def _share(given: object, member: str) -> Share:
    # A custom assignor may return anything, whatever its declared type.
    partitions: object = given
    user_data: object = None
    if isinstance(given, Assigned):
        partitions, user_data = given.partitions, given.user_data
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise _misshapen(f"it gives {_shown(partitions)} to {member}")
    if user_data is not None and not isinstance(user_data, bytes):
        raise AssignmentError(f"{member} receives the user data {_shown(user_data)}; expected bytes or None")
    return Share(partitions=tuple(_partition(one, member) for one in partitions), user_data=user_data)


def _partition(given: object, member: str) -> TopicPartition:
    if isinstance(given, tuple | list) and len(given) == len(TopicPartition._fields):
        topic, number = given
        if isinstance(topic, str) and isinstance(number, SupportsIndex) and not isinstance(number, bool):
            return TopicPartition(topic, number.__index__())
    raise _misshapen(f"it gives {_shown(given)} to {member}, which is not a partition")


def _shown(given: object) -> str:
    return f"{given!a:.{_SHOWN}} (of type {type(given).__name__})"


def _misshapen(what: str) -> AssignmentError:
    return AssignmentError(f"the result of assign() is invalid: {what}; {_REMEDY}")
