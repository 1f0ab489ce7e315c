"""The command `replay`: replay a member's recording, compare the effects with the recorded ones, print the result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from heapq import merge
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from consumer_membership.cli.groups import DONE, REFUSED, run_query
from consumer_membership.cli.narration import missing_of, named
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.view import MembershipView
from consumer_membership.recorder.explanation import explained
from consumer_membership.recorder.recording import UNFIT, Recording, damage_of, read
from consumer_membership.recorder.replay import Difference, Replay, ReplayedEvent
from consumer_membership.recorder.ring import HandlerEntry
from consumer_membership.recorder.values import RecordingError

REPLAY_DESCRIPTION = """\
Replay a recording (consumer.dump(), or recorder.directory) in the membership
state machine, compare each effect with the recorded one, and show the member:
its state, owned partitions, target assignment, and what it waited for. Sends
no requests to a broker. A difference occurs if another version of the package
behaves differently.
"""
REPLAY_EXAMPLES = """\
  consumer-membership replay orders-3.recording.gz --explain
  consumer-membership replay orders-3.recording.gz --step --until 12.5
"""
REPLAY_EXITS: Mapping[int, str] = {
    0: "all effects equal the recorded ones",
    1: "an effect differs, or the output cannot be written",
    2: "invalid argument, or the recording cannot be read",
    130: "interrupted by Ctrl-C",
}
_STEP_WIDTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The recording, the end of the replay (seconds after the first event), and the parts to print."""

    path: Path
    until_s: float = inf
    is_stepwise: bool = False
    explains: bool = False
    is_json: bool = False


def replay(options: ReplayOptions, out: TextIO, err: TextIO) -> int:
    """Print a recording to `out` and return the exit code; an unreadable file is one line on `err`."""

    def run_replay() -> tuple[Iterable[str], int]:
        try:
            recording = read(options.path)
            run = Replay(recording)
            replayed = tuple(run.steps(_begun(recording) + options.until_s))
            # Format all lines here: values of a damaged file may raise only when they are formatted.
            shown = as_json(run, replayed, options).splitlines() if options.is_json else as_text(run, replayed, options)
            lines = list(shown)
        except OSError as error:
            raise ConfigurationError("FILE", str(options.path), error.strerror or str(error)) from error
        except RecordingError as error:
            raise ConfigurationError("FILE", str(options.path), str(error)) from error
        except UNFIT as error:
            raise ConfigurationError("FILE", str(options.path), damage_of(error)) from error
        return lines, DONE if run.difference is None else REFUSED

    return run_query("replay", run_replay, out, err)


# ---- as text ---------------------------------------------------------------------------------------------------------


def as_text(run: Replay, replayed: tuple[ReplayedEvent, ...], options: ReplayOptions) -> Iterator[str]:
    """Yield the headline, the steps if requested, the comparison, and the member's state."""
    recording = run.recording
    yield from _headline(recording)
    if options.is_stepwise:
        yield ""
        yield from _timeline(replayed, recording)
    yield ""
    yield from _comparison(run, recording)
    view = replayed[-1].view if replayed else run.member.view()
    yield ""
    yield from _member(view, recording, _moment_of(replayed, recording))
    if options.explains:
        yield ""
        yield _explanation(recording, replayed, view)


def _headline(recording: Recording) -> Iterator[str]:
    settings = recording.settings
    member = f"group {settings.group_id}" + (f", instance {settings.instance_id}" if settings.instance_id else "")
    yield f"{member}, process {recording.process}, consumer-membership {recording.package}, Python {recording.python}"
    yield f"written at {_clock(recording.written_at)}: {recording.cause}"
    begin = "since the member was created"
    if recording.state is not None:
        begin = f"since a checkpoint after event {recording.first}"
    count = len(recording.entries)
    lasted_s = recording.entries[-1].at - recording.entries[0].at if count else 0.0
    yield f"{count} events in {lasted_s:.1f} s, {begin}"
    if not recording.is_whole:
        yield "the file is incomplete: later events are missing"


def _comparison(run: Replay, recording: Recording) -> Iterator[str]:
    if run.difference is None:
        yield f"replayed {run.count} of {len(recording.entries)} events: all effects equal the recorded ones"
        return
    yield from _difference(run.difference, recording)


