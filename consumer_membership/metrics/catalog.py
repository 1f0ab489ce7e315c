"""The table of all metrics: their names in the Java client, Prometheus and OpenTelemetry, and their meaning.

All names come from this table: in the exporters, in docs/reference/metrics.md, and in the push to brokers (KIP-714).
Prometheus uses base units and computes averages and rates in queries; the Java client has them as separate metrics,
over the last 30 to 60 seconds and in milliseconds. One row can therefore have several Java names.

Each series has the group, the client id and the consumer's number in the process as labels, and the labels of its row.
A series with a partition's labels ends when the consumer no longer owns the partition. The series of handlers exist
only for consumers with a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from math import nan
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar, assert_never

from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.states import MemberState
from consumer_membership.metrics.distribution import Distribution
from consumer_membership.metrics.handler_ledger import HandlerCounts
from consumer_membership.metrics.snapshot import FetchedCounts, Metrics
from consumer_membership.types import GroupProtocol, TopicPartition

#: The value of a metric: a number, or durations.
Reading: TypeAlias = float | Distribution
#: Each reading by the values of its labels; unknown readings are absent.
Readings: TypeAlias = Mapping[tuple[str, ...], Reading]


class MetricKind(Enum):
    """The kind of a metric: a counter, a gauge, or a histogram of durations."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Statistic(Enum):
    """A statistic for which the Java client has a separate metric."""

    VALUE = "the value"
    COUNT = "how many"
    SUM = "their sum"
    AVERAGE = "the average of the last 30 to 60 s"
    GREATEST = "the maximum of the last 30 to 60 s"
    PER_SECOND = "the rate per second over the last 30 to 60 s"
    PER_HOUR = "the rate per hour over the last 30 to 60 s"


class JavaName(NamedTuple):
    """The name of a Java metric, as `Consumer.metrics()` of the Java client has it: group, name and tags."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def of_telemetry(self) -> str:
        """The name in KIP-714: `org.apache.kafka.consumer.coordinator.rebalance.latency.avg`."""
        return f"org.apache.kafka.{self.group.removesuffix('-metrics')}.{self.name}".replace("-", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaMetric:
    """The derivation of a Java metric from a row; `per_unit` converts seconds to the Java client's unit.

    `where` selects one reading by its labels, which are then part of the Java name; None: each reading, with the labels
    as tags.
    """

    group: str
    name: str
    statistic: Statistic = Statistic.VALUE
    per_unit: float = 1.0
    where: tuple[str, ...] | None = None

    def value(self, reading: Reading) -> float:
        """Return the value that the Java client would report."""
        if not isinstance(reading, Distribution):
            return reading * self.per_unit
        match self.statistic:
            case Statistic.VALUE | Statistic.COUNT:
                return float(reading.count)
            case Statistic.SUM:
                return reading.sum_s * self.per_unit
            case Statistic.AVERAGE:
                return reading.recent.average_s * self.per_unit
            case Statistic.GREATEST:
                return reading.recent.greatest_s * self.per_unit
            case Statistic.PER_SECOND:
                return reading.recent.per_s
            case Statistic.PER_HOUR:
                return reading.recent.per_s * _HOUR_S
            case _:
                assert_never(self.statistic)


class Convention(NamedTuple):
    """The names in OpenTelemetry's conventions for messaging (the current one and that of 1.24), and the operation."""

    name: str
    former: str
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table; `read` extracts its readings from a snapshot.

    `unit` is UCUM's, as OpenTelemetry requires. With `convention` None, OpenTelemetry has only this package's own name.
    """

    prometheus: str
    opentelemetry: str
    kind: MetricKind
    unit: str
    help: str
    read: Callable[[Metrics], Readings]
    labels: tuple[str, ...] = ()
    java: tuple[JavaMetric, ...] = ()
    convention: Convention | None = None

    def java_names(self, readings: Readings) -> Iterator[tuple[JavaName, float]]:
        """Yield the Java names of these readings with their values; NaN if there is no value."""
        for metric in self.java:
            if metric.where is not None or not self.labels:
                reading = readings.get(metric.where or ())
                value = nan if reading is None else metric.value(reading)
                yield JavaName(metric.group, metric.name), value
                continue
            for values, reading in readings.items():
                tags = tuple(zip(self.labels, values, strict=True))
                yield JavaName(metric.group, metric.name, tags), metric.value(reading)


def java_metrics(metrics: Metrics) -> Mapping[JavaName, float]:
    """Return all Java metrics that this client has, with their values, as the Java client's `Consumer.metrics()`."""
    return MappingProxyType({name: value for row in CATALOG for name, value in row.java_names(row.read(metrics))})


