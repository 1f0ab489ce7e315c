"""What operators pass to `GroupAdmin`, checked before anybody is asked: each refusal names the argument and the remedy.

A mistake of type is a TypeError, too. Nothing is guessed: `everyone="false"` would remove everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from consumer_membership.admin.group_log import ReadingProgress
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.text import LONGEST_STRING, excerpt, problem_of


def group_id(given: object) -> str:
    """The group that is meant."""
    name = _text("group_id", given, "name a group, as text")
    if not name:
        raise ConfigurationError("group_id", name, "it must not be empty; name a group")
    return name


def seconds(given: object) -> float:
    """How long a call may take."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ArgumentTypeError("timeout_s", given, "give seconds as a number, more than 0")
    if not given > 0:
        raise ConfigurationError("timeout_s", given, "give seconds, more than 0")
    return float(given)


def moment(given: object) -> float:
    """A time, as `time.time()` has it."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ArgumentTypeError("since", given, "give seconds since 1970 as a number, as time.time() does")
    if not 0 <= given < inf:
        raise ConfigurationError("since", given, "give seconds since 1970, as time.time() does")
    return float(given)


def grain(given: object) -> float:
    """Seconds within which one commit is enough."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ArgumentTypeError("grain_s", given, "give seconds as a number; 0 keeps every commit")
    if not 0 <= given < inf:
        raise ConfigurationError("grain_s", given, "give seconds; 0 keeps every commit")
    return float(given)


def on_progress(given: Callable[[ReadingProgress], object] | None) -> Callable[[ReadingProgress], object] | None:
    """Who is told how far a call is."""
    if given is not None and not callable(given):
        raise ArgumentTypeError("on_progress", given, "give a function, or None")
    return given


def flag(name: str, given: object) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(given, bool):
        raise ArgumentTypeError(name, given, "give True or False")
    return given


def ids(name: str, given: object) -> tuple[str, ...]:
    """Ids of members."""
    # A text is an iterable of texts: each of its letters would be taken for an id.
    if isinstance(given, str):
        raise ConfigurationError(name, excerpt(given), "give a list of ids, none of them empty")
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ArgumentTypeError(name, given, "give a list of ids")
    listed = tuple(_text(f"{name}[{place}]", one, "an id is text") for place, one in enumerate(given))
    if not all(listed):
        raise ConfigurationError(name, listed, "give a list of ids, none of them empty")
    return listed


def reason(given: object) -> str | None:
    """What the coordinator is told; the wire shortens it."""
    return None if given is None else _text("reason", given, "give text, or None", longest=None)


def _text(name: str, given: object, remedy: str, longest: int | None = LONGEST_STRING) -> str:
    if not isinstance(given, str):
        raise ArgumentTypeError(name, given, remedy)
    problem = problem_of(given, longest)
    if problem is not None:
        raise ConfigurationError(name, excerpt(given), problem)
    return given
