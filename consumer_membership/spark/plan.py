"""The plan of a run, which the driver checks and sends to the tasks: configuration, topics, group and options."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from consumer_membership.config import ConsumerConfig
from consumer_membership.config.values import boolean
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

#: The largest max.poll.interval.ms that librdkafka accepts, a day.
_LONGEST_SINK_S = 86_400.0
#: Short enough for a task to react to its driver's orders.
_LONGEST_WAIT_S = 60.0

#: A drain is short: at 0.15 ms of broker CPU each, the heartbeats of a hundred members use a seventh of a core.
_DRAIN_HEARTBEAT_MS = 100
#: The separator before the run's number and before the attempt's number in a client id.
_MARK = "@"
#: An attempt's number has at most 19 digits. Other programs may choose any client id.
_NUMBER = re.compile("[0-9]{1,19}")

#: Keys that the plan sets for a member in a task, with the remedy for each.
_OWNED = {
    "group.instance.id": "leave it out: each task has its own, <pipeline>-<number>; set pipeline instead",
    "group.instance.id.pool": "leave it out: each task has its own instance id, <pipeline>-<number>",
    "group.instance.id.conflict.policy": "leave it out: the replacement of a task takes over its place",
    "enable.auto.commit": "leave it out: offsets are committed when the sink has returned",
    "enable.auto.offset.store": "leave it out: offsets are committed when the sink has returned",
    "max.poll.interval.ms": "leave it out, and set sink_timeout_s, the time limit for one batch",
    "enable.partition.eof": "leave it out: the ends of partitions are detected automatically",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAddress:
    """The address at which the driver listens to its tasks, and the secret of the run, which authenticates both ends.

    `sends_texts`: whether tasks may send the texts of errors on the line, which is not encrypted.
    """

    host: str
    port: int
    secret: str = field(repr=False)
    sends_texts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """The plan of one run, which each task receives.

    `ends` has the end offset of each partition, None for a run without end. `run_number` orders the runs of a pipeline:
    milliseconds since 1970 at the start by the driver's clock, or more, so that it is above the runs that the group
    shows (`brokers.with_run_number`). `batch_wait_s` is the longest time to collect a batch. Orders come from the
    driver at the address `control`, or from a Spark Connect client through the helper groups, at the partitions
    `mailbox`.
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
    mailbox: tuple[Partition, ...] = ()

    def instance_id(self, instance: int) -> str:
        """Return the `group.instance.id` of a task's member."""
        return f"{self.pipeline}-{instance}"

    @property
    def run(self) -> str:
        """The name of the run, in the metadata of commits and for Spark."""
        return f"{self.pipeline}@{self.run_number}"


class Options(TypedDict, total=False):
    """The keyword options of `run`, `drain` and `member_task`.

    Attributes:
        pipeline: The first part of the members' instance ids, `<pipeline>-<number>`; default: the group.
        batch_format: `messages` (default), `arrow` or `pandas`.
        batch_size: The largest number of records in a batch; default: 10,000. Batches become smaller while the sink
            needs more than half of `sink_timeout_s` for a batch.
        batch_wait_s: The longest time to collect a batch, in seconds; default: 0.25, for a drain 0.1.
        sink_attempts: How often a batch is passed to a sink that raises an exception before the task fails, and how
            many batches in a row may take longer than `sink_timeout_s`; default: 3.
        sink_timeout_s: The time limit for all calls for one batch, in seconds; default: 300. A member whose sink takes
            longer leaves the group; the batch is not committed, and its records are redelivered in smaller batches.
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
    """Return the plan of a run that starts now; with `instances` None, Spark decides the number of tasks.

    Raises:
        ConfigurationError: a key or a parameter is wrong; the text names it, its value and the fix.
    """
    check_group(group)
    check_config(config, group, _OWNED)
    check_text("pipeline", pipeline, "the first part of the members' instance ids")
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
    # Raises the errors of a consumer's configuration here, instead of in a task.
    ConsumerConfig.from_mapping(member_config(plan, 0, 0)).with_servers()
    return plan


def member_config(plan: MemberPlan, instance: int, attempt: int) -> dict[str, object]:
    """Return the configuration of the consumer in a task.

    The client id has the run and the attempt of a member, for operators and for later attempts and runs.
    """
    prefix = plan.config.get("client.id", "spark")
    is_bounded = plan.ends is not None
    return {
        "auto.offset.reset": "earliest",
        # The members of a drain join at once, and each waits for partitions that the first member releases.
        **({"heartbeat.interval.ms": _DRAIN_HEARTBEAT_MS} if is_bounded else {}),
        **plan.config,
        "client.id": f"{prefix}-{plan.instance_id(instance)}{_MARK}{plan.run_number}{_MARK}{attempt}",
        "group.id": plan.group,
        "group.instance.id": plan.instance_id(instance),
        "enable.auto.commit": False,
        "enable.partition.eof": is_bounded,
        "max.poll.interval.ms": int(plan.sink_timeout_s * 1000),
    }


def cluster_config(plan: MemberPlan, instance: int = 0, attempt: int = 0) -> dict[str, object]:
    """Return the configuration of another client, such as a producer, that connects to the same brokers."""
    return ConsumerConfig.from_mapping(member_config(plan, instance, attempt)).cluster_config()


def has_leases(plan: MemberPlan) -> bool:
    """Return whether the members check the leases of their partitions (`ownership.lease.enable`)."""
    key = "ownership.lease.enable"
    return boolean(key, plan.config.get(key, False))


def refuse_use(plan: MemberPlan, sink: object, partitions: Iterable[Partition], *, is_on_driver: bool) -> None:
    """Raise ConfigurationError if the sink cannot work with this plan, because each task would fail."""
    use = SinkUse(
        group=plan.group,
        batch_format=plan.batch_format,
        partitions=tuple(sorted(partitions)),
        is_on_driver=is_on_driver,
        cluster_config=cluster_config(plan),
    )
    try:
        check_use(sink, use)
    except SinkError as unknown:
        _log.info("Run %s: the sink's output could not be checked: %s", plan.run, unknown)


def attempt_of(client_id: str) -> int | None:
    """Return the attempt in a client id of `member_config`; None for another client id."""
    _, mark, number = client_id.rpartition(_MARK)
    return int(number) if mark and _NUMBER.fullmatch(number) else None


def run_of(client_id: str) -> int | None:
    """Return the run number in a client id of `member_config`; earlier versions had it only within the attempt."""
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
    """Return the format with this name; raise ConfigurationError for other names."""
    try:
        return BatchFormat(given)
    except ValueError:
        raise ConfigurationError("batch_format", given, f"give one of {', '.join(BatchFormat)}") from None
