"""Check the arguments of `GroupAdmin` before a request is sent; each error names the argument, the value and the fix.

A wrong type raises an error that is also a TypeError. Values are never converted: the string in `all_members="false"`
is true, and would remove all members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from consumer_membership.admin.group_log import ReadingProgress
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.text import LONGEST_STRING, excerpt, problem_of


def group_id(given: object) -> str:
    """Return the checked group id."""
    name = _text("group_id", given, "a group id must be a string")
    if not name:
        raise ConfigurationError("group_id", name, "a group id must not be empty")
    return name


def seconds(given: object) -> float:
    """Return the checked timeout of a call in seconds."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ArgumentTypeError("timeout_s", given, "the timeout must be a number of seconds above 0")
    if not given > 0:
        raise ConfigurationError("timeout_s", given, "the timeout must be above 0 seconds")
    return float(given)


def moment(given: object) -> float:
    """Return the checked time in seconds since 1970, as from `time.time()`."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ArgumentTypeError("since", given, "the time must be a number of seconds since 1970, as from time.time()")
    if not 0 <= given < inf:
        raise ConfigurationError("since", given, "the time must be in seconds since 1970, as from time.time()")
    return float(given)


def grain(given: object) -> float:
    """Return the checked resolution of commits in seconds."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ArgumentTypeError("grain_s", given, "the resolution must be a number of seconds; 0 keeps every commit")
    if not 0 <= given < inf:
        raise ConfigurationError("grain_s", given, "the resolution must be at least 0 seconds; 0 keeps every commit")
    return float(given)


def on_progress(given: Callable[[ReadingProgress], object] | None) -> Callable[[ReadingProgress], object] | None:
    """Return the checked callback for the progress of a call."""
    if given is not None and not callable(given):
        raise ArgumentTypeError("on_progress", given, "the callback must be a function or None")
    return given


def flag(name: str, given: object) -> bool:
    """Return the checked flag; a value that is only truthy or falsy raises an error."""
    if not isinstance(given, bool):
        raise ArgumentTypeError(name, given, "the value must be True or False")
    return given


def ids(name: str, given: object) -> tuple[str, ...]:
    """Return the checked member ids or instance ids."""
    # A string is an iterable of strings: each character would be an id.
    if isinstance(given, str):
        raise ConfigurationError(name, excerpt(given), "the ids must be a list of strings")
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ArgumentTypeError(name, given, "the ids must be a list of strings")
    listed = tuple(_text(f"{name}[{place}]", one, "an id must be a string") for place, one in enumerate(given))
    if not all(listed):
        raise ConfigurationError(name, listed, "an id must not be empty")
    return listed


def pairs(name: str, given: object) -> Mapping[str, str]:
    """Return the checked member ids by instance id."""
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(name, given, "the value must be a dict from instance ids to member ids")
    ids(name, given.keys())
    ids(name, given.values())
    return dict(given)


def reason(given: object) -> str | None:
    """Return the checked reason for the coordinator's log; the request shortens a long one."""
    return None if given is None else _text("reason", given, "the reason must be a string or None", longest=None)


def _text(name: str, given: object, remedy: str, longest: int | None = LONGEST_STRING) -> str:
    if not isinstance(given, str):
        raise ArgumentTypeError(name, given, remedy)
    problem = problem_of(given, longest)
    if problem is not None:
        raise ConfigurationError(name, excerpt(given), problem)
    return given
