"""What an assignor returned, read as what it should have returned: a user's own may return anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsIndex

from consumer_membership.errors import AssignmentError
from consumer_membership.membership.classic.assignor import Assigned
from consumer_membership.types import TopicPartition

_REMEDY = "return a mapping of member ids to lists of (topic, partition number)"
#: So much of a value is shown in an error.
_SHOWN = 80


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
