"""What runs in an executor's Python process: one attempt of one task, with its member and its line to the driver."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import FrameType
from typing import TYPE_CHECKING, TypeVar, Unpack

from confluent_kafka import Message

from consumer_membership.errors import ConfigurationError, SinkError, TransportError
from consumer_membership.spark.arguments import check_config, check_sink, with_suggestions
from consumer_membership.spark.board import BoardLink
from consumer_membership.spark.brokers import ends_now, numbered
from consumer_membership.spark.context import SinkContext, attempt_number, name_record
from consumer_membership.spark.control import ControlLink, Link
from consumer_membership.spark.member import MemberSummary, TaskMember
from consumer_membership.spark.pickling import pickled
from consumer_membership.spark.plan import MemberPlan, Options, planned, refuse_use

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

RowT = TypeVar("RowT")


def rdd_task(plan: MemberPlan, sink: bytes) -> Callable[[Iterable[object]], Iterable[MemberSummary]]:
    """The function for `mapPartitions` over an RDD whose partitions are the members, whatever is in them."""

    def task(rows: Iterable[object]) -> Iterator[MemberSummary]:
        for _ in rows:
            pass
        yield _in_this_task(plan, sink)

    return task


def frame_task(plan: MemberPlan, sink: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for `mapInArrow` over a frame whose partitions are the members; a row of each is its summary."""

    def task(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in rows:
            pass
        summary = json.dumps(asdict(_in_this_task(plan, sink)))
        yield pa.RecordBatch.from_pydict({"summary": [summary]})

    return task


@with_suggestions(*Options.__annotations__)
def member_task(
    config: Mapping[str, object],
    topics: Sequence[str],
    function: object,
    *,
    group: str | None = None,
    until: str | None = "now",
    instances: int | None = None,
    **options: Unpack[Options],
) -> Callable[[Iterable[object]], None]:
    """A function for `foreachPartition`: each task is a member of the group and gives its batches to `function`.

        spark.range(4).repartition(4).foreachPartition(member_task(config, topics, write))

    The rows of the frame do not matter, its partitions are the members. With `until="now"` the tasks end when the
    group has committed everything that was there when this was called; with None they run until the job is cancelled.
    `group` is the configuration's `group.id` unless it is given, `instances` what the sink's context says of the number
    of members, `options` are `Options`. There is no line to the driver: for a graceful stop and progress use `run` and
    `drain`.

    Raises:
        ConfigurationError: a key or a parameter that cannot work, a function that cannot be pickled.
        TransportError: the brokers do not say where the topics end.
    """
    check_config(config)
    named = group or config.get("group.id")
    if not isinstance(named, str):
        raise ConfigurationError("group.id", named, "name the group, in the configuration or as group=")
    if until not in (None, "now"):
        raise ConfigurationError("until", until, "give 'now' or None")
    check_sink(function, "function")
    plan = planned(config, topics, named, instances, **options)
    sink = pickled(function, "function")
    if until is not None:
        plan = replace(plan, ends=ends_now(plan))
    refuse_use(plan, function, plan.ends or (), is_on_driver=_is_driver())
    plan = numbered(plan)

    def task(rows: Iterable[object]) -> None:
        for _ in rows:
            pass
        _in_this_task(plan, sink)

    return task


def _is_driver() -> bool:
    """Whether this process has a SparkContext; a client of Spark Connect has none."""
    try:
        from pyspark import SparkContext
    except ImportError:  # of the distribution pyspark-client, which is for Spark Connect alone
        return False
    return getattr(SparkContext, "_active_spark_context", None) is not None


def foreach_partition(function: Callable[[Iterator[Message]], None]) -> Callable[[list[Message], SinkContext], None]:
    """A sink of a function that was written for `foreachPartition`: it gets an iterator over a batch's records."""

    def sink(batch: list[Message], _: SinkContext) -> None:
        taken: list[Message] = []

        def records() -> Iterator[Message]:
            for message in batch:
                taken[:] = [message]
                yield message
            taken.clear()

        try:
            function(records())
        except Exception as raised:
            for message in taken:
                name_record(raised, message)
            raise

    return sink


def _in_this_task(plan: MemberPlan, sink: bytes) -> MemberSummary:
    """Run one attempt to its end; the driver hears why its member failed, whatever it was, before Spark does."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("task", None, "this function is for Spark's tasks: give it to foreachPartition")
    # First: a copy of a task takes nothing over before it could go on with it.
    made = _unpickled(sink)
    instance = context.partitionId()
    attempt = attempt_number(plan.run_number, context.taskAttemptId())
    link = _link(plan, instance, attempt)
    with contextlib.closing(link), _told_of_the_end(link):
        try:
            summary = TaskMember(plan, made, instance, attempt, link).run()
        except Exception as failed:
            link.fail(type(failed).__name__, str(failed))
            raise
        if link.cut_short is not None:
            # Spark would take it for done, and start no other.
            raise TransportError(f"task {instance} ends early: {link.cut_short}; what its sink took is committed")
        return summary


def _link(plan: MemberPlan, instance: int, attempt: int) -> Link:
    """To whoever wants this run, if anybody can be told from here."""
    if plan.control is not None:
        return ControlLink(plan.control, instance, attempt)
    return BoardLink(plan, instance) if plan.board else Link()


def _unpickled(sink: bytes) -> object:
    from pyspark import cloudpickle

    try:
        return cloudpickle.loads(sink)
    except Exception as failed:
        raise SinkError(
            f"the sink cannot be made in the task: {type(failed).__name__}: {failed}; what is not of the driver's main "
            "module is imported there: install its module on the executors, or give it to SparkContext.addPyFile"
        ) from failed


@contextlib.contextmanager
def _told_of_the_end(link: Link) -> Iterator[None]:
    """Finish the batch in hand when the executor ends: its Python processes get SIGHUP then, or SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        link.hang_up()

    numbers = [getattr(signal, name) for name in ("SIGHUP", "SIGTERM") if hasattr(signal, name)]  # Windows: no SIGHUP
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
