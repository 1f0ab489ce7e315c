"""The lease of a processor in memory that it shares with its worker processes, so that a running call sees renewals.

The consumer writes the end of its lease there whenever the coordinator answers. The time is that of the session clock,
which all processes of a host share and which counts suspensions (`CLOCK_BOOTTIME` on Linux). A worker process reads
this memory without a request, so it also notices the end if the processor itself is stopped.

A call belongs to one membership. If the consumer loses its partitions, the number of the membership grows, so that the
lease of a later membership never covers the call.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from math import inf
from multiprocessing import get_context

from consumer_membership.clients.lease import Lease
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.runtime.session_clock import session_time
from consumer_membership.types import TopicPartition

#: The two shared numbers: when the lease ends (0.0: there is none), and the number of the membership. The first is
#: written first and read first, so a reader with the end of a later membership also finds its number.
_ENDS_AT, _MEMBERSHIP = 0, 1
#: A grant that no membership has.
_NEVER = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGrant:
    """The values of a lease that a worker process receives with a call."""

    epoch: int
    membership: float
    why_no_token: str


class SharedLease:
    """The lease of one consumer, as its process writes it.

    Args:
        epoch_of: Returns the epoch at which an owned partition was assigned.
        why_no_token: Returns why leases have no token now; empty if they have one.
    """

    def __init__(self, epoch_of: Callable[[TopicPartition], int | None], why_no_token: Callable[[], str]) -> None:
        self._epoch_of = epoch_of
        self._why_no_token = why_no_token
        #: The shared memory, which a worker process receives when it starts.
        self.memory: MutableSequence[float] = get_context("spawn").RawArray("d", 2)

    def follow(self, ends_at: float) -> None:
        """Write when the lease ends, by the session clock; infinity: there is none."""
        memory = self.memory
        if ends_at != inf:
            memory[_ENDS_AT] = ends_at
        elif memory[_ENDS_AT]:
            memory[_ENDS_AT] = 0.0
            memory[_MEMBERSHIP] += 1.0

    def grant(self, partition: TopicPartition, epoch: int) -> LeaseGrant:
        """Return the values of the lease for a call with records of this assignment."""
        membership = self.memory[_MEMBERSHIP]
        is_owned = self.memory[_ENDS_AT] > 0.0 and self._epoch_of(partition) == epoch
        return LeaseGrant(epoch=epoch, membership=membership if is_owned else _NEVER, why_no_token=self._why_no_token())


def lease_in(memory: MutableSequence[float], partition: TopicPartition, grant: LeaseGrant) -> Lease:
    """Return the lease of a call, in the worker process."""

    def remaining() -> float:
        left_s = memory[_ENDS_AT] - session_time()
        return left_s if memory[_MEMBERSHIP] == grant.membership else 0.0

    return Lease(partition, grant.epoch, remaining, grant.why_no_token)
