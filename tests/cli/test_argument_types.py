"""Argument types convert a text, or reject it with a message that has the value and the rule."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from consumer_membership.cli import argument_types as types


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (types.sendable_text, "orders", "orders"),
        (types.key_and_value, " acks = a=b", ("acks", " a=b")),
        (types.group_state, "empty", "Empty"),
        (types.duration, "90", 90.0),
        (types.duration, "1.5h", 5400.0),
        (types.offset_range, "17", (17, 17)),
        (types.offset_range, "10-20", (10, 20)),
        (types.offset_range, "10-", (10, None)),
        (types.at_least(3, int), "3", 3),
        (types.seconds(0.1), "0.1", 0.1),
    ],
)
def test_argument_type_returns_the_value(read: Callable[[str], object], text: str, value: object) -> None:
    """An argument type converts the text to a value of the type that the command needs."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (types.sendable_text, "\udcff", "not UTF-8"),
        (types.key_and_value, "key", "KEY=VALUE is required"),
        (types.group_state, "full", "unknown group state 'full': choose from"),
        (types.duration, "10y", "'10y' is not a number"),
        (types.duration, "9999d", "9999d is more than 366 days"),
        (types.duration, "0", "0 is less than 0.1"),
        (types.offset_range, "-3", "an offset or a range such as 10-20 is required"),
        (types.offset_range, "20-10", "the range ends before it begins"),
        (types.at_least(3, int), "2", "2 is less than 3"),
        (types.seconds(0.1), "nan", "nan is less than 0.1"),
        (types.seconds(0.1), "inf", "inf is more than 366 days"),
    ],
)
def test_argument_type_refuses_other_values(read: Callable[[str], object], text: str, message: str) -> None:
    """An argument type rejects other texts with a message that has the value and the rule."""
    with pytest.raises(ArgumentTypeError) as refused:
        read(text)
    assert message in str(refused.value)
