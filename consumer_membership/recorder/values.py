"""Values of the core as JSON and back: events, effects, settings, views, and the objects of the core's state.

A value that JSON has is written as it is. Any other value is an object whose key "!" names its kind: a kind of the
standard library (`_ROWS`), or a class by its module under `consumer_membership` and its name
("membership.events.Polled"). A reader creates objects of these kinds and of the core's classes, and no others.

Mutable objects may be shared and may refer to each other. They are numbered in the order in which the writer reaches
them, and the reader counts them in the same order; "^" refers to such a number. Objects that the reader already has are
written as their name ("shared").

Several records of one class, such as the partitions of an assignment, are written as columns, one for each field. The
work on a column of texts or numbers runs in C, so that a checkpoint of a large state delays its member little.

The application's own data is not written: the metadata of commits, and the bytes of assignors. A keyed hash replaces
it, equal for equal data; the key stays in the process.

General serializers do not replace this: msgspec writes dataclasses without their class, copies a shared object for each
reference, and its JSON rejects mappings whose keys are partitions.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from operator import attrgetter
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from consumer_membership.errors import MembershipError
from consumer_membership.light_dataclasses import replace
from consumer_membership.types import OffsetAndMetadata

Json: TypeAlias = Any
_T = TypeVar("_T")

PACKAGE: Final = "consumer_membership."
#: Types that JSON has.
_PLAIN: Final = frozenset({type(None), str, int, bool})
#: The names of classes and tables that a recording may contain.
_KNOWN = re.compile(r"(types|(assignors|membership)(\.[a-z_]+)+)\.[A-Za-z_]+", re.ASCII)


class RecordingError(MembershipError):
    """The file is not a recording, or one that this version of the package cannot read; the message has the reason."""


# ---- classes ---------------------------------------------------------------------------------------------------------


def _once_for_each(function: Callable[[type], _T]) -> Callable[[type], _T]:
    """Return `cache` with a type, because a class is not hashable for mypy."""
    return cache(function)


@_once_for_each
def _name_of(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix(PACKAGE)
    if not _KNOWN.fullmatch(name):
        raise RecordingError(f"a {kind.__module__}.{kind.__qualname__} cannot be recorded")
    return name


@cache
def _of_the_core(name: str) -> type | Mapping[Any, Any]:
    """Return the core's class or table with this name."""
    module, _, plain = name.rpartition(".")
    if not _KNOWN.fullmatch(name):
        raise RecordingError(f"{name[:100]!r} is not allowed in a recording")
    try:
        found: object = getattr(importlib.import_module(PACKAGE + module), plain)
    except (ImportError, AttributeError):
        raise RecordingError(f"this version of the package has no {name}") from None
    if isinstance(found, MappingProxyType) or (isinstance(found, type) and found.__module__ == PACKAGE + module):
        return found
    raise RecordingError(f"{name} is not allowed in a recording")


def _class_of(name: str) -> type:
    found = _of_the_core(name)
    if not isinstance(found, type):
        raise RecordingError(f"{name} is not a class")
    return found


@_once_for_each
def _fields_of(kind: type) -> tuple[str, ...] | None:
    """Return the fields of an immutable record, a named tuple or a frozen dataclass. None: another class."""
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    if is_dataclass(kind) and kind.__hash__ is not None:
        return tuple(one.name for one in fields(kind))
    return None


@_once_for_each
def _slots_of(kind: type) -> tuple[str, ...] | None:
    """Return the slots of a mutable object. None: it has a dict."""
    if kind.__dictoffset__:
        return None
    return tuple(name for base in kind.__mro__ for name in base.__dict__.get("__slots__", ()))


# ---- writing ---------------------------------------------------------------------------------------------------------


def encoded(value: object, seal: bytes, shared: Mapping[int, str] = MappingProxyType({})) -> Json:
    """Return this value as JSON.

    `seal` is the key of the hashes, and `shared` has the names of the objects that the reader already has, by `id`.

    Raises:
        RecordingError: the value contains one that cannot be recorded.
    """
    return _Encoder(seal, shared).encode(value)


def stand_in(secret: str | bytes, seal: bytes) -> str:
    """Return the text that replaces the application's own data."""
    raw = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    return f"{len(secret)}:{hashlib.blake2b(raw, digest_size=8, key=seal).hexdigest()}"


