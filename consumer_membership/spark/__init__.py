"""Group members inside PySpark: long runs, bounded drains, sinks that a replaced task cannot write to, and streams.

Nothing here imports pyspark before it is called; what travels to the tasks is configuration, never a client.
"""

from consumer_membership.errors import DataLossError, DrainError, FencedError, SinkError
from consumer_membership.spark.checkpoint import Checkpoint, SourceOffsets
from consumer_membership.spark.checkpoint_folder import CheckpointFolder, GroupMove
from consumer_membership.spark.context import BatchFormat, Fence, OffsetRange, Sink, SinkContext
from consumer_membership.spark.control import MemberProgress
from consumer_membership.spark.diagnosis.findings import Diagnosis
from consumer_membership.spark.doctor import check
from consumer_membership.spark.group_read import GroupRead, read_group
from consumer_membership.spark.mirror import MirrorState, OffsetMirror
from consumer_membership.spark.plan import Options
from consumer_membership.spark.runs import DrainResult, PartitionDrained, RunHandle, RunResult, drain, run
from consumer_membership.spark.sinks import KafkaSink, OutRecord, ParquetSink, PostgresSink
from consumer_membership.spark.source import register
from consumer_membership.spark.task import foreach_partition, member_task

__all__ = [
    "BatchFormat",
    "Checkpoint",
    "CheckpointFolder",
    "DataLossError",
    "Diagnosis",
    "DrainError",
    "DrainResult",
    "Fence",
    "FencedError",
    "GroupMove",
    "GroupRead",
    "KafkaSink",
    "MemberProgress",
    "MirrorState",
    "OffsetMirror",
    "OffsetRange",
    "Options",
    "OutRecord",
    "ParquetSink",
    "PartitionDrained",
    "PostgresSink",
    "RunHandle",
    "RunResult",
    "Sink",
    "SinkContext",
    "SinkError",
    "SourceOffsets",
    "check",
    "drain",
    "foreach_partition",
    "member_task",
    "read_group",
    "register",
    "run",
]
