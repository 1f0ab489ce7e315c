"""A Spark Connect job whose tasks are members of the group, without a connection from the tasks to the client.

The client may be on another machine than the driver, so tasks cannot connect to it. A task returns its summary as its
result row, and its error as its exception. Orders and progress are exchanged through Kafka (`mailbox`). A drain works
without this exchange if the ACLs for it are missing: it ends when the group has committed everything, which each task
checks.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from typing import TYPE_CHECKING

from consumer_membership.errors import ConfigurationError, MembershipError, TransportError
from consumer_membership.spark.context import Partition
from consumer_membership.spark.control import MemberProgress
from consumer_membership.spark.job import (
    message_of,
    raised_in,
    raised_in_a_task,
    refuse_stopped,
    remove_remaining_members,
)
from consumer_membership.spark.mailbox import ClientMailbox
from consumer_membership.spark.member import MemberSummary
from consumer_membership.spark.pickling import pickled
from consumer_membership.spark.plan import MemberPlan
from consumer_membership.spark.task import frame_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_log = logging.getLogger("consumer_membership.spark")

_INTERRUPT_S = 0.5


class ConnectJob:
    """One run of a plan through Spark Connect, from its submission to its end.

    Raises:
        ConfigurationError: the sink cannot be sent to the tasks, or the client may not use the helper groups of a run.
        TransportError: the brokers did not accept the first message to the tasks.
    """

    def __init__(self, spark: SparkSession, plan: MemberPlan, sink: object, partitions: Iterable[Partition]) -> None:
        self._payload = pickled(sink)
        self._mailbox = _mailbox(plan, partitions)
        self.plan = plan if self._mailbox is None else self._mailbox.plan
        self._spark = spark
        #: Whether the caller has stopped or cancelled the run.
        self._is_ending = False
        #: A tag of Spark has no commas and no blanks.
        self._tag = re.sub(r"[^\w.@-]", "_", plan.run)
        self._began_at = time.monotonic()
        self._ended_at: float | None = None
        self._summaries: tuple[MemberSummary, ...] = ()
        self._error: BaseException | None = None
        self._over = threading.Event()
        threading.Thread(target=self._submit, name="consumer-membership-job", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and its members are removed."""
        return self._over.is_set()

    @property
    def seconds(self) -> float:
        """The seconds since the submission; after the end, the duration of the job."""
        return (self._ended_at or time.monotonic()) - self._began_at

    def progress(self) -> tuple[MemberProgress, ...]:
        """Return the last report of each member, by instance; empty if the client may not use the helper groups."""
        return () if self._mailbox is None else self._mailbox.progress()

    def stop(self) -> None:
        """Order every member to finish its batch, commit and leave; without the helper groups, `cancel` the job."""
        self._is_ending = True
        if self._mailbox is None:
            self.cancel()
        else:
            self._mailbox.stop()

    def cancel(self) -> None:
        """Let Spark kill the tasks, and remove their members from the group."""
        self._is_ending = True
        threading.Thread(target=self._interrupt, name="consumer-membership-cancel", daemon=True).start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether the job ended within this time; can be interrupted by Ctrl-C."""
        return self._over.wait(timeout_s)

    def outcome(self) -> tuple[MemberSummary, ...]:
        """Return the summaries of the members after the end of the job.

        Raises:
            MembershipError: the job failed; this is the last error of its tasks.
        """
        if self._error is None:
            if self.plan.ends is None and not self._is_ending:
                raise TransportError(
                    "the tasks have ended, because they received no heartbeat from this client for a minute; their "
                    "last batches are committed. Check that this client can reach the brokers and is not suspended"
                )
            return self._summaries
        refuse_stopped(self._spark, self._error)
        raised = raised_in(self._error)
        if raised:
            kind, text = raised[-1]
            raise raised_in_a_task(kind, text) from self._error
        raise MembershipError(f"the Spark job failed: {message_of(self._error)}") from self._error

    def _interrupt(self) -> None:
        """Interrupt the job repeatedly: a server that has not started the job yet ignores the request silently."""
        try:
            self._spark.interruptTag(self._tag)
            while not self._over.wait(_INTERRUPT_S):
                self._spark.interruptTag(self._tag)
        except Exception as failed:  # noqa: BLE001 - a server that is gone has no tasks
            _log.warning("Run %s: the Spark job could not be interrupted: %s", self.plan.run, message_of(failed))

    def _submit(self) -> None:
        count = self.plan.instances or 1
        try:
            # A tag applies only to the jobs of this thread.
            self._spark.addTag(self._tag)
            members = self._spark.range(0, count, 1, count).mapInArrow(
                frame_task(self.plan, self._payload),
                "summary string",
            )
            done = [MemberSummary(**json.loads(row.summary)) for row in members.collect()]
            self._summaries = tuple(sorted(done, key=lambda summary: summary.instance))
        except BaseException as failed:  # noqa: BLE001 - the thread that waits raises it
            self._error = failed
        finally:
            # If a replacement had nothing left to do, it did not join, and the member that it replaces is still there.
            remove_remaining_members(self.plan)
            if self._mailbox is not None:
                self._mailbox.close()
            self._ended_at = time.monotonic()
            self._over.set()


def _mailbox(plan: MemberPlan, partitions: Iterable[Partition]) -> ClientMailbox | None:
    """Open the exchange of messages; None if its ACLs are missing for a drain, which works without it."""
    try:
        return ClientMailbox(plan, partitions)
    except ConfigurationError as refused:
        if plan.ends is None:
            raise
        _log.info("Run %s: progress and a clean stop are not available: %s", plan.run, refused)
        return None
