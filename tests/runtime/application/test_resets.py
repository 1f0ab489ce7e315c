"""The start of a handle without a position, under `auto.offset.reset=by_duration`.

`integration/test_start_by_duration.py` tests this on a broker; this module has the cases that a healthy broker does not
cause.
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
    """A substitute for librdkafka's handle without recent records and with end offset 9; its first calls fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.requests: list[list[str]] = []

    def offsets_for_times(self, times: list[PartitionOffset], timeout_s: float) -> list[PartitionOffset]:
        """Return the offsets at these times."""
        assert timeout_s > 0
        self.requests.append([f"{one.topic}-{one.partition}" for one in times])
        if self.failures:
            self.failures -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [
            PartitionOffset(one.topic, one.partition, END if one.offset == OFFSET_END else OFFSET_END) for one in times
        ]


def report(partition: int, code: int = NO_POSITION) -> Message:
    """Return an error that librdkafka reports for a partition."""
    return Message(topic="t", partition=partition, offset=0, error=KafkaError(code))


def record(partition: int) -> Message:
    """Return a record of this partition."""
    return Message(topic="t", partition=partition, offset=0, value=b"v")


def taken(reset: DurationResets, handle: Handle, batch: list[Message]) -> list[Message]:
    """Return the messages that stay in the batch."""
    return reset.take_out(cast("Consumer", handle), batch)


def test_duration_resets_take_out_reports_and_move_their_partitions() -> None:
    """Records and other errors stay in the batch, in their order."""
    moved: list[tuple[int, int]] = []
    reset = DurationResets(ByDuration(milliseconds=1), lambda start: moved.append((start.partition, start.offset)))
    others = [record(0), report(1, KafkaError._PARTITION_EOF)]
    assert taken(reset, Handle(), [others[0], report(2), others[1]]) == others
    assert moved == [(2, END)]


def test_duration_resets_repeat_a_failed_request_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later polls repeat the request at most every half second, and never after its success."""
    moved: list[int] = []
    handle = Handle(failures=2)
    reset = DurationResets(ByDuration(milliseconds=1), lambda start: moved.append(start.partition))
    taken(reset, handle, [report(0)])
    taken(reset, handle, [report(1)])
    assert (moved, len(handle.requests)) == ([], 1)
    monkeypatch.setattr(resets, "RETRY_S", 0.0)
    reset = DurationResets(ByDuration(milliseconds=1), lambda start: moved.append(start.partition))
    taken(reset, handle, [report(0), report(1)])
    taken(reset, handle, [])
    taken(reset, handle, [])
    assert moved == [0, 1]
    assert len(handle.requests) == 4


def test_duration_resets_do_not_move_a_partition_that_was_forgotten() -> None:
    """A partition that was revoked, or that the application moved, is not moved."""
    handle = Handle(failures=1)
    reset = DurationResets(ByDuration(milliseconds=1), lambda _: pytest.fail("moved a partition that was revoked"))
    taken(reset, handle, [report(0)])
    reset.forget(TopicPartition("t", 0))
    taken(reset, handle, [])
    assert handle.requests == [["t-0"]]
