"""`timeline`: watches a group and writes who owned what when, as one page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from consumer_membership.cli.groups import DONE, REFUSED, Asking, answered
from consumer_membership.errors import MembershipError
from consumer_membership.observe.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOptions:
    """Which group, for how long, how often, and which file to write."""

    asking: Asking
    output: Path
    seconds: float = 600.0
    interval_s: float = 1.0


def draw_timeline(
    options: TimelineOptions,
    out: TextIO,
    err: TextIO,
    wait: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Write the page; the exit code. Ctrl-C writes what was seen until then."""
    pause = threading.Event().wait if wait is None else wait

    def ask() -> tuple[Iterable[str], int]:
        asking, timeline, looks = options.asking, Timeline(options.asking.group, options.seconds), 0
        admin, deadline = asking.admin(), clock() + options.seconds
        try:
            while True:
                begun = clock()
                try:
                    timeline.add(admin.survey(asking.group, in_depth=False))
                    looks += 1
                except MembershipError as error:
                    if not looks:
                        raise
                    # A cluster that is away for a while is what one wants to see.
                    err.write(f"consumer-membership timeline: {error}\n")
                if clock() + options.interval_s > deadline:
                    break
                pause(max(0.0, begun + options.interval_s - clock()))
        except KeyboardInterrupt:
            err.write("consumer-membership timeline: ended early\n")
        if not looks:
            return [], REFUSED
        try:
            options.output.write_text(timeline.page(), encoding="utf-8")
        except OSError as error:
            err.write(f"consumer-membership timeline: {options.output}: {error.strerror}\n")
            return [], REFUSED
        return [f"{options.output}: {looks} looks, {len(timeline.events)} changes"], DONE

    return answered("timeline", ask, out, err)
