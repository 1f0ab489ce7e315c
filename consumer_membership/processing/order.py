"""Which records run one after the other."""

from __future__ import annotations

from enum import Enum


class ProcessingOrder(Enum):
    """Which records of a partition run one after the other.

    Attributes:
        KEY: Those with the same key; records without a key form one sequence for each partition.
        PARTITION: All records.
        NONE: No records: all may run at the same time.
    """

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"
