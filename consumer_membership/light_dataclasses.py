"""`dataclass` and `replace`: equal to the standard library's, at a tenth of the cost for classes with slots.

The standard library writes up to eight functions for a class and has them compiled, 0.4 ms, and a process that imports
this package creates more than a hundred such classes before its first consumer. Here nothing is compiled for a class:
common functions are shared, comparisons are one call into C, and `__init__` is a copy of one that is compiled for each
number of fields. Frozen objects are also created faster. For `fields`, `asdict`, `copy`, `pickle` and `inspect` a class
looks as usual.

The standard library creates classes that need more than fields with defaults and factories: bases, `__post_init__`,
`ClassVar`, no slots. For type checkers, every class is one of the standard library's.

Two replacements were measured in whole copies of the package, in turns (CPython 3.11, the smallest CPU time of 12 runs
of `import consumer_membership` after confluent-kafka's own imports, and the median resident memory of the guardian of a
member with TLS and SASL). They were allowed to cost at most 10 ms and 1 MiB more:

| the 147 classes are | import | guardian |
|---|---|---|
| light dataclasses (this module) | 60 ms | 20.1 MiB |
| the standard library's | 139 ms | 20.1 MiB |
| `msgspec.Struct`; the public ones, with their fields, the standard library's | 71 ms | 21.5 MiB |
| `msgspec.Struct`, all of them | 60 ms | 21.5 MiB |

Structs for all classes are not possible: the standard library's `fields`, `asdict` and `replace` must work on the
public classes. Also, msgspec would be a compiled dependency of every consumer, and the guardian, which imports the
standard library and a few modules of this package, would have to find it without `site`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def dataclass(**options: bool) -> Callable[[type], type]:
        """A decorator; the options are those of `dataclasses.dataclass`."""
        standard = dataclasses.dataclass(**options)
        is_known = options.keys() <= {"slots", "frozen", "kw_only"}
        return (lambda cls: _light(cls, standard, **options)) if is_known else standard

    def replace(one: object, **changes: object) -> object:
        """As `dataclasses.replace`; faster for a light class."""
        return getattr(type(one), "__replace__", dataclasses.replace)(one, **changes)


#: The beginnings of annotations that the standard library does not treat as fields.
_NO_FIELDS = ("ClassVar", "typing.ClassVar", "InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")
#: Names that the standard library calls, or leaves unchanged, if a class defines them.
_HOOKS = frozenset({"__init__", "__post_init__", "__eq__", "__hash__", "__getstate__", "__setstate__"})


def _is_simple(cls: type, annotations: Mapping[str, object]) -> bool:
    return (
        cls.__bases__ == (object,)
        and _HOOKS.isdisjoint(cls.__dict__)
        and not any(str(annotation).startswith(_NO_FIELDS) for annotation in annotations.values())
        and all(_is_simple_field(cls.__dict__.get(name)) for name in annotations)
    )


def _is_simple_field(default: object) -> bool:
    if not isinstance(default, Field):
        return True
    return default.init and default.compare and default.hash is None and default.kw_only is MISSING


def _light(
    cls: type, standard: Callable[[type], type], *, slots: bool = False, frozen: bool = False, kw_only: bool = False
) -> type:
    """Create the class again, with slots and methods; its own definitions stay."""
    annotations = inspect.get_annotations(cls)
    if not slots or not _is_simple(cls, annotations):
        return standard(cls)
    own = {name: value for name, value in cls.__dict__.items() if name not in {"__dict__", "__weakref__"}}
    defaults = {name: own.pop(name) for name in annotations if name in own}

    def twin() -> type:
        described = {"__module__": cls.__module__, "__annotations__": annotations, **defaults}
        return standard(type(cls.__name__, (), described))

    names = tuple(annotations)
    made: dict[str, Any] = {
        "__slots__": names,
        "__qualname__": cls.__qualname__,
        "__match_args__": () if kw_only else names,
        "__dataclass_fields__": _Described(twin),
        "__dataclass_params__": _Described(twin),
    }
    methods = {**(_FROZEN if frozen else _MUTABLE), **_comparison(names, is_frozen=frozen)}
    light = type(cls.__name__, (), {**methods, **own, **made})
    type.__setattr__(light, "__init__", _init_of(light, annotations, defaults, is_kw_only=kw_only))
    return light


# ---- making objects -------------------------------------------------------------------------------------------------


def _init_of(
    cls: type, annotations: Mapping[str, object], defaults: Mapping[str, object], *, is_kw_only: bool
) -> FunctionType:
    """`__init__`, which sets each field by its slot: the only way for a frozen class.

    A copy of the code that all classes with the same number of fields share, with this class's names and values.
    """
    names = ("self", *annotations)
    qualname = f"{cls.__qualname__}.__init__"
    code = _template(len(annotations)).replace(
        co_argcount=1 if is_kw_only else len(names),
        co_kwonlyargcount=len(annotations) if is_kw_only else 0,
        co_varnames=names,
        co_qualname=qualname,
    )
    known: dict[str, object] = {"__name__": cls.__module__}
    given: dict[str, object] = {}
    for place, name in enumerate(annotations):
        setter, default = getattr(cls, name).__set__, defaults.get(name, MISSING)
        if isinstance(default, Field):
            if default.default_factory is not MISSING:
                setter, default = _set_or_make(setter, default.default_factory), _FACTORY
            else:
                default = default.default
        known[f"set_{place}"] = setter
        if default is not MISSING:
            given[name] = default
    made = FunctionType(code, known, "__init__", None if is_kw_only else tuple(given.values()))
    made.__kwdefaults__ = given if is_kw_only else None
    made.__qualname__ = qualname
    made.__annotations__ = {**annotations, "return": None}
    return made


@cache
def _template(count: int) -> CodeType:
    """The code of an `__init__` with so many fields; their names are their places."""
    parameters = "".join(f", _{place}" for place in range(count))
    body = "".join(f"\n    set_{place}(self, _{place})" for place in range(count)) or " pass"
    made: dict[str, Any] = {}
    exec(f"def __init__(self{parameters}):{body}", made)  # noqa: S102 - of numbers, and nobody's text
    code: CodeType = made["__init__"].__code__
    return code


class _Factory:
    """The default in a signature of a field with a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _set_or_make(setter: Callable[[object, object], None], factory: Callable[[], object]) -> Callable[..., None]:
    def set_or_make(one: object, value: object) -> None:
        setter(one, factory() if value is _FACTORY else value)

    return set_or_make


