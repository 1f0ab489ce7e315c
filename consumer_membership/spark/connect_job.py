"""A bounded job whose tasks are members, through Spark Connect: without a line from the tasks to whoever asked.

The client may be on another machine than the driver, and nothing of it can be called by a task. So a task says what it
did in the row that is its result, and why it failed in its exception; it ends when the group has committed everything,
which it sees for itself. There is no progress, and no other way to end one sooner than to have Spark kill it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import TYPE_CHECKING

from consumer_membership.errors import MembershipError
from consumer_membership.spark.control import MemberProgress
from consumer_membership.spark.job import clear_away, raised_in_a_task, words_of
from consumer_membership.spark.member import MemberSummary
from consumer_membership.spark.pickling import pickled
from consumer_membership.spark.plan import MemberPlan
from consumer_membership.spark.task import frame_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The last line of a traceback that a task ended with.
_RAISED = re.compile(r"consumer_membership\.(?:\w+\.)*(\w+(?:Error|Exception)): (.*)")


class ConnectJob:
    """One bounded run of a plan through Spark Connect, from its submission to its end.

    Raises ConfigurationError: a sink that cannot be sent to the tasks.
    """

    def __init__(self, spark: SparkSession, plan: MemberPlan, sink: object) -> None:
        self.plan = plan
        self._spark = spark
        self._payload = pickled(sink)
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
        """Nothing: rows come when their task is done."""
        return ()

    def stop(self) -> None:
        """As `cancel`: a task cannot be told to finish its batch."""
        self.cancel()

    def cancel(self) -> None:
        """Have Spark kill its tasks; what they leave in the group is removed."""
        self._spark.interruptTag(self._tag)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the job ended within this time; Ctrl-C gets through."""
        return self._over.wait(timeout_s)

    def outcome(self) -> tuple[MemberSummary, ...]:
        """What the members did, after the end.

        Raises:
            MembershipError: why the job failed: what its task raised last.
        """
        if self._error is None:
            return self._summaries
        raised = _RAISED.findall(str(self._error))
        if raised:
            kind, text = raised[-1]
            raise raised_in_a_task(kind, text) from self._error
        raise MembershipError(f"the Spark job failed: {words_of(self._error)}") from self._error

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
            self._ended_at = time.monotonic()
            self._over.set()
