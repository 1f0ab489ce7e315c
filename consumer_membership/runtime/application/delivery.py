"""The delivery part of a session: moves records from the fetcher into the prefetch buffer, one poll slice at a time.

The fetcher owns librdkafka's handle, the handle lock, the buffer, the offset lookups and the resets. Delivery decides
nothing about the membership and performs no orders; `polling` does both between two slices.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from confluent_kafka import Message

from consumer_membership.membership.waits import WaitsFor
from consumer_membership.runtime.application.fetcher import Fetcher, whole_ms
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.orders import IDLE_SLICE_S, SLICE_S
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.line import Line, Snapshot
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.runtime.membership_thread import MembershipThread
from consumer_membership.types import TopicPartition

#: The slice of an idle wait, exact and rounded up to whole milliseconds, for a member that expects orders or none.
_WHOLE_SLICES_S = {
    expects_orders: (slice_s, whole_ms(slice_s)) for expects_orders, slice_s in ((True, SLICE_S), (False, IDLE_SLICE_S))
}
#: The waits that end when another process releases an instance id: from then on, the partitions of that id have no
#: owner.
_WAITS_FOR_ID = frozenset({WaitsFor.INSTANCE_ID, WaitsFor.INSTANCE_ID_POOL})


class CancelledRevocations:
    """Finds frozen partitions that are not revoked after all.

    After a callback that raised, the coordinator may assign the partitions again, and then the member orders no step
    that would thaw them. If the member is settled in a later view than the one at the freeze, it keeps its partitions.
    """

    def __init__(self) -> None:
        #: The version of the view when partitions were frozen; None: no partition is frozen.
        self._frozen_at: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no partition was frozen."""
        return self._frozen_at is None

    def among(self, frozen: AbstractSet[TopicPartition], snapshot: Snapshot) -> AbstractSet[TopicPartition]:
        """The frozen partitions whose consumption continues."""
        if not frozen:
            self._frozen_at = None
        elif self._frozen_at is None:
            self._frozen_at = snapshot.version
        elif snapshot.version > self._frozen_at and snapshot.view.is_settled:
            return frozen & snapshot.view.owned.keys()
        return frozenset()


class Delivery:
    """The fetcher and its buffer, as polls use them."""

    def __init__(self, fetcher: Fetcher, line: Line, thread: MembershipThread, life: Lifetime, log: PackageLog) -> None:
        self.fetcher = fetcher
        self.buffer = fetcher.buffer
        self._lock = fetcher.lock
        self._line = line
        self._thread = thread
        self._life = life
        self._log = log
        self._cancelled = CancelledRevocations()

    def gather(self, limit: int, slice_s: float, whole: HandOutQueue[list[Message]] | None) -> bool:
        """Fetch for one slice, until the buffer has `limit` records; return whether a record came.

        Args:
            limit: How many records the application wants; more than the buffer had before the lock was taken.
            slice_s: How long to wait for records, in seconds.
            whole: Receives a batch of `limit` records instead of the buffer, unless a wake-up, a lease that is over, or
                older buffered records prevent it.
        """
        with self._lock:
            if self._life.is_closed:
                return False
            if limit == 1:
                return self._note_record(has_record=self.fetcher.fill(slice_s))
            lacking = limit - len(self.buffer.ready)
            if lacking <= 0:  # another thread filled the buffer while this one waited for the lock
                return True
            batch = self.fetcher.fetch(lacking, whole_ms(slice_s))
            must_stop = self._line.wake_up.is_set or self._line.lease_is_over
            if whole is not None and len(batch) == limit and not must_stop and not self.buffer.ready:
                self.buffer.offer(whole)
            else:
                self.buffer.take_in()
            return self._note_record(has_record=bool(batch))

    def warm_up(self) -> None:
        """Connect to the brokers from which records will come, while the member waits for an instance id."""
        if self._line.view.waits_for not in _WAITS_FOR_ID:
            return
        with self._lock:
            if not self._life.is_closed:
                self.fetcher.connect_to_leaders()

    def take_reports(self) -> None:
        """Let librdkafka report its events, without waiting."""
        with self._lock:
            if not self._life.is_closed:
                self.fetcher.fill(0)

    def wait_idle(self, deadline: float) -> None:
        """Wait in whole slices until a record comes, the member changes, or a wake-up interrupts the poll.

        Returns at once if the handle may have records (`Fetcher.is_drained`), because a fetch of many records costs
        less per record.

        An idle consumer does only this, so the code does as little as possible: after 50 ms in which other processes
        ran, each object that is touched is out of the processor's caches, and that is most of the cost of a slice (0.1
        % of a core for ten slices in a second). Every change ends the wait; the next slice of the caller checks
        everything.
        """
        fetcher, buffer, life, line, lock = self.fetcher, self.buffer, self._life, self._line, self._lock
        if not (fetcher.is_drained and fetcher.can_deliver):
            return
        snapshot, wake_up = line.snapshot, line.wake_up
        slice_s, whole_s = _WHOLE_SLICES_S[snapshot.view.waits_for is not None]
        until = min(deadline, fetcher.next_check_at)
        while not (wake_up.is_set or life.is_ending or line.snapshot is not snapshot):
            left = until - line.now()
            if left <= 0:
                return
            buffer.turns += 1
            with lock:
                if life.is_closed or buffer.ready:
                    return
                if fetcher.wait(whole_s if left > slice_s else whole_ms(left)):
                    self._note_record(has_record=True)
                    return

    def _note_record(self, *, has_record: bool) -> bool:
        """If a record came, note it and end the membership thread's calm; return whether a record came."""
        if has_record:
            if self._thread.is_calm:
                self._thread.sample_soon()
            self.fetcher.record_received()
        return has_record

    def replace_lost_handle(self, last_heartbeat_at: float | None) -> None:
        """After a slice without a record, replace a handle that has lost its brokers.

        `last_heartbeat_at`: when the member's last heartbeat was answered; None: there are no heartbeats.
        """
        with self._lock:
            if not self._life.is_closed and self.fetcher.renew_if_lost(last_heartbeat_at):
                self._log.warning(
                    "librdkafka lost all brokers and does not look for them again (its issue 5301); its consumer is "
                    "restarted at the current positions"
                )

    def cancelled_revocations(self) -> AbstractSet[TopicPartition]:
        """The frozen partitions that the member keeps after all."""
        if not self.fetcher.frozen and self._cancelled.is_idle:  # nearly always, and read in every slice
            return frozenset()
        return self._cancelled.among(self.fetcher.frozen, self._line.snapshot)

    def thaw(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Deliver these frozen partitions again."""
        with self._lock:
            self.fetcher.thaw(partitions)

    def close(self) -> None:
        """Drop the buffered records and close the handle."""
        with self._lock:
            self.buffer.ready.clear()
            self.fetcher.handle.close()
