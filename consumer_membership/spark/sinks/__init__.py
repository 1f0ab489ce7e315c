"""Sinks that write data and fencing tokens together, to PostgreSQL, Parquet files and Kafka, and `HandlerSink`.

A replaced task cannot write through the first three, so each record is in the output exactly once. `HandlerSink` calls
a handler for each record, which has to store a fencing token itself.
"""

from consumer_membership.spark.sinks.handler import HandlerSink, SinkHandlerContext
from consumer_membership.spark.sinks.kafka import KafkaSink, OutRecord
from consumer_membership.spark.sinks.parquet import ParquetSink
from consumer_membership.spark.sinks.postgres import PostgresSink

__all__ = ["HandlerSink", "KafkaSink", "OutRecord", "ParquetSink", "PostgresSink", "SinkHandlerContext"]
