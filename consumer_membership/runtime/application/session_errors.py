"""Calls that a session cannot take in its present condition; front ends make their users' exceptions of them."""

from __future__ import annotations

from consumer_membership.errors import UseError

#: librdkafka's own codes beside those in `types`: in confluent-kafka their names begin with an underscore.
NO_OFFSET_CODE = -168
STATE_CODE = -172
INVALID_ARG_CODE = -186
UNKNOWN_PARTITION_CODE = -190


class ClosedError(UseError):
    """The consumer is closed."""


class ForkedError(UseError):
    """The consumer was made in another process."""


class StateError(UseError):
    """The call does not fit what is going on; `code` is librdkafka's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
