"""The application's calls that choose partitions and positions, and those that librdkafka's handle answers.

Each call waits for the handle lock, one poll slice at most. Inside rebalance callbacks the calls that assign are part
of the rebalance, as in confluent-kafka, so code for the eager protocol works, which calls `assign` and `unassign`
there.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED

from consumer_membership.librdkafka import LibrdkafkaConsumer, PartitionOffset
from consumer_membership.runtime.application.commits import Commits
from consumer_membership.runtime.application.fetcher import REQUEST_SLICE_S, Fetcher, in_slices
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.partition_offsets import key_of, placed
from consumer_membership.runtime.application.session_errors import (
    INVALID_ARG_CODE,
    STATE_CODE,
    StateError,
)
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.runtime.application.subscriptions import Subscriptions

T = TypeVar("T")


class Partitions:
    """The partitions of one session."""

    def __init__(
        self, fetcher: Fetcher, commits: Commits, steps: Steps, subscriptions: Subscriptions, life: Lifetime
    ) -> None:
        self._fetcher = fetcher
        self._handle_lock = fetcher.lock
        self._commits = commits
        self._book = commits.book
        self._steps = steps
        self._subscriptions = subscriptions
        self._life = life

    # ---- assigning ----

    def assign(self, partitions: list[PartitionOffset]) -> None:
        """Assign exactly these; inside on_assign, add these in place of the newly assigned ones."""
        self._life.check()
        self._steps.apply_commits_to_starts()
        with self._handle_lock:
            if self._steps.arriving is not None:
                self._take_arriving(partitions)
                return
            self._refuse_if_grouped("Failed to set assignment")
            self._commits.begin_by_hand(self._fetcher.by_hand)
            self._fetcher.replace(partitions)
            self._book.forget([key_of(partition) for partition in partitions])
            self._commits.announce_by_hand(holds=bool(partitions))

    def unassign(self) -> None:
        """Assign nothing; inside on_revoke and on_lost, give up the partitions of the callback."""
        self._life.check()
        with self._handle_lock:
            if self._steps.leaving is not None:
                self._fetcher.remove(self._steps.leaving)
                return
            self._refuse_if_grouped("Failed to remove assignment")
            self._commits.begin_by_hand(self._fetcher.by_hand)
            self._book.forget(self._fetcher.assigned)
            self._fetcher.remove_all()
            self._commits.announce_by_hand(holds=False)

    def incremental_assign(self, partitions: list[PartitionOffset]) -> None:
        """Assign these in addition."""
        self._life.check()
        self._steps.apply_commits_to_starts()
        with self._handle_lock:
            if self._steps.arriving is not None:
                self._subscriptions.callback_assigned_incrementally()
                self._take_arriving(partitions)
                return
            self._fetcher.add(partitions)
            self._book.forget([key_of(partition) for partition in partitions])
            self._commits.announce_by_hand(holds=bool(self._fetcher.by_hand))

    def incremental_unassign(self, partitions: list[PartitionOffset]) -> None:
        """Give up these; each must be assigned."""
        self._life.check()
        keys = [key_of(partition) for partition in partitions]
        for partition in keys:
            if keys.count(partition) > 1:
                # librdkafka ends the process here (an assertion), so it never receives such a list.
                raise StateError(
                    f"Duplicate {partition.topic} [{partition.partition}] in input list; list each partition once",
                    INVALID_ARG_CODE,
                )
        with self._handle_lock:
            unknown = [partition for partition in keys if partition not in self._fetcher.assigned]
            if unknown:
                raise StateError(
                    f"{unknown[0].topic} [{unknown[0].partition}] can't be unassigned since it is not in the "
                    "current assignment",
                    INVALID_ARG_CODE,
                )
            self._fetcher.remove(keys)
            if self._steps.leaving is not None:
                self._subscriptions.callback_assigned_incrementally()
            else:
                self._book.forget(keys)
                if not self._fetcher.by_hand:
                    self._commits.announce_by_hand(holds=False)

    def _take_arriving(self, partitions: list[PartitionOffset]) -> None:
        """Assign these for a call inside on_assign; -1000 and -1001 mean the committed offset of the group."""
        arriving = self._steps.arriving or {}
        starts, without_offset = [], set()
        for partition in partitions:
            key, offset = key_of(partition), partition.offset
            if offset in (OFFSET_INVALID, OFFSET_STORED) and key in arriving:
                offset = arriving[key]
                without_offset.add(key)
            starts.append(PartitionOffset(key.topic, key.partition, offset))
        self._fetcher.add(starts, arriving)
        self._fetcher.show_as_stored(without_offset)
        self._steps.leave_to_application()

    def _refuse_if_grouped(self, what: str) -> None:
        if self._subscriptions.is_subscribed or self._fetcher.held:
            raise StateError(
                f"{what}: Local: Erroneous state (the group assigns the partitions of a subscribed consumer; to change "
                "the position use seek(), or assign() inside on_assign; to read more partitions use "
                "incremental_assign(); to read without a group call unsubscribe() and poll() first)",
                STATE_CODE,
            )

    def assignment(self) -> list[PartitionOffset]:
        """Return the current assignment."""
        self._life.check()
        with self._handle_lock:
            return self._fetcher.assignment()

    # ---- holding back and moving ----

    def pause(self, partitions: list[PartitionOffset]) -> None:
        """Hold these back until they are resumed."""
        self._life.check()
        with self._handle_lock:
            self._fetcher.pause([key_of(p) for p in partitions], arriving=self._steps.arriving or ())

    def resume(self, partitions: list[PartitionOffset]) -> None:
        """Resume these."""
        self._life.check()
        with self._handle_lock:
            self._fetcher.resume([key_of(p) for p in partitions])

    def seek(self, partition: PartitionOffset) -> None:
        """Continue at this offset."""
        self._life.check()
        with self._handle_lock:
            self._fetcher.seek(partition)

    def position(self, partitions: list[PartitionOffset]) -> list[PartitionOffset]:
        """Return the next offset of each; -1001 if no record was returned since it was assigned or sought."""
        self._life.check()
        with self._handle_lock:
            found = self._fetcher.positions({key_of(partition) for partition in partitions})
        return [placed(PartitionOffset, key_of(partition), found.get(key_of(partition))) for partition in partitions]

    # ---- requests to the brokers ----

    def query(self, call: Callable[[LibrdkafkaConsumer, float], T], timeout_s: float) -> T:
        """Return the answer to a request of the handle that goes to the brokers; negative: without a time limit."""
        self._life.check()

        def one_slice(left_s: float) -> T:
            with self._handle_lock:
                self._life.check()
                return call(self._fetcher.handle, left_s)

        return in_slices(one_slice, timeout_s, monotonic, REQUEST_SLICE_S)
