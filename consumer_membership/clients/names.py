"""confluent-kafka's names, taken from the release that is installed, with its consumers on this package's.

A class that is made of confluent-kafka's consumer (`DeserializingConsumer`, `AvroConsumer`, a tracer's) is given here
as the same class with this package's between the two: its methods call ours by `super()`. Everything else is the very
object that confluent-kafka has.
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

#: An attribute of the classes that `install` puts in the place of confluent-kafka's: each stands for its first base.
STAND_IN = "_stands_in"


def consumer_class() -> type[Consumer]:
    """What a program imports as `Consumer` now: with a tracer's methods where one has patched confluent-kafka's."""
    found: object = confluent_kafka.Consumer
    if not isinstance(found, type) or not issubclass(found, LibrdkafkaConsumer):
        return Consumer
    return on_ours(found.__mro__[1] if STAND_IN in vars(found) else found)


def on_ours(cls: type[LibrdkafkaConsumer]) -> type[Consumer]:
    """This class of confluent-kafka's consumer as one of ours; always the same for the same."""
    if issubclass(cls, Consumer):
        return cls
    if cls is LibrdkafkaConsumer:
        return Consumer
    return _made_of(cls)  # type: ignore[arg-type]  # mypy takes the hash of objects for that of classes


@cache
def _made_of(cls: type) -> type[Consumer]:
    body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")} | _wrapped_anew(cls)
    made: type[Consumer] = new_class(cls.__name__, (cls, Consumer), exec_body=lambda names: names.update(body))
    if hasattr(cls, "__parameters__"):  # of a generic class, which `DeserializingConsumer[str, str]` is
        made.__parameters__ = cls.__parameters__  # type: ignore[attr-defined]
    return made


def _wrapped_anew(cls: type) -> dict[str, object]:
    """The methods of ours in the wrappers that a tracer put around those of the C type (ddtrace's, New Relic's).

    As they are they would call the C type's methods, past ours; its `__init__` would even make a second member.
    """
    anew: dict[str, object] = {}
    for base in cls.__mro__:
        if base is LibrdkafkaConsumer:
            break
        for name, wrapper in vars(base).items():
            if name not in anew and _wrapped_by(wrapper) is LibrdkafkaConsumer:
                ours = getattr(Consumer, name)
                # wrapt, which all of them use, keeps it under this name.
                call = getattr(wrapper, "_self_wrapper", None)
                anew[name] = ours if call is None else type(wrapper)(ours, call)
    return anew


def _wrapped_by(wrapper: object) -> type | None:
    """The C type whose method is at the bottom of these wrappers; None: there are no wrappers, or Python is below."""
    if not hasattr(wrapper, "__wrapped__"):
        return None
    while hasattr(wrapper, "__wrapped__"):
        wrapper = wrapper.__wrapped__
    found: type | None = getattr(wrapper, "__objclass__", None)
    return found


def attribute(name: str) -> object:
    """What confluent-kafka's package offers under this name, on our consumer where it is one.

    Raises:
        AttributeError: It offers no such thing.
    """
    if name not in public_names():
        raise AttributeError(f"module {_OURS!r} has no attribute {name!r}")
    return lookup(confluent_kafka, name)


def public_names() -> set[str]:
    """What confluent-kafka's package offers, without the modules that it happens to use."""
    found = {name for name, value in vars(confluent_kafka).items() if name[0] != "_" and _is_theirs(value)}
    return found | set(confluent_kafka.__all__)


def _is_theirs(value: object) -> bool:
    return not isinstance(value, ModuleType) or value.__name__.startswith(f"{_THEIRS}.")


def lookup(module: ModuleType, name: str) -> object:
    """What this module of confluent-kafka has under this name, on our consumer where it is one."""
    found: object = getattr(module, name)
    if isinstance(found, type) and issubclass(found, LibrdkafkaConsumer):
        return on_ours(found)
    if isinstance(found, ModuleType) and _is_theirs(found):
        return import_module(_OURS + found.__name__.removeprefix(_THEIRS))
    return found


class _Namesake(ModuleType):
    """A submodule under this package's name: whatever is asked for is looked up in confluent-kafka's."""

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
    """Makes namesakes."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Namesake(spec.name, import_module(_THEIRS + spec.name.removeprefix(_OURS)))

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: everything is looked up in the original."""


class _NameFinder:
    """Finds `consumer_membership.x` where this package has no x and confluent-kafka has."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - as Python calls it
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_OURS}."):
            return None
        from importlib.util import find_spec  # takes longer than this module

        try:
            found = find_spec(_THEIRS + fullname.removeprefix(_OURS))
        except ModuleNotFoundError:  # its parent is a module of ours, which confluent-kafka has not
            return None
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Loader(), origin=found.origin, is_package=is_package)  # type: ignore[arg-type]


def install_finder() -> None:
    """Have submodules found; once for an interpreter, behind all other finders."""
    if not any(isinstance(one, _NameFinder) for one in sys.meta_path):
        sys.meta_path.append(_NameFinder())
