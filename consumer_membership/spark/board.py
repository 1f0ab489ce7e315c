"""Where a client of Spark Connect and the tasks of its run leave word for each other: in Kafka, which both reach.

No task can call the client, and Spark delivers nothing to a task. So each run has two groups without members, in whose
committed offsets there are words instead of places: `<pipeline>-control`, by which the client says that it is there and
what is to be done, and `<pipeline>-progress`, where each task says how far it is. The words are the metadata of an
offset, JSON; the client's stand at the run's first partition, a task's at the one of its number. Later runs of a
pipeline write over them, and Kafka forgets them as it forgets any group's offsets.

A task that sees the client's number stand still for a minute takes it for gone: it finishes its batch, commits and
leaves. Time in which Kafka does not answer does not count.
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
from consumer_membership.spark.control import Link, MemberProgress, MemberReports, Order
from consumer_membership.spark.plan import MemberPlan

_log = logging.getLogger("consumer_membership.spark")

#: Between two looks of a task, or of the client.
_LOOK_S = 1.0
#: Between two words of the client that it is there.
_BEAT_S = 5.0
#: How long its words may stand still.
_GONE_AFTER_S = 60.0
_ANSWER_S = 10.0
#: Of a broker's `offset.metadata.max.bytes`, 4096 unless it is set.
_LONGEST = 4000
#: Kafka's words where an offset may not be committed.
_FORBIDDEN = ("AUTHORIZATION_FAILED", "authorization failed")
_BROKEN = (KafkaException, MembershipError, RuntimeError, ValueError, KeyError, TypeError)


class _Sheet:
    """The words of one group; made, used and closed in one thread."""

    def __init__(self, plan: MemberPlan, name: str) -> None:
        self.group = f"{plan.pipeline}-{name}"
        self._consumer = Consumer({**plan.config, "group.id": self.group, "enable.auto.commit": False})

    def write(self, place: Partition, number: int, words: Mapping[str, object]) -> None:
        text = json.dumps(words, separators=(",", ":"))
        answer = self._consumer.commit(offsets=[TopicPartition(*place, number, metadata=text)], asynchronous=False)
        for one in answer or ():
            if one.error is not None:
                raise KafkaException(one.error)

    def read(self, places: tuple[Partition, ...]) -> list[Mapping[str, object]]:
        """Of each place where there are some."""
        answers = self._consumer.committed([TopicPartition(*place) for place in places], _ANSWER_S)
        return [json.loads(one.metadata) for one in answers if one.error is None and one.offset >= 0 and one.metadata]

    def close(self) -> None:
        self._consumer.close()


class BoardLink(Link):
    """A task's end: what the client wants, and how far the task is.

    `gone_after_s`: how long the client's words may stand still.
    """

    def __init__(self, plan: MemberPlan, instance: int, gone_after_s: float = _GONE_AFTER_S) -> None:
        super().__init__()
        self._plan = plan
        self._instance = instance
        self._gone_after_s = gone_after_s
        self._progress: MemberProgress | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look_and_tell, name="consumer-membership-board", daemon=True)
        self._thread.start()

    def report(self, progress: MemberProgress) -> None:
        """Leave word for the client; never raises."""
        self._progress = progress

    def close(self) -> None:
        """Look no more; the last words stay."""
        self._closing.set()
        self._thread.join(_ANSWER_S)

    def _look_and_tell(self) -> None:
        plan, places = self._plan, self._plan.board
        told, number, beat, unmoved_s = None, 0, -1, 0.0
        with (
            contextlib.closing(_Sheet(plan, "control")) as control,
            contextlib.closing(_Sheet(plan, "progress")) as sheet,
        ):
            while not self._closing.wait(_LOOK_S):
                try:
                    for words in control.read(places[:1]):
                        seen = int(str(words["beat"])) if words["run"] == plan.run else beat
                        unmoved_s = unmoved_s + _LOOK_S if seen == beat else 0.0
                        beat = seen
                        if words["run"] == plan.run and words["order"] is not None:
                            self.order, self.cut_short = Order(str(words["order"])), None
                    if self._progress is not told and self._instance < len(places):
                        told, number = self._progress, number + 1
                        sheet.write(places[self._instance], number, _said(plan.run, told))
                except _BROKEN as failed:
                    _log.debug("Task %s: no word of the client: %s", self._instance, failed)
                if unmoved_s > self._gone_after_s and self.order is None:
                    _log.warning("Task %s: the client is gone; finishing the batch in hand", self._instance)
                    self.order = Order.STOP


class Board:
    """The client's end; opened before the job begins, closed after its end.

    Raises:
        ConfigurationError: the client may not commit for these groups.
        TransportError: the brokers do not take the first word.
    """

    def __init__(self, plan: MemberPlan, partitions: Iterable[Partition]) -> None:
        #: With which the tasks find the board.
        self.plan = replace(plan, board=tuple(sorted(partitions)[: plan.instances]))
        self._order: Order | None = None
        self._reports = MemberReports()
        self._lock = threading.Lock()
        #: When no more reports could come; None: they still can.
        self._ended_at: float | None = None
        self._is_taken = False
        self._refused: Exception | None = None
        self._is_known = threading.Event()
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._beat, name="consumer-membership-board", daemon=True)
        self._thread.start()
        self._is_known.wait(3 * _ANSWER_S)
        if not self._is_taken:
            self.close()
            raise _refusal(plan, self._refused)

    def progress(self) -> tuple[MemberProgress, ...]:
        """The last report of each task, by instance, and what it is worth by now; never waits for Kafka."""
        with self._lock:
            return self._reports.shown(time.monotonic() if self._ended_at is None else self._ended_at)

    def stop(self) -> None:
        """Have every task finish its batch, commit and leave: within a second or two they see it."""
        self._order = Order.STOP
        self._wake.set()

    def close(self) -> None:
        """Say nothing more."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(_ANSWER_S)
        self._ended_at = self._ended_at or time.monotonic()

    def _beat(self) -> None:
        plan = self.plan
        number, last, said = 0, float("-inf"), self._order
        with (
            contextlib.closing(_Sheet(plan, "control")) as control,
            contextlib.closing(_Sheet(plan, "progress")) as sheet,
        ):
            while not self._is_closing:
                order = self._order
                try:
                    if time.monotonic() - last >= _BEAT_S or order != said:
                        number += 1
                        control.write(plan.board[0], number, {"run": plan.run, "beat": number, "order": order})
                        said, last = order, time.monotonic()
                        self._is_taken = True
                        self._is_known.set()
                    found = sheet.read(plan.board)
                    heard = [_heard(words) for words in found if words["run"] == plan.run]
                    with self._lock:
                        for report in heard:
                            self._reports.note(report, time.monotonic())
                except _BROKEN as failed:
                    if not self._is_taken:
                        self._refused = failed
                        self._is_known.set()
                        return
                    _log.warning("Run %s: no word to its tasks: %s", plan.run, failed)
                self._wake.wait(_LOOK_S)
                self._wake.clear()


def _said(run: str, progress: MemberProgress | None) -> Mapping[str, object]:
    """A report as words; without its partitions where these are too many."""
    words = {} if progress is None else asdict(progress)
    if len(json.dumps(words)) > _LONGEST - len(run):
        words["owned"] = []
    return {"run": run, "progress": words}


def _heard(words: Mapping[str, object]) -> MemberProgress:
    said = words["progress"]
    if not isinstance(said, dict):
        raise TypeError(f"no report: {said!r}")
    return MemberProgress(**{**said, "owned": tuple((str(topic), int(number)) for topic, number in said["owned"])})


def _refusal(plan: MemberPlan, failed: Exception | None) -> MembershipError:
    groups = f"{plan.pipeline}-control and {plan.pipeline}-progress"
    if failed is not None and any(words in str(failed) for words in _FORBIDDEN):
        return ConfigurationError(
            "pipeline",
            plan.pipeline,
            f"through Spark Connect a run leaves word to its tasks in the groups {groups}: allow the user to read them "
            "(ACL: operation READ on these groups)",
        )
    return TransportError(
        f"the brokers did not take a word for the tasks, in the group {plan.pipeline}-control: {failed}"
    )
