"""The member of one task on a real broker, without Spark: the test does what Spark does."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import DrainError, FencedError, SinkError
from consumer_membership.spark.brokers import ends_now, with_run_number
from consumer_membership.spark.context import SinkContext, attempt_number, is_of_a_later_run
from consumer_membership.spark.control import Link, MemberProgress, Order
from consumer_membership.spark.member import MemberSummary, TaskMember
from consumer_membership.spark.plan import MemberPlan, planned
from consumer_membership.types import OffsetAndMetadata
from tests.spark.recorders import Recorder, Refuser
from tests.support.brokers import RunBrokers
from tests.support.kafka import commit, create_topic, delete_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = 4
SESSION_S = 6.0


class Line(Link):
    """A driver within the test."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[MemberProgress] = []
        self.changed = threading.Condition()

    def report(self, progress: MemberProgress) -> None:
        """Note the report."""
        with self.changed:
            self.reports.append(progress)
            self.changed.notify_all()

    def until(self, owned: int) -> None:
        """Return when the member reports this number of partitions."""
        wait_until(
            lambda: bool(self.reports) and len(self.reports[-1].owned) == owned,
            f"{owned} partitions",
            changed=self.changed,
            seen=lambda: self.reports[-1:],
        )


class Scene:
    """A topic with some records, a group, and attempts of its tasks in threads."""

    def __init__(self, broker: Broker, topic: str, pool: ThreadPoolExecutor) -> None:
        self.broker = broker
        self.topic = topic
        self.group = unique("group")
        self._pool = pool
        self._lines: list[Line] = []

    def plan(self, *, is_bounded: bool = True, **wishes: object) -> MemberPlan:
        """A plan with the current ends."""
        asked: dict[str, object] = {"instances": 2, "batch_size": 50, "batch_wait_s": 0.1, **wishes}
        config = {"bootstrap.servers": self.broker.bootstrap_servers}
        plan = planned(config, [self.topic], self.group, **asked)  # type: ignore[arg-type]  # untyped options
        return replace(plan, ends=ends_now(plan)) if is_bounded else plan

    def start(
        self, plan: MemberPlan, sink: object, instance: int = 0, attempt: int = 1
    ) -> tuple[Future[MemberSummary], Line]:
        """Start an attempt in its own thread."""
        line = Line()
        self._lines.append(line)
        return self._pool.submit(lambda: TaskMember(plan, sink, instance, attempt, line).run()), line

    def run(self, plan: MemberPlan, sink: object, instance: int = 0, attempt: int = 1) -> MemberSummary:
        """Run an attempt to its end."""
        return self.start(plan, sink, instance, attempt)[0].result(PATIENCE_S)

    def committed(self) -> Mapping[int, int]:
        """The group's committed offsets, by partition."""
        committed = GroupAdmin({"bootstrap.servers": self.broker.bootstrap_servers}).committed(self.group)
        return {number: at.offset for (_, number), at in sorted(committed.items()) if isinstance(at, OffsetAndMetadata)}

    def members(self) -> int:
        """The number of members in the group."""
        report = GroupAdmin({"bootstrap.servers": self.broker.bootstrap_servers}).describe(self.group)
        return len(report.group.members)

    def epochs(self) -> list[int | None]:
        """The members' epochs."""
        report = GroupAdmin({"bootstrap.servers": self.broker.bootstrap_servers}).describe(self.group)
        return [member.epoch for member in report.group.members]

    def end(self) -> None:
        """Stop every attempt."""
        for line in self._lines:
            line.order = Order.STOP


@contextmanager
def a_scene(broker: Broker, records: int = 400, config: Mapping[str, str] | None = None) -> Iterator[Scene]:
    """A scene whose attempts end with the block."""
    topic = create_topic(broker.bootstrap_servers, unique("spark"), PARTITIONS, config)
    produce(broker.bootstrap_servers, topic, records)
    with ThreadPoolExecutor() as pool:
        scene = Scene(broker, topic, pool)
        try:
            yield scene
        finally:
            scene.end()


@pytest.fixture
def scene(kafka: Broker) -> Iterator[Scene]:
    """400 records in 4 partitions."""
    with a_scene(kafka) as scene:
        yield scene


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """The recorder, which notes what the sinks received."""
    return Recorder(tmp_path)


