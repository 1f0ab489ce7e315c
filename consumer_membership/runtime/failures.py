"""Repeated failures are logged once, then counted."""

from __future__ import annotations

import logging

from consumer_membership.runtime.log_lines import PackageLog

logger = PackageLog("consumer_membership.network", "BROKER")


def is_power_of_ten(count: int) -> bool:
    """Whether a repetition with this count is logged: the 1st, 10th, 100th, ... of a row."""
    return str(count).strip("0") == "1"


class FailureLog:
    """The log of one action that is retried until it succeeds.

    The first failure is a WARNING, and so is each whose count is a power of ten; those between are DEBUG. The success
    after failures is an INFO with their count, so that the log shows how long it lasted.
    """

    __slots__ = ("_count", "_log", "_what")

    def __init__(self, what: str, log: logging.Logger | PackageLog = logger) -> None:
        self._what = what
        self._log = log
        self._count = 0

    @property
    def count(self) -> int:
        """The failures since the last success."""
        return self._count

    def failed(self, reason: object) -> None:
        """Count a failure."""
        self._count += 1
        if self._count == 1:
            self._log.warning("%s failed: %s", self._what, reason)
        elif is_power_of_ten(self._count):
            self._log.warning("%s failed %d times in a row: %s", self._what, self._count, reason)
        else:
            self._log.debug("%s failed again (%d times in a row): %s", self._what, self._count, reason)

    def succeeded(self) -> None:
        """Count a success."""
        if self._count:
            self._log.info("%s succeeded after %d failures", self._what, self._count)
        else:
            self._log.debug("%s succeeded", self._what)
        self._count = 0
