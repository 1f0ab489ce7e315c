"""Handlers of every supported kind are called correctly; all other callables raise errors with the fix."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import tenacity
from tenacity import stop_after_attempt

from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.processing.handlers import HandlerKind, RecordHandler, checked_handler, name_of

#: The arguments that the handlers of these tests receive.
RECORD, CONTEXT = "record", "context"


def of_record(record: object) -> object:
    """Take one parameter."""
    return (record,)


def of_record_and_context(record: object, context: object) -> object:
    """Take two parameters."""
    return (record, context)


def of_optional_context(record: object, context: object = None) -> object:
    """Take an optional context."""
    return (record, context)


def of_another_option(record: object, retries: int = 3) -> object:
    """Take a second parameter that is not a context."""
    return (record, retries)


def of_anything(*args: object, **_: object) -> object:
    """Take any arguments."""
    return args


def of_record_and_options(record: object, *, retries: int = 3) -> object:
    """Take a record, and options as keyword arguments."""
    return (record, retries)


def of_positional(record: object, context: object, /) -> object:
    """Take two positional-only parameters."""
    return (record, context)


async def coroutine(record: object) -> object:
    """Take one parameter, asynchronously."""
    return (record,)


async def coroutine_with_context(record: object, context: object) -> object:
    """Take two parameters, asynchronously."""
    return (record, context)


def traced(function: Callable[..., object]) -> Callable[..., object]:
    """Return a decorated function that passes on all arguments, like most decorators."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return call


def with_database(function: Callable[..., object]) -> Callable[..., object]:
    """Return a decorated function without the last argument of the inner function, which the decorator adds."""

    @functools.wraps(function)
    def call(record: object) -> object:
        return function(record, "database")

    return call


class Handling:
    """An object with state that handles records."""

    def __call__(self, record: object, context: object) -> object:
        return (record, context)

    def method(self, record: object) -> object:
        return (record,)

    @staticmethod
    def static(record: object) -> object:
        return (record,)

    @classmethod
    def of_class(cls, record: object, context: object) -> object:
        return (record, context)

    @tenacity.retry(stop=stop_after_attempt(7))
    def retried(self, record: object) -> object:
        return (type(self).__name__, record)


class AsyncHandling:
    async def __call__(self, record: object) -> object:
        return (record,)


class RetriedHandling:
    @tenacity.retry(stop=stop_after_attempt(7))
    def __call__(self, record: object) -> object:
        return (type(self).__name__, record)


def result_of(handler: RecordHandler) -> object:
    """Return the handler's result for one record."""
    if handler.kind is HandlerKind.FUNCTION:
        return handler.run(RECORD, CONTEXT)

    async def awaited() -> object:
        return await handler.start(RECORD, CONTEXT)

    return asyncio.run(awaited())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (of_record, (RECORD,)),
        (of_record_and_context, (RECORD, CONTEXT)),
        (of_optional_context, (RECORD, CONTEXT)),
        (of_another_option, (RECORD, 3)),
        (of_anything, (RECORD,)),
        (of_record_and_options, (RECORD, 3)),
        (of_positional, (RECORD, CONTEXT)),
        (lambda record: (record,), (RECORD,)),
        (functools.partial(of_record_and_context, context="bound"), (RECORD, "bound")),
        (functools.partial(of_record_and_context, "bound"), ("bound", RECORD)),
        (functools.partial(of_record_and_options, retries=5), (RECORD, 5)),
        (traced(of_record), (RECORD,)),
        (traced(of_record_and_context), (RECORD, CONTEXT)),
        (traced(of_optional_context), (RECORD, CONTEXT)),
        (with_database(of_record_and_context), (RECORD, "database")),
        (Handling(), (RECORD, CONTEXT)),
        (Handling().method, (RECORD,)),
        (Handling.static, (RECORD,)),
        (Handling.of_class, (RECORD, CONTEXT)),
    ],
)
def test_function_receives_the_record_and_the_context_if_it_has_a_parameter_for_it(
    given: Callable[..., object], expected: object
) -> None:
    """A required second parameter, or one that is named context, receives the context; others keep their defaults."""
    handler = checked_handler(given)
    assert (handler.kind, result_of(handler)) == (HandlerKind.FUNCTION, expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (coroutine, (RECORD,)),
        (coroutine_with_context, (RECORD, CONTEXT)),
        (functools.partial(coroutine_with_context, context="bound"), (RECORD, "bound")),
        (AsyncHandling(), (RECORD,)),
    ],
)
def test_coroutine_function_is_awaited(given: Callable[..., object], expected: object) -> None:
    """Coroutine functions, partial ones and objects with an asynchronous `__call__` are awaited."""
    handler = checked_handler(given)
    assert (handler.kind, result_of(handler)) == (HandlerKind.COROUTINE, expected)


def test_builtin_without_a_signature_receives_the_record() -> None:
    """C functions may have no signature; they receive one argument."""
    seen: list[object] = []
    checked_handler(seen.append).run(RECORD, CONTEXT)
    assert seen == [RECORD]


# ---- handlers that are decorated with tenacity.retry ----


@tenacity.retry(stop=stop_after_attempt(7))
def retried(record: object) -> object:
    """Handle a record with its own retry policy."""
    return (record,)


