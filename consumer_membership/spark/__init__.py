"""Group members inside PySpark: long runs, bounded drains, and sinks that a replaced task cannot write to.

Nothing here imports pyspark before it is called; what travels to the tasks is configuration, never a client.
"""

from consumer_membership.errors import FencedError, SinkError
from consumer_membership.spark.context import BatchFormat, OffsetRange, Sink, SinkContext
from consumer_membership.spark.fence import Fence

__all__ = [
    "BatchFormat",
    "Fence",
    "FencedError",
    "OffsetRange",
    "Sink",
    "SinkContext",
    "SinkError",
]
