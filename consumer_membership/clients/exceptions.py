"""The exceptions of the drop-in: this package's by meaning, confluent-kafka's by what catches them.

A program written for confluent-kafka catches `KafkaException` and looks at the `KafkaError` in `args[0]`, or catches
`RuntimeError("Consumer closed")`; it goes on doing so. A program written for this package catches `MembershipError`.
The session below raises this package's plain errors; `raises_as_confluent` translates them.
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
    """The C type takes no text that is not UTF-8, and none with a NUL; strangers' words may have both."""
    return KafkaError(code, speakable(message), fatal=fatal)


class ConfigurationRefusedError(ConfigurationError, KafkaException):
    """A configuration that cannot work; `args[0]` is a KafkaError with _INVALID_ARG."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(key, value, remedy)
        self.args = (_error(INVALID_ARG_CODE, str(self.args[0])),)


class GroupIdMissingError(ConfigurationError, ValueError):
    """No group.id: confluent-kafka raises ValueError."""


class CallbackTypeError(ConfigurationError, TypeError):
    """A callback that cannot be called: confluent-kafka raises TypeError."""


class CallbackValueError(ConfigurationError, ValueError):
    """A throttle_cb that cannot be called: confluent-kafka raises ValueError."""


class AuthenticationRefusedError(AuthenticationError, KafkaException):
    """No credentials, or not the right ones; `args[0]` is a KafkaError with SASL_AUTHENTICATION_FAILED."""

    def __init__(self, message: str) -> None:
        super().__init__(_error(KafkaError.SASL_AUTHENTICATION_FAILED, message))


class ClosedConsumerError(ClosedError, RuntimeError):
    """A call after close."""


class ForkedConsumerError(ForkedError, RuntimeError):
    """A call in a forked child."""


class PicklingError(UseError, TypeError):
    """A consumer cannot be copied or sent to another process."""


class InvalidArgumentError(UseError, ValueError):
    """An argument that cannot work; the text names it, its value and what to give."""

    def __init__(self, name: str, value: object, remedy: str) -> None:
        super().__init__(f"{name}={value!a}: {remedy}")


class InvalidCallError(UseError, KafkaException):
    """A call that does not fit what is going on; `args[0]` is the KafkaError."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(_error(code, message))


class CommitFailedError(CommitError, KafkaException):
    """A commit that failed as a whole; `args[0]` is the KafkaError."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.args = (_error(code, message),)


class RequestRefusedError(GroupError, KafkaException):
    """A question that a broker refused; `args[0]` is the KafkaError with the broker's code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.args = (_error(code, message),)


class RequestTimedOutError(TransportError, KafkaException):
    """A question that nobody answered in time; `args[0]` is a KafkaError with _TIMED_OUT."""

    def __init__(self, message: str) -> None:
        super().__init__(_error(TIMED_OUT_CODE, message))


class FatalMemberError(FatalGroupError, KafkaException):
    """A call of a member that was refused for good; `args[0]` is a fatal KafkaError whose text names the cause."""

    def __init__(self, message: str, code: int = FATAL_CODE) -> None:
        super().__init__(message, code)
        self.args = (_error(code, message, fatal=True),)


#: The drop-in's exception for each of the session's that carries a code, and that carries none.
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
    """The drop-in's exception for one of the session's."""
    match error:
        case ConfigurationError():
            is_group_id = error.key == "group.id" and error.value in (None, "")
            return (GroupIdMissingError if is_group_id else ConfigurationRefusedError)(
                error.key, error.value, error.remedy
            )
        case StateError() | RefusedError() | FatalGroupError() | CommitError():
            return _WITH_CODE[type(error)](str(error), error.code)
        case ClosedError() | ForkedError() | UnansweredError() | AuthenticationError():
            return _WITHOUT_CODE[type(error)](str(error))
        case _:
            return error


def raises_as_confluent(method: Callable[P, R]) -> Callable[P, R]:
    """The same method, raising the drop-in's exceptions."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except MembershipError as error:
            if isinstance(error, (KafkaException, RuntimeError, ValueError, TypeError)):
                raise  # translated already: from an inner call, or from a user's callback
            raise exception_of(error) from error

    return guarded
