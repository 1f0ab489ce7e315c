"""Group members inside PySpark: long runs, bounded drains, and sinks that a replaced task cannot write to.

Nothing here imports pyspark before it is called; what travels to the tasks is configuration, never a client.
"""

from consumer_membership.errors import DrainError, FencedError, SinkError
from consumer_membership.spark.context import BatchFormat, OffsetRange, Sink, SinkContext
from consumer_membership.spark.fence import Fence
from consumer_membership.spark.link import MemberProgress
from consumer_membership.spark.plan import Wishes
from consumer_membership.spark.runs import DrainResult, PartitionDrained, RunHandle, RunResult, drain, run
from consumer_membership.spark.task import foreach_partition, member_task

__all__ = [
    "BatchFormat",
    "DrainError",
    "DrainResult",
    "Fence",
    "FencedError",
    "MemberProgress",
    "OffsetRange",
    "PartitionDrained",
    "RunHandle",
    "RunResult",
    "Sink",
    "SinkContext",
    "SinkError",
    "Wishes",
    "drain",
    "foreach_partition",
    "member_task",
    "run",
]
