"""`timeline`: who owned what when, as one page: of what was, by the coordinator's records, and of what is seen now."""

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
from consumer_membership.cli.groups import DONE, REFUSED, Asking, answered
from consumer_membership.errors import ConfigurationError, MembershipError
from consumer_membership.observe.history import surveys_of
from consumer_membership.observe.recorded import MemberAccount, account_of
from consumer_membership.observe.timeline import LAG_COLUMNS, Timeline
from consumer_membership.recorder.recording import UNFIT, damage_of
from consumer_membership.recorder.values import RecordingError
from consumer_membership.text import printable

#: How long the past is read without a word, and between two.
REPORT_INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOptions:
    """Which group, for how long from now on, how often, and which file to write.

    `last_s`: how much of the past is read of `__consumer_offsets`. `recordings`: files of members of ours.
    """

    asking: Asking
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
    """Write the page; the exit code, 1 if the group was not seen at all. Ctrl-C writes what was seen until then."""
    pause = threading.Event().wait if wait is None else wait

    def report(message: str) -> None:
        err.write(f"consumer-membership timeline: {printable(message)}\n")

    def ask() -> tuple[Iterable[str], int]:
        _check_output(options.output)
        accounts = [_account(path, options.asking.group) for path in options.recordings]
        admin = options.asking.admin()
        timeline = _begun(options, admin, report, clock)
        for account in accounts:
            timeline.add_account(account)
        looks = _watched(timeline, admin, options, report, pause, clock)
        if not looks:
            return [], REFUSED
        try:
            options.output.write_text(timeline.page(), encoding="utf-8")
        except OSError as error:
            report(f"{options.output}: {error.strerror}")
            return [], REFUSED
        code = DONE if timeline.has_seen_group else REFUSED
        return [f"{options.output}: {looks} looks, {len(timeline.events)} changes"], code

    return answered("timeline", ask, out, err)


def _watched(
    timeline: Timeline,
    admin: GroupAdmin,
    options: TimelineOptions,
    report: Callable[[str], None],
    pause: Callable[[float], object],
    clock: Callable[[], float],
) -> int:
    """Look once at least, and until the time is over or Ctrl-C comes; how many looks were answered.

    Raises:
        MembershipError: the first look was not.
    """
    looks, reported, deadline = 0, 0, clock() + options.seconds
    try:
        while True:
            begun = clock()
            try:
                timeline.add(admin.survey(options.asking.group, in_depth=False))
                looks += 1
                # At once: a name that is wrong is nothing to wait ten minutes for.
                for note in timeline.notes[reported:]:
                    report(note)
                reported = len(timeline.notes)
            except MembershipError as error:
                if not looks:
                    raise
                # A cluster that is away for a while is what one wants to see.
                report(str(error))
            if clock() + options.interval_s > deadline:
                break
            pause(max(0.0, begun + options.interval_s - clock()))
    except KeyboardInterrupt:
        report("ended early")
    return looks


def _begun(
    options: TimelineOptions, admin: GroupAdmin, report: Callable[[str], None], clock: Callable[[], float]
) -> Timeline:
    """A timeline that has what was, as far as it may be read."""
    group, shown_s = options.asking.group, options.seconds + options.last_s
    if options.last_s <= 0:
        return Timeline(group, shown_s)
    since = time.time() - options.last_s
    timeline = Timeline(group, shown_s, began=since)
    # No more than a column of the page shows.
    grain_s = options.last_s / LAG_COLUMNS
    history = admin.history(group, since, grain_s=grain_s, on_progress=ReadingReporter(report, clock))
    timeline.notes += history.notes
    for survey in surveys_of(history, grain_s):
        timeline.add(survey, is_exact=True)
    return timeline


class ReadingReporter:
    """Tells how far the reading of the past is, where it takes longer than one would wait without a word."""

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._reported_at = clock()

    def __call__(self, progress: ReadingProgress) -> None:
        """A part more was read."""
        if self._clock() - self._reported_at >= REPORT_INTERVAL_S:
            self._reported_at = self._clock()
            self._report(
                f"reading __consumer_offsets[{progress.partition}]: {progress.done:,} of {progress.most:,} offsets, at "
                "most; Ctrl-C ends it without a page"
            )


def _check_output(path: Path) -> None:
    """Refuse a page that could not be written before anybody has watched for ten minutes."""
    folder = path.parent
    if path.is_dir():
        code = errno.EISDIR
    elif not folder.is_dir():
        code = errno.ENOTDIR if folder.exists() else errno.ENOENT
    elif not os.access(path if path.exists() else folder, os.W_OK):
        code = errno.EACCES
    else:
        return
    raise ConfigurationError("--output", str(path), f"it cannot be written ({os.strerror(code)})")


def _account(path: Path, group: str) -> MemberAccount:
    try:
        account = account_of(path)
    except OSError as error:
        raise ConfigurationError("--recording", str(path), error.strerror or str(error)) from error
    except RecordingError as error:
        raise ConfigurationError("--recording", str(path), str(error)) from error
    except UNFIT as error:
        raise ConfigurationError("--recording", str(path), damage_of(error)) from error
    if account.group_id != group:
        raise ConfigurationError("--recording", str(path), f"it is of a member of group {account.group_id!r}")
    return account
