"""Checks of the arguments of public functions, on the driver, before a broker is contacted or a job starts.

Without these checks, a value of the wrong type would fail minutes later, in a task, with an unrelated error. Each
function raises ConfigurationError, which names the parameter, its value (only its type, if the value may contain a
password) and the fix.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypeGuard, TypeVar

from consumer_membership.errors import ArgumentTypeError, ConfigurationError, SinkError
from consumer_membership.installation import install_command
from consumer_membership.spark.context import SinkUse

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_SESSION = "give the SparkSession that is to run the job: SparkSession.builder.getOrCreate()"

ParamsT = ParamSpec("ParamsT")
ReturnT = TypeVar("ReturnT")


def with_suggestions(*options: str) -> Callable[[Callable[ParamsT, ReturnT]], Callable[ParamsT, ReturnT]]:
    """Make a function raise ArgumentTypeError, a TypeError, for an unknown keyword, with the most similar known one.

    `options` are the names that the function accepts as `**options`.
    """

    def decorated(function: Callable[ParamsT, ReturnT]) -> Callable[ParamsT, ReturnT]:
        parameters = inspect.signature(function).parameters.values()
        names = [*(each.name for each in parameters if each.kind is not each.VAR_KEYWORD), *options]

        @wraps(function)
        def call(*args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ReturnT:
            for key in sorted(kwargs.keys() - set(names)):
                near = get_close_matches(key.lower(), names, 1)
                meant = f"did you mean {near[0]}?" if near else f"its parameters are {', '.join(names)}"
                # Only the type is shown: the value may be a secret.
                remedy = f"{function.__name__}() has no parameter {key}; {meant}"
                raise ArgumentTypeError(key, _kind(kwargs[key]), remedy)
            return function(*args, **kwargs)

        return call

    return decorated


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the SparkContext of a session; None for a Spark Connect session, which has no context.

    Raises:
        ConfigurationError: the argument is not a session, or the session was stopped.
    """
    # This check is first: any other request to a stopped session fails with an error of the JVM.
    if is_stopped(spark):
        raise ConfigurationError("spark", "a stopped session", f"it cannot run a job; {_SESSION}")
    # Checked by attribute: Spark Connect has its own session class, and so do some hosted platforms.
    if not hasattr(getattr(spark, "conf", None), "get"):
        raise ConfigurationError("spark", _kind(spark), _SESSION)
    try:
        return spark.sparkContext
    except AttributeError:  # the error of Spark Connect is a subclass
        return None


def is_stopped(spark: SparkSession) -> bool:
    """Return whether a session, classic or Spark Connect, was stopped."""
    context = getattr(spark, "sparkContext", None)
    # A SparkContext has no public attribute for this.
    is_over = context is not None and getattr(context, "_jsc", context) is None
    return is_over or bool(getattr(spark, "is_stopped", False))


