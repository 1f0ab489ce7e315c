"""The command `timeline`: write a page with partition owners over time, from the past and from new samples."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from consumer_membership.admin import GroupAdmin, ReadingProgress
from consumer_membership.cli.groups import DONE, REFUSED, GroupQuery, run_query
from consumer_membership.errors import ConfigurationError, MembershipError
from consumer_membership.observe.history import surveys_of
from consumer_membership.observe.recorded import RecordedMember, recorded_member
from consumer_membership.observe.timeline import LAG_COLUMNS, Timeline
from consumer_membership.recorder.recording import UNFIT, damage_of
from consumer_membership.recorder.values import RecordingError
from consumer_membership.text import counted, printable

#: The interval of progress messages while the past is read.
REPORT_INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOptions:
    """The group, the output file, the sampling time and interval, and the sources of the past.

    `last_s`: seconds of the past to read from `__consumer_offsets`. `recordings`: files of members of this package.
    """

    query: GroupQuery
    output: Path
    seconds: float = 600.0
    interval_s: float = 1.0
    last_s: float = 0.0
    recordings: tuple[Path, ...] = ()


def draw_timeline(
    options: TimelineOptions,
    out: TextIO,
    err: TextIO,
    wait: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Write the page, also after Ctrl-C, and return the exit code: 1 if the group was never seen."""
    pause = threading.Event().wait if wait is None else wait

    def report(message: str) -> None:
        err.write(f"consumer-membership timeline: {printable(message)}\n")

    def draw() -> tuple[Iterable[str], int]:
        _check_output(options.output)
        recorded = [recorded_of(path, options.query.group) for path in options.recordings]
        admin = options.query.admin()
        timeline = _past(options, admin, report, clock)
        for member in recorded:
            timeline.add_recording(member)
        samples = _sample(timeline, admin, options, report, pause, clock)
        if not samples:
            return [], REFUSED
        try:
            options.output.write_text(timeline.page(), encoding="utf-8")
        except OSError as error:
            report(f"{options.output}: {error.strerror}")
            return [], REFUSED
        code = DONE if timeline.has_seen_group else REFUSED
        summary = f"{counted(samples, 'sample')}, {counted(len(timeline.events), 'change')}"
        return [f"wrote {options.output}: {summary}"], code

    return run_query("timeline", draw, out, err)


def _sample(
    timeline: Timeline,
    admin: GroupAdmin,
    options: TimelineOptions,
    report: Callable[[str], None],
    pause: Callable[[float], object],
    clock: Callable[[], float],
) -> int:
    """Take at least one sample, until the time is over or Ctrl-C; return the number of successful samples.

    Raises:
        MembershipError: The first sample failed.
    """
    samples, reported, deadline = 0, 0, clock() + options.seconds
    try:
        while True:
            begun = clock()
            try:
                timeline.add(admin.survey(options.query.group, in_depth=False))
                samples += 1
                # Report notes immediately, so that you do not wait ten minutes for a misspelled group id.
                for note in timeline.notes[reported:]:
                    report(note)
                reported = len(timeline.notes)
            except MembershipError as error:
                if not samples:
                    raise
                # The page shows a temporary outage of the cluster.
                report(str(error))
            if clock() + options.interval_s > deadline:
                break
            pause(max(0.0, begun + options.interval_s - clock()))
    except KeyboardInterrupt:
        report("stopped early by Ctrl-C")
    return samples


def _past(
    options: TimelineOptions, admin: GroupAdmin, report: Callable[[str], None], clock: Callable[[], float]
) -> Timeline:
    """Return a timeline with the past, as far as this client may read it."""
    group, shown_s = options.query.group, options.seconds + options.last_s
    if options.last_s <= 0:
        return Timeline(group, shown_s)
    since = time.time() - options.last_s
    timeline = Timeline(group, shown_s, began=since)
    # The page shows one value per column.
    grain_s = options.last_s / LAG_COLUMNS
    history = admin.history(group, since, grain_s=grain_s, on_progress=ReadingReporter(report, clock))
    timeline.notes += history.notes
    for survey in surveys_of(history, grain_s):
        timeline.add(survey, is_exact=True)
    return timeline


class ReadingReporter:
    """Reports the progress of reading the past if it takes longer than `REPORT_INTERVAL_S`."""

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._reported_at = clock()

    def __call__(self, progress: ReadingProgress) -> None:
        """Report the progress if the last report is old enough."""
        if self._clock() - self._reported_at >= REPORT_INTERVAL_S:
            self._reported_at = self._clock()
            self._report(
                f"reading __consumer_offsets[{progress.partition}]: {progress.done:,} of at most {progress.most:,} "
                "offsets; Ctrl-C stops without a page"
            )


def _check_output(path: Path) -> None:
    """Raise an error if the page cannot be written, before the sampling starts."""
    folder = path.parent
    if path.is_dir():
        code = errno.EISDIR
    elif not folder.is_dir():
        code = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(path if path.exists() else folder, os.W_OK):
        code = errno.EACCES
    else:
        return
    raise ConfigurationError("--output", str(path), f"the file cannot be written ({os.strerror(code)})")


def recorded_of(path: Path, group: str) -> RecordedMember:
    """Return the content of this recording; raise ConfigurationError if it cannot be drawn, or is of another group."""
    try:
        member = recorded_member(path)
    except OSError as error:
        raise ConfigurationError("--recording", str(path), error.strerror or str(error)) from error
    except RecordingError as error:
        raise ConfigurationError("--recording", str(path), str(error)) from error
    except UNFIT as error:
        raise ConfigurationError("--recording", str(path), damage_of(error)) from error
    if member.group_id != group:
        raise ConfigurationError("--recording", str(path), f"the recording is of a member of group {member.group_id!r}")
    return member
