"""One life of a static member that writes down each batch as it handles it, and then commits it.

What is written to the ledger has reached the kernel and outlives a `kill -9` of this process: the ledger is what the
member did, and a batch without the mark of its commit is what its replacement may do again.
"""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

from tests.benchmarks.workers.instance import Job, Lifetime
from tests.benchmarks.workers.member import NUMBER_AND_TIME
from tests.benchmarks.workers.wiring import END, job_of, next_order, say

if TYPE_CHECKING:
    from confluent_kafka import Message

ENTRY = struct.Struct(">cIQQd")
"""A kind, the partition, the offset, the record's number, and CLOCK_MONOTONIC."""

HANDLED, COMMITTED = b"h", b"c"
"""The kinds of entries; all that was handled before a COMMITTED is committed."""

_POLL_S = 0.1
_PARTS = 5
_PART_S = 0.002
"""A batch is handled in so many parts, each of which takes so long: a kill shall meet batches that are half done."""


def main() -> None:
    """Live."""
    running = time.monotonic()
    job = job_of(Job)
    life = Lifetime(job)
    say("running", at=running)
    ledger = os.open(job.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while next_order() != END:
        try:
            _one_batch(life, ledger, job.batch)
        except life.failure as error:
            life.failed(error.args[0])
    life.leave()


def _one_batch(life: Lifetime, ledger: int, size: int) -> None:
    batch = [message for message in life.consumer.consume(size, _POLL_S) if life.is_record(message)]
    if not batch:
        return
    size_of_part = -(-len(batch) // _PARTS)
    for begin in range(0, len(batch), size_of_part):
        _handle(batch[begin : begin + size_of_part], ledger)
    life.consumer.commit(asynchronous=False)
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
