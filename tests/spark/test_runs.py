"""`run`, `drain` and `member_task` on a real Spark and a real broker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import (
    ConfigurationError,
    DrainError,
    FencedError,
    GroupError,
    MembershipError,
    SinkError,
)
from consumer_membership.spark import (
    ParquetSink,
    RunHandle,
    SinkContext,
    drain,
    foreach_partition,
    member_task,
    run,
)
from consumer_membership.spark.plan import Options
from consumer_membership.types import OffsetAndMetadata
from tests.spark.recorders import Killer, Overdue, Recorder, Refuser, Sleepwalker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, SOONER_THAN_A_SESSION_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS, RECORDS = 4, 4000


class Ground:
    """A topic with records, and a group."""

    def __init__(self, broker: Broker) -> None:
        self.config: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        self.bootstrap = broker.bootstrap_servers
        self.topic = create_topic(broker.bootstrap_servers, unique("spark"), PARTITIONS)
        self.group = unique("group")
        produce(broker.bootstrap_servers, self.topic, RECORDS)

    def committed(self) -> list[int]:
        """The group's committed offsets, by partition."""
        committed = GroupAdmin(self.config).committed(self.group)
        return [at.offset for _, at in sorted(committed.items()) if isinstance(at, OffsetAndMetadata)]

    def members(self) -> list[str]:
        """The instance ids in the group."""
        try:
            members = GroupAdmin(self.config).describe(self.group).group.members
        except GroupError:
            # The group does not exist before a member has joined or an offset is committed.
            return []
        return sorted(member.instance_id or "" for member in members)


@pytest.fixture
def ground(kafka: Broker) -> Ground:
    """4,000 records in 4 partitions."""
    return Ground(kafka)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """The recorder, which notes what the sinks received."""
    return Recorder(tmp_path)


@pytest.fixture
def ended() -> Iterator[list[RunHandle]]:
    """Runs that are ended with the test, whatever its outcome."""
    handles: list[RunHandle] = []
    yield handles
    for handle in handles:
        if handle.is_running:
            handle.cancel()


def wait_for_records(handle: RunHandle, records: int) -> None:
    """Return when the members have given this number of records to their sinks."""
    wait_until(lambda: sum(member.records for member in handle.progress()) >= records, "the records")


def until_nobody_is_left(ground: Ground) -> None:
    """Return when the group has no members; this takes far less than the session timeout of 45 s.

    After a failure it takes a moment: a task that Spark has just started joins, receives the stop order, and leaves.
    """
    wait_until(lambda: ground.members() == [], "a group without members", SOONER_THAN_A_SESSION_S)


def is_everything_once(recorder: Recorder) -> bool:
    """Return whether each record arrived exactly once."""
    counts = recorder.counts()
    return len(counts) == RECORDS and set(counts.values()) == {1}


# ---- drain -----------------------------------------------------------------------------------------------------------


def test_drain_delivers_each_record_once_and_counts_by_partition(
    spark: SparkSession, ground: Ground, recorder: Recorder
) -> None:
    """A drain counts its records by partition; a second drain has none, and a third has only new records."""
    asked = (spark, ground.config, [ground.topic], ground.group, recorder, 2)
    result = drain(*asked)
    assert [(p.topic, p.partition, p.first, p.next_offset, p.records) for p in result.partitions] == [
        (ground.topic, number, 0, 1000, 1000) for number in range(PARTITIONS)
    ]
    assert (result.records, is_everything_once(recorder), ground.committed()) == (RECORDS, True, [1000] * 4)
    assert ground.members() == []
    again = drain(*asked)
    assert (again.records, [p.first for p in again.partitions]) == (0, [1000] * 4)
    produce(ground.bootstrap, ground.topic, 8)
    third = drain(*asked)
    assert (third.records, [(p.first, p.next_offset) for p in third.partitions]) == (8, [(1000, 1002)] * 4)


def test_drain_after_a_killed_worker_redelivers_only_its_batch(
    spark: SparkSession, ground: Ground, recorder: Recorder
) -> None:
    """After SIGKILL between sink and commit, only the batch in progress is redelivered, and the counts are right."""
    sink = Killer(recorder)
    result = drain(spark, ground.config, [ground.topic], ground.group, sink, 2, batch_size=200)
    counts = recorder.counts()
    assert (recorder.folder / "killed").exists()
    assert (len(counts), set(counts.values()) <= {1, 2}) == (RECORDS, True)
    assert sum(counts.values()) - RECORDS <= 200
    assert (result.records, ground.committed()) == (RECORDS, [1000] * 4)
    assert ground.members() == []