# ---- readings -------------------------------------------------------------------------------------------------------

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_COORDINATOR = "consumer-coordinator-metrics"
_CONSUMER = "consumer-metrics"
_FETCH = "consumer-fetch-manager-metrics"
_MS, _NS = 1e3, 1e9
_HOUR_S = 3600.0
_PARTITION = ("topic", "partition")


def _one(read: Callable[[Metrics], Reading | None]) -> Callable[[Metrics], Readings]:
    """Return a reader for a metric without labels."""

    def readings(metrics: Metrics) -> Readings:
        reading = read(metrics)
        return {} if reading is None else {(): reading}

    return readings


def _of_classic(read: Callable[[Metrics], Distribution]) -> Callable[[Metrics], Readings]:
    """Return a reader for durations of classic members; other members have none, unless they were classic before."""

    def readings(metrics: Metrics) -> Readings:
        reading = read(metrics)
        return {(): reading} if reading.count or metrics.view.protocol is GroupProtocol.CLASSIC else {}

    return readings


def _of_handlers(read: Callable[[HandlerCounts], Reading | None]) -> Callable[[Metrics], Readings]:
    """Return a reader for a metric of handlers; a consumer without a processor has none."""
    return _one(lambda metrics: None if metrics.handlers is None else read(metrics.handlers))


_KeyT = TypeVar("_KeyT", bound=Enum)


def _by(read: Callable[[Metrics], Mapping[_KeyT, Reading]]) -> Callable[[Metrics], Readings]:
    """Return a reader for a metric with one label, whose values are those of an enum."""
    return lambda metrics: {(str(key.value),): reading for key, reading in read(metrics).items()}


def _by_name(read: Callable[[Metrics], Mapping[str, Reading]]) -> Callable[[Metrics], Readings]:
    return lambda metrics: {(name,): reading for name, reading in read(metrics).items()}


def _by_partition(read: Callable[[Metrics], Mapping[TopicPartition, Reading | None]]) -> Callable[[Metrics], Readings]:
    def readings(metrics: Metrics) -> Readings:
        return {
            (topic, str(number)): reading for (topic, number), reading in read(metrics).items() if reading is not None
        }

    return readings


def _states(metrics: Metrics) -> Readings:
    return {(state.value.lower(),): float(state is metrics.view.state) for state in MemberState}


def _verdicts(metrics: Metrics) -> Readings:
    return {(verdict.value,): float(verdict is metrics.health.verdict) for verdict in HealthVerdict}


def _identity(metrics: Metrics) -> Readings:
    view = metrics.view
    return {(view.member_id, view.instance_id or "", view.protocol.value): 1.0}


def _greatest_lag(metrics: Metrics) -> float | None:
    return max((one.lag for one in metrics.health.partitions.values() if one.lag is not None), default=None)


def _stuck_handlers(metrics: Metrics) -> float | None:
    handlers = metrics.health.handlers
    return None if handlers is None else float(len(handlers.stuck))


def _unfinished_ages_s(metrics: Metrics) -> Mapping[TopicPartition, float | None]:
    handlers = metrics.health.handlers
    if handlers is None:
        return {}
    return {
        partition: metrics.age_s(handlers.oldest[partition].since) if partition in handlers.oldest else 0.0
        for partition in metrics.health.partitions
    }


