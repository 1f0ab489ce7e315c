"""Values of the core as JSON and back: events, effects, settings, views, and the core's whole state.

A value that JSON has is itself; any other is an object whose key "!" says what it is. Classes go by their module under
`consumer_membership` and their name ("membership.events.Polled"), and nothing else is ever made when a file is read:
classes of the core, and a few of the standard library's. The state is a graph: an object that is met again is "^" with
the number ("#") of the first place.

What belongs to the application is not written: the metadata of commits, and the bytes of assignors. In their place
stands a keyed hash, equal where they are equal; the key stays in the process.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from math import isfinite
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from consumer_membership.errors import MembershipError
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.member import GroupMember
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.chance import Chance
from consumer_membership.types import OffsetAndMetadata

Json: TypeAlias = Any

#: The names of classes that were written before.
_NAMES: dict[type, str] = {}
#: What JSON has itself.
_PLAIN: Final = frozenset({type(None), str, int, bool})

_PACKAGE: Final = "consumer_membership."
_CORE: Final = f"{_PACKAGE}membership."
#: Where classes may come from.
_KNOWN = re.compile(r"(types|(assignors|membership)(\.[a-z_]+)+)\.[A-Za-z_]+", re.ASCII)


class RecordingError(MembershipError):
    """A file that is no recording, or one that this version of the package cannot read; the text says which."""


def stand_in(secret: str | bytes, seal: bytes) -> str:
    """What is written in the place of something that is the application's own."""
    raw = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    return f"{len(secret)}:{hashlib.blake2b(raw, digest_size=8, key=seal).hexdigest()}"


def _name_of(kind: type) -> str:
    name = _NAMES.get(kind)
    if name is None:
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix(_PACKAGE)
        if not _KNOWN.fullmatch(name):
            raise RecordingError(f"a {kind.__module__}.{kind.__qualname__} cannot be recorded")
        _NAMES[kind] = name
    return name


@cache
def _class_of(name: str) -> type:
    if not _KNOWN.fullmatch(name):
        raise RecordingError(f"{name[:100]!r} is nothing that a recording may contain")
    module, _, plain = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(_PACKAGE + module), plain)
    except (ImportError, AttributeError):
        raise RecordingError(f"this version of the package has no {name}") from None
    if not isinstance(found, type) or found.__module__ != _PACKAGE + module:
        raise RecordingError(f"{name} is nothing that a recording may contain")
    return found


def _fields_of(kind: type) -> tuple[str, ...] | None:
    """The names of an object's slots; None: it has a dict."""
    slots = kind.__dict__.get("__slots__")
    return None if slots is None else tuple(slots)


def _is_record(kind: type) -> bool:
    """Whether objects of it are made by naming each field; a mutable one is a part of the state."""
    return "__dataclass_fields__" in kind.__dict__ and kind.__hash__ is not None


@cache
def constants() -> Mapping[int, str]:
    """The tables of the core's modules, which the state refers to and does not own."""
    found: dict[int, str] = {}
    for module_name, module in tuple(sys.modules.items()):
        if module_name.startswith(_CORE):
            for name, value in vars(module).items():
                if isinstance(value, MappingProxyType):
                    found.setdefault(id(value), f"{module_name.removeprefix(_PACKAGE)}.{name}")
    return found


