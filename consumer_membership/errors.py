"""The exceptions of this package. The class shows which side has to act: you, the broker, the network or this package.

    MembershipError
    ├── ConfigurationError       you: a key, a value or a combination that cannot work
    │   └── ArgumentTypeError    you: a value of the wrong type (also a TypeError)
    ├── UseError                 you: a call that is not possible in the current state (closed, forked, pickled)
    ├── AssignmentError          you: your own assignor returned an assignment that cannot be sent to the group
    ├── UnsupportedProtocolError the broker does not support the protocol that the configuration requires
    ├── GroupError               the coordinator refused the member (fenced, group full, not authorized, ...)
    │   └── FatalGroupError      the coordinator refused the member permanently; it does not rejoin
    ├── CommitError              the coordinator refused a commit
    ├── FencedError              another member owns the partition; nothing was written
    ├── LeaseOverError           the lease of a partition is over, so another member may own it
    ├── OutputError              you: a record that a handler returned cannot be written
    ├── TransactionAbortedError  a transaction was aborted; nothing was written, and it can be tried again
    ├── FatalTransactionError    a transaction cannot be finished; this process cannot continue
    ├── HandlerError             your own handler failed for a record; the processor stopped before it
    ├── WorkerDiedError          a worker process ended while it ran a handler; the record can be retried
    ├── RemoteHandlerError       your handler raised an exception in a worker process that cannot be sent from there
    ├── SinkError                your own sink raised an exception; the message has the offsets
    ├── DrainError               a bounded drain cannot be finished; the message has the remaining partitions
    ├── DeadLetterError          a record that failed could not be written to the dead-letter topic
    ├── DataLossError            the log no longer has the offsets that a query has to read
    ├── TransportError           no broker, no response, or a broken connection
    │   └── AuthenticationError  the broker refused the client, or the client refused the broker
    └── InternalError            a bug of this package; please report it with its text

`Consumer` raises subclasses of these that are also a `confluent_kafka.KafkaException` (`clients/exceptions.py`), so
that the `except` clauses of existing programs match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported for types only: the guardian's process imports this module and few others
    from consumer_membership.types import TopicPartition

#: The longest part of a value that a message shows: a value may be a certificate, or an endless list.
_SHOWN = 200


class MembershipError(Exception):
    """Base class of every exception of this package."""


class ConfigurationError(MembershipError):
    """The configuration cannot work; the message has the key, the value and the fix, which are also attributes."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        shown = repr(value)
        super().__init__(f"{key}={shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'}: {remedy}")
        self.key = key
        self.value = value
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[str, object, str]]:
        """Pickle the arguments: worker processes send their errors to the processor."""
        return type(self), (self.key, self.value, self.remedy)


class ArgumentTypeError(ConfigurationError, TypeError):
    """A configuration value or an argument has the wrong type; the message has its name, its value and the fix."""


class UseError(MembershipError):
    """The call is not possible in the current state of the object, for example after `close`."""


class AssignmentError(MembershipError):
    """An assignor returned an invalid assignment; the message has the partition and the member."""


class UnsupportedProtocolError(MembershipError):
    """The broker does not support a request, or the version of a request, that is required."""


class GroupError(MembershipError):
    """The coordinator refused the member; `code` is the error code of Kafka."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class FatalGroupError(GroupError):
    """The coordinator refused the member permanently; create a new consumer when the cause is removed."""


class CommitError(MembershipError):
    """The coordinator refused a commit; `code` is the error code of Kafka."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class FencedError(MembershipError):
    """Another member owns the partition, and nothing was written. The message has the partition and the last writer.

    `is_final`: a later attempt of the same member, or a later run of its pipeline, has written, so this member cannot
    continue. If it is False, the group decides whether the member can rejoin.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class LeaseOverError(MembershipError):
    """The lease of a partition is over: another member may own it. The message has the partition and the reason."""


class OutputError(MembershipError):
    """A record that a handler returned cannot be written; the message has the topic and the reason."""


class TransactionAbortedError(MembershipError):
    """A transaction was aborted and nothing was written, so its content can be written again.

    `code` is the error code of Kafka. Take the group metadata again first: the member's epoch may have changed.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class FatalTransactionError(MembershipError):
    """The brokers refused the producer of transactions permanently; `code` is the error code of Kafka.

    End the process: its next owner continues from the committed offsets, so each output is still written once.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class HandlerError(MembershipError):
    """A handler failed for a record for the last time, or cannot be ended; the processor stopped before this record.

    `__cause__` is the exception of the handler, if it raised one. The offset is not committed.

    Attributes:
        partition: The partition of the record.
        offset: The offset of the record; of a batch, that of its first record.
    """

    def __init__(self, message: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class WorkerDiedError(MembershipError):
    """A worker process ended while it ran a handler; the message has its exit code or signal. It can be retried."""


class RemoteHandlerError(MembershipError):
    """A handler in a worker process raised an exception that cannot be pickled; the message has its class and text."""


class SinkError(MembershipError):
    """A sink raised an exception, or cannot be created in a task; the message has the uncommitted offsets."""


class DrainError(MembershipError):
    """A bounded drain cannot reach its end; the message has the partitions, their positions and the reason."""


class DeadLetterError(MembershipError):
    """A failed record was not stored as a dead letter; the message has the record, the topic and the broker's error."""


class DataLossError(MembershipError):
    """The log no longer has offsets that have to be read; the message has the partition and the offsets."""


class TransportError(MembershipError):
    """There is no connection, no response in time, or a response that is not in the Kafka protocol."""


class AuthenticationError(TransportError):
    """The broker or the client refused the other side; the message has the text of the broker and never a secret."""


class InternalError(MembershipError):
    """A bug of this package: a state that its own rules exclude. Please report it with its text."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. This is a bug of consumer_membership; please report it with this text.")
