"""`spark.read.format("kafka-group")`: a bounded read of the topics, which joins no group and commits nothing."""

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
    """Return the ranges of each task.

    Raises:
        ConfigurationError: an option does not fit the existing partitions.
        DataLossError: the first offsets no longer exist, and `failOnDataLoss` is not false.
        TransportError: no broker responded.
    """
    with Consumer({**quiet(options.config), **options.config, "group.id": options.group or "-"}) as consumer:
        logs = Logs(options, consumer)
        partitions = logs.partitions(logs.topics())
        committed = _committed(consumer, partitions) if options.starting is Edge.GROUP else {}
        first = logs.at("starting", options.starting, partitions, committed)
        last = logs.at("ending", options.ending, partitions, committed)
        lows = logs.firsts(partitions)
    ranges = []
    for partition in partitions:
        topic, number = partition
        begin, end = first[partition], last[partition]
        if begin > end:
            remedy = f"{topic}[{number}] would begin at offset {begin} and end at {end}; set an end after the beginning"
            raise ConfigurationError("endingOffsets", end, remedy)
        if begin < lows[partition]:
            lost = f"{topic}[{number}]: offsets {begin} to before {min(end, lows[partition])} no longer exist"
            if options.fail_on_data_loss:
                raise DataLossError(f"{lost}; set failOnDataLoss=false to read the records that exist")
            begin = min(end, lows[partition])
        ranges.append(ReadRange(topic=topic, partition=number, first=begin, end=end))
    return tasks_of(ranges, options.min_partitions, options.max_records)


def _committed(consumer: Consumer, partitions: Collection[Partition]) -> OffsetsByPartition:
    try:
        found = consumer.committed([TopicPartition(*partition) for partition in partitions], _TIMEOUT_S)
    except KafkaException as failed:
        raise TransportError(f"committed offsets could not be read: {failed.args[0].str()}") from failed
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
