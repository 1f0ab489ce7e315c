"""The token with which a sink tells the owner of a partition from one that was replaced and does not know it.

Kafka refuses the commit of a member that was replaced, but it cannot refuse what that member writes elsewhere: a task
that was stopped, or whose machine was cut off, goes on where it was. So the sink keeps the token of who wrote last
beside the data, in the same transaction, and refuses an older one (a fencing token).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Who writes a batch's records of one partition, and where the next batch begins.

    `epoch` is the member epoch (classic: the generation) at which the records were fetched; it grows whenever a
    partition goes to another member. `attempt` tells attempts of one member apart, which a takeover leaves at the same
    epoch: it grows with each run of a pipeline and with each attempt of a task (`attempt_number`). `next_offset` is
    what the group commits after the batch.
    """

    group: str
    topic: str
    partition: int
    next_offset: int
    epoch: int
    attempt: int

    @property
    def rank(self) -> tuple[int, int]:
        """Who may write: nobody with a lower rank than the last one that wrote."""
        return (self.epoch, self.attempt)


#: Spark numbers the task attempts of one application from 0; a run has at most a million of them here.
_TASK_BITS = 20


def attempt_number(run_started_ms: int, task_attempt_id: int) -> int:
    """A number that is larger for a later run of a pipeline, and in one run for a later attempt; fits 64 bits.

    `run_started_ms`: milliseconds since 1970 on the driver; `task_attempt_id`: `TaskContext.taskAttemptId()`.
    """
    return (run_started_ms << _TASK_BITS) | (task_attempt_id & ((1 << _TASK_BITS) - 1))


def run_of(attempt: int) -> int:
    """The run that an attempt belongs to: when it started, in milliseconds since 1970."""
    return attempt >> _TASK_BITS