def _fetched(metrics: Metrics, read: Callable[[FetchedCounts], float]) -> Mapping[TopicPartition, float]:
    return {partition: read(counts) for partition, counts in metrics.fetched.items()}


def _latencies(name: str, where: tuple[str, ...] | None = None) -> tuple[JavaMetric, ...]:
    """Return the Java client's two metrics of a latency."""
    return tuple(
        JavaMetric(group=_COORDINATOR, name=f"{name}-{end}", statistic=statistic, per_unit=_MS, where=where)
        for end, statistic in (("avg", Statistic.AVERAGE), ("max", Statistic.GREATEST))
    )


def _exchanges(name: str) -> tuple[JavaMetric, ...]:
    """Return the Java client's four metrics of a classic group request."""
    return (
        *_latencies(f"{name}-time"),
        JavaMetric(group=_COORDINATOR, name=f"{name}-rate", statistic=Statistic.PER_SECOND),
        JavaMetric(group=_COORDINATOR, name=f"{name}-total", statistic=Statistic.COUNT),
    )


# ---- the table ------------------------------------------------------------------------------------------------------

_MEMBERSHIP = (
    Metric(
        prometheus="kafka_consumer_info",
        opentelemetry="kafka.consumer.info",
        kind=_GAUGE,
        unit="1",
        labels=("member_id", "instance_id", "protocol"),
        help="Always 1; the labels identify the consumer in its group.",
        read=_identity,
    ),
    Metric(
        prometheus="kafka_consumer_state",
        opentelemetry="kafka.consumer.state",
        kind=_GAUGE,
        unit="1",
        labels=("state",),
        help="1 for the current state of the member, 0 for all others.",
        read=_states,
    ),
    Metric(
        prometheus="kafka_consumer_health",
        opentelemetry="kafka.consumer.health",
        kind=_GAUGE,
        unit="1",
        labels=("verdict",),
        help="1 for the current verdict of health(), 0 for all others.",
        read=_verdicts,
    ),
    Metric(
        prometheus="kafka_consumer_member_epoch",
        opentelemetry="kafka.consumer.member.epoch",
        kind=_GAUGE,
        unit="1",
        help="The member epoch (classic: the generation); 0 outside the group.",
        read=_one(lambda metrics: float(metrics.view.member_epoch)),
    ),
    Metric(
        prometheus="kafka_consumer_assigned_partitions",
        opentelemetry="kafka.consumer.assigned_partitions",
        kind=_GAUGE,
        unit="{partition}",
        help="The number of partitions that the member owns.",
        read=_one(lambda metrics: float(len(metrics.view.owned))),
        java=(JavaMetric(group=_COORDINATOR, name="assigned-partitions"),),
    ),
    Metric(
        prometheus="kafka_consumer_rebalances_total",
        opentelemetry="kafka.consumer.rebalances",
        kind=_COUNTER,
        unit="{rebalance}",
        labels=("cause",),
        help="Rebalances of this member and ends of its membership, by cause.",
        read=_by(lambda metrics: metrics.membership.rebalances),
    ),
    Metric(
        prometheus="kafka_consumer_rebalances_failed_total",
        opentelemetry="kafka.consumer.rebalances.failed",
        kind=_COUNTER,
        unit="{rebalance}",
        help="Rebalances during which the membership ended: fenced, no poll in time, or rejected permanently.",
        read=_one(lambda metrics: float(metrics.membership.rebalances_failed)),
        java=(JavaMetric(group=_COORDINATOR, name="failed-rebalance-total"),),
    ),
    Metric(
        prometheus="kafka_consumer_rebalances_failed_per_second",
        opentelemetry="kafka.consumer.rebalances.failed.rate",
        kind=_GAUGE,
        unit="{rebalance}/s",
        help="Failed rebalances per second, over the last 30 to 60 seconds.",
        read=_one(lambda metrics: metrics.membership.rebalances_failed_per_s),
        java=(JavaMetric(group=_COORDINATOR, name="failed-rebalance-rate-per-hour", per_unit=_HOUR_S),),
    ),
    Metric(
        prometheus="kafka_consumer_rebalance_duration_seconds",
        opentelemetry="kafka.consumer.rebalance.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Time from the beginning of a rebalance until the member has its new assignment.",
        read=_one(lambda metrics: metrics.membership.rebalance),
        java=(
            *_latencies("rebalance-latency"),
            JavaMetric(group=_COORDINATOR, name="rebalance-latency-total", statistic=Statistic.SUM, per_unit=_MS),
            JavaMetric(group=_COORDINATOR, name="rebalance-total", statistic=Statistic.COUNT),
            JavaMetric(group=_COORDINATOR, name="rebalance-rate-per-hour", statistic=Statistic.PER_HOUR),
        ),
    ),
    Metric(
        prometheus="kafka_consumer_last_rebalance_age_seconds",
        opentelemetry="kafka.consumer.last_rebalance.age",
        kind=_GAUGE,
        unit="s",
        help="Time since the end of the last rebalance.",
        read=_one(lambda metrics: metrics.age_s(metrics.membership.rebalanced_at)),
        java=(JavaMetric(group=_COORDINATOR, name="last-rebalance-seconds-ago"),),
    ),
    Metric(
        prometheus="kafka_consumer_partition_standstill_seconds",
        opentelemetry="kafka.consumer.partition.standstill",
        kind=_HISTOGRAM,
        unit="s",
        labels=("side",),
        help="Time without records of one partition in this member for a rebalance: given up, taken, or kept.",
        read=_by(lambda metrics: metrics.membership.standstill),
    ),
    Metric(
        prometheus="kafka_consumer_callback_duration_seconds",
        opentelemetry="kafka.consumer.callback.duration",
        kind=_HISTOGRAM,
        unit="s",
        labels=("callback",),
        help="Duration of the application's rebalance callbacks.",
        read=_by(lambda metrics: metrics.application.callbacks),
        java=tuple(
            metric
            for kind in ("revoked", "assigned", "lost")
            for metric in _latencies(f"partition-{kind}-latency", (kind,))
        ),
    ),
    Metric(
        prometheus="kafka_consumer_takeovers_total",
        opentelemetry="kafka.consumer.takeovers",
        kind=_COUNTER,
        unit="{takeover}",
        help="The number of takeovers of group.instance.id from another member.",
        read=_one(lambda metrics: float(metrics.membership.takeovers)),
    ),
    Metric(
        prometheus="kafka_consumer_fences_total",
        opentelemetry="kafka.consumer.fences",
        kind=_COUNTER,
        unit="{fence}",
        help="The number of times the coordinator fenced the member.",
        read=_one(lambda metrics: float(metrics.membership.fences)),
    ),
    Metric(
        prometheus="kafka_consumer_poll_timeouts_total",
        opentelemetry="kafka.consumer.poll.timeouts",
        kind=_COUNTER,
        unit="{timeout}",
        help="The number of times the application did not poll within max.poll.interval.ms.",
        read=_one(lambda metrics: float(metrics.membership.poll_timeouts)),
    ),
    Metric(
        prometheus="kafka_consumer_throttles_total",
        opentelemetry="kafka.consumer.throttles",
        kind=_COUNTER,
        unit="{response}",
        help="The number of responses by which brokers throttled the membership's connections (client quotas).",
        read=_one(lambda metrics: float(metrics.throttles)),
    ),
    Metric(
        prometheus="kafka_consumer_throttle_seconds_total",
        opentelemetry="kafka.consumer.throttle.time",
        kind=_COUNTER,
        unit="s",
        help="The sum of the throttle times; during each, no request is sent on the throttled connection.",
        read=_one(lambda metrics: metrics.throttled_s),
    ),
    Metric(
        prometheus="kafka_consumer_heartbeat_duration_seconds",
        opentelemetry="kafka.consumer.heartbeat.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Time from sending a heartbeat to its response.",
        read=_one(lambda metrics: metrics.membership.heartbeat),
        java=(
            JavaMetric(group=_COORDINATOR, name="heartbeat-rate", statistic=Statistic.PER_SECOND),
            JavaMetric(group=_COORDINATOR, name="heartbeat-total", statistic=Statistic.COUNT),
            JavaMetric(
                group=_COORDINATOR,
                name="heartbeat-response-time-max",
                statistic=Statistic.GREATEST,
                per_unit=_MS,
            ),
        ),
    ),
    Metric(
        prometheus="kafka_consumer_heartbeat_failures_total",
        opentelemetry="kafka.consumer.heartbeat.failures",
        kind=_COUNTER,
        unit="{heartbeat}",
        labels=("error",),
        help="Failed heartbeats by Kafka's error; _NO_ANSWER: no response.",
        read=_by_name(lambda metrics: metrics.membership.heartbeat_failures),
    ),
    Metric(
        prometheus="kafka_consumer_last_heartbeat_age_seconds",
        opentelemetry="kafka.consumer.last_heartbeat.age",
        kind=_GAUGE,
        unit="s",
        help="Time since the last heartbeat was sent.",
        read=_one(lambda metrics: metrics.age_s(metrics.membership.heartbeat_sent_at)),
        java=(JavaMetric(group=_COORDINATOR, name="last-heartbeat-seconds-ago"),),
    ),
    Metric(
        prometheus="kafka_consumer_last_heartbeat_answer_age_seconds",
        opentelemetry="kafka.consumer.last_heartbeat_answer.age",
        kind=_GAUGE,
        unit="s",
        help="Time since the last response of the coordinator that confirmed the membership.",
        read=_one(lambda metrics: metrics.age_s(metrics.view.last_heartbeat_at)),
    ),
    Metric(
        prometheus="kafka_consumer_join_duration_seconds",
        opentelemetry="kafka.consumer.join.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Classic members: time from sending JoinGroup until the response with the new generation.",
        read=_of_classic(lambda metrics: metrics.membership.join),
        java=_exchanges("join"),
    ),
    Metric(
        prometheus="kafka_consumer_sync_duration_seconds",
        opentelemetry="kafka.consumer.sync.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Classic members: time from sending SyncGroup until the response with the leader's assignment.",
        read=_of_classic(lambda metrics: metrics.membership.sync),
        java=_exchanges("sync"),
    ),
    Metric(
        prometheus="kafka_consumer_commit_duration_seconds",
        opentelemetry="kafka.consumer.commit.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Time from sending a commit to the coordinator to its response.",
        read=_one(lambda metrics: metrics.membership.commit),
        java=(
            *_latencies("commit-latency"),
            JavaMetric(group=_COORDINATOR, name="commit-rate", statistic=Statistic.PER_SECOND),
            JavaMetric(group=_COORDINATOR, name="commit-total", statistic=Statistic.COUNT),
        ),
        convention=Convention("messaging.client.operation.duration", "", "commit"),
    ),
    Metric(
        prometheus="kafka_consumer_commit_failures_total",
        opentelemetry="kafka.consumer.commit.failures",
        kind=_COUNTER,
        unit="{commit}",
        labels=("error",),
        help="Commits that failed permanently, by error; a commit with several errors counts for each.",
        read=_by_name(lambda metrics: metrics.membership.commit_failures),
    ),
)