class Encoder:
    """Values into JSON. Objects with an identity are written as often as they are met."""

    def __init__(self, seal: bytes) -> None:
        self._seal = seal

    def encode(self, value: object) -> Json:
        """This value as JSON has it."""
        kind: type[Any] = type(value)
        if kind in _PLAIN:
            return value
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple(self, value)
        if isinstance(value, Enum):
            return {"!": _name_of(kind), "=": value.name}
        if isinstance(value, str | int | float):  # of a class of the application's own
            return self.encode(next(plain(value) for plain in (str, int, float) if isinstance(value, plain)))
        if isinstance(value, tuple):  # a named one
            return {"!": _name_of(kind), "=": [self.encode(one) for one in value]}
        if _is_record(kind):
            return self._record(value, kind)
        return self._once(value, lambda: self._object(value, kind))

    # ---- kinds of values ----

    def _float(self, value: object) -> Json:
        return value if isfinite(cast("float", value)) else {"!": "float", "=": str(value)}

    def _unwritable(self, value: object) -> Json:
        raise RecordingError(f"{value!r} cannot be recorded")

    def _proxy(self, value: object) -> Json:
        name = constants().get(id(value))
        if name is not None:
            return {"!": "constant", "=": name}
        return self._pairs("map", cast("Mapping[object, object]", value))

    def _items(self, values: Iterable[object]) -> list[Json]:
        return [self.encode(one) for one in values]

    def _tuple(self, value: object) -> Json:
        return {"!": "tuple", "=": self._items(cast("tuple[object, ...]", value))}

    def _frozenset(self, value: object) -> Json:
        # The order of a set of texts is another one in each process.
        return {"!": "frozenset", "=": sorted(self._items(cast("frozenset[object]", value)), key=json.dumps)}

    def _set(self, value: object) -> Json:
        items = sorted(self._items(cast("set[object]", value)), key=json.dumps)
        return self._once(value, lambda: {"!": "set", "=": items})

    def _list(self, value: object) -> Json:
        return self._once(value, lambda: {"!": "list", "=": self._items(cast("list[object]", value))})

    def _deque(self, value: object) -> Json:
        held = cast("deque[object]", value)
        return self._once(value, lambda: {"!": "deque", "most": held.maxlen, "=": self._items(held)})

    def _dict(self, value: object) -> Json:
        return self._once(value, lambda: self._pairs("dict", cast("dict[object, object]", value)))

    def _pairs(self, tag: str, value: Mapping[Any, object]) -> Json:
        return {"!": tag, "=": [[self.encode(key), self.encode(one)] for key, one in value.items()]}

    def _uuid(self, value: object) -> Json:
        return {"!": "uuid", "=": cast("UUID", value).hex}

    def _bytes(self, value: object) -> Json:
        return {"!": "bytes", "=": stand_in(cast("bytes", value), self._seal)}

    def _regex(self, value: object) -> Json:
        pattern = cast("re.Pattern[str]", value)
        return {"!": "regex", "=": pattern.pattern, "flags": pattern.flags}

    def _offset(self, value: object) -> Json:
        one = cast("OffsetAndMetadata", value)
        text = stand_in(one.metadata, self._seal) if one.metadata else ""
        return {
            "!": "types.OffsetAndMetadata",
            "offset": one.offset,
            "leader_epoch": one.leader_epoch,
            "metadata": text,
        }

    def _record(self, value: object, kind: type) -> Json:
        names = _fields_of(kind)
        return {"!": _name_of(kind), **{name: self.encode(getattr(value, name)) for name in names or ()}}

    def _object(self, value: object, kind: type) -> Json:
        known_as, slots = _name_of(kind), _fields_of(kind)
        fields = vars(value) if slots is None else {name: getattr(value, name) for name in slots}
        return {"!": known_as, **{name: self.encode(one) for name, one in fields.items()}}

    def _once(self, value: object, encode: Callable[[], dict[str, Json]]) -> Json:  # noqa: ARG002 - for states
        """An object with an identity."""
        return encode()


_SIMPLE: Mapping[type, Callable[[Encoder, object], Json]] = MappingProxyType(
    {
        tuple: Encoder._tuple,  # noqa: SLF001 - of this module, and so are the others
        frozenset: Encoder._frozenset,  # noqa: SLF001
        set: Encoder._set,  # noqa: SLF001
        list: Encoder._list,  # noqa: SLF001
        deque: Encoder._deque,  # noqa: SLF001
        dict: Encoder._dict,  # noqa: SLF001
        UUID: Encoder._uuid,  # noqa: SLF001
        bytes: Encoder._bytes,  # noqa: SLF001
        re.Pattern: Encoder._regex,  # noqa: SLF001
        float: Encoder._float,  # noqa: SLF001
        MappingProxyType: Encoder._proxy,  # noqa: SLF001
        OffsetAndMetadata: Encoder._offset,  # noqa: SLF001
        MethodType: Encoder._unwritable,  # noqa: SLF001
        FunctionType: Encoder._unwritable,  # noqa: SLF001
    }
)


