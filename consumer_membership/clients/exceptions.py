"""The exceptions of the drop-in: each is a class of this package and also the type that confluent-kafka raises.

A program for confluent-kafka catches `KafkaException` and reads the `KafkaError` in `args[0]`, or catches
`RuntimeError("Consumer closed")`; both continue to work. A program for this package catches `MembershipError`. The
session raises this package's plain errors; `raises_as_confluent` translates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from consumer_membership.errors import (
    AuthenticationError,
    CommitError,
    ConfigurationError,
    FatalGroupError,
    GroupError,
    MembershipError,
    TransportError,
    UseError,
)
from consumer_membership.runtime.application.session_errors import (
    INVALID_ARG_CODE,
    ClosedError,
    ForkedError,
    StateError,
)
from consumer_membership.runtime.line import RefusedError, UnansweredError
from consumer_membership.text import speakable
from consumer_membership.types import FATAL_CODE, TIMED_OUT_CODE

P = ParamSpec("P")
R = TypeVar("R")


def _error(code: int, message: str, *, fatal: bool = False) -> KafkaError:
    """Return a KafkaError; its C type accepts only UTF-8 text without NUL, which a broker's message may contain."""
    return KafkaError(code, speakable(message), fatal=fatal)


class ConfigurationRefusedError(ConfigurationError, KafkaException):
    """The configuration cannot work; `args[0]` is a KafkaError with the code _INVALID_ARG."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(key, value, remedy)
        self.args = (_error(INVALID_ARG_CODE, str(self.args[0])),)


class GroupIdMissingError(ConfigurationError, ValueError):
    """group.id is missing; confluent-kafka raises ValueError."""


class CallbackTypeError(ConfigurationError, TypeError):
    """A callback is not callable; confluent-kafka raises TypeError."""


class CallbackValueError(ConfigurationError, ValueError):
    """throttle_cb is not callable; confluent-kafka raises ValueError."""


class AuthenticationRefusedError(AuthenticationError, KafkaException):
    """Credentials are missing or wrong; `args[0]` is a KafkaError with the code SASL_AUTHENTICATION_FAILED."""

    def __init__(self, message: str) -> None:
        super().__init__(_error(KafkaError.SASL_AUTHENTICATION_FAILED, message))


class ClosedConsumerError(ClosedError, RuntimeError):
    """A method was called after close; also a RuntimeError."""


class ForkedConsumerError(ForkedError, RuntimeError):
    """A method was called in a forked child process; also a RuntimeError."""


class PicklingError(UseError, TypeError):
    """A consumer cannot be copied or sent to another process; also a TypeError."""


class InvalidArgumentError(UseError, ValueError):
    """An argument is invalid; the message has its name, its value and the fix. Also a ValueError."""

    def __init__(self, name: str, value: object, remedy: str) -> None:
        super().__init__(f"{name}={value!a}: {remedy}")


class InvalidCallError(UseError, KafkaException):
    """The call is not possible in the current state; `args[0]` is the KafkaError."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(_error(code, message))


class CommitFailedError(CommitError, KafkaException):
    """A commit failed for all of its partitions; `args[0]` is the KafkaError."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.args = (_error(code, message),)


class RequestRefusedError(GroupError, KafkaException):
    """A broker rejected a request; `args[0]` is the KafkaError with the broker's code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.args = (_error(code, message),)


class RequestTimedOutError(TransportError, KafkaException):
    """A request received no response in time; `args[0]` is a KafkaError with the code _TIMED_OUT."""

    def __init__(self, message: str) -> None:
        super().__init__(_error(TIMED_OUT_CODE, message))


class FatalMemberError(FatalGroupError, KafkaException):
    """The membership ended with a fatal error; `args[0]` is a fatal KafkaError whose message has the cause."""

    def __init__(self, message: str, code: int = FATAL_CODE) -> None:
        super().__init__(message, code)
        self.args = (_error(code, message, fatal=True),)


#: The drop-in's exception for each session error: first the errors with a code, then those without.
_WITH_CODE: Mapping[type[MembershipError], Callable[[str, int], MembershipError]] = MappingProxyType(
    {
        StateError: InvalidCallError,
        RefusedError: RequestRefusedError,
        FatalGroupError: FatalMemberError,
        CommitError: CommitFailedError,
    }
)
_WITHOUT_CODE: Mapping[type[MembershipError], Callable[[str], MembershipError]] = MappingProxyType(
    {
        ClosedError: ClosedConsumerError,
        ForkedError: ForkedConsumerError,
        UnansweredError: RequestTimedOutError,
        AuthenticationError: AuthenticationRefusedError,
    }
)


def exception_of(error: MembershipError) -> MembershipError:
    """Return the drop-in's exception for a session error."""
    match error:
        case ConfigurationError():
            is_group_id = error.key == "group.id" and error.value in (None, "")
            return (GroupIdMissingError if is_group_id else ConfigurationRefusedError)(
                error.key, error.value, error.remedy
            )
        case StateError() | RefusedError() | FatalGroupError() | CommitError():
            return _entry(_WITH_CODE, error)(str(error), error.code)
        case ClosedError() | ForkedError() | UnansweredError() | AuthenticationError():
            return _entry(_WITHOUT_CODE, error)(str(error))
        case _:
            return error


def _entry(table: Mapping[type[MembershipError], R], error: MembershipError) -> R:
    """Return the entry for the class of this error, or for the base class that the table has."""
    return next(entry for kind, entry in table.items() if isinstance(error, kind))


def raises_as_confluent(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method so that it raises the drop-in's exceptions."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except MembershipError as error:
            if isinstance(error, (KafkaException, RuntimeError, ValueError, TypeError)):
                raise  # already translated: from a nested call, or from a user's callback
            raise exception_of(error) from error

    return guarded