_APPLICATION = (
    Metric(
        prometheus="kafka_consumer_poll_interval_seconds",
        opentelemetry="kafka.consumer.poll.interval",
        kind=_HISTOGRAM,
        unit="s",
        help="Time between the beginnings of two successive polls.",
        read=_one(lambda metrics: metrics.application.poll_interval),
        java=(
            JavaMetric(group=_CONSUMER, name="time-between-poll-avg", statistic=Statistic.AVERAGE, per_unit=_MS),
            JavaMetric(group=_CONSUMER, name="time-between-poll-max", statistic=Statistic.GREATEST, per_unit=_MS),
        ),
    ),
    Metric(
        prometheus="kafka_consumer_last_poll_age_seconds",
        opentelemetry="kafka.consumer.last_poll.age",
        kind=_GAUGE,
        unit="s",
        help="Time since the application last polled; 0 during a poll.",
        read=_one(lambda metrics: metrics.age_s(metrics.application.polled_at)),
        java=(JavaMetric(group=_CONSUMER, name="last-poll-seconds-ago"),),
    ),
    Metric(
        prometheus="kafka_consumer_poll_duration_seconds",
        opentelemetry="kafka.consumer.poll.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Duration of polls whose record was not in the prefetch buffer.",
        read=_one(lambda metrics: metrics.application.poll),
        convention=Convention("messaging.client.operation.duration", "messaging.receive.duration", "poll"),
    ),
    Metric(
        prometheus="kafka_consumer_polling_seconds_total",
        opentelemetry="kafka.consumer.polling.time",
        kind=_COUNTER,
        unit="s",
        help="Total time of the application in polls; its rate is the part of the time that it is idle.",
        read=_one(lambda metrics: metrics.application.polling_s),
    ),
    Metric(
        prometheus="kafka_consumer_poll_idle_ratio",
        opentelemetry="kafka.consumer.poll.idle_ratio",
        kind=_GAUGE,
        unit="1",
        help="The part of the last 30 to 60 seconds that the application spent in polls.",
        read=_one(lambda metrics: metrics.application.idle_ratio),
        java=(JavaMetric(group=_CONSUMER, name="poll-idle-ratio-avg"),),
    ),
    Metric(
        prometheus="kafka_consumer_commit_sync_seconds_total",
        opentelemetry="kafka.consumer.commit_sync.time",
        kind=_COUNTER,
        unit="s",
        help="Total time of the application in synchronous commits.",
        read=_one(lambda metrics: metrics.application.commit_sync_s),
        java=(JavaMetric(group=_CONSUMER, name="commit-sync-time-ns-total", per_unit=_NS),),
    ),
    Metric(
        prometheus="kafka_consumer_committed_seconds_total",
        opentelemetry="kafka.consumer.committed.time",
        kind=_COUNTER,
        unit="s",
        help="Total time of the application in requests for committed offsets.",
        read=_one(lambda metrics: metrics.application.committed_s),
        java=(JavaMetric(group=_CONSUMER, name="committed-time-ns-total", per_unit=_NS),),
    ),
    Metric(
        prometheus="kafka_consumer_records_total",
        opentelemetry="kafka.consumer.records",
        kind=_COUNTER,
        unit="{record}",
        help="Records that the application received.",
        read=_one(lambda metrics: float(metrics.application.records)),
        java=(JavaMetric(group=_FETCH, name="records-consumed-total"),),
        convention=Convention("messaging.client.consumed.messages", "messaging.receive.messages", "poll"),
    ),
    Metric(
        prometheus="kafka_consumer_records_per_second",
        opentelemetry="kafka.consumer.records.rate",
        kind=_GAUGE,
        unit="{record}/s",
        help="Records per second, over the last 30 to 60 seconds.",
        read=_one(lambda metrics: metrics.application.records_per_s),
        java=(JavaMetric(group=_FETCH, name="records-consumed-rate"),),
    ),
)

