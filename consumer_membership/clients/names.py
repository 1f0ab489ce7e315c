"""The public names of the installed confluent-kafka release, with this package's consumer as their base class.

A class that derives from confluent-kafka's consumer (`DeserializingConsumer`, `AvroConsumer`, a tracer's class) is
returned as the same class with this package's consumer inserted between the two, so that its `super()` calls reach this
package. All other names are confluent-kafka's own objects.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, new_class

import confluent_kafka

from consumer_membership.clients.consumer import Consumer
from consumer_membership.librdkafka import LibrdkafkaConsumer

_OURS, _THEIRS = "consumer_membership", "confluent_kafka"

#: The attribute of the classes that `install` puts in place of confluent-kafka's; each replaces its first base class.
STAND_IN = "_stands_in"


def consumer_class() -> type[Consumer]:
    """Return the class that programs import as `Consumer`, with the methods of a tracer that patched the original."""
    found: object = confluent_kafka.Consumer
    if not isinstance(found, type) or not issubclass(found, LibrdkafkaConsumer):
        return Consumer
    return on_ours(found.__mro__[1] if STAND_IN in vars(found) else found)


def on_ours(cls: type[LibrdkafkaConsumer]) -> type[Consumer]:
    """Return this class of confluent-kafka's consumer, derived from this package's consumer; cached per class."""
    if issubclass(cls, Consumer):
        return cls
    if cls is LibrdkafkaConsumer:
        return Consumer
    return _made_of(cls)  # type: ignore[arg-type]  # mypy takes the hash of objects for that of classes


@cache
def _made_of(cls: type) -> type[Consumer]:
    body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")} | _rewrapped(cls)
    made: type[Consumer] = new_class(cls.__name__, (cls, Consumer), exec_body=lambda names: names.update(body))
    if hasattr(cls, "__parameters__"):  # of a generic class, such as `DeserializingConsumer[str, str]`
        made.__parameters__ = cls.__parameters__  # type: ignore[attr-defined]
    return made


def _rewrapped(cls: type) -> dict[str, object]:
    """Return this package's methods inside the wrappers that a tracer put around the C type's methods.

    ddtrace and New Relic do so.

    Unchanged wrappers would call the C type's methods instead of this package's; its `__init__` would even create a
    second member.
    """
    rewrapped: dict[str, object] = {}
    for base in cls.__mro__:
        if base is LibrdkafkaConsumer:
            break
        for name, wrapper in vars(base).items():
            if name not in rewrapped and _wrapped_by(wrapper) is LibrdkafkaConsumer:
                ours = getattr(Consumer, name)
                # wrapt, which all of these tracers use, stores the wrapper under this name.
                call = getattr(wrapper, "_self_wrapper", None)
                rewrapped[name] = ours if call is None else type(wrapper)(ours, call)
    return rewrapped


def _wrapped_by(wrapper: object) -> type | None:
    """Return the C type whose method is inside these wrappers, or None (no wrappers, or a Python function inside)."""
    if not hasattr(wrapper, "__wrapped__"):
        return None
    while hasattr(wrapper, "__wrapped__"):
        wrapper = wrapper.__wrapped__
    found: type | None = getattr(wrapper, "__objclass__", None)
    return found


def attribute(name: str) -> object:
    """Return confluent-kafka's object with this name, derived from this package's consumer if it is a consumer class.

    Raises:
        AttributeError: confluent-kafka has no such name.
    """
    if name not in public_names():
        raise AttributeError(f"module {_OURS!r} has no attribute {name!r}")
    return lookup(confluent_kafka, name)


def public_names() -> set[str]:
    """Return confluent-kafka's public names, without the modules that it imports."""
    found = {name for name, value in vars(confluent_kafka).items() if name[0] != "_" and _is_theirs(value)}
    return found | set(confluent_kafka.__all__)


def _is_theirs(value: object) -> bool:
    return not isinstance(value, ModuleType) or value.__name__.startswith(f"{_THEIRS}.")


def lookup(module: ModuleType, name: str) -> object:
    """Return this name of a module of confluent-kafka; consumer classes are derived from this package's consumer."""
    found: object = getattr(module, name)
    if isinstance(found, type) and issubclass(found, LibrdkafkaConsumer):
        return on_ours(found)
    if isinstance(found, ModuleType) and _is_theirs(found):
        return import_module(_OURS + found.__name__.removeprefix(_THEIRS))
    return found


class _Namesake(ModuleType):
    """A submodule with this package's name that looks up each attribute in confluent-kafka's submodule."""

    def __init__(self, name: str, original: ModuleType) -> None:
        super().__init__(name, original.__doc__)
        self.__original = original
        if hasattr(original, "__all__"):
            self.__all__ = original.__all__

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return lookup(self.__original, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.__original)})


class _Loader:
    """Create `_Namesake` modules."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Namesake(spec.name, import_module(_THEIRS + spec.name.removeprefix(_OURS)))

    def exec_module(self, module: ModuleType) -> None:
        """Execute nothing: each attribute is looked up in the original module."""


class _NameFinder:
    """Find `consumer_membership.x` if this package has no module x and confluent-kafka has one."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - as Python calls it
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_OURS}."):
            return None
        from importlib.util import find_spec  # its import takes longer than the import of this module

        try:
            found = find_spec(_THEIRS + fullname.removeprefix(_OURS))
        except ModuleNotFoundError:  # the parent is a module of this package that confluent-kafka does not have
            return None
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Loader(), origin=found.origin, is_package=is_package)  # type: ignore[arg-type]


def install_finder() -> None:
    """Make confluent-kafka's submodules importable under this package's name; once per interpreter, last."""
    if not any(isinstance(one, _NameFinder) for one in sys.meta_path):
        sys.meta_path.append(_NameFinder())
