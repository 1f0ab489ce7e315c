"""`run` and `drain`: members in Spark's tasks, for as long as one likes, or up to the end of the topics."""

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
from consumer_membership.spark.brokers import AssigningAtOnce, ends_now, numbered
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

#: How long a drain's batches gather.
_DRAIN_WAIT_S = 0.1
#: For the batches in hand, where somebody is waiting at a terminal. Spark kills its tasks sooner after a Ctrl-C.
_LAST_BATCH_S = 10.0
#: Between two looks at the members, for the display.
_REFRESH_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run did. Records of attempts that were killed are not counted in."""

    members: tuple[MemberSummary, ...]
    seconds: float

    @property
    def records(self) -> int:
        """Given to the sink."""
        return sum(member.records for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDrained:
    """What a drain did in one partition: the offsets from `first` to before `next_offset`, `records` of them.

    `seconds`: from the first record given to the sink to the last commit, by the clocks of the tasks.
    """

    topic: str
    partition: int
    first: int
    next_offset: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """What a drain did; every partition of the topics is committed up to its end at the drain's start, or beyond."""

    partitions: tuple[PartitionDrained, ...]
    seconds: float

    @property
    def records(self) -> int:
        """Given to the sink and committed, by this drain."""
        return sum(partition.records for partition in self.partitions)


class RunHandle:
    """A run under way. As a context manager it is stopped at the block's end."""

    def __init__(self, job: MemberJob | ConnectJob, display: Display) -> None:
        self._job = job
        self._display = display

    @property
    def is_running(self) -> bool:
        """Whether any task of it may still be at work."""
        return not self._job.is_over

    def progress(self) -> tuple[MemberProgress, ...]:
        """What each member said last (twice a second), by instance; never waits."""
        return self._job.progress()

    def wait(self, timeout_s: float | None = None) -> RunResult | None:
        """Show the progress until the run ends; None if it goes on after this time.

        Ctrl-C stops the run in good order before it comes out of here.

        Raises:
            SinkError: the sink gave a batch up, as often as Spark tries a task.
            FencedError: another run of the pipeline has taken the members over.
            GroupError, TransportError, MembershipError: what ended the tasks otherwise.
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
        """Have every member finish its batch, commit and leave; None if that takes longer than `timeout_s`.

        Raises:
            MembershipError: as `wait`.
        """
        self._job.stop()
        return self.wait(timeout_s)

    def cancel(self) -> None:
        """End it, within a few seconds; batches in hand that are not committed by then come again."""
        self._job.cancel()
        self._job.wait()

    def _watched(self, left_s: float) -> bool:
        """Whether it ends within this time, shown meanwhile."""
        while not self._job.wait(max(0.0, min(_REFRESH_S, left_s))):
            self._display.show(self._job.progress())
            left_s -= _REFRESH_S
            if left_s <= 0:
                return False
        self._display.show(self._job.progress())
        return True

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Stop in good order; after an error without raising another one."""
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
    """Start `instances` tasks, each a static member of the group, that give batches to `sink(batch, context)`.

    A batch is committed when the sink has returned. A task that is lost is replaced by Spark, and the replacement takes
    its place in the group over, with its partitions; the lost one is fenced. One whose process only stood still for
    longer than its session gives up the batch that it held, joins again and goes on. It runs until `stop`, or until a
    task has failed as often as Spark allows (`spark.task.maxFailures`; `local[N]` allows it once).

    With a session of Spark Connect, too, whose client no task can call: both leave word for each other in the groups
    `<pipeline>-control` and `<pipeline>-progress` (`board`), and see it within a second or two. A client of which there
    was no word for a minute is taken for gone.

    Args:
        spark: The session; its cluster needs `instances` free slots.
        config: As a `Consumer`'s; `auto.offset.reset` is `earliest` unless it is given.
        topics: Topics by name.
        group: `group.id`.
        sink: A function or an object that can be pickled; see `Sink`.
        instances: How many members.
        allow_speculation: Start although `spark.speculation` is on: a copy of a task takes the original's place over.
        control_host: Where tasks reach the driver; `spark.driver.host` unless it is given.
        show_progress: Show the members on stderr while somebody waits; None: where stderr is a terminal.
        options: `Options`: pipeline, batch_format, batch_size, batch_wait_s, sink_attempts, sink_timeout_s.

    Raises:
        ConfigurationError: a key or a parameter that cannot work, a topic that does not exist, a sink that cannot be
            pickled; through Spark Connect, a group in which the client may not leave word for the tasks (`board`).
        TransportError: no broker answers.
    """
    plan = planned(config, topics, group, instances, **options)
    _check(spark, plan, sink, control_host, may_speculate=allow_speculation)
    # Asked here, and not by each task: whether the topics exist.
    partitions = ends_now(plan)
    return RunHandle(_job(spark, numbered(plan), sink, control_host, partitions), Display(show_progress, None))


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
    """Give `sink` what the group has not committed yet, up to the ends of the topics at the start, and return.

    The ends are taken once, at the start: what comes later is the next drain's. A drain that failed or was cancelled is
    resumed by calling it again; one that has nothing to do returns at once. Other members of the group may work at the
    same time; the drain ends when the group has committed all of it, whoever did it.

    With a session of Spark Connect, too: nothing of the client's has to be reachable.

    Args:
        spark: As for `run`.
        config: As for `run`.
        topics: As for `run`.
        group: As for `run`.
        sink: As for `run`.
        instances: As for `run`.
        until: "now"; or an end for each partition, by (topic, number), those not named being left out.
        timeout_s: How long all of it may take; None: as long as it takes.
        assign_at_once: Set the group's own `consumer.assignment.interval.ms` to 0 first, and leave it so. Kafka 4.3
            assigns once a second otherwise, and the first member reads alone for so long.
        allow_speculation: As for `run`.
        control_host: As for `run`.
        show_progress: As for `run`.
        **options: As for `run`.

    Raises:
        ConfigurationError, TransportError: as `run`.
        SinkError: the sink gave a batch up, as often as Spark tries a task.
        DrainError: an end cannot be reached (the topic was deleted meanwhile), or not within `timeout_s`.
        FencedError: another run of the pipeline has taken the members over.
        GroupError, MembershipError: what ended the tasks otherwise.
    """
    # Whoever waits for the end of a drain waits for its last batch.
    wishes: Options = {"batch_wait_s": _DRAIN_WAIT_S, **options}
    plan = planned(config, topics, group, instances, **wishes)
    check_until(until)
    if timeout_s is not None:
        check_time("timeout_s", timeout_s)
    _check(spark, plan, sink, control_host, may_speculate=allow_speculation)
    altered = AssigningAtOnce(plan) if assign_at_once else None
    plan = numbered(replace(plan, ends=_chosen(ends_now(plan), until)))
    before = _committed(plan)
    if altered is not None:
        altered.wait()
    unread = OffsetAndMetadata(offset=0)
    todo = sum(max(0, end - max(0, before.get(place, unread).offset)) for place, end in _ends(plan).items())
    if todo == 0:
        return _drained(plan, before, before, 0.0)
    running = RunHandle(_job(spark, plan, sink, control_host, _ends(plan)), Display(show_progress, todo))
    done = running.wait(timeout_s)
    if done is None:
        running.cancel()
        raise DrainError(f"not drained within {timeout_s} s: {_left(plan, _committed(plan))}; call it again to go on")
    after = _committed(plan)
    left = _left(plan, after)
    if left:
        raise DrainError(f"the tasks have ended, and not all of it is committed: {left}")
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
    """What the group has committed, of the partitions of which it has committed anything."""
    said = GroupAdmin(plan.config).committed(plan.group)
    return {(topic, number): at for (topic, number), at in said.items() if isinstance(at, OffsetAndMetadata)}