def test_drain_until_given_ends_ignores_other_partitions(
    spark: SparkSession, ground: Ground, recorder: Recorder
) -> None:
    """`until` limits the drain to its partitions and offsets."""
    ends = {(ground.topic, 0): 10, (ground.topic, 2): 500}
    result = drain(spark, ground.config, [ground.topic], ground.group, recorder, 2, until=ends)
    assert [(p.partition, p.next_offset, p.records) for p in result.partitions] == [(0, 10, 10), (2, 500, 500)]
    assert len(recorder.counts()) == 510


def test_drain_beyond_its_timeout_names_the_undrained_partitions(
    spark: SparkSession, ground: Ground, recorder: Recorder
) -> None:
    """The error names the undrained partitions; the next drain continues from the committed offsets."""
    with pytest.raises(DrainError, match=r"not drained within 5 s: .*\[0\] at 0 of 1000"):
        drain(spark, ground.config, [ground.topic], ground.group, Sleeper(), 2, timeout_s=5)
    until_nobody_is_left(ground)
    assert drain(spark, ground.config, [ground.topic], ground.group, recorder, 2).records == RECORDS


class Sleeper:
    """A sink that never returns."""

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """Wait forever."""
        threading.Event().wait()


def test_drain_raises_the_sink_error_after_all_attempts(spark: SparkSession, ground: Ground) -> None:
    """After all calls and Spark's task attempts, the error names the records, and no member is left."""
    with pytest.raises(SinkError, match=r"ValueError: not today.*2 of 2 calls.*not committed: \S+-\d@0\.\.") as failed:
        drain(spark, ground.config, [ground.topic], ground.group, Refuser(), 2, sink_attempts=2)
    assert ground.topic in str(failed.value)
    until_nobody_is_left(ground)
    assert ground.committed() == []


class Leaver:
    """A sink that takes each batch and raises in `close`."""

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """Accept the batch."""

    def close(self) -> None:
        """Raise."""
        raise KeyError("what was never kept")


class Crasher:
    """A sink that ends its process."""

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """End the process."""
        os._exit(7)