@tenacity.retry(stop=stop_after_attempt(7))
async def retried_coroutine(record: object, context: object) -> object:
    """Handle a record asynchronously with its own retry policy."""
    return (record, context)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (retried, (RECORD,)),
        (retried_coroutine, (RECORD, CONTEXT)),
        (functools.partial(retried_coroutine, context="bound"), (RECORD, "bound")),
        (Handling().retried, ("Handling", RECORD)),
        (RetriedHandling(), ("RetriedHandling", RECORD)),
    ],
)
def test_policy_of_a_decorated_handler_is_read_and_the_decorator_is_not_called(
    given: Callable[..., object], expected: object
) -> None:
    """Tenacity's loop would sleep in the worker, so the function inside is called, and its policy is kept."""
    handler = checked_handler(given)
    assert isinstance(handler.retrying, tenacity.BaseRetrying)
    assert handler.retrying.stop.max_attempt_number == 7  # type: ignore[union-attr]
    assert not hasattr(handler.call, "retry")
    assert result_of(handler) == expected


def test_decorator_around_a_retrying_function_is_kept() -> None:
    """If the program decorates a tenacity function again, the outer decorator is called, and so is tenacity's loop."""
    outer = traced(retried)
    handler = checked_handler(outer)
    assert (handler.call, handler.retrying) == (outer, None)


# ---- errors ----


def generator(record: object) -> Iterator[object]:
    """Yield instead of returning."""
    yield record


async def async_generator(record: object) -> AsyncIterator[object]:
    """Yield asynchronously instead of returning."""
    yield record


class Generating:
    def __call__(self, record: object) -> Iterator[object]:
        yield record


def of_nothing() -> None:
    """Take no parameter."""


def of_three(record: object, context: object, database: object) -> None:
    """Take one parameter too many."""


def of_keyword(record: object, *, database: object) -> None:
    """Take a required keyword-only parameter."""


def of_keywords_only(*, record: object) -> None:
    """Take the record as a keyword-only parameter."""


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        (None, "give a function"),
        ("handle", "give a function"),
        (Handling, "give an instance"),
        (Handling.__call__, "give object.method"),
        (print.__class__, "give an instance"),
        (generator, "return a list instead of using yield"),
        (async_generator, "return a list instead of using yield"),
        (Generating(), "return a list instead of using yield"),
        (functools.partial(generator), "return a list instead of using yield"),
        (of_nothing, r"must accept \(record\) or \(record, context\)"),
        (of_three, "pass other arguments with functools.partial"),
        (of_keyword, "database can only be passed by keyword"),
        (of_keywords_only, "record can only be passed by keyword"),
        (functools.partial(of_record, "bound"), r"must accept \(record\)"),
        (coroutine("record"), "give a function"),
    ],
)
def test_handler_that_cannot_be_called_raises_error_with_the_fix(wrong: object, fix: str) -> None:
    """The error names the option, the handler and the fix."""
    with pytest.raises(ConfigurationError, match=fix) as raised:
        checked_handler(wrong)
    assert (raised.value.key, raised.value.value) == ("handler", name_of(wrong))
    if asyncio.iscoroutine(wrong):
        wrong.close()


def test_wrong_type_of_handler_is_a_type_error() -> None:
    """Objects that cannot be called raise an error that is also a TypeError."""
    with pytest.raises(ArgumentTypeError):
        checked_handler(5)


def test_batch_handler_is_described_as_such() -> None:
    """With batches, the error shows `records`, the parameter for the list."""
    with pytest.raises(ConfigurationError, match=r"must accept \(records\) or \(records, context\)"):
        checked_handler(of_nothing, max_batch=10)


def test_function_that_returns_an_awaitable_raises_error() -> None:
    """The awaitable would never be awaited, so its record must not count as finished."""

    async def later() -> None: ...

    def stream(record: object) -> AsyncIterator[object]:
        return async_generator(record)

    for returned in (lambda _: later(), stream):
        with pytest.raises(ConfigurationError, match="is never awaited"):
            checked_handler(returned).run(RECORD, CONTEXT)


# ---- processes ----


def test_handler_for_processes_is_found_by_name() -> None:
    """Accepted handlers are functions of a module, also partial or decorated ones, and objects that can be pickled."""
    for accepted in (of_record, functools.partial(of_record_and_context, context=1), Handling(), retried):
        assert checked_handler(accepted, processes=True).given is accepted


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        (lambda record: record, "define the handler with def at the top level of a module"),
        (traced(lambda record: record), "define the handler with def at the top level of a module"),
        (functools.partial(of_record_and_context, context=generator(RECORD)), "define the handler with def"),
        (coroutine, "define it with def, or remove the option"),
        (AsyncHandling(), "define it with def, or remove the option"),
    ],
)
def test_handler_that_processes_cannot_run_raises_error(wrong: object, fix: str) -> None:
    """Worker processes import the handler by name and call it."""
    with pytest.raises(ConfigurationError, match=fix):
        checked_handler(wrong, processes=True)


INTERACTIVE = """
from consumer_membership.errors import ConfigurationError
from consumer_membership.processing.handlers import checked_handler

def handle(record): pass

try:
    checked_handler(handle, processes=True)
except ConfigurationError as refused:
    print(refused)
"""


def test_handler_of_an_interactive_session_raises_error_for_processes() -> None:
    """Code without a file cannot be imported by another process."""
    done = subprocess.run([sys.executable, "-c", INTERACTIVE], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("handler='__main__.handle': it is defined in an interactive session")


def test_handler_of_a_script_is_accepted_for_processes(tmp_path: Path) -> None:
    """Worker processes import the main module of a script again under another name."""
    script = tmp_path / "script.py"
    script.write_text(INTERACTIVE)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