def _left(plan: MemberPlan, committed: Mapping[Partition, OffsetAndMetadata]) -> str:
    at = {place: committed[place].offset if place in committed else 0 for place in _ends(plan)}
    behind = ((place, end) for place, end in sorted(_ends(plan).items()) if at[place] < end)
    return ", ".join(f"{topic}[{number}] at {at[topic, number]} of {end}" for (topic, number), end in behind)


def _drained(
    plan: MemberPlan,
    before: Mapping[Partition, OffsetAndMetadata],
    after: Mapping[Partition, OffsetAndMetadata],
    seconds: float,
) -> DrainResult:
    partitions = []
    for place, end in sorted(_ends(plan).items()):
        now = after.get(place, OffsetAndMetadata(offset=end))
        tally = tally_in(now.metadata, plan.run)
        first = tally.first if tally else before.get(place, now).offset
        partitions.append(
            PartitionDrained(
                topic=place[0],
                partition=place[1],
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
    """Refuse what cannot go with a plan: a session, a sink, a number of tasks, an address."""
    context = context_of(spark)
    check_sink(sink)
    if plan.instances is None:
        raise ConfigurationError("instances", None, "give the number of tasks, 1 or more")
    check_text("control_host", control_host, "the driver's address as executors reach it")
    if context is None and control_host is not None:
        raise ConfigurationError("control_host", control_host, "no task calls a client of Spark Connect; leave it out")
    setting = spark.conf.get("spark.speculation", "false")
    if setting == "true" and not may_speculate:
        raise ConfigurationError(
            "spark.speculation",
            setting,
            "a copy of a task would take the original's place in the group; set it to false, or give "
            "allow_speculation=True",
        )
