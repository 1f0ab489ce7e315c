"""Print membership events to stderr, one line each with the time of day.

Repeated errors are counted instead of printed: while a broker is unavailable, librdkafka reports errors many times per
second, and a reader needs a status line only every few seconds.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import TextIO

from confluent_kafka import KafkaError, TopicPartition

from consumer_membership import Consumer, MembershipView, MemberState, types
from consumer_membership.text import printable

#: A wait that takes longer than this is printed, and then again at the second interval.
_FIRST_REMINDER_S = 2.0
_REMINDER_INTERVAL_S = 3.0
#: After this time without partitions, a possible reason is printed once.
_IDLE_S = 3.0
_SAME_ERROR_S = 10.0
#: librdkafka appends the duration to connection errors; without it, equal errors have equal texts.
_DURATION = re.compile(r" \(after \d+ms in state \w+\)")


class Narration:
    """Prints the changes between the membership views that it receives."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._printed_until = 0.0
        self._remind_at = 0.0
        #: By text: when the error was last printed, and how often it occurred since.
        self._errors: dict[str, tuple[float, int]] = {}
        self._idle_since: float | None = None
        #: Whether the member has ever joined the group.
        self.has_joined = False

    def update(self, view: MembershipView, now: float) -> None:
        """Print the transitions since the last update, and a long wait with its cause."""
        fresh = [change for change in view.transitions if change.at > self._printed_until]
        for change in fresh:
            # The view has only the current epoch, which belongs to the last transition.
            epoch = f", epoch {view.member_epoch}" if change is fresh[-1] and view.member_epoch > 0 else ""
            self.print(f"{change.old} -> {change.new}{epoch}: {change.reason}", at=change.at)
            self._printed_until = change.at
        self.has_joined |= view.member_epoch > 0
        self._report_wait(view, now)
        self._report_idle(view, now)

    def partitions(self, what: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Print the pending transitions, then that these partitions were assigned, revoked or lost."""
        self.update(consumer.membership(), time.monotonic())
        if partitions:
            self.print(f"{what} {named(partitions)}")

    def error(self, error: KafkaError) -> None:
        """Print an error; the same error at most every ten seconds, with the number of repetitions."""
        now = time.monotonic()
        text = _DURATION.sub("", f"{error.name()}: {error.str()}")
        printed_at, repeated = self._errors.get(text, (-_SAME_ERROR_S, 0))
        if now - printed_at < _SAME_ERROR_S:
            self._errors[text] = (printed_at, repeated + 1)
            return
        self._errors[text] = (now, 0)
        self.print(f"error: {text}" + (f" (repeated {repeated} times)" if repeated else ""))

    def print(self, text: str, at: float | None = None) -> None:
        """Print one line; `at` is a time of the monotonic clock, by default now."""
        ago = 0.0 if at is None else time.monotonic() - at
        clock = datetime.fromtimestamp(time.time() - ago).astimezone()
        try:
            self._err.write(f"{clock:%H:%M:%S}.{clock.microsecond // 1000:03d} {printable(text)}\n")
            self._err.flush()
        except BrokenPipeError:
            # The reader of stderr is gone; records are still printed to stdout.
            return

    def _report_wait(self, view: MembershipView, now: float) -> None:
        since = view.waits_since
        # A stable member without partitions also waits; `_report_idle` covers that case.
        is_idle = view.state is MemberState.STABLE and view.coordinator is not None and not view.owned
        if is_idle or view.waits_for is None or since is None:
            return
        if now - since < _FIRST_REMINDER_S or now < self._remind_at:
            return
        self._remind_at = now + _REMINDER_INTERVAL_S
        error = f"; last error: {view.present_error}" if view.present_error is not None else ""
        self.print(f"waiting for {view.waits_for_text} ({now - since:.0f} s){error}")

    def _report_idle(self, view: MembershipView, now: float) -> None:
        """Print once that the member has no partitions, so that the missing output does not look like a fault."""
        if view.state is not MemberState.STABLE or view.owned:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= _IDLE_S:
            self._idle_since = float("inf")
            reason = "the group may have more members than there are partitions"
            if view.missing_topics:
                reason = missing_of(view.missing_topics)
            self.print(f"joined the group, but no partitions are assigned: {reason}")


def missing_of(topics: Iterable[str]) -> str:
    """Return which topics of a subscription do not exist."""
    return ", ".join(
        f"no topic matches {topic}" if topic.startswith("^") else f"topic {topic} does not exist"
        for topic in sorted(topics)
    )


def named(partitions: Iterable[TopicPartition] | Iterable[types.TopicPartition]) -> str:
    """Return the partitions as text: `orders[0-3,7] refunds[0]`."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for place in partitions:
        by_topic[place.topic].append(place.partition)
    return " ".join(f"{topic}[{_ranges(sorted(numbers))}]" for topic, numbers in sorted(by_topic.items()))


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers with adjacent ones joined: `0-3,7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
