"""Messages between a Spark Connect client and the tasks of its run, as offset metadata of two helper groups in Kafka.

Tasks cannot connect to the client, and Spark delivers no messages to a running task. Both can reach Kafka. So each run
uses two groups without members: in `<pipeline>-control` the client commits orders and a heartbeat, and in
`<pipeline>-progress` each task commits its progress. The messages are JSON, in the metadata of an offset: the client's
at the first partition of the run, a task's at the partition with the task's number. Later runs of a pipeline overwrite
them, and Kafka expires them like the offsets of any group.

A task whose client sends no new heartbeat for a minute finishes its batch, commits and leaves. Time in which Kafka does
not respond does not count.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

from confluent_kafka import KafkaException, TopicPartition

from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import ConfigurationError, MembershipError, TransportError
from consumer_membership.spark.context import Partition
from consumer_membership.spark.control import Link, MemberProgress, MemberReports, Order, progress_of
from consumer_membership.spark.plan import MemberPlan

_log = logging.getLogger("consumer_membership.spark")

#: The interval at which a task or the client reads.
_READ_EVERY_S = 1.0
#: The interval of the client's heartbeats.
_HEARTBEAT_S = 5.0
#: A client without a new heartbeat for this long is regarded as gone.
_GONE_AFTER_S = 60.0
_ANSWER_S = 10.0
#: A little less than the default of the broker's `offset.metadata.max.bytes`, 4096.
_LONGEST = 4000
#: In the text of an error that a missing ACL causes.
_FORBIDDEN = ("AUTHORIZATION_FAILED", "authorization failed")
_BROKEN = (KafkaException, MembershipError, RuntimeError, ValueError, KeyError, TypeError)


class _HelperGroup:
    """The messages in one helper group; created, used and closed in one thread."""

    def __init__(self, plan: MemberPlan, name: str) -> None:
        self.group = f"{plan.pipeline}-{name}"
        self._consumer = Consumer({**plan.config, "group.id": self.group, "enable.auto.commit": False})

    def write(self, partition: Partition, number: int, message: Mapping[str, object]) -> None:
        """Commit offset `number` at a partition, with the message as metadata."""
        text = json.dumps(message, separators=(",", ":"))
        answer = self._consumer.commit(offsets=[TopicPartition(*partition, number, metadata=text)], asynchronous=False)
        for one in answer or ():
            if one.error is not None:
                raise KafkaException(one.error)

    def read(self, partitions: tuple[Partition, ...]) -> list[Mapping[str, object]]:
        """Return the messages at these partitions; partitions without a message are left out."""
        answers = self._consumer.committed([TopicPartition(*partition) for partition in partitions], _ANSWER_S)
        return [json.loads(one.metadata) for one in answers if one.error is None and one.offset >= 0 and one.metadata]

    def close(self) -> None:
        self._consumer.close()


class TaskMailbox(Link):
    """The task's side: reads the client's orders and commits the task's progress.

    `gone_after_s`: a client without a new heartbeat for this long is regarded as gone.
    """

    def __init__(self, plan: MemberPlan, instance: int, gone_after_s: float = _GONE_AFTER_S) -> None:
        super().__init__()
        self._plan = plan
        self._instance = instance
        self._gone_after_s = gone_after_s
        self._progress: MemberProgress | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._exchange, name="consumer-membership-mailbox", daemon=True)
        self._thread.start()

    def report(self, progress: MemberProgress) -> None:
        """Store the progress for the next commit; never raises."""
        self._progress = progress

    def close(self) -> None:
        """Stop reading and writing; the last progress stays in Kafka."""
        self._closing.set()
        self._thread.join(_ANSWER_S)

    def _exchange(self) -> None:
        plan, partitions = self._plan, self._plan.mailbox
        reported, number, seen_number, unmoved_s = None, 0, -1, 0.0
        with (
            contextlib.closing(_HelperGroup(plan, "control")) as control,
            contextlib.closing(_HelperGroup(plan, "progress")) as progress,
        ):
            while not self._closing.wait(_READ_EVERY_S):
                try:
                    for message in control.read(partitions[:1]):
                        seen = int(str(message["beat"])) if message["run"] == plan.run else seen_number
                        unmoved_s = unmoved_s + _READ_EVERY_S if seen == seen_number else 0.0
                        seen_number = seen
                        if message["run"] == plan.run and message["order"] is not None:
                            self.order, self.cut_short = Order(str(message["order"])), None
                    if self._progress is not reported and self._instance < len(partitions):
                        reported, number = self._progress, number + 1
                        progress.write(partitions[self._instance], number, _message_of(plan.run, reported))
                except _BROKEN as failed:
                    _log.debug("Task %s: messages with the client could not be exchanged: %s", self._instance, failed)
                if unmoved_s > self._gone_after_s and self.order is None:
                    _log.warning(
                        "Task %s: no heartbeat from the client for %g s; finishing the current batch",
                        self._instance,
                        self._gone_after_s,
                    )
                    self.order = Order.STOP


class ClientMailbox:
    """The client's side; opened before the job starts, closed after its end.

    Raises:
        ConfigurationError: the client is not authorized to commit offsets of the helper groups.
        TransportError: the first heartbeat could not be committed.
    """

    def __init__(self, plan: MemberPlan, partitions: Iterable[Partition]) -> None:
        #: The plan for the tasks, with the partitions that hold the messages.
        self.plan = replace(plan, mailbox=tuple(sorted(partitions)[: plan.instances]))
        self._order: Order | None = None
        self._reports = MemberReports()
        self._lock = threading.Lock()
        #: The time after which no report can arrive; None while reports can arrive.
        self._ended_at: float | None = None
        self._is_taken = False
        self._refused: Exception | None = None
        self._is_known = threading.Event()
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._send_heartbeats, name="consumer-membership-mailbox", daemon=True)
        self._thread.start()
        self._is_known.wait(3 * _ANSWER_S)
        if not self._is_taken:
            self.close()
            raise _refusal(plan, self._refused)

    def progress(self) -> tuple[MemberProgress, ...]:
        """Return the last report of each task, by instance, with its present validity; never waits for Kafka."""
        with self._lock:
            return self._reports.shown(time.monotonic() if self._ended_at is None else self._ended_at)

    def stop(self) -> None:
        """Order every task to finish its batch, commit and leave; tasks read the order within two seconds."""
        self._order = Order.STOP
        self._wake.set()

    def close(self) -> None:
        """Stop sending heartbeats and reading progress."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(_ANSWER_S)
        self._ended_at = self._ended_at or time.monotonic()

    def _send_heartbeats(self) -> None:
        plan = self.plan
        number, last, sent = 0, float("-inf"), self._order
        with (
            contextlib.closing(_HelperGroup(plan, "control")) as control,
            contextlib.closing(_HelperGroup(plan, "progress")) as progress,
        ):
            while not self._is_closing:
                order = self._order
                try:
                    if time.monotonic() - last >= _HEARTBEAT_S or order != sent:
                        number += 1
                        control.write(plan.mailbox[0], number, {"run": plan.run, "beat": number, "order": order})
                        sent, last = order, time.monotonic()
                        self._is_taken = True
                        self._is_known.set()
                    found = progress.read(plan.mailbox)
                    received = [progress_in(message) for message in found if message["run"] == plan.run]
                    with self._lock:
                        for report in received:
                            self._reports.note(report, time.monotonic())
                except _BROKEN as failed:
                    if not self._is_taken:
                        self._refused = failed
                        self._is_known.set()
                        return
                    _log.warning("Run %s: messages with its tasks could not be exchanged: %s", plan.run, failed)
                self._wake.wait(_READ_EVERY_S)
                self._wake.clear()


def _message_of(run: str, progress: MemberProgress | None) -> Mapping[str, object]:
    """Return a report as a message, without its partitions if it would be too long."""
    fields = {} if progress is None else asdict(progress)
    if len(json.dumps(fields)) > _LONGEST - len(run):
        fields["owned"] = []
    return {"run": run, "progress": fields}


def progress_in(message: Mapping[str, object]) -> MemberProgress:
    """Return the report of a task in this message.

    Raises:
        ValueError, KeyError, TypeError: the message has no report, or one of another version of the package.
    """
    fields = message["progress"]
    if not isinstance(fields, dict):
        raise TypeError(f"not a progress report: {fields!r}")
    return progress_of(fields)


def _refusal(plan: MemberPlan, failed: Exception | None) -> MembershipError:
    groups = f"{plan.pipeline}-control and {plan.pipeline}-progress"
    if failed is not None and any(text in str(failed) for text in _FORBIDDEN):
        return ConfigurationError(
            "pipeline",
            plan.pipeline,
            f"with Spark Connect, client and tasks exchange messages through the groups {groups}; grant the user READ "
            "on both groups",
        )
    return TransportError(f"the first message to the tasks, in group {plan.pipeline}-control, failed: {failed}")
