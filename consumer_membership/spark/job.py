"""A Spark job whose tasks are members: submitted, watched, stopped, and what it leaves in the group cleared away."""

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

#: Errors that are made of a text alone.
_WITH_A_TEXT = (FencedError, errors.SinkError, errors.DrainError, errors.TransportError)
#: GROUP_ID_NOT_FOUND: nobody joined.
_NO_SUCH_GROUP = 69
#: Settings with which Spark encrypts what its driver and executors exchange.
_ENCRYPTION = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)
#: The last line of a traceback that a task ended with.
_RAISED = re.compile(r"consumer_membership\.(?:\w+\.)*(\w+(?:Error|Exception)): (.*)")
#: Between two looks at a job about which nothing is heard.
_LOOK_S = 0.5
#: How long the tasks of a job that Spark gave up may take to commit and leave. Spark kills the process of a stuck one
#: within 4 s: it looks every 2 s, and waits for as long (`spark.python.task.killTimeout`).
_LAST_BATCH_S = 5.0


class MemberJob:
    """One run of a plan on Spark, from its submission to its end.

    Raises:
        ConfigurationError: a sink that cannot be sent to the tasks; a session without a SparkContext.
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
        # Spark's own channels then carry the texts of errors, which may quote records: the control line is clear text.
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
        """Whether the job has ended and nothing of it is left."""
        return self._over.is_set()

    @property
    def seconds(self) -> float:
        """Since its submission, or what it took."""
        return (self._ended_at or time.monotonic()) - self._began_at

    def progress(self) -> tuple[MemberProgress, ...]:
        """What each member said last, by instance."""
        return self._server.progress()

    def stop(self) -> None:
        """Have every member finish its batch, commit and leave."""
        self._server.stop()

    def cancel(self) -> None:
        """End the job without its last batches: Spark kills its tasks, and what they leave in the group is removed."""
        self._is_cancelled = True
        self._server.stop()
        self._context.cancelJobGroup(self.plan.run)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the job ended within this time; Ctrl-C gets through."""
        return self._over.wait(timeout_s)

    def outcome(self) -> tuple[MemberSummary, ...]:
        """What the members did, after the end.

        Raises:
            MembershipError: why the job failed: the tasks' own last words, where they had any.
        """
        if self._error is None:
            return self._summaries
        refuse_stopped(self._spark, self._error)
        failures = self._server.failures()
        if failures:
            last = failures[-1]
            said = last.text or dict(raised_in(self._error)).get(last.kind, "the executor's log has the text")
            text = f"task {last.instance}: {said}"
            raise raised_in_a_task(last.kind, text) from self._error
        raise MembershipError(f"the Spark job failed: {words_of(self._error)}") from self._error

    # ---- inside ----

    def _submit(self) -> None:
        count = self.plan.instances or 1
        words = f"{count} members of group {self.plan.group}"
        try:
            self._context.setJobGroup(self.plan.run, words, interruptOnCancel=True)
            # An RDD: a DataFrame's plan costs a tenth of a second before the first task begins.
            members = self._context.parallelize(range(count), count)
            done = members.mapPartitions(rdd_task(self.plan, self._payload)).collect()
            self._summaries = tuple(sorted(done, key=lambda summary: summary.instance))
        except BaseException as failed:  # noqa: BLE001 - it is for whoever waits, whatever it is
            self._error = failed
        finally:
            self._ended.set()
            self._server.wake()

    def _watch(self) -> None:
        """Until the job's end: look whether somebody else has taken its members over."""
        while not self._ended.is_set():
            self._server.wait_for_change(_LOOK_S, self._ended.is_set)
            from_outside = next(filter(_is_from_outside, self._server.failures()), None)
            if not self._is_cancelled and from_outside is not None:
                _log.warning("Run %s: its place is another's; it ends: %s", self.plan.run, from_outside.text)
                self._is_cancelled = True
                self._context.cancelJobGroup(self.plan.run)
        self._submitter.join()
        self._ended_at = time.monotonic()
        # A replacement that found nothing left to do has not joined, and not taken over what a lost task left.
        if self._error is not None or self._server.has_replacements:
            # Spark gives a job up while its tasks work, at a Ctrl-C before anybody here hears of it; the commit of a
            # member that is removed in the middle of a batch is refused, and what its sink has taken comes again.
            self._server.stop()
            self._server.wait_for_ends(_LAST_BATCH_S)
            clear_away(self.plan)
        self._server.close()
        self._over.set()


def refuse_stopped(spark: SparkSession, error: BaseException) -> None:
    """Raise MembershipError if a job's session was stopped under it: what it failed with then tells nothing."""
    if is_stopped(spark):
        raise MembershipError(
            "the session was stopped while the job ran, and Spark killed its tasks: what is not committed comes again; "
            "stop the run first"
        ) from error


def clear_away(plan: MemberPlan) -> None:
    """Remove what killed tasks of this run left in the group: its partitions would wait for the end of a session."""
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
            _log.warning("Run %s: its members may stay in the group: %s", plan.run, refused)
    except MembershipError as failed:
        _log.warning("Run %s: its members may stay in the group until their sessions end: %s", plan.run, failed)


def _setting(spark: SparkSession, key: str, otherwise: str) -> str:
    # Not the context's getConf: it copies every setting to Java and back, a millisecond each.
    return spark.conf.get(key, otherwise) or otherwise


def _is_from_outside(failure: Failure) -> bool:
    """Whether a member has lost its place for good, and not to a later attempt of this run's own.

    A member that was out of its group for a while, and whose partitions its own run has, joins again and fails nothing.
    """
    return failure.kind == FencedError.__name__ and failure.was_latest


def raised_in(error: BaseException) -> list[tuple[str, str]]:
    """Kinds and texts of this package's errors that tasks raised, as Spark quotes them; the latest last."""
    return _RAISED.findall(str(error))


def raised_in_a_task(kind: str, text: str) -> MembershipError:
    """An error of a task, to be raised here: of its own class where it is made of a text alone."""
    known = getattr(errors, kind, MembershipError)
    if isinstance(known, type) and issubclass(known, _WITH_A_TEXT):
        return known(text)
    return MembershipError(f"{kind}: {text}")


def words_of(error: BaseException) -> str:
    """What was raised last, in Python or else in the JVM: the last line before the JVM's stack that is no frame."""
    said = takewhile(lambda line: not line.startswith("\tat "), str(error).splitlines())
    lines = [line for line in said if line.strip() and not line.startswith((" ", "\t"))]
    return lines[-1].removeprefix(": ") if lines else type(error).__name__
