"""Signal handlers that raise, at each line of this package's code in turn or at random moments.

After each interrupt the application continues as a program that caught the exception does.
"""

from __future__ import annotations

import linecache
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import confluent_kafka
from confluent_kafka import Consumer as AnyConsumer
from confluent_kafka import Message
from confluent_kafka import TopicPartition as PartitionOffset

import consumer_membership
from tests.clients import scripted
from tests.clients.conftest import PARTITIONS
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import PATIENCE_S

#: Records in each partition.
RECORDS = 5_000
PACKAGE = str(Path(consumer_membership.__file__).parent)


class Interrupt(BaseException):
    """The exception that an application's signal handler raises."""


def is_cut_short(call: Callable[[], object], line: int) -> bool:
    """Make this call, and interrupt it at the `line`-th line of the package's code that it executes.

    Return whether the interrupt came before the call ended.
    """
    seen = 0
    latest: dict[FrameType, int] = {}

    def enter(frame: FrameType, _: str, __: object) -> Callable[..., object] | None:
        if not frame.f_code.co_filename.startswith(PACKAGE) or _is_below_scripted(frame) or _is_in_finalizer(frame):
            return None
        return step

    def step(frame: FrameType, event: str, __: object) -> Callable[..., object]:
        nonlocal seen
        if event != "line" or leaves_block(frame):
            return step
        seen += 1
        if seen == line:
            sys.settrace(None)
            raise Interrupt(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return step

    def leaves_block(frame: FrameType) -> bool:
        """Whether the frame is back at its `with`, where CPython runs no signal handler before `__exit__` has begun."""
        before, latest[frame] = latest.get(frame, 0), frame.f_lineno
        return before > frame.f_lineno and linecache.getline(
            frame.f_code.co_filename, frame.f_lineno
        ).lstrip().startswith("with ")

    before = sys.gettrace()
    sys.settrace(enter)  # type: ignore[arg-type]  # it returns itself
    try:
        next(_with_exceptions_of_its_own(call))
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _with_exceptions_of_its_own(call: Callable[[], object]) -> Iterator[object]:
    """Make this call in a generator, because its stack of handled exceptions ends with the generator.

    CPython 3.11 leaves the handled exception on the thread's stack if a trace function raises at an `except` line: each
    later exception of the process would have it as its context.
    """
    yield call()


def _is_below_scripted(frame: FrameType) -> bool:
    """Whether the scripted member runs this code."""
    return any(each.f_code.co_filename == scripted.__file__ for each in _stack(frame))


def _is_in_finalizer(frame: FrameType) -> bool:
    """Whether the garbage collector runs this code, which it may do at any moment; Python ignores its exceptions."""
    return any(each.f_code.co_name == "__del__" for each in _stack(frame))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield this frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


class Application:
    """The records that a program received, in order."""

    def __init__(self, consumer: ScriptedConsumer) -> None:
        self.consumer = consumer
        self.next = dict.fromkeys(range(PARTITIONS), 0)

    def take(self, *messages: Message | None) -> None:
        """Record these messages: each must be the next one of its partition."""
        for message in messages:
            if message is None:
                continue
            assert message.error() is None
            assert message.partition() is not None
            partition = message.partition() or 0
            assert (partition, message.offset()) == (partition, self.next[partition])
            self.next[partition] += 1

    def empty_buffer(self) -> None:
        """Take all records that were fetched."""
        while self.consumer._ready:
            self.take(self.consumer.poll(0))

    def fill_buffer(self) -> None:
        """Wait until records are buffered."""
        self.take(self.consumer.poll(PATIENCE_S))

    def begin_again(self) -> None:
        """Seek to the first records before the topic's end is reached."""
        if max(self.next.values()) > RECORDS // 2:
            for partition in self.consumer.assignment():
                self.consumer.seek(PartitionOffset(partition.topic, partition.partition, 0))
            self.next = dict.fromkeys(self.next, 0)

    def go_on(self) -> None:
        """Take a few records."""
        for _ in range(3):
            message = self.consumer.poll(PATIENCE_S)
            assert message is not None
            self.take(message)

    def finish(self) -> None:
        """Take all remaining records."""
        while min(self.next.values()) < RECORDS:
            message = self.consumer.poll(PATIENCE_S)
            assert message is not None
            self.take(message)


#: At most this many signals are sent for each completed call.
SIGNALS_PER_CALL = 5


@contextmanager
def storm(interrupts: list[None], calls: list[None], seed: int) -> Iterator[None]:
    """Send the main thread SIGINTs at random moments; if the handler interrupts this package, it counts and raises.

    It does not raise in the test's own lines, because this package does not keep records that the program already has,
    and not in a finalizer.
    `calls` counts the completed calls and limits the signals, because a busy machine may complete no call between two.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    main = threading.main_thread().ident or 0
    is_over = threading.Event()

    def handler(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename.startswith(PACKAGE) and not _is_in_finalizer(frame):
            interrupts.append(None)
            raise Interrupt

    def send() -> None:
        sent = 0
        while not is_over.wait(chance.random() * 0.002):
            if sent <= SIGNALS_PER_CALL * len(calls):
                signal.pthread_kill(main, signal.SIGINT)
                sent += 1

    before = signal.signal(signal.SIGINT, handler)
    sending = Thread(send)
    try:
        yield
    finally:
        is_over.set()
        sending.outcome()
        signal.signal(signal.SIGINT, before)


def read_in_storm(
    consumer: AnyConsumer, interrupts: list[None], until: Callable[[], bool], seed: int
) -> dict[int, list[int]]:
    """Return the records, by partition, of a program that makes several calls under frequent interrupts."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    found: dict[int, list[int]] = {}
    calls: list[None] = []

    def take(messages: list[Message]) -> None:
        for message in messages:
            assert message.error() is None
            found.setdefault(message.partition() or 0, []).append(message.offset() or 0)

    def turn() -> None:
        some = chance.choice([1, 7, 500])
        match chance.randrange(6):
            case 0:
                consumer.pause(consumer.assignment()[:2])
            case 1:
                consumer.resume(consumer.assignment())
            case 2 if found:
                consumer.commit(asynchronous=False)
            case 3:
                take(consumer.consume(some, 0.01))
            case _:
                for _ in range(some):
                    message = consumer.poll(0.01)
                    take([message] if message is not None else [])
                    calls.append(None)
        calls.append(None)

    with storm(interrupts, calls, seed):
        while not until():
            with suppress(Interrupt, confluent_kafka.KafkaException):  # for example, no offset to commit
                turn()
    return found