_PARTITIONS = (
    Metric(
        prometheus="kafka_consumer_partition_position",
        opentelemetry="kafka.consumer.partition.position",
        kind=_GAUGE,
        unit="{record}",
        labels=_PARTITION,
        help="The next offset that the application receives.",
        read=_by_partition(lambda metrics: {p: one.position for p, one in metrics.health.partitions.items()}),
    ),
    Metric(
        prometheus="kafka_consumer_partition_end",
        opentelemetry="kafka.consumer.partition.end",
        kind=_GAUGE,
        unit="{record}",
        labels=_PARTITION,
        help="The end offset of the partition (its high watermark).",
        read=_by_partition(lambda metrics: {p: one.end for p, one in metrics.health.partitions.items()}),
    ),
    Metric(
        prometheus="kafka_consumer_partition_committed",
        opentelemetry="kafka.consumer.partition.committed",
        kind=_GAUGE,
        unit="{record}",
        labels=_PARTITION,
        help="The committed offset, as far as the member knows it.",
        read=_by_partition(lambda metrics: metrics.committed),
    ),
    Metric(
        prometheus="kafka_consumer_partition_lag",
        opentelemetry="kafka.consumer.partition.lag",
        kind=_GAUGE,
        unit="{record}",
        labels=_PARTITION,
        help="The offsets between the position and the end offset.",
        read=_by_partition(lambda metrics: {p: one.lag for p, one in metrics.health.partitions.items()}),
        java=(JavaMetric(group=_FETCH, name="records-lag"),),
    ),
    Metric(
        prometheus="kafka_consumer_lag_max",
        opentelemetry="kafka.consumer.lag.max",
        kind=_GAUGE,
        unit="{record}",
        help="The greatest lag of the consumer's partitions.",
        read=_one(_greatest_lag),
        java=(JavaMetric(group=_FETCH, name="records-lag-max"),),
    ),
    Metric(
        prometheus="kafka_consumer_partition_paused",
        opentelemetry="kafka.consumer.partition.paused",
        kind=_GAUGE,
        unit="1",
        labels=_PARTITION,
        help="1 while the application has paused the partition, else 0.",
        read=_by_partition(lambda metrics: {p: float(one.is_paused) for p, one in metrics.health.partitions.items()}),
    ),
    Metric(
        prometheus="kafka_consumer_partition_fetched_records_total",
        opentelemetry="kafka.consumer.partition.fetched_records",
        kind=_COUNTER,
        unit="{record}",
        labels=_PARTITION,
        help="Records that librdkafka has fetched; requires statistics.interval.ms.",
        read=_by_partition(lambda metrics: _fetched(metrics, lambda counts: float(counts.records))),
    ),
    Metric(
        prometheus="kafka_consumer_partition_fetched_bytes_total",
        opentelemetry="kafka.consumer.partition.fetched_bytes",
        kind=_COUNTER,
        unit="By",
        labels=_PARTITION,
        help="Bytes of the records that librdkafka has fetched; requires statistics.interval.ms.",
        read=_by_partition(lambda metrics: _fetched(metrics, lambda counts: float(counts.bytes))),
    ),
)

