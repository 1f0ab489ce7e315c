"""The classes that confluent-kafka derives from its `AIOConsumer`, derived from this package's `AIOConsumer`."""

from __future__ import annotations

from functools import cache
from types import FunctionType, new_class
from typing import Any

from confluent_kafka.aio import AIOConsumer as TheirConsumer

from consumer_membership.aio.consumer import AIOConsumer


def on_ours(found: object) -> object:
    """Return the same class derived from this package's consumer (cached per class); return other objects unchanged."""
    is_theirs = isinstance(found, type) and issubclass(found, TheirConsumer) and not issubclass(found, AIOConsumer)
    return _made_of(found) if is_theirs else found


@cache
def _made_of(cls: type[Any]) -> type[Any]:
    if cls is TheirConsumer:
        return AIOConsumer
    body: dict[str, object] = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    if isinstance(init := vars(cls).get("__init__"), FunctionType):
        body["__init__"] = _calling_ours(init)
    made: type[Any] = new_class(cls.__name__, (cls, AIOConsumer), exec_body=lambda names: names.update(body))
    if hasattr(cls, "__parameters__"):
        made.__parameters__ = cls.__parameters__
    return made


def _calling_ours(init: FunctionType) -> FunctionType:
    """Return the same function with `AIOConsumer` bound to this package's class.

    Such a function calls `AIOConsumer.__init__(self, ...)` by name, so `super()` cannot redirect the call.
    """
    names = {**init.__globals__, "AIOConsumer": AIOConsumer}
    return FunctionType(init.__code__, names, init.__name__, init.__defaults__, init.__closure__)
