"""What the member tells the application, as the messages with errors that confluent-kafka's users expect."""

from __future__ import annotations

from time import monotonic

from confluent_kafka import KafkaError, Message

from consumer_membership.errors import FatalGroupError
from consumer_membership.membership.effects import Problem, RaiseToApplication
from consumer_membership.runtime.application.error_message import error_message
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.line import WakeUp
from consumer_membership.types import FATAL_CODE, BrokerError

#: How long a fatal error that was told is not told again, in seconds: programs log what they are told.
TOLD_FOR_S = 1.0


def kafka_error(error: BrokerError) -> KafkaError:
    """The error with the broker's own code and words; librdkafka's words where the broker said none."""
    if error.message or error.remedy:
        return KafkaError(error.code, error.words)
    known = KafkaError(error.code)
    return known if known.name() == error.name else KafkaError(error.code, error.name)


def message_of(notice: RaiseToApplication) -> Message:
    """The message that `poll()` returns for this."""
    if notice.problem is Problem.FATAL:
        return error_message(notice.topic, KafkaError(notice.error.code, str(notice.error), fatal=True))
    return error_message(notice.topic, kafka_error(notice.error))


class Notices:
    """What one application is still to be told, and the error that ended its membership."""

    def __init__(self, wake_up: WakeUp) -> None:
        #: To be returned by `poll` and `consume`, oldest first.
        self.messages: HandOutQueue[Message] = HandOutQueue()
        wake_up.add_reason(lambda: bool(self.messages))
        self._fatal: RaiseToApplication | None = None
        #: When it was told last.
        self._told_at = 0.0

    def tell(self, notice: RaiseToApplication) -> None:
        """Have the application told this."""
        self.messages.append(message_of(notice))
        if notice.problem is Problem.FATAL:
            self._fatal, self._told_at = notice, monotonic()

    def tell_again(self) -> None:
        """Tell the error that ended the membership once more if that is a while ago.

        librdkafka tells it once. A program that overlooked it, or took it for one that passes, would wait for ever.
        """
        if self._fatal is not None and not self.messages and monotonic() - self._told_at >= TOLD_FOR_S:
            self.tell(self._fatal)

    def refuse_if_fatal(self, what: str) -> None:
        """Raise if the member was refused for good."""
        if self._fatal is not None:
            raise FatalGroupError(f"{what}: {self._fatal.error}", FATAL_CODE)

    def forgive_subscription(self) -> None:
        """Forget a fatal error that ends with its subscription: another one takes its place."""
        if self._fatal is not None and self._fatal.ends_with_subscription:
            self._fatal = None

    def forgive(self) -> None:
        """Forget the error that ended an earlier membership: the group gives this member partitions again."""
        self._fatal = None