_HANDLERS = (
    Metric(
        prometheus="kafka_consumer_handler_duration_seconds",
        opentelemetry="kafka.consumer.handler.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Processors: duration of handler calls; each attempt and each batch counts once.",
        read=_of_handlers(lambda handlers: handlers.handler_time),
        convention=Convention("messaging.process.duration", "", "process"),
    ),
    Metric(
        prometheus="kafka_consumer_handler_queue_duration_seconds",
        opentelemetry="kafka.consumer.handler.queue.duration",
        kind=_HISTOGRAM,
        unit="s",
        help="Processors: time from the receipt of a record to the beginning of its first attempt.",
        read=_of_handlers(lambda handlers: handlers.queue_time),
    ),
    Metric(
        prometheus="kafka_consumer_handler_records_total",
        opentelemetry="kafka.consumer.handler.records",
        kind=_COUNTER,
        unit="{record}",
        help="Processors: records that are finished, processed or dead-lettered.",
        read=_of_handlers(lambda handlers: float(handlers.finished)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_failures_total",
        opentelemetry="kafka.consumer.handler.failures",
        kind=_COUNTER,
        unit="{attempt}",
        labels=("error",),
        help="Processors: failed attempts by the class of their error.",
        read=_by_name(lambda metrics: metrics.handlers.failures if metrics.handlers is not None else {}),
    ),
    Metric(
        prometheus="kafka_consumer_handler_retries_total",
        opentelemetry="kafka.consumer.handler.retries",
        kind=_COUNTER,
        unit="{attempt}",
        help="Processors: attempts after the first one.",
        read=_of_handlers(lambda handlers: float(handlers.retries)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_dead_letters_total",
        opentelemetry="kafka.consumer.handler.dead_letters",
        kind=_COUNTER,
        unit="{record}",
        help="Processors: records that were passed to the dead-letter target.",
        read=_of_handlers(lambda handlers: float(handlers.dead_letters)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_skipped_records_total",
        opentelemetry="kafka.consumer.handler.skipped_records",
        kind=_COUNTER,
        unit="{record}",
        help="Processors: records that a former owner of the partition had finished beyond its committed offset.",
        read=_of_handlers(lambda handlers: float(handlers.skipped)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_lanes",
        opentelemetry="kafka.consumer.handler.lanes",
        kind=_GAUGE,
        unit="{lane}",
        help="Processors: the current number of lanes, queues of records that run one after the other.",
        read=_of_handlers(lambda handlers: float(handlers.now.lanes)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_busy_lanes",
        opentelemetry="kafka.consumer.handler.busy_lanes",
        kind=_GAUGE,
        unit="{lane}",
        help="Processors: the current number of lanes with a running handler.",
        read=_of_handlers(lambda handlers: float(handlers.now.busy)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_queued_records",
        opentelemetry="kafka.consumer.handler.queued_records",
        kind=_GAUGE,
        unit="{record}",
        help="Processors: the current number of records that wait for their turn or for a retry.",
        read=_of_handlers(lambda handlers: float(handlers.now.queued)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_in_flight_records",
        opentelemetry="kafka.consumer.handler.in_flight_records",
        kind=_GAUGE,
        unit="{record}",
        help="Processors: the current number of records whose handlers run.",
        read=_of_handlers(lambda handlers: float(handlers.now.in_flight)),
    ),
    Metric(
        prometheus="kafka_consumer_handler_oldest_in_flight_age_seconds",
        opentelemetry="kafka.consumer.handler.oldest_in_flight.age",
        kind=_GAUGE,
        unit="s",
        help="Processors: time since the oldest running handler began; 0 if no handler runs.",
        read=_of_handlers(lambda handlers: handlers.now.oldest_in_flight_s or 0.0),
    ),
    Metric(
        prometheus="kafka_consumer_handlers_stuck",
        opentelemetry="kafka.consumer.handler.stuck",
        kind=_GAUGE,
        unit="{handler}",
        help="Processors: the current number of handlers that exceeded handler_timeout.",
        read=_one(_stuck_handlers),
    ),
    Metric(
        prometheus="kafka_consumer_partition_oldest_unfinished_age_seconds",
        opentelemetry="kafka.consumer.partition.oldest_unfinished.age",
        kind=_GAUGE,
        unit="s",
        labels=_PARTITION,
        help="Processors: time since the oldest unfinished record was received; 0 if all records are finished.",
        read=_by_partition(_unfinished_ages_s),
    ),
)

#: All metrics, in the order of the documentation.
CATALOG: tuple[Metric, ...] = (*_MEMBERSHIP, *_APPLICATION, *_PARTITIONS, *_HANDLERS)
#: The labels of every series, in addition to those of its row.
CONSUMER_LABELS = ("group", "client_id", "consumer")


def consumer_labels(metrics: Metrics) -> tuple[str, str, str]:
    """Return the values of `CONSUMER_LABELS` for one consumer."""
    return metrics.view.group_id, metrics.client_id, str(metrics.number)
