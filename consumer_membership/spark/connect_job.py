"""A job whose tasks are members, through Spark Connect: without a line from the tasks to whoever asked.

The client may be on another machine than the driver, and nothing of it can be called by a task. So a task says what it
did in the row that is its result, and why it failed in its exception. What the client wants, and how far the tasks are,
stands on a board in Kafka. A drain does without where it may not have one: it ends when the group has committed
everything, which each task sees for itself.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from typing import TYPE_CHECKING

from consumer_membership.errors import ConfigurationError, MembershipError, TransportError
from consumer_membership.spark.board import Board
from consumer_membership.spark.context import Partition
from consumer_membership.spark.control import MemberProgress
from consumer_membership.spark.job import clear_away, raised_in, raised_in_a_task, refuse_stopped, words_of
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
    """One run of a plan through Spark Connect, from its submission to its end; its partitions are the topics'.

    Raises:
        ConfigurationError: a sink that cannot be sent to the tasks; a board that the client may not have.
        TransportError: the brokers do not take its first word.
    """

    def __init__(self, spark: SparkSession, plan: MemberPlan, sink: object, partitions: Iterable[Partition]) -> None:
        self._payload = pickled(sink)
        self._board = _board(plan, partitions)
        self.plan = plan if self._board is None else self._board.plan
        self._spark = spark
        #: Whether somebody wants it to end.
        self._is_ending = False
        #: Of Spark's: it has no commas and no blanks.
        self._tag = re.sub(r"[^\w.@-]", "_", plan.run)
        self._began_at = time.monotonic()
        self._ended_at: float | None = None
        self._summaries: tuple[MemberSummary, ...] = ()
        self._error: BaseException | None = None
        self._over = threading.Event()
        threading.Thread(target=self._submit, name="consumer-membership-job", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and nothing of it is left."""
        return self._over.is_set()

    @property
    def seconds(self) -> float:
        """Since its submission, or what it took."""
        return (self._ended_at or time.monotonic()) - self._began_at

    def progress(self) -> tuple[MemberProgress, ...]:
        """What each member said last, by instance; nothing without a board: rows come when their task is done."""
        return () if self._board is None else self._board.progress()

    def stop(self) -> None:
        """Have every member finish its batch, commit and leave; without a board Spark kills them, as by `cancel`."""
        self._is_ending = True
        if self._board is None:
            self.cancel()
        else:
            self._board.stop()

    def cancel(self) -> None:
        """Have Spark kill its tasks; what they leave in the group is removed."""
        self._is_ending = True
        threading.Thread(target=self._interrupt, name="consumer-membership-cancel", daemon=True).start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the job ended within this time; Ctrl-C gets through."""
        return self._over.wait(timeout_s)

    def outcome(self) -> tuple[MemberSummary, ...]:
        """What the members did, after the end.

        Raises:
            MembershipError: why the job failed: what its task raised last.
        """
        if self._error is None:
            if self.plan.ends is None and not self._is_ending:
                raise TransportError(
                    "the tasks have ended: for a minute they had no word from here; what they gave their sink is "
                    "committed. See whether this client reaches the brokers, and is not put to sleep"
                )
            return self._summaries
        refuse_stopped(self._spark, self._error)
        raised = raised_in(self._error)
        if raised:
            kind, text = raised[-1]
            raise raised_in_a_task(kind, text) from self._error
        raise MembershipError(f"the Spark job failed: {words_of(self._error)}") from self._error

    def _interrupt(self) -> None:
        """Again and again: a server that has not begun with the job yet interrupts nothing, and says so to nobody."""
        try:
            self._spark.interruptTag(self._tag)
            while not self._over.wait(_INTERRUPT_S):
                self._spark.interruptTag(self._tag)
        except Exception as failed:  # noqa: BLE001 - a server that is gone has no tasks
            _log.warning("Run %s: it cannot be interrupted: %s", self.plan.run, words_of(failed))

    def _submit(self) -> None:
        count = self.plan.instances or 1
        try:
            # Of this thread's jobs alone.
            self._spark.addTag(self._tag)
            members = self._spark.range(0, count, 1, count).mapInArrow(
                frame_task(self.plan, self._payload),
                "summary string",
            )
            done = [MemberSummary(**json.loads(row.summary)) for row in members.collect()]
            self._summaries = tuple(sorted(done, key=lambda summary: summary.instance))
        except BaseException as failed:  # noqa: BLE001 - it is for whoever waits, whatever it is
            self._error = failed
        finally:
            # A replacement may have found nothing left to do, and not joined: what it replaced is still there.
            clear_away(self.plan)
            if self._board is not None:
                self._board.close()
            self._ended_at = time.monotonic()
            self._over.set()


def _board(plan: MemberPlan, partitions: Iterable[Partition]) -> Board | None:
    """A run has one, or is refused; a drain has one if it may."""
    try:
        return Board(plan, partitions)
    except ConfigurationError as refused:
        if plan.ends is None:
            raise
        _log.info("Run %s: no progress, and no end in good order before its time: %s", plan.run, refused)
        return None
