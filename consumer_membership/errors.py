"""Every error that this package raises, and whose fault it is.

    MembershipError
    ├── ConfigurationError       the caller's: a key, a value or a use that cannot work
    │   └── ArgumentTypeError    the same, of the wrong type (a TypeError, too)
    ├── UseError                 the caller's: a call that this object cannot take now (closed, forked, pickled)
    ├── AssignmentError          the caller's own assignor: a result that cannot be sent to the group
    ├── UnsupportedProtocolError the broker does not offer what the configuration asks for
    ├── GroupError               the coordinator's refusal of the member (fenced, group full, not authorised, ...)
    │   └── FatalGroupError      final: the member does not come back by itself
    ├── CommitError              the coordinator's refusal of a commit
    ├── FencedError              somebody else owns the partition by now: nothing was written
    ├── SinkError                the caller's own sink: what it raised, and for which offsets
    ├── DrainError               a bounded drain that cannot be finished; what is left, and why
    ├── DataLossError            offsets that a query was to read are gone from the log
    ├── TransportError           no broker, no answer, a broken or foreign stream
    │   └── AuthenticationError  the broker does not believe who this client is, or the other way round
    └── InternalError            our bug; please report it with its text

The drop-in raises subclasses of these that are `confluent_kafka.KafkaException` too (`clients/exceptions.py`), so that
programs written for confluent-kafka go on catching what they caught.
"""

from __future__ import annotations

#: So much of a value stands in a message: it may be a certificate, or a list without end.
_SHOWN = 200


class MembershipError(Exception):
    """Any error of this package."""


class ConfigurationError(MembershipError):
    """A configuration that cannot work; the text names the key, the value and the remedy."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        shown = repr(value)
        super().__init__(f"{key}={shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'}: {remedy}")
        self.key = key
        self.value = value
        self.remedy = remedy


class ArgumentTypeError(ConfigurationError, TypeError):
    """A key or an argument of the wrong type; the text names it, the value and what to give."""


class UseError(MembershipError):
    """A call that this object cannot take in its present condition."""


class AssignmentError(MembershipError):
    """An assignor's result that must not be sent to the group; the text names the partition and the member."""


class UnsupportedProtocolError(MembershipError):
    """The broker does not offer the request, or the version of it, that is needed."""


class GroupError(MembershipError):
    """The coordinator refused the member; `code` is Kafka's error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class FatalGroupError(GroupError):
    """The coordinator refused the member for good."""


class CommitError(MembershipError):
    """The coordinator refused a commit; `code` is Kafka's error code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class FencedError(MembershipError):
    """Whoever writes was replaced; nothing was written. The text names the partition, and who wrote last.

    `is_final`: a later attempt of the same member wrote, or a later run of its pipeline, so that it has no place to
    come back to. Where that is not known, the group says whether the member has one.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class SinkError(MembershipError):
    """A sink gave up: the text names the partitions and offsets not committed; or it cannot be made in a task."""


class DrainError(MembershipError):
    """A bounded drain cannot reach its end; the text names the partitions, how far they are, and why."""


class DataLossError(MembershipError):
    """Offsets that were to be read are not in the log any more; the text names the partition and the offsets."""


class TransportError(MembershipError):
    """No connection, no answer in time, or bytes that are not Kafka's."""


class AuthenticationError(TransportError):
    """One side does not believe who the other one is; the text has the broker's words, and never a secret."""


class InternalError(MembershipError):
    """A bug of this package: a condition that its own rules exclude."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. This is a bug of consumer_membership; please report it with this text.")
