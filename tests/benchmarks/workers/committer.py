"""One process of a static member that writes each batch to a ledger while it handles it, and then commits it.

Entries of the ledger have reached the kernel and survive a `kill -9` of this process. They are the records that the
member handled; its replacement may repeat a batch without an entry of its commit.
"""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

from tests.benchmarks.workers.instance import Job, StaticMember
from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.wiring import END, job_of, next_order, report

if TYPE_CHECKING:
    from confluent_kafka import Message

ENTRY = struct.Struct(">cIQQd")
"""The kind, the partition, the offset, the record's number, and CLOCK_MONOTONIC."""

HANDLED, COMMITTED = b"h", b"c"
"""The kinds of entries; all records before a COMMITTED entry are committed."""

_POLL_S = 0.1
_PARTS = 5
_PART_S = 0.002
"""The number of parts of a batch, and the duration of each part, so that kills occur within a batch."""


def main() -> None:
    """Consume until the order to end."""
    running = time.monotonic()
    job = job_of(Job)
    member = StaticMember(job)
    report("running", at=running)
    ledger = os.open(job.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while next_order() != END:
        try:
            _one_batch(member, ledger, job.batch)
        except member.failure as error:
            member.failed(error.args[0])
    member.leave()


def _one_batch(member: StaticMember, ledger: int, size: int) -> None:
    batch = [message for message in member.consumer.consume(size, _POLL_S) if member.is_record(message)]
    if not batch:
        return
    size_of_part = -(-len(batch) // _PARTS)
    for begin in range(0, len(batch), size_of_part):
        _handle(batch[begin : begin + size_of_part], ledger)
    member.consumer.commit(asynchronous=False)
    os.write(ledger, ENTRY.pack(COMMITTED, 0, 0, 0, time.monotonic()))


def _handle(messages: list[Message], ledger: int) -> None:
    now = time.monotonic()
    entries = [
        ENTRY.pack(HANDLED, one.partition(), one.offset(), NUMBER_AND_TIME.unpack_from(one.value())[0], now)
        for one in messages
    ]
    os.write(ledger, b"".join(entries))
    time.sleep(_PART_S)


if __name__ == "__main__":
    main()
