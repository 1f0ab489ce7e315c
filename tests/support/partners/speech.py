"""A partner's report: one JSON object per line, each with its time and the name of its event.

| key, event | |
|---|---|
| at | milliseconds, by the machine's clock: comparable between the processes of one machine |
| event | one of the events below |
| leads | it became the group's leader and computes the assignment of this `generation` |
| assigned | `partitions` that it owns from now on, in addition to others; `generation`, if the client reports it |
|
| revoked | `partitions` that it revokes, reported before the coordinator knows |
| lost | `partitions` that the coordinator took away: their offsets cannot be committed |
| records | the delivered offsets `first` to `last` of `partition`, reported before they can be committed |
| committed | `offsets` by partition, acknowledged by the coordinator |
| view | this package only: `protocol`, the type of the `group`, `generation`, the reason in `text`, on a change |
| withholds | it was ordered to stop committing, and has stopped |
| refused | a commit that the coordinator rejected, with the reason in `text` |
| error | any other problem: `text` |
| closed | it has left its group; this is the last event |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping


def now_ms() -> int:
    """The time of an event. It is truncated as in Java, so that the order of two events is never reversed."""
    return time.time_ns() // 1_000_000


def say(event: str, *, at: int | None = None, **what: object) -> None:
    """Report an event as a whole line, from any thread. `at`: when it happened, unless just now."""
    line = {"at": now_ms() if at is None else at, "event": event} | what
    os.write(1, (json.dumps(line) + "\n").encode())


def say_partitions(event: str, partitions: Iterable[int], generation: int | None, *, at: int | None = None) -> None:
    """Report assigned, revoked or lost partitions."""
    say(event, at=at, partitions=sorted(partitions), generation=generation)


def say_committed(offsets: Mapping[int, int], *, at: int | None = None) -> None:
    """Report the committed offsets by partition."""
    say("committed", at=at, offsets=sorted(offsets.items()))


def say_records(partition: int, first: int, last: int, *, at: int | None = None) -> None:
    """Report the offsets of the delivered records."""
    say("records", at=at, partition=partition, first=first, last=last)
