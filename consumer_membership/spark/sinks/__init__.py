"""Sinks that write data and fencing tokens together, to PostgreSQL, Parquet files and Kafka.

A replaced task cannot write through them, so each record is in the output exactly once.
"""

from consumer_membership.spark.sinks.kafka import KafkaSink, OutRecord
from consumer_membership.spark.sinks.parquet import ParquetSink
from consumer_membership.spark.sinks.postgres import PostgresSink

__all__ = ["KafkaSink", "OutRecord", "ParquetSink", "PostgresSink"]
