"""What travels from the driver to the tasks: configuration, checked where the caller can still be told."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError, SinkError
from consumer_membership.spark.arguments import (
    check_config,
    check_count,
    check_group,
    check_text,
    check_use,
    is_number,
    topic_names,
)
from consumer_membership.spark.context import BatchFormat, Partition, SinkUse, run_within

_log = logging.getLogger("consumer_membership.spark")

#: As max.poll.interval.ms at most: librdkafka takes no more than a day.
_LONGEST_SINK_S = 86_400.0
#: A task has to look after its driver meanwhile.
_LONGEST_WAIT_S = 60.0

#: A drain is short: at 0.15 ms of broker CPU each, a hundred members take a seventh of a core as long as it lasts.
_DRAIN_HEARTBEAT_MS = 100
#: In a client id before the run's number, and before the attempt's.
_MARK = "@"
#: An attempt's number has 19 digits at most. Other programs may choose any client id.
_NUMBER = re.compile("[0-9]{1,19}")

#: Keys that a member in a task has from its plan, and what to do about each.
_OWNED = {
    "group.instance.id": "leave it out: each task has its own, <pipeline>-<number>; name the pipeline instead",
    "group.instance.id.pool": "leave it out: each task has its own instance id, <pipeline>-<number>",
    "group.instance.id.conflict.policy": "leave it out: a task's replacement takes its place over",
    "enable.auto.commit": "leave it out: offsets are committed when the sink has returned",
    "enable.auto.offset.store": "leave it out: offsets are committed when the sink has returned",
    "max.poll.interval.ms": "leave it out and give sink_timeout_s: how long one call of the sink may take",
    "enable.partition.eof": "leave it out: the end of a partition is looked after",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAddress:
    """Where the driver listens to its tasks, and the secret of the run, which both ends prove to have.

    `sends_texts`: whether the texts of errors may travel on the line, which is not encrypted.
    """

    host: str
    port: int
    secret: str = field(repr=False)
    sends_texts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """One run's members, as each task needs to know them.

    `ends` has the offset at which each partition is done, None where the run has no end. `run_number` orders runs of
    one pipeline: milliseconds since 1970 at the start by the driver's clock, or more, so that it lies above the runs
    that the group shows (`brokers.numbered`). `batch_wait_s` is how long a batch may gather. `control` and `board` say
    where the driver, or a client of Spark Connect, gives orders: at an address, or beside the offsets of these
    partitions (`board`).
    """

    config: Mapping[str, object]
    topics: tuple[str, ...]
    group: str
    pipeline: str
    instances: int | None
    run_number: int
    batch_size: int
    batch_wait_s: float
    batch_format: BatchFormat
    sink_attempts: int
    sink_timeout_s: float
    ends: Mapping[Partition, int] | None = None
    control: ControlAddress | None = None
    board: tuple[Partition, ...] = ()

    def instance_id(self, instance: int) -> str:
        """The `group.instance.id` of this task's member."""
        return f"{self.pipeline}-{instance}"

    @property
    def run(self) -> str:
        """The run's name, in committed offsets and for Spark."""
        return f"{self.pipeline}@{self.run_number}"


class Options(TypedDict, total=False):
    """What a caller may ask for by keyword, of `run`, `drain` and `member_task` alike.

    Attributes:
        pipeline: The name before the members' instance ids, `<pipeline>-<number>`; the group's unless it is given.
        batch_format: `messages` (unless it is given), `arrow` or `pandas`.
        batch_size: Records in a batch, at most; 10,000. Batches get smaller while the sink needs more than half of
            `sink_timeout_s` for one.
        batch_wait_s: How long a batch gathers, at most, in seconds; 0.25, for a drain 0.1.
        sink_attempts: How often a batch is given to a sink that raises, before the task fails; also how many batches in
            a row may take longer than `sink_timeout_s`; 3.
        sink_timeout_s: How long the calls for one batch may take, in seconds; 300. A member whose sink works for longer
            leaves the group; the batch is not committed, and its records are redelivered in smaller batches.
    """

    pipeline: str
    batch_format: BatchFormat | str
    batch_size: int
    batch_wait_s: float
    sink_attempts: int
    sink_timeout_s: float


