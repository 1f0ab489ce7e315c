"""A Spark job whose tasks are members of the group: submit it, watch it, stop it, and remove its members at the end."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from consumer_membership import errors
from consumer_membership.admin import GroupAdmin
from consumer_membership.errors import ConfigurationError, FencedError, GroupError, MembershipError
from consumer_membership.spark.arguments import context_of, is_stopped
from consumer_membership.spark.control import ControlServer, Failure, MemberProgress
from consumer_membership.spark.member import MemberSummary
from consumer_membership.spark.pickling import pickled
from consumer_membership.spark.plan import MemberPlan, run_of
from consumer_membership.spark.task import rdd_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("consumer_membership.spark")

#: Errors whose only argument is a text.
_WITH_A_TEXT = (FencedError, errors.SinkError, errors.DrainError, errors.TransportError)
#: GROUP_ID_NOT_FOUND: no member has joined.
_NO_SUCH_GROUP = 69
#: Settings with which Spark encrypts the connections between driver and executors.
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)
#: The last line of a task's traceback.
_RAISED = re.compile(r"consumer_membership\.(?:\w+\.)*(\w+(?:Error|Exception)): (.*)")
#: The interval of the checks of a job without new messages.
_CHECK_EVERY_S = 0.5
#: How long the tasks of a cancelled job may take to commit and leave. Spark kills the process of a stuck task within
#: 4 s: it checks every 2 s, and waits for another 2 s (`spark.python.task.killTimeout`).
_LAST_BATCH_S = 5.0


class MemberJob:
    """One run of a plan on Spark, from its submission to its end.

    Raises:
        ConfigurationError: the sink cannot be sent to the tasks, or the session has no SparkContext.
    """

    def __init__(self, spark: SparkSession, plan: MemberPlan, sink: object, control_host: str | None) -> None:
        from pyspark import InheritableThread

        context = context_of(spark)
        if context is None:
            raise ConfigurationError("spark", type(spark).__module__, "give a session that has a SparkContext")
        self._spark = spark
        self._context = context
        payload = pickled(sink)
        host = control_host or _setting(spark, "spark.driver.host", "127.0.0.1")
        # With encryption, Spark's own channels carry the texts of errors, which may quote records: the control line is
        # not encrypted.
        is_encrypted = any(_setting(spark, key, "false") == "true" for key in _ENCRYPTION)
        self._server = ControlServer(
            host, _setting(spark, "spark.driver.bindAddress", host), sends_texts=not is_encrypted
        )
        self.plan = replace(plan, control=self._server.address)
        self._payload = payload
        self._began_at = time.monotonic()
        self._ended_at: float | None = None
        self._summaries: tuple[MemberSummary, ...] = ()
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._over = threading.Event()
        self._ended = threading.Event()
        self._submitter = InheritableThread(target=self._submit, name="consumer-membership-job", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="consumer-membership-watch", daemon=True)
        self._submitter.start()
        self._watcher.start()

    # ---- from outside ----

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and its members are removed."""
        return self._over.is_set()

    @property
    def seconds(self) -> float:
        """The seconds since the submission; after the end, the duration of the job."""
        return (self._ended_at or time.monotonic()) - self._began_at

    def progress(self) -> tuple[MemberProgress, ...]:
        """Return the last report of each member, by instance."""
        return self._server.progress()

    def stop(self) -> None:
        """Order every member to finish its batch, commit and leave."""
        self._server.stop()

    def cancel(self) -> None:
        """Let Spark kill the tasks, without their last batches, and remove their members from the group."""
        self._is_cancelled = True
        self._server.stop()
        self._context.cancelJobGroup(self.plan.run)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether the job ended within this time; can be interrupted by Ctrl-C."""
        return self._over.wait(timeout_s)

    def outcome(self) -> tuple[MemberSummary, ...]:
        """Return the summaries of the members after the end of the job.

        Raises:
            MembershipError: the job failed; this is the last error of its tasks, if they have reported one.
        """
        if self._error is None:
            return self._summaries
        refuse_stopped(self._spark, self._error)
        failures = self._server.failures()
        if failures:
            last = failures[-1]
            text = last.text or dict(raised_in(self._error)).get(last.kind, "the executor's log has the text")
            raise raised_in_a_task(last.kind, f"task {last.instance}: {text}") from self._error
        raise MembershipError(f"the Spark job failed: {message_of(self._error)}") from self._error

    # ---- inside ----

    def _submit(self) -> None:
        count = self.plan.instances or 1
        description = f"{count} members of group {self.plan.group}"
        try:
            self._context.setJobGroup(self.plan.run, description, interruptOnCancel=True)
            # An RDD, because planning a DataFrame takes a tenth of a second before the first task starts.
            members = self._context.parallelize(range(count), count)
            done = members.mapPartitions(rdd_task(self.plan, self._payload)).collect()
            self._summaries = tuple(sorted(done, key=lambda summary: summary.instance))
        except BaseException as failed:  # noqa: BLE001 - the thread that waits raises it
            self._error = failed
        finally:
            self._ended.set()
            self._server.wake()

    def _watch(self) -> None:
        """End the job if another run takes its members over; remove remaining members after the end."""
        while not self._ended.is_set():
            self._server.wait_for_change(_CHECK_EVERY_S, self._ended.is_set)
            from_outside = next(filter(_is_from_outside, self._server.failures()), None)
            if not self._is_cancelled and from_outside is not None:
                _log.warning(
                    "Run %s ends, because another run took its members over: %s", self.plan.run, from_outside.text
                )
                self._is_cancelled = True
                self._context.cancelJobGroup(self.plan.run)
        self._submitter.join()
        self._ended_at = time.monotonic()
        # If a replacement had nothing left to do, it did not join, and the member of the lost task is still there.
        if self._error is not None or self._server.has_replacements:
            # Spark may end a job while its tasks still work, for example at Ctrl-C. If their members were removed in
            # the middle of a batch, its commit would be refused, and its records would be redelivered.
            self._server.stop()
            self._server.wait_for_ends(_LAST_BATCH_S)
            remove_remaining_members(self.plan)
        self._server.close()
        self._over.set()


def refuse_stopped(spark: SparkSession, error: BaseException) -> None:
    """Raise MembershipError if the session was stopped during the job: the job's own error does not show that."""
    if is_stopped(spark):
        raise MembershipError(
            "the session was stopped while the job ran, and Spark killed its tasks: uncommitted records are "
            "redelivered. Stop the run before you stop the session"
        ) from error


