"""What callers give, of whatever type: refused on the driver, by name, before a broker is asked or a job begins.

A value of the wrong type would show minutes later, in the words of whoever stumbled over it in a task. Each function
here raises ConfigurationError, which names the parameter, its value (its type, where there may be a password in it) and
what to give instead.
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

_SESSION = "give the SparkSession in which the job is to run: SparkSession.builder.getOrCreate()"

ParamsT = ParamSpec("ParamsT")
ReturnT = TypeVar("ReturnT")


def with_suggestions(*options: str) -> Callable[[Callable[ParamsT, ReturnT]], Callable[ParamsT, ReturnT]]:
    """Let a function refuse a keyword that it does not have, with the nearest one that it has.

    `options` are the names of its `**options`. Raises ArgumentTypeError, as Python raises a TypeError.
    """

    def decorated(function: Callable[ParamsT, ReturnT]) -> Callable[ParamsT, ReturnT]:
        parameters = inspect.signature(function).parameters.values()
        names = [*(each.name for each in parameters if each.kind is not each.VAR_KEYWORD), *options]

        @wraps(function)
        def call(*args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ReturnT:
            for key in sorted(kwargs.keys() - set(names)):
                near = get_close_matches(key.lower(), names, 1)
                meant = f"did you mean {near[0]}?" if near else f"its parameters are {', '.join(names)}"
                # Its value may be a secret.
                remedy = f"{function.__name__}() has no parameter {key}; {meant}"
                raise ArgumentTypeError(key, _kind(kwargs[key]), remedy)
            return function(*args, **kwargs)

        return call

    return decorated


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's SparkContext, None for a session of Spark Connect, which has none; refuses a stopped session."""
    # First: whatever else such a session is asked fails in words of the JVM's.
    if is_stopped(spark):
        raise ConfigurationError("spark", "a stopped session", f"it cannot run a job; {_SESSION}")
    # By what is used of it: a session is a class of its own with Spark Connect, and of its own again at some hosts.
    if not hasattr(getattr(spark, "conf", None), "get"):
        raise ConfigurationError("spark", _kind(spark), _SESSION)
    try:
        return spark.sparkContext
    except AttributeError:  # Spark Connect's own error is one, too
        return None


def is_stopped(spark: SparkSession) -> bool:
    """Whether a session was stopped, of either kind."""
    context = getattr(spark, "sparkContext", None)
    # Of a SparkContext nothing else tells.
    is_over = context is not None and getattr(context, "_jsc", context) is None
    return is_over or bool(getattr(spark, "is_stopped", False))


def check_config(config: object, group: object = None, owned: Mapping[str, str] | None = None) -> None:
    """Refuse what has no keys with values, and keys that are `owned` by whoever asks; the values are the config's."""
    if not isinstance(config, Mapping):
        remedy = 'give a dict as for Consumer, {"bootstrap.servers": "...", ...}'
        raise ConfigurationError("config", _kind(config), remedy)
    for key, value in config.items():
        if not isinstance(key, str):
            raise ConfigurationError("config", key, "keys are texts, as in {'bootstrap.servers': '...'}")
        if owned is not None and key in owned:
            raise ConfigurationError(key, value, owned[key])
    given = config.get("group.id", group)
    if group is not None and given != group:
        raise ConfigurationError("group.id", given, f"the group is {group!r}; give one name only")


def topic_names(topics: object) -> tuple[str, ...]:
    """The topics, each once; refuses what is no list of names, or an empty one."""
    if isinstance(topics, str | bytes | Mapping) or not isinstance(topics, Iterable):
        shown = topics if isinstance(topics, str) else _kind(topics)
        raise ConfigurationError("topics", shown, "give a list of topics")
    named = tuple(topics)
    for topic in named:
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError("topics", topic, "the name of a topic is a text, and not an empty one")
        if topic.startswith("^"):
            raise ConfigurationError("topics", topic, "patterns are not taken here; name the topics")
    if not named:
        raise ConfigurationError("topics", named, "name at least one topic")
    return tuple(dict.fromkeys(named))


def check_group(group: object) -> None:
    """Refuse what is no name of a group."""
    if not isinstance(group, str) or not group:
        raise ConfigurationError("group", group, "name the group")


def check_text(name: str, value: object, what: str) -> None:
    """Refuse what is neither a text nor None; `what` says what it is to be."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(name, value, f"give {what} as a text, or leave it out")


def check_count(name: str, value: object, remedy: str) -> None:
    """Refuse what is no whole number of 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(name, value, remedy)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether one can count with it."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_time(name: str, seconds: object) -> None:
    """Refuse what are no seconds, more than 0."""
    if not is_number(seconds) or not seconds > 0:
        raise ConfigurationError(name, seconds, "give seconds, more than 0")


def check_until(until: object) -> None:
    """Refuse what is neither "now" nor an end for each of some partitions."""
    if isinstance(until, str) and until == "now":
        return
    remedy = "give 'now', or an end offset for each partition, by (topic, number)"
    if not isinstance(until, Mapping):
        raise ConfigurationError("until", until, remedy)
    for partition, end in until.items():
        if not isinstance(end, int) or isinstance(end, bool):
            raise ConfigurationError("until", {partition: end}, remedy)


def check_sink(sink: object, name: str = "sink") -> None:
    """Refuse what cannot be called with a batch and its context."""
    remedy = f"give a function or an object with __call__: {name}(batch, context)"
    if not callable(sink):
        raise ConfigurationError(name, _kind(sink), remedy)
    try:
        # Of what is really called: what a decorator wraps may take something else.
        signature = inspect.signature(sink, follow_wrapped=False)
    except ValueError:  # of some functions in C nobody knows
        return
    try:
        signature.bind(None, None)
    except TypeError as refused:
        advice = f"; make an object of the class {sink.__name__} first" if isinstance(sink, type) else ""
        raise ConfigurationError(
            name,
            getattr(sink, "__qualname__", type(sink).__qualname__),
            f"{remedy}; it takes {signature} and cannot be called so: {refused}{advice}",
        ) from None


def check_use(sink: object, use: SinkUse) -> str:
    """What a sink with `check_use` finds of its output, as text; refuses a use that cannot work.

    An output that cannot be reached from here is no reason to refuse: tasks may reach it.

    Raises:
        ConfigurationError: as the sink says.
        SinkError: the output could not be looked at.
    """
    look = getattr(sink, "check_use", None)
    if not callable(look):
        return ""
    try:
        return str(look(use) or "")
    except ConfigurationError:
        raise
    except Exception as failed:
        raise SinkError(f"{type(failed).__name__}: {failed}") from failed


def check_columns(columns: object, known: Collection[str]) -> tuple[str, ...]:
    """The columns; refuses what is no list of some of the known ones, each once."""
    if isinstance(columns, Collection) and not isinstance(columns, str):
        named = tuple(columns)
        if named and all(one in known for one in named) and len(set(named)) == len(named):
            return named
    raise ConfigurationError("columns", columns, f"give a list of some of {', '.join(known)}, each once")


def required(module: str, key: str, value: str, *, extra: str = "spark") -> ModuleType:
    """The module of this extra that a value needs; refuses the value where there is none."""
    try:
        return import_module(module)
    except ImportError as missing:
        needed = module.partition(".")[0]
        raise ConfigurationError(key, value, f"needs {needed}: {install_command(extra)}") from missing


def _kind(value: object) -> str | None:
    """What of a value of the wrong type may be shown: whatever it is, there may be a password in it."""
    return None if value is None else type(value).__qualname__