def planned(  # noqa: PLR0913 - the names of `Options`, with their defaults
    config: Mapping[str, object],
    topics: Sequence[str],
    group: str,
    instances: int | None = 1,
    *,
    pipeline: str | None = None,
    batch_format: BatchFormat | str = BatchFormat.MESSAGES,
    batch_size: int = 10_000,
    batch_wait_s: float = 0.25,
    sink_attempts: int = 3,
    sink_timeout_s: float = 300.0,
) -> MemberPlan:
    """The plan of a run that begins now, of `Options`; `instances` None: Spark decides how many tasks there are.

    Raises:
        ConfigurationError: a key or a parameter that cannot work; the text names it, its value, and what to do.
    """
    check_group(group)
    check_config(config, group, _OWNED)
    check_text("pipeline", pipeline, "the name before the members' instance ids")
    plan = MemberPlan(
        config=dict(config),
        topics=topic_names(topics),
        group=group,
        pipeline=pipeline or group,
        instances=instances,
        run_number=time.time_ns() // 1_000_000,
        batch_size=batch_size,
        batch_wait_s=batch_wait_s,
        batch_format=check_format(batch_format),
        sink_attempts=sink_attempts,
        sink_timeout_s=sink_timeout_s,
    )
    _check_numbers(plan)
    # Everything else that a consumer would refuse is refused here, and not in a task.
    ConsumerConfig.from_mapping(member_config(plan, 0, 0)).with_servers()
    return plan


def member_config(plan: MemberPlan, instance: int, attempt: int) -> dict[str, object]:
    """The configuration of the consumer in a task.

    The client id tells an operator, and later attempts and runs, which attempt of which run a member is.
    """
    prefix = plan.config.get("client.id", "spark")
    is_bounded = plan.ends is not None
    return {
        "auto.offset.reset": "earliest",
        # The members of a drain come all at once, and each waits for what the first one gives up.
        **({"heartbeat.interval.ms": _DRAIN_HEARTBEAT_MS} if is_bounded else {}),
        **plan.config,
        "client.id": f"{prefix}-{plan.instance_id(instance)}{_MARK}{plan.run_number}{_MARK}{attempt}",
        "group.id": plan.group,
        "group.instance.id": plan.instance_id(instance),
        "enable.auto.commit": False,
        "enable.partition.eof": is_bounded,
        "max.poll.interval.ms": int(plan.sink_timeout_s * 1000),
    }


def refuse_use(plan: MemberPlan, sink: object, partitions: Iterable[Partition], *, is_on_driver: bool) -> None:
    """Raise ConfigurationError if the sink cannot do what the plan asks of it; tasks would fail one after another."""
    use = SinkUse(
        group=plan.group,
        batch_format=plan.batch_format,
        partitions=tuple(sorted(partitions)),
        is_on_driver=is_on_driver,
    )
    try:
        check_use(sink, use)
    except SinkError as unknown:
        _log.info("Run %s: the sink's output is not looked at: %s", plan.run, unknown)


def attempt_of(client_id: str) -> int | None:
    """The attempt in a client id that `member_config` made; None: it did not make it."""
    _, mark, number = client_id.rpartition(_MARK)
    return int(number) if mark and _NUMBER.fullmatch(number) else None


def run_of(client_id: str) -> int | None:
    """The run's number in a client id that `member_config` made, also that of an earlier version, without a run."""
    attempt = attempt_of(client_id)
    if attempt is None:
        return None
    _, _, number = client_id.rpartition(_MARK)[0].rpartition(_MARK)
    return int(number) if _NUMBER.fullmatch(number) else run_within(attempt)


def _check_numbers(plan: MemberPlan) -> None:
    if plan.instances is not None:
        check_count("instances", plan.instances, "give the number of tasks, 1 or more")
    check_count("batch_size", plan.batch_size, "give a number of records, 1 or more")
    check_count("sink_attempts", plan.sink_attempts, "give the number of calls for one batch, 1 or more")
    if not is_number(plan.batch_wait_s) or not 0 < plan.batch_wait_s <= _LONGEST_WAIT_S:
        raise ConfigurationError("batch_wait_s", plan.batch_wait_s, "give seconds, more than 0 and at most 60")
    if not is_number(plan.sink_timeout_s) or not 1 <= plan.sink_timeout_s <= _LONGEST_SINK_S:
        raise ConfigurationError("sink_timeout_s", plan.sink_timeout_s, "give seconds, from 1 to 86400 (a day)")


def check_format(given: BatchFormat | str) -> BatchFormat:
    """The format of this name; refuses others."""
    try:
        return BatchFormat(given)
    except ValueError:
        raise ConfigurationError("batch_format", given, f"give one of {', '.join(BatchFormat)}") from None
