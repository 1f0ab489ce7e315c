"""Events and effects as short text, for the trace of a failed run."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from uuid import UUID

from consumer_membership.types import OffsetAndMetadata, TopicIdPartition, TopicPartition


def as_text(value: object) -> str:  # noqa: PLR0911 - one return for each kind of value
    """Return this value as a short text, without its empty fields."""
    match value:
        case str():
            return value
        case TopicIdPartition():
            return f"{as_text(value.topic_id)}-{value.partition}"
        case TopicPartition():
            return f"{value.topic}-{value.partition}"
        case OffsetAndMetadata():
            return str(value.offset)
        case UUID():
            return f"#{value.hex[:4]}"
        case Enum():
            return value.name
        case Mapping():
            return "{" + " ".join(sorted(f"{as_text(key)}={as_text(one)}" for key, one in value.items())) + "}"
        case AbstractSet() | tuple():
            return "[" + " ".join(sorted(as_text(one) for one in value)) + "]"
        case _ if is_dataclass(value) and not isinstance(value, type):
            set_fields = ((field.name, getattr(value, field.name)) for field in fields(value))
            inner = ", ".join(f"{name}={as_text(one)}" for name, one in set_fields if one is not None)
            return f"{type(value).__name__}({inner})"
        case _:
            return repr(value)
