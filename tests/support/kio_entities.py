# This module uses `Any`, because entities of many layouts share no type.
"""kio's entities, an independent implementation of Kafka's messages: random values, and this package's values."""

from __future__ import annotations

import io
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from consumer_membership.wire.serial import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A random value for each of kio's types. Hypothesis' strategies for kio's classes would take seconds for each layout.
VALUES: dict[str, Any] = {
    "bool": lambda chance: chance.random() < 0.5,
    "int8": lambda chance: chance.randint(-(2**7), 2**7 - 1),
    "int16": lambda chance: chance.randint(-(2**15), 2**15 - 1),
    "int32": lambda chance: chance.choice([-1, 0, 1, chance.randint(-(2**31), 2**31 - 1)]),
    "int64": lambda chance: chance.choice([-1, 0, 1, chance.randint(-(2**63), 2**63 - 1)]),
    "string": lambda chance: chance.choice(["", "a", "ü€😀", "x" * chance.choice([126, 127, 128, 300])]),
    "bytes": lambda chance: chance.randbytes(chance.choice([0, 1, 127, 128, 300])),
    "uuid": lambda chance: chance.choice([None, UUID(int=chance.getrandbits(128))]),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "timedelta_i32": lambda chance: timedelta(milliseconds=chance.randint(-(2**31), 2**31 - 1)),
    "datetime_i64": lambda chance: _EPOCH + timedelta(milliseconds=chance.randint(0, 10**14)),
    # Python's durations are limited to 10^9 days; the package rejects longer durations as malformed.
    "timedelta_i64": lambda chance: timedelta(milliseconds=chance.randint(-(10**15), 10**15)),
}


def written(entity: Any) -> bytes:
    """Return the bytes that kio writes for this entity."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def some_entity(layout: Any, chance: Random) -> Any:
    """Return an entity of this layout with random values."""
    return layout(**{field.name: some_value(field, field.type, chance) for field in fields(layout)})


def some_value(field: Any, annotation: Any, chance: Random) -> Any:
    """Return a random value for this field."""
    if isinstance(annotation, UnionType):
        present = next(part for part in get_args(annotation) if part is not type(None))
        return None if chance.random() < 0.2 else some_value(field, present, chance)
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        return tuple(some_value(field, item, chance) for _ in range(chance.choice([0, 1, 2, 5])))
    if is_dataclass(annotation):
        return some_entity(annotation, chance)
    return VALUES[field.metadata["kafka_type"]](chance)


def our_name(name: str, value: object) -> str:
    """Return Kafka's name of a field; kio's names of times and durations have no unit."""
    return f"{name}_ms" if isinstance(value, timedelta | datetime) else name


def as_values(one: Any) -> Any:
    """Return the entity as the mapping that this package writes."""
    if is_dataclass(one):
        pairs = ((field.name, getattr(one, field.name)) for field in fields(one))
        return {our_name(name, value): as_values(value) for name, value in pairs}
    if isinstance(one, tuple):
        return tuple(map(as_values, one))
    if isinstance(one, datetime):
        return round((one - _EPOCH) / timedelta(milliseconds=1))
    return round(one / timedelta(milliseconds=1)) if isinstance(one, timedelta) else one


def as_struct(one: Any) -> Any:
    """Return the entity as the structure that this package reads."""
    if is_dataclass(one):
        pairs = ((field.name, getattr(one, field.name)) for field in fields(one))
        return Struct(**{our_name(name, value): as_struct(value) for name, value in pairs})
    if isinstance(one, tuple):
        return tuple(map(as_struct, one))
    return as_values(one)
