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
        """What the group committed, by partition."""
        said = GroupAdmin(self.config).committed(self.group)
        return [at.offset for _, at in sorted(said.items()) if isinstance(at, OffsetAndMetadata)]

    def members(self) -> list[str]:
        """The instance ids in the group."""
        try:
            members = GroupAdmin(self.config).describe(self.group).group.members
        except GroupError:
            # There is none as long as nobody joined and nothing is committed.
            return []
        return sorted(member.instance_id or "" for member in members)


@pytest.fixture
def ground(kafka: Broker) -> Ground:
    """4,000 records in 4 partitions."""
    return Ground(kafka)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """Where it stands what the sinks were given."""
    return Recorder(tmp_path)


@pytest.fixture
def ended() -> Iterator[list[RunHandle]]:
    """Runs that end with the test, whatever becomes of it."""
    handles: list[RunHandle] = []
    yield handles
    for handle in handles:
        if handle.is_running:
            handle.cancel()


def wait_for_records(handle: RunHandle, records: int) -> None:
    """Return when the members have given so many records to their sinks."""
    wait_until(lambda: sum(member.records for member in handle.progress()) >= records, "the records")


def until_nobody_is_left(ground: Ground) -> None:
    """Return when nobody is left in the group: long before a session of 45 s ends.

    After a failure that takes a moment: a task that Spark has started just then joins, is told to stop, and leaves.
    """
    wait_until(lambda: ground.members() == [], "a group without members", SOONER_THAN_A_SESSION_S)


def is_everything_once(recorder: Recorder) -> bool:
    """Whether each record came, and came once."""
    counts = recorder.counts()
    return len(counts) == RECORDS and set(counts.values()) == {1}


# ---- drain -----------------------------------------------------------------------------------------------------------


