"""What a handler can find out about its call."""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.clients.lease import Lease
from consumer_membership.errors import UseError
from consumer_membership.processing.scheduler import Task
from consumer_membership.types import Instant, TopicPartition


class HandlerContext:
    """One call of a handler, which receives it as its second argument.

    `is_current`, `is_ending` and `is_cancelled` may change while the handler runs; the other values are those of the
    call.

    Attributes:
        partition: The partition of the records.
        epoch: The member epoch (classic: generation) at which the partition was assigned. Tag external writes with it,
            so that their target can reject the writes of an earlier owner.
        attempt: The number of this attempt, from 1.
        deadline: When the handler exceeds `handler_timeout`, on the clock of `time.monotonic`, or on that of a
            `FakeCluster` with virtual time; None: no limit.
        last_error: The exception of the previous attempt; None for the first one.
    """

    __slots__ = ("_lease_of", "_task", "attempt", "deadline", "epoch", "last_error", "partition")

    def __init__(
        self, task: Task, deadline: Instant | None, lease_of: Callable[[TopicPartition, int], Lease] | None = None
    ) -> None:
        self._task = task
        self._lease_of = lease_of
        self.partition: TopicPartition = task.owned.partition
        self.epoch: int = task.owned.epoch
        self.attempt: int = task.attempt
        self.deadline: Instant | None = deadline
        self.last_error: BaseException | None = task.last_error

    @property
    def lease(self) -> Lease:
        """The lease of the partition, with the remaining time, a fencing token and a guard.

        Raises:
            KafkaException: leases are not enabled; set `ownership.lease.enable`.
            UseError: this context is not that of a processor.
        """
        if self._lease_of is None:
            raise UseError("a lease exists only for calls of a processor, whose consumer follows it")
        return self._lease_of(self.partition, self.epoch)

    @property
    def is_current(self) -> bool:
        """Whether the result of this call still counts: the partition is owned by this processor."""
        return not self._task.is_disowned

    @property
    def is_ending(self) -> bool:
        """Whether the partition is being given up, by a revocation or a stop, which waits for this call.

        A long job can save its state and raise an exception: the record then stays unfinished for the next owner.
        """
        return self._task.owned.is_closing

    @property
    def is_cancelled(self) -> bool:
        """Whether this call should end: its deadline is over, or its partition is being given up.

        Coroutines are cancelled, and worker processes are ended. A function on a thread cannot be interrupted: check
        this value between the steps of a long job.
        """
        return self._task.is_cancelled