def test_failed_job_raises_the_cause_instead_of_the_spark_trace(
    spark: SparkSession, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing module, a dead worker and an error in `close` are each named as the cause."""
    (tmp_path / "only_here.py").write_text("def sink(batch, context):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sink = import_module("only_here").sink
    with pytest.raises(MembershipError, match=r"ModuleNotFoundError: No module named 'only_here'.*addPyFile"):
        drain(spark, ground.config, [ground.topic], ground.group, sink)
    with pytest.raises(MembershipError, match="Python worker exited unexpectedly"):
        drain(spark, ground.config, [ground.topic], ground.group, Crasher())
    with pytest.raises(MembershipError, match=r"KeyError: .*what was never kept"):
        drain(spark, ground.config, [ground.topic], ground.group, Leaver())
    until_nobody_is_left(ground)


@pytest.mark.parametrize("way", ["run", "drain", "member_task"])
def test_sink_that_is_always_too_slow_fails_the_job(
    spark: SparkSession, ground: Ground, ended: list[RunHandle], way: str
) -> None:
    """Each attempt fails after `sink_attempts` late batches, and the job's error names the settings."""

    def do() -> None:
        asked = (ground.config, [ground.topic])
        sink = Overdue(ground.bootstrap)
        options: Options = {"sink_timeout_s": 1.0, "sink_attempts": 1, "batch_size": 100}
        match way:
            case "run":
                ended.append(run(spark, *asked, ground.group, sink, 2, show_progress=False, **options))
                assert ended[0].wait(PATIENCE_S) is not None
            case "drain":
                drain(spark, *asked, ground.group, sink, 2, show_progress=False, **options)
            case _:
                task = member_task(*asked, sink, group=ground.group, **options)
                spark.range(2).repartition(2).foreachPartition(task)

    with pytest.raises(Exception, match=r"took [\d.]+ s for a batch of 100 .*sink_timeout_s=1,.*batch_size=100;"):
        do()


def test_drain_with_more_members_than_slots_ends(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """Members without a slot start when the others are done, and end at once."""
    assert drain(spark, ground.config, [ground.topic], ground.group, recorder, 6).records == RECORDS
    assert is_everything_once(recorder)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_run_and_drain_refuse_invalid_arguments_before_a_job_starts(spark: SparkSession, ground: Ground) -> None:
    """Unknown topics, impossible ends and sinks that cannot be pickled raise `ConfigurationError`."""
    lock = threading.Lock()

    def unpicklable(_: list[Message], __: SinkContext) -> None:
        with lock:
            pass

    with pytest.raises(ConfigurationError, match="nowhere"):
        drain(spark, ground.config, ["nowhere"], ground.group, Sleeper())
    with pytest.raises(ConfigurationError, match=r"until=.*ends at 1000 now"):
        drain(spark, ground.config, [ground.topic], ground.group, Sleeper(), until={(ground.topic, 0): 1001})
    with pytest.raises(ConfigurationError, match="no such partition"):
        drain(spark, ground.config, [ground.topic], ground.group, Sleeper(), until={(ground.topic, 99): 1})
    with pytest.raises(ConfigurationError, match="until='later'"):
        drain(spark, ground.config, [ground.topic], ground.group, Sleeper(), until="later")
    with pytest.raises(ConfigurationError, match="lock"):
        run(spark, ground.config, [ground.topic], ground.group, unpicklable)
    with pytest.raises(ConfigurationError, match="lock"):
        member_task({**ground.config, "group.id": ground.group}, [ground.topic], unpicklable)


def test_speculation_is_refused_without_allow_speculation(ground: Ground, recorder: Recorder) -> None:
    """Speculation needs `allow_speculation`, because a copy of a task takes over the original's member."""

    class Conf:
        def get(self, key: str, default: str) -> str:
            return {"spark.speculation": "true"}.get(key, default)

    class Session:
        conf = Conf()

    with pytest.raises(ConfigurationError, match="allow_speculation"):
        drain(Session(), ground.config, [ground.topic], ground.group, recorder)  # type: ignore[arg-type]  # enough of a session


# ---- run -------------------------------------------------------------------------------------------------------------


def test_run_consumes_new_records_until_it_is_stopped(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """A run reports progress, consumes new records, and on stop leaves neither members nor uncommitted records."""
    handle = run(spark, ground.config, [ground.topic], ground.group, recorder, 2)
    ended.append(handle)
    wait_for_records(handle, RECORDS)
    wait_until(lambda: [len(member.owned) for member in handle.progress()] == [2, 2], "two partitions each")
    assert ground.members() == [f"{ground.group}-0", f"{ground.group}-1"]
    produce(ground.bootstrap, ground.topic, 400)
    wait_for_records(handle, RECORDS + 400)
    # Members report at different times.
    everything = [(ground.topic, number) for number in range(PARTITIONS)]
    wait_until(
        lambda: sorted(place for member in handle.progress() for place in member.owned) == everything,
        "each partition with one member",
    )
    assert handle.wait(0.1) is None
    result = handle.stop(PATIENCE_S)
    assert result is not None
    assert (result.records, [member.instance for member in result.members]) == (RECORDS + 400, [0, 1])
    assert (set(recorder.counts().values()), ground.committed(), ground.members()) == ({1}, [1100] * 4, [])
    assert not handle.is_running


def test_lost_task_of_a_run_is_replaced_with_the_same_partitions(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """The replacement has the same instance id and partitions; no partition of another member moves."""
    handle = run(spark, ground.config, [ground.topic], ground.group, Killer(recorder), 2, batch_size=200)
    ended.append(handle)
    wait_for_records(handle, 1)
    wait_until(
        lambda: len(recorder.counts()) == RECORDS and ground.committed() == [1000] * 4, "everything once, and committed"
    )
    assert handle.stop(PATIENCE_S) is not None
    owners: dict[tuple[str, int], set[int]] = {}
    for call in recorder.given():
        for topic, number, _ in call.offsets:
            owners.setdefault((topic, number), set()).add(call.instance)
    killed = {
        call.instance
        for call in recorder.given()
        if call.attempt != min(c.attempt for c in recorder.given() if c.instance == call.instance)
    }
    assert len(killed) == 1
    assert sum(recorder.counts().values()) - RECORDS <= 200


def ends_the_first(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle], first: RunHandle
) -> None:
    """Start the pipeline again after the first run has committed everything; only the newer run continues."""
    ended.append(first)
    wait_for_records(first, RECORDS)
    # Uncommitted batches of the first run would be redelivered.
    wait_until(lambda: ground.committed() == [1000] * 4, "everything committed")
    second = run(spark, ground.config, [ground.topic], ground.group, recorder, 1)
    ended.append(second)
    with pytest.raises(FencedError, match=r"replaced|held by a later attempt"):
        first.wait(PATIENCE_S)
    produce(ground.bootstrap, ground.topic, 40)
    wait_for_records(second, 40)
    assert second.stop(PATIENCE_S) is not None
    assert set(recorder.counts().values()) == {1}


def test_second_copy_of_a_pipeline_ends_the_first(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """The newer run fences the older one once; the two never alternate."""
    first = run(spark, ground.config, [ground.topic], ground.group, recorder, 1)
    ends_the_first(spark, ground, recorder, ended, first)


def test_run_takes_over_from_a_driver_whose_clock_is_ahead(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later run takes over although the earlier driver's clock is ahead."""
    with monkeypatch.context() as ahead:
        now = time.time_ns
        ahead.setattr(time, "time_ns", lambda: now() + 86_400 * 10**9)
        first = run(spark, ground.config, [ground.topic], ground.group, recorder, 1)
    ends_the_first(spark, ground, recorder, ended, first)


def test_replaced_task_that_wakes_in_its_sink_writes_nothing(
    spark: SparkSession, ground: Ground, tmp_path: Path, ended: list[RunHandle]
) -> None:
    """A task that is stopped in its sink, replaced and continued raises `FencedError`; each record is written once."""
    files = tmp_path / "files"
    sink = Sleepwalker(ParquetSink(files), tmp_path)
    first = run(spark, ground.config, [ground.topic], ground.group, sink, 1)
    ended.append(first)
    wait_until((tmp_path / "pid").exists, "the process id of the sink")
    pid = wait_until((tmp_path / "pid").read_text, "the process id in its file")
    second = run(spark, ground.config, [ground.topic], ground.group, sink, 1)
    ended.append(second)
    wait_for_records(second, RECORDS)
    os.kill(int(pid), signal.SIGCONT)
    with pytest.raises(FencedError, match=r"was replaced|held by a later attempt"):
        first.wait(PATIENCE_S)
    assert second.stop(PATIENCE_S) is not None
    written = spark.read.parquet(str(files)).select("partition", "offset").collect()
    assert len(written) == len(set(written)) == RECORDS


def test_cancelled_run_leaves_no_member(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """The tasks of a cancelled run are killed, and their stale members are removed from the group."""
    handle = run(spark, ground.config, [ground.topic], ground.group, recorder, 2)
    ended.append(handle)
    wait_for_records(handle, RECORDS)
    handle.cancel()
    assert not handle.is_running
    until_nobody_is_left(ground)


# ---- `foreachPartition` with `member_task` ---------------------------------------------------------------------------


def test_foreach_partition_runs_one_member_per_partition(
    spark: SparkSession, ground: Ground, recorder: Recorder
) -> None:
    """Each partition of the DataFrame runs one member, and the job ends when all offsets are committed."""
    task = member_task({**ground.config, "group.id": ground.group}, [ground.topic], recorder)
    spark.range(2).repartition(2).foreachPartition(task)
    assert (is_everything_once(recorder), ground.committed(), ground.members()) == (True, [1000] * 4, [])
    assert {call.instance for call in recorder.given()} <= {0, 1}


def test_foreach_partition_function_works_as_a_sink(spark: SparkSession, ground: Ground, tmp_path: Path) -> None:
    """`foreach_partition` turns a function written for Spark's `foreachPartition` into a sink."""

    def write(records: Iterator[Message]) -> None:
        with (tmp_path / unique("part")).open("w") as file:
            file.writelines(f"{record.partition()} {record.offset()}\n" for record in records)

    task = member_task(ground.config, [ground.topic], foreach_partition(write), group=ground.group, instances=2)
    spark.range(2).repartition(2).foreachPartition(task)
    lines = [line for part in tmp_path.iterdir() for line in part.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == RECORDS


def test_member_task_outside_spark_is_refused_with_a_remedy(ground: Ground, recorder: Recorder) -> None:
    """A task that is called outside Spark, or has no group, raises an error with the remedy."""
    task = member_task({**ground.config, "group.id": ground.group}, [ground.topic], recorder)
    with pytest.raises(ConfigurationError, match="foreachPartition"):
        task([])
    with pytest.raises(ConfigurationError, match=r"group\.id=None"):
        member_task(ground.config, [ground.topic], recorder)
