"""Handlers for records: in parallel and in order, with retries, dead letters, and commits of finished records only.

`Processor` and `AsyncProcessor` are built on the public consumer, which does not import this package.
"""

from consumer_membership.processing.asynchronous import AsyncProcessor
from consumer_membership.processing.context import HandlerContext
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.processor import Processor
from consumer_membership.processing.progress import HandlingProgress, ProcessorProgress
from consumer_membership.processing.scheduler import ProcessingOrder

__all__ = [
    "AsyncProcessor",
    "HandlerContext",
    "HandlingProgress",
    "OutputRecord",
    "ProcessingOrder",
    "Processor",
    "ProcessorProgress",
]