# ---- inspection ----------------------------------------------------------------------------------------------------


class _Described:
    """The attributes that the standard library keeps in its classes for `fields`, from a twin class."""

    __slots__ = ("_name", "_twin")

    _name: str

    def __init__(self, twin: Callable[[], type]) -> None:
        self._twin = cache(twin)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, one: object | None, owner: type) -> object:
        found: object = getattr(self._twin(), self._name)
        return found


# ---- methods --------------------------------------------------------------------------------------------------------


def _comparison(names: tuple[str, ...], *, is_frozen: bool) -> dict[str, object]:
    """`__eq__` by all fields, as tuples of them, and `__hash__` where they cannot change."""
    values: Callable[[object], object]
    if len(names) > 1:
        values = attrgetter(*names)
    else:  # attrgetter gives no tuple

        def values(one: object) -> object:
            return tuple(getattr(one, name) for name in names)

    def __eq__(one: object, other: object) -> bool:  # noqa: N807
        return values(one) == values(other) if other.__class__ is one.__class__ else NotImplemented

    def __hash__(one: object) -> int:  # noqa: N807
        return hash(values(one))

    return {"__eq__": __eq__, "__hash__": __hash__ if is_frozen else None}


class _Mutable:
    """The methods that all light classes share; they are copied, not inherited."""

    __slots__: tuple[str, ...] = ()

    @recursive_repr()
    def __repr__(self) -> str:
        described = dataclasses.fields(self)  # type: ignore[arg-type]  # it is a dataclass that has this method
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in described if field.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def __replace__(self, /, **changes: object) -> object:
        return self.__class__(**({name: getattr(self, name) for name in self.__slots__} | changes))

    def __getstate__(self) -> list[object]:
        return [getattr(self, name) for name in self.__slots__]

    def __setstate__(self, state: list[object]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            object.__setattr__(self, name, value)


class _Frozen:
    """The additional methods of frozen classes."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _methods(*classes: type) -> Mapping[str, object]:
    return MappingProxyType(
        {name: value for cls in classes for name, value in cls.__dict__.items() if inspect.isfunction(value)}
    )


_MUTABLE, _FROZEN = _methods(_Mutable), _methods(_Mutable, _Frozen)
