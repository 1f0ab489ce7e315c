"""`spark.read.format("kafka-group")`: a bounded read of the topics, by nobody's group; what is committed stays."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException, TopicPartition

from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import ConfigurationError, DataLossError, TransportError
from consumer_membership.spark.brokers import quiet
from consumer_membership.spark.context import Partition
from consumer_membership.spark.range_reader import ReadRange
from consumer_membership.spark.source.logs import Logs
from consumer_membership.spark.source.offsets import OffsetsByPartition
from consumer_membership.spark.source.options import Edge, SourceOptions
from consumer_membership.spark.source.ranges import TaskRanges, tasks_of

_TIMEOUT_S = 30.0


def batch_tasks(options: SourceOptions) -> list[TaskRanges]:
    """What each task reads.

    Raises:
        ConfigurationError: an option that does not fit to the partitions that there are.
        DataLossError: it was to begin at offsets that are gone, and `failOnDataLoss` is not false.
        TransportError: no broker says.
    """
    with Consumer({**quiet(options.config), **options.config, "group.id": options.group or "-"}) as asking:
        logs = Logs(options, asking)
        partitions = logs.partitions(logs.topics())
        committed = _committed(asking, partitions) if options.starting is Edge.GROUP else {}
        first = logs.at("starting", options.starting, partitions, committed)
        last = logs.at("ending", options.ending, partitions, committed)
        lows = logs.firsts(partitions)
    ranges = []
    for place in partitions:
        topic, number = place
        begin, end = first[place], last[place]
        if begin > end:
            words = f"{topic}[{number}] would begin at offset {begin} and end at {end}"
            raise ConfigurationError("endingOffsets", end, f"{words}; let it end where it begins, or later")
        if begin < lows[place]:
            lost = f"{topic}[{number}]: offsets {begin} to before {min(end, lows[place])} are gone"
            if options.fail_on_data_loss:
                raise DataLossError(f"{lost}; give failOnDataLoss=false to read what is there")
            begin = min(end, lows[place])
        ranges.append(ReadRange(topic=topic, partition=number, first=begin, end=end))
    return tasks_of(ranges, options.min_partitions, options.max_records)


def _committed(consumer: Consumer, partitions: Collection[Partition]) -> OffsetsByPartition:
    try:
        found = consumer.committed([TopicPartition(*place) for place in partitions], _TIMEOUT_S)
    except KafkaException as failed:
        raise TransportError(f"committed offsets cannot be had: {failed.args[0].str()}") from failed
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
