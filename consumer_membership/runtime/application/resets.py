"""`auto.offset.reset=by_duration` (KIP-1106) for librdkafka's handle, which does not support it.

The handle has `auto.offset.reset=error`: if it has no position, or one that is no longer in the log, it reports this
among the records and waits for a position. This module takes the report out, requests the offset for the time that the
duration gives, and moves the handle there. That happens at the start, if no offset is committed of a partition that was
assigned by hand, or later, if retention was faster than the consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_END, KafkaException

from consumer_membership.config import ByDuration
from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_log = partial(logging.getLogger, "consumer_membership.fetcher")

#: librdkafka's `_AUTO_OFFSET_RESET`.
_NO_POSITION = -140
#: How long one request may delay a poll, and how soon a failed request is repeated.
ANSWER_S = 1.0
RETRY_S = 0.5


class DurationResets:
    """The partitions of one handle that wait for a start; used under the handle's lock.

    `move` is called with each partition that gets a start, and its offset.
    """

    def __init__(self, reset: ByDuration, move: Callable[[PartitionOffset], None]) -> None:
        self._reset = reset
        self._move = move
        self._waiting: set[TopicPartition] = set()
        self._retry_at = 0.0
        self._last_reason = ""

    def forget(self, partition: TopicPartition) -> None:
        """Note that this partition is given up, or was moved elsewhere, and no longer waits for a start."""
        self._waiting.discard(partition)

    def take_out(self, handle: Consumer, batch: list[Message]) -> list[Message]:
        """Return the batch without reports of a missing position; each such partition gets a start, now or later."""
        records = []
        for message in batch:
            partition = _of_reset(message)
            if partition is None:
                records.append(message)
            else:
                self._waiting.add(partition)
        if self._waiting and monotonic() >= self._retry_at:
            self._answer(handle)
        return records

    def _answer(self, handle: Consumer) -> None:
        moment = self._reset.moment_ms(time())
        places = sorted(self._waiting)
        try:
            # The ends first: a record that arrives between the two responses is recent enough and is not skipped.
            ends = handle.offsets_for_times([PartitionOffset(*place, OFFSET_END) for place in places], ANSWER_S)
            found = handle.offsets_for_times([PartitionOffset(*place, moment) for place in places], ANSWER_S)
        except KafkaException as refused:
            self._retry_later(str(refused.args[0]))
            return
        for end, young in zip(ends, found, strict=True):
            error = end.error or young.error
            if error is not None:
                self._retry_later(f"{end.topic} [{end.partition}]: {error}")
                continue
            start = young if young.offset >= 0 else end
            try:
                self._move(start)
            except KafkaException as refused:
                self._retry_later(f"{start.topic} [{start.partition}]: {refused.args[0]}")
                continue
            _log().info(
                "Resetting offset for partition %s-%d to position %d", start.topic, start.partition, start.offset
            )
            self._waiting.discard(TopicPartition(start.topic, start.partition))
            self._last_reason = ""

    def _retry_later(self, why: str) -> None:
        self._retry_at = monotonic() + RETRY_S
        _log().log(
            logging.DEBUG if why == self._last_reason else logging.WARNING,
            "auto.offset.reset cannot be applied yet: %s",
            why,
        )
        self._last_reason = why


def _of_reset(message: Message) -> TopicPartition | None:
    """The partition that has no position according to this message; None: the message is about something else."""
    error = message.error()
    topic, number = message.topic(), message.partition()
    if error is None or error.code() != _NO_POSITION or topic is None or number is None:
        return None
    return TopicPartition(topic, number)
