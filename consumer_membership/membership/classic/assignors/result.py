"""What an assignor returned, read as what it should have returned: a user's own may return anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex

from consumer_membership.errors import AssignmentError
from consumer_membership.types import TopicPartition

_REMEDY = "return a mapping of member ids to lists of (topic, partition number)"
#: So much of a value is shown in an error.
_SHOWN = 80


def read_result(given: object) -> dict[str, tuple[TopicPartition, ...]]:
    """The partitions of each member, copied once: what is returned may be used up by looking at it.

    Raises:
        AssignmentError: it is of another shape; the text says where, and what is expected.
    """
    if not isinstance(given, Mapping):
        raise _misshapen(f"it returned {_shown(given)}")
    result = {}
    for member, partitions in given.items():
        if not isinstance(member, str):
            raise _misshapen(f"it gives partitions to {_shown(member)}, which is no member id")
        if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
            raise _misshapen(f"it gives {_shown(partitions)} to {member}")
        result[member] = tuple(_partition(one, member) for one in partitions)
    return result


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
