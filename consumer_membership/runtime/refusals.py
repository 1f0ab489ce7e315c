"""Calls that a session cannot take in its present condition, and questions without an answer.

Front ends translate them into their users' exceptions.
"""

from __future__ import annotations

from consumer_membership.errors import GroupError, TransportError, UseError


class ClosedError(UseError):
    """The consumer is closed."""


class ForkedError(UseError):
    """The consumer was made in another process."""


class StateError(UseError):
    """The call does not fit what is going on; `code` is librdkafka's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class RefusedError(GroupError):
    """A broker refused what the application asked; `code` is Kafka's."""


class UnansweredError(TransportError):
    """Nobody answered what the application asked within its time; the text says why, as far as that is known."""
