"""Which kind of callable a handler is, and how it is called.

A handler is any callable with one or two positional parameters: the record (or the list of records of a batch), and
the `HandlerContext`. The second argument is passed if the handler requires a second parameter, or names one `context`.
All other callables raise `ConfigurationError` when the processor is created, because each of them would fail, or seem
to succeed, only when the first record arrives.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import pickle
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import CoroutineType, MethodType

from tenacity import BaseRetrying

from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.processing.retries import policy_of_decorated

#: The name of a second parameter with a default value that receives the context.
_CONTEXT = "context"


class HandlerKind(Enum):
    """How a handler runs."""

    FUNCTION = "function"
    """It is called on a worker thread, or in a worker process."""
    COROUTINE = "coroutine"
    """It is awaited on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHandler:
    """A checked handler.

    Attributes:
        given: the argument of the processor.
        call: what to call; if the handler was decorated with `tenacity.retry`, the function inside, because the
            decorator would sleep in the worker.
        kind: whether it is called or awaited.
        takes_context: whether it receives the context as second argument.
        name: its name in messages.
        retrying: the policy of its `tenacity.retry` decorator.
    """

    given: object
    call: Callable[..., object]
    kind: HandlerKind
    takes_context: bool
    name: str
    retrying: BaseRetrying | None = None

    def run(self, given: object, context: object) -> object:
        """Call a handler of the kind FUNCTION with a record or a list of records, and return its result.

        Raises:
            ConfigurationError: the function returned an awaitable, which is never awaited.
            Exception: the handler's own.
        """
        return self.checked(self.call(given, context) if self.takes_context else self.call(given))

    def checked(self, result: object) -> object:
        """Return the result of a handler of the kind FUNCTION.

        Raises:
            ConfigurationError: it is an awaitable, which is never awaited.
        """
        if result is not None and (inspect.isawaitable(result) or inspect.isasyncgen(result)):
            if inspect.iscoroutine(result):
                result.close()
            remedy = f"it returned a {type(result).__name__}, which is never awaited; define it with async def"
            raise ConfigurationError("handler", self.name, remedy)
        return result

    def start(self, given: object, context: object) -> Awaitable[object]:
        """Call a handler of the kind COROUTINE with a record or a list of records; await what this returns."""
        made = self.call(given, context) if self.takes_context else self.call(given)
        if type(made) is not CoroutineType and not inspect.isawaitable(made):
            remedy = f"it returned {type(made).__name__}, which cannot be awaited; define it with async def"
            raise ConfigurationError("handler", self.name, remedy)
        return made


def checked_handler(handler: object, *, max_batch: int = 1, processes: bool = False) -> RecordHandler:
    """Return a handler that can be called with records.

    Args:
        handler: the argument of the processor.
        max_batch: above 1, the handler receives lists of records.
        processes: the handler is to run in worker processes.

    Raises:
        ConfigurationError: the handler cannot work; the message has its name and the fix.
    """
    name = name_of(handler)
    _refuse_kinds(handler, name)
    call, retrying = _without_retries(handler)
    _refuse_kinds(call, name)
    if not callable(call):  # for type checkers: _refuse_kinds raises
        raise ArgumentTypeError("handler", name, "it is not callable")
    kind = HandlerKind.COROUTINE if _is(inspect.iscoroutinefunction, call) else HandlerKind.FUNCTION
    takes_context = _takes_context(call, name, "records" if max_batch > 1 else "record")
    if processes:
        _refuse_in_processes(handler, name, kind)
    return RecordHandler(given=handler, call=call, kind=kind, takes_context=takes_context, name=name, retrying=retrying)


def name_of(handler: object) -> str:
    """Return the name of a callable for messages: `module.function`, or the name of an object's class."""
    named = _named(handler)
    return named.__qualname__ if named.__module__ == "builtins" else f"{named.__module__}.{named.__qualname__}"


