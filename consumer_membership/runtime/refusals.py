"""Calls that a session cannot take in its present condition; front ends translate them into their users' exceptions."""

from __future__ import annotations

from consumer_membership.errors import UseError


class ClosedError(UseError):
    """The consumer is closed."""


class ForkedError(UseError):
    """The consumer was made in another process."""


class StateError(UseError):
    """The call does not fit what is going on; `code` is librdkafka's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