def test_drain_delivers_each_record_once_and_leaves(scene: Scene, recorder: Recorder) -> None:
    """A drain delivers each record once, commits every partition's end, and leaves the group."""
    done = scene.run(scene.plan(), recorder)
    assert (done.records, set(recorder.counts().values()), len(recorder.counts())) == (400, {1}, 400)
    assert scene.committed() == dict.fromkeys(range(PARTITIONS), 100)
    assert scene.members() == 0
    assert all(len(call.offsets) <= 50 for call in recorder.given())


def test_drain_stops_at_the_ends_of_its_plan(scene: Scene, recorder: Recorder) -> None:
    """Records that arrive after the plan belong to the next drain."""
    plan = scene.plan()
    produce(scene.broker.bootstrap_servers, scene.topic, 40)
    assert scene.run(plan, recorder).records == 400
    assert scene.committed() == dict.fromkeys(range(PARTITIONS), 100)
    assert scene.run(scene.plan(), recorder, attempt=2).records == 40
    assert set(recorder.counts().values()) == {1}


def test_members_share_the_partitions_and_end_together(scene: Scene, recorder: Recorder) -> None:
    """The members share the partitions; a member without a partition waits until the drain is done."""
    plan = scene.plan(instances=6)
    done = [scene.start(plan, recorder, instance)[0] for instance in range(6)]
    assert sum(one.result(PATIENCE_S).records for one in done) == 400
    assert set(recorder.counts().values()) == {1}


def test_batch_is_given_to_the_sink_after_the_previous_commit(scene: Scene) -> None:
    """A commit overlaps only the next fetch: when the sink is called, all earlier batches are committed."""
    calls = 0

    def look(_: list[Message], context: SinkContext) -> None:
        nonlocal calls
        calls += 1
        committed = scene.committed()
        assert {one.partition: committed.get(one.partition, 0) for one in context.ranges} == {
            one.partition: one.first for one in context.ranges
        }

    done = scene.run(scene.plan(instances=1, sink_attempts=1), look)
    assert (done.records, done.batches) == (400, calls)
    assert calls >= 400 / 50
    assert set(scene.committed().values()) == {100}


def test_last_batch_of_a_drain_does_not_wait_for_more_records(scene: Scene, recorder: Recorder) -> None:
    """The last batch is complete with the last record, although a full batch would wait for a minute."""
    done = scene.run(scene.plan(instances=1, batch_size=399, batch_wait_s=PATIENCE_S), recorder)
    assert (done.records, set(scene.committed().values())) == (400, {100})


def test_drain_commits_beyond_transaction_markers_and_aborted_records(kafka: Broker, recorder: Recorder) -> None:
    """A drain reaches the end although only markers and aborted records follow the last committed record."""
    with a_scene(kafka, records=0) as scene:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
        producer.init_transactions()
        for number, is_kept in enumerate((True, False)):
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(scene.topic, str(number), partition=partition)
            producer.flush()
            if is_kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        ends = {(scene.topic, number): (4 if number < 2 else 0) for number in range(PARTITIONS)}
        # The markers are written after the call returns.
        wait_until(lambda: scene.plan().ends == ends, "the ends")
        plan = scene.plan()
        assert scene.run(plan, recorder).records == 2
        assert scene.committed() == {0: 4, 1: 4}


def test_drain_commits_the_end_of_a_partition_emptied_by_retention(scene: Scene, recorder: Recorder) -> None:
    """If retention deleted all records, the drain commits the end, so that the group shows no lag."""
    delete_records(scene)
    assert scene.run(scene.plan(), recorder).records == 0
    assert scene.committed() == dict.fromkeys(range(PARTITIONS), 100)


