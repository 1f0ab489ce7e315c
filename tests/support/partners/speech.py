"""What a partner tells: one JSON object a line, each with its time and the name of what happened.

| key, event | |
|---|---|
| at | milliseconds, by the machine's clock: comparable between the processes of one machine |
| event | one of those below |
| leads | it was made the group's leader and computes the assignment of this `generation` |
| assigned | `partitions` that it has from now on, beside those that it has; `generation`, where the client tells it |
| revoked | `partitions` that it gives up, told before the coordinator hears of it |
| lost | likewise, but the coordinator took them from it: nothing of them can be committed |
| records | it was given the offsets `first` to `last` of `partition`, told before they can be committed |
| committed | `offsets` by partition, acknowledged by the coordinator |
| view | ours only: `protocol`, the type of the `group`, `generation`, the reason in `text`, when one has changed |
| withholds | it was told to commit nothing any more, and does not |
| refused | a commit that the coordinator did not take, and why: `text` |
| error | anything else: `text` |
| closed | it has left its group; nothing follows |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping


def now_ms() -> int:
    """The time of an event. Cut off as Java cuts it off, so that an order in time is never told the other way round."""
    return time.time_ns() // 1_000_000


def say(event: str, *, at: int | None = None, **what: object) -> None:
    """Tell an event; a whole line, from any thread. `at`: when it happened, unless just now."""
    line = {"at": now_ms() if at is None else at, "event": event} | what
    os.write(1, (json.dumps(line) + "\n").encode())


def say_partitions(event: str, partitions: Iterable[int], generation: int | None, *, at: int | None = None) -> None:
    """Tell that partitions were assigned, revoked or lost."""
    say(event, at=at, partitions=sorted(partitions), generation=generation)


def say_committed(offsets: Mapping[int, int], *, at: int | None = None) -> None:
    """Tell what was committed, by partition."""
    say("committed", at=at, offsets=sorted(offsets.items()))


def say_records(partition: int, first: int, last: int, *, at: int | None = None) -> None:
    """Tell which records were given to it."""
    say("records", at=at, partition=partition, first=first, last=last)