class _Encoder:
    """Write one value."""

    def __init__(self, seal: bytes, shared: Mapping[int, str]) -> None:
        self.seal = seal
        self._shared = shared
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any) -> Json:  # noqa: ANN401 - of any kind
        kind = type(value)
        if kind in _PLAIN or (kind is float and isfinite(value)):
            return value
        owner = value.__self__ if kind is MethodType else value
        name = self._shared.get(id(owner))
        if name is not None:
            return {"!": "shared", "=": name if owner is value else f"{name}.{value.__name__}"}
        if kind in _ROWS_BY_KIND:
            return self._value_of_row(value, _ROWS_BY_KIND[kind])
        if isinstance(value, Enum):
            return {"!": _name_of(kind), "=": value.name}
        names = _fields_of(kind)
        if names is not None:
            record = self._without_secrets(value)
            return {"!": _name_of(kind), **{name: self.encode(getattr(record, name)) for name in names}}
        for plain in (str, int, float):  # of a class of the application
            if isinstance(value, plain):
                return self.encode(plain(value))
        return self._once(value, self._object)

    def items(self, values: Collection[Any]) -> Json:
        """Return a list, or columns if all values are of one immutable kind."""
        kinds = set(map(type, values))
        if kinds <= _PLAIN:
            return list(values)
        if len(kinds) == 1 and len(values) > 1:
            (kind,) = kinds
            row, names = _ROWS_BY_KIND.get(kind), _fields_of(kind)
            if row is not None and row.fill is None:
                return {"!": row.tag, "=": [row.content(self, one) for one in values]}
            if names:
                records = list(map(self._without_secrets, values))
                columns = {name: self.items(list(map(attrgetter(name), records))) for name in names}
                return {"!": _name_of(kind), **columns}
        return list(map(self.encode, values))

    def pairs(self, mapping: Mapping[Any, object]) -> Json:
        """Return the keys and the values of a mapping."""
        return [self.items(mapping.keys()), self.items(mapping.values())]

    def _value_of_row(self, value: object, row: _Row) -> Json:
        def written(one: object) -> dict[str, Json]:
            return {"!": row.tag, "=": row.content(self, one)}

        return written(value) if row.fill is None else self._once(value, written)

    def _object(self, value: object) -> dict[str, Json]:
        kind = type(value)
        if kind in {FunctionType, MethodType}:
            raise RecordingError(f"{value!r} cannot be recorded")
        name, slots = _name_of(kind), _slots_of(kind)
        state = vars(value) if slots is None else {slot: getattr(value, slot) for slot in slots}
        return {"!": name, **{field: self.encode(one) for field, one in state.items()}}

    def _once(self, value: object, write: Callable[[object], dict[str, Json]]) -> Json:
        number = self._numbers.get(id(value))
        if number is not None:
            return {"^": number}
        self._numbers[id(value)] = len(self._numbers)
        return write(value)

    def _without_secrets(self, record: Any) -> Any:  # noqa: ANN401 - any record
        if isinstance(record, OffsetAndMetadata) and record.metadata:
            return replace(record, metadata=stand_in(record.metadata, self.seal))
        return record


# ---- reading ---------------------------------------------------------------------------------------------------------


def decoded(coded: Json, shared: Mapping[str, object] = MappingProxyType({})) -> Any:  # noqa: ANN401 - of any kind
    """Return the value that was written; `shared` has the objects that `encoded` named.

    Raises:
        RecordingError: this version of the package has no such value.
    """
    return _Decoder(shared).decode(coded)


