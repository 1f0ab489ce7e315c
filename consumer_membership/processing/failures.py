"""The log of failed handlers: each kind of error once with its traceback, then counted.

Without it, a program would see an error only after the last attempt, in the dead letter or as `HandlerError`. Thousands
of records may fail for one cause, so the 1st, 10th, 100th, ... failure of each kind is a WARNING, and all others DEBUG.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from threading import Lock
from types import TracebackType

from consumer_membership.errors import InternalError, MembershipError
from consumer_membership.processing.scheduler import Task
from consumer_membership.processing.stacks import traceback_of_handler
from consumer_membership.runtime.failures import is_power_of_ten
from consumer_membership.text import error_text, message_of

_log = partial(logging.getLogger, "consumer_membership.processing")

#: The kinds of errors that are counted separately: a program may create exception classes without a limit.
MOST_KINDS = 100
_OTHER = "other errors"


class HandlerFailures:
    """Counts failed attempts by the class of their error, in `failed`, and logs them; for any thread."""

    def __init__(self, failed: Counter[str]) -> None:
        self._lock = Lock()
        self._failed = failed
        self._dead = 0

    def failed(self, task: Task, error: BaseException, delay_s: float | None) -> None:
        """Log a failed attempt; the next one follows after `delay_s` seconds, or none does."""
        kind = type(error).__qualname__
        with self._lock:
            if kind not in self._failed and len(self._failed) >= MOST_KINDS:
                kind = _OTHER
            self._failed[kind] += 1
            count = self._failed[kind]
        if delay_s is not None:
            following = f"the next attempt follows in {delay_s:.1f} s"
        elif len(task.records) > 1:
            following = "its records are handled one by one"
        else:
            following = "no attempt follows"
        topic, number = task.owned.partition
        what = f"{topic}-{number} offset {task.first_offset}, attempt {task.attempt}"
        if count == 1:
            exc_info = type(error), error, _traceback_of(error)
            _log().warning("The handler failed for %s: %s; %s", what, error_text(error), following, exc_info=exc_info)
        else:
            _log().log(
                logging.WARNING if is_power_of_ten(count) else logging.DEBUG,
                "Handlers failed %d times with %s; the latest failure, for %s: %s; %s",
                count,
                kind,
                what,
                message_of(error),
                following,
            )

    def dead_lettered(self, task: Task, error: BaseException) -> None:
        """Log that the record of this task was passed to the target for dead letters."""
        with self._lock:
            self._dead += 1
            count = self._dead
        topic, number = task.owned.partition
        _log().log(
            logging.WARNING if is_power_of_ten(count) else logging.DEBUG,
            "Dead-lettered %s-%d offset %d after attempt %d: %s (dead letters: %d)",
            topic,
            number,
            task.first_offset,
            task.attempt,
            error_text(error),
            count,
        )


def _traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback from the handler's own frame on.

    Errors of this package for a wrong result, or from a worker process, have no such frame, and need none. All other
    errors without it are bugs, whose frames are needed.
    """
    found = traceback_of_handler(error.__traceback__)
    if found is None and (isinstance(error, InternalError) or not isinstance(error, MembershipError)):
        is_remote = hasattr(error, "__notes__")  # with the stack trace of the worker process
        return None if is_remote else error.__traceback__
    return found