def _difference(difference: Difference, recording: Recording) -> Iterator[str]:
    yield f"difference at event {difference.number}, {_after(difference.at, recording)}: {difference.what}"
    yield from (f"  recorded: {_describe(one)}" for one in difference.recorded)
    yield from (f"  replayed: {_describe(one)}" for one in difference.replayed)


def _timeline(replayed: tuple[ReplayedEvent, ...], recording: Recording) -> Iterator[str]:
    """Yield the replayed events, and between them the facts about handlers."""
    steps = [(one.entry.at, _step(one, recording)) for one in replayed]
    handlers = [
        (one.at, iter([f"{'':6} {_after(one.at, recording):>12}  {'handlers':13} {one.fact.text[:_STEP_WIDTH]}"]))
        for one in _handlers_of(replayed, recording)
    ]
    for _, lines in merge(steps, handlers, key=itemgetter(0)):
        yield from lines


def _handlers_of(replayed: tuple[ReplayedEvent, ...], recording: Recording) -> Iterator[HandlerEntry]:
    until = _moment_of(replayed, recording)
    return (one for one in recording.handlers if one.at <= until)


def _step(one: ReplayedEvent, recording: Recording) -> Iterator[str]:
    entry = one.entry
    event = _describe(entry.event)[:_STEP_WIDTH]
    yield f"{one.number:6} {_after(entry.at, recording):>12}  {one.view.state!s:13} {event}"
    yield from (f"{'':35}-> {_describe(effect)[:_STEP_WIDTH]}" for effect in one.effects)
    if entry.error is not None:
        yield f"{'':35}!! {entry.error}"


def _member(view: MembershipView, recording: Recording, now: float) -> Iterator[str]:
    def lasted(since: float | None) -> str:
        return "" if since is None else f", for {now - since:.1f} s"

    protocol = f"{view.protocol.value} ({view.protocol_reason})" if view.protocol_reason else view.protocol.value
    yield f"at {_clock(recording.moment(now))} ({_after(now, recording)})"
    yield f"state     {view.state}{lasted(view.transitions[-1].at if view.transitions else None)}"
    yield f"member    {view.member_id or '-'}, epoch {view.member_epoch}, protocol {protocol}"
    yield f"owned     {named(view.owned) or 'none'}"
    unresolved = f" and {view.unresolved} partitions of topics with unknown names" if view.unresolved else ""
    yield f"target    {named(view.target) or 'none'}{unresolved}"
    if view.pending_revocation:
        yield f"revoking  {named(view.pending_revocation)}"
    until = "" if view.waits_until is None else f", at most {max(0.0, view.waits_until - now):.1f} s more"
    yield f"waits for {view.waits_for_text or 'nothing'}{lasted(view.waits_since)}{until}"
    heartbeat = ""
    if view.last_heartbeat_at is not None:
        heartbeat = f", last heartbeat response {now - view.last_heartbeat_at:.1f} s ago"
    yield f"broker    {view.coordinator or 'coordinator unknown'}{heartbeat}"
    if view.missing_topics:
        yield f"topics    {missing_of(view.missing_topics)}"
    if view.last_error is not None:
        at = "" if view.last_error_at is None else f" ({now - view.last_error_at:.1f} s ago"
        over = "" if view.last_error_over_at is None else f", recovered {now - view.last_error_over_at:.1f} s ago"
        yield f"error     {view.last_error}{at}{over}{')' if at else ''}"
    for change in view.transitions:
        yield f"{_after(change.at, recording):>12}  {change.old} -> {change.new}: {change.reason}"


def _explanation(recording: Recording, replayed: tuple[ReplayedEvent, ...], view: MembershipView) -> str:
    return explained(recording, tuple(one.entry for one in replayed), view)


# ---- as JSON ---------------------------------------------------------------------------------------------------------