class _Decoder:
    """Read one value."""

    def __init__(self, shared: Mapping[str, object]) -> None:
        self._shared = shared
        self._numbered: list[object] = []

    def decode(self, coded: Json) -> Any:  # noqa: ANN401 - of any kind
        if isinstance(coded, list):
            raise RecordingError("a list was found where a value was expected")
        if not isinstance(coded, dict):
            return coded
        if "^" in coded:
            return self._numbered[coded["^"]]
        tag = coded.get("!")
        if not isinstance(tag, str):
            raise RecordingError("an object was found where a value was expected")
        if tag == "shared":
            return self._shared_object(coded["="])
        if tag in _ROWS:
            return self._value_of_row(_ROWS[tag], coded["="])
        return self._value_of_class(_class_of(tag), coded)

    def items(self, coded: Json) -> Iterable[Any]:
        """Yield the values of a list or of columns."""
        if isinstance(coded, list):
            return map(self.decode, coded)
        tag = coded["!"]
        if tag in _ROWS:
            return [_ROWS[tag].make(self, one) for one in coded["="]]
        kind, names = _class_of(tag), [name for name in coded if name != "!"]
        columns = [self.items(coded[name]) for name in names]
        return [_made(kind, dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]

    def pairs(self, coded: Json) -> Iterable[tuple[Any, Any]]:
        """Yield the keys of a mapping with their values."""
        keys, values = coded
        # Keys first, in the order of writing: the numbers of objects depend on it.
        return zip(list(self.items(keys)), list(self.items(values)), strict=True)

    def _shared_object(self, name: str) -> object:
        return self._shared[name] if name in self._shared else _of_the_core(name)

    def _value_of_row(self, row: _Row, content: Json) -> object:
        made = row.make(self, content)
        if row.fill is not None:
            self._numbered.append(made)
            row.fill(self, made, content)
        return made

    def _value_of_class(self, kind: type, coded: dict[str, Json]) -> object:
        if issubclass(kind, Enum):
            if coded["="] not in kind.__members__:
                raise RecordingError(f"this version of the package has no {kind.__name__}.{coded['=']}")
            return kind[coded["="]]
        names = [name for name in coded if name != "!"]
        if _fields_of(kind) is not None:
            return _made(kind, {name: self.decode(coded[name]) for name in names})
        made = object.__new__(kind)
        self._numbered.append(made)
        other = set(names).symmetric_difference(_slots_of(kind) or names)
        if other:
            raise RecordingError(
                f"the state of {kind.__name__} differs in this version of the package: {sorted(other)}"
            )
        for name in names:
            object.__setattr__(made, name, self.decode(coded[name]))
        return made


def _made(kind: type, values: Mapping[str, object]) -> object:
    if _fields_of(kind) is None:
        raise RecordingError(f"{kind.__name__} has no fields in this version of the package")
    try:
        return kind(**values)
    except TypeError as error:
        raise RecordingError(f"{kind.__name__} has other fields in this version of the package: {error}") from None


def _regex(_: _Decoder, content: Json) -> re.Pattern[str]:
    text, flags = content
    try:
        return re.compile(text, flags)
    except re.error as error:
        raise RecordingError(f"{text[:100]!r} is not a regular expression: {error}") from None


# ---- kinds of the standard library -----------------------------------------------------------------------------------


class _Row(NamedTuple):
    """How values of one kind are written and created.

    `fill` is set for mutable kinds: `make` returns an empty object, so that its content may refer to it.
    """

    tag: str
    kind: type
    content: Callable[[_Encoder, Any], Json]
    make: Callable[[_Decoder, Json], Any]
    fill: Callable[[_Decoder, Any, Json], None] | None = None


_ROWS: Mapping[str, _Row] = MappingProxyType(
    {
        row.tag: row
        for row in (
            # JSON has no infinity.
            _Row("float", float, lambda _, it: it if isfinite(it) else str(it), lambda _, content: float(content)),
            _Row("uuid", UUID, lambda _, it: it.hex, lambda _, content: UUID(content)),
            _Row("bytes", bytes, lambda encoder, it: stand_in(it, encoder.seal), lambda _, content: content.encode()),
            _Row("regex", re.Pattern, lambda _, it: [it.pattern, it.flags], _regex),
            _Row("tuple", tuple, _Encoder.items, lambda decoder, content: tuple(decoder.items(content))),
            _Row("frozenset", frozenset, _Encoder.items, lambda decoder, content: frozenset(decoder.items(content))),
            _Row(
                "map",
                MappingProxyType,
                _Encoder.pairs,
                lambda decoder, content: MappingProxyType(dict(decoder.pairs(content))),
            ),
            _Row(
                "list",
                list,
                _Encoder.items,
                lambda *_: [],
                lambda decoder, made, content: made.extend(decoder.items(content)),
            ),
            _Row(
                "set",
                set,
                _Encoder.items,
                lambda *_: set(),
                lambda decoder, made, content: made.update(decoder.items(content)),
            ),
            _Row(
                "deque",
                deque,
                lambda encoder, it: [it.maxlen, encoder.items(it)],
                lambda _, content: deque(maxlen=content[0]),
                lambda decoder, made, content: made.extend(decoder.items(content[1])),
            ),
            _Row(
                "dict",
                dict,
                _Encoder.pairs,
                lambda *_: {},
                lambda decoder, made, content: made.update(decoder.pairs(content)),
            ),
        )
    }
)
_ROWS_BY_KIND: Mapping[type, _Row] = MappingProxyType({row.kind: row for row in _ROWS.values()})
