"""Sinks that write data and fence together: PostgreSQL, Parquet files, Kafka.

A task that was replaced and does not know it cannot write through them, and each record is there exactly once.
"""

from consumer_membership.spark.sinks.kafka import KafkaSink, OutRecord
from consumer_membership.spark.sinks.parquet import ParquetSink
from consumer_membership.spark.sinks.postgres import PostgresSink

__all__ = ["KafkaSink", "OutRecord", "ParquetSink", "PostgresSink"]
