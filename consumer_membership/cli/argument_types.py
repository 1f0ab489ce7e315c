"""The types of command line arguments: each reads a text, or raises ArgumentTypeError with the value and the rule."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from math import inf
from typing import TypeVar

from consumer_membership.cli.overview import STATES
from consumer_membership.text import excerpt, problem_of

#: An upper limit for durations: a larger value is a mistake, and the system cannot wait for `inf` seconds.
_YEAR_S = 366 * 24 * 3_600.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_Number = TypeVar("_Number", int, float)


def sendable_text(given: str) -> str:
    """Return the argument; bytes that are not UTF-8 cannot be sent to Kafka and raise ArgumentTypeError."""
    problem = problem_of(given)
    if problem is not None:
        raise ArgumentTypeError(f"invalid value {excerpt(given)!a}: {problem}")
    return given


def key_and_value(text: str) -> tuple[str, str]:
    """Return the key and the value of `KEY=VALUE`."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ArgumentTypeError(f"invalid value {excerpt(text)!a}: KEY=VALUE is required")
    # The value may be a secret, and a long text such as a certificate.
    problem = problem_of(key) or problem_of(value, None, is_secret=True)
    if problem is not None:
        raise ArgumentTypeError(f"invalid value of {excerpt(key)!a}: {problem}")
    return key.strip(), value


def group_state(text: str) -> str:
    """Return the group state with this name; upper and lower case are equal."""
    found = next((one for one in STATES if one.lower() == text.lower()), None)
    if found is None:
        raise ArgumentTypeError(f"unknown group state {excerpt(text)!a}: choose from {', '.join(STATES)}")
    return found


def duration(text: str) -> float:
    """Return the seconds of a duration such as `90`, `90s`, `10m`, `2h` or `7d`."""
    unit = _UNITS.get(text[-1:])
    number = text if unit is None else text[:-1]
    duration_s = at_least(0.1, float)(number) * (1.0 if unit is None else unit)
    if duration_s > _YEAR_S:
        raise ArgumentTypeError(f"{text} is more than 366 days")
    return duration_s


def offset_range(text: str) -> tuple[int, int | None]:
    """Return the first and the last offset of `17`, `10-20` or `10-`."""
    first, sign, last = text.partition("-")
    if not first.isdecimal() or (last and not last.isdecimal()):
        raise ArgumentTypeError(f"invalid value {excerpt(text)!a}: an offset or a range such as 10-20 is required")
    if not sign:
        return int(first), int(first)
    if last and int(last) < int(first):
        raise ArgumentTypeError(f"invalid value {excerpt(text)!a}: the range ends before it begins")
    return int(first), int(last) if last else None


def at_least(least: _Number, kind: type[_Number], most: float = inf) -> Callable[[str], _Number]:
    """Return a type for numbers of this kind between `least` and `most`."""

    def number(text: str) -> _Number:
        try:
            value = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= least:
            raise ArgumentTypeError(f"{text} is less than {least}")
        if value > most:
            raise ArgumentTypeError(f"{text} is more than 366 days")
        return value

    return number


def seconds(least: float) -> Callable[[str], float]:
    """Return a type for at least this number of seconds."""
    return at_least(least, float, _YEAR_S)