class Decoder:
    """JSON into values; `externals` are what the encoder's were, by their names."""

    def __init__(self, externals: Mapping[str, object] = MappingProxyType({})) -> None:
        self._externals = externals
        self._made: dict[int, object] = {}

    def decode(self, told: Json) -> Any:  # noqa: ANN401 - the caller knows what it wrote
        """The value.

        Raises:
            RecordingError: this version of the package has no such value.
        """
        if not isinstance(told, dict):
            if isinstance(told, list):
                raise RecordingError("a list stands where a value was expected")
            return told
        if "^" in told:
            return self._made[told["^"]]
        tag, number = told.get("!"), told.get("#")
        if not isinstance(tag, str):
            raise RecordingError("an object stands where a value was expected")
        make = _MADE_OF.get(tag)
        if make is not None:
            return make(self, told, number)
        return self._of_the_core(_class_of(tag), told, number)

    def _of_the_core(self, kind: type, told: dict[str, Json], number: int | None) -> object:
        if issubclass(kind, Enum):
            if told["="] not in kind.__members__:
                raise RecordingError(f"this version of the package has no {kind.__name__}.{told['=']}")
            return kind[told["="]]
        if issubclass(kind, tuple):
            return kind(*map(self.decode, told["="]))
        names = {name: one for name, one in told.items() if name not in {"!", "#"}}
        if number is None:
            try:
                return kind(**{name: self.decode(one) for name, one in names.items()})
            except TypeError as error:
                raise RecordingError(
                    f"{kind.__name__} has other fields in this version of the package: {error}"
                ) from None
        made = self._register(number, object.__new__(kind))
        slots = _fields_of(kind)
        if slots is not None and names.keys() != set(slots):
            other = ", ".join(sorted(names.keys() ^ set(slots)))
            raise RecordingError(f"the state of {kind.__name__} is another one in this version of the package: {other}")
        for name, one in names.items():
            object.__setattr__(made, name, self.decode(one))
        return made

    def _register(self, number: int | None, made: object) -> Any:  # noqa: ANN401 - as it was made
        if number is not None:
            self._made[number] = made
        return made

    # ---- kinds of values ----

    def _items(self, told: dict[str, Json]) -> Iterable[object]:
        return map(self.decode, told["="])

    def _list(self, told: dict[str, Json], number: int | None) -> object:
        made = self._register(number, [])
        made.extend(self._items(told))
        return made

    def _set(self, told: dict[str, Json], number: int | None) -> object:
        return self._register(number, set(self._items(told)))

    def _deque(self, told: dict[str, Json], number: int | None) -> object:
        made = self._register(number, deque(maxlen=told["most"]))
        made.extend(self._items(told))
        return made

    def _dict(self, told: dict[str, Json], number: int | None) -> object:
        made = self._register(number, {})
        made.update((self.decode(key), self.decode(one)) for key, one in told["="])
        return made

    def _constant(self, told: dict[str, Json], _: int | None) -> object:
        module, _, name = told["="].rpartition(".")
        if not _KNOWN.fullmatch(told["="]):
            raise RecordingError(f"{told['=']!r} is nothing that a recording may contain")
        try:
            found = getattr(importlib.import_module(_PACKAGE + module), name)
        except (ImportError, AttributeError):
            raise RecordingError(f"this version of the package has no {told['=']}") from None
        if not isinstance(found, MappingProxyType):
            raise RecordingError(f"{told['=']} is nothing that a recording may contain")
        return found

    def _external(self, told: dict[str, Json], _: int | None) -> object:
        try:
            return self._externals[told["="]]
        except KeyError:
            raise RecordingError(f"the recording refers to {told['=']!r}, which it does not have") from None


_MADE_OF: Mapping[str, Callable[[Decoder, dict[str, Json], int | None], object]] = MappingProxyType(
    {
        "float": lambda _, told, __: float(told["="]),
        "tuple": lambda decoder, told, _: tuple(map(decoder.decode, told["="])),
        "frozenset": lambda decoder, told, _: frozenset(map(decoder.decode, told["="])),
        "map": lambda decoder, told, _: MappingProxyType(
            {decoder.decode(key): decoder.decode(one) for key, one in told["="]}
        ),
        "uuid": lambda _, told, __: UUID(told["="]),
        "bytes": lambda _, told, __: told["="].encode(),
        "regex": lambda _, told, __: re.compile(told["="], told["flags"]),
        "list": Decoder._list,  # noqa: SLF001 - of this module, and so are the others
        "set": Decoder._set,  # noqa: SLF001
        "deque": Decoder._deque,  # noqa: SLF001
        "dict": Decoder._dict,  # noqa: SLF001
        "constant": Decoder._constant,  # noqa: SLF001
        "external": Decoder._external,  # noqa: SLF001
    }
)


# ---- the whole state ------------------------------------------------------------------------------------------------


def externals_of(settings: MemberSettings, protocols: ProtocolSettings) -> dict[str, object]:
    """What the state refers to by name; whoever replays makes these from the head of the file."""
    named: dict[str, object] = {"settings": settings, "protocols": protocols, "classic": protocols.classic}
    named |= {f"assignor {one.name}": one for one in protocols.classic.assignors}
    return named


class _StateEncoder(Encoder):
    """A state: each object once, what its reader has already by name, and the two sources of chance."""

    def __init__(self, seal: bytes, externals: Mapping[int, str]) -> None:
        super().__init__(seal)
        self._externals = externals
        self._seen: dict[int, int] = {}
        #: So that no other object gets the id of one that was seen.
        self._kept: list[object] = []

    def encode(self, value: object) -> Json:
        external = self._externals.get(id(value))
        if external is not None:
            return {"!": "external", "=": external}
        if isinstance(value, MethodType) and isinstance(value.__self__, Chance):
            return {"!": "external", "=": value.__name__}
        return super().encode(value)

    def _once(self, value: object, encode: Callable[[], dict[str, Json]]) -> Json:
        number = self._seen.get(id(value))
        if number is not None:
            return {"^": number}
        number = self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return {"#": number, **encode()}


def encoded_state(member: GroupMember, settings: MemberSettings, protocols: ProtocolSettings, seal: bytes) -> Json:
    """The member's whole state: a replay can begin with it (`decoded_state`)."""
    externals = {id(one): name for name, one in externals_of(settings, protocols).items()}
    return _StateEncoder(seal, externals).encode(member)


def decoded_state(told: Json, externals: Mapping[str, object]) -> GroupMember:
    """A member in this state; `externals` has `jitter` and `new_member_id`, too."""
    member = Decoder(externals).decode(told)
    if not isinstance(member, GroupMember):
        raise RecordingError("the checkpoint is not the state of a member")
    return member
