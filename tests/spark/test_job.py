"""What a job leaves in the group if Spark cancels it while a task is in its sink; the test plays Spark's part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Message

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import SinkError
from consumer_membership.spark import SinkContext, job
from consumer_membership.spark.context import attempt_number
from consumer_membership.spark.control import ControlLink, Order
from consumer_membership.spark.job import MemberJob
from consumer_membership.spark.member import MemberSummary, TaskMember
from consumer_membership.spark.plan import planned
from consumer_membership.types import OffsetAndMetadata
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 100


class Session(threading.Event):
    """A Spark session that cancels its only job when this event is set."""

    def __init__(self, conf: Mapping[str, str] | None = None, reason: str = "job 0 was cancelled") -> None:
        super().__init__()
        self.conf: Mapping[str, str] = conf or {}
        self.sparkContext = self
        self._reason = reason

    def setJobGroup(self, *_: str, interruptOnCancel: bool) -> None:  # noqa: N802, N803 - Spark's names
        """Do nothing, because the session has only one job."""

    def parallelize(self, *_: object) -> Session:
        """Return itself; no task runs in this session."""
        return self

    def mapPartitions(self, _: object) -> Session:  # noqa: N802 - Spark's name
        """Return itself; no task runs in this session."""
        return self

    def collect(self) -> list[MemberSummary]:
        """Wait for the end of the job."""
        self.wait(PATIENCE_S)
        raise RuntimeError(self._reason)


class Scene:
    """A job of one task, whose attempt runs in a thread of the test."""

    def __init__(self, broker: Broker, pool: ThreadPoolExecutor) -> None:
        self._admin = GroupAdmin({"bootstrap.servers": broker.bootstrap_servers})
        self._pool = pool
        topic = create_topic(broker.bootstrap_servers, unique("spark"))
        produce(broker.bootstrap_servers, topic, RECORDS)
        self.plan = planned({"bootstrap.servers": broker.bootstrap_servers}, [topic], unique("group"))
        self.session = Session()
        self.job = MemberJob(self.session, self.plan, unused, None)  # type: ignore[arg-type]  # enough of a session
        assert self.job.plan.control is not None
        self._attempt = attempt_number(self.plan.run_number, 0)
        self.link = ControlLink(self.job.plan.control, 0, self._attempt)

    def start(self, sink: Callable[[list[Message], SinkContext], None]) -> Future[MemberSummary]:
        """Start the task's attempt in a thread."""

        def attempt() -> MemberSummary:
            with closing(self.link):
                return TaskMember(self.job.plan, sink, 0, self._attempt, self.link).run()

        return self._pool.submit(attempt)

    def committed(self) -> list[int]:
        """The group's committed offsets."""
        committed = self._admin.committed(self.plan.group)
        return [at.offset for at in committed.values() if isinstance(at, OffsetAndMetadata)]

    def members(self) -> int:
        """The number of members in the group."""
        return len(self._admin.describe(self.plan.group).group.members)


def unused(_: list[Message], __: SinkContext) -> None:
    """A sink that is not called, because this session runs no task."""


@pytest.fixture
def scene(kafka: Broker) -> Iterator[Scene]:
    """100 records in one partition."""
    with ThreadPoolExecutor() as pool:
        scene = Scene(kafka, pool)
        try:
            yield scene
        finally:
            scene.session.set()
            scene.link.hang_up()
            assert scene.job.wait(PATIENCE_S)


def test_cancelled_job_commits_a_batch_in_the_sink_before_removing_members(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task receives the stop order and commits its batch before its member is removed."""
    monkeypatch.setattr(job, "_LAST_BATCH_S", PATIENCE_S)
    seen: set[int] = set()

    def sink(_: list[Message], __: SinkContext) -> None:
        scene.session.set()
        wait_until(lambda: scene.link.order is Order.STOP, "the order to stop")
        # These requests take far longer than the removal of a member.
        seen.update(scene.members() for _ in range(50))

    done = scene.start(sink).result(PATIENCE_S)
    assert scene.job.wait(PATIENCE_S)
    assert (seen, scene.committed(), scene.members()) == ({1}, [done.records], 0)


def test_cancelled_job_removes_the_member_of_a_stuck_task_in_bounded_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stuck task's member is removed after a bounded time, so its partitions do not wait for a session timeout."""
    monkeypatch.setattr(job, "_LAST_BATCH_S", 0.5)
    may_end = threading.Event()

    def sink(_: list[Message], __: SinkContext) -> None:
        scene.session.set()
        assert may_end.wait(PATIENCE_S)

    stuck = scene.start(sink)
    try:
        assert scene.job.wait(PATIENCE_S)
        assert (scene.committed(), scene.members(), stuck.running()) == ([], 0, True)
    finally:
        may_end.set()


def test_error_text_comes_from_spark_if_spark_encrypts(kafka: Broker) -> None:
    """With Spark's encryption, only the error's kind travels on the plaintext control connection."""
    raised = "Job aborted:\nconsumer_membership.errors.SinkError: orders-0: customer 4711\n\n\tat org.Frame"
    session = Session({"spark.network.crypto.enabled": "true"}, raised)
    plan = planned({"bootstrap.servers": kafka.bootstrap_servers}, ["orders"], unique("group"))
    running = MemberJob(session, plan, unused, None)  # type: ignore[arg-type]  # enough of a session
    assert running.plan.control is not None
    with closing(ControlLink(running.plan.control, 0, 5)) as link:
        link.fail("SinkError", "what the control line would carry")
    session.set()
    assert running.wait(PATIENCE_S)
    with pytest.raises(SinkError, match=r"^task 0: orders-0: customer 4711$"):
        running.outcome()
