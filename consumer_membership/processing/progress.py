"""The progress of a processor: of each partition and in total, as a value and as one live line on a terminal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TextIO

from consumer_membership.health.handlers import RunningHandler, UnfinishedRecord
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.metrics.handler_ledger import HandlerCounts
from consumer_membership.text import counted, excerpt, printable
from consumer_membership.types import Instant, TopicPartition

#: The width of a terminal that does not report one.
_DEFAULT_COLUMNS = 80
#: Return to the beginning of the line, and erase it (ECMA-48: EL 2).
_ERASE_LINE = "\r\x1b[2K"
_MINUTE_S, _HOUR_S = 60, 3600
#: The interval between two values of the live line, in seconds.
_LIVE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingProgress:
    """The progress of one assigned partition.

    Attributes:
        committed: The committed offset; None: this processor has committed none.
        oldest_unfinished: The oldest unfinished record; None: all received records are finished.
        finished_beyond: The number of offsets after the oldest unfinished record that are finished. They are encoded in
            the commit's metadata, so that the next owner skips them.
        queued: The records that wait in lanes, without those that wait for a retry.
        running: The records whose handlers run.
        retrying: The records that wait for their next attempt.
        last_error: The error of the latest failed attempt, `Class: message`; "": none failed.
        epoch: The member epoch in which the partition was assigned; None: not known.
    """

    committed: int | None = None
    oldest_unfinished: UnfinishedRecord | None = None
    finished_beyond: int = 0
    queued: int = 0
    running: int = 0
    retrying: int = 0
    last_error: str = ""
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorProgress:
    """The progress of a processor at one moment; times are of the monotonic clock (`time.monotonic`).

    Attributes:
        at: The moment.
        partitions: The progress of each assigned partition.
        running: The running handlers, the oldest first; without their stacks.
        counts: The totals since the processor was created, with durations and the current numbers of lanes.
    """

    at: Instant
    partitions: Mapping[TopicPartition, HandlingProgress]
    running: tuple[RunningHandler, ...]
    counts: HandlerCounts

    def line(self, before: ProcessorProgress | None = None) -> str:
        """Return the progress in one line for a terminal; with an earlier value, with finished records per second."""
        partitions, counts = self.partitions.values(), self.counts
        rate = f" ({_rate(before, self):,.0f}/s)" if before is not None and self.at > before.at else ""
        in_hand = _numbers(
            ("running", sum(one.running for one in partitions)),
            ("queued", sum(one.queued for one in partitions)),
            ("waiting for a retry", sum(one.retrying for one in partitions)),
        )
        others = _numbers(
            ("dead-lettered", counts.dead_letters),
            ("skipped", counts.skipped),
            ("finished beyond the commits", sum(one.finished_beyond for one in partitions)),
        )
        # A terminal cuts the end.
        parts = [f"{counts.finished:,} finished{rate}", *in_hand, *self._oldest(), *others]
        return ", ".join([*parts, counted(len(self.partitions), "partition")])

    def _oldest(self) -> Iterator[str]:
        """Yield the record that has been in hand for longest, if there is one."""
        unfinished = [
            (one.oldest_unfinished.since, name, one.oldest_unfinished)
            for name, one in self.partitions.items()
            if one.oldest_unfinished
        ]
        if not unfinished:
            return
        since, partition, record = min(unfinished, key=lambda one: one[:2])
        error = f"; {excerpt(printable(record.last_error))}" if record.last_error else ""
        attempt = f" (attempt {record.attempt}{error})" if record.attempt > 1 or error else ""
        where = f"{partition.topic}-{partition.partition} offset {record.offset}"
        yield f"oldest {where} for {_lasted(self.at - since)}{attempt}"


class LiveLine:
    """One line on a terminal that each call of `show` replaces; the width is that of the terminal at that moment."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._before: ProcessorProgress | None = None

    def show(self, progress: ProcessorProgress) -> None:
        """Replace the line by this progress, cut to the width of the terminal."""
        line = progress.line(self._before)
        self._before = progress
        self._out.write(_ERASE_LINE + line[: self._columns() - 1])
        self._out.flush()

    def close(self) -> None:
        """Leave the last line on the terminal, and begin a new line after it."""
        if self._before is not None:
            self._out.write("\n")
            self._out.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _DEFAULT_COLUMNS
        except (OSError, ValueError):  # not a terminal, or closed
            return _DEFAULT_COLUMNS


def live_line(
    progress: Callable[[], ProcessorProgress], out: TextIO | None, *, is_wanted: bool
) -> AbstractContextManager[None]:
    """Show the progress on this terminal during the block, twice per second; nothing if it is not a terminal."""
    if not is_wanted or out is None or not out.isatty():
        return nullcontext()
    return _shown_live(progress, LiveLine(out))


@contextmanager
def _shown_live(progress: Callable[[], ProcessorProgress], line: LiveLine) -> Iterator[None]:
    # On its own thread, because the thread that polls waits for handlers during a rebalance.
    is_over = threading.Event()

    def show() -> None:
        with suppress(OSError, ValueError):  # the terminal is gone, or closed
            while not is_over.wait(_LIVE_S):
                line.show(progress())
            line.show(progress())
            line.close()

    thread = threading.Thread(target=show, name="consumer-membership-live-line", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _numbers(*numbers: tuple[str, int]) -> list[str]:
    """Return the numbers that are not zero, with their names."""
    return [f"{number:,} {name}" for name, number in numbers if number]


def _rate(before: ProcessorProgress, after: ProcessorProgress) -> float:
    return (after.counts.finished - before.counts.finished) / (after.at - before.at)


def _lasted(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{max(seconds, 0.0):.0f} s"
    if seconds < _HOUR_S:
        return f"{int(seconds // _MINUTE_S)} min {int(seconds % _MINUTE_S)} s"
    return f"{int(seconds // _HOUR_S)} h {int(seconds % _HOUR_S // _MINUTE_S)} min"
