"""Events and effects in few words, for the trace of a failed run."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from uuid import UUID

from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition


def words(value: object) -> str:  # noqa: PLR0911 - one return for each kind of value
    """Return this value as a short text, without its empty fields."""
    match value:
        case str():
            return value
        case TopicIdPartition():
            return f"{words(value.topic_id)}-{value.partition}"
        case TopicPartition():
            return f"{value.topic}-{value.partition}"
        case OffsetAndMetadata():
            return str(value.offset)
        case UUID():
            return f"#{value.hex[:4]}"
        case Enum():
            return value.name
        case Mapping():
            return "{" + " ".join(sorted(f"{words(key)}={words(one)}" for key, one in value.items())) + "}"
        case AbstractSet() | tuple():
            return "[" + " ".join(sorted(words(one) for one in value)) + "]"
        case _ if is_dataclass(value) and not isinstance(value, type):
            said = ((field.name, getattr(value, field.name)) for field in fields(value))
            inner = ", ".join(f"{name}={words(one)}" for name, one in said if one is not None)
            return f"{type(value).__name__}({inner})"
        case _:
            return repr(value)