def as_json(run: Replay, replayed: tuple[ReplayedEvent, ...], options: ReplayOptions) -> str:
    """Return the result as one JSON object; times are seconds after the first event, except `written_at` (UTC)."""
    recording, difference = run.recording, run.difference
    view = replayed[-1].view if replayed else run.member.view()
    output: dict[str, object] = {
        "group_id": recording.settings.group_id,
        "instance_id": recording.settings.instance_id,
        "process": recording.process,
        "package_version": recording.package,
        "written_at": _clock(recording.written_at),
        "reason": recording.cause,
        "is_complete": recording.is_whole,
        "events": len(recording.entries),
        "replayed_events": run.count,
        "is_identical": difference is None,
        "difference": None
        if difference is None
        else {
            "event": difference.number,
            "at_s": difference.at - _begun(recording),
            "description": difference.what,
            "recorded": [_describe(one) for one in difference.recorded],
            "replayed": [_describe(one) for one in difference.replayed],
        },
        "member": _plain(view, _begun(recording)),
    }
    if options.explains:
        output["explanation"] = _explanation(recording, replayed, view)
    if options.is_stepwise:
        output["steps"] = [
            {
                "number": one.number,
                "at_s": one.entry.at - _begun(recording),
                "event": _describe(one.entry.event),
                "effects": [_describe(effect) for effect in one.effects],
                "state": one.view.state.name,
                "waits_for": one.view.waits_for,
                "waits_for_detail": one.view.waits_for_detail or None,
            }
            for one in replayed
        ]
        output["handlers"] = [
            {"at_s": one.at - _begun(recording), "event": one.fact.text} for one in _handlers_of(replayed, recording)
        ]
    return json.dumps(output, indent=2)


def _plain(view: MembershipView, begun: float) -> dict[str, object]:
    def after(at: float | None) -> float | None:
        return None if at is None else at - begun

    return {
        "state": view.state.name,
        "protocol": view.protocol.value,
        "member_id": view.member_id or None,
        "member_epoch": view.member_epoch,
        "owned": [f"{one.topic}-{one.partition}" for one in sorted(view.owned)],
        "target": [f"{one.topic}-{one.partition}" for one in sorted(view.target)],
        "unresolved": view.unresolved,
        "pending_revocation": [f"{one.topic}-{one.partition}" for one in sorted(view.pending_revocation)],
        "waits_for": view.waits_for,
        "waits_for_detail": view.waits_for_detail or None,
        "waits_since": after(view.waits_since),
        "waits_until": after(view.waits_until),
        "coordinator": None if view.coordinator is None else str(view.coordinator),
        "last_heartbeat_at": after(view.last_heartbeat_at),
        "last_error": None if view.last_error is None else str(view.last_error),
        "last_error_at": after(view.last_error_at),
        "last_error_over_at": after(view.last_error_over_at),
        "transitions": [
            {"at_s": after(one.at), "old": one.old.name, "new": one.new.name, "reason": one.reason}
            for one in view.transitions
        ],
    }


# ---- formatting ------------------------------------------------------------------------------------------------------


def _begun(recording: Recording) -> float:
    return recording.entries[0].at if recording.entries else recording.clock


def _moment_of(replayed: tuple[ReplayedEvent, ...], recording: Recording) -> float:
    """Return the time of the member's state: the end of the recording, or the last event of a shorter replay."""
    if len(replayed) == len(recording.entries) or not replayed:
        return recording.known_until
    return replayed[-1].entry.at


def _after(at: float, recording: Recording) -> str:
    return f"{at - _begun(recording):+.3f} s"


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def _describe(value: object) -> str:
    """Return a short text of a value of the core; empty fields are omitted."""
    match value:
        case Enum():
            return value.name
        case str() | None:
            return repr(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            values = ((one.name, getattr(value, one.name)) for one in fields(value))
            inner = ", ".join(
                f"{name}={_describe(one)}" for name, one in values if one is not None and one not in ("", ())
            )
            return f"{type(value).__name__}({inner})"
        case tuple() if hasattr(value, "_fields"):
            return "-".join(map(str, value))
        case tuple() | list() | frozenset() | set():
            return f"[{', '.join(sorted(map(_describe, value)))}]"
        case _ if hasattr(value, "items"):
            return f"{{{', '.join(sorted(f'{_describe(key)}: {_describe(one)}' for key, one in value.items()))}}}"
        case _:
            return str(value)
