"""Pickle the objects for the tasks on the driver, with errors that name the part that cannot be pickled.

Spark would raise "cannot pickle '_thread.lock' object" within a job, without the place of the lock.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import pickle
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from consumer_membership.errors import ConfigurationError

#: The depth and the number of parts to which the cause is searched; each part is pickled separately.
_DEEPEST, _MOST_PARTS = 8, 2_000

_CREATE_IT_THERE = (
    "create it inside the task, at the first call, and send only the values that it needs: addresses, names, numbers"
)
_A_CLIENT = f"a client belongs to the process that created it; {_CREATE_IT_THERE}"
#: Objects that are often included by mistake, by the module of their class, with the remedy.
_ADVICE = (
    ("pyspark", "a SparkSession and its objects work only on the driver; collect the data that the tasks need"),
    ("py4j", "a JVM object works only on the driver; collect the data that the tasks need"),
    ("consumer_membership.clients", _A_CLIENT),
    ("cimpl", _A_CLIENT),
    ("confluent_kafka", _A_CLIENT),
    ("_io", "an open file or stream works only in its own process; open it inside the task, at the first call"),
)


class _PickledPart(NamedTuple):
    """A part of an object, and its path in the object."""

    path: str
    value: object


def pickled(sink: object, what: str = "sink") -> bytes:
    """Pickle an object for a task, with Spark's own pickler; `what` is its name in errors.

    Functions and classes of the program's main module are pickled by value. Those of other modules are pickled by name,
    so the tasks must be able to import them.

    Raises:
        ConfigurationError: the object cannot be pickled; the text names the variable, attribute or element.
    """
    found = _pickle(sink)
    if isinstance(found, bytes):
        return found
    culprit, reason = _culprit(_PickledPart(what, sink), found)
    where = "it" if culprit.value is sink else culprit.path
    advice = _known(culprit.value) or _CREATE_IT_THERE
    remedy = f"it cannot be sent to the tasks: {where} is a {_kind(culprit.value)} ({reason}); {advice}"
    # Without `from`, because the pickler's stack trace does not help.
    raise ConfigurationError(what, _name(sink), remedy)


def _pickle(value: object) -> bytes | str:
    """Return the pickled bytes, or the text of the error."""
    from pyspark import cloudpickle  # imported here: this package does not import pyspark before it is used

    try:
        dumped = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # it has no types
    except Exception as error:  # noqa: BLE001 - a user's own __reduce__ may raise anything, and the user has to know
        text = str(error).strip().partition("\n")[0]
        is_plain = isinstance(error, TypeError | pickle.PicklingError) and text
        return text if is_plain else f"{type(error).__name__}: {text}".removesuffix(": ")
    return bytes(dumped)


def _culprit(whole: _PickledPart, reason: str) -> tuple[_PickledPart, str]:
    """Return the innermost part that cannot be pickled, and the text of its error."""
    culprit, seen, left = whole, {id(whole.value)}, _MOST_PARTS
    for _ in range(_DEEPEST):
        if _known(culprit.value) is not None:
            break
        for part in _parts(culprit):
            left -= 1
            if id(part.value) in seen or left < 0:
                continue
            seen.add(id(part.value))
            found = _pickle(part.value)
            if isinstance(found, str):
                culprit, reason = part, found
                break
        else:
            break
    return culprit, reason


def _parts(part: _PickledPart) -> Iterator[_PickledPart]:
    """Yield the parts that are pickled with an object and have a readable path."""
    path, value = part
    match value:
        case types.FunctionType():
            yield from _variables(path, value)
        case types.MethodType():
            yield _PickledPart(path, value.__self__)
        case functools.partial():
            yield _PickledPart(path, value.func)
            for key, argument in (*enumerate(value.args), *value.keywords.items()):
                yield _PickledPart(f"the argument {key!r} of {path}", argument)
        case Mapping():
            yield from (_PickledPart(f"{path}[{key!r}]", element) for key, element in value.items())
        case list() | tuple() | set() | frozenset():
            yield from (_PickledPart(f"{path}[{number}]", element) for number, element in enumerate(value))
        case type() | types.ModuleType():
            pass
        case _:
            yield from (_PickledPart(f"{path}.{name}", attribute) for name, attribute in _state(value).items())


def _variables(path: str, function: types.FunctionType) -> Iterator[_PickledPart]:
    """Yield the parts of a function: variables of its closure and its module, and defaults of its parameters."""
    code = function.__code__
    found: dict[str, object] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable without a value
            found[name] = cell.cell_contents
    found |= {name: function.__globals__[name] for name in sorted(_globals_of(code)) if name in function.__globals__}
    yield from (_PickledPart(f"the variable {name!r} of {path}", value) for name, value in found.items())
    positional = code.co_varnames[: code.co_argcount]
    # The defaults are those of the last parameters.
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    yield from (_PickledPart(f"the default of {name!r} of {path}", value) for name, value in defaults.items())


def _globals_of(code: types.CodeType) -> frozenset[str]:
    """Return the global names that this code, and code inside it, uses."""
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    inner = (_globals_of(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(names.union(*inner))


def _state(value: object) -> Mapping[str, object]:
    """Return the attributes that would be pickled; none if the class defines its own pickling."""
    kind = type(value)
    if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return {}
    try:
        state = value.__getstate__()
    except Exception:  # noqa: BLE001 - the user's code; the pickler received the same error
        return {}
    if dataclasses.is_dataclass(value) and isinstance(state, list):  # a frozen one with slots: the values of its fields
        return dict(zip((field.name for field in dataclasses.fields(value)), state, strict=True))
    # With slots: the attributes of the object's dict, and those of its slots.
    shares = state if isinstance(state, tuple) else (state,)
    return {str(name): held for share in shares if isinstance(share, dict) for name, held in share.items()}


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _name(value: object) -> str:
    """Return the name of an object for messages; never its `repr`, which may contain a secret."""
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _known(value: object) -> str | None:
    """Return the remedy for an object that is often included by mistake; None for other objects."""
    module = type(value).__module__
    return next((advice for prefix, advice in _ADVICE if module.startswith(prefix)), None)
