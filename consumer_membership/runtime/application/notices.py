"""The member's errors for the application, as the error messages that `poll` of confluent-kafka returns."""

from __future__ import annotations

from time import monotonic

from confluent_kafka import KafkaError, Message

from consumer_membership.errors import FatalGroupError
from consumer_membership.membership.effects import Problem, RaiseToApplication
from consumer_membership.runtime.application.error_message import error_message
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.line import WakeUp
from consumer_membership.types import FATAL_CODE, BrokerError

#: A fatal error is returned again after this many seconds at the earliest: programs log each error message.
REPEAT_FATAL_AFTER_S = 1.0


def kafka_error(error: BrokerError) -> KafkaError:
    """The error with the broker's code and message; if the broker sent no message, with librdkafka's."""
    if error.message or error.remedy:
        return KafkaError(error.code, error.description)
    known = KafkaError(error.code)
    return known if known.name() == error.name else KafkaError(error.code, error.name)


def message_of(notice: RaiseToApplication) -> Message:
    """The message that `poll()` returns for this error."""
    if notice.problem is Problem.FATAL:
        return error_message(notice.topic, KafkaError(notice.error.code, str(notice.error), fatal=True))
    return error_message(notice.topic, kafka_error(notice.error))


class Notices:
    """The errors that wait for `poll`, and the error that ended the membership."""

    def __init__(self, wake_up: WakeUp) -> None:
        #: To be returned by `poll` and `consume`, oldest first.
        self.messages: HandOutQueue[Message] = HandOutQueue()
        wake_up.add_reason(lambda: bool(self.messages))
        self._fatal: RaiseToApplication | None = None
        #: When the fatal error was added last (monotonic clock).
        self._added_at = 0.0

    def add(self, notice: RaiseToApplication) -> None:
        """Return this error from the next poll."""
        self.messages.append(message_of(notice))
        if notice.problem is Problem.FATAL:
            self._fatal, self._added_at = notice, monotonic()

    def repeat_fatal(self) -> None:
        """Add the error that ended the membership again, if it was last added at least a second ago.

        librdkafka returns it once. A program that ignores it, or treats it as a temporary error, would wait forever.
        """
        if self._fatal is not None and not self.messages and monotonic() - self._added_at >= REPEAT_FATAL_AFTER_S:
            self.add(self._fatal)

    def refuse_if_fatal(self, what: str) -> None:
        """Raise if the member was refused permanently."""
        if self._fatal is not None:
            raise FatalGroupError(f"{what}: {self._fatal.error}", FATAL_CODE)

    def clear_subscription_fatal(self) -> None:
        """Forget a fatal error that ends with its subscription: another subscription replaces it."""
        if self._fatal is not None and self._fatal.ends_with_subscription:
            self._fatal = None

    def clear_fatal(self) -> None:
        """Forget the error that ended an earlier membership: the group gives this member partitions again."""
        self._fatal = None
