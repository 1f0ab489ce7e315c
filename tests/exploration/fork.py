"""Copies and keys of the parts of a state: plain objects, without a word about what they are.

`copy.deepcopy` takes about a millisecond for a member. Here values that cannot change are shared, and how a class is
copied is worked out once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any, TypeVar, cast
from uuid import UUID

T = TypeVar("T")
_Copier = Callable[[Any, dict[int, Any]], Any]

#: What never changes, and so is shared; a tuple here holds such values only.
_ATOMS: frozenset[type] = frozenset(
    {int, float, str, bytes, bool, type(None), frozenset, tuple, UUID, FunctionType, BuiltinFunctionType, type}
)
#: What is another part's as well, or decides nothing: left out of keys. Settings follow from the process's name.
_NOT_IN_KEYS = frozenset({"settings", "_settings", "_ownership", "_commits", "_jitter", "rules", "topics"})


def fork(root: T) -> T:
    """A copy of this object whose changes do not touch it; what refers to one object refers to one in the copy."""
    return cast("T", _copy(root, {}))


def _copy(value: Any, seen: dict[int, Any]) -> Any:  # noqa: ANN401
    copier = _COPIERS.get(type(value))
    if copier is None:
        copier = _COPIERS[type(value)] = _copier_of(type(value))
    return copier(value, seen)


def _share(value: Any, seen: dict[int, Any]) -> Any:  # noqa: ANN401, ARG001
    return value


def _copy_dict(value: dict[Any, Any], seen: dict[int, Any]) -> dict[Any, Any]:
    known = seen.get(id(value))
    if known is None:
        known = seen[id(value)] = {key: _copy(one, seen) for key, one in value.items()}
    return cast("dict[Any, Any]", known)


def _copy_sequence(value: Any, seen: dict[int, Any]) -> Any:  # noqa: ANN401
    return type(value)([_copy(one, seen) for one in value])


def _copy_deque(value: deque[Any], seen: dict[int, Any]) -> deque[Any]:
    return deque([_copy(one, seen) for one in value], value.maxlen)


def _copy_method(value: MethodType, seen: dict[int, Any]) -> MethodType:
    return MethodType(value.__func__, _copy(value.__self__, seen))


_COPIERS: dict[type, _Copier] = {
    **dict.fromkeys(_ATOMS, _share),
    MappingProxyType: _share,
    dict: _copy_dict,
    list: _copy_sequence,
    set: _copy_sequence,
    deque: _copy_deque,
    MethodType: _copy_method,
}


def _is_value(cls: type) -> bool:
    """Whether objects of this class never change."""
    if issubclass(cls, Enum | tuple):
        return True
    return is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _copier_of(cls: type) -> _Copier:
    if _is_value(cls):
        return _share
    slots = _slots_of(cls)
    make = object.__new__

    def copier(value: Any, seen: dict[int, Any]) -> Any:  # noqa: ANN401
        known = seen.get(id(value))
        if known is not None:
            return known
        new = seen[id(value)] = make(cls)
        for name in slots:
            setattr(new, name, _copy(getattr(value, name), seen))
        mine = getattr(value, "__dict__", None)
        if mine:
            its = new.__dict__
            for name, one in mine.items():
                its[name] = one if type(one) in _ATOMS else _copy(one, seen)
        return new

    return copier


def _slots_of(cls: type) -> tuple[str, ...]:
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


# ---- keys ----


def key_of(value: Any) -> Hashable:  # noqa: ANN401, PLR0911 - one return for each kind of value
    """A hashable value, equal for equal contents; objects that several others refer to are told for each."""
    kind = type(value)
    if kind in _ATOMS:
        if kind is FunctionType or kind is BuiltinFunctionType:
            return value.__qualname__
        return tuple(map(key_of, value)) if kind is tuple else value
    if kind is dict or kind is MappingProxyType:
        return frozenset((key, key_of(one)) for key, one in value.items())
    if kind is list or kind is deque:
        return tuple(map(key_of, value))
    if kind is set:
        return frozenset(value)
    if kind is MethodType:
        return value.__func__.__qualname__
    if isinstance(value, Enum):
        return value.name
    teller = _TELLERS.get(kind)
    if teller is None:
        teller = _TELLERS[kind] = _names_of(kind)
    names, is_tuple = teller
    if is_tuple:
        return (kind.__name__, *map(key_of, value))
    told = [key_of(getattr(value, name)) for name in names]
    for name, one in getattr(value, "__dict__", {}).items():
        if name not in _NOT_IN_KEYS:
            told.append(key_of(one))
    return (kind.__name__, *told)


_TELLERS: dict[type, tuple[tuple[str, ...], bool]] = {}


def _names_of(cls: type) -> tuple[tuple[str, ...], bool]:
    """The names of a class's fields beside those in `__dict__`; whether it is a tuple."""
    slots = _slots_of(cls)
    if is_dataclass(cls) and not slots:
        return (), False
    names = tuple(field.name for field in fields(cls)) if is_dataclass(cls) else slots
    return tuple(name for name in names if name not in _NOT_IN_KEYS), issubclass(cls, tuple)
