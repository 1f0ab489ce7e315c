"""The one-line progress of a processor, and its live display on a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from dataclasses import replace
from itertools import count

from consumer_membership.health.handlers import UnfinishedRecord
from consumer_membership.metrics.handler_ledger import HandlerCounts, HandlerGauges, HandlerLedger
from consumer_membership.processing.progress import HandlingProgress, LiveLine, ProcessorProgress, live_line
from consumer_membership.types import TopicPartition

NOW = 1_000.0
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def counts(**changes: int) -> HandlerCounts:
    """Return the counts of a processor, with these changes."""
    made = HandlerLedger(lambda _: HandlerGauges()).counts(NOW)
    return replace(made, **changes)  # type: ignore[arg-type]  # the changes have the types of the counts


def progress(at: float = NOW, *, finished: int = 0, **partitions: HandlingProgress) -> ProcessorProgress:
    """Return the progress of these partitions of orders, named p0 and p1."""
    seen = {TopicPartition("orders", int(name[1:])): one for name, one in partitions.items()}
    return ProcessorProgress(at=at, partitions=seen, running=(), counts=counts(finished=finished))


def test_line_of_an_idle_processor_has_only_partitions_and_finished_records() -> None:
    """Zero values are omitted."""
    assert progress(p0=HandlingProgress(), finished=1_234).line() == "1,234 finished, 1 partition"


def test_line_sums_partitions_and_names_the_oldest_unfinished_record() -> None:
    """The oldest record over all partitions is named with its attempt and error."""
    young = UnfinishedRecord(offset=900, since=NOW - 1)
    old = UnfinishedRecord(offset=17, since=NOW - 75, attempt=3, last_error="ValueError: two\nlines")
    found = progress(
        p0=HandlingProgress(oldest_unfinished=young, running=2, queued=5),
        p1=HandlingProgress(oldest_unfinished=old, running=1, queued=10, retrying=1, finished_beyond=40),
    )
    assert found.line() == (
        "0 finished, 3 running, 15 queued, 1 waiting for a retry, oldest orders-1 offset 17 for 1 min 15 s (attempt 3; "
        "ValueError: two\\nlines), 40 finished beyond the commits, 2 partitions"
    )


def test_line_has_the_rate_since_an_earlier_value() -> None:
    """The rate counts the records that finished between two values."""
    before, after = progress(NOW, finished=100), progress(NOW + 2, finished=2_100)
    assert after.line(before) == "2,100 finished (1,000/s), 0 partitions"
    assert after.line(after) == "2,100 finished, 0 partitions"


def test_line_of_a_processor_with_dead_letters_and_skipped_records_shows_both() -> None:
    """Dead letters and records that an earlier owner finished are shown as totals."""
    found = replace(progress(finished=5), counts=counts(finished=5, dead_letters=2, skipped=3))
    assert found.line() == "5 finished, 2 dead-lettered, 3 skipped, 0 partitions"


def test_live_line_replaces_itself_and_stays_at_the_end() -> None:
    """Each value replaces the line; at the end of the processor, the last value and a new line remain."""
    out = io.StringIO()
    line = LiveLine(out)
    line.show(progress(finished=1))
    line.show(progress(finished=2))
    line.close()
    assert out.getvalue() == "\r\x1b[2K1 finished, 0 partitions\r\x1b[2K2 finished, 0 partitions\n"
    empty = io.StringIO()
    LiveLine(empty).close()
    assert empty.getvalue() == ""


def test_live_line_fits_the_terminal() -> None:
    """A longer line would wrap, and then the next line could not replace it."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as out:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        LiveLine(out).show(progress(finished=123_456))
        shown = os.read(reader, 1_000).decode()
    os.close(reader)
    assert shown == "\r\x1b[2K123,456 finished, 0"


def test_live_line_is_shown_on_terminals_only() -> None:
    """The line is updated until the end of the block and then has the last progress; a file or a pipe gets no line."""
    reader, writer = pty.openpty()
    numbers = count(1)
    with os.fdopen(writer, "w") as out:
        with live_line(lambda: progress(finished=next(numbers)), out, is_wanted=True):
            pass
        with live_line(lambda: progress(finished=100), out, is_wanted=False):
            pass
        shown = ""
        while not shown.endswith("\n"):  # a read may return a part
            shown += os.read(reader, 1_000).decode()
    os.close(reader)
    assert shown == "\r\x1b[2K1 finished, 0 partitions\r\n"
    for other in (io.StringIO(), None):
        with live_line(lambda: progress(finished=1), other, is_wanted=True):
            pass
        assert other is None or other.getvalue() == ""


def test_live_line_ends_quietly_with_its_terminal() -> None:
    """If the terminal is closed, the line ends, but the processor continues."""
    reader, writer = pty.openpty()
    os.close(reader)
    out = os.fdopen(writer, "w")
    with live_line(lambda: progress(finished=1), out, is_wanted=True):
        out.close()
