"""The texts of handlers: keys, locations and facts in one line, with any content."""

from __future__ import annotations

import sys
import traceback
from dataclasses import replace

import pytest

from consumer_membership.health.handlers import (
    HandlersDisowned,
    RecordDeadLettered,
    RunningHandler,
    UnfinishedRecord,
)
from consumer_membership.types import TopicPartition

P0, P3 = TopicPartition("orders", 0), TopicPartition("orders", 3)
HANDLER = RunningHandler(partition=P3, offset=42, key=b"k", attempt=1, began_at=100.0, deadline=400.0)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "none"),
        (b"", ""),
        (b"customer-7", "customer-7"),
        ("größe".encode(), "größe"),
        (b"\xff\x00", "b'\\xff\\x00'"),
        (b"a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        (b"x" * 200, "x" * 40 + "..."),
    ],
)
def test_key_text_is_one_short_line(key: bytes | None, text: str) -> None:
    """Keys are bytes of other programs: control characters are escaped, and long keys are shortened."""
    assert replace(HANDLER, key=key).key_text == text


def test_location_is_the_innermost_line_of_the_stack() -> None:
    """The location of a handler is the innermost frame of its thread's stack, which `traceback` formats last."""
    stack = "".join(traceback.format_stack(sys._getframe()))
    here = replace(HANDLER, stack=stack).location
    assert here.startswith("test_handlers.py:")
    assert here.endswith(" in test_location_is_the_innermost_line_of_the_stack")


@pytest.mark.parametrize("stack", ["", "no stack", '  File "'])
def test_location_of_an_unknown_stack_is_empty_or_harmless(stack: str) -> None:
    """The location of an unknown stack, or of a stack with another format, is empty, and no error is raised."""
    assert replace(HANDLER, stack=stack).location in ("", ":")


def test_unfinished_record_text_has_the_failed_attempt() -> None:
    """The text of an unfinished record has its offset and, if it failed, the attempt and the last error."""
    assert UnfinishedRecord(offset=7, since=1.0, attempt=1).text == "offset 7"
    failed = UnfinishedRecord(offset=7, since=1.0, attempt=3, last_error="ValueError: two\nlines")
    assert failed.text == "offset 7 (attempt 3; ValueError: two\\nlines)"


def test_fact_texts_name_each_record() -> None:
    """Texts of facts have the places of records and the error classes, but no contents of records."""
    dead = RecordDeadLettered(partition=P3, offset=42, attempts=5, error="ValueError")
    assert dead.text == "dead-lettered orders-3 offset 42 after 5 attempts: ValueError"
    disowned = HandlersDisowned(offsets={P3: (42,), P0: (7, 9)}, is_loss=True)
    assert disowned.text == (
        "disowned the handlers of lost partitions: orders-0 offset 7, orders-0 offset 9, orders-3 offset 42"
    )