def test_drain_gives_everything_once_and_says_so(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """By partition; nothing to do for a second one, and a third takes what came since."""
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


def test_drain_survives_the_death_of_a_worker(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """Kill -9 between sink and commit: only the batch in hand comes twice, and the account is right."""
    sink = Killer(recorder)
    result = drain(spark, ground.config, [ground.topic], ground.group, sink, 2, batch_size=200)
    counts = recorder.counts()
    assert (recorder.folder / "killed").exists()
    assert (len(counts), set(counts.values()) <= {1, 2}) == (RECORDS, True)
    assert sum(counts.values()) - RECORDS <= 200
    assert (result.records, ground.committed()) == (RECORDS, [1000] * 4)
    assert ground.members() == []


def test_drain_up_to_given_ends(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """Partitions that are not named are left alone."""
    ends = {(ground.topic, 0): 10, (ground.topic, 2): 500}
    result = drain(spark, ground.config, [ground.topic], ground.group, recorder, 2, until=ends)
    assert [(p.partition, p.next_offset, p.records) for p in result.partitions] == [(0, 10, 10), (2, 500, 500)]
    assert len(recorder.counts()) == 510


def test_drain_without_time_for_it(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """What is left is named; what was committed stays, and the next one goes on."""
    with pytest.raises(DrainError, match=r"not drained within 5 s: .*\[0\] at 0 of 1000"):
        drain(spark, ground.config, [ground.topic], ground.group, Sleeper(), 2, timeout_s=5)
    until_nobody_is_left(ground)
    assert drain(spark, ground.config, [ground.topic], ground.group, recorder, 2).records == RECORDS


class Sleeper:
    """Never returns by itself."""

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """Wait for ever."""
        threading.Event().wait()


def test_sink_that_gives_up_is_named(spark: SparkSession, ground: Ground) -> None:
    """After its own calls, and Spark's attempts; nobody is left in the group."""
    with pytest.raises(SinkError, match=r"ValueError: not today.*2 of 2 calls.*not committed: \S+-\d@0\.\.") as failed:
        drain(spark, ground.config, [ground.topic], ground.group, Refuser(), 2, sink_attempts=2)
    assert ground.topic in str(failed.value)
    until_nobody_is_left(ground)
    assert ground.committed() == []


class Leaver:
    """Does its work, and fails at its end."""

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """Take everything."""

    def close(self) -> None:
        """Fail."""
        raise KeyError("what was never kept")


class Crasher:
    """Takes its process down with it."""

    def __call__(self, _: list[Message], __: SinkContext) -> None:
        """End everything."""
        os._exit(7)


def test_job_that_fails_says_why(
    spark: SparkSession, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that only the driver has, a process that is gone, an error of the sink's end: not where Spark saw it."""
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
def test_sink_that_is_always_too_slow_ends_the_job(
    spark: SparkSession, ground: Ground, ended: list[RunHandle], way: str
) -> None:
    """Each attempt of its task fails after `sink_attempts` late batches, and the job's error names the settings."""

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


def test_more_members_than_slots(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """Those that have no slot come when the work is done, and end at once."""
    assert drain(spark, ground.config, [ground.topic], ground.group, recorder, 6).records == RECORDS
    assert is_everything_once(recorder)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_what_cannot_work_is_refused_before_a_job_starts(spark: SparkSession, ground: Ground) -> None:
    """A topic that is not there, ends that are not, a sink that cannot travel."""
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


def test_speculation_is_refused_unless_it_is_allowed(ground: Ground, recorder: Recorder) -> None:
    """A copy of a task would take the original's place."""

    class Conf:
        def get(self, key: str, default: str) -> str:
            return {"spark.speculation": "true"}.get(key, default)

    class Session:
        conf = Conf()

    with pytest.raises(ConfigurationError, match="allow_speculation"):
        drain(Session(), ground.config, [ground.topic], ground.group, recorder)  # type: ignore[arg-type]  # enough of one


# ---- run -------------------------------------------------------------------------------------------------------------


def test_run_goes_on_until_it_is_stopped(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """It reports, takes what comes later, and leaves nobody and nothing uncommitted."""
    handle = run(spark, ground.config, [ground.topic], ground.group, recorder, 2)
    ended.append(handle)
    wait_for_records(handle, RECORDS)
    wait_until(lambda: [len(member.owned) for member in handle.progress()] == [2, 2], "two partitions each")
    assert ground.members() == [f"{ground.group}-0", f"{ground.group}-1"]
    produce(ground.bootstrap, ground.topic, 400)
    wait_for_records(handle, RECORDS + 400)
    # Each tells of itself at a moment of its own.
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


def test_lost_task_of_a_run_is_replaced(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """The replacement has the same instance id and the same partitions, and nobody else's move."""
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
    """Start the same pipeline once more when the first run has committed everything: the newer run goes on alone."""
    ended.append(first)
    wait_for_records(first, RECORDS)
    # What it has given uncommitted would come again.
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
    """The newest wins once; they do not take from each other in turns."""
    first = run(spark, ground.config, [ground.topic], ground.group, recorder, 1)
    ends_the_first(spark, ground, recorder, ended, first)


def test_run_takes_over_from_a_driver_whose_clock_is_ahead(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later run wins, as if the clocks agreed; the earlier one ends."""
    with monkeypatch.context() as ahead:
        now = time.time_ns
        ahead.setattr(time, "time_ns", lambda: now() + 86_400 * 10**9)
        first = run(spark, ground.config, [ground.topic], ground.group, recorder, 1)
    ends_the_first(spark, ground, recorder, ended, first)


def test_stopped_task_that_goes_on_writes_nothing(
    spark: SparkSession, ground: Ground, tmp_path: Path, ended: list[RunHandle]
) -> None:
    """A task that is stopped within its sink, replaced, and continued: a clear error, and each record once."""
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


def test_cancelled_run_leaves_nobody(
    spark: SparkSession, ground: Ground, recorder: Recorder, ended: list[RunHandle]
) -> None:
    """Its tasks are killed; what they left in the group is cleared away."""
    handle = run(spark, ground.config, [ground.topic], ground.group, recorder, 2)
    ended.append(handle)
    wait_for_records(handle, RECORDS)
    handle.cancel()
    assert not handle.is_running
    until_nobody_is_left(ground)


# ---- the plain form --------------------------------------------------------------------------------------------------


def test_foreach_partition_reads_like_spark(spark: SparkSession, ground: Ground, recorder: Recorder) -> None:
    """Each partition of the frame is a member; the job ends when everything is committed."""
    task = member_task({**ground.config, "group.id": ground.group}, [ground.topic], recorder)
    spark.range(2).repartition(2).foreachPartition(task)
    assert (is_everything_once(recorder), ground.committed(), ground.members()) == (True, [1000] * 4, [])
    assert {call.instance for call in recorder.given()} <= {0, 1}


def test_function_over_an_iterator_is_a_sink(spark: SparkSession, ground: Ground, tmp_path: Path) -> None:
    """One that was written for foreachPartition."""

    def write(records: Iterator[Message]) -> None:
        with (tmp_path / unique("part")).open("w") as file:
            file.writelines(f"{record.partition()} {record.offset()}\n" for record in records)

    task = member_task(ground.config, [ground.topic], foreach_partition(write), group=ground.group, instances=2)
    spark.range(2).repartition(2).foreachPartition(task)
    lines = [line for part in tmp_path.iterdir() for line in part.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == RECORDS


def test_task_outside_of_spark_is_refused(ground: Ground, recorder: Recorder) -> None:
    """With what to do with it."""
    task = member_task({**ground.config, "group.id": ground.group}, [ground.topic], recorder)
    with pytest.raises(ConfigurationError, match="foreachPartition"):
        task([])
    with pytest.raises(ConfigurationError, match=r"group\.id=None"):
        member_task(ground.config, [ground.topic], recorder)
