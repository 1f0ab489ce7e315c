"""The log of failed handlers: each kind of error once with its traceback, then counted."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from confluent_kafka import Message

from consumer_membership.errors import ConfigurationError
from consumer_membership.processing.calls import HandlerCalls
from consumer_membership.processing.context import HandlerContext
from consumer_membership.processing.failures import MOST_KINDS, HandlerFailures
from consumer_membership.processing.handlers import checked_handler
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import Task
from tests.processing.records import records, scheduler_of, taken

LOGGER = "consumer_membership.processing"


class UnformattableError(Exception):
    """An exception of an application whose message cannot be formatted."""

    def __str__(self) -> str:
        """Raise the exception."""
        raise ZeroDivisionError


@pytest.fixture
def task() -> Task:
    """Return a task of one record, offset 0 of orders-0."""
    scheduler = scheduler_of()
    scheduler.admit(records("a"), 0.0)
    return taken(scheduler)


def raised(error: Exception) -> Exception:
    """Return this error with a traceback."""
    try:
        raise error
    except type(error) as caught:
        return caught


def test_first_failure_of_each_kind_is_logged_with_its_traceback(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """The traceback shows the line of the handler; the message has only record, attempt and error."""
    failures = HandlerFailures(Counter())
    with caplog.at_level(logging.WARNING, LOGGER):
        failures.failed(task, raised(ValueError("no")), 0.25)
        failures.failed(task, raised(ValueError("no")), 0.25)
        failures.failed(task, raised(KeyError("k")), None)
    assert [record.getMessage() for record in caplog.records] == [
        "The handler failed for orders-0 offset 0, attempt 1: ValueError: no; the next attempt follows in 0.2 s",
        "The handler failed for orders-0 offset 0, attempt 1: KeyError: 'k'; no attempt follows",
    ]
    assert caplog.text.count("in raised") == 2


def test_traceback_begins_with_the_frame_of_the_handler(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """Frames of the processor would hide the frame of the handler."""

    def handle(_: Message) -> None:
        raise ValueError("no")

    handler = checked_handler(handle, max_batch=1, processes=False)
    with pytest.raises(ValueError, match="no") as caught:
        handler.run(task.messages[0], HandlerContext(task, None))
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without the frame of this test
    with caplog.at_level(logging.WARNING, LOGGER):
        HandlerFailures(Counter()).failed(task, error, None)
    assert "in handle" in caplog.text
    assert "in run" not in caplog.text


def test_further_failures_are_counted_and_logged_at_powers_of_ten(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """A thousand failures of one kind cause four warnings; the other failures are logged at DEBUG."""
    failures = HandlerFailures(Counter())
    with caplog.at_level(logging.DEBUG, LOGGER):
        for _ in range(1_000):
            failures.failed(task, ValueError("no"), 0.0)
    assert len(caplog.records) == 1_000
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert warnings[-1] == (
        "Handlers failed 1000 times with ValueError; the latest failure, for orders-0 offset 0, attempt 1: no; the "
        "next attempt follows in 0.0 s"
    )


def test_dead_letters_are_logged_once_then_counted(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """A topic whose records all fail does not fill the log."""
    failures = HandlerFailures(Counter())
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(100):
            failures.dead_lettered(task, ValueError("no"))
    assert [record.getMessage() for record in caplog.records] == [
        f"Dead-lettered orders-0 offset 0 after attempt 1: ValueError: no (dead letters: {count})"
        for count in (1, 10, 100)
    ]


def test_number_of_kinds_is_bounded(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """A program that creates an exception class for each failure fills neither memory nor the log."""
    counted: Counter[str] = Counter()
    failures = HandlerFailures(counted)
    with caplog.at_level(logging.WARNING, LOGGER):
        for number in range(MOST_KINDS + 50):
            failures.failed(task, type(f"Error{number}", (Exception,), {})(), None)
    assert len(counted) == MOST_KINDS + 1
    assert counted["other errors"] == 50
    assert len(caplog.records) == MOST_KINDS + 2  # the first and the tenth failure of the other kinds


def test_error_whose_message_cannot_be_formatted_is_logged(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """An application's exception class may be broken, but that must not end the worker."""
    failures = HandlerFailures(Counter())
    with caplog.at_level(logging.WARNING, LOGGER):
        failures.failed(task, raised(UnformattableError()), None)
        failures.dead_lettered(task, UnformattableError())
    assert "UnformattableError: <exception str() failed>; no attempt follows" in caplog.text


def test_wrong_result_is_logged_without_the_frames_of_the_package(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the handler and the fix; frames of the processor would suggest a bug in the processor."""
    calls = HandlerCalls(
        checked_handler(lambda _: 5), RetryPolicy.from_argument(None), is_batch=False, timeout_s=None, prepare=None
    )
    with pytest.raises(ConfigurationError) as caught:
        calls.run(task)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without the frame of this test
    with caplog.at_level(logging.WARNING, LOGGER):
        HandlerFailures(Counter()).failed(task, error, None)
    assert "the handler returned a value of type int" in caplog.text
    assert "File" not in caplog.text
