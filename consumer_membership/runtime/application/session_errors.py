"""The errors of calls that a session cannot perform in its current state; front ends translate them."""

from __future__ import annotations

from consumer_membership.errors import UseError

#: Codes of librdkafka itself, in addition to those in `types`; their names begin with an underscore.
NO_OFFSET_CODE = -168
STATE_CODE = -172
INVALID_ARG_CODE = -186
UNKNOWN_PARTITION_CODE = -190


class ClosedError(UseError):
    """The consumer is closed."""


class ForkedError(UseError):
    """The consumer was created in another process."""


class StateError(UseError):
    """The call is not possible at this moment; `code` is a code of librdkafka."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
