"""The program of a task in an executor's Python process: one attempt, with its member and its line to the driver."""

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
from consumer_membership.spark.brokers import ends_now, with_run_number
from consumer_membership.spark.context import SinkContext, attempt_number, name_record
from consumer_membership.spark.control import ControlLink, Link
from consumer_membership.spark.mailbox import TaskMailbox
from consumer_membership.spark.member import MemberSummary, TaskMember
from consumer_membership.spark.pickling import pickled
from consumer_membership.spark.plan import MemberPlan, Options, planned, refuse_use

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

RowT = TypeVar("RowT")


def rdd_task(plan: MemberPlan, sink: bytes) -> Callable[[Iterable[object]], Iterable[MemberSummary]]:
    """Return the function for `mapPartitions` over an RDD with one partition for each member; its rows are ignored."""

    def task(rows: Iterable[object]) -> Iterator[MemberSummary]:
        for _ in rows:
            pass
        yield _in_this_task(plan, sink)

    return task


def frame_task(plan: MemberPlan, sink: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over a frame with one partition for each member; it yields the summary."""

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
    """Return a function for `foreachPartition`: each task is a group member that passes batches to `function`.

        spark.range(4).repartition(4).foreachPartition(member_task(config, topics, write))

    Each partition of the frame is one member; its rows are ignored. The tasks have no connection to the driver: for
    progress and a clean stop, use `run` or `drain`.

    Args:
        config: The configuration, as for `Consumer`; `auto.offset.reset` is `earliest` by default.
        topics: The names of the topics.
        function: The sink: a function or an object that can be pickled; see `Sink`.
        group: The group; default: `group.id` of the configuration.
        until: "now": the tasks end when the group has committed the present ends of the topics; None: they run until
            the job is cancelled.
        instances: The number of members, for the sink's context; None: unknown.
        options: `Options`: pipeline, batch_format, batch_size, batch_wait_s, sink_attempts, sink_timeout_s.

    Raises:
        ConfigurationError: a key or a parameter is wrong, or the function cannot be pickled.
        TransportError: the ends of the topics could not be read.
    """
    check_config(config)
    named = group or config.get("group.id")
    if not isinstance(named, str):
        raise ConfigurationError("group.id", named, "set the group, in the configuration or with group=")
    if until not in (None, "now"):
        raise ConfigurationError("until", until, "give 'now' or None")
    check_sink(function, "function")
    plan = planned(config, topics, named, instances, **options)
    sink = pickled(function, "function")
    if until is not None:
        plan = replace(plan, ends=ends_now(plan))
    refuse_use(plan, function, plan.ends or (), is_on_driver=_is_driver())
    plan = with_run_number(plan)

    def task(rows: Iterable[object]) -> None:
        for _ in rows:
            pass
        _in_this_task(plan, sink)

    return task


def _is_driver() -> bool:
    """Return whether this process has a SparkContext; a Spark Connect client has none."""
    try:
        from pyspark import SparkContext
    except ImportError:  # the distribution pyspark-client supports only Spark Connect
        return False
    return getattr(SparkContext, "_active_spark_context", None) is not None


def foreach_partition(function: Callable[[Iterator[Message]], None]) -> Callable[[list[Message], SinkContext], None]:
    """Return a sink from a function for `foreachPartition`, which receives an iterator over the records of a batch."""

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
    """Run one attempt to its end; its error is sent to the driver before Spark receives it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("task", None, "this function runs only in Spark tasks: pass it to foreachPartition")
    # First, so that a copy of a task takes over a place only if it can use the sink.
    made = _unpickled(sink)
    instance = context.partitionId()
    attempt = attempt_number(plan.run_number, context.taskAttemptId())
    link = _link(plan, instance, attempt)
    with contextlib.closing(link), _stopping_at_signals(link):
        try:
            summary = TaskMember(plan, made, instance, attempt, link).run()
        except Exception as failed:
            link.fail(type(failed).__name__, str(failed))
            raise
        if link.cut_short is not None:
            # Without an error, Spark would regard the task as done and not start it again.
            raise TransportError(f"task {instance} ends early: {link.cut_short}; its last batch is committed")
        return summary


def _link(plan: MemberPlan, instance: int, attempt: int) -> Link:
    """Connect to the driver, or to a Spark Connect client through Kafka; a task of `member_task` has no connection."""
    if plan.control is not None:
        return ControlLink(plan.control, instance, attempt)
    return TaskMailbox(plan, instance) if plan.mailbox else Link()


def _unpickled(sink: bytes) -> object:
    from pyspark import cloudpickle

    try:
        return cloudpickle.loads(sink)
    except Exception as failed:
        raise SinkError(
            f"the sink cannot be unpickled in the task: {type(failed).__name__}: {failed}; tasks import each module "
            "except the driver's main module: install it on the executors, or pass it to SparkContext.addPyFile"
        ) from failed


@contextlib.contextmanager
def _stopping_at_signals(link: Link) -> Iterator[None]:
    """Stop the task after the current batch if the executor ends: its Python processes receive SIGHUP or SIGTERM."""
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
