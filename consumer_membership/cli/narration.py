"""What happens to a membership, told on stderr: one line each, with the time of day.

The same thing is not told again and again: while a broker is away librdkafka and the group have something to say many
times a second, and a reader wants to know what is waited for, every few seconds.
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

#: What a member waits for is told when it takes longer than usual, and then at this interval.
_PATIENCE_S = 2.0
_REMIND_S = 3.0
#: A member that stays without partitions is told why that may be, once.
_IDLE_S = 3.0
_SAME_ERROR_S = 10.0
#: librdkafka ends each connection's error with how long it took, which would make every one another error.
_HOW_LONG = re.compile(r" \(after \d+ms in state \w+\)")


class Narration:
    """Tells what is new whenever it is shown the membership."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._told_until = 0.0
        self._remind_at = 0.0
        #: By text: when it was told last, and how often it came since.
        self._errors: dict[str, tuple[float, int]] = {}
        self._idle_since: float | None = None
        #: Whether the group ever took the member in.
        self.has_joined = False

    def look(self, view: MembershipView, now: float) -> None:
        """Tell the transitions since the last look, and what the member waits for if that takes long."""
        fresh = [change for change in view.transitions if change.at > self._told_until]
        for change in fresh:
            # The view has one epoch, the present one: that of its last transition.
            epoch = f", epoch {view.member_epoch}" if change is fresh[-1] and view.member_epoch > 0 else ""
            self.tell(f"{change.old} -> {change.new}{epoch}: {change.reason}", at=change.at)
            self._told_until = change.at
        self.has_joined |= view.member_epoch > 0
        self._remind(view, now)
        self._wonder(view, now)

    def partitions(self, what: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Tell that these partitions were assigned, revoked or lost; first what led to it."""
        self.look(consumer.membership(), time.monotonic())
        if partitions:
            self.tell(f"{what} {named(partitions)}")

    def error(self, error: KafkaError) -> None:
        """Tell an error, the same one every ten seconds at most and then with the number of its repetitions."""
        now = time.monotonic()
        text = _HOW_LONG.sub("", f"{error.name()}: {error.str()}")
        told_at, repeated = self._errors.get(text, (-_SAME_ERROR_S, 0))
        if now - told_at < _SAME_ERROR_S:
            self._errors[text] = (told_at, repeated + 1)
            return
        self._errors[text] = (now, 0)
        self.tell(f"error: {text}" + (f" ({repeated} more times)" if repeated else ""))

    def tell(self, text: str, at: float | None = None) -> None:
        """One line; `at` is a time of the monotonic clock, now by default."""
        ago = 0.0 if at is None else time.monotonic() - at
        clock = datetime.fromtimestamp(time.time() - ago).astimezone()
        try:
            self._err.write(f"{clock:%H:%M:%S}.{clock.microsecond // 1000:03d} {printable(text)}\n")
            self._err.flush()
        except BrokenPipeError:
            # Nobody reads the narration any more; the records are another matter.
            return

    def _remind(self, view: MembershipView, now: float) -> None:
        since = view.waits_since
        # A settled member that has no partitions waits for some as well; that is `_wonder`'s to tell.
        is_idle = view.state is MemberState.STABLE and view.coordinator is not None and not view.owned
        if is_idle or view.waits_for is None or since is None:
            return
        if now - since < _PATIENCE_S or now < self._remind_at:
            return
        self._remind_at = now + _REMIND_S
        error = f" (last error: {view.present_error})" if view.present_error is not None else ""
        self.tell(f"waiting for {now - since:.0f} s for {view.waits_for_text}{error}")

    def _wonder(self, view: MembershipView, now: float) -> None:
        """A member of a group that gets nothing: say so once, since silence looks like a fault."""
        if view.state is not MemberState.STABLE or view.owned:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= _IDLE_S:
            self._idle_since = float("inf")
            reason = "the group may have more members than there are partitions"
            if view.missing_topics:
                reason = missing_of(view.missing_topics)
            self.tell(f"in the group and without partitions: {reason}")


def missing_of(topics: Iterable[str]) -> str:
    """What of a subscription is not there, in words."""
    return ", ".join(
        f"no topic matches {topic}" if topic.startswith("^") else f"topic {topic} does not exist"
        for topic in sorted(topics)
    )


def named(partitions: Iterable[TopicPartition] | Iterable[types.TopicPartition]) -> str:
    """`orders[0-3,7] refunds[0]`."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for place in partitions:
        by_topic[place.topic].append(place.partition)
    return " ".join(f"{topic}[{_ranges(sorted(numbers))}]" for topic, numbers in sorted(by_topic.items()))


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers, neighbours joined: `0-3,7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