def check_config(config: object, group: object = None, owned: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError if `config` is not a dict of strings, or has a key of `owned` (key: remedy)."""
    if not isinstance(config, Mapping):
        remedy = 'give a dict as for Consumer, {"bootstrap.servers": "...", ...}'
        raise ConfigurationError("config", _kind(config), remedy)
    for key, value in config.items():
        if not isinstance(key, str):
            raise ConfigurationError("config", key, "keys must be strings, as in {'bootstrap.servers': '...'}")
        if owned is not None and key in owned:
            raise ConfigurationError(key, value, owned[key])
    given = config.get("group.id", group)
    if group is not None and given != group:
        raise ConfigurationError("group.id", given, f"the argument group is {group!r}; give only one of the two names")


def topic_names(topics: object) -> tuple[str, ...]:
    """Return each topic name once; raise ConfigurationError unless `topics` is a list of names that is not empty."""
    if isinstance(topics, str | bytes | Mapping) or not isinstance(topics, Iterable):
        shown = topics if isinstance(topics, str) else _kind(topics)
        raise ConfigurationError("topics", shown, "give a list of topics")
    named = tuple(topics)
    for topic in named:
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError("topics", topic, "a topic name must be a string that is not empty")
        if topic.startswith("^"):
            raise ConfigurationError("topics", topic, "patterns are not supported here; list the topics by name")
    if not named:
        raise ConfigurationError("topics", named, "give at least one topic")
    return tuple(dict.fromkeys(named))


def check_group(group: object) -> None:
    """Raise ConfigurationError if `group` is not a group name."""
    if not isinstance(group, str) or not group:
        raise ConfigurationError("group", group, "give the name of the group, a string")


def check_text(name: str, value: object, what: str) -> None:
    """Raise ConfigurationError if a value is neither a string nor None; `what` describes the expected value."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(name, value, f"give {what} as a string, or leave it out")


def check_count(name: str, value: object, remedy: str) -> None:
    """Raise ConfigurationError if a value is not a whole number of 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(name, value, remedy)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_time(name: str, seconds: object) -> None:
    """Raise ConfigurationError if a value is not a number of seconds greater than 0."""
    if not is_number(seconds) or not seconds > 0:
        raise ConfigurationError(name, seconds, "give a number of seconds greater than 0")


def check_until(until: object) -> None:
    """Raise ConfigurationError if a value is neither "now" nor a mapping of partitions to end offsets."""
    if isinstance(until, str) and until == "now":
        return
    remedy = "give 'now', or a dict of end offsets by partition: {(topic, partition): offset}"
    if not isinstance(until, Mapping):
        raise ConfigurationError("until", until, remedy)
    for partition, end in until.items():
        if not isinstance(end, int) or isinstance(end, bool):
            raise ConfigurationError("until", {partition: end}, remedy)


def check_sink(sink: object, name: str = "sink") -> None:
    """Raise ConfigurationError if a sink cannot be called with a batch and its context."""
    remedy = f"give a function or an object with __call__: {name}(batch, context)"
    if not callable(sink):
        raise ConfigurationError(name, _kind(sink), remedy)
    try:
        # The signature of the decorator's function, which is the one that is called.
        signature = inspect.signature(sink, follow_wrapped=False)
    except ValueError:  # some C functions have no signature
        return
    try:
        signature.bind(None, None)
    except TypeError as refused:
        advice = f"; create an instance of {sink.__name__} first" if isinstance(sink, type) else ""
        raise ConfigurationError(
            name,
            getattr(sink, "__qualname__", type(sink).__qualname__),
            f"{remedy}; its parameters are {signature}, so it cannot be called with two arguments: {refused}{advice}",
        ) from None


def check_use(sink: object, use: SinkUse) -> str:
    """Call the sink's `check_use`, if it has one, and return its description of the output.

    Raises:
        ConfigurationError: the sink cannot be used in this way.
        SinkError: the output could not be checked. The tasks may still be able to reach it.
    """
    check = getattr(sink, "check_use", None)
    if not callable(check):
        return ""
    try:
        return str(check(use) or "")
    except ConfigurationError:
        raise
    except Exception as failed:
        raise SinkError(f"{type(failed).__name__}: {failed}") from failed


def check_columns(columns: object, known: Collection[str]) -> tuple[str, ...]:
    """Return the columns; raise ConfigurationError unless `columns` is a list of known columns, each once."""
    if isinstance(columns, Collection) and not isinstance(columns, str):
        named = tuple(columns)
        if named and all(one in known for one in named) and len(set(named)) == len(named):
            return named
    raise ConfigurationError("columns", columns, f"give a list of columns, each once, from {', '.join(known)}")


def required(module: str, key: str, value: str, *, extra: str = "spark") -> ModuleType:
    """Import the module that a value needs; raise ConfigurationError, with the extra to install, if it is missing."""
    try:
        return import_module(module)
    except ImportError as missing:
        needed = module.partition(".")[0]
        raise ConfigurationError(key, value, f"needs {needed}: {install_command(extra)}") from missing


def _kind(value: object) -> str | None:
    """Return the name of a value's type, because the value itself may contain a password."""
    return None if value is None else type(value).__qualname__