def _named(handler: object) -> type:
    """Return the function of a callable, or its class if it is another object; both have a name and a module."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    has_name = callable(handler) and hasattr(handler, "__qualname__") and getattr(handler, "__module__", None)
    return handler if has_name else type(handler)  # type: ignore[return-value]  # a function has the same attributes


def _is(question: Callable[[object], bool], given: object) -> bool:
    """Return whether a callable, or the `__call__` of an object, is such a function."""
    while isinstance(given, functools.partial):
        given = given.func
    return question(given) or question(getattr(given, "__call__", None))  # noqa: B004 - the method itself


def _refuse_kinds(handler: object, name: str) -> None:
    if isinstance(handler, type):
        raise ArgumentTypeError("handler", name, f"it is a class; give an instance with __call__: {name}()")
    if not callable(handler):
        remedy = "it cannot be called; give a function: handler(record), or handler(record, context)"
        raise ArgumentTypeError("handler", name, remedy)
    if _is(inspect.isgeneratorfunction, handler) or _is(inspect.isasyncgenfunction, handler):
        remedy = "it is a generator function, whose body would not run; return a list instead of using yield"
        raise ConfigurationError("handler", name, remedy)


def _without_retries(handler: object) -> tuple[object, BaseRetrying | None]:
    """Return the function inside a `tenacity.retry` decorator, and the decorator's policy.

    A decorator of the program around tenacity's one, which copied its attributes, is kept: its own policy then runs in
    the worker.
    """
    if isinstance(handler, functools.partial):
        inner, retrying = _without_retries(handler.func)
        if retrying is None or not callable(inner):
            return handler, None
        return functools.partial(inner, *handler.args, **handler.keywords), retrying
    if inspect.ismethod(handler):
        inner, retrying = _without_retries(handler.__func__)
        if retrying is None or not callable(inner):
            return handler, None
        return MethodType(inner, handler.__self__), retrying
    method = getattr(handler, "__call__", None)  # noqa: B004 - the method itself
    if not inspect.isroutine(handler) and inspect.ismethod(method):
        inner, retrying = _without_retries(method)
        return (handler, None) if retrying is None else (inner, retrying)
    retrying = policy_of_decorated(handler)
    # A decorator around tenacity's has its attributes, but belongs to another module.
    module = str(getattr(handler, "__globals__", {}).get("__name__", ""))
    if retrying is None or module.partition(".")[0] != "tenacity":
        return handler, None
    return inspect.getattr_static(handler, "__wrapped__"), retrying


# ---- parameters ----


def _takes_context(call: Callable[..., object], name: str, record: str) -> bool:
    try:
        # Of the function that is called, not of one that it wraps.
        signature = inspect.signature(call, follow_wrapped=False)
    except ValueError:  # some C functions have no signature
        return False
    if next(iter(signature.parameters), None) == "self":
        remedy = "it is a method without its object, which would receive the record as self; give object.method"
        raise ConfigurationError("handler", name, remedy)
    one, two = _binds(signature, 1), _binds(signature, 2)
    if one and two:
        if _has_varargs(signature):
            wrapped = inspect.signature(call)
            one, two = _binds(wrapped, 1), _binds(wrapped, 2)
            return two and (not one or _second_name(wrapped) == _CONTEXT)
        return _second_name(signature) == _CONTEXT
    if one or two:
        return two
    remedy = f"its parameters are {signature}; it must accept ({record}) or ({record}, context){_advice(signature)}"
    raise ConfigurationError("handler", name, remedy)


def _binds(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return False
    return True


def _has_varargs(signature: inspect.Signature) -> bool:
    return any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values())


def _second_name(signature: inspect.Signature) -> str | None:
    names = [each.name for each in signature.parameters.values() if each.kind is not each.VAR_POSITIONAL]
    return names[1] if len(names) > 1 else None


def _advice(signature: inspect.Signature) -> str:
    required = [
        each.name
        for each in signature.parameters.values()
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    ]
    if required:
        return f"; {', '.join(required)} can only be passed by keyword: give it a default, or use functools.partial"
    return "; pass other arguments with functools.partial" if signature.parameters else ""


# ---- processes ----


def _refuse_in_processes(handler: object, name: str, kind: HandlerKind) -> None:
    """Raise if worker processes cannot import or run the handler."""
    if kind is HandlerKind.COROUTINE:
        remedy = (
            "processes=True runs functions, and this is a coroutine function; define it with def, or remove the option"
        )
        raise ConfigurationError("handler", name, remedy)
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # multiprocessing raises the same error for a process that is started here, but only after the consumer joined.
        remedy = (
            "a worker process imports the program's main module, which must not create a processor again; put the code "
            "that does so under: if __name__ == '__main__':"
        )
        raise ConfigurationError("handler", name, remedy)
    try:
        pickle.dumps(handler)
    except (pickle.PicklingError, AttributeError, TypeError) as refused:
        remedy = (
            f"worker processes cannot import it ({refused}); with processes=True, define the handler with def at the "
            "top level of a module, not as a lambda or inside a function"
        )
        raise ConfigurationError("handler", name, remedy) from refused
    main = sys.modules["__main__"]
    has_source = getattr(main, "__file__", None) is not None or getattr(main, "__spec__", None) is not None
    if _named(handler).__module__ == "__main__" and not has_source:
        remedy = (
            "it is defined in an interactive session, which worker processes cannot import; with processes=True, move "
            "the handler to a module"
        )
        raise ConfigurationError("handler", name, remedy)
