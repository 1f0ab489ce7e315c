"""Consumer group members in PySpark: long runs, bounded drains, fenced sinks, and streaming queries.

This package does not import pyspark before one of its functions is called. Tasks receive configuration, never a client.

A name is imported when it is first used (PEP 562): each Python process of a query imports this package before its first
record, and a streaming query starts five to six processes.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consumer_membership.errors import DataLossError, DrainError, FencedError, SinkError
    from consumer_membership.spark.checkpoint import Checkpoint, SourceOffsets
    from consumer_membership.spark.checkpoint_folder import CheckpointFolder, GroupMove
    from consumer_membership.spark.context import BatchFormat, Fence, OffsetRange, Sink, SinkContext, SinkUse
    from consumer_membership.spark.control import MemberProgress
    from consumer_membership.spark.diagnosis.findings import Diagnosis
    from consumer_membership.spark.doctor import check
    from consumer_membership.spark.group_read import GroupRead, read_group
    from consumer_membership.spark.mirror import MirrorState, OffsetMirror
    from consumer_membership.spark.plan import Options
    from consumer_membership.spark.runs import DrainResult, PartitionDrained, RunHandle, RunResult, drain, run
    from consumer_membership.spark.sinks import (
        HandlerSink,
        KafkaSink,
        OutRecord,
        ParquetSink,
        PostgresSink,
        SinkHandlerContext,
    )
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
    "HandlerSink",
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
    "SinkHandlerContext",
    "SinkUse",
    "SourceOffsets",
    "check",
    "drain",
    "foreach_partition",
    "member_task",
    "read_group",
    "register",
    "run",
]

#: The names that each module defines.
_MODULES = {
    "consumer_membership.errors": ("DataLossError", "DrainError", "FencedError", "SinkError"),
    "consumer_membership.spark.checkpoint": ("Checkpoint", "SourceOffsets"),
    "consumer_membership.spark.checkpoint_folder": ("CheckpointFolder", "GroupMove"),
    "consumer_membership.spark.context": ("BatchFormat", "Fence", "OffsetRange", "Sink", "SinkContext", "SinkUse"),
    "consumer_membership.spark.control": ("MemberProgress",),
    "consumer_membership.spark.diagnosis.findings": ("Diagnosis",),
    "consumer_membership.spark.doctor": ("check",),
    "consumer_membership.spark.group_read": ("GroupRead", "read_group"),
    "consumer_membership.spark.mirror": ("MirrorState", "OffsetMirror"),
    "consumer_membership.spark.plan": ("Options",),
    "consumer_membership.spark.runs": ("DrainResult", "PartitionDrained", "RunHandle", "RunResult", "drain", "run"),
    "consumer_membership.spark.sinks": (
        "HandlerSink",
        "KafkaSink",
        "OutRecord",
        "ParquetSink",
        "PostgresSink",
        "SinkHandlerContext",
    ),
    "consumer_membership.spark.source": ("register",),
    "consumer_membership.spark.task": ("foreach_partition", "member_task"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name of `__all__` when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List all public names, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
