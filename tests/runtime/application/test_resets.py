"""Where a handle is sent that has no position, under `auto.offset.reset=by_duration`.

On a broker it is tested by `integration/test_start_by_duration.py`; here is what a healthy broker does not do.
"""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.config import ByDuration
from consumer_membership.runtime.application import resets
from consumer_membership.runtime.application.resets import DurationResets
from consumer_membership.types import TopicPartition

NO_POSITION = -140
END = 9


class Handle:
    """Stands for librdkafka's: no record is young, the end is 9; it fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.asked: list[list[str]] = []

    def offsets_for_times(self, times: list[PartitionOffset], timeout_s: float) -> list[PartitionOffset]:
        """The offsets at these moments."""
        assert timeout_s > 0
        self.asked.append([f"{one.topic}-{one.partition}" for one in times])
        if self.failures:
            self.failures -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [
            PartitionOffset(one.topic, one.partition, END if one.offset == OFFSET_END else OFFSET_END) for one in times
        ]


def report(partition: int, code: int = NO_POSITION) -> Message:
    """What librdkafka says of a partition."""
    return Message(topic="t", partition=partition, offset=0, error=KafkaError(code))


def record(partition: int) -> Message:
    """A record of it."""
    return Message(topic="t", partition=partition, offset=0, value=b"v")


def taken(reset: DurationResets, handle: Handle, batch: list[Message]) -> list[Message]:
    """What is left of the batch."""
    return reset.take_out(cast("Consumer", handle), batch)


def test_reports_are_taken_out_and_answered() -> None:
    """Records and other errors stay, in their order."""
    moved: list[tuple[int, int]] = []
    reset = DurationResets(ByDuration(milliseconds=1), lambda start: moved.append((start.partition, start.offset)))
    others = [record(0), report(1, KafkaError._PARTITION_EOF)]
    assert taken(reset, Handle(), [others[0], report(2), others[1]]) == others
    assert moved == [(2, END)]


def test_failed_question_is_asked_again_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next polls, and no more often than every half a second; then never again."""
    moved: list[int] = []
    handle = Handle(failures=2)
    reset = DurationResets(ByDuration(milliseconds=1), lambda start: moved.append(start.partition))
    taken(reset, handle, [report(0)])
    taken(reset, handle, [report(1)])
    assert (moved, len(handle.asked)) == ([], 1)
    monkeypatch.setattr(resets, "RETRY_S", 0.0)
    reset = DurationResets(ByDuration(milliseconds=1), lambda start: moved.append(start.partition))
    taken(reset, handle, [report(0), report(1)])
    taken(reset, handle, [])
    taken(reset, handle, [])
    assert moved == [0, 1]
    assert len(handle.asked) == 4


def test_partition_that_was_given_up_meanwhile_is_not_sent_anywhere() -> None:
    """Nor one that the application sent elsewhere."""
    handle = Handle(failures=1)
    reset = DurationResets(ByDuration(milliseconds=1), lambda _: pytest.fail("it is somebody else's by now"))
    taken(reset, handle, [report(0)])
    reset.forget(TopicPartition("t", 0))
    taken(reset, handle, [])
    assert handle.asked == [["t-0"]]
