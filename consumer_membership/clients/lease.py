"""Leases: until when a consumer may work on a partition, with a token for writes to other systems.

A lease is a promise about time: the coordinator assigns the partition to no other member before it ends, as long as
no administrator removes the member. The token serves systems that can compare it: a write that carries a lower token
than an earlier write comes from a former owner.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from math import inf
from time import monotonic
from types import TracebackType
from typing import ParamSpec, Protocol, Self, TypeVar

from consumer_membership.clients.exceptions import raises_as_confluent
from consumer_membership.errors import LeaseOverError
from consumer_membership.runtime.application.session_errors import STATE_CODE, StateError
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.runtime.line import Line
from consumer_membership.types import GroupProtocol, TopicPartition

#: Why a lease has no token.
_NO_TOKEN = {
    GroupProtocol.CLASSIC: "a classic member with a group.instance.id may continue at the generation of the process "
    "that it replaces; use group.protocol=consumer, or remove group.instance.id",
    GroupProtocol.CONSUMER: "the coordinator refused to increase the epoch of the group; the log has the reason",
}
GuardedP = ParamSpec("GuardedP")
GuardedR = TypeVar("GuardedR")


class Lease:
    """The right of this consumer to work on one partition until a moment that heartbeat responses move on.

    `Consumer.lease` and the context of a handler return it. It may be used in any thread, and never blocks. It ends
    with the assignment: if the partition is assigned again later, request another one.

    Attributes:
        topic: The partition's topic.
        partition: The partition's number.
    """

    def __init__(
        self, partition: TopicPartition, epoch: int, remaining: Callable[[], float], why_no_token: str = ""
    ) -> None:
        self.topic, self.partition = partition
        self._epoch = epoch
        self._remaining = remaining
        self._why_no_token = why_no_token

    @property
    @raises_as_confluent
    def token(self) -> int:
        """The member epoch (classic: the generation) at which the partition was assigned.

        It grows with each change of the owner, as long as the group exists. A partition that another member owned is
        assigned by a later assignment of the group, which has a higher epoch, and a member receives it at that epoch or
        a later one. A member with a group.instance.id, which may replace another process at the same epoch,
        makes the coordinator increase the epoch before it takes partitions.

        Raises:
            KafkaException: the epoch may be that of an earlier owner. The member is a classic one with a
                group.instance.id, or the coordinator refused to increase the epoch.
        """
        if self._why_no_token:
            raise StateError(
                f"Local: Erroneous state: the lease of {self.topic}-{self.partition} has no token: "
                f"{self._why_no_token}",
                STATE_CODE,
            )
        return self._epoch

    @property
    def remaining(self) -> float:
        """How long the lease still lasts, in seconds, if no further heartbeat is answered; 0.0: it is over."""
        return max(0.0, self._remaining())

    @property
    def until(self) -> float:
        """When the lease ends, if no further heartbeat is answered (`time.monotonic`); now, if it is over."""
        return monotonic() + self.remaining

    @property
    def holds(self) -> bool:
        """Whether the lease is not over."""
        return self.remaining > 0.0

    def guard(self, at_least_s: float = 0.0) -> LeaseGuard:
        """Return a guard for work on the partition: a context manager, and a decorator of functions and coroutines.

        It refuses to begin after the end of the lease, or with less than `at_least_s` seconds remaining. When the work
        has ended, it raises `LeaseOverError` if the lease did not hold: nest it in a transaction of the target system,
        which is then rolled back. An exception of the work itself propagates unchanged.
        """
        return LeaseGuard(self, at_least_s)

    def __repr__(self) -> str:
        return f"Lease({self.topic}-{self.partition}, epoch={self._epoch}, remaining={self.remaining:.3f})"


class LeaseGuard:
    """Work that may only be done while a lease holds; `Lease.guard` returns it.

    Attributes:
        held: Whether the lease held until the end of the work; None before that.
    """

    def __init__(self, lease: Lease, at_least_s: float) -> None:
        self._lease = lease
        self._at_least_s = at_least_s
        self.held: bool | None = None

    def __enter__(self) -> Self:
        """Begin the work.

        Raises:
            LeaseOverError: the lease is over, or ends too soon.
        """
        remaining = self._lease.remaining
        if remaining <= 0.0:
            raise _over(self._lease, "nothing was begun")
        if remaining < self._at_least_s:
            raise _over(self._lease, f"only {remaining:.3f} of {self._at_least_s:g} s remain, and nothing was begun")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the work.

        A lease that lapsed meanwhile and was renewed has held: the coordinator confirmed the same assignment.

        Raises:
            LeaseOverError: the lease did not hold.
        """
        self.held = self._lease.holds
        if not self.held and error is None:
            raise _over(self._lease, "the work that has just ended may have been done by two members")

    def __call__(self, function: Callable[GuardedP, GuardedR]) -> Callable[GuardedP, GuardedR]:
        """Guard each call of this function; of a coroutine function, until it has ended."""
        lease, at_least_s = self._lease, self._at_least_s
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def guarded_coroutine(*args: GuardedP.args, **kwargs: GuardedP.kwargs) -> object:
                with lease.guard(at_least_s):
                    return await function(*args, **kwargs)

            return guarded_coroutine  # type: ignore[return-value]  # it returns what the function returns: a coroutine

        @wraps(function)
        def guarded(*args: GuardedP.args, **kwargs: GuardedP.kwargs) -> GuardedR:
            with lease.guard(at_least_s):
                return function(*args, **kwargs)

        return guarded


class LeaseSource(Protocol):
    """A session as leases see it."""

    line: Line
    steps: Steps

    @property
    def has_leases(self) -> bool:
        """Whether leases are enabled."""


@raises_as_confluent
def lease_of(session: LeaseSource, partition: TopicPartition, epoch: int | None = None) -> Lease:
    """Return the lease of this partition. With an epoch, return the lease of that assignment, also if it is over.

    Raises:
        KafkaException: leases are not enabled.
        LeaseOverError: the partition is not owned.
    """
    if not session.has_leases:
        raise leases_are_off()
    line, epochs = session.line, session.steps.epochs
    present = epochs.get(partition) if epoch is None else epoch
    if present is None:
        raise LeaseOverError(f"{partition.topic}-{partition.partition} is not owned by this consumer")

    def remaining() -> float:
        ends_at = line.snapshot.lease_ends_at
        return 0.0 if ends_at == inf or epochs.get(partition) != present else ends_at - line.clock()

    return Lease(partition, present, remaining, why_no_token(session))


def why_no_token(session: LeaseSource) -> str:
    """Return why the leases of this consumer have no token now; empty: they have one."""
    view = session.line.snapshot.view
    return "" if view.has_tokens else _NO_TOKEN[view.protocol]


def leases_are_off() -> StateError:
    """Create the error of a consumer without leases."""
    return StateError("Local: Erroneous state: leases are off; set ownership.lease.enable=true", STATE_CODE)


def _over(lease: Lease, outcome: str) -> LeaseOverError:
    return LeaseOverError(f"the lease of {lease.topic}-{lease.partition} is over or ends too soon: {outcome}")
