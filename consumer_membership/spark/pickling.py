"""What is sent to the tasks, pickled on the driver: what cannot be sent is refused there, by name.

Spark would say "cannot pickle '_thread.lock' object" from within a job, and not where that lock is.
"""

from __future__ import annotations

import dis
import functools
import pickle
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from consumer_membership.errors import ConfigurationError

#: How far into an object its culprit is looked for, and among how many parts: each of them is pickled by itself.
_DEEPEST, _MOST_PARTS = 8, 2_000

_MAKE_IT_THERE = (
    "make it inside the task, at the first call, and let only what it is made from travel: addresses, names, numbers"
)
_A_CLIENT = f"a client belongs to the process that made it; {_MAKE_IT_THERE}"
#: What people most often carry along by mistake, by the module of its class, and what to do about it.
_ADVICE = (
    ("pyspark", "a SparkSession and what belongs to it work on the driver only; collect what the tasks need of it"),
    ("py4j", "an object of the JVM works on the driver only; collect what the tasks need of it"),
    ("consumer_membership.clients", _A_CLIENT),
    ("cimpl", _A_CLIENT),
    ("confluent_kafka", _A_CLIENT),
    ("_io", "an open file or stream works in its own process only; open it inside the task, at the first call"),
)


class _PickledPart(NamedTuple):
    """Something inside an object, and how one gets there."""

    path: str
    value: object


def pickled(sink: object, what: str = "sink") -> bytes:
    """The object as bytes for a task, by Spark's own pickler; `what` is what errors call it.

    Functions and classes of a program's main module travel whole, those of other modules by name: the tasks have to be
    able to import them.

    Raises:
        ConfigurationError: it cannot be pickled; the text names the variable, attribute or element that is the reason.
    """
    found = _pickle(sink)
    if isinstance(found, bytes):
        return found
    culprit, reason = _culprit(_PickledPart(what, sink), found)
    where = "it" if culprit.value is sink else culprit.path
    advice = _known(culprit.value) or _MAKE_IT_THERE
    remedy = f"it cannot be sent to the tasks: {where} is a {_kind(culprit.value)} ({reason}); {advice}"
    # Without `from`: where in the pickler it happened helps nobody.
    raise ConfigurationError(what, _name(sink), remedy)


def _pickle(value: object) -> bytes | str:
    """The bytes, or why there are none."""
    from pyspark import cloudpickle  # pyspark is imported by whoever uses it

    try:
        dumped = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # it has no types
    except Exception as error:  # noqa: BLE001 - a user's own __reduce__ may raise anything, and the user has to know
        said = str(error).strip().partition("\n")[0]
        is_plain = isinstance(error, TypeError | pickle.PicklingError) and said
        return said if is_plain else f"{type(error).__name__}: {said}".removesuffix(": ")
    return bytes(dumped)


def _culprit(whole: _PickledPart, reason: str) -> tuple[_PickledPart, str]:
    """The innermost part that cannot be pickled by itself, and what the pickler says about it."""
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
    """What is pickled along with an object, as far as it has a name for people."""
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
    """What a function refers to: the variables around it, its module's, and the defaults of its parameters."""
    code = function.__code__
    found: dict[str, object] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable that has no value yet
            found[name] = cell.cell_contents
    found |= {name: function.__globals__[name] for name in sorted(_globals_of(code)) if name in function.__globals__}
    yield from (_PickledPart(f"the variable {name!r} of {path}", value) for name, value in found.items())
    positional = code.co_varnames[: code.co_argcount]
    # The defaults are those of the last parameters.
    defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    yield from (_PickledPart(f"the default of {name!r} of {path}", value) for name, value in defaults.items())


def _globals_of(code: types.CodeType) -> frozenset[str]:
    """The names that this code, and what is defined in it, looks up in its module."""
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    inner = (_globals_of(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(names.union(*inner))


def _state(value: object) -> Mapping[str, object]:
    """The attributes that would be pickled; none where the class has a pickling of its own, whose words are enough."""
    kind = type(value)
    if kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__:
        return {}
    try:
        state = value.__getstate__()
    except Exception:  # noqa: BLE001 - a user's own code; the pickler had the same from it
        return {}
    # With slots: the attributes of the object's dict, and those of its slots.
    shares = state if isinstance(state, tuple) else (state,)
    return {str(name): held for share in shares if isinstance(share, dict) for name, held in share.items()}


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _name(value: object) -> str:
    """What people call it; never its `repr`, which may hold a secret."""
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _known(value: object) -> str | None:
    """What to do about an object of a kind that people often carry along; None: it is of no such kind."""
    module = type(value).__module__
    return next((advice for prefix, advice in _ADVICE if module.startswith(prefix)), None)
