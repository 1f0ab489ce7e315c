"""An attempt of a task that stops in the middle of its work, like an attempt on a suspended machine.

    python -m tests.spark.sinks.zombie SINK POINT PLACE TOPIC EPOCH ATTEMPT FIRST END

It gives the records FIRST to END of partition 0 to a sink and stops itself (SIGSTOP) at the point. When it is
continued, the last line of stdout is its outcome: the error's class and text, or `done`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Message

from consumer_membership.errors import MembershipError
from consumer_membership.spark import SinkContext
from consumer_membership.spark.sinks import ParquetSink, PostgresSink
from consumer_membership.spark.sinks.objects import BucketDraft
from tests.spark.sinks.builders import batch, context
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from psycopg import Cursor
    from psycopg.rows import TupleRow

#: The table's columns, in the order of `row`.
COLUMNS = ("topic", "partition", "record_offset", "value")
_PR_SET_PDEATHSIG = 1
ResultT = TypeVar("ResultT")


@functools.cache
def stop() -> None:
    """Stop this process once."""
    os.kill(os.getpid(), signal.SIGSTOP)


def row(message: Message) -> Sequence[object]:
    """A record as a row of the test table."""
    return (message.topic(), message.partition(), message.offset(), (message.value() or b"").decode())


def insert(cursor: Cursor[TupleRow], messages: list[Message], _: SinkContext, *, table: str, point: str = "") -> None:
    """Write row by row; at the point `inside`, stop before the last row."""
    for number, message in enumerate(messages):
        if point == "inside" and number == len(messages) - 1:
            stop()
        cursor.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", row(message))  # noqa: S608 - a test's table


def _stopping_row(message: Message, *, last: int) -> Sequence[object]:
    if message.offset() == last:
        stop()
    return row(message)


def _postgres(point: str, place: str, table: str, last: int) -> PostgresSink[list[Message]]:
    if point == "copy":
        return PostgresSink.rows(place, table, COLUMNS, functools.partial(_stopping_row, last=last), name="s")
    write = functools.partial(insert, table=table, point=point)
    return PostgresSink(place, write, name="s", idle_timeout_s=0.5 if point == "inside" else 60.0)


def _stops_before(call: Callable[..., ResultT]) -> Callable[..., ResultT]:
    def stopped(*args: object) -> ResultT:
        stop()
        return call(*args)

    return stopped


def main(words: Sequence[str]) -> None:
    """Run as described above."""
    kind, point, place, topic, *numbers = words
    epoch, attempt, first, end = map(int, numbers)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parts = {0: range(first, end)}
    sink: Callable[[list[Message], SinkContext], None]
    if kind == "bucket":
        sink = ParquetSink(**json.loads(place))
    else:
        sink = ParquetSink(place) if kind == "parquet" else _postgres(point, place, topic, end - 1)
    if point == "link":
        os.link = _stops_before(os.link)  # between the draft and its publication
    if point == "put":
        BucketDraft.publish = _stops_before(BucketDraft.publish)  # type: ignore[method-assign]
    if point == "before":
        stop()
    try:
        sink(batch(parts, topic), context(parts, epoch=epoch, attempt=attempt, topic=topic))
    except MembershipError as error:
        print(type(error).__name__, error)
    else:
        print("done")


class Zombie:
    """The handle of a zombie, which is already stopped."""

    def __init__(self, *words: object, module: str) -> None:
        command = [sys.executable, "-m", module, *map(str, words)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended before its point: {status}"

    def go_on(self) -> str:
        """Continue it; return its outcome."""
        self._process.send_signal(signal.SIGCONT)
        out, _ = self._process.communicate(timeout=PATIENCE_S)
        return out.splitlines()[-1]

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def zombie(*words: object, module: str = __name__) -> Iterator[Zombie]:
    """A zombie that is killed at the end of the block."""
    one = Zombie(*words, module=module)
    try:
        yield one
    finally:
        one.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
