"""The health of the handlers that process a consumer's records, as a processor reports it.

These are values only. `consumer_membership.processing` creates them, and a consumer without a processor has none. The
observer requests a `HandlerHealth` whenever it derives a verdict, and receives `HandlerFact`s when they happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.text import counted, excerpt, printable
from consumer_membership.types import Instant, TopicPartition


class TopicPartitionOffset(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int


#: A frame of a stack: the name of the file without its folder, the line, and the function.
_FRAME = re.compile(r'^ *File "(?:.*[/\\])?(.+)", line (\d+), in (.+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningHandler:
    """One running call of a handler; a batch is named by its first record.

    Attributes:
        partition: The partition of the record.
        offset: The offset of the record.
        key: The key of the record; None: it has none.
        attempt: The number of the attempt, from 1.
        began_at: When this attempt began (monotonic clock).
        deadline: When it exceeds `handler_timeout` (monotonic clock); None: never.
        stack: The stack of the handler now, as `traceback` formats it; "": not known.
        can_be_cancelled: Whether the processor can end the call: coroutines and processes, but not threads.
        is_disowned: Whether the partition was revoked or lost meanwhile, so that the result is ignored.
    """

    partition: TopicPartition
    offset: int
    key: bytes | None
    attempt: int
    began_at: Instant
    deadline: Instant | None
    stack: str = ""
    can_be_cancelled: bool = False
    is_disowned: bool = False

    @property
    def place(self) -> str:
        """The partition and the offset: `orders-3 offset 42`."""
        return f"{self.partition.topic}-{self.partition.partition} offset {self.offset}"

    @property
    def location(self) -> str:
        """The innermost line of the stack, `file.py:12 in work`; "" if the stack is not known."""
        frames = _FRAME.findall(self.stack)
        return "{}:{} in {}".format(*frames[-1]) if frames else ""

    @property
    def key_text(self) -> str:
        """The key in one line: text as it is, other bytes as Python shows them, long keys shortened."""
        if self.key is None:
            return "none"
        try:
            text = self.key.decode()
        except UnicodeDecodeError:
            return excerpt(repr(self.key))
        return excerpt(printable(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedRecord:
    """A record that was received and is not finished: it is queued, its handler runs, or it waits for a retry.

    Attributes:
        offset: The offset of the record.
        since: When it was received (monotonic clock).
        attempt: The number of attempts that began; 0: none yet.
        last_error: The error of the latest attempt that failed, `Class: message`; "": none failed.
    """

    offset: int
    since: Instant
    attempt: int = 0
    last_error: str = ""

    @property
    def text(self) -> str:
        """The offset, and the latest failed attempt if there is one, in one line."""
        failed = f" (attempt {self.attempt}; {excerpt(printable(self.last_error))})" if self.last_error else ""
        return f"offset {self.offset}{failed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerHealth:
    """The state of a consumer's handlers at one moment.

    Attributes:
        stuck: The running handlers that exceeded `handler_timeout`, the oldest first.
        failure: Why the processor ended or is ending: the record and its error, or the handler that cannot be ended;
            None: it did not fail.
        failed_at: When it failed (monotonic clock).
        oldest: The oldest unfinished record of each partition that has one.
    """

    stuck: tuple[RunningHandler, ...] = ()
    failure: str | None = None
    failed_at: Instant | None = None
    oldest: Mapping[TopicPartition, UnfinishedRecord] = field(default_factory=lambda: MappingProxyType({}))


# ---- facts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeadLettered:
    """A record was passed to the dead-letter target; `error` is the class name of the exception, without its text."""

    partition: TopicPartition
    offset: int
    attempts: int
    error: str

    @property
    def text(self) -> str:
        """The fact in one line."""
        place = f"{self.partition.topic}-{self.partition.partition} offset {self.offset}"
        return f"dead-lettered {place} after {counted(self.attempts, 'attempt')}: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlersDisowned:
    """Handlers still ran when their partitions were revoked or lost; their results are not committed.

    The next owner of the partitions processes these records again, while their handlers may still run here.

    Attributes:
        offsets: The offsets of the records in hand, by partition.
        is_loss: The partitions were lost; False: they were given up after `drain.timeout.ms`, or after the grace period
            of the end.
    """

    offsets: Mapping[TopicPartition, tuple[int, ...]]
    is_loss: bool

    @property
    def text(self) -> str:
        """The fact in one line."""
        places = (
            f"{topic}-{number} offset {offset}"
            for (topic, number), offsets in sorted(self.offsets.items())
            for offset in offsets
        )
        return f"disowned the handlers of {'lost' if self.is_loss else 'released'} partitions: {', '.join(places)}"


HandlerFact: TypeAlias = RecordDeadLettered | HandlersDisowned