def remove_remaining_members(plan: MemberPlan) -> None:
    """Remove the members of killed tasks of this run: their partitions would wait until the sessions end."""
    admin = GroupAdmin(plan.config)
    try:
        members = admin.describe(plan.group, with_offsets=False).group.members
        left = [
            member.instance_id
            for member in members
            if member.instance_id is not None and run_of(member.client_id) == plan.run_number
        ]
        if left:
            admin.remove_members(plan.group, instance_ids=left, reason=f"run {plan.run} has ended")
    except GroupError as refused:
        if refused.code != _NO_SUCH_GROUP:
            _log.warning("Run %s: remaining members could not be removed from the group: %s", plan.run, refused)
    except MembershipError as failed:
        _log.warning("Run %s: remaining members stay in the group until their sessions end: %s", plan.run, failed)


def _setting(spark: SparkSession, key: str, otherwise: str) -> str:
    # Not the context's getConf, which copies every setting to Java and back, a millisecond each.
    return spark.conf.get(key, otherwise) or otherwise


def _is_from_outside(failure: Failure) -> bool:
    """Return whether a member lost its place permanently to another run, not to a later attempt of this run.

    A member that was temporarily out of its group joins again and reports no failure.
    """
    return failure.kind == FencedError.__name__ and failure.was_latest


def raised_in(error: BaseException) -> list[tuple[str, str]]:
    """Return classes and texts of the errors of this package in Spark's error message; the latest last."""
    return _RAISED.findall(str(error))


def raised_in_a_task(kind: str, text: str) -> MembershipError:
    """Return the error of a task to raise it here: of its own class, if its only argument is a text."""
    known = getattr(errors, kind, MembershipError)
    if isinstance(known, type) and issubclass(known, _WITH_A_TEXT):
        return known(text)
    return MembershipError(f"{kind}: {text}")


def message_of(error: BaseException) -> str:
    """Return the last message of an error, of Python or the JVM: the last line before the JVM's stack trace."""
    head = takewhile(lambda line: not line.startswith("\tat "), str(error).splitlines())
    lines = [line for line in head if line.strip() and not line.startswith((" ", "\t"))]
    return lines[-1].removeprefix(": ") if lines else type(error).__name__