def delete_records(scene: Scene) -> None:
    """Delete all records, as retention does."""
    ends = [TopicPartition(scene.topic, number, 100) for number in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": scene.broker.bootstrap_servers})
    for future in admin.delete_records(ends).values():
        future.result(PATIENCE_S)


def test_sink_that_raises_is_retried_and_then_fails_the_task(scene: Scene) -> None:
    """After `sink_attempts` calls, the error names partitions and offsets, and nothing is committed."""
    with pytest.raises(SinkError) as failed:
        scene.run(scene.plan(sink_attempts=2), Refuser())
    text = str(failed.value)
    assert "ValueError: not today" in text
    assert "2 of 2 calls" in text
    assert re.search(rf"{scene.topic}-\d@0..\d+", text)
    assert isinstance(failed.value.__cause__, ValueError)
    assert (scene.committed(), scene.members()) == ({}, 1)


def test_sink_that_recovers_gets_the_same_batch_again(scene: Scene, recorder: Recorder) -> None:
    """A sink that raises once receives the same batch again, and no record is lost."""
    calls: list[int] = []

    def moody(batch: list[Message], context: SinkContext) -> None:
        calls.append(len(batch))
        if len(calls) == 1:
            raise ConnectionError("gone for a moment")
        recorder(batch, context)

    assert scene.run(scene.plan(), moody).records == 400
    assert set(recorder.counts().values()) == {1}
    assert calls[0] == calls[1]


def test_replacement_takes_the_partitions_and_the_older_attempt_ends(scene: Scene, recorder: Recorder) -> None:
    """The later attempt gets the same instance id and partitions; the older attempt's batch is not committed."""
    holds, may_end = threading.Event(), threading.Event()

    def stuck(batch: list[Message], context: SinkContext) -> None:
        recorder(batch, context)
        holds.set()
        assert may_end.wait(PATIENCE_S)

    plan = scene.plan(is_bounded=False, instances=1)
    older, _ = scene.start(plan, stuck, attempt=1)
    assert holds.wait(PATIENCE_S)
    newer, line = scene.start(plan, recorder, attempt=2)
    wait_until(lambda: list(scene.committed().values()) == [100] * PARTITIONS, "everything committed")
    may_end.set()
    with pytest.raises(FencedError, match=r"replaced|does not confirm"):
        older.result(PATIENCE_S)
    line.order = Order.STOP
    assert newer.result(PATIENCE_S).records == 400
    assert sum(len(call.offsets) for call in recorder.given() if call.attempt == 1) == 50
    assert len(recorder.counts()) == 400


def test_older_attempt_that_joins_late_is_fenced(scene: Scene, recorder: Recorder) -> None:
    """An older attempt that was stopped before it joined does not take over from the later one."""
    plan = scene.plan(is_bounded=False, instances=1)
    newer, line = scene.start(plan, recorder, attempt=2)
    line.until(PARTITIONS)
    with pytest.raises(FencedError, match="held by a later attempt"):
        scene.run(plan, recorder, attempt=1)
    wait_until(lambda: list(scene.committed().values()) == [100] * PARTITIONS, "everything committed")
    line.order = Order.STOP
    assert newer.result(PATIENCE_S).records == 400


def test_replacement_takes_over_beyond_a_million_task_attempts_of_its_application(
    scene: Scene, recorder: Recorder
) -> None:
    """Attempt numbers never wrap, so a replacement takes over after any number of task attempts."""
    plan = scene.plan(is_bounded=False, instances=1)
    original, line = scene.start(plan, recorder, attempt=attempt_number(plan.run_number, (1 << 20) - 1))
    line.until(PARTITIONS)
    wait_until(lambda: list(scene.committed().values()) == [100] * PARTITIONS, "everything committed")
    replacement, second = scene.start(plan, recorder, attempt=attempt_number(plan.run_number, 1 << 20))
    second.until(PARTITIONS)
    with pytest.raises(FencedError, match="replaced"):
        original.result(PATIENCE_S)
    second.order = Order.STOP
    replacement.result(PATIENCE_S)


@pytest.mark.parametrize("ahead_ms", [86_400_000, 1, -1_000, -86_400_000])
def test_later_run_takes_over_despite_clock_skew_between_drivers(
    scene: Scene, recorder: Recorder, ahead_ms: int
) -> None:
    """The run number of a later run exceeds that of the earlier run, even if the earlier driver's clock is ahead."""
    plan = scene.plan(is_bounded=False, instances=1)
    earlier = replace(plan, run_number=plan.run_number + ahead_ms)
    attempt = attempt_number(earlier.run_number, 1 << 21)
    first, line = scene.start(earlier, recorder, attempt=attempt)
    line.until(PARTITIONS)
    wait_until(lambda: list(scene.committed().values()) == [100] * PARTITIONS, "everything committed")
    later = with_run_number(scene.plan(is_bounded=False, instances=1))
    assert is_of_a_later_run(attempt_number(later.run_number, 0), than=attempt)
    second, newer = scene.start(later, recorder, attempt=attempt_number(later.run_number, 0))
    newer.until(PARTITIONS)
    with pytest.raises(FencedError, match="replaced"):
        first.result(PATIENCE_S)
    newer.order = Order.STOP
    second.result(PATIENCE_S)


def test_run_number_is_the_time_in_a_group_without_members_of_the_pipeline(scene: Scene) -> None:
    """Members of other pipelines and client ids of other programs do not change the run number."""
    plan = scene.plan(is_bounded=False, pipeline="a")
    assert with_run_number(plan) == plan
    other = replace(plan, pipeline="a-b", run_number=plan.run_number + 86_400_000)
    _, line = scene.start(other, unused, attempt=attempt_number(other.run_number, 0))
    line.until(PARTITIONS)
    assert with_run_number(plan) == plan


def unused(_: list[Message], __: SinkContext) -> None:
    """A sink that keeps nothing."""


def test_superseded_attempt_ends_with_fenced_error(scene: Scene, recorder: Recorder) -> None:
    """An attempt ends at the driver's SUPERSEDED order, which arrives before the group fences its member."""
    plan = scene.plan(is_bounded=False, instances=1)
    attempt, line = scene.start(plan, recorder)
    line.until(PARTITIONS)
    line.order = Order.SUPERSEDED
    with pytest.raises(FencedError, match="a later attempt"):
        attempt.result(PATIENCE_S)


def test_slow_sink_keeps_its_partitions(broker_pool: RunBrokers, recorder: Recorder) -> None:
    """Heartbeats continue while the sink works longer than a session, so the member keeps its partitions."""
    broker = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    with a_scene(broker) as scene:
        # A session of 3 s would end when a busy machine stalls for a moment.
        set_session(scene, SESSION_S)
        seen: list[float] = []

        def slow(batch: list[Message], context: SinkContext) -> None:
            if not seen:
                seen.append(wait_for_heartbeats(scene, SESSION_S + 1.5))
            recorder(batch, context)

        plan = scene.plan(instances=1)
        assert scene.run(plan, slow).records == 400
        assert (set(recorder.counts().values()), seen[0] > SESSION_S) == ({1}, True)


def test_sink_beyond_its_timeout_loses_its_partitions(scene: Scene, recorder: Recorder) -> None:
    """The member leaves after `sink_timeout_s`; its commit is refused, and it rejoins to read the same records."""
    calls: list[int] = []

    def too_slow(batch: list[Message], context: SinkContext) -> None:
        calls.append(len(batch))
        if len(calls) == 1:
            # A static member that leaves remains in the group, with epoch -2.
            wait_until(lambda: scene.epochs() == [-2], "a static member that left")
        recorder(batch, context)

    assert scene.run(scene.plan(instances=1, sink_timeout_s=5.0), too_slow).records == 450
    counts = recorder.counts()
    assert (len(counts), sum(counts.values())) == (400, 450)
    assert scene.committed() == dict.fromkeys(range(PARTITIONS), 100)


def test_slow_sink_gets_smaller_batches_until_they_fit(scene: Scene, recorder: Recorder) -> None:
    """A batch that takes longer than `sink_timeout_s` is redelivered in smaller batches, which are committed."""

    def slow_with_many(batch: list[Message], context: SinkContext) -> None:
        if len(batch) > 300:
            wait_until(lambda: scene.epochs() == [-2], "a static member that left")
        recorder(batch, context)

    # With known positions, the last batch does not wait for more records than there are.
    begin = [TopicPartition(scene.topic, partition, 0) for partition in range(PARTITIONS)]
    commit(scene.broker.bootstrap_servers, scene.group, *begin)
    plan = scene.plan(instances=1, batch_size=400, batch_wait_s=PATIENCE_S, sink_timeout_s=5.0, sink_attempts=2)
    done = scene.run(plan, slow_with_many)
    sizes = [len(call.offsets) for call in recorder.given()]
    # The end of a partition counts for the size of a batch, and may arrive before the records of the others.
    assert 400 - PARTITIONS < sizes[0] <= 400
    assert max(sizes[1:]) <= 300
    assert (done.records, len(recorder.counts())) == (sizes[0] + 400, 400)
    assert scene.committed() == dict.fromkeys(range(PARTITIONS), 100)


@pytest.mark.parametrize("is_bounded", [True, False])
def test_sink_that_is_always_too_slow_fails_the_task(scene: Scene, *, is_bounded: bool) -> None:
    """After `sink_attempts` late batches in a row the task fails with an error that names the settings and the time."""
    calls: list[int] = []

    def too_slow(batch: list[Message], _: SinkContext) -> None:
        calls.append(len(batch))
        wait_until(lambda: scene.epochs() == [-2], "a static member that left")

    plan = scene.plan(instances=1, is_bounded=is_bounded, sink_timeout_s=1.0, sink_attempts=2)
    with pytest.raises(SinkError) as failed:
        scene.run(plan, too_slow)
    text = str(failed.value)
    assert re.search(r"the sink took [\d.]+ s for a batch of \d+ records, longer than sink_timeout_s=1,", text)
    assert "batch_size=50; 2 of 2 batches in a row" in text
    assert (calls[0], calls[1] < calls[0], len(calls)) == (50, True, 2)
    assert set(scene.committed().values()) <= {0}


def test_reports_have_the_lag_behind_committed_offsets(scene: Scene) -> None:
    """Records in the sink, and records that it took too late to be committed, count as lag until they are committed."""
    reports: list[list[int]] = []

    def too_slow(_: list[Message], __: SinkContext) -> None:
        wait_until(lambda: [report.lag for report in line.reports][-1:] == [400], "the report before the call")
        reports.append([report.lag for report in line.reports])
        wait_until(lambda: scene.epochs() == [-2], "a static member that left")

    # A batch that does not wait for all records is handed over before the lag of each partition is known.
    plan = scene.plan(
        instances=1, is_bounded=False, batch_size=400, batch_wait_s=PATIENCE_S, sink_timeout_s=1.0, sink_attempts=3
    )
    failing, line = scene.start(plan, too_slow)
    with pytest.raises(SinkError):
        failing.result(PATIENCE_S)
    # The driver shows the report from right before a call until the call ends.
    assert [lags[-1] for lags in reports] == [400, 400, 400]


def set_session(scene: Scene, seconds: float) -> None:
    """Set the group's session timeout and return when it is in effect."""
    key, value = "consumer.session.timeout.ms", str(int(seconds * 1000))
    group = ConfigResource(ConfigResource.Type.GROUP, scene.group)
    altered = ConfigResource(ConfigResource.Type.GROUP, scene.group)
    altered.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": scene.broker.bootstrap_servers})
    admin.incremental_alter_configs([altered])[altered].result(PATIENCE_S)
    wait_until(lambda: admin.describe_configs([group])[group].result(PATIENCE_S)[key].value == value, "the new setting")


def wait_for_heartbeats(scene: Scene, seconds: float) -> float:
    """Watch the group's only member for this time; return the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        assert scene.members() == 1
        threading.Event().wait(0.2)
    return time.monotonic() - began


def test_topic_deleted_during_a_drain_raises_drain_error(scene: Scene, recorder: Recorder) -> None:
    """A drain whose end no longer exists raises an error with the reason."""
    plan = scene.plan()
    ends = {(scene.topic, 0): 100, (scene.topic, 1): 1_000_000}
    with pytest.raises(DrainError, match=r"now ends at offset 100, before the drain's end at offset 1000000"):
        scene.run(replace(plan, ends=ends), recorder)
    delete_topic(scene.broker.bootstrap_servers, scene.topic)
    with pytest.raises(DrainError, match="no longer exists"):
        scene.run(replace(plan, ends=ends), recorder, attempt=2)


@pytest.mark.parametrize("batch_format", ["arrow", "pandas"])
def test_sink_gets_the_requested_batch_format(scene: Scene, batch_format: str) -> None:
    """The sink receives Arrow or pandas batches with named columns."""
    values: list[bytes] = []

    def sink(batch: object, _: SinkContext) -> None:
        column = batch["value"]  # type: ignore[index]  # both formats have columns
        values.extend(column.to_pylist() if batch_format == "arrow" else list(column))

    assert scene.run(scene.plan(batch_format=batch_format), sink).records == 400
    assert sorted(values, key=int) == [str(number).encode() for number in range(400)]


def test_sink_is_prepared_before_and_closed_after_its_batches(scene: Scene) -> None:
    """`prepare` and `close` are called once each, before and after all batches."""
    calls: list[object] = []

    class Careful:
        def prepare(self, instance: int, instance_id: str) -> None:
            calls.append((instance, instance_id))

        def __call__(self, batch: list[Message], _: SinkContext) -> None:
            calls.append(len(batch))

        def close(self) -> None:
            calls.append("closed")

    scene.run(scene.plan(batch_size=1000), Careful())
    assert (calls[0], calls[-1]) == ((0, f"{scene.group}-0"), "closed")
    assert sum(call for call in calls if isinstance(call, int)) == 400


def test_reports_have_state_epoch_partitions_records_and_lag(scene: Scene, recorder: Recorder) -> None:
    """A report has the member's state, epoch, partitions, number of records and lag."""
    done, line = scene.start(scene.plan(), recorder)
    done.result(PATIENCE_S)
    last = line.reports[-1]
    assert (last.state, last.records, last.lag, last.instance, last.attempt) == ("STABLE", 400, 0, 0, 1)
    assert last.owned == tuple((scene.topic, number) for number in range(PARTITIONS))
    assert last.epoch >= 1
