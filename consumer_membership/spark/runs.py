"""`run` and `drain`: group members in Spark tasks, until you stop them, or up to the ends of the topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, Unpack

from consumer_membership.admin import GroupAdmin
from consumer_membership.errors import ConfigurationError, DrainError
from consumer_membership.spark.arguments import (
    check_sink,
    check_text,
    check_time,
    check_until,
    context_of,
    with_suggestions,
)
from consumer_membership.spark.bounds import tally_in
from consumer_membership.spark.brokers import AssigningAtOnce, ends_now, with_run_number
from consumer_membership.spark.connect_job import ConnectJob
from consumer_membership.spark.context import Partition
from consumer_membership.spark.control import MemberProgress
from consumer_membership.spark.display import Display
from consumer_membership.spark.job import MemberJob
from consumer_membership.spark.member import MemberSummary
from consumer_membership.spark.plan import MemberPlan, Options, planned, refuse_use
from consumer_membership.types import OffsetAndMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a drain collects a batch.
_DRAIN_WAIT_S = 0.1
#: How long to wait for the current batches after a Ctrl-C or an exception. Spark kills tasks sooner after a Ctrl-C.
_LAST_BATCH_S = 10.0
#: The refresh interval of the display.
_REFRESH_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run; records of killed attempts are not counted.

    Attributes:
        members: The work of each member, by instance.
        seconds: The duration of the run.
    """

    members: tuple[MemberSummary, ...]
    seconds: float

    @property
    def records(self) -> int:
        """The number of records that the sink took."""
        return sum(member.records for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDrained:
    """The result of a drain for one partition.

    Attributes:
        topic: The topic.
        partition: The partition number.
        first: The first offset.
        next_offset: The offset after the last one.
        records: The number of records that the sink took.
        seconds: The time from the first record to the last commit, by the clocks of the tasks.
    """

    topic: str
    partition: int
    first: int
    next_offset: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """The result of a drain; every partition is committed at least up to its end at the start of the drain.

    Attributes:
        partitions: The result for each partition.
        seconds: The duration of the drain.
    """

    partitions: tuple[PartitionDrained, ...]
    seconds: float

    @property
    def records(self) -> int:
        """The number of records that the sink took and this drain committed."""
        return sum(partition.records for partition in self.partitions)


class RunHandle:
    """A run in progress. As a context manager, it stops the run at the end of the block."""

    def __init__(self, job: MemberJob | ConnectJob, display: Display) -> None:
        self._job = job
        self._display = display

    @property
    def is_running(self) -> bool:
        """Whether a task of the run may still work."""
        return not self._job.is_over

    def progress(self) -> tuple[MemberProgress, ...]:
        """Return the last report of each member (sent twice a second), by instance; never waits."""
        return self._job.progress()

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """Show the progress until the run ends, and return its result; None if it still runs after `timeout_s`.

        Ctrl-C stops the run cleanly before KeyboardInterrupt is raised.

        Raises:
            SinkError: the sink failed for a batch, as often as Spark retries a task.
            FencedError: another run of the pipeline has taken the members over.
            GroupError, TransportError, MembershipError: another error ended the tasks.
        """
        with self._display:
            try:
                is_over = self._watched(float("inf") if timeout_s is None else timeout_s)
            except KeyboardInterrupt:
                self._job.stop()
                self._watched(_LAST_BATCH_S)
                raise
        return RunResult(members=self._job.outcome(), seconds=self._job.seconds) if is_over else None

    def stop(self, timeout_s: float | None = None) -> RunResult | None:
        """Order every member to finish its batch, commit and leave; return the result, None after `timeout_s`.

        Raises:
            MembershipError: as `wait`.
        """
        self._job.stop()
        return self.wait(timeout_s)

    def cancel(self) -> None:
        """End the run within a few seconds; records that are not committed by then are redelivered."""
        self._job.cancel()
        self._job.wait()

    def _watched(self, left_s: float) -> bool:
        """Show the progress, and return whether the run ends within this time."""
        while not self._job.wait(max(0.0, min(_REFRESH_S, left_s))):
            self._display.show(self._job.progress())
            left_s -= _REFRESH_S
            if left_s <= 0:
                return False
        self._display.show(self._job.progress())
        return True

    def __enter__(self) -> Self:
        """Return the handle itself."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Stop the run cleanly; after an exception in the block, errors of the run are not raised."""
        self._job.stop()
        self._job.wait(None if error is None else _LAST_BATCH_S)
        if error is None:
            self._job.outcome()


@with_suggestions(*Options.__annotations__)
def run(
    spark: SparkSession,
    config: Mapping[str, object],
    topics: Sequence[str],
    group: str,
    sink: object,
    instances: int = 1,
    *,
    allow_speculation: bool = False,
    control_host: str | None = None,
    show_progress: bool | None = None,
    **options: Unpack[Options],
) -> RunHandle:
    """Start `instances` tasks, each a static member of the group, which pass batches to `sink(batch, context)`.

    A batch is committed when the sink has returned. Spark replaces a lost task; the replacement takes over its place in
    the group and its partitions, and the lost task is fenced. A task whose process was only stopped for longer than its
    session drops its current batch, joins again and continues. The run ends with `stop`, or when a task has failed as
    often as Spark allows (`spark.task.maxFailures`; with `local[N]` the first failure ends the run).

    With a Spark Connect session, client and tasks exchange orders and progress through the groups
    `<pipeline>-control` and `<pipeline>-progress`, within one or two seconds. If the tasks receive nothing from the
    client for a minute, they commit and leave.

    Args:
        spark: The session; its cluster needs `instances` free slots.
        config: The configuration, as for `Consumer`; `auto.offset.reset` is `earliest` by default.
        topics: The names of the topics.
        group: The group (`group.id`).
        sink: A function or an object that can be pickled; see `Sink`.
        instances: The number of members.
        allow_speculation: Start even if `spark.speculation` is on: then a copy of a task takes over the place of the
            original.
        control_host: The address at which tasks reach the driver; default: `spark.driver.host`.
        show_progress: Show the members on stderr during `wait`; None: if stderr is a terminal.
        options: `Options`: pipeline, batch_format, batch_size, batch_wait_s, sink_attempts, sink_timeout_s.

    Raises:
        ConfigurationError: a key or a parameter is wrong, a topic does not exist, or the sink cannot be pickled; with
            Spark Connect, the user may not commit offsets of the two groups.
        TransportError: no broker responded.
    """
    plan = planned(config, topics, group, instances, **options)
    _check(spark, plan, sink, control_host, may_speculate=allow_speculation)
    # Checks here, instead of in each task, that the topics exist.
    partitions = ends_now(plan)
    return RunHandle(_job(spark, with_run_number(plan), sink, control_host, partitions), Display(show_progress, None))


@with_suggestions(*Options.__annotations__)
def drain(  # noqa: PLR0913 - a caller names each option at the call
    spark: SparkSession,
    config: Mapping[str, object],
    topics: Sequence[str],
    group: str,
    sink: object,
    instances: int = 1,
    *,
    until: str | Mapping[Partition, int] = "now",
    timeout_s: float | None = None,
    assign_at_once: bool = False,
    allow_speculation: bool = False,
    control_host: str | None = None,
    show_progress: bool | None = None,
    **options: Unpack[Options],
) -> DrainResult:
    """Pass the uncommitted records of the group to `sink`, up to the ends of the topics at the start, and return.

    Records that arrive after the start belong to the next drain. To resume a drain that failed or was cancelled, call
    it again; a drain without records returns at once. Other members of the group may work at the same time; the drain
    ends when the group has committed all offsets up to the ends, by any member.

    With a Spark Connect session, no task connects to the client.

    Args:
        spark: As for `run`.
        config: As for `run`.
        topics: As for `run`.
        group: As for `run`.
        sink: As for `run`.
        instances: As for `run`.
        until: "now", or a dict of end offsets by (topic, partition); partitions that it does not have are left out.
        timeout_s: The largest duration in seconds; None: no limit.
        assign_at_once: Permanently set the group's `consumer.assignment.interval.ms` to 0 first. Otherwise Kafka 4.3
            assigns once a second, and the first member reads alone for that time.
        allow_speculation: As for `run`.
        control_host: As for `run`.
        show_progress: As for `run`.
        **options: As for `run`.

    Raises:
        ConfigurationError, TransportError: as `run`.
        SinkError: the sink failed for a batch, as often as Spark retries a task.
        DrainError: an end cannot be reached, because its topic was deleted; or `timeout_s` is over.
        FencedError: another run of the pipeline has taken the members over.
        GroupError, MembershipError: another error ended the tasks.
    """
    # A short wait, because the drain ends only after its last batch.
    chosen: Options = {"batch_wait_s": _DRAIN_WAIT_S, **options}
    plan = planned(config, topics, group, instances, **chosen)
    check_until(until)
    if timeout_s is not None:
        check_time("timeout_s", timeout_s)
    _check(spark, plan, sink, control_host, may_speculate=allow_speculation)
    altered = AssigningAtOnce(plan) if assign_at_once else None
    plan = with_run_number(replace(plan, ends=_chosen(ends_now(plan), until)))
    before = _committed(plan)
    if altered is not None:
        altered.wait()
    unread = OffsetAndMetadata(offset=0)
    todo = sum(max(0, end - max(0, before.get(partition, unread).offset)) for partition, end in _ends(plan).items())
    if todo == 0:
        return _drained(plan, before, before, 0.0)
    running = RunHandle(_job(spark, plan, sink, control_host, _ends(plan)), Display(show_progress, todo))
    done = running.wait(timeout_s)
    if done is None:
        running.cancel()
        left = _left(plan, _committed(plan))
        raise DrainError(f"not drained within {timeout_s} s: {left}; call drain again to continue")
    after = _committed(plan)
    left = _left(plan, after)
    if left:
        raise DrainError(f"the tasks have ended before all ends were committed: {left}; call drain again to continue")
    return _drained(plan, before, after, done.seconds)


def _job(
    spark: SparkSession, plan: MemberPlan, sink: object, control_host: str | None, partitions: Iterable[Partition]
) -> MemberJob | ConnectJob:
    refuse_use(plan, sink, partitions, is_on_driver=context_of(spark) is not None)
    if context_of(spark) is None:
        return ConnectJob(spark, plan, sink, partitions)
    return MemberJob(spark, plan, sink, control_host)


def _chosen(ends: Mapping[Partition, int], until: str | Mapping[Partition, int]) -> Mapping[Partition, int]:
    if isinstance(until, str):
        return ends
    for partition, end in until.items():
        if partition not in ends:
            raise ConfigurationError("until", partition, "there is no such partition in these topics")
        if not 0 <= end <= ends[partition]:
            raise ConfigurationError("until", {partition: end}, f"the partition ends at {ends[partition]} now")
    return until


def _committed(plan: MemberPlan) -> Mapping[Partition, OffsetAndMetadata]:
    """Return the committed offsets of the group, without partitions that have none."""
    found = GroupAdmin(plan.config).committed(plan.group)
    return {(topic, number): at for (topic, number), at in found.items() if isinstance(at, OffsetAndMetadata)}


def _left(plan: MemberPlan, committed: Mapping[Partition, OffsetAndMetadata]) -> str:
    at = {partition: committed[partition].offset if partition in committed else 0 for partition in _ends(plan)}
    behind = ((partition, end) for partition, end in sorted(_ends(plan).items()) if at[partition] < end)
    return ", ".join(f"{topic}[{number}] at {at[topic, number]} of {end}" for (topic, number), end in behind)


def _drained(
    plan: MemberPlan,
    before: Mapping[Partition, OffsetAndMetadata],
    after: Mapping[Partition, OffsetAndMetadata],
    seconds: float,
) -> DrainResult:
    partitions = []
    for partition, end in sorted(_ends(plan).items()):
        now = after.get(partition, OffsetAndMetadata(offset=end))
        tally = tally_in(now.metadata, plan.run)
        first = tally.first if tally else before.get(partition, now).offset
        partitions.append(
            PartitionDrained(
                topic=partition[0],
                partition=partition[1],
                first=first,
                next_offset=max(first, min(now.offset, end)),
                records=tally.records if tally else 0,
                seconds=tally.ended_at - tally.began_at if tally else 0.0,
            )
        )
    return DrainResult(partitions=tuple(partitions), seconds=seconds)


def _ends(plan: MemberPlan) -> Mapping[Partition, int]:
    return plan.ends or {}


def _check(
    spark: SparkSession, plan: MemberPlan, sink: object, control_host: str | None, *, may_speculate: bool
) -> None:
    """Raise ConfigurationError if session, sink, number of tasks or address do not fit the plan."""
    context = context_of(spark)
    check_sink(sink)
    if plan.instances is None:
        raise ConfigurationError("instances", None, "give the number of tasks, 1 or more")
    check_text("control_host", control_host, "the address of the driver that executors can reach")
    if context is None and control_host is not None:
        remedy = "tasks do not connect to a Spark Connect client; leave it out"
        raise ConfigurationError("control_host", control_host, remedy)
    setting = spark.conf.get("spark.speculation", "false")
    if setting == "true" and not may_speculate:
        raise ConfigurationError(
            "spark.speculation",
            setting,
            "a copy of a task would take over the place of the original in the group; set it to false, or set "
            "allow_speculation=True",
        )
