"""A partner's reports: one JSON object per line, each with its time and the name of its event.

| key or event | meaning |
|---|---|
| at | the time in milliseconds, by the machine's clock: comparable between the processes of one machine |
| event | one of the events below |
| leads | the partner is the group's leader, and computes the assignment of this `generation` |
| assigned | it owns these `partitions` from now on, in addition to others; `generation`, if the client reports it |
| revoked | it revokes these `partitions`; reported before the coordinator receives the revocation |
| lost | it has lost these `partitions`, and cannot commit their offsets |
| records | it received the offsets `first` to `last` of `partition`; reported before they can be committed |
| committed | the coordinator has acknowledged these `offsets`, by partition |
| view | only with this package, after each change: `protocol`, type of the `group`, `generation`, reason in `text` |
| withholds | it received the order to stop committing, and has stopped |
| refused | the coordinator rejected a commit; the reason is in `text` |
| error | any other problem, in `text` |
| closed | it has left its group; this is the last event |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping


def now_ms() -> int:
    """Return the time of an event, truncated as in Java, so that the order of two clients' events is correct."""
    return time.time_ns() // 1_000_000


def report(event: str, *, at: int | None = None, **values: object) -> None:
    """Report an event as a complete line, from any thread. `at` is the time of the event; default: the current time."""
    line = {"at": now_ms() if at is None else at, "event": event} | values
    os.write(1, (json.dumps(line) + "\n").encode())


def report_partitions(event: str, partitions: Iterable[int], generation: int | None, *, at: int | None = None) -> None:
    """Report assigned, revoked or lost partitions."""
    report(event, at=at, partitions=sorted(partitions), generation=generation)


def report_committed(offsets: Mapping[int, int], *, at: int | None = None) -> None:
    """Report committed offsets, by partition."""
    report("committed", at=at, offsets=sorted(offsets.items()))


def report_records(partition: int, first: int, last: int, *, at: int | None = None) -> None:
    """Report the first and the last offset of received records."""
    report("records", at=at, partition=partition, first=first, last=last)
